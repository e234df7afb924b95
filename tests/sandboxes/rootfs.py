"""Root file systems to test with, made of this machine's own programs, and archives in the forms that tools write."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "id", "env", "sleep", "touch", "mkdir", "rm", "test", "mv", "chmod", "chown", "ln",
            "setsid")
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64")


def make_root(folder: Path) -> Path:
    """A small system that runs: a few programs, their libraries, a file that tells it from the host."""
    for name in ("usr/bin", "usr/lib", "etc/apt/apt.conf.d", "opt", "dev", "proc", "tmp"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to("usr/lib" if name == "lib64" else f"usr/{name}")
    for name in PROGRAMS:
        source = os.path.realpath(f"/bin/{name}")
        shutil.copy(source, folder / "usr/bin" / name)
        listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
        for word in (word for word in listed.split() if word.startswith("/")):
            inside = folder / word.lstrip("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            if not inside.exists():
                shutil.copy(os.path.realpath(word), inside)
    (folder / "etc/os-release").write_text("ID=small\n")
    return folder


Members = Iterable[tuple[str, object]]
"""Name, and bytes for a program, None for a folder, a text for a symbolic link, or a member as it is."""


def tar_of(members: Members, mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for name, what in members:
            if isinstance(what, tuple):
                member, what = what
            else:
                member = what if isinstance(what, tarfile.TarInfo) else tarfile.TarInfo(name)
                member.mode |= 0o755
            member.name = name
            if what is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(what, str):
                member.type, member.linkname = tarfile.SYMTYPE, what
            elif isinstance(what, bytes):
                member.size = len(what)
            tar.addfile(member, io.BytesIO(what) if isinstance(what, bytes) else None)
    return made.getvalue()


def special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo()
    member.type, member.linkname = kind, target
    return member


def plain_file(data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo()
    member.mode, member.mtime = 0o600, 12345
    return member, data


def saved(layers: Iterable[bytes], environment: Iterable[str] = (),
          architecture: str = ARCHITECTURE) -> dict[str, bytes]:
    """The members of an archive that `docker save` wrote before it wrote OCI layouts."""
    config = json.dumps({"architecture": architecture, "config": {"Env": list(environment)}}).encode()
    found = {f"{number}/layer.tar": layer for number, layer in enumerate(layers)}
    manifest = [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": list(found)}]
    return {**found, "config.json": config, "manifest.json": json.dumps(manifest).encode()}


def layout(layers: Iterable[bytes], environment: Iterable[str] = ()) -> dict[str, bytes]:
    """The files of an OCI layout, with an index in the index and an attestation beside the image, as builders write."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, **more: object) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{name}"] = data
        return {"digest": f"sha256:{name}", "size": len(data), **more}

    def document(value: Mapping[str, object], **more: object) -> dict[str, object]:
        return blob(json.dumps(value).encode(), **more)

    config = document({"architecture": ARCHITECTURE, "os": "linux", "config": {"Env": list(environment)}})
    manifest = document({"config": config, "layers": [blob(layer) for layer in layers]},
                        platform={"architecture": ARCHITECTURE, "os": "linux"})
    attestation = document({"config": config, "layers": []}, platform={"architecture": "unknown", "os": "unknown"})
    index = document({"manifests": [manifest, attestation]})
    return {**blobs, "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps({"manifests": [index]}).encode()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
