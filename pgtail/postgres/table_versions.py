"""Which version of each published table, and of its publication, the catalogs have: equal ones had no change between.

A version is the identity of catalog rows: an ALTER makes another row, and a row that was deleted never comes back. So
if two snapshots have the same version, the table had it all the time. A row that is in neither may have been there in
the meantime, so a version says of a table only what no other row of the catalogs can take away: that one publication
has it with every insert, update and delete, without a row filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pgtail.postgres.pgoutput_options import literal
from pgtail.postgres.rows import Row, single
from pgtail.records import NamedTuple

Query: TypeAlias = Callable[[str, str], list[Row]]
"""Runs a command (purpose, command), each with its own snapshot, and returns its rows. Raises ServerError."""
Versions: TypeAlias = dict[int, str]
"""By the OID of the table."""

NEWEST: Final = 18
"""The newest server version of which it is known that nothing else hides changes."""
_SCHEMAS_SINCE: Final = 15
_PAUSE: Final = 0.02
_PURPOSE: Final = "the versions of the published tables"

_MOMENT: Final = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END AS position,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started
"""
_XIDS: Final = """
SELECT txid_snapshot_xmin(now) AS oldest,
    txid_snapshot_xmax(now) + age((txid_snapshot_xmax(now) % 4294967296)::text::xid) AS next
FROM txid_current_snapshot() AS now
"""
"""The oldest transaction that this snapshot does not see, and the next one. A snapshot's xmax is not the next one, as
transactions that run already may be beyond it; age() counts from the next."""
_SCHEMAS: Final = """UNION ALL
    SELECT c.oid, concat_ws(' ', n.oid, n.xmin, n.ctid)
    FROM pub JOIN pg_publication_namespace n ON n.pnpubid = pub.oid JOIN pg_class c ON c.relnamespace = n.pnnspid"""
_VERSIONS: Final = """
WITH named AS (
        SELECT oid, concat_ws(' ', oid, xmin, ctid) AS version, puballtables, to_jsonb(p)->>'pubviaroot' AS via_root,
            pubinsert AND pubupdate AND pubdelete AS whole
        FROM pg_publication p WHERE pubname IN ({names})),
    pub AS (SELECT oid, puballtables FROM named WHERE whole),
    reason AS (SELECT c.oid AS relid, 'all' AS version FROM pub JOIN pg_class c ON puballtables
    UNION ALL
    SELECT r.prrelid, concat_ws(' ', r.oid, r.xmin, r.ctid)
    FROM pub JOIN pg_publication_rel r ON r.prpubid = pub.oid WHERE to_jsonb(r)->>'prqual' IS NULL {schemas}),
    label AS (SELECT concat_ws(' ', e.oid, e.xmin) AS version FROM pg_enum e
    UNION ALL
    SELECT concat_ws(' ', a.attrelid, a.attnum, a.xmin)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relkind = 'c')
SELECT jsonb_object_agg(c.oid, concat_ws(' ', c.xmin, c.ctid, c.relfilenode, reasons.versions,
    (SELECT string_agg(version, ',' ORDER BY oid) FROM named),
    (SELECT md5(string_agg(version, ',' ORDER BY version)) FROM label))) AS versions
FROM (SELECT relid, string_agg(version, ',' ORDER BY version) AS versions FROM reason GROUP BY relid) reasons
    JOIN pg_class c ON c.oid = relid
WHERE c.relkind = 'r' AND c.oid >= 16384 AND (SELECT count(*) FROM named) = {count}
    AND NOT (c.relispartition AND EXISTS (SELECT FROM named WHERE via_root::boolean))
"""
"""A partition may be published as its root, if any publication publishes so. The text of values also depends on the
labels of enums and the attributes of composite types."""


class Moment(NamedTuple):
    """A position, and the server process (when it started, in microseconds since 1970).

    The position is where WAL is inserted, which may not be written yet; on a standby the end of the replayed WAL.
    """

    position: int
    started: int


def moment(query: Query) -> Moment:
    """Now. Raises ServerError."""
    row = single(_PURPOSE, query(_PURPOSE, _MOMENT))
    return Moment(row.lsn("position"), row.integer("started"))


def versions(query: Query, publications: Sequence[str], major: int) -> Versions:
    """The versions, visible now, of tables of which these publications have every change. Raises ServerError."""
    if major > NEWEST:
        return {}
    command = _VERSIONS.format(
        names=", ".join(["E" + literal(name.replace("\\", "\\\\")) for name in publications]),
        count=len(set(publications)),
        schemas=_SCHEMAS if major >= _SCHEMAS_SINCE else "",
    )
    found = single(_PURPOSE, query(_PURPOSE, command)).object("versions")
    return {int(oid): found.any(oid) for oid in found.names}


def settle(query: Query, seconds: float) -> bool:
    """Wait until every transaction that has begun has ended, so that the next snapshot sees those that were committed.

    A commit is in the WAL before it is visible; long before where a synchronous standby is waited for. Returns False
    if that takes longer. Raises ServerError.
    """
    deadline = time.monotonic() + seconds
    row = single(_PURPOSE, query(_PURPOSE, _XIDS))
    wanted = row.integer("next")
    while row.integer("oldest") < wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
        row = single(_PURPOSE, query(_PURPOSE, _XIDS))
    return True
