"""Checks of the server itself: release and its known bugs, WAL level, free slots and walsenders, timeouts, settings.

Commits of the bugs: 4909b38af0 (lost changes), 40b1491357 (column lists), acaa100f9a (#19556), aa4c52b808 (#19616).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from pgtail.doctor.base import Check, Context, Finding, comment, destructive, ok, problem, warning
from pgtail.postgres.connection import application_name
from pgtail.postgres.pgoutput_options import literal
from pgtail.postgres.slots import PLUGIN
from pgtail.replication.plan import counts_as_standby


class Bug(Struct, frozen=True):
    """A bug. `fixed` maps a major release to the first minor release with the fix.

    Major releases from `since` up to the lowest in `fixed` have no fix; those above the highest never had the bug.
    """

    text: str
    fixed: dict[int, int]
    since: int
    loses: bool = False
    """Whether it silently loses changes."""
    needs: str = ""
    """What must exist on the server for the bug to occur."""
    query: str | None = None
    """A query whose column `shows` says whether the server has that; None if every server does."""

    def fixed_in(self, version: int) -> str | None:
        """The release to update to; None if `version` (160014) does not have the bug."""
        major, minor = divmod(version, 10_000)
        oldest = min(self.fixed)
        if not self.since <= major <= max(self.fixed):
            return None
        if major < oldest:
            return f"{oldest}.{self.fixed[oldest]}"
        fixed = self.fixed.get(major)
        return None if fixed is None or minor >= fixed else f"{major}.{fixed}"


BUGS: Final = (
    Bug(
        "changes are silently lost if a publication or a type is altered while transactions are open",
        {14: 18, 15: 13, 16: 9, 17: 5},
        since=10,
        loses=True,
    ),
    Bug(
        "with a column list, rows may not match the columns of their Relation message",
        {15: 2},
        since=15,
        needs="a publication with a column list",
        query="SELECT EXISTS (SELECT FROM pg_publication_rel WHERE prattrs IS NOT NULL) AS shows",
    ),
    # Only clients that request two_phase get prepared transactions as such, and that changes the slot permanently.
    Bug(
        "COMMIT PREPARED and ROLLBACK PREPARED may be sent without their PREPARE (bug 19556)",
        {14: 24, 15: 19, 16: 15, 17: 11, 18: 6},
        since=14,
        needs="a slot with two_phase and max_prepared_transactions above 0",
        query="""
SELECT current_setting('max_prepared_transactions')::int > 0
    AND EXISTS (SELECT FROM pg_replication_slots WHERE two_phase) AS shows
""",
    ),
    # The server checks for aborted transactions when one exceeds logical_decoding_work_mem.
    Bug(
        "a Stream Abort is also sent to consumers that did not request streaming (bug 19616): pgtail ignores it, others"
        " may stop",
        {18: 7},
        since=18,
        needs="a pgoutput slot with transactions larger than logical_decoding_work_mem",
        query="""
SELECT EXISTS (
    SELECT FROM pg_stat_replication_slots t JOIN pg_replication_slots s USING (slot_name)
    WHERE s.plugin = 'pgoutput' AND t.spill_txns + t.stream_txns > 0) AS shows
