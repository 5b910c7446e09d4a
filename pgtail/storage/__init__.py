"""Files and folders by path or URI: local, S3, Google Cloud Storage and Azure (obstore), HDFS (pyarrow.fs).

locate(text, options) returns a Location. It can be pickled, so that another process opens it. The modules of this
package are imported when one of their names is used: a command that reads a local file needs none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pgtail.storage.base import Entry, Location, Reader, Writer
    from pgtail.storage.errors import UNAVAILABLE, Conflict, reading_failed, writing_failed
    from pgtail.storage.options import NO_OPTIONS, StorageOptions, is_uri, parse_options
    from pgtail.storage.places import locate, locate_target

_MODULES: Final = {
    "base": ("Entry", "Location", "Reader", "Writer"),
    "errors": ("UNAVAILABLE", "Conflict", "reading_failed", "writing_failed"),
    "options": ("NO_OPTIONS", "StorageOptions", "is_uri", "parse_options"),
    "places": ("locate", "locate_target"),
}
"""Module -> its names. No module has the name of a function here: once imported, it would hide it."""

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


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return found
    raise AttributeError(f"module {__name__} has no attribute {name}")
