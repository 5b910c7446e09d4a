"""Object stores through obstore: S3, Google Cloud Storage, Azure."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError, UnknownConfigurationKeyError
from obstore.store import from_url

from pgtail.errors import InputError, OptionError, PgtailError
from pgtail.files.spool import SpoolFile
from pgtail.storage.base import Entry, Location, Reader, Writer, after_name, check_small
from pgtail.storage.errors import Conflict, reading_failed, refusal_of, writing_failed
from pgtail.storage.options import StorageOptions

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutResult
    from obstore.store import ObjectStore

T = TypeVar("T")

_CLIENT: Final = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only"),
        *("http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle"),
        *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes"),
        *("randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent"),
    )
)
"""Options of the HTTP client, which the library takes apart from those of the store."""

_CLOUDS: Final = {
    **dict.fromkeys(("s3", "s3a"), "aws"),
    "gs": "google",
    **dict.fromkeys(("az", "abfs", "abfss"), "azure"),
}
"""What names of options and variables begin with, by the scheme."""
_OTHER_CLOUDS: Final = {cloud: {*_CLOUDS.values()} - {cloud} for cloud in _CLOUDS.values()}

_LIMITS: Final = {"timeout": "2m"}
"""The timeout of one request; the library's 30 seconds are too few for a large segment over a slow line."""
_RETRIES: Final = 3
_RETRY_TIMEOUT: Final = timedelta(seconds=60)

_FIRST_BLOCK: Final = 64 * 1024
_LARGEST_BLOCK: Final = 4 << 20
"""Bytes of one request: each is twice as large as the one before it while a file is read from start to end."""
_PART: Final = 8 << 20
"""Bytes that are uploaded at a time; a file of no more is uploaded by one request."""


