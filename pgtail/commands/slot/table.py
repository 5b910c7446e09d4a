"""The table of `pgtail slot list`: a line for each slot, and with -v its details below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from pgtail.humanize import counted, seconds_text, size_text, span_text
from pgtail.local_time import zone_text
from pgtail.postgres.pg_wal import PgWal
from pgtail.postgres.slot_report import GROWTH, SAFE_SECONDS, SlotReport
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import Item, indented, paragraph, sentence, sparkline, wrap
from pgtail.terminal.report import table
from pgtail.terminal.style import Fragment, Painter, Palette

_RETAINED_WARNING: Final = 1 << 30
"""Bytes of WAL from which on an inactive slot is marked."""
_CRITICAL: Final = 10 << 30
"""Bytes of WAL from which on a slot is red."""

_RIGHT_ALIGNED: Final = frozenset({"WAL held", "a minute"})
"""Names of columns; a title is the name in capitals."""
_INDENT: Final = 4
_LEAST_LINE, _LONGEST_LINE = 8, 30
"""Cells of a line of samples."""
_BESIDE: Final = 64
"""Cells of a terminal that other columns need, before this line gets half of the rest."""
_FLAGS: Final = ("temporary", "two_phase", "failover", "synced")


def render(
    reports: Sequence[SlotReport],
    wal: PgWal | None,
    palette: Palette,
    *,
    width: int,
    by_name: bool = False,
    verbose: bool = False,
) -> str:
    """The contents of pg_wal, and a line of at most `width` cells for each slot: the worst first, or by name.

    `verbose` adds details below each.
    """
    painter = Painter(palette)
    if not reports:
        return painter.line([("the server has no replication slots", "note")]) + "\n"
    shown = sorted(reports, key=attrgetter("slot.name") if by_name else _rank)
    return painter.lines(_lines(shown, wal, width, verbose=verbose))


def _rank(report: SlotReport) -> tuple[bool, int, str]:
    """Invalid slots come first, then those that retain most."""
    return report.slot.invalid is None, -report.retained, report.slot.name


def away_note(text: str, palette: Palette, *, width: int) -> str:
    """A line or more that say that the server is away, and an empty one."""
    return Painter(palette).lines([*paragraph(escape(" ".join(text.split())), "bad", width), []])


def _lines(reports: Sequence[SlotReport], wal: PgWal | None, width: int, *, verbose: bool) -> Iterator[list[Fragment]]:
    if wal is not None and (words := wal.words()):
        yield from paragraph(escape(words), "value", width)
        yield []
    room = min(max((width - _BESIDE) // 2, _LEAST_LINE), _LONGEST_LINE)
    cells = [_cells(report, wal, room) for report in reports]
    names = [*cells[0]]
    texts = [place for place, name in enumerate(names) if name not in _RIGHT_ALIGNED]
    heads, *rows = table([(name.upper(), "dim") for name in names], [[*row.values()] for row in cells], width, texts)
    yield heads
    for report, line in zip(reports, rows, strict=True):
        yield line
        if verbose:
            room = max(width - _INDENT, 20)
            yield from indented(wrap(_details(report, room), room), _INDENT)


def _cells(report: SlotReport, wal: PgWal | None, room: int) -> dict[str, Item]:
    """The line of a slot, by the names of columns; one that is watched has its growth, and `room` of its samples."""
    facts = report.facts
    holds = report.slot.restart_lsn is not None and not report.slot.synced  # nobody reads a standby's copies
    unlimited = wal is not None and wal.unlimited and holds
    style = _state_style(report, unlimited=unlimited)
    held = "" if facts["restart_lsn"] is None or report.slot.invalid is not None else size_text(report.retained)
    cells: dict[str, Item] = {
        "  slot": (("● ", style), (escape(report.slot.name), "table")),
        "state": ((_state(report), style),),
        "WAL held": ((held, "value" if style == "good" else style),),
    }
    if GROWTH in facts:
        growth = facts[GROWTH]
        grows = "" if growth is None or not held else f"{'-' if growth < 0 else '+'}{size_text(abs(growth))}"
        cells["a minute"] = ((grows, "value"),)
        samples = report.samples[-room:] if held else ()
        cells["trend"] = ((sparkline(samples, min(samples, default=0)), "lsn"),)
    return {**cells, "what holds it": ((_cause(report, unlimited=unlimited), "value"),)}


def _cause(report: SlotReport, *, unlimited: bool) -> str:
    """The cause that retains a slot's WAL, after the time left until the slot loses it."""
    facts, left = report.facts, report.facts.get(SAFE_SECONDS)
    if report.slot.invalid is not None:
        return f"lost: {escape(report.slot.invalid)}"
    parts = [] if left is None else [f"lost in {seconds_text(left)}"]
    if facts.get("wal_status") == "unreserved":
        parts = ["lost at the next checkpoint"]
    if report.holder is not None:
        parts.append(escape(report.holder.words().removeprefix("by ")))
    elif report.slot.active_pid is None:
        parts.append("unread, no limit" if unlimited else "unread")
    else:
        parts += [] if facts["lag_bytes"] is None else [f"lag {size_text(max(0, facts['lag_bytes']))}"]
        parts.append(f"pid {report.slot.active_pid}")
    return ", ".join(parts)


