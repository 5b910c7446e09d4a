"""Floor 4, changes as SQL text: names and values quoted, rows found by their identity; knows no transaction.

A value is written as a string that the column's type reads: PostgreSQL's own text, which means the same on every server
under the settings of HEAD. Rows without an identity are compared as text for the same reason: it needs no operator of
the type, and tells 1.0 from 1.00.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pgtail.outputs.celltext import cell_text, columns_of
from pgtail.outputs.escape import escape, hides, quoted
from pgtail.relations import Relation
from pgtail.transaction import RowChange, TableTruncate
from pgtail.values import Undecoded
from pgtail.wire.cells import UNCHANGED, Cell, TupleData
from pgtail.wire.scalars import lsn_text, time_text

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
SET quote_all_identifiers = off;
SET session_replication_role = 'replica';
-- Runs a statement that has to change one row, and fails where it does not.
CREATE OR REPLACE PROCEDURE pg_temp.one_row(statement text) LANGUAGE plpgsql AS $$
DECLARE
    changed bigint;
BEGIN
    EXECUTE statement;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> 1 THEN
        RAISE EXCEPTION '% rows instead of 1: %', changed, left(statement, 1000);
    END IF;
END $$;

"""

_TRUNCATE: Final = (
    " BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(CASE relkind WHEN 'p' THEN '' ELSE 'ONLY ' END"
    " || oid::regclass::text, ', ') || '{}' FROM pg_catalog.pg_class WHERE oid IN ({})); END "
)
"""A partitioned table cannot be truncated with ONLY, one that others inherit from must be: the stream does not say
which it is. All tables of one TRUNCATE in one, for they may refer to each other."""


class Unsayable(Exception):
    """A change that cannot be written as SQL: the reason, for people."""


class Assigned(NamedTuple):
    """A column and its value, both as SQL."""

    name: str
    value: str


def identifier(name: str) -> str:
    """A name in double quotes; what is hidden in it is spelled out."""
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
    """schema.table. Raises Unsayable where only an OID is known."""
    if not relation.seen:
        raise Unsayable(f"the table with OID {relation.oid} was never described")
    return f"{identifier(relation.schema)}.{identifier(relation.name)}"


def comment(text: str) -> str:
    """A line of comment."""
    return f"-- {escape(text)}\n"


def place(change: RowChange | TableTruncate) -> str:
    """Where a change stands, for people."""
    numbers = [] if change.seq is None else [f"seq {change.seq}"]
    lsn = [] if change.lsn is None else [lsn_text(change.lsn)]
    xid = [f"xid {change.transaction.xid}"]
    return f"{change.op} on {change.relation.qualified} ({', '.join(xid + numbers + lsn)})"


def one_row(statement: str) -> str:
    """A statement that has to change one row."""
    return f"CALL pg_temp.one_row({_dollars(statement)});\n"


def _dollars(text: str) -> str:
    """Text between dollars; it does not end with one."""
    tags = itertools.chain(("$$",), (f"$_{number}$" for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return f"{tag}{text}{tag}"


def insert(relation: Relation, row: TupleData) -> str:
    """INSERT of a whole row. Raises Unsayable."""
    found = assigned(relation, row, range(len(row)))
    if not found:
        return f"INSERT INTO {table(relation)} DEFAULT VALUES;\n"
    names, values = ", ".join([one.name for one in found]), ", ".join([one.value for one in found])
    return f"INSERT INTO {table(relation)} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values});\n"


def update(relation: Relation, where: str, row: TupleData, places: Iterable[int]) -> str:
    """UPDATE of the columns at these places. Raises Unsayable."""
    changes = ", ".join([f"{one.name} = {one.value}" for one in assigned(relation, row, places)])
    return one_row(f"UPDATE {table(relation)} SET {changes} WHERE {where}")


def delete(relation: Relation, where: str) -> str:
    """DELETE of one row. Raises Unsayable."""
    return one_row(f"DELETE FROM {table(relation)} WHERE {where}")


def truncate(changes: Sequence[TableTruncate]) -> str:
    """The tables of one TRUNCATE. Raises Unsayable."""
    names = [f"{_plain(change.relation.schema)}.{_plain(change.relation.name)}" for change in changes]
    for change in changes:
        table(change.relation)
    oids = ", ".join([f"{quoted(name)}::regclass" for name in names])
    restart = " RESTART IDENTITY" if changes[0].restart_identity else ""
    return f"DO {_dollars(_TRUNCATE.format(restart, oids))};\n"


def by_key(relation: Relation, row: TupleData) -> str:
    """A condition that finds the row by its replica identity, which is no full one. Raises Unsayable."""
    places = key_places(relation)
    if not places:
        raise Unsayable("the table has no replica identity")
    found = assigned(relation, row, places)
    if len(found) < len(places) or any(one.value == "NULL" for one in found):
        raise Unsayable("a column of the replica identity was not sent")
    return " AND ".join([f"{one.name} = {one.value}" for one in found])


def by_row(relation: Relation, row: TupleData) -> str:
    """A condition that finds one row that has all these values. Raises Unsayable."""
    found = assigned(relation, row, range(len(row)))
    name = table(relation)
    if not found:
        condition = "true"
    else:
        names, values = ", ".join([one.name for one in found]), ", ".join([one.value for one in found])
        condition = f"ROW({names})::text = ROW({values})::text"
    return f"(tableoid, ctid) = (SELECT tableoid, ctid FROM {name} WHERE {condition} LIMIT 1)"


def key_places(relation: Relation) -> list[int]:
    """The places of the identity's columns; none under full, where the wire flags every column."""
    if relation.identity == "full":
        return []
    return [index for index, column in enumerate(relation.columns) if column.key]


def assigned(relation: Relation, row: TupleData, places: Iterable[int]) -> list[Assigned]:
    """Columns at these places with their values, without those that were not sent. Raises Unsayable."""
    table(relation)
    if len(row) > len(relation.columns):
        raise Unsayable("the row has more columns than its table")
    columns = columns_of(relation, len(row))
    found = []
    for index in places:
        if index < len(row) and row[index] is not UNCHANGED:
            column = columns[index]
            try:
                found.append(Assigned(identifier(column.name), _value(relation, index, row[index])))
            except Undecoded:
                raise Unsayable(f"the value of {column.name} cannot be read as {column.type_name}") from None
    return found


def _value(relation: Relation, index: int, cell: Cell) -> str:
    if not isinstance(cell, bytes):
        return "NULL"
    text = cell_text(relation.columns[index].codec, cell)
    if "\0" in text:
        raise Undecoded(text)
    return quoted(text)


def when(time: int | None) -> str:
    """A time for people."""
    return "at an unknown time" if time is None else f"at {time_text(time).replace('T', ' ')}"
