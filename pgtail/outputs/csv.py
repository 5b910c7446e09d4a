"""CSV as PostgreSQL's COPY reads it: the changes of one table, or a directory with a file for each table.

NULL is an empty field, an empty string is "", and values are PostgreSQL's text. pgtail's own columns, whose names begin
with an underscore, come before those of the table.
"""

from __future__ import annotations

import re
from typing import Final

from pgtail.changes.events import Event, LogicalMessage, RowChange, TableTruncate, not_in_identity
from pgtail.changes.relations import Relation
from pgtail.errors import OptionError
from pgtail.files.sink import Sink
from pgtail.humanize import counted
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.cells import cell_text, columns_of, filled, timestamp
from pgtail.outputs.prepared import PreparedBuffer
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.pgoutput.scalars import lsn_text
from pgtail.values import Undecoded

OWN: Final = ("_op", "_xid", "_commit_lsn", "_commit_ts", "_seq", "_not_sent", "_undecoded")
"""pgtail's columns: the operation; xid, commit LSN and commit time of the transaction; the number of the change in it;
arrays of the names of columns that were not sent (their fields are empty) and that could not be decoded."""

_needs_quotes = re.compile(r'[",\r\n\\]|\A\Z|\A\s|\s\Z').search
_plain_element = re.compile(r"[^\s{}\",\\]+").fullmatch


class _Table:
    """The file of one version of a table."""

    def __init__(self, relation: Relation, sink: Sink, names: tuple[str, ...]) -> None:
        self.relation = relation
        self.sink = sink
        self.names = names


class Csv:
    """`-o csv`: insert, update, delete and truncate, and `before` ahead of an update whose old row or key was sent.

    Without a directory, event() raises OptionError for a second table or for other columns of the same table.
    """

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._sink = sink
        self._options = options
        self._tables: dict[int, _Table] = {}
        self._only: tuple[str, tuple[str, ...]] | None = None
        self._messages = 0
        self._prepared_buffer = PreparedBuffer(self._event, options.tell)
        self.event = self._prepared_buffer.event

    def finish(self) -> None:
        self._prepared_buffer.finish()
        if self._messages:
            self._options.tell(f"left out {counted(self._messages, 'logical message')}: they have no table")
            self._messages = 0

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self._row(event)
        elif isinstance(event, TableTruncate):
            self._line(event, "truncate", ())
        elif isinstance(event, LogicalMessage):
            self._messages += 1

    def _row(self, change: RowChange) -> None:
        if change.new is None:
            self._line(change, "delete", change.old or (), frozenset(not_in_identity(change)))
            return
        if change.old is not None:
            self._line(change, "before", change.old, frozenset(not_in_identity(change)))
        self._line(change, change.op, filled(change) if self._options.fill_unchanged else change.new)

    def _line(
        self, change: RowChange | TableTruncate, op: str, row: TupleData, skip: frozenset[int] = frozenset()
    ) -> None:
        table = self._table(change.relation, len(row))
        transaction = change.transaction
        not_sent: list[str] = []
        undecoded: list[str] = []
        fields = []
        columns = columns_of(change.relation, len(row))
        for index, cell in enumerate(row):
            name = columns[index].name
            if cell is UNCHANGED or index in skip:
                not_sent.append(name)
                fields.append("")
                continue
            try:
                fields.append("" if cell is None else _field(cell_text(columns[index].codec, cell)))
            except Undecoded as found:
                undecoded.append(name)
                fields.append(_field(found.text))
        fields += [""] * (len(table.names) - len(fields))
        own = [
            op,
            _text(transaction.xid),
            "" if transaction.commit_lsn is None else lsn_text(transaction.commit_lsn),
            "" if transaction.commit_ts is None else timestamp(transaction.commit_ts),
            _text(change.seq),
            _array(not_sent),
            _array(undecoded),
        ]
        table.sink.write((",".join([*own, *fields]) + "\n").encode())

    def _table(self, relation: Relation, count: int) -> _Table:
        table = self._tables.get(relation.version)
        if table is None or table.relation is not relation or len(table.names) < count:
            names = tuple([column.name for column in columns_of(relation, count)])
            sink = self._open(relation, names)
            table = self._tables[relation.version] = _Table(relation, sink, names)
        return table

    def _open(self, relation: Relation, names: tuple[str, ...]) -> Sink:
        header = (",".join([*OWN, *map(_field, names)]) + "\n").encode()
        if self._options.open_file is not None:
            name = (relation.schema, relation.name) if relation.seen else (relation.qualified,)
            return self._options.open_file(name, header)
        if self._only is None:
            self._sink.write(header)
            self._only = (relation.qualified, names)
        elif self._only != (relation.qualified, names):
            raise OptionError(_two_tables(self._only[0], relation.qualified))
        return self._sink


def _two_tables(first: str, second: str) -> str:
    if first == second:
        return f"-o csv: the columns of {first} changed here; -f DIR/ writes a file for each version of a table"
    return f"-o csv writes one table, not both {first} and {second}: -t selects one, -f DIR/ writes a file for each"


def _field(text: str) -> str:
    """A value that is not NULL as a field, quoted if needed."""
    return '"{}"'.format(text.replace('"', '""')) if _needs_quotes(text) else text


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _array(names: list[str]) -> str:
    """Names as the text of a text[] value; an empty field (NULL) for none."""
    if not names:
        return ""
    elements = [
        name
        if _plain_element(name) and name.lower() != "null"
        else '"{}"'.format(name.replace("\\", "\\\\").replace('"', '\\"'))
        for name in names
    ]
    return _field("{" + ",".join(elements) + "}")