""",
    ),
)


_SHORT: Final = 10_000
"""Milliseconds; a busy consumer may miss a shorter walsender timeout."""
_ENTRY: Final = re.compile(r'"((?:[^"]|"")*)"|([^\s,"]+)')
_STANDBY_SINCE: Final = 16
RAISE_ON_PRIMARY: Final = (
    "On the primary, create a logical slot and keep it: pgtail slot create NAME",
    "Or there: ALTER SYSTEM SET wal_level = logical; and restart it.",
)
"""How to turn logical decoding on for a standby, since PostgreSQL 19."""
USED_SLOTS: Final = "SELECT count(*) AS used FROM pg_replication_slots WHERE plugin IS DISTINCT FROM 'pgrepack'"
"""REPACK (CONCURRENTLY) has slots of its own, max_repack_replication_slots."""


def bugs(context: Context) -> Iterator[Finding]:
    """Known bugs of the release, if the server has what they need to occur."""
    version = context.server.version_text
    there = [(bug, cured) for bug in BUGS if (cured := bug.fixed_in(context.server.version)) is not None]
    shown = [(bug, cured) for bug, cured in there if _shows(bug, context)]
    for bug, cured in shown:
        say = problem if bug.loses else warning
        yield say("bugs", f"PostgreSQL {version}: {bug.text}", comment(f"Update to {cured} or later."))
    if not there:
        yield ok("bugs", f"PostgreSQL {version} has none of the {len(BUGS)} known bugs in logical decoding")
    elif not shown:
        needs = ", ".join([bug.needs for bug, _ in there])
        yield ok("bugs", f"PostgreSQL {version} has bugs in logical decoding, but they need what is not here: {needs}")


def _shows(bug: Bug, context: Context) -> bool:
    """Whether the server has what the bug needs to occur."""
    return bug.query is None or context.only("what the release's bugs need", bug.query).boolean("shows")


def wal_level(context: Context) -> Iterator[Finding]:
    """Whether the WAL has what decoding needs. Since PostgreSQL 19 the level depends on the slots."""
    level, effective = context.server.wal_level, context.server.effective_wal_level
    if effective == "logical":
        why = "as on the primary" if context.server.in_recovery else "as long as there is a logical slot"
        yield ok(
            "wal_level", "wal_level is logical" if level == effective else f"effective_wal_level is logical, {why}"
        )
    elif context.server.raises_wal_level:
        yield ok("wal_level", "wal_level is replica: the first logical slot turns logical decoding on")
    elif context.server.in_recovery and context.server.has_effective_wal_level:
        text = f"the primary's effective_wal_level is {effective}: the WAL lacks what logical decoding needs"
        yield problem("wal_level", text, *(comment(line) for line in RAISE_ON_PRIMARY))
    else:
        text = f"wal_level is {level}: the WAL lacks what logical decoding needs"
        yield problem("wal_level", text, *context.change("wal_level", "logical"))


def standby(context: Context) -> Iterator[Finding]:
    """What a standby needs for decoding."""
    if not context.server.in_recovery:
        return
    major = context.server.major
    if major < _STANDBY_SINCE:
        text = f"the server is a standby, and PostgreSQL {major} decodes only on a primary (up to {_STANDBY_SINCE - 1})"
        yield problem("standby", text, comment("Connect to the primary."))
    elif context.settings.get("hot_standby_feedback") == "off":
        text = "the server is a standby without hot_standby_feedback: vacuum on the primary invalidates its slots"
        yield warning("standby", text, *context.change("hot_standby_feedback", "on"))
    else:
        name = "effective_wal_level" if context.server.has_effective_wal_level else "wal_level"
        yield ok("standby", f"the server is a standby; it can decode as long as {name} on its primary is logical")


def free(context: Context) -> Iterator[Finding]:
    """Whether a slot and a walsender are free for pgtail."""
    used = context.only("the slots", USED_SLOTS).integer("used")
    yield _usage("free_slots", "replication slots", used, "max_replication_slots", context)
    senders = "SELECT count(*) AS used FROM pg_stat_get_wal_senders() WHERE pid IS NOT NULL"
    used = context.only("the walsenders", senders).integer("used")
    yield _usage("free_senders", "walsenders", used, "max_wal_senders", context)


def _usage(check: str, what: str, used: int, name: str, context: Context) -> Finding:
    limit = context.only(name, "SELECT current_setting(%s) AS max", name).integer("max")
    if used < limit:
        return ok(check, f"{used} of {limit} {what} are in use")
    text = f"{used} of {limit} {what} are in use: none is free" if limit else f"{name} is 0: there are no {what}"
    more = context.change(name, str(limit + 10))
    return problem(check, text, *more, *(_freed(check, context) if limit else ()))


def _freed(check: str, context: Context) -> tuple[str, ...]:
    """How to free a slot or walsender without a restart."""
    if check == "free_slots":
        return destructive(
            "Or drop an unused one (its consumer loses what the slot has, and then needs a fresh copy of the tables)",
            context.command("pgtail slot list"),
            context.command("pgtail slot drop NAME"),
        )
    return destructive(
        "Or end an unneeded one (its consumer or standby loses its connection, and may reconnect at once)",
        "SELECT pid, usename, application_name, client_addr FROM pg_stat_replication;",
        "SELECT pg_terminate_backend(...);",
    )


def timeouts(context: Context) -> Iterator[Finding]:
    """Timeouts that end sessions or invalidate slots."""
    timeout = context.number("wal_sender_timeout") or 0
    cure = context.change("wal_sender_timeout", "'1min'")
    if timeout == 0:
        text = "wal_sender_timeout is 0: the server never notices a lost consumer, and its slot stays active"
        yield warning("timeouts", text, *cure)
    elif timeout < _SHORT:
        text = f"wal_sender_timeout is {timeout / 1000:g} s: a consumer that is busy for longer loses its connection"
        yield warning("timeouts", text, *cure)
    else:
        yield ok("timeouts", f"wal_sender_timeout is {timeout / 1000:g} s")
    idle = context.number("idle_replication_slot_timeout")
    if idle:
        yield ok("timeouts", f"idle_replication_slot_timeout invalidates slots that are not read for {idle} s")


def output_plugins(context: Context) -> Iterator[Finding]:
    """Whether pgoutput may be loaded, if the server has a list of plugins (minor releases since August 2026)."""
    listed = context.settings.get("output_plugin_libraries")
    if listed is None:
        return
    names = allowed(listed)
    found = context.rows("the slots' plugins", "SELECT DISTINCT plugin FROM pg_replication_slots")
    plugins = [row.optional_text("plugin") for row in found]
    missing = [name for name in dict.fromkeys([PLUGIN, *filter(None, plugins)]) if name not in names]
    if missing:
        # As with shared_preload_libraries, each library is a string of its own.
        value = ", ".join([literal(name) for name in [*names, *missing]])
        may = comment("If all roles with the REPLICATION right may load it:")
        cure = (may, *context.change("output_plugin_libraries", value))
        text = f"output_plugin_libraries ({listed}) lacks {' and '.join(missing)}: its slots cannot be created or read"
        yield problem("output_plugins", text, *cure)
    else:
        yield ok("output_plugins", f"output_plugin_libraries includes {PLUGIN}")


def allowed(listed: str) -> list[str]:
    """The libraries in the value of output_plugin_libraries."""
    return [match[2] or match[1].replace('""', '"') for match in _ENTRY.finditer(listed)]


def synchronous(context: Context) -> Iterator[Finding]:
    """Whether pgtail, if it acknowledges, would count as a synchronous standby."""
    names = context.server.synchronous_standby_names
    own = application_name(context.connection)
    if not context.server.in_recovery and counts_as_standby(names, own):
        another = not counts_as_standby(names, "")  # * matches every name
        yield warning(
            "synchronous_standby_names",
            f"synchronous_standby_names ({names}) matches {own}: if it acknowledges, it counts as a synchronous standby"
            " and commits wait for it. pgtail therefore refuses to acknowledge",
            comment("Read with pgtail stream --ack none" + (", or as another: PGAPPNAME=..." if another else ".")),
            comment("Or list the standbys by name in synchronous_standby_names."),
        )
    else:
        yield ok("synchronous_standby_names", f"synchronous_standby_names does not match {own}")


CHECKS: Final[dict[str, Check]] = {
    "bugs": bugs,
    "wal_level": wal_level,
    "standby": standby,
    "free": free,
    "timeouts": timeouts,
    "output_plugins": output_plugins,
    "synchronous_standby_names": synchronous,
}
