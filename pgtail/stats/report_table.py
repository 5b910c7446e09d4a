"""The report of `pgtail stats` as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pgtail.changes.events import RowChange, Transaction
from pgtail.humanize import counted, grouped, size_text, span_text
from pgtail.local_time import to_local, zone_text
from pgtail.outputs import OutputOptions
from pgtail.outputs.choice import ColumnChoice
from pgtail.outputs.table.rows import RowFormatter
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.stats.clients import Client
from pgtail.stats.collect import HotKey, Statistics, TableCount
from pgtail.stats.layout import MARGIN, ReportLayout, StyledLine
from pgtail.stats.transactions import LARGEST_KEPT, Histogram, Transactions, TransactionSize
from pgtail.terminal.escape import quoted
from pgtail.terminal.layout import CUT, SPACE, Item, padding, paragraph, plot, sentence, wrap
from pgtail.terminal.style import Fragment, Painter, Palette
from pgtail.terminal.values import ValueStyle, column_name, name, table_name

MAX_TABLES: Final = 30
"""The largest tables are shown, by bytes."""
_MAX_KEYS: Final = 10
_MAX_COLUMNS: Final = 3
_MAX_LONGEST: Final = 3
_MAX_ORIGINS: Final = 5
_MAX_CUT: Final = 5
_DATED_WIDTH: Final = 90
"""Terminals from this width (in cells) on have room for dates."""
_PLOT_HEIGHT: Final = 4
_MAX_STEPS: Final = 100
_SHORT_TIME: Final = 1000
"""Durations below this (in microseconds) are not shown more exactly."""
UNKNOWN: Final = "?"
_FINE_STEP: Final = 1_000_000
"""Below this width of a column (in microseconds) times are shown in milliseconds."""


def stats_table(stats: Statistics, palette: Palette, *, width: int) -> bytes:
    """The whole report, with lines of at most `width` cells (at least 40)."""
    painter = Painter(palette)
    view = _View(stats, width)
    return "".join([f"{painter.line(line)}\n" for line in view.lines()]).encode()


class _View(ReportLayout):
    """The report: sections with an empty line between them."""

    def __init__(self, stats: Statistics, width: int) -> None:
        super().__init__(width)
        self._stats = stats

    def lines(self) -> Iterator[StyledLine]:
        """All lines of the report."""
        yield from self._head()
        for section in (
            self._tables(),
            self._percentiles(),
            self._largest(),
            self._rate(),
            self._updates(),
            self._keys(),
            self._schema(),
            self._clients(),
        ):
            lines = list(section)
            if lines:
                yield []
                yield from lines

    # -- sections ----------------------------------------------------------------------------------------------

    def _head(self) -> Iterator[StyledLine]:
        stats, transactions = self._stats, self._stats.transactions
        items: list[Item] = [((counted(transactions.count, "transaction"), "xid"),)]
        items.append(((counted(sum([table.rows for table in stats.tables.values()]), "row"), "xid"),))
        items.append(((size_text(stats.bytes), "xid"),))
        if stats.snapshots:
            copied = f"{counted(stats.snapshots, 'snapshot')}: {counted(stats.snapshot_rows, 'row')}"
            items.append(((f"{copied}, {size_text(stats.snapshot_bytes)}", "snapshot"),))
        if stats.messages:
            items.append(((f"{counted(stats.messages, 'message')}, {size_text(stats.message_bytes)}", "message"),))
        if transactions.empty:
            items.append(((f"{counted(transactions.empty, 'transaction')} without changes", "dim"),))
        if transactions.incomplete:
            items.append(((f"{counted(transactions.incomplete, 'transaction')} incomplete", "bad"),))
        lines = wrap(items, self.inner)
        yield [("● ", "dot"), *next(lines)]
        yield from self.indented(lines)
        if transactions.first is not None and transactions.last is not None:
            yield from self.indented(wrap(_span_of(transactions, self.inner), self.inner))
        yield from self._other_clocks()

    def _other_clocks(self) -> Iterator[StyledLine]:
        """Lines about commit times that are not of this server's clock, or not of one clock."""
        transactions = self._stats.transactions
        if transactions.origins:
            origins = transactions.origins.most_common(_MAX_ORIGINS)
            shown = ", ".join([f"{grouped(count)} from {name(origin)}" for origin, count in origins])
            more = len(transactions.origins) - len(origins)
            shown += f" and {counted(more, 'other origin')}" if more else ""
            yield from self.words(f"{shown}: commit times of other servers, left out of durations and the chart")
        if transactions.commits.set_back:
            most = max(transactions.commits.set_back, key=lambda one: one.before - one.now)
            back = f"commit times go back by {span_text(most.before - most.now)} at {lsn_text(most.lsn)}"
            others = len(transactions.commits.set_back) - 1
            back += f" (and {counted(others, 'time')} by no more)" if others else ""
            yield from self.words(f"{back}: the clock was set, or another server's commits follow", "warning")

    def _tables(self) -> Iterator[StyledLine]:
        tables, total = self._stats.by_bytes(), self._stats.bytes
        if not tables:
            return
        shown = tables[:MAX_TABLES]
        truncates = any(table.truncates for table in tables)
        heads: list[Fragment] = [("table", "dim"), ("inserts", "insert"), ("updates", "update"), ("deletes", "delete")]
        heads += [("truncates", "truncate")] if truncates else []
        snapshots = bool(self._stats.snapshot_rows)
        heads += [("snapshot", "snapshot")] if snapshots else []
        heads += [("bytes", "dim"), ("share", "dim")]
        rows = [_table_row(table, total, truncates=truncates, snapshots=snapshots) for table in shown]
        yield from self.columns(heads, rows, [table.bytes / total for table in shown] if total else ())
        rest = tables[MAX_TABLES:]
        if rest:
            rows_of_rest = sum([table.rows for table in rest])
            text = f"and {counted(len(rest), 'table')} more: {counted(rows_of_rest, 'row')}"
            yield from self.words(f"{text}, {size_text(sum([table.bytes for table in rest]))}")

    def _percentiles(self) -> Iterator[StyledLine]:
        transactions = self._stats.transactions
        if transactions.count < 2:
            return
        heads: list[Fragment] = [(text, "dim") for text in ("a transaction has", "half", "95 %", "99 %", "the largest")]
        yield from self.columns(
            heads,
            [
                _percentile_row("rows up to", transactions.rows, grouped),
                _percentile_row("bytes up to", transactions.bytes, size_text),
            ],
        )

    def _largest(self) -> Iterator[StyledLine]:
        transactions = self._stats.transactions
        if not transactions.count:
            return
        sizes = transactions.sizes(transactions.by_bytes)
        more = transactions.count > LARGEST_KEPT
        title = f"{LARGEST_KEPT} largest transactions" if more else "largest transactions first"
        yield from self._sizes(title, sizes)
        longest = transactions.sizes(transactions.by_time)[:_MAX_LONGEST]
        if longest and more:
            yield []
            yield from self._sizes("longest transactions", longest)
        if any(size.at_most is not None for size in sizes):
            yield from self.words(
                "took: from the first change to the commit, estimated from other commits (?: unknown)"
            )

    def _rate(self) -> Iterator[StyledLine]:
        series = self._stats.rate.series(min(self.inner, _MAX_STEPS))
        if series is None or len(series.rows) < 2:
            return
        highest = max(series.rows)
        width = f"{series.width / 1_000_000:g} s" if series.width < 60_000_000 else span_text(series.width)
        title = f"rows by time of commit; a column is {width}, the highest {counted(highest, 'row')}"
        yield from self.indented(paragraph(title, "dim", self.inner))
        lines, cut = plot(series.rows, _PLOT_HEIGHT)
        for line in lines:
            yield [padding(MARGIN), (line, "lsn")]
        stop = series.start + len(series.rows) * series.width
        digits = 3 if series.width < _FINE_STEP else 0
        start, end = (local_text(time, digits=digits) for time in (series.start, stop))
        gap = len(series.rows) - len(start) - len(end)
        shown = f"{start}{' ' * gap}{end}" if gap > 0 else f"{start} to {end}"
        yield from self.indented(paragraph(shown, "dim", self.inner))
        if cut:
            times = [local_text(series.start + place * series.width, digits=digits) for place in cut[:_MAX_CUT]]
            bars = [f"{counted(series.rows[place], 'row')} at {time}" for place, time in zip(cut, times, strict=False)]
            more = f" and {counted(len(cut) - _MAX_CUT, 'other bar')}" if len(cut) > _MAX_CUT else ""
            yield from self.words(f"{CUT} cut off, so that the others show: {', '.join(bars)}{more}")

    def _updates(self) -> Iterator[StyledLine]:
        tables = [table for table in self._stats.by_bytes() if table.updates][:MAX_TABLES]
        if not tables:
            return
        heads: list[Fragment] = [
            *(("updates of", "dim"), ("all", "update"), ("of the key", "dim"), ("changed nothing", "dim")),
            ("TOAST not sent", "dim"),
        ]
        yield from self.columns(heads, [_update_row(table) for table in tables])
        if any(not table.compared for table in tables):
            yield from self.words("?: unknown, because only REPLICA IDENTITY FULL sends the old row")

    def _keys(self) -> Iterator[StyledLine]:
        stats, keys = self._stats, self._stats.hot_keys
        hot = stats.hottest(_MAX_KEYS)
        if not hot:
            return
        heads: list[Fragment] = [("rows updated or deleted most often", "dim"), ("times", "dim")]
        rows = hot_keys(hot, keys.error, self.width // 3)
        yield from self.columns(
            heads, [[(*table, SPACE, *values), ((times, "plain"),)] for table, values, times in rows]
        )
        if keys.error:
            yield from self.words(f"too many keys to count exactly: each count may be {grouped(keys.error)} too low")
        if any(table.relation.identity == "full" and table.rows > table.inserts for table in stats.tables.values()):
            yield from self.words("without tables of REPLICA IDENTITY FULL: the server does not send their key")

    def _schema(self) -> Iterator[StyledLine]:
        changes = self._stats.schema_changes
        for number, mark in enumerate(changes.kept):
            if not number:
                yield [padding(MARGIN), ("schema changes", "dim")]
            items: list[Item] = [((table_name(mark.table), "table"),)]
            items += [((name(text), "plain"),) for text in mark.differences]
            yield from self.indented(wrap(items, self.inner))
        if changes.more:
            yield from self.words(f"and {grouped(changes.more)} more")

    def _clients(self) -> Iterator[StyledLine]:
        for number, client in enumerate(self._stats.clients):
            if not number:
                yield from self.words("clients, and how far behind the last commit is what they confirmed", "dim")
            yield from self.indented(wrap(_client_items(client), self.inner))

    def _is_of_one_day(self) -> bool:
        """Whether the report's first line says the day of all transactions."""
        found = self._stats.transactions
        days = {local_text(time).partition(" ")[0] for time in found.span or ()}
        return len(days) == 1 and not found.commits.set_back

    def _sizes(self, title: str, sizes: Sequence[TransactionSize]) -> Iterator[StyledLine]:
        heads: list[Fragment] = [(title, "dim"), ("rows", "dim"), ("bytes", "dim")]
        timed = any(took_text(size.at_least, size.at_most) != UNKNOWN for size in sizes)
        heads += [("took", "dim")] if timed else []
        rows: list[list[Item]] = []
        widest = max([len(_xid(size)) for size in sizes])
        dated = self.width >= _DATED_WIDTH or not self._is_of_one_day()
        for size in sizes:
            amounts: list[Item] = [((grouped(size.rows), "plain"),), ((size_text(size.bytes), "plain"),)]
            amounts += [((took_text(size.at_least, size.at_most), "plain"),)] if timed else []
            rows.append([_who(size, widest, dated=dated), *amounts])
        yield from self.columns(heads, rows)


def _table_row(table: TableCount, total: int, *, truncates: bool, snapshots: bool) -> list[Item]:
    counts = [table.inserts, table.updates, table.deletes, *([table.truncates] if truncates else [])]
    counts += [table.snapshot_rows] if snapshots else []
    share = f"{100 * table.bytes / total:.1f} %" if total else ""
    return [
        ((table_name(table.relation), "table"),),
        *[((grouped(count), "plain" if count else "dim"),) for count in counts],
        ((size_text(table.bytes), "plain"),),
        ((share, "plain"),),
    ]


def _percentile_row(title: str, histogram: Histogram, text: Callable[[int], str]) -> list[Item]:
    numbers = [histogram.percentile(50), histogram.percentile(95), histogram.percentile(99), histogram.maximum]
    return [((title, "plain"),), *[((text(number), "plain"),) for number in numbers]]


def _update_row(table: TableCount) -> list[Item]:
    same = f"{grouped(table.same)} of {grouped(table.compared)}" if table.compared else "?"
    return [
        ((table_name(table.relation), "table"),),
        ((grouped(table.updates), "plain"),),
        ((grouped(table.moved), "plain" if table.moved else "dim"),),
        ((same, "plain" if table.same else "dim"),),
        _unsent(table),
    ]


def _unsent(table: TableCount) -> Item:
    """The number of updates with an unsent TOASTed value, and the columns."""
    if not table.unsent:
        return (("0", "dim"),)
    columns = [column_name(column) for column in [*table.most_unsent][:_MAX_COLUMNS]]
    more = "" if len(table.unsent_columns) <= _MAX_COLUMNS else ", …"
    return (f"{grouped(table.unsent)} ", "plain"), (f"({', '.join(columns)}{more})", "dim")


def _xid(size: TransactionSize) -> str:
    return f"xid {'unknown' if size.transaction.xid is None else size.transaction.xid}"


def _who(size: TransactionSize, widest: int, *, dated: bool) -> Item:
    transaction = size.transaction
    fragments: list[Fragment] = [(_xid(size).ljust(widest), "xid")]
    if transaction.lsn is not None:
        fragments.append((f"  {lsn_text(transaction.lsn)}", "lsn"))
    if transaction.origin is not None:  # instead of a time of another clock
        fragments.append((f"  from {name(transaction.origin)}", "origin"))
    elif transaction.time is not None:
        when = local_text(transaction.time)
        fragments.append((f"  {when if dated else when.partition(' ')[2]}", "plain"))
    if transaction.gid is not None:
        fragments.append((f"  prepared {name(quoted(transaction.gid))}", "prepared"))
    return tuple(fragments)


def _client_items(client: Client) -> list[Item]:
    items: list[Item] = [((client.address, "table"),), ((counted(client.updates, "status update"), "plain"),)]
    if client.slot is not None:
        items.insert(1, (("slot ", "name"), (name(quoted(client.slot)), "plain")))
    if not client.updates:
        return items
    confirmed = lsn_text(client.confirmed) if client.confirmed else "nothing"
    items.append((("confirmed ", "name"), (confirmed, "lsn" if client.confirmed else "warning")))
    if client.behind:
        items.append(((f"{size_text(client.behind)} behind", "warning"),))
    if client.most_behind and client.most_behind > (client.behind or 0):
        items.append(((f"at most {size_text(client.most_behind)} behind", "plain"),))
    if client.stuck_for is not None:
        items.append(((f"not advanced for {span_text(client.stuck_for)}", "warning"),))
    return items


def took_text(least: int | None, most: int | None) -> str:
    """The bounds of a duration in microseconds, the lower one rounded down and the upper one up."""
    upper = None if most is None else span_text(most + 999)
    if least is None or least < _SHORT_TIME:
        return UNKNOWN if upper is None else f"< {upper}"
    lower = span_text(least)
    return f"> {lower}" if upper is None else f"{lower} to {upper}"


def hot_keys(keys: Sequence[HotKey], error: int, width: int) -> Iterator[tuple[Item, Item, str]]:
    """The table, the values in at most `width` cells each, as in tables of changes, and how often they were counted."""
    rows = RowFormatter(ValueStyle(width), ColumnChoice(OutputOptions()), fill_unchanged=False)
    for key in keys:
        row = rows.change(RowChange("delete", Transaction(None), None, None, key.relation, "K", key.cells, None))
        most = f" to {grouped(key.count + error)}" if error else ""
        yield row.table[1], row.key[1], f"{grouped(key.count)}{most}"


def _span_of(transactions: Transactions, width: int) -> list[Item]:
    items: list[Item] = []
    first, last = transactions.first, transactions.last
    if transactions.span is not None:
        start, end = transactions.span
        span, zone = span_text(abs(end - start)), zone_text(end).replace("Z", "UTC")
        items.append(sentence(f"{span_of(start, end)} {zone}, {span}", "plain", width))
    if first is not None and last is not None and first.lsn is not None and last.lsn is not None:
        items.append(((f"{lsn_text(first.lsn)} to {lsn_text(last.lsn)}", "lsn"),))
    return items


def span_of(start: int, end: int) -> str:
    """Two local times, without their zone, with microseconds if they are less than a second apart."""
    digits = 6 if 0 < abs(end - start) < 1_000_000 else 0
    return f"{local_text(start, digits=digits)} to {local_text(end, digits=digits)}"


def local_text(time: int, *, digits: int = 0) -> str:
    """A local time, without its zone, with `digits` digits of the second's fraction."""
    seconds, _, rest = time_text(to_local(time)).replace("T", " ").partition(".")
    return seconds + (f".{rest[:digits]}" if digits else "") + (" BC" if rest.endswith("BC") else "")
