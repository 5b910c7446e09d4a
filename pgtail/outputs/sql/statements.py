"""Write single changes as SQL statements.

Values are string literals with PostgreSQL's text, which means the same on every server under the settings in HEAD. Rows
without a replica identity are compared as text: this needs no operator of the type, and distinguishes 1.0 from 1.00.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pgtail.changes.events import RowChange, TableTruncate
from pgtail.changes.relations import Column, Relation
from pgtail.outputs.cells import cell_text, columns_of
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.terminal.escape import escape, hides, quoted
from pgtail.values import Undecoded
from pgtail.values.format_type import builtin_type_name
from pgtail.values.oids import BUILTIN

HEAD: Final = """\
-- pgtail: run it with psql -X -v ON_ERROR_STOP=1 -f FILE
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
        RAISE EXCEPTION '% rows instead of 1: %', rows, left(statement, 1000);
    END IF;
END $$;

"""

_TRUNCATE: Final = (
    " BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(CASE relkind WHEN 'p' THEN '' ELSE 'ONLY ' END"
    " || oid::regclass::text, ', ') || '{}' FROM pg_catalog.pg_class WHERE oid IN ({})); END "
)
"""TRUNCATE needs ONLY for tables with children and rejects it for partitioned ones; the stream does not say which they
are. All tables of one TRUNCATE go into one statement, because of their foreign keys."""


_BUILTIN_NAMES: Final = frozenset(map(builtin_type_name, BUILTIN))
"""The type names of built-in types, and of domains over them."""


class NotExpressible(Exception):
    """A change that cannot be written as SQL; its text is the reason."""


class RowCondition(NamedTuple):
    """A condition that matches one row; if `equal`, several equal rows, of which any will do."""

    condition: str
    equal: bool = False


class Assignment(NamedTuple):
    """A column and its value, as SQL."""

    name: str
    value: str


def identifier(name: str) -> str:
    """A quoted identifier, U&"..." if it has hidden characters."""
    plain = _plain(name)
    if not hides(name):
        return plain
    spelled = "".join([_unicode(char) if hides(char) else char for char in plain.replace("\\", "\\\\")])
    return f"U&{spelled}"


def _plain(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _unicode(char: str) -> str:
    return f"\\{ord(char):04X}" if ord(char) <= 0xFFFF else f"\\+{ord(char):06X}"


def table(relation: Relation) -> str:
    """schema.table. Raises NotExpressible if only the OID is known."""
    if not relation.seen:
        raise NotExpressible(f"the table with OID {relation.oid} was never described")
    return f"{identifier(relation.schema)}.{identifier(relation.name)}"


def comment(text: str) -> str:
    """A comment line."""
    return f"-- {escape(text)}\n"


def label(change: RowChange | TableTruncate) -> str:
    """A change in words: operation, table and position."""
    numbers = [] if change.seq is None else [f"seq {change.seq}"]
    lsn = [] if change.lsn is None else [lsn_text(change.lsn)]
    xid = [f"xid {change.transaction.xid}"]
    return f"{change.op} on {change.relation.qualified} ({', '.join(xid + numbers + lsn)})"


def _one_row(verb: str, relation: Relation, change: str, which: RowCondition) -> str:
    """A statement that fails unless it affects one row. Raises NotExpressible."""
    change = _dollars(change) if change else "NULL"
    equal = ", true" if which.equal else ""
    return f"CALL pg_temp.one_row('{verb}', {_regclass(relation)}, {change}, {_dollars(which.condition)}{equal});\n"


def _regclass(relation: Relation) -> str:
    """A table's name as a literal for regclass. Raises NotExpressible."""
    table(relation)
    return quoted(f"{_plain(relation.schema)}.{_plain(relation.name)}")


