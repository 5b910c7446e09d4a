"""The report of `pgtail stats` as a page for a browser: one file without scripts, which loads nothing.

Its figures are those that -o json writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape as escape_html
from typing import Any, Final

from pgtail.humanize import plural, size_text, span_text
from pgtail.local_time import clock, zone_text
from pgtail.stats.charts import CUT, NBSP, SIGNS, Axis, Layer, Mark, Unit, bars, number, time_chart
from pgtail.stats.collect import Statistics
from pgtail.stats.report_json import MAX_KEYS, stats_object
from pgtail.stats.report_table import UNKNOWN, hot_keys, local_text, span_of, took_text
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import Item, middle_cut
from pgtail.terminal.values import identifier, name
from pgtail.values.moments import moment

_MOST_SOURCES: Final = 10
_MOST_TABLES: Final = 30
_MOST_CLASSES: Final = 12
_MOST_LAGS: Final = 5
"""Clients with a chart."""
_LAG_STEPS: Final = 120
_NAME_WIDTH: Final = 40
"""Characters of names beside the charts, and of prepared transactions."""
_LONGEST_NAME: Final = 135
"""Characters of the names of tables elsewhere: each of the two names has at most 63 bytes."""
_KEY_WIDTH: Final = 200
_OPS: Final = {"inserts": ("insert", "c2"), "updates": ("update", "c0"), "deletes": ("delete", "c5")}
"""The counts of row changes, with their names and colours."""
_BOUNDS: Final = ("seconds_at_least", "seconds_at_most")
_COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c")
"""Those of Okabe and Ito, which people of any colour vision can tell apart."""

_STYLE: Final = """
:root{color-scheme:light dark;--text:#1c1f23;--dim:#5b636e;--page:#fff;--line:#d8dde3;--warn:#8a4b00;--soft:#f4f6f8}
@media(prefers-color-scheme:dark){:root{--text:#e3e6ea;--dim:#9aa4b0;--page:#14171a;--line:#343b43;--warn:#ffb454;
--soft:#1d2126}}
@media print{:root{color-scheme:light;--text:#000;--dim:#444;--page:#fff;--line:#ccc;--warn:#8a4b00;--soft:#f4f6f8}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}.wide{zoom:.8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem;font:15px/1.5 system-ui,sans-serif;color:var(--text);
background:var(--page)}
h1{font-size:1.5rem;margin:0 0 .4rem}
h2{font-size:1.1rem;margin:0 0 .6rem}
section{margin:2.2rem 0}
figure,tr,dl{break-inside:avoid}
figure{margin:.8rem 0 1.2rem}
p{margin:.4rem 0;max-width:50rem;overflow-wrap:anywhere}
.dim,th,dt{color:var(--dim)}.dim{font-size:.87rem}
.warn{color:var(--warn)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:1rem 0}
dd{margin:0;overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:start;vertical-align:top;padding:.2rem 1.1rem .2rem 0;border-bottom:1px solid var(--line);
white-space:nowrap;unicode-bidi:isolate}
th{font-weight:400}
.n{text-align:right;font-variant-numeric:tabular-nums}
.w{white-space:normal;overflow-wrap:anywhere;min-width:9rem;max-width:26rem}
.bar{width:8rem;vertical-align:middle}.bar svg{display:block;width:100%;height:.7rem}
.row{display:flex;flex-wrap:wrap;align-items:flex-start;gap:1.5rem 3rem;margin-top:1.2rem}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;padding:0;margin:.1rem 0;font-size:.87rem}
.key li{overflow-wrap:anywhere;unicode-bidi:isolate}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.45em;border-radius:2px}
.chart{display:grid;grid-template-columns:4.6rem 1fr;font-size:.8rem;color:var(--dim)}
.signs,.x{grid-column:2;position:relative;height:1.5em}.x{margin-top:.35em}
.y{position:relative}
.chart span{position:absolute;white-space:nowrap}
.signs span,.x span{transform:translateX(-50%)}
.signs .left{transform:translateX(calc(-100% - .7em))}.signs .right{transform:translateX(.7em)}
.y span{right:.6em;transform:translateY(50%)}
.chart svg{width:100%;height:11rem;display:block;background:var(--soft)}
.grid{stroke:var(--line);fill:none;vector-effect:non-scaling-stroke}
.step{fill:transparent}.step:hover{fill:var(--text);fill-opacity:.12}
@media(max-width:40rem){body{padding:1rem}.x span:nth-child(even){display:none}}
"""
_HEAD: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
"""


def html_page(stats: Statistics, version: str, *, keys: bool) -> str:
    """The page, by this version of pgtail; with `keys` it has the values of keys."""
    report = stats_object(stats)
    title = "PostgreSQL changes"
    colors = "".join([f".c{place}{{fill:{color};background:{color}}}\n" for place, color in enumerate(_COLORS)])
    parts = [
        _HEAD,
        f"<title>{title}: {_text(', '.join(stats.sources[:1]))}</title><style>{_STYLE}{colors}</style></head>",
    ]
    parts += [f"<body><h1>{title}</h1><p>{_summary(report)}</p>", _coverage(stats, report, version)]
    for head, lines in (
        ("Over time", _rate(report)),
        ("Schema changes and truncates", _marks(report)),
        ("Tables", _tables(report["tables"])),
        ("Sizes of transactions", _sizes(report["transactions"])),
        ("Largest transactions", _largest(report["transactions"]["most_bytes"])),
        ("Longest transactions", _largest(report["transactions"]["longest"])),
        ("Prepared transactions", _prepared(report["transactions"]["prepared"])),
        ("Rows updated or deleted most often", _hot_keys(stats, keys=keys)),
        ("Clients", _clients(report["clients"])),
    ):
        text = "".join(lines)
        parts.append(f"<section><h2>{head}</h2>{text}</section>\n" if text else "")
    return f"{''.join(parts)}</body></html>\n"


# -- the first lines ---------------------------------------------------------------------------------------------------


def _summary(report: dict[str, Any]) -> str:
    transactions, tables = report["transactions"], report["tables"]
    if not transactions["count"]:
        return "No transaction with changes ended." if tables else "No changes."
    rows, size, span = transactions["rows"]["total"], transactions["bytes"]["total"], _span(transactions)
    within = "" if span is None else f" within {_duration(span[1] - span[0])}"
    changed = f"{_counted(rows, 'row')} of {_counted(len(tables), 'table')} ({_size(size)})"
    words = f"{_counted(transactions['count'], 'transaction')} changed {changed}{within}."
    if len(tables) > 1 and size:
        words += f" {_name(tables[0])} has {100 * tables[0]['share']:.3g}{NBSP}% of the bytes."
    if size and transactions["count"] > 1:
        largest = transactions["most_bytes"][0]
        share = f"{_size(largest['bytes'])}, {100 * largest['bytes'] / size:.2g}{NBSP}% of all"
        words += f" The largest transaction, {_xid(largest)}, changed {_counted(largest['rows'], 'row')} ({share})."
    return words


def _span(transactions: dict[str, Any]) -> tuple[int, int] | None:
    """The times of the first and the last transaction, if they are of one clock."""
    first, last = transactions["first"], transactions["last"]
    if first is None or last is None or "origin" in first or "origin" in last or first["ts"] is None:
        return None
    start, end = _micros(first["ts"]), _micros(last["ts"])
    return (start, end) if start <= end else None


def _coverage(stats: Statistics, report: dict[str, Any], version: str) -> str:
    transactions, span, copied = report["transactions"], _span(report["transactions"]), report.get("snapshots")
    streamed = f"streamed before their commit, with {_counted(transactions['streamed']['rows'], 'row')}"
    lines = [("Source", _text(source)) for source in stats.sources[:_MOST_SOURCES]]
    more = len(stats.sources) - _MOST_SOURCES
    lines += [("Source", f"and {number(more)} more")] if more > 0 else []
    if span is not None:
        lines.append(("Committed", f"{span_of(*span)} {_zone(span[1])}"))
    if transactions["first"] is not None and transactions["first"]["lsn"] is not None:
        lines.append(("LSN", f"{transactions['first']['lsn']} to {transactions['last']['lsn']}"))
    for count, words in (
        (transactions["empty"], "without changes"),
        (transactions["incomplete"], "incomplete"),
        (transactions["streamed"]["count"], streamed),
    ):
        lines += [("Transactions", f"{number(count)} {words}")] if count else []
    if copied is not None:
        lines.append(("Snapshots", f"{_counted(copied['count'], 'table')}, {_counted(copied['rows'], 'row')}"))
    if report["messages"]["count"]:
        lines.append(("Messages", f"{number(report['messages']['count'])}, {_size(report['messages']['bytes'])}"))
    for origin, count in transactions["origins"].items():
        words = f"{_text(name(origin))}: {_counted(count, 'transaction')} with times of that server, not in the charts"
        lines.append(("Origin", words))
    for back in transactions["clock_set_back"]:
        times = " to ".join([local_text(_micros(back[which])) for which in ("from", "to")])
        lines.append(("Clock", f"set back from {times} at {back['lsn']}"))
    lines += [("Warning", f'<span class="warn">{_text(text)}</span>') for text in stats.warnings]
    lines.append(("Made", f"{local_text(clock())} {_zone(clock())}, by pgtail {version}"))
    return f"<dl>{''.join([f'<dt>{term}</dt><dd>{text}</dd>' for term, text in lines])}</dl>"


# -- time --------------------------------------------------------------------------------------------------------------


def _rate(report: dict[str, Any]) -> Iterator[str]:
    rate = report["rate"]
    if rate is None:
        return
    seconds, left, layers = float(rate["step_seconds"]), rate["rows"], []
    axis = Axis(_micros(rate["from"]), round(seconds * 1_000_000), len(left))
    width = f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s" if seconds < 60 else _duration(axis.width)
    per, each = (seconds, "per second") if seconds >= 1 else (1, f"in each {width}")
    rows = Unit(lambda count: _counted(count, "row"), _amount, per)
    size = Unit(_size, _size_amount, per, binary=True)
    for place, table in enumerate(rate["tables"]):
        counts = [sum(step) for step in zip(*[table[op] for op in _OPS], strict=True)]
        left = [total - count for total, count in zip(left, counts, strict=True)]
        layers.append(Layer(middle_cut(_plain_name(table), _NAME_WIDTH), f"c{place}", counts))
    layers += [Layer("other tables", "c7", left)] if any(left) else []
    operations = [Layer(op, color, rate[key]) for key, (op, color) in _OPS.items()]
    marks = [
        Mark(_micros(mark["ts"]), sign, f"{SIGNS[sign]} of {_plain_name(mark)}")
        for sign, mark in _marked(report)
        if mark["ts"] is not None and axis.start <= _micros(mark["ts"]) < axis.stop
    ]
    figures = _figure(f"Rows {each} by table", time_chart(axis, layers, rows, marks))
    figures += _figure(f"Rows {each} by operation", time_chart(axis, operations, rows, marks))
    figures += _figure(f"Bytes {each}", time_chart(axis, [Layer("", "c0", rate["bytes"])], size, marks))
    yield figures
    cut = f" {CUT}: cut off, so that the others show." if CUT in figures else ""
    yield f'<p class="dim">By time of commit ({_zone(axis.start)}). A step is {width}.{cut}</p>'


def _figure(title: str, chart: str) -> str:
    return f"<figure><figcaption>{title}</figcaption>{chart}</figure>\n"


def _marked(report: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The schema changes and truncates, with their signs, by time."""
    lists = zip(SIGNS, (report["schema_changes"], report["truncates"]), strict=True)
    return sorted([(sign, mark) for sign, marks in lists for mark in marks], key=lambda marked: marked[1]["ts"] or "")


def _marks(report: dict[str, Any]) -> Iterator[str]:
    rows = [
        [sign, _when(mark), mark["lsn"] or "", _name(mark), _text(", ".join(mark.get("differences", ["truncated"])))]
        for sign, mark in _marked(report)
    ]
    yield _table(["", "next commit", "LSN", "table", "what"], rows, "...ww")
    more = report["more_schema_changes"] + report["more_truncates"]
    yield f"<p>and {number(more)} more</p>" if more else ""


# -- tables and transactions -------------------------------------------------------------------------------------------


def _tables(tables: Sequence[dict[str, Any]]) -> Iterator[str]:
    rare = [key for key in ("truncates", "snapshot_rows") if any(table.get(key) for table in tables)]
    counts = [*_OPS, *rare]
    rows = [
        [_name(table), *[number(table.get(key, 0)) for key in counts], _size(table["bytes"]), f"{table['share']:.1%}"]
        for table in tables[:_MOST_TABLES]
    ]
    heads = ["table", *[key.replace("_", " ") for key in counts], "bytes", "share"]
    yield _table(heads, rows, "w" + "n" * (len(heads) - 1))
    more = len(tables) - _MOST_TABLES
    yield f"<p>and {_counted(more, 'table')} more with fewer bytes</p>" if more > 0 else ""


def _sizes(transactions: dict[str, Any]) -> Iterator[str]:
    if not transactions["count"]:
        return
    parts = ("p50", "p95", "p99", "max")
    rows = [["rows, up to", *[number(transactions["rows"][part]) for part in parts]]]
    rows.append(["bytes, up to", *[_size(transactions["bytes"][part]) for part in parts]])
    yield _table(["", "half of them", "95 %", "99 %", "the largest"], rows, ".nnnn")
    yield '<div class="row">'
    yield bars(_classes(transactions["rows"]["classes"], number), "rows, at least")
    yield bars(_classes(transactions["bytes"]["classes"], _size), "bytes, at least")
    if transactions["seconds"] is not None and transactions["seconds"]["classes"]:
        millis = [{**one, "from": round(one["from"] * 1000)} for one in transactions["seconds"]["classes"]]
        yield bars(_classes(millis, lambda least: _duration(least * 1000)), "time, at least")
    yield "</div>"


def _classes(classes: Sequence[dict[str, Any]], text: Callable[[int], str]) -> list[tuple[str, int]]:
    """The classes of a histogram with their least number, so many together that they are few."""
    counts = {one["from"].bit_length(): one["count"] for one in classes}
    first, last = min(counts), max(counts)
    by = -(-(last - first + 1) // _MOST_CLASSES)
    starts = range(first, last + 1, by)
    return [(text(1 << place >> 1), sum([counts.get(place + more, 0) for more in range(by)])) for place in starts]


def _largest(sizes: Sequence[dict[str, Any]]) -> Iterator[str]:
    rows = []
    for size in sizes:
        took = took_text(*[None if size[key] is None else round(size[key] * 1_000_000) for key in _BOUNDS])
        took = escape_html(took.replace(UNKNOWN, "").replace(" ", NBSP))
        amounts = [number(size["rows"]), _size(size["bytes"]), took, _shares(size)]
        rows.append([_xid(size), size["lsn"] or "", _when(size), *amounts])
    yield _table(["transaction", "LSN", "committed", "rows", "bytes", "took", "rows by table"], rows, "w..nnnw")
    if any(size[key] is not None for size in sizes for key in _BOUNDS):
        yield '<p class="dim">took: from the first change to the commit, estimated from other commits</p>'


def _prepared(prepared: dict[str, Any]) -> Iterator[str]:
    ended = f"{number(prepared['committed'])} committed, {number(prepared['rolled_back'])} rolled back"
    if prepared["count"] or prepared["committed"] or prepared["rolled_back"]:
        without = f"{number(prepared['without_outcome'])} without an outcome"
        yield f"<p>{number(prepared['count'])} prepared, {ended}, {without} in this input</p>"
    rows = [
        [_xid(one), _when(one), one.get("outcome", "none").replace("_", " "), _seconds(one.get("seconds"))]
        for one in (*prepared["longest"], *prepared["oldest"])
    ]
    yield _table(["transaction", "prepared", "outcome", "waited"], rows, "w..n")


def _hot_keys(stats: Statistics, *, keys: bool) -> Iterator[str]:
    hot = hot_keys(stats.hottest(MAX_KEYS), stats.hot_keys.error, _KEY_WIDTH)
    rows = [[_shown(table), _shown(values), times.replace(" ", NBSP)] for table, values, times in hot]
    if keys:
        yield _table(["table", "key", "times"], rows, "wwn")
    elif rows:
        table, _, times = rows[0]
        yield f"<p>A row of {table}, {times} times. The option --hot-keys shows the keys, which are values.</p>"


def _shown(item: Item) -> str:
    return escape_html("".join([text for text, _ in item]))


# -- clients -----------------------------------------------------------------------------------------------------------


def _clients(clients: Sequence[dict[str, Any]]) -> Iterator[str]:
    rows = []
    for client in clients:
        behind = ["" if client[key] is None else _size(client[key]) for key in ("behind_bytes", "most_behind_bytes")]
        row = [_text(client["client"]), _text(name(client["slot"] or "")), number(client["status_updates"])]
        rows.append([*row, client["confirmed_lsn"] or "nothing", *behind, _seconds(client["stuck_seconds"])])
    heads = ["client", "slot", "status updates", "confirmed", "behind", "at most", "not advanced for"]
    yield _table(heads, rows, "wwn.nnn")
    for client in [client for client in clients if len(client["lag"]) > 1][:_MOST_LAGS]:
        axis, amounts = _lag(client["lag"])
        chart = time_chart(axis, [Layer("", "c5", amounts)], Unit(_size, _size_amount, binary=True))
        yield _figure(f"How far {_text(client['client'])} was behind the last commit that was sent", chart)


def _lag(points: Sequence[dict[str, Any]]) -> tuple[Axis, list[int]]:
    """Steps from the first to the last point, each with the maximum of its points, or that of the step before."""
    times = [_micros(point["ts"]) for point in points]
    width = (times[-1] - times[0]) // _LAG_STEPS + 1
    amounts: list[int] = []
    for time, point in zip(times, points, strict=True):
        step, behind = (time - times[0]) // width, point["behind_bytes"]
        amounts += amounts[-1:] * (step - len(amounts))
        amounts[step:] = [max([behind, *amounts[step:]])]
    return Axis(times[0], width, len(amounts)), amounts


# -- texts -------------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], kinds: str) -> str:
    """A table, without empty columns, if it has rows; `kinds` are n for numbers, w for text that may be broken."""
    if not rows:
        return ""
    shown = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    classes = ["" if kind == "." else f' class="{kind}"' for kind in kinds]
    head = "".join([f"<th{classes[place]}>{heads[place]}</th>" for place in shown])
    lines = ["".join([f"<td{classes[place]}>{row[place]}</td>" for place in shown]) for row in rows]
    return f'<div class="wide"><table><tr>{head}</tr>{"".join([f"<tr>{line}</tr>" for line in lines])}</table></div>'


def _text(text: str) -> str:
    """Text of any origin: hidden characters, also those that XML forbids, are spelled out."""
    return escape_html(escape(text))


def _plain_name(table: dict[str, Any]) -> str:
    """The name of a table; its OID if it was not described."""
    if "relid" in table:
        return f"OID {table['relid']}"
    return middle_cut(f"{identifier(table['schema'])}.{identifier(table['table'])}", _LONGEST_NAME)


def _name(table: dict[str, Any]) -> str:
    return escape_html(_plain_name(table))


def _counted(count: int, noun: str) -> str:
    return f"{number(count)}{NBSP}{plural(count, noun)}"


def _size(size: int) -> str:
    return size_text(size).replace(" ", NBSP)


def _amount(amount: float) -> str:
    return number(round(amount)) if amount >= 10 or amount == round(amount) else f"{amount:.2g}"


def _size_amount(size: float) -> str:
    return f"{_size(round(size)).replace('.0' + NBSP, NBSP)}" if size else "0"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else _duration(round(float(seconds) * 1_000_000))


def _duration(micros: int) -> str:
    return span_text(micros).replace(" ", NBSP)


def _micros(text: str) -> int:
    """A time of the report in microseconds since 2000."""
    return int(moment(text).micros)


def _zone(micros: int) -> str:
    return zone_text(micros).replace("Z", "UTC")


def _when(place: dict[str, Any]) -> str:
    """The time of a transaction, which is of another server if it has an origin."""
    if "origin" in place:
        return f"from {_text(name(place['origin']))}"
    return "" if place["ts"] is None else local_text(_micros(place["ts"]))


def _xid(transaction: dict[str, Any]) -> str:
    gid = f" {_text(middle_cut(name(transaction['gid']), _NAME_WIDTH))}" if "gid" in transaction else ""
    streamed = " (streamed)" if transaction.get("streamed") else ""
    return f"xid{NBSP}{'unknown' if transaction['xid'] is None else transaction['xid']}{gid}{streamed}"


def _shares(size: dict[str, Any]) -> str:
    tables = [f"{_name(table)} {number(table['rows'])}" for table in size["tables"]]
    return ", ".join([*tables, *([f"{number(size['more_tables'])} more"] if size["more_tables"] else [])])
