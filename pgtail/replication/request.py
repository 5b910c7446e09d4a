"""The user's request of a slot. Imports nothing heavy, because the command line is made from it."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct

from pgtail.options import family, option
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.postgres.pgoutput_options import Wanted

_slot = partial(option, group="slot")
Ack: TypeAlias = Literal["none", "commit", "exit"]
LsnOrNow: TypeAlias = int | Literal["now"] | None
"""A WAL position; 'now' is the server's current one."""


def lsn_or_now(text: str) -> int | Literal["now"]:
    """A log position, or the word now. Raises ValueError."""
    return "now" if text == "now" else parse_lsn(text)


def encoding_name(text: str) -> str:
    """Python's name of an encoding that is given by it or by PostgreSQL's. Raises ValueError."""
    if text == "utf-8":
        return text
    from pgtail.values.encodings import of_postgresql  # imports orjson

    try:
        return of_postgresql(text)
    except LookupError:
        raise ValueError(
            f"{text!r} is no encoding of PostgreSQL that Python has; examples are UTF8, LATIN1, WIN1252"
        ) from None


class Request(Struct, frozen=True):
    """The user's request. None means the default for the slot."""

    slot: str | None = _slot(
        "-S",
        "--slot",
        metavar="NAME",
        completion="slots",
        setting="text",
        help="The slot to read; default: a temporary one.",
    )
    fork: str | None = _slot(
        "--fork",
        metavar="SLOT",
        completion="slots",
        instead_of="slot",
        help="Read a temporary copy of SLOT, even if it is in use or has another plugin.",
    )
    create_slot: bool = _slot("--create-slot", default=False, help="Create the slot first.")
    publications: tuple[str, ...] = _slot(
        "-P",
        "--publication",
        default=(),
        metavar="NAME",
        completion="publications",
        setting="list",
        help="The publication to read; the default is the only one of the database, or with a temporary slot all of"
        " them. Repeatable.",
    )
    allow_missing_publication: bool = _slot(
        "--allow-missing-publication",
        default=False,
        help="PostgreSQL 18 and later: ignore publications that do not exist.",
    )
    ack: Ack | None = _slot(
        "--ack",
        kind=("none", "commit", "exit"),
        help="What to acknowledge: nothing, each commit once it is written, or all at a normal end. The default is none"
        " for a slot that existed before, else commit.",
    )
    yes: bool = _slot(
        "--yes", default=False, help="Allow --startpos with --ack, which skips changes for all readers of the slot."
    )
    start: LsnOrNow = option(
        "-I",
        "--startpos",
        aliases=("--from",),
        convert=lsn_or_now,
        group="range",
        metavar="LSN|now",
        help="Start at this log position; now is the server's current one.",
    )
    wanted: Wanted = family(Wanted)
    encoding: str | None = option(
        "--encoding",
        convert=encoding_name,
        group="protocol",
        metavar="NAME",
        help="Receive text as the server stores it, and decode it from this encoding.",
    )
    until: LsnOrNow = None
    until_time: int | None = None
    """End before the first transaction that is committed later: microseconds since 2000-01-01 UTC."""
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
