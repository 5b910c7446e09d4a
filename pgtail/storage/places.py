"""A path or URI to a Location."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pgtail.errors import OptionError
from pgtail.storage.base import Location
from pgtail.storage.local import LocalLocation
from pgtail.storage.options import NO_OPTIONS, URI, StorageOptions

_PLAIN: Final = re.compile(r"\w+://[\w./~+=&@-]*", re.ASCII)
"""URIs that every reader of Delta tables takes for the same folder."""
_OBJECTS: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_KNOWN: Final = "s3://, gs://, az://, abfs://, hdfs:// or a local path"


def locate_target(text: str, options: StorageOptions = NO_OPTIONS) -> Location:
    """A folder to write tables to, by its absolute path. Raises OptionError, for HDFS too."""
    if text.lower().startswith("hdfs://"):
        raise OptionError(f"{text}: pgtail only reads from HDFS; write to a local directory or an object store")
    place = locate(text, options).absolute()
    if place.path is None and not _PLAIN.fullmatch(text):
        # deltalake decodes a%41b, Polars encodes a space, and both end a URI at # and ?.
        raise OptionError(f"{text}: tables in an object store need a URI of a-z, A-Z, 0-9 and . _ - ~ + = & @ alone")
    return place


def locate(text: str, options: StorageOptions = NO_OPTIONS) -> Location:
    """The location that a path or URI names; opens nothing. Raises OptionError for an unknown scheme."""
    match = URI.match(text)
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
            cure = "pip install '.[storage]' in a checkout of pgtail"
            raise OptionError(f"{text} needs the package obstore: {cure}") from None
        return ObjectLocation(f"{scheme}://{bucket}", key.strip("/"), options)
    if scheme == "hdfs":
        try:
            from pgtail.storage.hdfs import HdfsLocation
        except ImportError:
            raise OptionError(f"{text} needs the package pyarrow: pip install pyarrow") from None
        return HdfsLocation(f"hdfs://{bucket}", "/" + key.strip("/"))
    cure = "; pgtail stream reads a server" if scheme in ("postgresql", "postgres") else ""
    raise OptionError(f"{scheme}:// is no storage that pgtail knows: expected {_KNOWN}{cure}")
