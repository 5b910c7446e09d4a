"""Floor 7, slots for people: a line of columns for each, and the rest below it as the width allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pgtail.outputs.amounts import counted
from pgtail.outputs.escape import escape
from pgtail.outputs.table_layout import GAP, Item, padding, sentence, width_of, wrap
from pgtail.outputs.table_style import Fragment, Painter, Palette
from pgtail.server.facts import span_text
from pgtail.server.slotlist import SlotReport
from pgtail.server.words import size_text

MUCH: Final = 1 << 30
"""Bytes of WAL that are too many for a slot that nobody reads."""

_TITLES: Final = ("SLOT", "PLUGIN", "DATABASE", "LAG", "WAL HELD", "STATE")
_RIGHT: Final = frozenset({"LAG", "WAL HELD"})
_MARGIN: Final = 2
_INDENT: Final = 4
_NARROWEST_NAME: Final = 12
_FLAGS: Final = ("temporary", "two_phase", "failover", "synced")


def render(reports: Sequence[SlotReport], palette: Palette, *, width: int) -> str:
    """All slots as text of at most `width` cells a line, as far as names allow."""
    painter = Painter(palette)
    if not reports:
        return painter.line([("the server has no replication slots", "note")]) + "\n"
    return "".join([painter.line(line) + "\n" for line in _lines(reports, width)])


def _lines(reports: Sequence[SlotReport], width: int) -> Iterator[list[Fragment]]:
    rows = [_columns(report) for report in reports]
    details = [[*_details(report.facts, hidden=report.hidden)] for report in reports]
    widths = _widths(rows)
    if _NARROWEST_NAME + _beside(widths) > width:
        beside = zip(rows, reports, details, strict=True)
        details = [[*_moved(row, report), *items] for row, report, items in beside]
        widths = _widths(rows)
        if _NARROWEST_NAME + _beside(widths) > width:
            yield from _stacked(reports, width)
            return
    widths[0] = max(min(widths[0], width - _beside(widths)), _NARROWEST_NAME)
    yield [padding(_MARGIN), *_row(_TITLES, ["dim"] * len(_TITLES), widths)]
    for report, row, items in zip(reports, rows, details, strict=True):
        yield from _headline(row, _mood(report), widths)
        yield from _indented(items, width)


def _stacked(reports: Sequence[SlotReport], width: int) -> Iterator[list[Fragment]]:
    """Without columns, for which there is no room: what they hold stands in front of the rest."""
    for report in reports:
        mood = _mood(report)
        slot, plugin, database, lag, held, state = _columns(report)
        yield from wrap([(("● ", mood), (slot, "table"))], width)
        items: list[Item] = [((plugin, "value"),), *_named([("database", database), ("lag", lag), ("WAL held", held)])]
        items.append(sentence(state, mood, width - _INDENT))
        yield from _indented([*items, *_details(report.facts, hidden=report.hidden)], width)


def _indented(items: Iterable[Item], width: int) -> Iterator[list[Fragment]]:
    for line in wrap(items, max(width - _INDENT, 20)):
        yield [padding(_INDENT), *line]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(width_of(text) for text in column) for column in zip(_TITLES, *rows, strict=True)]


def _beside(widths: Sequence[int]) -> int:
    """Cells of a line beside the name."""
    return _MARGIN + sum(widths[1:]) + GAP * (len(widths) - 1)


def _moved(row: list[str], report: SlotReport) -> Iterator[Item]:
    """What of a slot's columns has no room and is told below them: a long database's name, and why it is invalid."""
    place = _TITLES.index("DATABASE")
    if width_of(row[place]) > len("DATABASE"):
        yield _item("database", row[place])
        row[place] = "…"
    if report.slot.invalid is not None:
        yield _item("invalid", escape(report.slot.invalid), "bad")
        row[_TITLES.index("STATE")] = "INVALID"


def _headline(row: Sequence[str], mood: str, widths: Sequence[int]) -> Iterator[list[Fragment]]:
    """The columns of a slot; a name that is too long for its column stands on a line by itself."""
    dot: Fragment = ("● ", mood)
    styles = ["table", "value", "value", "value", mood if mood != "good" else "value", mood]
    if width_of(row[0]) > widths[0]:
        yield [dot, (row[0], "table")]
        yield [padding(_MARGIN), *_row(["", *row[1:]], styles, widths)]
    else:
        yield [dot, *_row(row, styles, widths)]


def _row(texts: Sequence[str], styles: Sequence[str], widths: Sequence[int]) -> list[Fragment]:
    line: list[Fragment] = []
    for title, text, style, width in zip(_TITLES, texts, styles, widths, strict=True):
        space = padding(width - width_of(text))
        line += [space, (text, style)] if title in _RIGHT else [(text, style), space]
        line.append(padding(GAP))
    while line and not line[-1][0].strip():
        del line[-1]
    return line


def _columns(report: SlotReport) -> list[str]:
    facts = report.facts
    physical = report.slot.physical
    lag = "" if facts["lag_bytes"] is None else size_text(max(0, facts["lag_bytes"]))
    held = "" if facts["restart_lsn"] is None else size_text(report.held)
    plugin = "physical" if physical else escape(str(facts["plugin"]))
    return [escape(facts["slot_name"]), plugin, escape(facts["database"] or ""), lag, held, _state(report)]


def _state(report: SlotReport) -> str:
    if report.slot.invalid is not None:
        return f"INVALID: {escape(report.slot.invalid)}"
    if report.slot.active_pid is not None:
        return "active"
    seconds = report.facts.get("inactive_seconds")
    return "inactive" if seconds is None else f"inactive for {span_text(seconds)}"


def _mood(report: SlotReport) -> str:
    """Which style says how a slot does."""
    status = report.facts.get("wal_status")
    if report.slot.invalid is not None or status in ("unreserved", "lost"):
        return "bad"
    if report.slot.active_pid is not None:
        return "good"
    return "warning" if report.held >= MUCH or status == "extended" else "value"


def _details(facts: dict[str, Any], *, hidden: bool) -> Iterator[Item]:
    yield from _reader(facts, hidden=hidden)
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
            yield _item("connected for", span_text(facts["connected_seconds"]))
    elif facts.get("inactive_since"):
        yield _item("inactive since", facts["inactive_since"].replace("T", " ").partition(".")[0] + " UTC")


def _counters(facts: dict[str, Any]) -> Iterator[Item]:
    """What was decoded since the counters were reset, where the server counts and there was any."""
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
