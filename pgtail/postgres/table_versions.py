"""Which versions of catalog rows the decoding of each published table depends on.

A row of a catalog is identified by its catalog, place and xmin: an ALTER makes another row, and a deleted row never
comes back. Its xmax shows a change to it that is not visible yet. So if two snapshots have the same version of a table,
each of its rows was there all the time, up to every commit that was in the WAL before the second snapshot was taken. A
row that is in neither may have been there meanwhile: a version exists only for tables whose changes no other row can
hide. Such a table has a publication that publishes all of its inserts, updates and deletes, and is sent under its own
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pgtail.postgres import rows
from pgtail.postgres.connection import Connection
from pgtail.postgres.pgoutput_options import literal

MAJORS: Final = range(14, 20)
"""Servers of which it is known that nothing else hides changes. Those before PostgreSQL 14 may leave out changes of a
table because of an older transaction, and not describe it after that."""
MOST: Final = 1000
"""Tables that have a version: those with the lowest OIDs."""
_SCHEMAS_SINCE: Final = 15
_EXCEPT_SINCE: Final = 19
_FIRST_USER_OID: Final = 16384
_PURPOSE: Final = "the versions of the published tables"

_MOMENT: Final = """
SELECT pg_postmaster_start_time()::text AS started, txid_snapshot_xmin(now) AS oldest,
    txid_snapshot_xmax(now) + age((txid_snapshot_xmax(now) % 4294967296)::text::xid) AS next,
    pg_current_wal_insert_lsn() AS position
FROM txid_current_snapshot() AS now
"""
"""Transactions that run already may be beyond a snapshot's xmax; age() counts from the next one."""

_ROW: Final = "concat_ws(' ', {0}.tableoid, {0}.ctid, {0}.xmin, {0}.xmax)"
_VERSIONS: Final = """
WITH RECURSIVE named AS (
    SELECT p.oid, {p} AS version, puballtables, pubinsert AND pubupdate AND pubdelete AS whole,
        coalesce((to_jsonb(p)->>'pubviaroot')::boolean, false) AS via_root
    FROM pg_publication p WHERE pubname IN ({names})),
published AS (
    SELECT c.oid AS id, c.relnamespace AS schema, {c} AS version
    FROM pg_class c WHERE relkind = 'r' AND c.oid {which} AND (SELECT count(*) FROM named) = {count}
        AND NOT (relispartition AND EXISTS (SELECT FROM named WHERE via_root))),
reason AS (
    SELECT id, named.version FROM named, published WHERE whole AND puballtables AND {all_stay}
    UNION ALL
    SELECT id, {r} FROM named, published, pg_publication_rel r
    WHERE whole AND prpubid = named.oid AND prrelid = id AND to_jsonb(r)->>'prqual' IS NULL
        AND (to_jsonb(r)->>'prexcept')::boolean IS NOT TRUE {schemas}),
chosen AS (SELECT DISTINCT id FROM reason ORDER BY id LIMIT {most}),
uses AS (
    SELECT id, atttypid AS type FROM chosen JOIN pg_attribute ON attrelid = id AND attnum > 0
    UNION
    SELECT id, found.type FROM uses JOIN pg_type t ON t.oid = uses.type AND t.oid >= {first}, LATERAL (
        SELECT unnest(ARRAY[typelem, typbasetype]) AS type
        UNION ALL SELECT atttypid FROM pg_attribute WHERE attrelid = typrelid AND attnum > 0
        UNION ALL SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid OR rngmultitypid = t.oid) found),
own AS (SELECT id, t.oid AS type, typrelid, typnamespace, {t} AS version
    FROM uses JOIN pg_type t ON t.oid = uses.type AND t.oid >= {first}),
part AS (
    SELECT id, version FROM published UNION ALL SELECT id, version FROM reason UNION ALL SELECT id, version FROM own
    UNION ALL SELECT id, version FROM chosen, named
    UNION ALL SELECT id, {a} FROM chosen JOIN pg_attribute a ON attrelid = id AND attnum > 0
    UNION ALL SELECT id, {i} FROM chosen JOIN pg_index i ON indrelid = id AND (indisprimary OR indisreplident)
    UNION ALL SELECT id, {e} FROM own JOIN pg_enum e ON enumtypid = type
    UNION ALL SELECT id, {c} FROM own JOIN pg_class c ON c.oid = typrelid
    UNION ALL SELECT id, {a} FROM own JOIN pg_attribute a ON attrelid = typrelid AND attnum > 0
    UNION ALL SELECT id, {n} FROM (SELECT id, schema FROM published UNION SELECT id, typnamespace FROM own) one
        JOIN pg_namespace n ON n.oid = schema)
SELECT id, md5(string_agg(version, ',' ORDER BY version)) AS version FROM part JOIN chosen USING (id) GROUP BY id
"""
"""It is no reason that a publication has an ancestor: a row filter of the partition itself may come and go there. With
publish_via_partition_root a partition would be sent as its ancestor. What text a value has also depends on enums,
composite types and the like. Since PostgreSQL 19 it is no reason that a publication has all tables: one may come to its
EXCEPT and go, and no other row of a catalog tells that."""
_SCHEMAS: Final = """
    UNION ALL SELECT id, {s} FROM named, published, pg_publication_namespace s
    WHERE whole AND pnpubid = named.oid AND pnnspid = schema"""


class Moment(NamedTuple):
    """When the server process started, the oldest transaction that runs, the next one, and the end of the WAL."""

    started: str
    oldest: int
    next: int
    position: int


def moment(connection: Connection) -> Moment:
    """Now. Raises ServerError, also on a standby."""
    row = rows.only(connection, _PURPOSE, _MOMENT)
    return Moment(row.text("started"), row.integer("oldest"), row.integer("next"), row.lsn("position"))


def versions(
    connection: Connection, publications: Sequence[str], major: int, table: int | None = None
) -> dict[int, str]:
    """The versions of all tables, or of one, by OID, as one snapshot sees them now. Raises ServerError."""
    command = _VERSIONS.format(
        **{alias: _ROW.format(alias) for alias in "pcirtaen"},
        which=f">= {_FIRST_USER_OID}" if table is None else f"= {table}",
        names=", ".join(["E" + literal(name.replace("\\", "\\\\")) for name in publications]),
        first=_FIRST_USER_OID,
        count=len(set(publications)),
        most=MOST,
        all_stay="true" if major < _EXCEPT_SINCE else "false",
        schemas=_SCHEMAS.format(s=_ROW.format("s")) if major >= _SCHEMAS_SINCE else "",
    )
    return {row.integer("id"): row.text("version") for row in rows.rows(connection, _PURPOSE, command)}
