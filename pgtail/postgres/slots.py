"""Replication slots: find, check, create, drop, advance and copy them.

The functions that change a slot: src/backend/replication/slotfuncs.c.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from pgtail.errors import COMMAND, OptionError, ServerError
from pgtail.files.stopping import Interrupt
from pgtail.log import log_outcome
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog, rows
from pgtail.postgres.catalog import ServerFacts, Slot
from pgtail.postgres.connection import Connection, Connector, no_timeouts
from pgtail.postgres.errors import Unreachable
from pgtail.postgres.pgoutput_options import Wanted, check_two_phase, identifier
from pgtail.postgres.walsender import Session
from pgtail.terminal.escape import escape, shell_word

PLUGIN: Final = "pgoutput"
_NAMES: Final = "the name of a slot has at most 63 characters: lower case letters, digits and underscores"
_TEMPORARY: Final = "use pgtail stream without --slot, which creates a temporary slot."
_FAILOVER_SINCE: Final = 17
_CREATION_PAUSE: Final = 1.0
"""Seconds after which pgtail reports what the creation of a slot waits for."""


class NewSlot(NamedTuple):
    """A slot that was created: where it starts, and the name of its exported snapshot.

    The snapshot has every transaction with commit_lsn < consistent_point and no other.
    """

    consistent_point: int
    snapshot: str | None


class SyncedSlot(Unreachable):
    """The slot is synchronized from a primary. After a lost connection, the standby may be about to be promoted."""


class SlotInUse(Unreachable):
    """The slot is in use. After a lost connection, this may still be our own previous session."""


def temporary_name() -> str:
    """A unique name for a temporary slot."""
    return f"pgtail_{os.getpid()}_{secrets.token_hex(4)}"


def check_name(name: str) -> None:
    """Check that a name is valid for a new slot. Raises OptionError."""
    if catalog.SLOT_NAME.fullmatch(name) is None:
        raise OptionError(f"slot {escape(name)}: {_NAMES}")


def retains(name: str) -> str:
    """The consequences of a new slot, and how to drop it."""
    return f"It retains WAL until it is dropped:{COMMAND}pgtail slot drop {name}"


def exists(connector: Connector, name: str) -> bool:
    """Whether a slot of this name exists. Raises ServerError."""
    with connector.without_asking().ordinary() as connection:
        return catalog.slot(connection, name) is not None


def find_readable(connection: Connection, name: str, server: ServerFacts) -> Slot:
    """The slot of this name. Raises ServerError if it does not exist or cannot be read."""
    valid = catalog.SLOT_NAME.fullmatch(name) is not None
    create = f"To create it:{COMMAND}pgtail slot create {name}\n" if valid else f"{_NAMES.capitalize()}. "
    cure = f"{create}Without --slot, pgtail stream and pgtail stats --for TIME use a temporary slot."
    slot = existing(connection, name, cure=cure)
    check_readable(slot, server)
    copy = f"To read a copy of it:{COMMAND}pgtail stream --fork {name}\nOr stop" if server.copies_slots else "Stop"
    check_free(
        connection,
        slot,
        cure=f"Only one client can read a slot. {copy} the other client; it may reconnect at once:"
        f"{COMMAND}SELECT pg_terminate_backend({slot.active_pid});\nOr {_TEMPORARY}",
    )
    return slot


def existing(connection: Connection, name: str, *, cure: str | None = None) -> Slot:
    """The slot of this name. Raises ServerError, with a list of all slots, if it does not exist."""
    slot = catalog.slot(connection, name)
    if slot is not None:
        return slot
    others = [_described(other) for other in catalog.slots(connection)]
    if others:
        reason = f"there is no slot {escape(name)}. The server has:\n" + "\n".join([f"  {other}" for other in others])
    else:
        reason = f"there is no slot {escape(name)}; the server has no slots."
    raise ServerError(reason, cure=cure)


def check_readable(slot: Slot, server: ServerFacts) -> None:
    """Check that pgoutput messages can be read from the slot here. Raises ServerError."""
    check_logical(slot, server)
    if slot.plugin != PLUGIN:
        copy = f"To read a copy of it that uses {PLUGIN}:{COMMAND}pgtail stream --fork {slot.name}\nOr "
        raise ServerError(
            f"slot {slot.name} uses the plugin {_shown(slot.plugin)}; pgtail reads {PLUGIN}.",
            cure=f"{copy}{_TEMPORARY}" if server.copies_slots else _TEMPORARY.capitalize(),
        )
    check_not_synced(
        slot,
        server,
        cure=f"Read it on the primary, or here after this server is promoted, or read a copy of it:{COMMAND}"
        f"pgtail stream --fork {slot.name}",
    )


def check_server(server: ServerFacts) -> None:
    """Check that the server can decode. Raises ServerError."""
    if server.in_recovery and server.major < 16:
        raise ServerError(
            f"the server is a standby, and PostgreSQL {server.major} decodes only on a primary (16 and later on both).",
            cure="Connect to the primary.",
        )
    if server.effective_wal_level == "logical" or server.raises_wal_level:
        return
    if server.in_recovery and server.has_effective_wal_level:
        raise ServerError(
            f"the server is a standby, and its primary's effective_wal_level is {server.effective_wal_level}: the WAL"
            " lacks what logical decoding needs.",
            cure=f"Create a slot on the primary, and keep it:{COMMAND}pgtail slot create NAME"
            f"\nOr there, as a superuser, and then restart it:{COMMAND}ALTER SYSTEM SET wal_level = logical;",
        )
    raise ServerError(
        f"the server's wal_level is {server.wal_level}: its WAL lacks what logical decoding needs.",
        cure=f"As a superuser, and then restart the server:{COMMAND}ALTER SYSTEM SET wal_level = logical;"
        "\nOn Amazon RDS set rds.logical_replication = 1.",
    )


def check_logical(slot: Slot, server: ServerFacts) -> None:
    """Check that the slot is a valid logical slot of this database, with any plugin. Raises ServerError."""
    if slot.physical:
        raise ServerError(
            f"slot {slot.name} is a physical slot: it sends WAL, not messages.",
            cure=f"Name a logical slot, or {_TEMPORARY}",
        )
    _check_database(slot, server)
    if slot.invalid is not None:
        raise ServerError(
            f"slot {slot.name} is invalidated ({slot.invalid}): its changes are lost.",
            cure="Drop it and create it again; its consumer needs a fresh copy of the tables.",
        )


def _check_database(slot: Slot, server: ServerFacts) -> None:
    """Check that a logical slot is of this database. Raises ServerError."""
    if slot.database != server.database:
        raise ServerError(
            f"slot {slot.name} belongs to database {_shown(slot.database)}, but this is {_shown(server.database)}.",
            cure=f"Connect to that database: -d {shell_word(slot.database or '')}",
        )


def check_not_synced(slot: Slot, server: ServerFacts, *, cure: str) -> None:
    """Check that the slot is not synchronized from a primary: such a slot cannot be used. Raises SyncedSlot.

    After a promotion the column `synced` stays true, but has no meaning (manual: pg_replication_slots).
    """
    if slot.synced and server.in_recovery:
        raise SyncedSlot(
            f"slot {slot.name} is synchronized from the primary of this standby: it cannot be used here.",
            cure=cure,
        )


def check_free(connection: Connection, slot: Slot, *, cure: str) -> None:
    """Check that the slot is not in use. Raises SlotInUse, with the session that uses it."""
    if slot.active_pid is None:
        return
    who = escape(catalog.session_words(connection, slot.active_pid))
    raise SlotInUse(f"slot {slot.name} is in use by {who}.", cure=cure)


def _check_new(connection: Connection, name: str) -> None:
    if catalog.slot(connection, name) is not None:
        raise ServerError(
            f"slot {name} exists already.", cure=f"Choose another name, or drop it:{COMMAND}pgtail slot drop {name}"
        )


def _waits_for(connector: Connector, pid: int, server: ServerFacts) -> list[str]:
    try:
        with connector.ordinary() as connection:
            found = catalog.blockers(connection, pid)
    except ServerError:
        return []  # not essential
    if server.in_recovery and not found:
        waits = "creating the slot waits for the primary to log its running transactions. To speed this up, run there:"
        return [f"{waits} SELECT pg_log_standby_snapshot();"]
    return [f"creating the slot waits for a transaction to end: {blocker}" for blocker in found]


class Creation(Struct, frozen=True):
    """Creates a slot; a `temporary` one ends with its session."""

    connector: Connector
    name: str
    temporary: bool = False
    two_phase: bool = False
    failover: bool = False
    export: bool = False
    """Whether to export the slot's snapshot."""

    def prepare(self) -> ServerFacts:
        """Check that the slot can be created. Raises OptionError and ServerError."""
        check_name(self.name)
        if self.temporary and self.failover:
            raise OptionError("--failover: a temporary slot ends with its session, so it cannot fail over to a standby")
        with self.connector.ordinary() as connection:
            server = catalog.server_facts(connection)
            check_server(server)
            if self.two_phase:
                check_two_phase(Wanted(two_phase=True), server.major)
            if self.failover and server.major < _FAILOVER_SINCE:
                raise OptionError(f"--failover needs PostgreSQL {_FAILOVER_SINCE} or later; this is {server.major}")
            _check_new(connection, self.name)
        return server

    def create(self, interrupt: Interrupt, server: ServerFacts) -> tuple[Session, NewSlot]:
        """Create it; returns its session, too. Raises ServerError and KeyboardInterrupt."""
        session = Session.open(self.connector, interrupt)
        try:
            return session, self.create_in(session, server)
        except BaseException:
            session.close()
            raise

    def create_in(self, session: Session, server: ServerFacts) -> NewSlot:
        """Create it in this session. Raises ServerError and KeyboardInterrupt.

        If it takes longer than a second, a message says what it waits for. With `export` a transaction stays open in
        the session, for its exported snapshot, until its next command. Without, SNAPSHOT 'nothing' leaves none open.
        """
        explained: set[str] = set()

        def explain() -> None:
            for line in _waits_for(self.connector, session.backend_pid, server):
                waits_for, _, _ = line.rpartition(", ")  # without the duration at its end, which changes
                if waits_for not in explained:
                    explained.add(waits_for)
                    log_outcome(line)

        if self.export:
            for setting, value in no_timeouts(server.version).items():
                session.query(f"the setting {setting}", f"SET {setting} TO {value}")
        purpose, doing = "the new slot", f"slot {self.name} cannot be created"
        command = self._command(server)
        found = session.query(purpose, command, doing=doing, interval=_CREATION_PAUSE, on_wait=explain)
        row = rows.single(purpose, found)
        return NewSlot(row.lsn("consistent_point"), row.text("snapshot_name") if self.export else None)

    def _command(self, server: ServerFacts) -> str:
        kind = "TEMPORARY LOGICAL" if self.temporary else "LOGICAL"
        command = f"CREATE_REPLICATION_SLOT {identifier(self.name)} {kind} {PLUGIN}"
        if server.major < 15:
            return f"{command} {'EXPORT_SNAPSHOT' if self.export else 'NOEXPORT_SNAPSHOT'}"
        options = [f"SNAPSHOT '{'export' if self.export else 'nothing'}'"]
        options += ["TWO_PHASE"] if self.two_phase else []
        options += ["FAILOVER"] if self.failover else []
        return f"{command} ({', '.join(options)})"


