"""Floor 5, checks of the server's slots: lost ones, what they hold back, and publications that are younger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtail.server import publications
from pgtail.server.doctor.base import RELOAD, Check, Finding, Patient, ok, problem, setting, warning
from pgtail.server.facts import span_text
from pgtail.server.options import identifier
from pgtail.server.slotlist import SlotReport, reports
from pgtail.server.slots import PLUGIN
from pgtail.server.words import size_text

MUCH_WAL: Final = 1 << 30
"""Bytes of WAL that are worth a word."""
LONG: Final = 3600
"""Seconds after which an open transaction is worth a word."""
_SAFE_SHARE: Final = 4
"""A slot that has less than this part of max_slot_wal_keep_size left may soon be lost."""
_OLD_SHARE: Final = 10
"""A slot that holds back this part of autovacuum_freeze_max_age is worth a word."""

_TRANSACTIONS: Final = """
SELECT 'pid ' || pid || coalesce(', user ' || usename, '') || coalesce(', ' || nullif(application_name, ''), ''),
    extract(epoch FROM now() - xact_start)::bigint, 'SELECT pg_terminate_backend(' || pid || ');'
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND xact_start < now() - make_interval(secs => %s)
UNION ALL
SELECT 'prepared transaction ' || quote_literal(gid) || ', user ' || owner,
    extract(epoch FROM now() - prepared)::bigint, 'ROLLBACK PREPARED ' || quote_literal(gid) || ';'
FROM pg_prepared_xacts WHERE prepared < now() - make_interval(secs => %s)
ORDER BY 2 DESC
"""


def slots(patient: Patient) -> Iterator[Finding]:
    """Each slot: whether it still works, and what it holds back."""
    found = reports(patient.connection, patient.server.major)
    if not found:
        yield ok("slots", "the server has no replication slots")
    for report in found:
        findings = [*_broken(report), *_wal(report, patient), *_vacuum(report, patient)]
        yield from findings or [ok("slots", _described(report), report.slot.name)]


def _described(report: SlotReport) -> str:
    state = "is read" if report.slot.active_pid is not None else "is read by nobody"
    return f"slot {report.slot.name} {state} and holds {size_text(report.held)} of WAL"


def _drop(report: SlotReport) -> str:
    return f"SELECT pg_drop_replication_slot('{report.slot.name}');"


def _broken(report: SlotReport) -> Iterator[Finding]:
    name, invalid = report.slot.name, report.slot.invalid
    if invalid is not None:
        text = f"slot {name} is invalidated ({invalid}): what it should send is gone"
        cure = [_drop(report), "and create it anew; its consumer needs a fresh copy of the tables."]
        if invalid == "wal_level_insufficient":
            cure.insert(0, f"Before that, on the primary: {setting('wal_level', 'logical')} and restart it.")
        yield problem("slot_invalid", text, *cure, subjects=[name])


def _wal(report: SlotReport, patient: Patient) -> Iterator[Finding]:
    """A slot that holds much WAL, or is about to lose it."""
    name, status = report.slot.name, report.facts.get("wal_status")
    if report.slot.invalid is not None:
        return
    held = f"slot {name} holds {size_text(report.held)} of WAL"
    if status == "unreserved":
        yield problem("slot_wal", f"{held} and loses it at the next checkpoint", *_more(patient), subjects=[name])
        return
    limit, safe = patient.number("max_slot_wal_keep_size"), report.facts.get("safe_wal_size")
    if safe is not None and limit is not None and safe < (limit << 20) / _SAFE_SHARE:
        text = f"{held} and is lost after {size_text(max(0, safe))} more (max_slot_wal_keep_size)"
        yield warning("slot_wal", text, *_why(report), *_more(patient), subjects=[name])
    elif report.held >= MUCH_WAL:
        yield warning("slot_wal", f"{held}{_reader(report)}", *_why(report), *_limit(patient), subjects=[name])


def _reader(report: SlotReport) -> str:
    if report.slot.active_pid is not None:
        return f", read by pid {report.slot.active_pid}"
    seconds = report.facts.get("inactive_seconds")
    return ", read by nobody" if seconds is None else f", read by nobody for {span_text(seconds)}"


def _why(report: SlotReport) -> list[str]:
    """Why it holds so much: nobody reads it, its reader lags, or an open transaction is still to come."""
    name, lag = report.slot.name, max(0, report.facts["lag_bytes"] or 0)
    if report.slot.active_pid is None:
        return [f"Let its consumer read it, or drop it: {_drop(report)}"]
    if lag < report.held / 2:
        return ["Its reader has confirmed most of it: an old open transaction holds the rest (transactions)."]
    return [f"Its reader is behind by {size_text(lag)}; what it gets: pgtail stream --fork {name}"]


def _limit(patient: Patient) -> list[str]:
    if patient.number("max_slot_wal_keep_size") != -1:
        return []
    limit = setting("max_slot_wal_keep_size", "'100GB'")
    return [f"Before the disk is full: {limit} {RELOAD}"]


def _more(patient: Patient) -> list[str]:
    more = setting("max_slot_wal_keep_size", f"'{2 * max(1, patient.number('max_slot_wal_keep_size') or 0)}MB'")
    return [f"Let it have more: {more} {RELOAD}"]


def _vacuum(report: SlotReport, patient: Patient) -> Iterator[Finding]:
    """A slot whose xmin keeps vacuum from cleaning up."""
    most = patient.number("autovacuum_freeze_max_age") or 200_000_000
    for column, what in (("catalog_xmin", "the system catalogs"), ("xmin", "all tables")):
        age = report.facts[f"{column}_age"]
        if age is None or age < most / _OLD_SHARE:
            continue
        say = problem if age >= most else warning
        text = f"slot {report.slot.name} keeps vacuum from cleaning {what}: its {column} is {age} transactions old"
        yield say("slot_vacuum", text, *_why(report), subjects=[report.slot.name])


def ages(patient: Patient) -> Iterator[Finding]:
    """Slots whose position may be older than a publication, which then cannot be read through them."""
    names = [name for (name,) in patient.rows("SELECT pubname::text FROM pg_publication ORDER BY pubname")]
    found: dict[str, list[str]] = {}
    for report in reports(patient.connection, patient.server.major):
        slot = report.slot
        if slot.plugin != PLUGIN or slot.database != patient.server.database or slot.temporary or slot.invalid:
            continue
        older = publications.older(patient.connection, slot)
        young = ", ".join([identifier(name) for name in names if name not in older])
        if young:
            found.setdefault(young, []).append(slot.name)
    fails = patient.server.major < 18
    what = "reading them fails at the first change from before it" if fails else "of it nothing is sent up to there"
    for young, slots_ in found.items():
        text = f"slots may be older than publication {young}: {what}"
        cure = [f"SELECT pg_drop_replication_slot('{name}');" for name in slots_]
        yield warning(
            "publication_age", text, "If a consumer gets stuck, create its slot anew:", *cure, subjects=slots_
        )


def transactions(patient: Patient) -> Iterator[Finding]:
    """Open transactions that slots wait for: creation until they end, restart_lsn and catalog_xmin as well."""
    found = patient.rows(_TRANSACTIONS, LONG, LONG)
    for who, seconds, cure in found:
        text = f"a transaction is open for {span_text(seconds)} ({who}): new slots wait for it, old ones hold its WAL"
        yield warning("transactions", text, f"End it, if it is forgotten: {cure}")
    if not found:
        yield ok("transactions", f"no transaction that writes is open for more than {span_text(LONG)}")


CHECKS: Final[dict[str, Check]] = {"slots": slots, "publication_age": ages, "transactions": transactions}
