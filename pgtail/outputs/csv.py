"""CSV as PostgreSQL's COPY reads it: the changes of one table, or a directory with a file for each table.

NULL is an empty field, an empty string is "", and values are PostgreSQL's text. pgtail's own columns, whose names begin
with an underscore, come before those of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from pgtail.changes.events import Event, LogicalMessage, TableTruncate
from pgtail.changes.relations import Column, Relation
from pgtail.errors import OptionError
from pgtail.files.sink import Sink
from pgtail.humanize import counted
from pgtail.log import log_outcome
from pgtail.native.plan import (
    Cell,
    Cells,
    Encoding,
    Field,
    Form,
    Names,
    Piece,
    Plan,
    Side,
    Undecodable,
    UndecodedValue,
    Value,
    joined,
)
from pgtail.outputs import OutputOptions
from pgtail.outputs.choice import Shown, changed_columns, seen_columns
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write, encoding_of_text

OWN: Final = ("_op", "_xid", "_commit_lsn", "_commit_ts", "_seq", "_not_sent", "_undecoded")
"""pgtail's columns: the operation; xid, commit LSN and commit time of the transaction; the number of the change in it;
arrays of the names of columns that were not sent (their fields are empty) and that could not be decoded. With --changed
there are also _changed and _maybe_changed: of an update, the names of the columns that changed or may have, and of
those that may have. With --old-values seen there is also _seen: of an old row, the names of the columns that the server
did not send, and that the input had shown before."""
_CHANGED: Final = ("_changed", "_maybe_changed")
_SEEN: Final = ("_seen",)

_needs_quotes = re.compile(r'[",\r\n\\]|\A\Z|\A\s|\s\Z').search
_plain_element = re.compile(r"[^\s{}\",\\]+").fullmatch


class Csv(PlannedOutput):
    """`-o csv`: insert, update, delete and truncate, and `before` ahead of an update whose old row or key was sent.

    Without a directory, event() raises OptionError for a second table or for other columns of the same table.
    """

    buffers_prepared = True
    rows_alone = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._sinks: dict[tuple[int, int], tuple[Relation, Write]] = {}
        self._header = b""
        """The header of the only table, once it is known; empty with a directory."""
        self._changed = _CHANGED if options.changed else ()
        self._seen = _SEEN if options.takes_seen else ()

    def new_file(self) -> None:
        self.write(self._header)

    def close(self) -> None:
        if self.left_out:
            log_outcome(f"left out {counted(self.left_out, 'logical message')}: they have no table")
            self.left_out = 0

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            columns = event.relation.columns
            empty = len(self.choice.columns(event.relation, columns)) + len(self._changed) + len(self._seen)
            own = joined([*_own(event.op), b"," + b"," * empty + b"\n"])
            write = self._write_to(event.relation, columns)
            write(self.rows.truncate(own, event))
        elif isinstance(event, LogicalMessage):
            self.left_out += 1

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        pieces: list[Piece] = []
        if shape.old_width is not None:
            pieces += self._line(shape, "before" if shape.new_width is not None else shape.op, "old")
        if shape.new_width is not None:
            pieces += self._line(shape, shape.op, "new")
        return joined(pieces), self._write_to(shape.relation, shape.columns)

    def _line(self, shape: Shape, op: str, side: Side) -> list[Piece]:
        columns, shown, width = shape.columns, self.choice.shown(shape), shape.width(side)
        cells = [
            Cell(
                *(index, b"", _encoding(columns[index]), b"", b""),
                null_absent=side == "old" and not shape.in_old(index),
                skip=shown.skip(index, side),
                skipped=b"",
            )
            for index in shown.indexes
            if index < width
        ]

        def names(indexes: Iterable[int]) -> bytes:
            return _array([columns[index].name for index in indexes])

        def undecoded(values: Iterable[UndecodedValue]) -> bytes:
            return names([one.column for one in values if one.side == side])

        row = Cells(side, tuple(cells), fill=self.options.fill_unchanged and side == "new")
        not_sent = Names((side,), names, absent=True)

        def both(known: Sequence[int], maybe: Sequence[int]) -> bytes:
            return b",%b,%b" % (names(sorted((*known, *maybe))) or b"{}", names(maybe) or b"{}")

        changed: list[Piece] = [b"," * len(self._changed)]
        if self._changed and shape.op == "update":
            changed = [changed_columns(shape, shown, both)]
        missing = b"," * (len(shown.indexes) - len(cells))
        seen = _seen_names(shape, shown) if self._seen and side == "old" else [b"," * len(self._seen)]
        return [*_own(op), not_sent, b",", Undecodable(undecoded), *changed, *seen, b",", row, missing + b"\n"]

    def _write_to(self, relation: Relation, columns: tuple[Column, ...]) -> Write:
        """The function that writes the rows of a version of a table with these columns."""
        key = (relation.version, len(columns))
        found = self._sinks.get(key)
        if found is None or found[0] is not relation:
            names = [columns[index].name for index in self.choice.columns(relation, columns)]
            found = self._sinks[key] = (relation, self._open(relation, tuple(names)))
        return found[1]

    def _open(self, relation: Relation, names: tuple[str, ...]) -> Write:
        header = (
            ",".join([*OWN, *self._changed, *self._seen, *[field_of_text(name).decode() for name in names]]) + "\n"
        ).encode()
        if self.options.open_file is not None:
            name = (relation.schema, relation.name) if relation.seen else (relation.qualified,)
            return self.options.open_file(name, header).write
        only = relation.qualified, names
        found = self.once.first("header", only)
        if found is None:
            self.write(header)
        elif isinstance(found, tuple) and found != only:
            raise OptionError(_two_tables(found[0], relation.qualified))
        self._header = header
        return self.write


def _seen_names(shape: Shape, shown: Shown) -> list[Piece]:
    """The array of the columns of the old row that the server did not send, as far as they are known."""
    if not shape.seen:
        return [b","]
    return [b',"{', seen_columns(shape, shown, lambda name: _element(name).replace('"', '""').encode()), b'}"']


def _own(op: str) -> list[Piece]:
    """pgtail's columns up to _seq, each followed by a comma."""
    fields = (Field.XID, Field.COMMIT_LSN, Field.TIMESTAMP, Field.SEQ)
    return [op.encode() + b",", *[piece for field in fields for piece in (Value(field), b",")]]


def _encoding(column: Column) -> Encoding:
    return encoding_of_text(column, field_of_text, form=Form("csv"))


def _two_tables(first: str, second: str) -> str:
    if first == second:
        return f"-o csv: the columns of {first} changed here; -f DIR/ writes a file for each version of a table"
    return f"-o csv writes one table, not both {first} and {second}: -t selects one, pgtail decode -f DIR/ writes all"


def field_of_text(text: str) -> bytes:
    """A value that is not NULL as a field, quoted if needed."""
    return ('"{}"'.format(text.replace('"', '""')) if _needs_quotes(text) else text).encode()


def _array(names: list[str]) -> bytes:
    """Names as the text of a text[] value; an empty field (NULL) for none."""
    if not names:
        return b""
    return field_of_text("{" + ",".join(map(_element, names)) + "}")


def _element(name: str) -> str:
    """A name as an element of an array."""
    if _plain_element(name) and name.lower() != "null":
        return name
    return '"{}"'.format(name.replace("\\", "\\\\").replace('"', '\\"'))
