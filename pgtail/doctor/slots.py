"""Checks of the server's slots: invalidated ones, what they retain, and the transactions they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtail.doctor.base import Check, Context, Finding, comment, destructive, ok, problem, warning
from pgtail.doctor.publications import publication_age
from pgtail.doctor.server import RAISE_ON_PRIMARY
from pgtail.humanize import seconds_text, size_text
from pgtail.postgres.catalog import Slot
from pgtail.postgres.pg_wal import PgWal, pg_wal
from pgtail.postgres.pgoutput_options import literal
from pgtail.postgres.slot_report import SlotReport, reports
from pgtail.postgres.wal_holder import OpenTransaction, open_transactions

MUCH_WAL: Final = 1 << 30
"""Retained bytes of WAL that cause a warning."""
LONG: Final = 3600
"""Seconds after which an open transaction causes a warning."""
_SAFE_SHARE: Final = 4
"""Warn if less than 1/4 of max_slot_wal_keep_size is left."""
_OLD_SHARE: Final = 10
"""Warn if a slot holds back 1/10 of autovacuum_freeze_max_age."""


def slots(context: Context) -> Iterator[Finding]:
    """Each slot, that which retains most first: whether it is valid, and how much WAL and vacuum it holds back."""
    found = sorted(reports(context.connection, context.server.major), key=lambda report: -report.retained)
    if not found:
        yield ok("slots", "the server has no replication slots")
    freed = pg_wal(context.connection, found)
    for report in found:
        findings = [*_broken(report, context), *_wal(report, freed, context), *_vacuum(report, context)]
        yield from findings or [ok("slots", _described(report), report.slot.name)]


def _described(report: SlotReport) -> str:
    state = "is in use" if report.slot.active_pid is not None else "is not in use"
    return f"slot {report.slot.name} {state} and retains {size_text(report.retained)} of WAL"


def _no_limit(report: SlotReport, context: Context) -> str:
    """Words for an inactive slot that retains WAL until the disk is full; empty for others.

    The settings are of PostgreSQL 13 and 18. A standby's copy of a primary's slot is never active.
    """
    slot, limit = report.slot, context.number("max_slot_wal_keep_size")
    holds = slot.active_pid is None and slot.restart_lsn is not None and not slot.synced
    if not holds or limit not in (None, -1) or context.number("idle_replication_slot_timeout"):
        return ""
    return ", and nothing limits it" + ("" if limit is None else f" (max_slot_wal_keep_size is {limit})")


def _drop(report: SlotReport, context: Context) -> str:
    return context.command(f"pgtail slot drop {report.slot.name}", report.slot.database)


def _needs(slot: Slot) -> str:
    """What the reader of a slot needs once its changes are lost."""
    return (
        "its standby may need a new base backup" if slot.physical else "its consumer needs a fresh copy of the tables"
    )


def _broken(report: SlotReport, context: Context) -> Iterator[Finding]:
    slot, invalid = report.slot, report.slot.invalid
    if invalid is None:
        return
    text = f"slot {slot.name} is invalidated ({invalid}): its changes are lost"
    cure = [comment("Its changes are already lost; dropping it loses nothing more:"), _drop(report, context)]
    if invalid == "wal_level_insufficient":
        cure[:0] = [comment(line) for line in _raise_wal_level(context)]
    cure.append(comment(f"Then create it again; {_needs(slot)}."))
    yield problem("slot_invalid", text, *cure, subjects=[slot.name])


def _raise_wal_level(context: Context) -> tuple[str, ...]:
    if context.server.has_effective_wal_level:
        return ("First:", *RAISE_ON_PRIMARY)
    return ("First, on the primary: ALTER SYSTEM SET wal_level = logical; and restart it.",)


def _wal(report: SlotReport, freed: PgWal | None, context: Context) -> Iterator[Finding]:
    """A slot that retains much WAL, may retain any amount unread, or is about to lose it."""
    name, status = report.slot.name, report.facts.get("wal_status")
    if report.slot.invalid is not None:
        return
    held = f"slot {name} retains {size_text(report.retained)} of WAL"
    limit, safe = context.number("max_slot_wal_keep_size"), report.facts.get("safe_wal_size")
    if status == "unreserved":
        text, say, more = f"{held} and loses it at the next checkpoint", problem, _more(report, context)
    elif safe is not None and limit is not None and safe < (limit << 20) / _SAFE_SHARE:
        text = f"{held} and will be invalidated after {size_text(max(0, safe))} more (max_slot_wal_keep_size)"
        say, more = warning, _more(report, context)
    elif report.retained >= MUCH_WAL or _no_limit(report, context) or _holder(report) is not None:
        text, say, more = f"{held}{_reader(report)}{_no_limit(report, context)}", warning, _limit(context)
        if report.holder is not None:
            text += f", although its lag is {size_text(max(0, report.facts['lag_bytes'] or 0))}"
    else:
        return
    frees = [comment(freed.words())] if freed is not None and freed.includes(name) else []
    cure = *_why(report, context), *more, *frees, *_given_up(report, context)
    yield say("slot_wal", text, *cure, subjects=[name])


def _reader(report: SlotReport) -> str:
    if report.slot.active_pid is not None:
        return f", in use by pid {report.slot.active_pid}"
    seconds = report.facts.get("inactive_seconds")
    return ", not in use" if seconds is None else f", not in use for {seconds_text(seconds)}"


def _why(report: SlotReport, context: Context) -> list[str]:
    """Why it retains so much: an open transaction needs the WAL, it is not in use, or its reader lags."""
    slot, lag = report.slot, max(0, report.facts["lag_bytes"] or 0)
    if report.holder is not None:
        transaction = _holder(report)
        end = () if transaction is None else _end(transaction, context)
        return [comment(f"Its consumer has confirmed most of the WAL, which is held {report.holder.words()}."), *end]
    if slot.active_pid is None:
        return [comment(f"Let its {'standby' if slot.physical else 'consumer'} read it.")]
    if slot.physical:
        return [comment("Its standby lags, or holds it back itself: check there.")]
    lags = f"Its reader lags by {size_text(lag)}"
    if not context.server.copies_slots:
        return [comment(f"{lags}.")]
    return [
        comment(f"{lags}; to see what it gets:"),
        context.command(f"pgtail stream --fork {slot.name}", slot.database),
    ]


def _given_up(report: SlotReport, context: Context) -> tuple[str, ...]:
    """The cure if the slot is no longer needed."""
    slot = report.slot
    if slot.active_pid is not None:
        return ()
    return destructive(
        f"Or, if it is no longer needed (all its changes are lost, and {_needs(slot)})", _drop(report, context)
    )


def _limit(context: Context) -> tuple[str, ...]:
    if context.number("max_slot_wal_keep_size") != -1:
        return ()
    change = context.change("max_slot_wal_keep_size", "'100GB'")
    return destructive("Or set a limit before the disk is full (slots that retain more are invalidated)", *change)


def _more(report: SlotReport, context: Context) -> tuple[str, ...]:
    """Double the limit, or what the slot retains now."""
    megabytes = 2 * max(1, context.number("max_slot_wal_keep_size") or 0, report.retained >> 20)
    change = context.change("max_slot_wal_keep_size", f"'{megabytes}MB'")
    return (comment("Raise the limit, if the disk has space:"), *change)


def _vacuum(report: SlotReport, context: Context) -> Iterator[Finding]:
    """A slot whose xmin prevents vacuum from removing dead rows."""
    limit = context.number("autovacuum_freeze_max_age") or 200_000_000
    for column, what in (("catalog_xmin", "the system catalogs"), ("xmin", "all tables")):
        age = report.facts[f"{column}_age"]
        if age is None or age < limit / _OLD_SHARE:
            continue
        say = problem if age >= limit else warning
        text = f"slot {report.slot.name} prevents vacuum from cleaning {what}: its {column} is {age} transactions old"
        why, given_up = _why(report, context), _given_up(report, context)
        yield say("slot_vacuum", text, *why, *given_up, subjects=[report.slot.name])


def _holder(report: SlotReport) -> OpenTransaction | None:
    """The transaction that a slot is known to wait for, if its reader's lag does not explain what it retains."""
    held = report.holder
    return held.transaction if held is not None and held.until == "transaction" else None


