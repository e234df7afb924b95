"""What a broker needs to ask for TLS and passwords: a private CA, a certificate, users, a listener for each way in.

For tests and trials on one machine. The certificate is for 127.0.0.1 alone; the keys lie unencrypted in the folder.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PROTOCOLS = {"SSL": "SSL", "MTLS": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class Secured(NamedTuple):
    """Arguments of a `Broker`, and the files that its clients need."""

    listeners: dict[str, tuple[str, int]]
    properties: dict[str, object]
    format_arguments: list[str]
    authority: Path
    client_certificate: Path
    client_key: Path


def secured(folder: Path, users: Mapping[str, str], free_port: Callable[[], int]) -> Secured:
    folder.mkdir(parents=True, exist_ok=True)
    key, authority = issue("headrace test authority")
    for name in ("server", "client"):
        own_key, certificate = issue(name, key, authority, address="127.0.0.1" if name == "server" else None)
        (folder / f"{name}.key").write_bytes(_pem(own_key))
        (folder / f"{name}.crt").write_bytes(_pem(certificate))
    (folder / "server.pem").write_bytes((folder / "server.key").read_bytes() + (folder / "server.crt").read_bytes())
    (folder / "ca.pem").write_bytes(_pem(authority))
    properties: dict[str, object] = {
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
        "ssl.keystore.type": "PEM", "ssl.keystore.location": folder / "server.pem",
        "ssl.truststore.type": "PEM", "ssl.truststore.location": folder / "ca.pem",
        "listener.name.mtls.ssl.client.auth": "required"}
    login = "org.apache.kafka.common.security"
    known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    for listener in ("sasl_plaintext", "sasl_ssl"):
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
            f"{login}.plain.PlainLoginModule required {known};")
        for mechanism in SCRAM:
            properties[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = (
                f"{login}.scram.ScramLoginModule required;")
    scram = [argument for user, password in users.items() for mechanism in SCRAM
             for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")]
    return Secured({name: (protocol, free_port()) for name, protocol in PROTOCOLS.items()}, properties, scram,
                   folder / "ca.pem", folder / "client.crt", folder / "client.key")


def issue(name: str, signer: Any = None, authority: Any = None, address: str | None = None) -> tuple[Any, Any]:
    """A key and a certificate for it; without a signer the certificate of an authority of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(authority.subject if authority else subject)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True))
    if address:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        made = made.add_extension(names, critical=False)
    return key, made.sign(signer or key, hashes.SHA256())


def _pem(thing: Any) -> bytes:
    if isinstance(thing, x509.Certificate):
        return thing.public_bytes(serialization.Encoding.PEM)
    return bytes(thing.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                     serialization.NoEncryption()))