def _in_background(function: Callable[..., T], *arguments: Any, **named: Any) -> Future[T]:
    """Call this in a thread: a signal interrupts who waits for the result, but not a call of the library."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:  # noqa: BLE001 -- the waiting thread raises it; a panic is no Exception
            future.set_exception(error)

    threading.Thread(target=run, name="storage", daemon=True).start()
    return future


def _call(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    return _in_background(function, *arguments, **named).result()


@functools.cache
def _store(base: str, options: StorageOptions) -> ObjectStore:
    cloud = _CLOUDS[base.partition(":")[0]]
    client: dict[str, Any] = dict(_LIMITS)
    config = {}
    for name in _CLIENT:
        variable = os.environ.get(f"{cloud}_{name}".upper())
        if variable is not None:
            client[name] = variable
    for name, value in options.pairs:
        name = name.lower()
        if name.partition("_")[0] in _OTHER_CLOUDS[cloud]:
            continue  # for another storage of the same command
        plain = name.removeprefix(f"{cloud}_")
        if plain in _CLIENT:
            client[plain] = value
        else:
            config[name] = value
    retry: Any = {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT}
    try:
        return from_url(base, config=config or None, client_options=client, retry_config=retry)  # type: ignore[call-overload, no-any-return]
    except UnknownConfigurationKeyError as error:
        raise OptionError(f"--storage: {str(error).partition(chr(10))[0]}") from None
    except Exception as error:  # noqa: BLE001 -- the library raises various ones
        raise OptionError(f"{base}: {refusal_of(error, options)}") from None


class ObjectReader(Reader):
    """An open object. Reads one block ahead while it is read from start to end."""

    def __init__(self, location: ObjectLocation) -> None:
        self._location = location
        with location.reading():
            meta = _call(obstore.head, location.store(), location.key)
        super().__init__(meta["size"], location.version_of(meta))
        self._etag = meta["e_tag"]
        self._start, self._block = 0, b""
        self._length = _FIRST_BLOCK // 2
        self._next: tuple[int, Future[bytes]] | None = None

    def pread(self, size: int, offset: int) -> bytes:
        size = max(min(size, self.size - offset), 0)
        if size > _FIRST_BLOCK and not self._has(offset):
            return self._await(self._fetch(offset, size), offset)
        pieces: list[bytes] = []
        while size > 0:
            piece = self._piece(size, offset)
            pieces.append(piece)
            size -= len(piece)
            offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, size: int, offset: int) -> bytes:
        """What the block has of these bytes, at least one; loads the block if it has none."""
        if not self._has(offset):
            self._load(offset)
        return self._block[offset - self._start :][:size]

    def _has(self, offset: int) -> bool:
        return self._start <= offset < self._start + len(self._block)

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return super().read()
        data = self._piece(size, self._position) if size > 0 and self._position < self.size else b""
        self._position += len(data)
        return data

    def _load(self, offset: int) -> None:
        follows = offset == self._start + len(self._block)
        self._length = min(2 * self._length, _LARGEST_BLOCK) if follows else _FIRST_BLOCK
        ahead, self._next = self._next, None
        future = ahead[1] if ahead is not None and ahead[0] == offset else self._fetch(offset, self._length)
        self._start, self._block = offset, self._await(future, offset)
        end = offset + len(self._block)
        if follows and offset and end < self.size:
            self._next = end, self._fetch(end, self._length)

    def _fetch(self, offset: int, length: int) -> Future[bytes]:
        location = self._location
        part: GetOptions = {"range": (offset, min(offset + length, self.size)), "if_match": self._etag}
        return _in_background(lambda: obstore.get(location.store(), location.key, options=part).bytes().to_bytes())

    def _await(self, future: Future[bytes], offset: int) -> bytes:
        with self._location.reading():
            try:
                block = future.result()
            except PreconditionError:
                block = b""
        if not block:
            raise InputError("changed while it was read", source=str(self._location), offset=offset)
        return block


class ObjectWriter(Writer):
    """A new object: kept on this machine until it is complete, so that no part of one is ever seen."""

    def __init__(self, location: ObjectLocation) -> None:
        self._location = location
        self._kept = SpoolFile(f"keep {location} until it is uploaded", memory=_PART)

    def write(self, data: bytes) -> int:
        self._kept.write(bytes(data))
        return len(data)

    def tell(self) -> int:
        return self._kept.size

    def finish(self) -> None:
        location, multipart = self._location, self._kept.size > _PART
        data = self._parts() if multipart else self._kept.read(0, self._kept.size)
        try:
            with location.writing():
                _call(obstore.put, location.store(), location.key, data, use_multipart=multipart, chunk_size=_PART)
        finally:
            self._kept.close()

    def _parts(self) -> Iterator[bytes]:
        for offset in range(0, self._kept.size, _PART):
            yield self._kept.read(offset, _PART)

    def abandon(self) -> None:
        self._kept.close()


@dataclass(frozen=True, slots=True)  # the metaclass of an abstract class is not that of a Struct
class ObjectLocation(Location):
    """An object, or the prefix of several: `base` is the bucket's URI, `key` a path without a slash at its ends."""

    base: str
    key: str
    options: StorageOptions

    replaces = True

    @property
    def storage(self) -> StorageOptions:
        return self.options

    def __str__(self) -> str:
        return f"{self.base}/{self.key}"

    def __truediv__(self, name: str) -> ObjectLocation:
        return ObjectLocation(self.base, f"{self.key}/{name}" if self.key else name, self.options)

    def store(self) -> ObjectStore:
        """The bucket, for obstore. Raises OptionError if that is missing, or an option is not known."""
        return _store(self.base, self.options)

    def list(self, after: str = "") -> list[Entry]:
        prefix = f"{self.key}/" if self.key else ""

        def entries() -> list[Entry]:
            offset = prefix + after if after else None
            pages = obstore.list(self.store(), self.key or None, offset=offset)
            keys = ((meta["path"].removeprefix(prefix), meta["size"]) for page in pages for meta in page)
            return after_name((Entry(name, size) for name, size in keys if "/" not in name), after)

        with self.reading():
            return _call(entries)

    def head(self) -> Entry | None:
        if not self.key:
            return None
        with self.reading(), contextlib.suppress(FileNotFoundError):
            return Entry(self.name, _call(obstore.head, self.store(), self.key)["size"])
        return None

    def open(self) -> Reader:
        return ObjectReader(self)

    def read(self) -> tuple[bytes, str] | None:
        def content() -> tuple[bytes, str]:
            found = obstore.get(self.store(), self.key)
            check_small(found.meta["size"], str(self))
            return found.bytes().to_bytes(), self.version_of(found.meta)

        with self.reading(), contextlib.suppress(FileNotFoundError):
            return _call(content)
        return None

    def create(self, data: bytes) -> str:
        return self._put(data, "create")

    def replace(self, data: bytes, version: str) -> str:
        return self._put(data, {self._version_name: version})

    def writer(self) -> Writer:
        return ObjectWriter(self)

    def delete(self) -> None:
        with self.writing(), contextlib.suppress(FileNotFoundError):
            _call(obstore.delete, self.store(), self.key)

    def delete_all(self) -> None:
        def delete() -> None:
            for page in obstore.list(self.store(), self.key or None):
                obstore.delete(self.store(), [meta["path"] for meta in page])

        with self.writing():
            _call(delete)

    def _put(self, data: bytes, mode: Any) -> str:
        with self.writing():
            try:
                return self.version_of(_call(obstore.put, self.store(), self.key, data, mode=mode, use_multipart=False))
            except (AlreadyExistsError, PreconditionError):
                raise Conflict(f"{self} was written by another process") from None

    @property
    def _version_name(self) -> Literal["e_tag", "version"]:
        """What the store compares in a conditional put."""
        return "version" if self.base.startswith("gs:") else "e_tag"

    def version_of(self, found: ObjectMeta | PutResult) -> str:
        """The version of an object, of what the library says about it."""
        return found[self._version_name] or ""

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Raises InputError for the various errors of the library."""
        return self._raising(reading_failed)

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Raises OutputError for them."""
        return self._raising(writing_failed)

    @contextlib.contextmanager
    def _raising(self, failed: Callable[[Exception, str, StorageOptions], PgtailError]) -> Iterator[None]:
        try:
            yield
        except PgtailError:
            raise
        except Exception as error:  # noqa: BLE001
            raise failed(error, str(self), self.options) from None
