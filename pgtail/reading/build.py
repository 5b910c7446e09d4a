"""Parts of a pipeline from options: types, streamed transactions to show, seen rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pgtail.changes.streaming import Show
from pgtail.errors import OptionError
from pgtail.outputs import OutputOptions
from pgtail.values import Types

if TYPE_CHECKING:
    from pgtail.changes.filters import Filter
    from pgtail.changes.seen_rows import IsSame, SeenRows


def build_types(
    *, encoding: str = "utf-8", numbers: Literal["exact", "string"] = "exact", enums: Iterable[str] = ()
) -> Types:
    """The types of one stream; `enums` are the NAME=enum of --type. Raises OptionError."""
    names = []
    for text in enums:
        name, _, kind = text.rpartition("=")
        if not name or kind != "enum":
            raise OptionError(f"--type {text}: expected NAME=enum")
        names.append(name)
    return Types(encoding=encoding, numbers=numbers, enums=names)


def show_of(options: OutputOptions) -> Show:
    """The streamed transactions to show."""
    return Show(options.show_aborted, options.show_uncommitted)


def seen_rows_of(
    options: OutputOptions,
    filter_: Filter,
    *,
    asked: bool,
    is_same: IsSame | None = None,
) -> SeenRows | None:
    """The store of rows from which old values are taken, if any; `asked`: --old-values asks for them."""
    if not options.takes_seen:
        return None
    from pgtail.changes.seen_rows import SeenRows  # not loaded for every output

    return SeenRows(options.old_values_limit, asked=asked, selects=filter_.name_passes, is_same=is_same)