def transactions(context: Context) -> Iterator[Finding]:
    """Open transactions: a new slot waits for their end; they hold back restart_lsn and catalog_xmin of others."""
    long = [one for one in open_transactions(context.connection) if one.seconds is not None and one.seconds >= LONG]
    for transaction in sorted(long, key=lambda one: -(one.seconds or 0)):
        text = (
            f"a transaction has been open for {seconds_text(transaction.seconds or 0)} ({transaction.words()}): new"
            " slots wait for it, others retain its WAL"
        )
        yield warning("transactions", text, *_end(transaction, context))
    if not long:
        yield ok("transactions", f"no writing transaction has been open for more than {seconds_text(LONG)}")


def _end(transaction: OpenTransaction, context: Context) -> tuple[str, ...]:
    """How to end a transaction."""
    if transaction.gid is None:
        if transaction.pid is None:
            return (comment("Commit it there."),)
        end = f"SELECT pg_terminate_backend({transaction.pid});"
        abandoned = "Or, if it is abandoned (its changes are rolled back)"
        return (comment("Commit it in its session."), *destructive(abandoned, end))
    gid = literal(transaction.gid)
    there = "" if transaction.database == context.server.database else f", in database {transaction.database}"
    abandoned = f"Or, if it is abandoned (its changes are rolled back){there}"
    return (
        comment(f"Its owner can COMMIT PREPARED {gid}{there}."),
        *destructive(abandoned, f"ROLLBACK PREPARED {gid};"),
    )


CHECKS: Final[dict[str, Check]] = {"slots": slots, "publication_age": publication_age, "transactions": transactions}
