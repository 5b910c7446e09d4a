"""Floor 5, checks of the published tables: replica identity, TOAST, unlogged, partitioned. Takes no lock on them.

From 16 on the view pg_publication_tables does, the weakest one; nobody waits for it longer than the doctor's patience.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtail.server.doctor.base import Check, Finding, Patient, ok, problem, warning
from pgtail.server.options import identifier

_GENERATED_SINCE: Final = 18
"""The version from which on generated columns may be published, and the identity must not have others."""

_LEAVES: Final = """
WITH RECURSIVE tree AS (
    SELECT p.pubupdate, p.pubdelete, c.oid
    FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
    JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
  UNION
    SELECT t.pubupdate, t.pubdelete, c.oid
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition
), leaves AS (
    SELECT oid, bool_or(pubupdate) AS updates, bool_or(pubupdate OR pubdelete) AS identified FROM tree GROUP BY oid
)
"""
"""The tables whose rows are really published: partitions where a partitioned table is."""

_COUNT: Final = _LEAVES + "SELECT count(*) FROM leaves"
_WITHOUT_IDENTITY: Final = (
    _LEAVES
    + """
SELECT format('%I.%I', n.nspname, c.relname), (
    SELECT format('%I', u.relname) FROM pg_index i JOIN pg_class u ON u.oid = i.indexrelid
    WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
        AND i.indexprs IS NULL AND NOT EXISTS (
            SELECT FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum = ANY(i.indkey::int2[]) AND NOT a.attnotnull)
    ORDER BY i.indnatts, u.relname LIMIT 1)
FROM leaves l JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND l.identified AND c.relreplident <> 'f' AND NOT EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
ORDER BY 1
"""
)
"""The rule is that of src/backend/utils/cache/relcache.c, RelationGetReplicaIndex."""

_TOASTED: Final = (
    _LEAVES
    + """
SELECT format('%I.%I', n.nspname, c.relname),
    {listed},
    EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND to_jsonb(a) ->> 'attgenerated' <> '')
FROM leaves l JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class t ON t.oid = c.reltoastrelid
LEFT JOIN pg_stat_all_tables s ON s.relid = t.oid
WHERE c.relkind = 'r' AND l.updates AND c.relreplident <> 'f' AND (t.relpages > 0 OR s.n_tup_ins > 0)
ORDER BY 1
"""
)
"""Only where something was ever stored out of line; statistics tell it without a lock."""
_LISTED: Final = """EXISTS (
        SELECT FROM pg_publication_rel r
        WHERE r.prattrs IS NOT NULL AND r.prrelid IN (SELECT c.oid UNION ALL SELECT pg_partition_ancestors(c.oid)))"""
"""Whether a column list is about the table; from 15 on."""

_NOT_COVERED: Final = r"""
WITH RECURSIVE tree AS (
    SELECT p.pubname, p.pubviaroot, r.prrelid AS root, r.prrelid AS oid, r.prattrs::int2[] AS listed, r.prqual
    FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubupdate OR p.pubdelete
  UNION ALL
    SELECT t.pubname, t.pubviaroot, t.root, i.inhrelid, t.listed, t.prqual
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE t.pubviaroot AND c.relispartition
), members AS (
    SELECT t.pubname, c.relreplident, format('%I.%I', n.nspname, c.relname) AS name, t.listed IS NOT NULL AS has_list,
        ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = t.root AND attnum = ANY(t.listed)) AS listed,
        ARRAY(
            SELECT attname FROM regexp_matches(t.prqual::text, ':varattno (\d+)', 'g') found
            JOIN pg_attribute ON attrelid = t.root AND attnum = (found)[1]::int2
        ) AS filtered,
        ARRAY(
            SELECT attname FROM pg_index i JOIN pg_attribute ON attrelid = i.indrelid AND attnum = ANY(i.indkey::int2[])
            WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
                AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
        ) AS key
    FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND c.relreplident <> 'n'
)
SELECT pubname::text, name, 'column list' FROM members WHERE has_list AND (relreplident = 'f' OR NOT key <@ listed)
UNION
SELECT pubname::text, name, 'row filter' FROM members WHERE relreplident <> 'f' AND NOT filtered <@ key
ORDER BY 1, 2, 3
"""
"""Columns of a list or filter against those of the identity (src/backend/commands/publicationcmds.c); from 15 on.

Those of a partitioned table hold for its partitions, whose columns may have other numbers.
"""

_GENERATED: Final = """
WITH RECURSIVE tree AS (
    SELECT p.pubname, p.pubgencols, c.oid, EXISTS (
        SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid AND r.prattrs IS NOT NULL
    ) AS listed
    FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
    JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
    WHERE p.pubupdate OR p.pubdelete
  UNION
    SELECT t.pubname, t.pubgencols, c.oid, t.listed
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition
)
SELECT DISTINCT t.pubname::text, a.attgenerated::text, format('%I.%I', n.nspname, c.relname)
FROM tree t JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
WHERE c.relkind = 'r' AND NOT t.listed AND (a.attgenerated = 'v' OR a.attgenerated = 's' AND t.pubgencols <> 's')
    AND (c.relreplident = 'f' OR EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate AND a.attnum = ANY(i.indkey::int2[])
            AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END))