def hold(session: Session, interrupt: Interrupt) -> None:
    """Keep a session and its temporary slots until a request to stop. Raises Unreachable if it breaks."""
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    poll.register(interrupt.fileno(), select.POLLIN)
    while not interrupt.count:
        for fd, _ in poll.poll():
            if fd == interrupt.fileno():
                interrupt.clear()
            else:
                with contextlib.suppress(KeyboardInterrupt):
                    # reads what arrived, or raises why the connection ended
                    session.query("the server's identity", "IDENTIFY_SYSTEM")


def changeable(connection: Connection, name: str) -> Slot:
    """The slot of this name, if it can be dropped or advanced: not synchronized, not in use. Raises ServerError."""
    slot = existing(connection, name)
    check_not_synced(
        slot,
        catalog.server_facts(connection),
        cure="Do it on the primary; the standby follows. After a promotion, the slot belongs to this server.",
    )
    check_free(
        connection,
        slot,
        cure="Stop that client first. It may reconnect at once, and it loses what it has not read:\n"
        f"    SELECT pg_terminate_backend({slot.active_pid});",
    )
    return slot


def drop(connection: Connection, slot: Slot) -> None:
    """Drop a slot. Raises ServerError."""
    rows.run(connection, "the slot", "SELECT pg_drop_replication_slot(%s)", slot.name)


