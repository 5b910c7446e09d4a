"""The size of pg_wal, and how much of it the server removes once slots are dropped.

At a checkpoint the server removes the files before the oldest one that anything needs: the checkpoint itself, a slot,
wal_keep_size, the archiver (src/backend/access/transam/xlog.c, CreateCheckPoint and KeepLogSeg). So the WAL of a slot
is free only once all slots with an older restart_lsn are dropped, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtail.errors import ServerError
from pgtail.humanize import counted, size_text
from pgtail.postgres import rows
from pgtail.postgres.catalog import POSITION
from pgtail.postgres.connection import Connection
from pgtail.postgres.rows import Row
from pgtail.postgres.slot_report import SlotReport

_LIMITS: Final = f"""
SELECT pg_size_bytes(current_setting('wal_segment_size')) AS file, {POSITION} AS position,
    CASE WHEN pg_is_in_recovery() OR current_setting('server_version_num')::int < 110000
        THEN (SELECT redo_lsn FROM pg_control_checkpoint()) END AS redo,
    coalesce(pg_size_bytes(current_setting('wal_keep_size', true)),
        current_setting('wal_keep_segments', true)::int * pg_size_bytes(current_setting('wal_segment_size'))) AS keep,
    pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size', true), '-1')) AS most,
    nullif(current_setting('idle_replication_slot_timeout', true), '0') AS idle,
    current_setting('archive_mode') <> 'off' AS archived,
    coalesce(current_setting('summarize_wal', true), 'off') = 'on' AS summarized,
    has_function_privilege('pg_ls_waldir()', 'EXECUTE') AS listed,
    coalesce(has_function_privilege(to_regprocedure('pg_ls_archive_statusdir()'), 'EXECUTE'), false) AS archive_listed
"""
"""A checkpoint keeps the WAL since its start; on a standby, and until PostgreSQL 10, since that of the one before."""
_SIZE: Final = "SELECT coalesce(sum(size), 0)::bigint AS size FROM pg_ls_waldir()"
_UNARCHIVED: Final = r"""
SELECT min(right(left(name, 24), 16)) AS name FROM pg_ls_archive_statusdir() WHERE name ~ '^[0-9A-F]{24}\.ready$'
"""
"""The number of the oldest file that is not archived: two times eight hexadecimal digits."""
_UNSUMMARIZED: Final = "SELECT summarized_lsn AS lsn FROM pg_get_wal_summarizer_state()"
_MOST_STEPS: Final = 3
_MOST_NAMES: Final = 3


class Step(Struct, frozen=True):
    """How many bytes of pg_wal are free once these slots are dropped, after those of the steps before."""

    slots: tuple[str, ...]
    bytes: int


class PgWal(Struct, frozen=True):
    """The size of pg_wal in bytes, and what dropping slots frees, from the oldest restart_lsn on.

    Both are None where the role cannot know them. `unlimited`: an inactive slot holds WAL until the disk is full.
    """

    unlimited: bool
    size: int | None
    steps: tuple[Step, ...] | None

    def freed(self, slot: str) -> int | None:
        """Bytes that dropping this slot frees once those with an older restart_lsn are dropped."""
        return None if self.steps is None else sum(step.bytes for step in self.steps if step.slots[-1] == slot)

    def includes(self, slot: str) -> bool:
        return any(slot in step.slots for step in self.steps or ())

    def words(self) -> str:
        """Both as sentences; empty if neither is known."""
        first = "" if self.size is None else f"pg_wal has {size_text(self.size)}."
        if self.steps is None:
            return first
        if not self.steps:
            return f"{first} Dropping slots frees none of it.".lstrip() if first else ""
        oldest, *others = self.steps[:_MOST_STEPS]
        text = f"{first} Dropping {_names(oldest.slots)} frees {size_text(oldest.bytes)}".lstrip()
        text += "".join(f", then {_names(step.slots)} {size_text(step.bytes)}" for step in others)
        if rest := self.steps[_MOST_STEPS:]:
            many = counted(sum(len(step.slots) for step in rest), "more slot")
            text += f", then {many} {size_text(sum(step.bytes for step in rest))}"
        return f"{text}, at the next checkpoint (which may keep files for reuse, up to max_wal_size)."


def _names(names: tuple[str, ...]) -> str:
    shown = [*names[:_MOST_NAMES], *([f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def pg_wal(connection: Connection, reports: Iterable[SlotReport]) -> PgWal | None:
    """The size of pg_wal now; None if the server does not report it (a provider's may have no such files)."""
    try:
        limits = rows.only(connection, "the limits of its WAL", _LIMITS)
        listed = limits.boolean("listed")
        size = rows.only(connection, "the size of pg_wal", _SIZE).integer("size") if listed else None
        end = _end(connection, limits)
    except ServerError:
        return None
    unlimited = limits.optional_integer("most") is None and limits.optional_text("idle") is None
    return PgWal(unlimited, size, None if end is None else tuple(_steps(reports, limits, end)))


def _end(connection: Connection, limits: Row) -> int | None:
    """The number of the first file that anything but a slot needs; None if the role may not know it.

    Raises ServerError.
    """
    file = limits.integer("file")
    needed = [limits.lsn("position") // file - (limits.optional_integer("keep") or 0) // file]
    lsns = [limits.optional_lsn("redo")]
    if limits.boolean("summarized"):
        lsns.append(rows.only(connection, "what is not summarized", _UNSUMMARIZED).lsn("lsn"))
    if limits.boolean("archived"):
        if not limits.boolean("archive_listed"):
            return None
        name = rows.only(connection, "what is not archived", _UNARCHIVED).optional_text("name")
        if name is not None:
            needed.append(int(name[:8], 16) * ((1 << 32) // file) + int(name[8:], 16))
    return min([*needed, *[lsn // file for lsn in lsns if lsn is not None]])


def _steps(reports: Iterable[SlotReport], limits: Row, end: int) -> Iterable[Step]:
    """Counted in files, as the server does: of a file all is kept, or nothing."""
    file, most = limits.integer("file"), limits.optional_integer("most")
    first = 0 if most is None else limits.lsn("position") // file - most // file
    oldest_first = sorted(
        (report.slot.restart_lsn, report.slot.name)
        for report in reports
        if report.slot.invalid is None
        and report.slot.restart_lsn is not None
        and report.slot.restart_lsn // file >= first  # else the next checkpoint invalidates it
    )
    names: tuple[str, ...] = ()
    for (start, name), (following, _) in pairwise([*((lsn // file, name) for lsn, name in oldest_first), (end, "")]):
        names = (*names, name)
        if (files := min(following, end) - start) > 0:
            yield Step(names, files * file)
            names = ()
