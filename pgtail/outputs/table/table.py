"""Write each transaction as a table for people: a header, a row for each change and a footer.

Rows are laid out in pages. The column widths of the first page are used for the whole transaction, so that memory is
bounded and columns do not move.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import (
    Change,
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    Rows,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink
from pgtail.humanize import counted, grouped, span_text
from pgtail.local_time import clock
from pgtail.outputs import OutputOptions
from pgtail.outputs.base import Output
from pgtail.outputs.choice import ColumnChoice
from pgtail.outputs.fields import local_time
from pgtail.outputs.table.page import MIN_WIDTH, PAGE, PAGE_TEXT, Columns, Page, columns_for
from pgtail.outputs.table.rows import MARGIN, RowFormatter, TableRow, rolled_back
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import quoted
from pgtail.terminal.layout import DOT, Item, SizedItem, padding, sized, sized_sentence, wrap_sized
from pgtail.terminal.style import Fragment, Painter, palette
from pgtail.terminal.values import ValueStyle, name, table_name

MAX_ROWS: Final = 20
"""Changes of a transaction that are shown outside a pager, if --max-rows does not say it."""
_MOST_KEY: Final = 256
"""Cells of a value of the key, at least: keys may differ at their ends only."""
_DOT: Final[Fragment] = ("● ", "dot")
_INDENT: Final = (padding(MARGIN),)


class TableOutput(Output):
    """`-o table`. Lines are at most `options.width` cells wide, or what `options.measure` gives for a block.

    `now` is the clock for ages.
    """

    takes_whole = False

    def __init__(self, sink: Sink, options: OutputOptions, *, now: Callable[[], int] = clock) -> None:
        self._sink = sink
        self._measure = options.measure or (lambda: options.width)
        most = options.max_rows
        self._most = (0 if options.paged else MAX_ROWS) if most is None else most
        self._most = self._most or sys.maxsize
        self._schema_changes = options.schema_changes
        self._prefix, self._context = options.context, b""
        """The prefix of the messages that give the context, and what the transaction's rows have shown of it last."""
        self._client = options.client
        self._now = now
        self._painter = Painter(palette(color=options.colored, colors=options.colors), options.highlight)
        self._choice = ColumnChoice(options, changed=not options.all_columns)
        most_value = options.max_width
        self._rows = RowFormatter(
            ValueStyle(most_value),
            self._choice,
            fill_unchanged=options.fill_unchanged,
            keys=ValueStyle(most_value and max(most_value, _MOST_KEY)),
        )
        self._set_width()
        self._page = Page(PAGE_TEXT if options.max_width is None else sys.maxsize)
        self._columns: Columns | None = None
        self._headed = False
        """Whether the header of the transaction is written."""
        self._placed = False
        self._any = self._outside = False
        self._seen = self._messages = self._rolled_back = 0
        self._left = self._most
        """How many more changes of the transaction are shown; negative: how many were not."""
        self._render: dict[type, Callable[[Any], None]] = {
            RowChange: self._change,
            TableTruncate: self._change,
            LogicalMessage: self._message,
            DdlMessage: self._message,
            Started: self._start,
            Ended: self._end,
            Outcome: self._outcome,
            SchemaChange: self._schema,
            FromClient: self._from_client,
        }

    def event(self, event: Event) -> None:
        render = self._render.get(type(event))
        if render is not None:
            render(event)

    def finish(self) -> None:
        """Write the page."""
        self._lay_out()
        self._choice.note_unused()

    # -- rows beyond those that are shown ------------------------------------------------------------------------

    @property
    def takes_slices(self) -> bool:
        return True

    def takes(self, transaction: Transaction) -> bool:
        return self._headed and self._left <= 0

    def write_rows(self, rows: Rows) -> None:
        for relation, _ in rows.slice.counts(shown=True):
            self._not_shown(relation if self.mask is None else self.mask(relation))
        count = rows.totals.rows - rows.totals.left_out
        self._seen += count
        self._left -= count

    def _not_shown(self, relation: Relation) -> None:
        """Rows of this table are not shown: --columns knows it, too."""
        self._rows.parts(relation)

    # -- events ------------------------------------------------------------------------------------------------

    def _start(self, _: Started) -> None:
        self._lay_out()
        self._headed = False
        self._columns = None
        self._context = b""
        self._seen = self._messages = self._rolled_back = 0
        self._left = self._most

    def _end(self, event: Ended) -> None:
        transaction, complete = event.transaction, event.complete
        nothing = not (self._seen or self._messages or self._rolled_back or transaction.snapshot)
        if not (nothing and complete and transaction.gid is None):
            if not self._headed:
                self._head(transaction)
            self._lay_out()
            self._write(self._footer(transaction, complete=complete), _INDENT)
        self._headed = False

    def _change(self, change: RowChange | TableTruncate) -> None:
        if change.aborted:
            self._rolled_back += 1
        else:
            self._seen += 1
        self._left -= 1
        rows = self._rows
        if self._left >= 0:
            self._show_context(change)
            self._add(change, rows.change(change) if isinstance(change, RowChange) else rows.truncate(change))
        elif isinstance(change, RowChange):
            self._not_shown(change.relation)

    def _message(self, message: LogicalMessage) -> None:
        if message.transaction is None:
            self._lone_message(message)
            return
        self._rolled_back += message.aborted
        self._messages += not message.aborted
        self._left -= 1
        if self._left >= 0:
            self._show_context(message)
            self._add(message, self._rows.message(message))
            if message.prefix == self._prefix:
                self._context = message.content

    def _show_context(self, change: Change) -> None:
        """A row for the context of this change and those after it, unless its message was shown."""
        context = None if change.transaction is None else change.transaction.context
        if context is not None and context.shown != self._context:
            self._context = context.shown
            self._add(change, self._rows.context(context.shown))

    def _lone_message(self, message: LogicalMessage) -> None:
        """Show a non-transactional message, which may come between the changes of a transaction."""
        row = self._rows.message(message)
        if message.lsn is not None:
            row.values.append(sized(((lsn_text(message.lsn), "lsn"),)))
        self._by_itself(row)

    def _from_client(self, message: FromClient) -> None:
        if self._client:
            self._by_itself(self._rows.from_client(message))

    def _schema(self, event: SchemaChange) -> None:
        if self._schema_changes:
            self._by_itself(self._rows.schema(event))

    def _outcome(self, outcome: Outcome) -> None:
        self._lay_out()
        prepared: Item = ((f"prepared {name(quoted(outcome.gid))}", "prepared"),)
        if outcome.op == "commit_prepared":
            items = self._opening(_xid(outcome.xid), outcome.lsn, outcome.time)
            items += [(*prepared, (" committed", "insert")), ((f"end {lsn_text(outcome.end_lsn)}", "dim"),)]
        else:
            items = self._opening(_xid(outcome.xid), outcome.end_lsn, outcome.time)
            items.append((*prepared, (" rolled back", "delete")))
        self._block(items)

    # -- pages -------------------------------------------------------------------------------------------------

    def _add(self, change: Change, row: TableRow) -> None:
        if not self._headed and change.transaction is not None:
            self._head(change.transaction)
        self._push(rolled_back(row) if change.aborted else row)
        if not self._left:
            self._lay_out()

    def _push(self, row: TableRow) -> None:
        self._page.add(row)
        if self._page.full:
            self._lay_out()

    def _by_itself(self, row: TableRow) -> None:
        """Show a row of no transaction, between transactions or between the rows of one."""
        if self._headed:
            self._push(row)
            return
        if not self._outside:
            self._blank()
        self._outside = True
        self._columns = None
        self._push(row)
        self._lay_out()
        self._columns = None

    def _lay_out(self) -> None:
        if not self._page:
            return
        if self._columns is None:
            self._columns = columns_for(self._page, self._width)
        nulls = self._page.nulls()
        self._lines(self._page.lay_out(self._columns, nulls.found()))
        self._lines(nulls.lines(self._width, self._columns.below))

    # -- headers and footers -----------------------------------------------------------------------------------

    def _head(self, transaction: Transaction) -> None:
        self._headed = True
        self._placed = transaction.lsn is not None
        title = _snapshot_of(transaction) if transaction.snapshot else _xid(transaction.xid)
        items = self._opening(title, transaction.lsn, transaction.time)
        if transaction.origin is not None:
            items.append(((f"from {name(transaction.origin)}", "origin"),))
        if transaction.gid is not None:
            items.append(((f"prepared {name(quoted(transaction.gid))}", "prepared"),))
        if transaction.aborted:
            items.append((("rolled back", "bad"),))
        if transaction.state == "open":
            items.append((("open: its end is not known yet", "note"),))
        if not transaction.begun:
            items.append((("its beginning was not seen", "note"),))
        self._block(items)

    def _opening(self, title: str, lsn: int | None, when: int | None) -> list[Item]:
        items: list[Item] = [((title, "xid"),)]
        if lsn is not None:
            items.append(((lsn_text(lsn), "lsn"),))
        if when is not None:
            items.append(((local_time(when), "plain"),))
            items.append(((age(self._now() - when), "dim"),))
        return items

    def _footer(self, transaction: Transaction, *, complete: bool) -> list[SizedItem]:
        seen, messages, rolled_back, width = self._seen, self._messages, self._rolled_back, self._width - MARGIN
        what = "row" if transaction.snapshot else "change"
        counts = [counted(seen, what)] if seen or not (messages or rolled_back) else []
        if transaction.count > seen:
            counts[:1] = [f"{grouped(seen)} of {counted(transaction.count, what)}"]
        if messages:
            counts.append(counted(messages, "message"))
        if rolled_back:
            counts.append(f"{grouped(rolled_back)} rolled back")
        text = ", ".join(counts)
        if self._left < 0:
            text += f", {grouped(-self._left)} not shown (--max-rows {self._most})"
        if not complete:
            return [sized_sentence(text, "dim", width), sized((("broken off here: its end was not seen", "bad"),))]
        if not self._placed and transaction.lsn is not None:
            text += f" {DOT} commit {lsn_text(transaction.lsn)}"
        if transaction.end_lsn is not None:
            text += f" {DOT} end {lsn_text(transaction.end_lsn)}"
        return [sized_sentence(text, "dim", width)]

    def _block(self, items: list[Item]) -> None:
        self._blank()
        self._outside = False
        self._write(map(sized, items), (_DOT,))

    def _write(self, items: Iterable[SizedItem], first: Item) -> None:
        lines = wrap_sized(items, self._width - MARGIN, first, _INDENT)
        self._sink.write(self._painter.lines(lines).encode())

    def _blank(self) -> None:
        """Write an empty line between two blocks; the next block has the width that the terminal has now."""
        self._set_width()
        if self._any:
            self._sink.write(b"\n")
        self._any = True

    def _set_width(self) -> None:
        self._width = max(self._measure(), MIN_WIDTH)
        self._rows.room = self._width - Columns(self._width, 0, 0).below

    def _lines(self, lines: Iterable[list[Fragment]]) -> None:
        """Write lines, some at a time: a row may have any number of them."""
        lines, some = iter(lines), None
        while some is None or len(some) == PAGE:
            some = list(islice(lines, PAGE))
            if some:
                self._sink.write(self._painter.lines(some).encode())


def _xid(xid: int | None) -> str:
    return f"xid {'unknown' if xid is None else xid}"


def _snapshot_of(transaction: Transaction) -> str:
    table = transaction.table
    return f"snapshot of {'an unknown table' if table is None else table_name(table)}"


def age(micros: int) -> str:
    """How long ago something was, in words."""
    if micros < 0:
        return f"{span_text(-micros)} ahead of this clock"
    return f"{span_text(micros)} ago"
