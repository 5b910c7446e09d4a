"""Floor 5, a look at a slot through a temporary copy of it: whether that can be, and the copy; it stays untouched.

The server copies a slot that is in use as well, and gives the copy another plugin (src/backend/replication/slotfuncs.c,
copy_replication_slot). A temporary slot ends with its session, in whatever way that ends.
"""

from __future__ import annotations

from typing import Final

from pgtail.errors import OptionError, ServerError
from pgtail.server import facts, publications, slots
from pgtail.server.connection import Connection
from pgtail.server.facts import Publication, ServerFacts, Slot
from pgtail.server.options import Wanted, identifier, literal
from pgtail.server.session import Session
from pgtail.wire.scalars import lsn_text, parse_lsn

_SINCE: Final = 12


def find(connection: Connection, name: str, server: ServerFacts, wanted: Wanted) -> Slot:
    """The slot of this name, if it can be looked at through a copy. Raises OptionError and ServerError."""
    if server.major < _SINCE:
        raise OptionError(f"--fork needs PostgreSQL {_SINCE} or later; this is {server.major}")
    if wanted.two_phase:
        raise OptionError("--two-phase: the server makes copies of slots without it")
    slot = slots.existing(connection, name)
    slots.check_decodable(slot, server)
    if slot.confirmed_flush_lsn is None:
        raise ServerError(f"slot {name} is still being created: it cannot be copied yet.", cure="Try again later.")
    return slot


def check_any_older(connection: Connection, slot: Slot) -> None:
    """Whether the database has a publication at all. Raises ServerError."""
    if not facts.publications(connection):
        raise ServerError(
            f"database {slot.database} has no publication. pgoutput sends nothing without one, and one that is created"
            f" now is younger than slot {slot.name}, which stands at {_stands(slot)}: what the slot holds so far cannot"
            " be seen through it.",
            cure="To see what is committed from then on:\nCREATE PUBLICATION some_name FOR TABLE some_table,"
            f" another_table;\nand then --fork {slot.name} --from now",
        )


def check_older(connection: Connection, slot: Slot, chosen: list[Publication]) -> None:
    """Whether the publications are as old as the slot's position. Raises ServerError where none is known to be.

    Up to 17 the server fails at the first change of any table where one is not, from 18 on it sends nothing of it.
    """
    older = publications.older(connection, slot)
    younger = [one.name for one in chosen if one.name not in older]
    if not younger:
        return
    cures = [f"If you know that it is older, try it: --from {_stands(slot)}"]
    if older:
        cures.insert(0, f"Known to be older: {', '.join(map(identifier, older))}")
    else:
        cures.insert(0, "To see what is committed from now on: --from now")
    raise ServerError(
        f"publication {' and '.join(map(identifier, younger))}: not known to be as old as what slot {slot.name} holds,"
        f" from {_stands(slot)} on. It was created or altered by a transaction that may be missing in the catalog as"
        " the slot sees it (catalog_xmin). There the server fails at the first change (up to 17), or sends nothing of"
        " the publication without a word (from 18 on).",
        cure="\n".join(cures),
    )


def copy(session: Session, source: str, name: str) -> int:
    """Copy a slot to a temporary one of this session; returns where the copy stands. Raises ServerError."""
    call = f"pg_copy_logical_replication_slot({literal(source)}, {literal(name)}, true, {literal(slots.PLUGIN)})"
    [(point,)] = session.query(f"SELECT lsn FROM {call}", doing=f"slot {source} cannot be copied")
    return parse_lsn(point)


def described(slot: Slot) -> str:
    """The slot in a few words."""
    use = "" if slot.active_pid is None else f", in use by pid {slot.active_pid}"
    return f"slot {slot.name} ({slot.plugin}{use})"


def _stands(slot: Slot) -> str:
    return lsn_text(slot.confirmed_flush_lsn or 0)
