"""A check for slots with changes older than a publication; decodes temporary copies of slots, like --fork."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from pgtail.doctor.base import Context, Finding, comment, destructive, warning
from pgtail.errors import ServerError
from pgtail.postgres import catalog, publications, slot_copy
from pgtail.postgres.catalog import Slot
from pgtail.postgres.connection import is_direct
from pgtail.postgres.errors import QueryCanceled
from pgtail.postgres.pgoutput_options import identifier
from pgtail.postgres.slots import PLUGIN

_SECONDS_PER_SLOT: Final = 2.0
"""Maximum seconds for decoding up to a slot's first change."""
_SECONDS_IN_ALL: Final = 8.0
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
    deadline = time.monotonic() + _SECONDS_IN_ALL
    # Those that lag least come first: their first change is found soonest, and the time for all is limited.
    for slot in sorted(catalog.slots(context.connection), key=lambda slot: -(slot.confirmed_flush_lsn or 0)):
        if not _concerns(slot, context):
            continue
        older = publications.older(context.connection, slot)
        unsure = [name for name in names if name not in older]
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
            seconds = min(_SECONDS_PER_SLOT, deadline - time.monotonic())
            if seconds <= 0:
                raise _Unknown(f"all slots together took more than {_SECONDS_IN_ALL:g} s")
            if context.only("the free slots", _FREE).integer("free") < _MIN_FREE_SLOTS:
                raise _Unknown("there are too few free replication slots for a temporary copy")
            found = slot_copy.missing_from(connection, slot, left, seconds)
            missing += found
            if not found or context.server.major >= _SILENT_SINCE:  # before, the first missing one ends decoding
                break
    except QueryCanceled:
        raise _Unknown(f"its first change was not found within {_SECONDS_PER_SLOT:g} s") from None
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
    one = f" One that does can request only {_names(others)} until it has passed them." if others else ""
    advance = [context.command(f"pgtail slot advance {name} now") for name in slots]
    return warning(
        "publication_age",
        text,
        comment(f"Consumers that do not request {_names(missing)} are not affected.{one}"),
        *destructive("Or continue from now (the consumer loses all changes that the slot still has)", *advance),
        subjects=slots,
    )


def _names(publications_: list[str]) -> str:
    return ", ".join(map(identifier, publications_))
