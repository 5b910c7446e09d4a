"""The plans of SQL statements for single changes.

Values are string literals with PostgreSQL's text, which means the same on every server under the settings in HEAD. Rows
without a replica identity are compared as text: this needs no operator of the type, and distinguishes 1.0 from 1.00.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, NamedTuple

from pgtail.changes.events import TableTruncate
from pgtail.changes.relations import Column, Relation
from pgtail.native.plan import (
    Cell,
    Cells,
    Dollars,
    Encoding,
    Field,
    Form,
    NoPlan,
    Piece,
    Plan,
    Side,
    Skip,
    Value,
    joined,
)
from pgtail.outputs.executor import dollar_quoted
from pgtail.outputs.rows import Shape, encoding_of_text
from pgtail.outputs.sql.styles import BUILTIN_NAMES, Style, styles_of
from pgtail.terminal.escape import escape, quoted, sql_identifier
from pgtail.values import Undecoded
from pgtail.values.oids import BUILTIN

HEAD: Final = """\
-- pgtail: run it with psql -X -v ON_ERROR_STOP=1 -f FILE, on PostgreSQL 11 or later
-- The values are text as it is under these settings. Triggers and foreign keys do not fire, for what they did on the
-- source is among the changes; that takes a superuser, or the right to SET session_replication_role.
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SET search_path = '';
SET DateStyle = 'ISO, MDY';
SET IntervalStyle = 'postgres';
SET TimeZone = 'UTC';
SET extra_float_digits = 3;
SET bytea_output = 'hex';
SET lc_monetary = 'C';
SET xmloption = 'content';
SET array_nulls = on;
SET quote_all_identifiers = off;
SET session_replication_role = 'replica';
-- Runs a statement that has to find one row (or "equal": one of some that are equal), and fails where it does not. A
-- partitioned table's rows are those of its partitions, any other table's are its own, and not those that inherit.
CREATE OR REPLACE PROCEDURE pg_temp.one_row(
    verb text, tab regclass, change text, which text, equal boolean DEFAULT false
) LANGUAGE plpgsql AS $$
DECLARE
    kind "char" := (SELECT relkind FROM pg_catalog.pg_class WHERE oid = tab);
    own text := CASE kind WHEN 'p' THEN '' ELSE 'ONLY ' END || tab::text;
    place text := CASE WHEN equal THEN '(tableoid, ctid) = (SELECT tableoid, ctid FROM ' || own || ' WHERE ' || which
        || ' LIMIT 1)' ELSE which END;
    statement text := concat_ws(' ', verb, own, change, 'WHERE', place);
    rows bigint;
BEGIN
    EXECUTE statement;
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows <> 1 THEN
        RAISE EXCEPTION '% rows instead of 1: %', rows, left(statement, 1000) USING HINT = CASE WHEN equal THEN
            'The row was looked up by the text of all its values. If the changes were dumped in a session with other '
            'settings, dump them with PGOPTIONS=''-c TimeZone=UTC -c bytea_output=hex -c extra_float_digits=3''.'
        ELSE 'The target does not have the row that the source had before this change.' END;
    END IF;
END $$;

