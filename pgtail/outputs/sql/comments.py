"""The texts of comments in SQL scripts."""

from __future__ import annotations

from pgtail.changes.events import LogicalMessage, SchemaChange, Transaction
from pgtail.changes.relations import differences
from pgtail.outputs.sql.statements import when
from pgtail.pgoutput.scalars import lsn_text

_MAX_SHOWN = 200
"""The maximum number of bytes shown of a logical message."""


def heading(transaction: Transaction) -> str:
    """A transaction in words."""
    word = "prepared" if transaction.state == "prepared" else "committed"
    parts = [f"xid {'unknown' if transaction.xid is None else transaction.xid}"]
    if transaction.lsn is not None:
        parts.append(lsn_text(transaction.lsn))
    parts.append(f"{word} {when(transaction.time)}")
    if transaction.origin is not None:
        parts.append(f"from {transaction.origin}")
    if not transaction.begun:
        parts.append("its beginning was not seen")
    return ", ".join(parts)


def schema_change_text(event: SchemaChange) -> str:
    """The differences of a table to its last description, in words; empty if there are none."""
    changes = [] if event.before is None else differences(event.before, event.now)
    return f"{event.now.qualified}: {'; '.join(changes)} (the DDL is not in the stream)" if changes else ""


def message_text(message: LogicalMessage) -> str:
    """A logical message in words."""
    shown = message.content[:_MAX_SHOWN].decode("utf-8", "backslashreplace")
    more = "" if len(message.content) <= _MAX_SHOWN else f"... ({len(message.content)} bytes)"
    how = "" if message.transactional else ", not transactional"
    return f"message {message.prefix!r}{how}: {shown!r}{more}"
