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
from pgtail.relations import Column, Relation
from pgtail.transaction import RowChange, TableTruncate
from pgtail.values import Undecoded
from pgtail.values.names import builtin_type_name
from pgtail.values.oids import BUILTIN
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
"""A partitioned table cannot be truncated with ONLY, one that others inherit from must be: the stream does not say
which it is. All tables of one TRUNCATE in one, for they may refer to each other."""


_BUILTIN_NAMES: Final = frozenset(map(builtin_type_name, BUILTIN))
"""By which domains over built-in types go as well."""


class Unsayable(Exception):
    """A change that cannot be written as SQL: the reason, for people."""


class Which(NamedTuple):
    """A condition that finds one row; with `equal` one of some that are equal."""

    condition: str
    equal: bool = False


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


def _one_row(verb: str, relation: Relation, change: str, which: Which) -> str:
    """A statement that has to find one row. Raises Unsayable."""
    change = _dollars(change) if change else "NULL"
    equal = ", true" if which.equal else ""
    return f"CALL pg_temp.one_row('{verb}', {_named(relation)}, {change}, {_dollars(which.condition)}{equal});\n"


def _named(relation: Relation) -> str:
    """A table's name as a string that regclass reads. Raises Unsayable."""
    table(relation)
    return quoted(f"{_plain(relation.schema)}.{_plain(relation.name)}")


def _dollars(text: str) -> str:
    """Text between dollars; it does not end with one."""
    tags = itertools.chain(("$$",), (f"$_{number}$" for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return f"{tag}{text}{tag}"


def insert(relation: Relation, row: TupleData) -> str:
    """INSERT of a whole row. Raises Unsayable."""
    found = assigned(relation, row, range(len(row)), stored=True)
    if not found:
        return f"INSERT INTO {table(relation)} DEFAULT VALUES;\n"
    names, values = ", ".join([one.name for one in found]), ", ".join([one.value for one in found])
    return f"INSERT INTO {table(relation)} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values});\n"


def update(relation: Relation, which: Which, row: TupleData, places: Iterable[int]) -> str:
    """UPDATE of the columns at these places; of none, the row has to be there all the same. Raises Unsayable."""
    changes = ", ".join([f"{one.name} = {one.value}" for one in assigned(relation, row, places, stored=True)])
    verb, change = ("UPDATE", f"SET {changes}") if changes else ("SELECT FROM", "")
    return _one_row(verb, relation, change, which)


def delete(relation: Relation, which: Which) -> str:
    """DELETE of one row. Raises Unsayable."""
    return _one_row("DELETE FROM", relation, "", which)


def truncate(changes: Sequence[TableTruncate]) -> str:
    """The tables of one TRUNCATE. Raises Unsayable."""
    oids = ", ".join([f"{_named(change.relation)}::regclass" for change in changes])
    restart = " RESTART IDENTITY" if changes[0].restart_identity else ""
    return f"DO {_dollars(_TRUNCATE.format(restart, oids))};\n"


def by_key(relation: Relation, row: TupleData) -> Which:
    """Finds the row by its replica identity, which is no full one. Raises Unsayable."""
    places = key_places(relation)
    if not places:
        raise Unsayable("the table has no replica identity")
    found = assigned(relation, row, places)
    if len(found) < len(places) or any(one.value == "NULL" for one in found):
        raise Unsayable("a column of the replica identity was not sent")
    columns = [relation.columns[index] for index in places]
    return Which(" AND ".join([_equal(column, one) for column, one in zip(columns, found, strict=True)]))


def _equal(column: Column, one: Assigned) -> str:
    """Compares a column of the identity: as text where its type is a user's, which may have no operator in sight."""
    known = column.type_oid in BUILTIN or column.type_name in _BUILTIN_NAMES
    return f"{one.name} = {one.value}" if known else f"{one.name}::text = {one.value}"


def by_row(relation: Relation, row: TupleData) -> Which:
    """Finds one row that has all these values. Raises Unsayable."""
    found = assigned(relation, row, range(len(row)))
    if not found:
        return Which("true", equal=True)
    names, values = ", ".join([one.name for one in found]), ", ".join([one.value for one in found])
    return Which(f"ROW({names})::text = ROW({values})::text", equal=True)


def key_places(relation: Relation) -> list[int]:
    """The places of the identity's columns; none under full, where the wire flags every column."""
    if relation.identity == "full":
        return []
    return [index for index, column in enumerate(relation.columns) if column.key]


def assigned(relation: Relation, row: TupleData, places: Iterable[int], *, stored: bool = False) -> list[Assigned]:
    """Columns at these places with their values, without those that were not sent. Raises Unsayable.

    A value to be `stored` is what the type reads, else what it prints. They differ in xml that prints with a newline in
    front: xml_out took one away (src/backend/utils/adt/xml.c, xml_out_internal), and will again.
    """
    table(relation)
    if len(row) > len(relation.columns):
        raise Unsayable("the row has more columns than its table")
    columns = columns_of(relation, len(row))
    found = []
    for index in places:
        if index < len(row) and row[index] is not UNCHANGED:
            column = columns[index]
            try:
                found.append(Assigned(identifier(column.name), _value(column, row[index], stored)))
            except Undecoded:
                raise Unsayable(f"the value of {column.name} cannot be read as {column.type_name}") from None
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
    """A time for people."""
    return "at an unknown time" if time is None else f"at {time_text(time).replace('T', ' ')}"
