"""Checks of published partitions: the names they are sent under, their replica identity, and what is not sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtail.doctor.base import Check, Context, Finding, comment, ok, warning
from pgtail.doctor.tables import VIA_ROOT_SINCE, sql
from pgtail.postgres.pgoutput_options import identifier

_OWN_NAMES: Final = """
WITH RECURSIVE above AS (
    SELECT p.pubname, i.inhparent AS oid
    {published} AND c.relispartition
    JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE (to_jsonb(p) ->> 'pubviaroot')::bool IS NOT TRUE
  UNION
    SELECT a.pubname, i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.oid
)
SELECT a.pubname, json_agg(format('%I.%I', n.nspname, c.relname) ORDER BY n.nspname, c.relname) AS names
FROM above a JOIN pg_class c ON c.oid = a.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT c.relispartition GROUP BY a.pubname ORDER BY 1
"""
_VIA_ROOT: Final = """
SELECT p.pubname, json_agg(format('%I.%I', n.nspname, c.relname) ORDER BY n.nspname, c.relname) AS names
{published} WHERE p.pubviaroot AND c.relkind = 'p' GROUP BY p.pubname ORDER BY 1
"""
_WEAKER: Final = """
WITH RECURSIVE tree AS (
    SELECT c.oid AS root, c.oid {published}
    WHERE p.pubviaroot AND (p.pubupdate OR p.pubdelete) AND c.relkind = 'p'
  UNION
    SELECT t.root, i.inhrelid
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition
), members AS (
    SELECT t.root, c.oid, format('%I.%I', n.nspname, c.relname) AS name, c.relkind = 'r' AND c.relpersistence = 'p'
        AS is_sent, c.relreplident = 'f' AS complete, ARRAY(
            SELECT attname FROM pg_index i JOIN pg_attribute ON attrelid = i.indrelid
                AND attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
            WHERE {is_identity}) AS key
    FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
)
SELECT DISTINCT ON (c.name) c.name, r.name AS root, {strict} AS strict
FROM members c JOIN members r ON r.oid = c.root AND r.root = c.root
WHERE c.is_sent AND c.key <> '{{}}' AND (r.complete OR NOT r.key <@ c.key)
ORDER BY 1, r.complete DESC
"""
"""Partitions that have an identity, but not all columns of their root's."""
_FOREIGN: Final = """{leaves}
SELECT format('%I.%I', n.nspname, c.relname) AS name
FROM leaves l JOIN pg_class c ON c.oid = l.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'f' ORDER BY 1
"""


def own_names(context: Context) -> Iterator[Finding]:
    """Partitioned tables whose changes are sent under the names of their partitions, and what is sent under theirs."""
    rows = context.rows("the partitioned tables", sql(context, _OWN_NAMES))
    for row in rows:
        name, names = identifier(row.text("pubname")), row.texts("names")
        text = f"publication {name} sends changes of partitioned tables under the names of their partitions"
        cure = [comment("PostgreSQL 13 and later can send them under the name of the partitioned table.")]
        if context.server.major >= VIA_ROOT_SINCE:
            change = f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true);"
            cure = [comment("To send them under the name of the partitioned table:"), change]
        yield warning("partitioned", text, *cure, subjects=names)
    if not rows:
        yield ok("partitioned", "no changes are sent under the names of partitions")
    if context.server.major < VIA_ROOT_SINCE:
        return
    for row in context.rows("the partitioned tables", sql(context, _VIA_ROOT)):
        text = (
            f"publication {identifier(row.text('pubname'))} sends changes of partitions under the name of their root:"
            " ATTACH PARTITION of a table with rows, DETACH PARTITION, and TRUNCATE or DROP of a partition send nothing"
        )
        yield ok("via_root", text, *row.texts("names"))


def identity(context: Context) -> Iterator[Finding]:
    """Partitions that are sent under the name of a root whose replica identity has more columns than theirs."""
    if context.server.major < VIA_ROOT_SINCE:
        return
    names, cure = [], []
    for row in context.rows("the identities of partitions", sql(context, _WEAKER)):
        name = row.text("name")
        names.append(name)
        if row.boolean("strict"):
            why = "FULL does not work with its column list or generated columns"
            cure.append(comment(f"{name}: {why}; give {row.text('root')} an identity that it has, too."))
        else:
            cure.append(f"ALTER TABLE {name} REPLICA IDENTITY FULL;")
    if names:
        text = (
            "the replica identity of partitions lacks columns of their root's, under whose name they are sent: old rows"
            " have NULL in place of these values"
        )
        yield warning("partition_identity", text, *cure, subjects=names)


def foreign(context: Context) -> Iterator[Finding]:
    """Partitions that are foreign tables: what is written to them is not in the WAL."""
    names = [row.text("name") for row in context.rows("the foreign partitions", sql(context, _FOREIGN))]
    if names:
        cure = comment("Publish them where their rows are stored.")
        yield warning("foreign", "changes of partitions that are foreign tables are not sent", cure, subjects=names)


CHECKS: Final[dict[str, Check]] = {
    "partitioned": own_names,
    "partition_identity": identity,
    "foreign": foreign,
}
