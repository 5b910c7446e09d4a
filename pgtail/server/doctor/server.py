"""Floor 5, checks of the server itself: release, WAL level, free slots and walsenders, timeouts and other settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pgtail.server.doctor.base import RELOAD, Check, Finding, Patient, ok, problem, setting, warning
from pgtail.server.doctor.bugs import BUGS
from pgtail.server.plan import counts_as_standby
from pgtail.server.slots import PLUGIN

_SHORT: Final = 10_000
"""Milliseconds: a walsender timeout below is one that a busy consumer misses."""
_ENTRY: Final = re.compile(r'"((?:[^"]|"")*)"|([^\s,"]+)')
_EFFECTIVE_SINCE: Final = 19
_STANDBY_SINCE: Final = 16


def bugs(patient: Patient) -> Iterator[Finding]:
    """Known bugs of the release."""
    version = patient.server.version_text
    found = [(bug, cured) for bug in BUGS if (cured := bug.cured_in(patient.server.version)) is not None]
    for bug, cured in found:
        say = problem if bug.loses else warning
        yield say("bugs", f"PostgreSQL {version}: {bug.text}", f"Update to {cured} or later.")
    if not found:
        yield ok("bugs", f"PostgreSQL {version} has none of the {len(BUGS)} bugs of logical decoding that pgtail knows")


def wal_level(patient: Patient) -> Iterator[Finding]:
    """Whether the WAL holds what decoding needs: from 19 on the level follows the slots."""
    level = patient.server.wal_level
    effective = patient.settings.get("effective_wal_level", level)
    if effective == "logical":
        yield ok("wal_level", "wal_level is logical" if level == effective else "effective_wal_level is logical")
    elif level == "replica" and patient.server.major >= _EFFECTIVE_SINCE:
        yield ok("wal_level", "wal_level is replica: the first logical slot turns logical decoding on")
    else:
        cure = (setting("wal_level", "logical"), "and restart the server.")
        yield problem("wal_level", f"wal_level is {level}: the WAL does not hold what logical decoding needs", *cure)


def standby(patient: Patient) -> Iterator[Finding]:
    """What a standby needs to decode."""
    if not patient.server.in_recovery:
        return
    major = patient.server.major
    if major < _STANDBY_SINCE:
        text = f"the server is a standby: PostgreSQL {major} decodes on a primary only ({_STANDBY_SINCE} on both)"
        yield problem("standby", text, "Connect to the primary.")
    elif patient.settings.get("hot_standby_feedback") == "off":
        text = "the server is a standby without hot_standby_feedback: vacuum on the primary invalidates its slots"
        yield warning("standby", text, setting("hot_standby_feedback", "on"), RELOAD)
    else:
        yield ok("standby", "the server is a standby, and decodes as long as the wal_level of its primary is logical")


def free(patient: Patient) -> Iterator[Finding]:
    """Whether a slot and a walsender are left for pgtail."""
    used = patient.value("SELECT count(*) FROM pg_replication_slots")
    yield _left("free_slots", "replication slots", used, "max_replication_slots", patient)
    used = patient.value("SELECT count(*) FROM pg_stat_get_wal_senders() WHERE pid IS NOT NULL")
    yield _left("free_senders", "walsenders", used, "max_wal_senders", patient)


def _left(check: str, what: str, used: int, name: str, patient: Patient) -> Finding:
    most = int(patient.value("SELECT current_setting(%s)", name))
    text = f"{used} of {most} {what} are in use"
    if used < most:
        return ok(check, text)
    query = "pg_replication_slots" if check == "free_slots" else "pg_stat_replication"
    more = setting(name, str(most + 10))
    return problem(
        check, f"all {most} {what} are in use", f"Free one (SELECT * FROM {query};), or", more, "and restart."
    )


def timeouts(patient: Patient) -> Iterator[Finding]:
    """Timeouts that end consumers or slots."""
    timeout = patient.number("wal_sender_timeout") or 0
    cure = (setting("wal_sender_timeout", "'1min'"), RELOAD)
    if timeout == 0:
        text = "wal_sender_timeout is 0: a consumer that vanished is never noticed, and its slot stays active"
        yield warning("timeouts", text, *cure)
    elif timeout < _SHORT:
        text = f"wal_sender_timeout is {timeout / 1000:g} s: a consumer that is busy for as long loses its connection"
        yield warning("timeouts", text, *cure)
    else:
        yield ok("timeouts", f"wal_sender_timeout is {timeout / 1000:g} s")
    idle = patient.number("idle_replication_slot_timeout")
    if idle:
        yield ok("timeouts", f"idle_replication_slot_timeout invalidates slots that nobody reads for {idle} s")


def output_plugins(patient: Patient) -> Iterator[Finding]:
    """Whether pgoutput may be loaded, where the server has a list (minor releases from August 2026 on)."""
    listed = patient.settings.get("output_plugin_libraries")
    if listed is None:
        return
    names = allowed(listed)
    plugins = [plugin for (plugin,) in patient.rows("SELECT DISTINCT plugin::text FROM pg_replication_slots")]
    missing = [name for name in dict.fromkeys([PLUGIN, *filter(None, plugins)]) if name not in names]
    if missing:
        # Like shared_preload_libraries it takes its values one by one: a list inside one string would be one library.
        value = ", ".join([_quoted(name) for name in [*names, *missing]])
        cure = (
            f"If all with the REPLICATION right may load it: {setting('output_plugin_libraries', value)}",
            RELOAD,
        )
        text = f"output_plugin_libraries ({listed}) does not have {' and '.join(missing)}: no slot of it can be"
        yield problem("output_plugins", f"{text} created or read", *cure)
    if not missing:
        yield ok("output_plugins", f"output_plugin_libraries has {PLUGIN}")


def allowed(listed: str) -> list[str]:
    """The libraries of a list such as output_plugin_libraries has."""
    return [match[2] or match[1].replace('""', '"') for match in _ENTRY.finditer(listed)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def synchronous(patient: Patient) -> Iterator[Finding]:
    """Whether an acknowledging pgtail would become a synchronous standby."""
    names = patient.server.synchronous_standby_names
    own = patient.connection.info.parameter_status("application_name") or ""
    if not patient.server.in_recovery and counts_as_standby(names, own):
        yield warning(
            "synchronous_standby_names",
            f"synchronous_standby_names ({names}) takes an acknowledging {own} for a synchronous standby: commits would"
            " wait for it. pgtail refuses to acknowledge there",
            "Read with --ack none, or under another name: PGAPPNAME=...",
            "Name the standbys one by one in synchronous_standby_names.",
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
