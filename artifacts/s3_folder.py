"""A prefix of a bucket in S3-compatible storage as a Folder.

`create` and `replace` are conditional puts (`If-None-Match`, `If-Match`), so of two processes one wins. Endpoint and
credentials come from the environment and appear in no message. A request is tried again for a few seconds, no longer:
who waits for storage decides that.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit

from artifacts.folder import S3_SCHEME, Stored
from artifacts.s3_streams import Reader, Writer
from schemas.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from obstore.store import S3Store

_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL",
              "AWS_ALLOW_HTTP", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_SKIP_SIGNATURE")
_RETRIES, _RETRY_S, _CONNECT_S, _REQUEST_S = 3, 8, 3, 60
_PART_BYTES = 8 << 20
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def open_s3(location: str, environment: Mapping[str, str]) -> S3Folder:
    bucket, _, prefix = location.removeprefix(S3_SCHEME).partition("/")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise ConfigError("not a bucket", value=location, hint="write s3://bucket/prefix")
    options = _options(environment)
    return S3Folder(_Bucket(bucket, _open_store(bucket, options)), prefix.strip("/"), options)


def _options(environment: Mapping[str, str]) -> dict[str, str]:
    options = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    options.setdefault("AWS_REGION", environment.get("AWS_DEFAULT_REGION") or "us-east-1")
    endpoint = urlsplit(options.get("AWS_ENDPOINT_URL", ""))
    if endpoint.scheme == "http" and "AWS_ALLOW_HTTP" not in options:
        if endpoint.hostname not in _LOOPBACK:
            raise ConfigError("storage without TLS", where="AWS_ENDPOINT_URL", value=f"http://{endpoint.hostname}",
                              hint="use https://, or say AWS_ALLOW_HTTP=true")
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def _open_store(bucket: str, options: Mapping[str, str]) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError:
        raise UnavailableError("S3-compatible storage needs the package obstore",
                               hint="pip install 'headrace[s3]'") from None
    config: Any = {name.lower(): value for name, value in options.items() if name != "AWS_ALLOW_HTTP"}
    try:
        return S3Store(bucket, config=config, client_options={
            "allow_http": options.get("AWS_ALLOW_HTTP", "").lower() == "true",
            "connect_timeout": timedelta(seconds=_CONNECT_S), "timeout": timedelta(seconds=_REQUEST_S)},
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)})
    except Exception as wrong:
        raise ConfigError(f"storage cannot be opened ({_line(wrong)})", value=S3_SCHEME + bucket,
                          hint="look at the AWS_ variables") from None


class _Bucket:
    """The store of a bucket and whether the bucket was seen: a missing bucket must not look like a missing file."""

    def __init__(self, name: str, store: S3Store) -> None:
        self.name, self.store, self._seen = name, store, False

    def require(self) -> None:
        if not self._seen:
            next(iter(self.store.list(chunk_size=1)), None)
            self._seen = True


class S3Folder:
    def __init__(self, bucket: _Bucket, prefix: str, options: Mapping[str, str]) -> None:
        self._bucket, self._prefix, self._options = bucket, prefix, options
        self._store = bucket.store

    @property
    def url(self) -> str:
        return f"{S3_SCHEME}{self._bucket.name}/{self._prefix}".rstrip("/")

    @property
    def options(self) -> Mapping[str, str]:
        return {**self._options, "aws_conditional_put": "etag", "connect_timeout": f"{_CONNECT_S}s",
                "timeout": f"{_REQUEST_S}s", "max_retries": str(_RETRIES), "retry_timeout": f"{_RETRY_S}s"}

    def at(self, name: str) -> S3Folder:
        return S3Folder(self._bucket, f"{self._prefix}/{name}".strip("/"), self._options)

    def make(self) -> None:
        """There are no folders in a bucket."""

    def read(self, name: str) -> bytes:
        with self._told(name):
            return bytes(self._store.get(self._key(name)).bytes())

    def reader(self, name: str, size: int | None = None) -> BinaryIO:
        key = self._key(name)
        if size is None:
            with self._told(name):
                size = int(self._store.head(key)["size"])

        def fetch(start: int, end: int) -> bytes:
            with self._told(name):
                return bytes(self._store.get_range(key, start=start, end=end))

        return cast(BinaryIO, Reader(size, fetch))

    def write(self, name: str, data: bytes) -> None:
        with self._told(name):
            self._store.put(self._key(name), data)

    @contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        import obstore

        with self._told(name):
            file = obstore.open_writer(self._store, self._key(name), buffer_size=_PART_BYTES)
            with file:  # Aborts the upload after an exception.
                yield cast(BinaryIO, Writer(file))

    def create(self, name: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        with self._told(name):
            try:
                self._store.put(self._key(name), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def replace(self, name: str, data: bytes, expected: bytes | None) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if expected is None:
            return self.create(name, data)
        with self._told(name):
            try:
                found = self._store.get(self._key(name))
                if bytes(found.bytes()) != expected:
                    return False
                self._store.put(self._key(name), data, mode={"e_tag": found.meta["e_tag"]}, use_multipart=False)
            except (FileNotFoundError, AlreadyExistsError, PreconditionError):
                self._bucket.require()
                return False
        return True

    def size(self, name: str) -> int | None:
        with self._told(name):
            try:
                return int(self._store.head(self._key(name))["size"])
            except FileNotFoundError:
                self._bucket.require()
                return None

    def list(self, prefix: str = "") -> Iterator[Stored]:
        folder, _, _ = prefix.rpartition("/")
        below = f"{self._prefix}/" if self._prefix else ""
        with self._told(prefix):
            for chunk in self._store.list(self._key(folder) or None):
                for meta in chunk:
                    name = meta["path"].removeprefix(below)
                    if name.startswith(prefix):
                        yield Stored(name, meta["size"], int(meta["last_modified"].timestamp() * 1_000_000))

    def remove(self, name: str) -> None:
        with self._told(name):
            try:
                self._store.delete(self._key(name))
            except FileNotFoundError:
                self._bucket.require()

    def sync(self, names: Iterable[str]) -> None:
        """What S3 has acknowledged is durable."""

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".strip("/")

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Errors of storage as OSErrors in one line, without what the server's answer holds of the request."""
        from obstore.exceptions import BaseError

        where = f"{self.url}/{name}"
        try:
            try:
                yield
            except FileNotFoundError:
                self._bucket.require()
                raise FileNotFoundError(errno.ENOENT, "no such file", where) from None
        except (BaseError, OSError) as wrong:
            if getattr(wrong, "errno", None):  # Not storage's.
                raise
            raise _os_error(wrong, where) from None


_REFUSED = ("AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "status: 403",
            "status: 401", "403 Forbidden", "401 Unauthorized")


def _os_error(wrong: Exception, where: str) -> OSError:
    text, kind = str(wrong), type(wrong).__name__
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or any(word in text for word in _REFUSED):
        return PermissionError(errno.EACCES, "storage refused the credentials (AWS_ACCESS_KEY_ID and others)", where)
    if "NoSuchBucket" in text:
        return OSError(errno.ENODEV, "there is no such bucket", where)
    if "error sending request" in text or "timed out" in text:
        return OSError(errno.EHOSTUNREACH, "storage does not answer at the endpoint (AWS_ENDPOINT_URL)", where)
    return OSError(errno.EIO, f"storage failed ({_line(wrong)})", where)


def _line(wrong: Exception) -> str:
    return " ".join(str(wrong).split("\n\n")[0].split())[:200]