def target(connection: Connection, slot: Slot, place: int | Literal["now"]) -> int:
    """The position to advance a slot to. Raises OptionError and ServerError if that is not possible."""
    server = catalog.server_facts(connection)
    if slot.database is not None:  # a physical slot has none
        _check_database(slot, server)
    if server.major < 11:
        raise ServerError("PostgreSQL can advance slots since version 11.")
    to = server.position if place == "now" else place
    position = slot.restart_lsn if slot.physical else slot.confirmed_flush_lsn
    if position is None:
        raise ServerError(f"slot {slot.name} has no position yet: it cannot be advanced.")
    if to < position:
        raise OptionError(
            f"{lsn_text(to)} is before {lsn_text(position)}, the position of slot {slot.name}: a slot cannot go back"
        )
    if to > server.position:
        raise OptionError(f"{lsn_text(to)} is beyond the server's position, {lsn_text(server.position)}")
    return to


def advance(connection: Connection, slot: Slot, to: int) -> int:
    """Advance a slot; returns its new position, which may be slightly before `to`. Raises ServerError."""
    query = "SELECT end_lsn FROM pg_replication_slot_advance(%s, %s::pg_lsn)"
    return rows.only(connection, "the slot's new position", query, slot.name, lsn_text(to)).lsn("end_lsn")


