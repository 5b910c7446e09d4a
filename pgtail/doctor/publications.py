"""Checks of the database's publications: whether any exist, what they publish, and slots with changes older than one.

The age is checked by decoding temporary copies of slots, like --fork.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from pgtail.doctor.base import Check, Context, Finding, comment, destructive, ok, problem, warning
from pgtail.errors import ServerError
from pgtail.humanize import counted
from pgtail.postgres import catalog, ddl_trigger, slot_copy
from pgtail.postgres.catalog import Slot
from pgtail.postgres.connection import is_direct
from pgtail.postgres.errors import QueryCanceled
from pgtail.postgres.pgoutput_options import identifier
from pgtail.postgres.publications import older
from pgtail.postgres.rows import Row
from pgtail.postgres.slots import PLUGIN

SECONDS_PER_SLOT: Final = 2.0
"""Maximum seconds for decoding up to a slot's first change."""
SECONDS_IN_ALL: Final = 8.0
"""Maximum seconds for all slots together."""
_MIN_FREE_SLOTS: Final = 2
"""Free slots that are required: a copy uses one for a moment, and another must remain free."""
_SILENT_SINCE: Final = 18
"""Since this version a missing publication is skipped with a warning; before, decoding fails."""
_FREE: Final = "SELECT current_setting('max_replication_slots')::int - count(*) AS free FROM pg_replication_slots"


class _Unknown(Exception):
    """The check could not decide, for this reason."""


def publication_age(context: Context) -> Iterator[Finding]:
    """Slots whose next changes are older than a publication: the publication cannot be read through them."""
    names = [
        row.text("pubname")
        for row in context.rows("the publications", "SELECT pubname::text FROM pg_publication ORDER BY pubname")
    ]
    younger: dict[tuple[str, ...], list[str]] = {}
    deadline = time.monotonic() + SECONDS_IN_ALL
    # Those that lag least come first: their first change is found soonest, and the time for all is limited.
    for slot in sorted(catalog.slots(context.connection), key=lambda slot: -(slot.confirmed_flush_lsn or 0)):
        if not _concerns(slot, context):
            continue
        known = older(context.connection, slot)
        unsure = [name for name in names if name not in known]
        try:
            missing = _missing(context, slot, unsure, deadline) if unsure else []
        except _Unknown as reason:
            yield _not_found_out(context, slot, unsure, str(reason))
            continue
        if missing:
            younger.setdefault(tuple(missing), []).append(slot.name)
    for missing_, slots in younger.items():
        others = [name for name in names if name not in missing_]
        yield _found(context, list(missing_), others, sorted(slots))


def _concerns(slot: Slot, context: Context) -> bool:
    here = slot.plugin == PLUGIN and slot.database == context.server.database and not slot.temporary
    return here and slot.invalid is None and slot.confirmed_flush_lsn is not None


def _missing(context: Context, slot: Slot, unsure: list[str], deadline: float) -> list[str]:
    """The `unsure` publications that did not exist at the slot's first change. Raises _Unknown."""
    connection = context.connection
    if not context.server.copies_slots:
        raise _Unknown(f"PostgreSQL {context.server.major} cannot copy slots")
    if not is_direct(connection):
        raise _Unknown("there is a pooler in between")
    missing: list[str] = []
    try:
        while left := [name for name in unsure if name not in missing]:
            seconds = min(SECONDS_PER_SLOT, deadline - time.monotonic())
            if seconds <= 0:
                raise _Unknown(f"all slots together took more than {SECONDS_IN_ALL:g} s")
            if context.only("the free slots", _FREE).integer("free") < _MIN_FREE_SLOTS:
                raise _Unknown("there are too few free replication slots for a temporary copy")
            found = slot_copy.missing_from(connection, slot, left, seconds)
            missing += found
            if not found or context.server.major >= _SILENT_SINCE:  # before, the first missing one ends decoding
                break
    except QueryCanceled:
        raise _Unknown(f"its first change was not found within {SECONDS_PER_SLOT:g} s") from None
    except ServerError as error:
        if connection.broken:
            raise
        raise _Unknown(error.reason) from None
    return sorted(missing)


def _not_found_out(context: Context, slot: Slot, unsure: list[str], reason: str) -> Finding:
    text = f"slot {slot.name} may have changes older than publication {_names(unsure)}: not checked, because {reason}"
    well = "If its consumer makes progress, all is well."
    cure = [comment(well)]
    if context.server.copies_slots:
        cure = [comment(f"{well} To check:"), context.command(f"pgtail stream --fork {slot.name}")]
    return warning("publication_age", text, *cure, subjects=[slot.name])


def _found(context: Context, missing: list[str], others: list[str], slots: list[str]) -> Finding:
    what = "decoding them fails" if context.server.major < _SILENT_SINCE else "the publication is skipped for them"
    text = f"slots have changes older than publication {_names(missing)}: {what}"
    hint = f" One that does can request only {_names(others)} until it has passed them." if others else ""
    advance = [context.command(f"pgtail slot advance {name} now") for name in slots]
    return warning(
        "publication_age",
        text,
        comment(f"Consumers that do not request {_names(missing)} are not affected.{hint}"),
        *destructive("Or continue from now (the consumer loses all changes that the slot still has)", *advance),
        subjects=slots,
    )


def _names(publications_: list[str]) -> str:
    return ", ".join(map(identifier, publications_))


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


def ddl_triggers(context: Context) -> Iterator[Finding]:
    """The event triggers of `pgtail ddl`, which are optional: nothing is said where they are not."""
    check, state = "ddl_triggers", ddl_trigger.state(context.connection)
    if state is None:
        return
    name = f"{state.mark or 'pgtail ddl of an unknown version'}, owned by role {state.owner}"
    again = (comment("As a superuser:"), context.command("pgtail ddl install"))
    if not state.complete:
        missing = " and ".join([one for one in ddl_trigger.TRIGGERS if one not in state.enabled])
        yield warning(check, f"schema changes are not all sent: {missing} is missing or disabled ({name})", *again)
    elif not state.current:
        yield warning(check, f"schema changes are sent in another form than that of this pgtail ({name})", *again)
    else:
        yield ok(check, f"schema changes are sent as messages ({name})")


CHECKS: Final[dict[str, Check]] = {"publications": publications, "ddl_triggers": ddl_triggers}