def _dollars(text: str) -> str:
    """Dollar-quoted text, which must not end with a dollar sign."""
    tags = itertools.chain(("$$",), (f"$_{number}$" for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return f"{tag}{text}{tag}"


def insert(relation: Relation, row: TupleData) -> str:
    """INSERT of a whole row. Raises NotExpressible."""
    found = assigned(relation, row, range(len(row)), stored=True)
    if not found:
        return f"INSERT INTO {table(relation)} DEFAULT VALUES;\n"
    names, values = ", ".join([one.name for one in found]), ", ".join([one.value for one in found])
    return f"INSERT INTO {table(relation)} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values});\n"


def update(relation: Relation, which: RowCondition, row: TupleData, indexes: Iterable[int]) -> str:
    """UPDATE of the columns at `indexes`; without any, a check that the row exists. Raises NotExpressible."""
    changes = ", ".join([f"{one.name} = {one.value}" for one in assigned(relation, row, indexes, stored=True)])
    verb, change = ("UPDATE", f"SET {changes}") if changes else ("SELECT FROM", "")
    return _one_row(verb, relation, change, which)


def delete(relation: Relation, which: RowCondition) -> str:
    """DELETE of one row. Raises NotExpressible."""
    return _one_row("DELETE FROM", relation, "", which)


def truncate(changes: Sequence[TableTruncate]) -> str:
    """TRUNCATE of the tables. Raises NotExpressible."""
    oids = ", ".join([f"{_regclass(change.relation)}::regclass" for change in changes])
    restart = " RESTART IDENTITY" if changes[0].restart_identity else ""
    return f"DO {_dollars(_TRUNCATE.format(restart, oids))};\n"


def key_condition(relation: Relation, row: TupleData) -> RowCondition:
    """Matches the row by its replica identity, which must not be FULL. Raises NotExpressible."""
    indexes = key_indexes(relation)
    if not indexes:
        raise NotExpressible("the table has no replica identity")
    found = assigned(relation, row, indexes)
    if len(found) < len(indexes) or any(one.value == "NULL" for one in found):
        raise NotExpressible("a column of the replica identity was not sent")
    columns = [relation.columns[index] for index in indexes]
    return RowCondition(" AND ".join([_equal(column, one) for column, one in zip(columns, found, strict=True)]))


def _equal(column: Column, one: Assignment) -> str:
    """Compares an identity column; as text if its type is user-defined, because search_path is empty."""
    known = column.type_oid in BUILTIN or column.type_name in _BUILTIN_NAMES
    return f"{one.name} = {one.value}" if known else f"{one.name}::text = {one.value}"


def row_condition(relation: Relation, row: TupleData) -> RowCondition:
    """Matches a row with all these values. Raises NotExpressible."""
    found = assigned(relation, row, range(len(row)))
    if not found:
        return RowCondition("true", equal=True)
    names, values = ", ".join([one.name for one in found]), ", ".join([one.value for one in found])
    return RowCondition(f"ROW({names})::text = ROW({values})::text", equal=True)


def key_indexes(relation: Relation) -> list[int]:
    """The indexes of the identity columns; none under REPLICA IDENTITY FULL, which flags every column."""
    if relation.identity == "full":
        return []
    return [index for index, column in enumerate(relation.columns) if column.key]


def assigned(relation: Relation, row: TupleData, indexes: Iterable[int], *, stored: bool = False) -> list[Assignment]:
    """The columns at `indexes` with their values, without unsent ones. Raises NotExpressible.

    `stored` values are input of the type, others its output. They differ for xml that begins with a newline, because
    xml_out removes one (src/backend/utils/adt/xml.c, xml_out_internal).
    """
    table(relation)
    if len(row) > len(relation.columns):
        raise NotExpressible("the row has more columns than its table")
    columns = columns_of(relation, len(row))
    found = []
    for index in indexes:
        if index < len(row) and row[index] is not UNCHANGED:
            column = columns[index]
            try:
                found.append(Assignment(identifier(column.name), _value(column, row[index], stored)))
            except Undecoded:
                raise NotExpressible(f"the value of {column.name} cannot be read as {column.type_name}") from None
    return found


def _value(column: Column, cell: Cell, stored: bool) -> str:
    if not isinstance(cell, bytes):
        return "NULL"
    text = cell_text(column.codec, cell)
    if stored and column.type_name == "xml" and text.startswith("\n"):
        text = f"\n{text}"
    if "\0" in text:
        raise Undecoded(text)
    return quoted(text)


def when(time: int | None) -> str:
    """A time in words."""
    return "at an unknown time" if time is None else f"at {time_text(time).replace('T', ' ')}"