def copy(connection: Connection, source: str, name: str) -> tuple[Slot, Slot]:
    """Copy a slot, even one in use, to a permanent slot; returns both. Raises OptionError and ServerError."""
    check_name(name)
    server = catalog.server_facts(connection)
    if not server.copies_slots:
        raise ServerError(f"PostgreSQL can copy slots since version 12; this is {server.major}.")
    slot = existing(connection, source)
    if not slot.physical:
        check_logical(slot, server)
    _check_new(connection, name)
    kind = "physical" if slot.physical else "logical"
    query = f"SELECT pg_copy_{kind}_replication_slot(%s, %s, false)"
    rows.run(connection, "the copied slot", query, source, name)
    return slot, existing(connection, name)


def _shown(name: str | None) -> str:
    return escape(str(name))


def _described(slot: Slot) -> str:
    words = [slot.name, "physical" if slot.physical else f"{_shown(slot.plugin)}, database {_shown(slot.database)}"]
    if slot.temporary:
        words.append("temporary")
    unread = "free" if slot.invalid is None else "invalidated"
    words.append(unread if slot.active_pid is None else f"in use by pid {slot.active_pid}")
    if slot.confirmed_flush_lsn is not None:
        words.append(f"confirmed {lsn_text(slot.confirmed_flush_lsn)}")
    return ", ".join(words)
