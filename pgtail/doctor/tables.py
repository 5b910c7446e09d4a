"""Checks of the published tables: replica identity, TOAST, unlogged tables.

The queries lock no table; only the view pg_publication_tables takes ACCESS SHARE locks (since PostgreSQL 16).
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final

from pgtail.doctor.base import Check, Context, Finding, comment, destructive, ok, problem, warning
from pgtail.postgres.pgoutput_options import identifier
from pgtail.postgres.rows import Row

VIA_ROOT_SINCE: Final = 13
"""Since this version changes of partitions can be sent under the name of their root."""
_GENERATED_SINCE: Final = 18
"""Since this version generated columns can be published, and the identity must not contain unpublished ones."""
_EXCEPT_SINCE: Final = 19
"""Since this version a publication of all tables can leave out some."""

_PUBLISHED: Final = """FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
    JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename"""
"""The publications p with their tables c."""
_IS_IDENTITY: Final = """i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END"""
"""Whether i is the index of the replica identity of table c."""
_COULD_BE_IDENTITY: Final = """i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum = ANY(i.indkey::int2[]) AND NOT a.attnotnull)"""
"""Whether i can be it."""
_BELOW_FULL: Final = """EXISTS (
        SELECT FROM pg_partition_ancestors(c.oid) a JOIN pg_class r ON r.oid = a.relid WHERE r.relreplident = 'f')"""
"""Whether c is a partition of a table with identity FULL: under its name c should send as much."""

_LEAVES: Final = """
WITH RECURSIVE tree AS (
    SELECT p.pubupdate, p.pubdelete, c.oid
    {published}
  UNION
    SELECT t.pubupdate, t.pubdelete, c.oid
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition
), leaves AS (
    SELECT oid, bool_or(pubupdate) AS updates, bool_or(pubupdate OR pubdelete) AS identified FROM tree GROUP BY oid
)
"""
"""The tables that store the published rows: the partitions of a partitioned table."""

_COUNT: Final = "{leaves} SELECT count(*) AS tables FROM leaves"
_WITHOUT_IDENTITY: Final = """{leaves}
SELECT format('%I.%I', n.nspname, c.relname) AS name, (
    SELECT format('%I', u.relname) FROM pg_index i JOIN pg_class u ON u.oid = i.indexrelid
    WHERE {could_be_identity} ORDER BY i.indnatts, u.relname LIMIT 1) AS index, {strict} AS strict,
    {below_full} AS below_full
FROM leaves l JOIN pg_class c ON c.oid = l.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND l.identified AND c.relreplident <> 'f' AND NOT EXISTS (
    SELECT FROM pg_index i WHERE {is_identity})
ORDER BY 1
"""
"""The rule is that of src/backend/utils/cache/relcache.c, RelationGetReplicaIndex."""

_TOASTED: Final = """{leaves}
SELECT format('%I.%I', n.nspname, c.relname) AS name, {strict} AS strict
FROM leaves l JOIN pg_class c ON c.oid = l.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class t ON t.oid = c.reltoastrelid
LEFT JOIN pg_stat_all_tables s ON s.relid = t.oid
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND l.updates AND c.relreplident <> 'f'
    AND (t.relpages > 0 OR s.n_tup_ins > 0)
ORDER BY 1
"""
"""Only tables with values stored out of line; statistics show that without a lock."""
_LISTED: Final = """EXISTS (
        SELECT FROM pg_publication_rel r
        WHERE r.prattrs IS NOT NULL AND r.prrelid IN (SELECT c.oid UNION ALL SELECT pg_partition_ancestors(c.oid)))"""
_MADE: Final = """EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped)"""

_NOT_COVERED: Final = r"""
WITH RECURSIVE tree AS (
    SELECT p.pubname, p.pubviaroot, r.prrelid AS root, r.prrelid AS oid, r.prattrs::int2[] AS listed, r.prqual
    FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubupdate OR p.pubdelete
  UNION ALL
    SELECT t.pubname, t.pubviaroot, t.root, i.inhrelid, t.listed, t.prqual
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE t.pubviaroot AND c.relispartition
), members AS (
    SELECT t.pubname, t.root, c.relreplident = 'f' AS complete, format('%I.%I', n.nspname, c.relname) AS name,
        t.listed IS NOT NULL AS has_list, {strict} AS strict, pg_get_expr(t.prqual, t.root) AS filter,
        ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = t.root AND attnum = ANY(t.listed)) AS listed,
        ARRAY(
            SELECT attname FROM regexp_matches(t.prqual::text, ':varattno (\d+)', 'g') found
            JOIN pg_attribute ON attrelid = t.root AND attnum = (found)[1]::int2
        ) AS filtered,
        ARRAY(
            SELECT attname FROM pg_index i JOIN pg_attribute ON attrelid = i.indrelid AND attnum = ANY(i.indkey::int2[])
            WHERE {is_identity}
        ) AS key
    FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident <> 'n'
), needed AS (
    SELECT m.pubname, m.root, bool_or(complete) OR NOT bool_or(has_list) AS all_columns,
        array_agg(DISTINCT k) FILTER (WHERE k IS NOT NULL) AS columns
    FROM members m LEFT JOIN LATERAL unnest(m.listed || m.key) k ON true GROUP BY m.pubname, m.root
), wrong AS (
    SELECT *, 'column list' AS kind FROM members WHERE has_list AND (complete OR NOT key <@ listed)
  UNION ALL
    SELECT *, 'row filter' FROM members WHERE NOT complete AND NOT filtered <@ key
)
SELECT w.pubname::text AS publication, w.name, w.kind, w.strict, format('%I.%I', n.nspname, c.relname) AS root,
    CASE WHEN NOT d.all_columns THEN (
        SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = w.root AND attname = ANY(d.columns)) END AS columns,
    w.filter
