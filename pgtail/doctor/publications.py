"""Checks of the database's publications: whether any exist and what they publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pgtail.doctor.base import Check, Context, Finding, comment, ok, problem, warning
from pgtail.humanize import counted
from pgtail.postgres.pgoutput_options import identifier
from pgtail.postgres.rows import Row

_PUBLICATIONS: Final = """
SELECT to_jsonb(p) AS publication, (SELECT count(*) FROM pg_publication_tables t WHERE t.pubname = p.pubname) AS tables,
    (SELECT count(*) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND to_jsonb(r) ->> 'prqual' IS NOT NULL)
        AS filters,
    (SELECT count(*) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND to_jsonb(r) ->> 'prattrs' IS NOT NULL)
        AS lists,
    (SELECT coalesce(json_agg(format('%I.%I', n.nspname, c.relname) ORDER BY n.nspname, c.relname), '[]')
        FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE r.prpubid = p.oid AND (to_jsonb(r) ->> 'prexcept')::boolean) AS excepted
FROM pg_publication p ORDER BY pubname
"""
"""Since PostgreSQL 19 there are the tables of FOR ALL TABLES EXCEPT, and FOR ALL SEQUENCES (puballsequences)."""
_TABLES: Final = """
SELECT format('%%I.%%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate)
    AND c.relreplident = 'd'
ORDER BY 1 LIMIT %s
"""
"""Tables that are safe to publish: UPDATE and DELETE keep working."""
_CREATE: Final = "CREATE PUBLICATION some_name FOR TABLE {tables};"
_MAX_TABLES: Final = 5
"""How many are named."""
_OPERATIONS: Final = {
    "pubinsert": "inserts",
    "pubupdate": "updates",
    "pubdelete": "deletes",
    "pubtruncate": "truncates",  # not before PostgreSQL 11, which does not send them
}


def publications(context: Context) -> Iterator[Finding]:
    """Whether there are publications, and what they publish."""
    found = context.rows("the publications", _PUBLICATIONS)
    if not found:
        text = f"database {context.server.database} has no publication: pgoutput sends nothing without one"
        yield problem("publications", text, *_with_tables(context, _CREATE))
    for one in found:
        row = one.object("publication")
        tables, filters, lists = map(one.integer, ("tables", "filters", "lists"))
        excepted = one.texts("excepted")
        name = identifier(row.text("pubname"))
        if not any(row.optional_boolean(column) for column in _OPERATIONS):
            text = f"publication {name} publishes no operations: nothing is sent"
            everything = f"insert, update, delete{', truncate' if context.server.major >= 11 else ''}"
            cure = f"ALTER PUBLICATION {name} SET (publish = '{everything}');"
            yield warning("publications", text, cure, subjects=[name])
        elif tables:
            yield ok("publications", _described(row, tables, filters, lists, excepted), name)
        else:
            text = f"publication {name} has no tables: nothing is sent"
            cures = _with_tables(
                context, f"ALTER PUBLICATION {name.replace('{', '{{').replace('}', '}}')} ADD TABLE {{tables}};"
            )
            if row.boolean("puballtables"):  # no table can be added to it
                there = f"{_except(excepted)}, and there is no other table" if excepted else ", and there is no table"
                cures = [comment(f"It is FOR ALL TABLES{there} yet: new tables will be in it.")]
            elif row.optional_boolean("puballsequences"):
                text = f"publication {name} has sequences only, which are not in the stream: nothing is sent"
                cures = [comment("Tables need a publication of their own:")]
                cures += _with_tables(context, _CREATE)
            yield warning("publications", text, *cures, subjects=[name])


def _with_tables(context: Context, statement: str) -> list[str]:
    """The statement with names of tables in the database."""
    tables = [row.text("name") for row in context.rows("the tables", _TABLES, _MAX_TABLES)]
    if tables:
        return [comment("With the tables you want:"), statement.format(tables=", ".join(tables))]
    return [comment("With tables that have a primary key:"), comment(statement.format(tables="some_table, another"))]


def _except(excepted: Sequence[str]) -> str:
    """The tables that are not in a publication FOR ALL TABLES, in SQL's words."""
    names = [*excepted[:_MAX_TABLES], *([f"{len(excepted) - _MAX_TABLES} more"] if excepted[_MAX_TABLES:] else [])]
    return f" EXCEPT ({', '.join(names)})" if names else ""


def _described(row: Row, tables: int, filters: int, lists: int, excepted: Sequence[str]) -> str:
    sent = [word for column, word in _OPERATIONS.items() if row.optional_boolean(column)]
    left = [word for word in _OPERATIONS.values() if word not in sent]
    words = [f"publication {identifier(row.text('pubname'))}: {counted(tables, 'table')}"]
    if row.boolean("puballtables"):
        words.append(f"all tables{_except(excepted)}, including future ones")
    words.append(f"{' and '.join([', '.join(sent[:-1]), sent[-1]]) if len(sent) > 1 else ''.join(sent) or 'nothing'}")
    if left:
        words.append(f"no {' and no '.join(left)}")
    for number, what in ((filters, "row filter"), (lists, "column list")):
        if number:
            words.append(counted(number, what))
    return ", ".join(words)


CHECKS: Final[dict[str, Check]] = {"publications": publications}
