"""The coverage of dumps by checksums: of the bytes read until an error, and of whole files, with --verify."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pgtail.capture.format import BEGINNING, CLOSED, END, OPEN
from pgtail.errors import InputError, OptionError
from pgtail.inputs.source.file import Source
from pgtail.inputs.source.opened import Content, Opened
from pgtail.log import logger
from pgtail.pgoutput.scalars import lsn_text
from pgtail.reading.names import expanded, folders
from pgtail.storage.options import StorageOptions
from pgtail.terminal.escape import escape

_MOST_END: Final = 512
"""More bytes than the end of a segment and the beginning of the next one have."""
_NEXT: Final = re.compile(rb"%b\0[^\0]*\0%b" % (re.escape(END.encode()), re.escape(BEGINNING)))
"""What is between two segments."""


class Coverage:
    """Up to where the checksums of one source were compared while it was read.

    A gzip member ends with a checksum. In a file of others it may be large, so its content is used before that.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._end_lsn: int | None = None

    def used(self, end_lsn: int | None) -> None:
        """Everything that was read so far was used; the last transaction in it ends at `end_lsn`."""
        if self._source.checked == self._source.position:
            self._end_lsn = end_lsn

    def explain(self, error: InputError) -> None:
        """Add to an error the bytes read without a checksum, if any."""
        checked = self._source.checked
        if checked is None or checked >= self._source.position:
            return
        upto = "nothing that was read of this file is checked"
        if self._end_lsn is not None:
            upto = f"checked up to the commit that ends at {lsn_text(self._end_lsn)}, and nothing after it"
        elif checked:
            upto = f"checked up to byte {checked}, and nothing after it"
        cause, damage = "", self._source.damage
        if damage is not None and damage.reason not in error.reason:
            cause = f"; the cause is damage of the gzip data: {damage.reason}"
        elif damage is None and self._source.compressed:
            cure = "" if self._source.live else ", which --verify finds"
            cause = f"; a likely cause is damage of the gzip data{cure}"
        error.reason = f"{error.reason}{cause}; {upto}"


def verify(names: Iterable[str | Content | Opened], storage: StorageOptions) -> None:
    """Compare all checksums of these files. Raises InputError if one is wrong, OptionError for standard input."""
    from pgtail.capture.verify import check_snapshots

    names = list(names)
    for folder in folders(names, storage):
        check_snapshots(folder)
    for file in expanded(names, storage):
        with Source(file) as source:
            if source.live:
                raise OptionError(f"--verify reads its files twice, which {source.name} does not allow")
            problem = None if source.verified else _problem(source)
            damage, open_ = source.damage, source.name.endswith(OPEN)
            if damage is not None and not (open_ and source.cut_off):
                raise damage
            if problem is not None and not open_:
                raise InputError(problem, source=source.name)
            if source.checked is None and not source.verified:
                logger.info(f"{escape(source.name)} has no checksum: --verify cannot check it")


def _problem(source: Source) -> str | None:
    """Read data with checksums; returns the damage of a segment.

    None for other data, and for several segments, which only a file of another name may have.
    """
    named = source.name.endswith(CLOSED)
    segment = named or source.peek(0, len(BEGINNING)) == BEGINNING
    if source.checked is None and not segment:
        return None
    from pgtail.capture.segment import SegmentCheck

    check, several, before = SegmentCheck(), False, b""
    while data := source.read():
        if segment:
            check.feed(data, check.size)
            data = before + data
            several = several or _NEXT.search(data) is not None
            before = data[-_MOST_END:]
    if several:
        return "it has several segments, one after another: a file of this name has one" if named else None
    return check.problem() if segment else None
