"""A path or URI to a Location."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pgtail.errors import OptionError
from pgtail.storage.base import Location
from pgtail.storage.local import LocalLocation
from pgtail.storage.options import NO_OPTIONS, StorageOptions

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECTS: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_KNOWN: Final = "s3://, gs://, az://, abfs://, hdfs:// or a local path"


def is_uri(text: str) -> bool:
    """Whether this is a URI and not a local path."""
    return _URI.match(text) is not None


def locate_target(text: str, options: StorageOptions = NO_OPTIONS) -> Location:
    """A folder to write files to, by its absolute path. Raises OptionError, for HDFS too."""
    if text.lower().startswith("hdfs://"):
        raise OptionError(f"{text}: pgtail only reads from HDFS; write to a local directory or an object store")
    return locate(text, options).absolute()


def locate(text: str, options: StorageOptions = NO_OPTIONS) -> Location:
    """The location that a path or URI names; opens nothing. Raises OptionError for an unknown scheme."""
    match = _URI.match(text)
    if match is None:
        return LocalLocation(Path(text))
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == "file":
        if not rest.startswith("/"):
            raise OptionError(f"{text}: a local file is file:///PATH, or the path alone")
        return LocalLocation(Path(unquote(rest)))
    bucket, _, key = rest.partition("/")
    if scheme in _OBJECTS:
        if not bucket:
            raise OptionError(f"{text} names no bucket: expected {scheme}://BUCKET/PATH")
        try:
            from pgtail.storage.objects import ObjectLocation
        except ImportError:
            raise OptionError(f"{text} needs the package obstore: pip install 'pgtail[storage]'") from None
        return ObjectLocation(f"{scheme}://{bucket}", key.strip("/"), options)
    if scheme == "hdfs":
        try:
            from pgtail.storage.hdfs import HdfsLocation
        except ImportError:
            raise OptionError(f"{text} needs the package pyarrow: pip install pyarrow") from None
        return HdfsLocation(f"hdfs://{bucket}", "/" + key.strip("/"))
    raise OptionError(f"{scheme}:// is no storage that pgtail knows: expected {_KNOWN}")
