"""What the checksums of dumps cover: of what was read until an error, and of whole files, with --verify."""

from __future__ import annotations

from collections.abc import Iterable

from pgtail.capture.format import BEGINNING, CLOSED, OPEN
from pgtail.commands.selection import expanded, folders
from pgtail.commands.stderr import tell
from pgtail.errors import InputError, OptionError
from pgtail.inputs.source.file import Source
from pgtail.pgoutput.scalars import lsn_text
from pgtail.storage.options import StorageOptions


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
        """Add to an error what was read without a checksum, if anything was."""
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


def verify(names: Iterable[str], storage: StorageOptions) -> None:
    """Compare all checksums of these files. Raises InputError if one is wrong, OptionError for standard input."""
    from pgtail.capture.verify import check_snapshots

    names = list(names)
    for folder in folders(names, storage):
        check_snapshots(folder)
    for file in expanded(names, storage):
        with Source(file) as source:
            if source.live:
                raise OptionError(f"--verify reads its files twice, which {source.name} does not allow")
            if source.problem is not None:
                raise InputError(source.problem, source=source.name)
            problem = None if source.verified else _problem(source)
            damage, open_ = source.damage, source.name.endswith(OPEN)
            if damage is not None and not (open_ and source.cut_off):
                raise damage
            if problem is not None and not open_:
                raise InputError(problem, source=source.name)
            if source.checked is None and not source.verified:
                tell(f"note: {source.name} has no checksum: --verify cannot check it")


def _problem(source: Source) -> str | None:
    """Read what has checksums; returns what is wrong with a segment. None for other data, and for several segments."""
    segment = source.name.endswith(CLOSED) or source.peek(0, len(BEGINNING)) == BEGINNING
    if source.checked is None and not segment:
        return None
    from pgtail.capture.segment import SegmentCheck

    check, beginnings, before = SegmentCheck(), 0, b""
    while data := source.read():
        if segment:
            check.feed(data, check.size)
            data = before + data
            beginnings += data.count(BEGINNING)
            before = data[-len(BEGINNING) + 1 :]
    return check.problem() if segment and beginnings <= 1 else None