def _state(report: SlotReport) -> str:
    if report.slot.invalid is not None:
        return "INVALID"
    if report.slot.active_pid is not None:
        return "active"
    seconds = report.facts.get("inactive_seconds")
    return "inactive" if seconds is None else f"inactive {seconds_text(seconds)}"


def _state_style(report: SlotReport, *, unlimited: bool) -> str:
    """The style of a slot's state: whether it is in use, or in trouble."""
    status = report.facts.get("wal_status")
    if report.slot.invalid is not None or status in ("unreserved", "lost") or report.retained >= _CRITICAL:
        return "bad"
    if report.slot.active_pid is not None:
        return "good"
    return "warning" if unlimited or report.retained >= _RETAINED_WARNING or status == "extended" else "value"


def _details(report: SlotReport, width: int) -> Iterator[Item]:
    facts = report.facts
    yield (("physical" if report.slot.physical else escape(str(facts["plugin"])), "value"),)
    yield from _named([("database", facts["database"])])
    if facts["lag_bytes"] is not None:
        yield _item("lag", size_text(max(0, facts["lag_bytes"])))
    yield from _reader(facts, hidden=report.hidden)
    if report.holder is not None:
        yield sentence(f"WAL held {escape(report.holder.words())}", "warning", width)
    yield from _named([("confirmed", facts["confirmed_flush_lsn"]), ("restart", facts["restart_lsn"])])
    if facts["lag_seconds"] is not None:
        delay = span_text(int(float(facts["lag_seconds"]) * 1_000_000))
        yield ("takes ", "name"), (delay, "value"), (" to confirm", "name")
    yield from _named([("WAL", facts.get("wal_status"))])
    safe = facts.get("safe_wal_size")
    if safe is not None:
        yield _item("lost after", f"{size_text(max(0, safe))} more")
    for name in ("catalog_xmin", "xmin"):
        if facts[name] is not None:
            yield _item(name, f"{facts[name]} ({counted(facts[f'{name}_age'], 'transaction')} old)")
    flags = [flag for flag in _FLAGS if facts.get(flag)]
    if flags:
        yield ((", ".join(flags), "prepared"),)
    yield from _counters(facts)


def _reader(facts: dict[str, Any], *, hidden: bool) -> Iterator[Item]:
    if facts["active_pid"] is not None:
        yield _item("pid", str(facts["active_pid"]))
        yield from _named([("user", facts["user"]), ("application", facts["application_name"])])
        if hidden:
            yield _item("client", "(hidden from this role: it needs pg_read_all_stats)", "note")
        else:
            yield _item("client", escape(facts["client"]))
        if facts["connected_seconds"] is not None:
            yield _item("connected for", seconds_text(facts["connected_seconds"]))
    elif facts.get("inactive_since"):
        from pgtail.outputs.fields import local_minute
        from pgtail.values.moments import moment

        since = int(moment(facts["inactive_since"]).micros)
        yield _item("inactive since", f"{local_minute(since)}{zone_text(since)}")


def _counters(facts: dict[str, Any]) -> Iterator[Item]:
    """The server's decoding counters since their reset."""
    for name, word in (("total", "decoded"), ("spill", "spilled"), ("stream", "streamed")):
        count = facts.get(f"{name}_txns")
        if count:
            yield _item(word, f"{counted(count, 'transaction')}, {size_text(facts[f'{name}_bytes'])}")


def _named(pairs: Sequence[tuple[str, str | None]]) -> Iterator[Item]:
    for name, text in pairs:
        if text:
            yield _item(name, escape(text))


def _item(name: str, text: str, style: str = "value") -> Item:
    return (f"{name} ", "name"), (text, style)