FROM wrong w JOIN needed d USING (pubname, root) JOIN pg_class c ON c.oid = w.root
JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY 1, 3, 2
"""
"""Column lists and row filters that do not fit the identity (src/backend/commands/publicationcmds.c); since 15.

Those of a partitioned table apply to its partitions, whose columns may have other numbers.
"""

_GENERATED: Final = """
WITH RECURSIVE tree AS (
    SELECT p.pubname, p.pubgencols, c.oid, EXISTS (
        SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid AND r.prattrs IS NOT NULL
    ) AS listed
    {published}
    WHERE p.pubupdate OR p.pubdelete
  UNION
    SELECT t.pubname, t.pubgencols, c.oid, t.listed
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition
)
SELECT DISTINCT t.pubname, a.attgenerated AS kind, format('%I.%I', n.nspname, c.relname) AS name
FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND NOT t.listed
    AND (a.attgenerated = 'v' OR a.attgenerated = 's' AND t.pubgencols <> 's')
    AND (c.relreplident = 'f' OR EXISTS (
        SELECT FROM pg_index i WHERE {is_identity} AND a.attnum = ANY(i.indkey::int2[])))
ORDER BY 1, 2, 3
"""
"""Generated columns of the identity that are not published (same source file); since 18."""

_UNLOGGED: Final = """{leaves}, found AS (
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_publication p ON p.puballtables {excepted} {schemas}
    WHERE c.relpersistence = 'u' AND c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  UNION
    SELECT l.oid FROM leaves l JOIN pg_class c ON c.oid = l.oid WHERE c.relpersistence = 'u'
)
SELECT format('%I.%I', n.nspname, c.relname) AS name, to_json(ARRAY(
    SELECT format('%I.%I', rn.nspname, r.relname) FROM pg_constraint k
    JOIN found f ON f.oid = k.confrelid AND f.oid <> k.conrelid
    JOIN pg_class r ON r.oid = f.oid JOIN pg_namespace rn ON rn.oid = r.relnamespace
    WHERE k.conrelid = c.oid AND k.contype = 'f')) AS above, c.relkind = 'r' AND c.relreplident <> 'f' AND NOT EXISTS (
    SELECT FROM pg_index i WHERE {is_identity}) AS bare
FROM found f JOIN pg_class c ON c.oid = f.oid JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1
"""
_EXCEPTED: Final = """AND NOT EXISTS (
    SELECT FROM pg_publication_rel r
    WHERE r.prpubid = p.oid AND r.prexcept AND r.prrelid = coalesce(pg_partition_root(c.oid), c.oid))"""
_SCHEMAS: Final = """OR EXISTS (
    SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid)"""


def sql(context: Context, query: str) -> str:
    """A query in which names in braces stand for parts of SQL, some of them according to the server's version."""
    major = context.server.major
    return query.format(
        published=_PUBLISHED,
        leaves=_LEAVES.format(published=_PUBLISHED),
        is_identity=_IS_IDENTITY,
        could_be_identity=_COULD_BE_IDENTITY,
        strict=_strict(major),
        below_full=_BELOW_FULL if major >= VIA_ROOT_SINCE else "false",
        schemas=_SCHEMAS if major >= 15 else "",
        excepted=_EXCEPTED if major >= _EXCEPT_SINCE else "",
    )


def _strict(major: int) -> str:
    """SQL expression: whether updates of table `c` fail under REPLICA IDENTITY FULL.

    They do with a column list, and since 18 with generated columns that are not published.
    """
    refused = [*([_LISTED] if major >= 15 else []), *([_MADE] if major >= _GENERATED_SINCE else [])]
    return " OR ".join(refused) or "false"


def identity(context: Context) -> Iterator[Finding]:
    """Tables where UPDATE and DELETE fail because there is no usable replica identity."""
    rows = context.rows("the replica identities", sql(context, _WITHOUT_IDENTITY))
    if not rows:
        published = context.only("the published tables", sql(context, _COUNT)).integer("tables")
        text = "all published tables have a replica identity" if published else "no table is published"
        yield ok("replica_identity", text)
        return
    cure = [_identity(row) for row in rows]
    if any(row.optional_text("index") is None and not row.boolean("below_full") for row in rows):
        cure.insert(0, comment("If there is a key, this is better than FULL: ADD PRIMARY KEY (...)"))
    text = "UPDATE and DELETE fail: the tables are published, but have no usable replica identity"
    yield problem("replica_identity", text, *cure, subjects=[row.text("name") for row in rows])


