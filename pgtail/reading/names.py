"""The files that names stand for: standard input, local files, objects of a store, and the segments of captures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from pgtail.inputs.source.file import Source
from pgtail.inputs.source.opened import Content, Opened
from pgtail.storage.options import StorageOptions, is_uri

if TYPE_CHECKING:
    from pgtail.storage import Location


N = TypeVar("N", bound="str | Content | Opened")
"""What a reader is given."""


def is_local_file(name: str) -> bool:
    """Whether this names standard input or a local path that is not a folder: there is no need of a Location."""
    return name == "-" or not (is_uri(name) or os.path.isdir(name))


def expanded(names: Iterable[N], storage: StorageOptions) -> Iterator[N | str | Location]:
    """The arguments of Source for these names: a folder is replaced by the segments of the capture in it.

    Raises InputError, and OptionError for a URI that cannot be used.
    """
    for name in names:
        place = _place(name, storage)
        if place is None:
            yield name
        elif place.is_folder():
            from pgtail.capture.reader import segments

            yield from (segment.location for segment in segments(place))
        else:
            yield place


def check_readable(names: Iterable[str], storage: StorageOptions) -> None:
    """Raise the error of reading them if one of these is not there, or may not be read. Opens no pipe."""
    for name in names:
        if not is_local_file(name):
            next(expanded([name], storage), None)
        elif name != "-" and not os.access(name, os.R_OK):
            Source(name).close()


def folders(names: Iterable[str | Content | Opened], storage: StorageOptions) -> Iterator[Location]:
    """The folders among these names. Raises OptionError for a URI that cannot be used."""
    for name in names:
        place = _place(name, storage)
        if place is not None and place.is_folder():
            yield place


def _place(name: str | Content | Opened, storage: StorageOptions) -> Location | None:
    """The Location of a name that needs one."""
    if not isinstance(name, str) or is_local_file(name):
        return None
    from pgtail.storage import locate

    return locate(name, storage)
