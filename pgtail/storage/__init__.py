"""Files and folders by path or URI: local, S3, Google Cloud Storage and Azure (obstore), HDFS (pyarrow.fs).

locate(text, options) returns a Location. It can be pickled, so that another process opens it.
"""

from __future__ import annotations

from pgtail.storage.base import Entry, Location, Reader, Writer
from pgtail.storage.errors import UNAVAILABLE, Conflict, reading_failed, writing_failed
from pgtail.storage.locate import is_uri, locate, locate_target
from pgtail.storage.options import NO_OPTIONS, StorageOptions, parse_options

__all__ = [
    "NO_OPTIONS",
    "UNAVAILABLE",
    "Conflict",
    "Entry",
    "Location",
    "Reader",
    "StorageOptions",
    "Writer",
    "is_uri",
    "locate",
    "locate_target",
    "parse_options",
    "reading_failed",
    "writing_failed",
]