ORDER BY 1, 2, 3
"""
"""Generated columns of the identity that are not published (the same place); from 18 on."""

_UNLOGGED: Final = """
SELECT DISTINCT format('%I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_publication p ON p.puballtables {schemas}
WHERE c.relpersistence = 'u' AND c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1
"""
_SCHEMAS: Final = """OR EXISTS (
    SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid)"""
_PARTITIONED: Final = """
WITH RECURSIVE above AS (
    SELECT p.pubname, i.inhparent AS oid
    FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
    JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename AND c.relispartition
    JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE NOT (to_jsonb(p) ->> 'pubviaroot')::bool
  UNION
    SELECT a.pubname, i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.oid
)
SELECT a.pubname::text, array_agg(format('%I.%I', n.nspname, c.relname) ORDER BY n.nspname, c.relname)
FROM above a JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT c.relispartition GROUP BY a.pubname ORDER BY 1
"""


def identity(patient: Patient) -> Iterator[Finding]:
    """Tables on which UPDATE and DELETE fail, because they have no usable replica identity."""
    found = patient.rows(_WITHOUT_IDENTITY)
    if not found:
        published = patient.value(_COUNT)
        text = "all published tables have a replica identity" if published else "no table is published"
        yield ok("replica_identity", text)
        return
    cure = [_identity(name, index) for name, index in found]
    if any(index is None for _, index in found):
        cure.insert(0, "-- Better than FULL, where there is a key: ADD PRIMARY KEY (...);")
    text = "UPDATE and DELETE fail: published, and no usable replica identity"
    yield problem("replica_identity", text, *cure, subjects=[name for name, _ in found])


def _identity(name: str, index: str | None) -> str:
    if index is not None:
        return f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {index};"
    return f"ALTER TABLE {name} REPLICA IDENTITY FULL;"


def coverage(patient: Patient) -> Iterator[Finding]:
    """Tables on which UPDATE and DELETE fail because of a publication's column list or row filter."""
    if patient.server.major < 15:
        return
    for publication, name, kind in patient.rows(_NOT_COVERED):
        wrong = "leaves out columns of" if kind == "column list" else "asks for columns outside of"
        yield problem(
            "identity_coverage",
            f"UPDATE and DELETE fail: the {kind} of publication {identifier(publication)} {wrong} the replica identity",
            f"Change the {kind}, or publish inserts only:",
            f"ALTER PUBLICATION {identifier(publication)} SET (publish = 'insert');",
            subjects=[name],
        )


def generated(patient: Patient) -> Iterator[Finding]:
    """Tables on which UPDATE and DELETE fail because generated columns of their identity are not published."""
    if patient.server.major < _GENERATED_SINCE:
        return
    found: dict[tuple[str, str], list[str]] = {}
    for publication, kind, name in patient.rows(_GENERATED):
        found.setdefault((publication, kind), []).append(name)
    for (publication, kind), names in found.items():
        of = identifier(publication)
        text = f"UPDATE and DELETE fail: publication {of} leaves out generated columns of the replica identity"
        cure = [f"ALTER PUBLICATION {of} SET (publish_generated_columns = stored);"]
        if kind == "v":
            text += ", which are virtual and never published"
            cure = [f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT;" for name in names]
            cure.insert(0, "-- The primary key has to be the identity:")
        yield problem("identity_generated", text, *cure, subjects=names)


def toast(patient: Patient) -> Iterator[Finding]:
    """Tables whose updates lack large values that did not change."""
    found = patient.rows(_TOASTED.format(listed=_LISTED if patient.server.major >= 15 else "false"))
    names = [name for name, *_ in found]
    if not names:
        yield ok("toast", "no published table with large values (TOAST) leaves them out of updates")
        return
    text = "updates leave out large values (TOAST) that did not change: the consumer has to keep the ones before"
    # Under FULL the server refuses updates of tables with a column list, and with generated columns left out.
    strict = patient.server.major >= _GENERATED_SINCE
    full = [name for name, listed, made in found if not (listed or (made and strict))]
    cure = [f"ALTER TABLE {name} REPLICA IDENTITY FULL;" for name in full]
    if cure:
        cure.insert(0, "To have them in the old row, for more WAL:")
    yield warning("toast", text, *cure, subjects=names)


def unlogged(patient: Patient) -> Iterator[Finding]:
    """Unlogged tables that a publication of all tables, or of a schema, silently leaves out."""
    schemas = _SCHEMAS if patient.server.major >= 15 else ""
    names = [name for (name,) in patient.rows(_UNLOGGED.format(schemas=schemas))]
    if not names:
        yield ok("unlogged", "no unlogged table is silently left out")
        return
    text = "unlogged tables are not published, though their database or schema is"
    yield warning("unlogged", text, *[f"ALTER TABLE {name} SET LOGGED;" for name in names], subjects=names)


def partitioned(patient: Patient) -> Iterator[Finding]:
    """Partitioned tables whose changes come under the partitions' names."""
    found = patient.rows(_PARTITIONED)
    for publication, names in found:
        name = identifier(publication)
        text = f"publication {name} sends changes of partitioned tables under the names of their partitions"
        cure = f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true);"
        yield warning("partitioned", text, "To have them under the name of the whole table:", cure, subjects=names)
    if not found:
        yield ok("partitioned", "no changes come under the names of partitions")


CHECKS: Final[dict[str, Check]] = {
    "replica_identity": identity,
    "identity_coverage": coverage,
    "identity_generated": generated,
    "toast": toast,
    "unlogged": unlogged,
    "partitioned": partitioned,
}
