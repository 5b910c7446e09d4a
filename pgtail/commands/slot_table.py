"""The table of `pgtail slot list`: a row of columns for each slot, and its details below as the width allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pgtail.humanize import counted, seconds_text, size_text
from pgtail.postgres.slot_report import SlotReport
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import GAP, Item, padding, sentence, width_of, wrap
from pgtail.terminal.style import Fragment, Painter, Palette

_RETAINED_WARNING: Final = 1 << 30
"""Bytes of WAL from which on an inactive slot is marked."""

_TITLES: Final = ("SLOT", "PLUGIN", "DATABASE", "LAG", "WAL HELD", "STATE")
_RIGHT_ALIGNED: Final = frozenset({"LAG", "WAL HELD"})
_MARGIN: Final = 2
_INDENT: Final = 4
_NARROWEST_NAME: Final = 12
_FLAGS: Final = ("temporary", "two_phase", "failover", "synced")


def render(reports: Sequence[SlotReport], palette: Palette, *, width: int) -> str:
    """All slots as text of at most `width` cells a line, as far as names allow."""
    painter = Painter(palette)
    if not reports:
        return painter.line([("the server has no replication slots", "note")]) + "\n"
    return painter.lines(_lines(reports, width))


def away_note(text: str, palette: Palette, *, width: int) -> str:
    """A line or more that say that the server is away, and an empty one."""
    words = sentence(escape(" ".join(text.split())), "bad", width)
    return Painter(palette).lines([*wrap([words], width), []])


def _lines(reports: Sequence[SlotReport], width: int) -> Iterator[list[Fragment]]:
    rows = [_columns(report) for report in reports]
    widths = [max(width_of(text) for text in column) for column in zip(_TITLES, *rows, strict=True)]
    for_name = width - _MARGIN - sum(widths[1:]) - GAP * (len(widths) - 1)
    if for_name < _NARROWEST_NAME:
        for report, row in zip(reports, rows, strict=True):
            yield from _without_columns(report, row, width)
        return
    widths[0] = min(widths[0], for_name)
    yield [padding(_MARGIN), *_row(_TITLES, ["dim"] * len(_TITLES), widths)]
    for report, row in zip(reports, rows, strict=True):
        yield from _headline(row, _state_style(report), widths)
        yield from _indented(_details(report), width)


def _without_columns(report: SlotReport, row: Sequence[str], width: int) -> Iterator[list[Fragment]]:
    """A slot on a terminal too narrow for columns: their values come before the details."""
    style = _state_style(report)
    slot, plugin, database, lag, held, state = row
    yield from wrap([(("● ", style), (slot, "table"))], width)
    items: list[Item] = [((plugin, "value"),), *_named([("database", database), ("lag", lag), ("WAL held", held)])]
    items.append(sentence(state, style, width - _INDENT))
    yield from _indented([*items, *_details(report)], width)


def _indented(items: Iterable[Item], width: int) -> Iterator[list[Fragment]]:
    for line in wrap(items, max(width - _INDENT, 20)):
        yield [padding(_INDENT), *line]


def _headline(row: Sequence[str], style: str, widths: Sequence[int]) -> Iterator[list[Fragment]]:
    """The columns of a slot; a name too long for its column gets a line of its own."""
    dot: Fragment = ("● ", style)
    styles = ["table", "value", "value", "value", style if style != "good" else "value", style]
    if width_of(row[0]) > widths[0]:
        yield [dot, (row[0], "table")]
        yield [padding(_MARGIN), *_row(["", *row[1:]], styles, widths)]
    else:
        yield [dot, *_row(row, styles, widths)]


def _row(texts: Sequence[str], styles: Sequence[str], widths: Sequence[int]) -> list[Fragment]:
    line: list[Fragment] = []
    for title, text, style, width in zip(_TITLES, texts, styles, widths, strict=True):
        space = padding(width - width_of(text))
        line += [space, (text, style)] if title in _RIGHT_ALIGNED else [(text, style), space]
        line.append(padding(GAP))
    while line and not line[-1][0].strip():
        del line[-1]
    return line


def _columns(report: SlotReport) -> list[str]:
    facts = report.facts
    physical = report.slot.physical
    lag = "" if facts["lag_bytes"] is None else size_text(max(0, facts["lag_bytes"]))
    held = "" if facts["restart_lsn"] is None else size_text(report.retained)
    plugin = "physical" if physical else escape(str(facts["plugin"]))
    return [escape(facts["slot_name"]), plugin, escape(facts["database"] or ""), lag, held, _state(report)]


def _state(report: SlotReport) -> str:
    if report.slot.invalid is not None:
        return f"INVALID: {escape(report.slot.invalid)}"
    if report.slot.active_pid is not None:
        return "active"
    seconds = report.facts.get("inactive_seconds")
    return "inactive" if seconds is None else f"inactive for {seconds_text(seconds)}"


def _state_style(report: SlotReport) -> str:
    """The style of a slot's state: whether it is in use, or in trouble."""
    status = report.facts.get("wal_status")
    if report.slot.invalid is not None or status in ("unreserved", "lost"):
        return "bad"
    if report.slot.active_pid is not None:
        return "good"
    return "warning" if report.retained >= _RETAINED_WARNING or status == "extended" else "value"


def _details(report: SlotReport) -> Iterator[Item]:
    facts = report.facts
    yield from _reader(facts, hidden=report.hidden)
    yield from _named([("confirmed", facts["confirmed_flush_lsn"]), ("restart", facts["restart_lsn"])])
    if facts["lag_seconds"] is not None:
        yield _item("confirms after", f"{float(facts['lag_seconds']):.3f} s")
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
        yield _item("inactive since", facts["inactive_since"].replace("T", " ").partition(".")[0] + " UTC")


def _counters(facts: dict[str, Any]) -> Iterator[Item]:
    """What the server decoded since its counters were reset."""
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
