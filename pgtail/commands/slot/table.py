"""The table of `pgtail slot list`: a row of columns for each slot, and its details below as the width allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pgtail.humanize import counted, seconds_text, size_text, span_text
from pgtail.postgres.slot_growth import GROWTH, SAFE_SECONDS
from pgtail.postgres.slot_report import SlotReport
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import GAP, Item, indented, padding, paragraph, sentence, width_of, wrap
from pgtail.terminal.style import Fragment, Painter, Palette

_RETAINED_WARNING: Final = 1 << 30
"""Bytes of WAL from which on an inactive slot is marked."""

_RIGHT_ALIGNED: Final = frozenset({"lag", "WAL held", "a minute", "lost in"})
"""Names of columns; a title is the name in capitals."""
_MARGIN: Final = 2
_INDENT: Final = 4
_NARROWEST_NAME: Final = 12
_FLAGS: Final = ("temporary", "two_phase", "failover", "synced")


def render(reports: Sequence[SlotReport], palette: Palette, *, width: int, critical: int | None = None) -> str:
    """All slots as text of at most `width` cells a line, as far as names allow.

    A slot that retains `critical` bytes or more is red.
    """
    painter = Painter(palette)
    if not reports:
        return painter.line([("the server has no replication slots", "note")]) + "\n"
    return painter.lines(_lines(reports, width, critical))


def away_note(text: str, palette: Palette, *, width: int) -> str:
    """A line or more that say that the server is away, and an empty one."""
    return Painter(palette).lines([*paragraph(escape(" ".join(text.split())), "bad", width), []])


def _lines(reports: Sequence[SlotReport], width: int, critical: int | None) -> Iterator[list[Fragment]]:
    rows = [(report, _columns(report), _state_style(report, critical)) for report in reports]
    names = list(rows[0][1])
    widths = {name: max(width_of(name), *[width_of(cells[name]) for _, cells, _ in rows]) for name in names}
    for_name = width - _MARGIN - sum(widths.values()) + widths["slot"] - GAP * (len(names) - 1)
    if for_name < _NARROWEST_NAME:
        for report, cells, style in rows:
            yield from _without_columns(report, cells, style, width)
        return
    widths["slot"] = min(widths["slot"], for_name)
    titles = {name: name.upper() for name in names}
    yield [padding(_MARGIN), *_row(titles, dict.fromkeys(names, "dim"), widths)]
    for report, cells, style in rows:
        yield from _headline(cells, style, widths)
        yield from _indented(_details(report, width - _INDENT), width)


def _without_columns(report: SlotReport, cells: Mapping[str, str], style: str, width: int) -> Iterator[list[Fragment]]:
    """A slot on a terminal too narrow for columns: their values come before the details."""
    yield from wrap([(("● ", style), (cells["slot"], "table"))], width)
    items: list[Item] = [((cells["plugin"], "value"),)] if "plugin" in cells else []
    items += _named([(name, text) for name, text in cells.items() if name not in ("slot", "plugin", "state")])
    items.append(sentence(cells["state"], style, width - _INDENT))
    yield from _indented([*items, *_details(report, width - _INDENT)], width)


def _indented(items: Iterable[Item], width: int) -> Iterator[list[Fragment]]:
    return indented(wrap(items, max(width - _INDENT, 20)), _INDENT)


def _headline(cells: Mapping[str, str], style: str, widths: Mapping[str, int]) -> Iterator[list[Fragment]]:
    """The columns of a slot; a name too long for its column gets a line of its own."""
    dot: Fragment = ("● ", style)
    styles = dict.fromkeys(cells, "value") | {
        "slot": "table",
        "WAL held": style if style != "good" else "value",
        "state": style,
    }
    if width_of(cells["slot"]) > widths["slot"]:
        yield [dot, (cells["slot"], "table")]
        yield [padding(_MARGIN), *_row({**cells, "slot": ""}, styles, widths)]
    else:
        yield [dot, *_row(cells, styles, widths)]


def _row(cells: Mapping[str, str], styles: Mapping[str, str], widths: Mapping[str, int]) -> list[Fragment]:
    line: list[Fragment] = []
    for name, text in cells.items():
        space = padding(widths[name] - width_of(text))
        line += [space, (text, styles[name])] if name in _RIGHT_ALIGNED else [(text, styles[name]), space]
        line.append(padding(GAP))
    while line and not line[-1][0].strip():
        del line[-1]
    return line


def _columns(report: SlotReport) -> dict[str, str]:
    """The cells of the first line of a slot; one that is watched has its growth in place of plugin and database."""
    facts = report.facts
    lag = "" if facts["lag_bytes"] is None else size_text(max(0, facts["lag_bytes"]))
    held = "" if facts["restart_lsn"] is None else size_text(report.retained)
    name, database = escape(facts["slot_name"]), escape(facts["database"] or "")
    if GROWTH not in facts:
        cells = {"slot": name, "plugin": _plugin(report), "database": database, "lag": lag, "WAL held": held}
    else:
        growth, left = facts[GROWTH], facts[SAFE_SECONDS]
        cells = {
            "slot": name,
            "lag": lag,
            "WAL held": held,
            "a minute": "" if growth is None else f"{'-' if growth < 0 else '+'}{size_text(abs(growth))}",
            "lost in": _lost_in(report) if left is None else seconds_text(left),
        }
    return {**cells, "state": _state(report)}


def _lost_in(report: SlotReport) -> str:
    """Whether anything limits the WAL of a slot; used where it is not known when the slot is lost."""
    facts = report.facts
    retains = report.slot.invalid is None and facts["restart_lsn"] is not None
    return "no limit" if retains and facts.get("safe_wal_size") is None else ""


def _plugin(report: SlotReport) -> str:
    return "physical" if report.slot.physical else escape(str(report.facts["plugin"]))


def _state(report: SlotReport) -> str:
    if report.slot.invalid is not None:
        return f"INVALID: {escape(report.slot.invalid)}"
    if report.slot.active_pid is not None:
        return "active"
    seconds = report.facts.get("inactive_seconds")
    return "inactive" if seconds is None else f"inactive for {seconds_text(seconds)}"


def _state_style(report: SlotReport, critical: int | None) -> str:
    """The style of a slot's state: whether it is in use, or in trouble."""
    status, much = report.facts.get("wal_status"), critical is not None and report.retained >= critical
    if report.slot.invalid is not None or status in ("unreserved", "lost") or much:
        return "bad"
    if report.slot.active_pid is not None:
        return "good"
    return "warning" if report.retained >= _RETAINED_WARNING or status == "extended" else "value"


def _details(report: SlotReport, width: int) -> Iterator[Item]:
    facts = report.facts
    if GROWTH in facts:
        yield ((_plugin(report), "value"),)
        yield from _named([("database", facts["database"])])
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
        from pgtail.local_time import zone_text  # these are not loaded for every list
        from pgtail.outputs.fields import local_minute
        from pgtail.values.moments import moment

        since = int(moment(facts["inactive_since"]).micros)
        yield _item("inactive since", f"{local_minute(since)}{zone_text(since)}")


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