"""

_OWN: Final = "CASE relkind WHEN 'p' THEN '' ELSE 'ONLY ' END || oid::regclass::text"
_TRUNCATE: Final = (
    f" BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg({_OWN}, ', ') || '{{}}' FROM pg_catalog.pg_class"
    " WHERE oid IN ({})); END "
)
"""TRUNCATE needs ONLY for tables with children and rejects it for partitioned ones; the stream does not say which they
are. All tables of one TRUNCATE go into one statement, because of their foreign keys."""
_DELETE_ALL: Final = f" BEGIN EXECUTE (SELECT 'DELETE FROM ' || {_OWN} FROM pg_catalog.pg_class WHERE oid = {{}}); END "


_DEPENDENT: Final = re.compile(r"(timestamp(?=.* with )|interval|tstzrange|tstzmultirange|bytea)\b[^\[]*(\[\])?")
"""Types whose text differs with TimeZone, IntervalStyle or bytea_output, and is read under any of them."""
_FORM: Final = Form("sql")
_MAX_SHOWN: Final = 100
"""Characters of a value in a comment."""


class RowCondition(NamedTuple):
    """A condition that matches one row; if `equal`, several equal rows, of which any will do."""

    condition: Plan
    equal: bool = False


def table(relation: Relation) -> str:
    """schema.table. Raises NoPlan if only the OID is known."""
    if not relation.seen:
        raise NoPlan(f"the table with OID {relation.oid} was never described")
    return f"{sql_identifier(relation.schema)}.{sql_identifier(relation.name)}"


def comment(text: str) -> bytes:
    """A comment line."""
    return f"-- {escape(text)}\n".encode()


def omission(what: str, op: str, relation: Relation, reason: str) -> Plan:
    """A comment in the place of a change: operation, table, position and reason."""
    position = (Value(Field.XID, missing=b"unknown"), Value(Field.SEQ, b", seq "), Value(Field.LSN, b", "))
    before = f"-- {escape(f'{what}: {op} on {relation.qualified}')} (xid "
    return (before.encode(), *position, f"): {escape(reason)}\n".encode())


def insert(shape: Shape, side: Side) -> Plan:
    """INSERT of a whole row. Raises NoPlan."""
    name, columns = table(shape.relation), _columns(shape, side)
    if not columns:
        return (f"INSERT INTO {name} DEFAULT VALUES;\n".encode(),)
    cells = [Cell(index, b"", _stored(column), b"NULL") for index, column in enumerate(columns)]
    into = f"INSERT INTO {name} ({_names(columns)}) OVERRIDING SYSTEM VALUE VALUES ("
    return (into.encode(), Cells(side, tuple(cells), b", ", complete=True), b");\n")


def update(shape: Shape, which: RowCondition, to_set: Cells) -> Plan:
    """UPDATE of one row with these assignments. Raises NoPlan."""
    return _one_row("UPDATE", shape, Dollars((b"SET ", to_set)), which)


def assignments(
    shape: Shape, side: Side, indexes: Iterable[int], *, skip_same: Container[int] = (), complete: bool = False
) -> Cells:
    """The values of the columns at `indexes`, those in `skip_same` only if they changed. Raises NoPlan."""
    columns = _columns(shape, side)
    cells = [
        Cell(
            index,
            f"{sql_identifier(columns[index].name)} = ".encode(),
            _stored(columns[index]),
            b"NULL",
            skip=Skip.SAME if index in skip_same else Skip.NOTHING,
        )
        for index in indexes
        if index < len(columns)
    ]
    return Cells(side, tuple(cells), b", ", not_empty=True, complete=complete)


def check(shape: Shape, which: RowCondition) -> Plan:
    """A statement that fails unless the row exists. Raises NoPlan."""
    return _one_row("SELECT FROM", shape, b"NULL", which)


def delete(shape: Shape, which: RowCondition) -> Plan:
    """DELETE of one row. Raises NoPlan."""
    return _one_row("DELETE FROM", shape, b"NULL", which)


def _one_row(verb: str, shape: Shape, change: Piece, which: RowCondition) -> Plan:
    """A statement that fails unless it affects one row."""
    call = f"CALL pg_temp.one_row('{verb}', {_regclass(shape.relation)}, "
    end = b", true);\n" if which.equal else b");\n"
    return joined([call.encode(), change, b", ", Dollars(which.condition), end])


def _regclass(relation: Relation) -> str:
    """A table's name as a literal for regclass. Raises NoPlan."""
    table(relation)
    schema, name = (text.replace('"', '""') for text in (relation.schema, relation.name))
    return quoted(f'"{schema}"."{name}"')


def truncate(changes: Sequence[TableTruncate]) -> bytes:
    """TRUNCATE of the tables. Raises NoPlan."""
    oids = ", ".join([f"{_regclass(change.relation)}::regclass" for change in changes])
    restart = " RESTART IDENTITY" if changes[0].restart_identity else ""
    return _do(_TRUNCATE.format(restart, oids))


def delete_all(relation: Relation) -> bytes:
    """DELETE of all rows of a table. Raises NoPlan."""
    return _do(_DELETE_ALL.format(f"{_regclass(relation)}::regclass"))


