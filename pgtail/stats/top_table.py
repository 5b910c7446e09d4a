"""A sample of `pgtail stats --watch` as a screen for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from pgtail.humanize import counted, grouped, size_text, span_text
from pgtail.pgoutput.scalars import lsn_text
from pgtail.stats.collect import Statistics, TableCount
from pgtail.stats.layout import ReportLayout, StyledLine
from pgtail.stats.rate import Counts
from pgtail.stats.report_table import hot_keys
from pgtail.stats.top import Sample
from pgtail.terminal.layout import GAP, SPACE, Item, padding, sparkline, wrap
from pgtail.terminal.style import Fragment, Painter, Palette
from pgtail.terminal.values import table_name

_MAX_KEYS: Final = 5
_BESIDE: Final = 28
"""Cells beside the line of samples, for the greatest one in words."""


def top_table(
    stats: Statistics, sample: Sample, palette: Palette, *, width: int, height: int, now: int, by_name: bool = False
) -> str:
    """The screen, with lines of at most `width` cells and about `height` lines; `now` is in microseconds since 2000.

    Tables are in the order of the sample, most bytes first, or by name.
    """
    painter = Painter(palette)
    if by_name:
        sample = replace(sample, tables=sorted(sample.tables, key=lambda one: one[0].relation.qualified))
    view = _TopView(stats, sample, width, now)
    return "".join([f"{painter.line(line)}\n" for line in view.lines(height)])


class _TopView(ReportLayout):
    """Where the stream is, the tables by what came since the last sample, and the hottest keys."""

    def __init__(self, stats: Statistics, sample: Sample, width: int, now: int) -> None:
        super().__init__(width)
        self._stats = stats
        self._sample = sample
        self._now = now

    def lines(self, height: int) -> Iterator[StyledLine]:
        """All lines: the keys and the head always, of the tables as many as fit."""
        head, keys = list(self._head()), list(self._keys())
        yield from head
        yield []
        yield from self._tables(max(height - len(head) - len(keys) - 4, 1))
        if keys:
            yield []
            yield from keys

    def _head(self) -> Iterator[StyledLine]:
        sample, position = self._sample, self._sample.position
        items: list[Item] = [((f"{_rate(sample.transactions, sample.seconds)} transactions/s", "xid"),)]
        items.append(((f"{_rate(sample.rows, sample.seconds)} rows/s", "xid"),))
        items.append(((f"{size_text(round(sample.bytes / sample.seconds))}/s", "xid"),))
        if position.lsn:
            items.append(((lsn_text(position.lsn), "lsn"),))
        if position.lag is not None:
            items.append(((f"lag {size_text(position.lag)}", "warning" if position.lag else "good"),))
        times = self._stats.transactions.commits.times
        if times:
            items.append(((f"last commit {span_text(max(0, self._now - times[-1]))} ago", "plain"),))
        yield from self.indented(wrap(items, self.inner))
        if len(sample.rates) > 1:
            rates = sample.rates[-(self.inner - _BESIDE) :]
            words = f"rows/s, at most {_rate(max(rates))}"
            yield from self.indented([[(sparkline(rates), "lsn"), padding(GAP), (words, "dim")]])
        if position.unfinished is not None:
            xid, changes = position.unfinished
            yield from self.words(f"open transaction: xid {xid}, {counted(changes, 'change')} so far", "note")

    def _tables(self, room: int) -> Iterator[StyledLine]:
        tables = self._sample.tables
        if not tables:
            yield from self.words("no changes yet", "dim")
            return
        heads: list[Fragment] = [("table", "dim"), ("rows/s", "dim"), ("bytes/s", "dim")]
        heads += [("inserts/s", "insert"), ("updates/s", "update"), ("deletes/s", "delete"), ("rows", "dim")]
        most = max(self._sample.bytes, 1)
        shown = tables[:room]
        rows = [self._row(table, counts) for table, counts in shown]
        yield from self.columns(heads, rows, [counts.bytes / most for _, counts in shown])
        if len(tables) > room:
            yield from self.words(f"and {counted(len(tables) - room, 'table')} more", "dim")

    def _row(self, table: TableCount, counts: Counts) -> list[Item]:
        sample = self._sample
        rates = [_rate(one, sample.seconds) for one in (counts.inserts, counts.updates, counts.deletes)]
        return [
            ((table_name(table.relation), "table"),),
            _plain(_rate(counts.rows, sample.seconds)),
            ((size_text(round(counts.bytes / sample.seconds)), "plain" if counts.bytes else "dim"),),
            *map(_plain, rates),
            ((grouped(table.rows), "dim"),),
        ]

    def _keys(self) -> Iterator[StyledLine]:
        hot = self._stats.hottest(_MAX_KEYS)
        if not hot:
            return
        rows = hot_keys(hot, 0, self.width // 3)
        heads: list[Fragment] = [("rows updated or deleted most often since the start", "dim"), ("times", "dim")]
        yield from self.columns(heads, [[(*table, SPACE, *values), _plain(times)] for table, values, times in rows])


def _rate(count: float, seconds: float = 1) -> str:
    rate = count / seconds
    return grouped(round(rate)) if rate >= 10 or not count else f"{rate:.1f}"


def _plain(text: str) -> Item:
    return ((text, "dim" if text == "0" else "plain"),)