def _identity(row: Row) -> str:
    name, index = row.text("name"), row.optional_text("index")
    if index is not None and (row.boolean("strict") or not row.boolean("below_full")):
        return f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {index};"
    if row.boolean("strict"):
        return comment(f"{name} needs a key: FULL does not work with its column list or generated columns.")
    return f"ALTER TABLE {name} REPLICA IDENTITY FULL;"


def coverage(context: Context) -> Iterator[Finding]:
    """Tables where UPDATE and DELETE fail because of a publication's column list or row filter."""
    if context.server.major < 15:
        return
    for row in context.rows("column lists and row filters", sql(context, _NOT_COVERED)):
        of, name, kind, root = identifier(row.text("publication")), row.text("name"), row.text("kind"), row.text("root")
        columns, filter_ = row.optional_text("columns"), row.optional_text("filter")
        wrong = "lacks columns of" if kind == "column list" else "uses columns outside"
        table = root if columns is None else f"{root} ({columns})"
        if kind == "column list":
            words, kept = "Publish all columns of the identity:", f" WHERE {filter_}" if filter_ else ""
        else:
            words, kept = "Remove the row filter; all rows are then sent:", ""
        cure = (
            f"BEGIN; ALTER PUBLICATION {of} DROP TABLE {root}; ALTER PUBLICATION {of} ADD TABLE {table}{kept}; COMMIT;"
        )
        if kind == "row filter" and not row.boolean("strict"):
            words, cure = (
                "Use all columns as the identity, which takes more WAL:",
                f"ALTER TABLE {name} REPLICA IDENTITY FULL;",
            )
        yield problem(
            "identity_coverage",
            f"UPDATE and DELETE fail: the {kind} of publication {of} {wrong} the replica identity",
            comment(words),
            cure,
            *destructive(
                "Or stop publishing updates and deletes (of all tables of the publication)",
                f"ALTER PUBLICATION {of} SET (publish = 'insert');",
            ),
            subjects=[name],
        )


def generated(context: Context) -> Iterator[Finding]:
    """Tables where UPDATE and DELETE fail because generated columns of the identity are not published."""
    if context.server.major < _GENERATED_SINCE:
        return
    found: dict[tuple[str, str], list[str]] = {}
    for row in context.rows("the generated columns", sql(context, _GENERATED)):
        publication, kind, name = map(row.text, ("pubname", "kind", "name"))
        found.setdefault((publication, kind), []).append(name)
    for (publication, kind), names in found.items():
        of = identifier(publication)
        text = f"UPDATE and DELETE fail: publication {of} lacks generated columns of the replica identity"
        cure = [f"ALTER PUBLICATION {of} SET (publish_generated_columns = stored);"]
        if kind == "v":
            text += ", which are virtual and never published"
            cure = [f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT;" for name in names]
            cure.insert(0, comment("Use the primary key as the identity:"))
        yield problem("identity_generated", text, *cure, subjects=names)


def toast(context: Context) -> Iterator[Finding]:
    """Tables whose updates omit large values that did not change."""
    rows = context.rows("the tables with large values", sql(context, _TOASTED))
    names = [row.text("name") for row in rows]
    if not names:
        yield ok("toast", "no published table omits large values (TOAST) from updates")
        return
    text = "updates omit large values (TOAST) that did not change: the consumer has to keep the previous ones"
    cure = [f"ALTER TABLE {row.text('name')} REPLICA IDENTITY FULL;" for row in rows if not row.boolean("strict")]
    if cure:
        cure.insert(0, comment("To get them in the old row, which takes more WAL:"))
    yield warning("toast", text, *cure, subjects=names)


def unlogged(context: Context) -> Iterator[Finding]:
    """Unlogged tables that a publication of all tables, a schema or a partitioned table silently omits."""
    by_name = {
        row.text("name"): (row.texts("above"), row.boolean("bare"))
        for row in context.rows("the unlogged tables", sql(context, _UNLOGGED))
    }
    if not by_name:
        yield ok("unlogged", "no unlogged table is silently omitted")
        return
    text = "unlogged tables are not published, although their database, schema or partitioned table is"
    cure = [comment("Each is locked while it is rewritten, and needs a replica identity once it is published:")]
    try:  # a logged table must not reference an unlogged one
        names = list(TopologicalSorter({name: above for name, (above, _) in by_name.items()}).static_order())
        circle = False
    except CycleError as error:
        names, circle = list(by_name), True
        tables = ", ".join(error.args[1][1:])
        cure.insert(0, comment(f"First drop a foreign key between {tables}, which refer to each other."))
    for name in names:
        if by_name[name][1]:
            cure.append(f"ALTER TABLE {name} REPLICA IDENTITY FULL;")
        logged = f"ALTER TABLE {name} SET LOGGED;"
        cure.append(comment(logged) if circle else logged)
    yield warning("unlogged", text, *cure, subjects=by_name)


CHECKS: Final[dict[str, Check]] = {
    "replica_identity": identity,
    "identity_coverage": coverage,
    "identity_generated": generated,
    "toast": toast,
    "unlogged": unlogged,
}