def _do(block: str) -> bytes:
    return b"DO " + dollar_quoted(block.encode()) + b";\n"


def key_condition(shape: Shape, side: Side, *, fill: bool = False) -> RowCondition:
    """Matches the row by its replica identity, which must not be FULL. Raises NoPlan."""
    indexes = shape.relation.key_indexes
    if not indexes:
        raise NoPlan("the table has no replica identity")
    _columns(shape, side)
    cells = [_equal(index, shape.relation.columns[index]) for index in indexes]
    return RowCondition((Cells(side, tuple(cells), b" AND ", fill=fill),))


def _equal(index: int, column: Column) -> Cell:
    """Compares an identity column; as text if its type is user-defined, because search_path is empty."""
    known = column.type_oid in BUILTIN or column.type_name in BUILTIN_NAMES
    before = f"{sql_identifier(column.name)}{'' if known else '::text'} = "
    return Cell(index, before.encode(), _encoding(column), None, required=True)


def row_condition(shape: Shape, side: Side, *, fill: bool = False) -> RowCondition:
    """Matches a row with all these values. Raises NoPlan."""
    columns = _columns(shape, side)
    if not columns:
        return RowCondition((b"true",), equal=True)
    cells = [Cell(index, b"", _compared(column), b"NULL", b"NULL") for index, column in enumerate(columns)]
    row = Cells(side, tuple(cells), b", ", fill=fill, complete=not fill)
    return RowCondition((f"ROW({_names(columns)})::text = ROW(".encode(), row, b")::text"), equal=True)


def _columns(shape: Shape, side: Side) -> tuple[Column, ...]:
    """The columns of a tuple. Raises NoPlan if the table does not have them."""
    relation, width = shape.relation, shape.width(side)
    table(relation)
    if width > len(relation.columns):
        raise NoPlan("the row has more columns than its table")
    return relation.columns[:width]


def _names(columns: Iterable[Column]) -> str:
    return ", ".join([sql_identifier(column.name) for column in columns])


def literal(text: str) -> bytes:
    """A value of a statement. Raises Undecoded for a NUL, for which SQL has no literal."""
    if "\0" in text:
        raise Undecoded(text)
    return quoted(text).encode()


def _compared(column: Column) -> Encoding:
    """The values of a column to be compared as text: typed where settings of the dump may have changed the text."""
    name = _DEPENDENT.fullmatch(column.type_name)
    if name is None:
        return _encoding(column)
    kind = f"pg_catalog.{'_' * bool(name[2])}{'timestamptz' if name[1].startswith('timestamp') else name[1]} "
    return _encoding(column, lambda text: kind.encode() + literal(text), form=None)


def _stored(column: Column) -> Encoding:
    """The values of a column as input of its type.

    They differ from its output for xml that begins with a newline, because xml_out removes one
    (src/backend/utils/adt/xml.c, xml_out_internal).
    """
    if column.type_name != "xml":
        return _encoding(column)
    return _encoding(column, lambda text: literal(f"\n{text}" if text.startswith("\n") else text), form=None)


def _encoding(column: Column, encode: Callable[[str], bytes] = literal, *, form: Form | None = _FORM) -> Encoding:
    """The values of a column as output of its type.

    A value that cannot be decoded raises NoPlan, as does one whose meaning HEAD's settings would change.
    """
    styles = styles_of(column)
    if styles:
        encode, form = _in_styles(column, styles, encode), styles[0].form if form is _FORM else form

    def undecoded(_: Undecoded) -> bytes:
        raise NoPlan(f"the value of {column.name} cannot be read as {column.type_name}")

    return encoding_of_text(column, encode, form=form, undecoded=undecoded)


def _in_styles(column: Column, styles: tuple[Style, ...], encode: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def checked(text: str) -> bytes:
        for style in styles:
            if not style.fits(text):
                shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
                cure = f"dump it with PGOPTIONS='-c {style.setting}'"
                raise NoPlan(f"{shown} in {column.name} was not written under {style.setting}: {cure}")
        return encode(text)

    return checked
