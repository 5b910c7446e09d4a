"""Floor 4, what the comments of a script of SQL say of transactions, messages and tables that changed."""

from __future__ import annotations

from pgtail.outputs.sql_text import when
from pgtail.relations import differences
from pgtail.transaction import LogicalMessage, SchemaChange, Transaction
from pgtail.wire.scalars import lsn_text

_MOST_SHOWN = 200
"""Bytes of a logical message that are shown."""


def heading(transaction: Transaction) -> str:
    """What a transaction is, for people."""
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


def table_changed(event: SchemaChange) -> str:
    """How a table differs from what it was, for people; empty where it was not known before, or does not."""
    changes = [] if event.before is None else differences(event.before, event.now)
    return f"{event.now.qualified}: {'; '.join(changes)} (the DDL is not in the stream)" if changes else ""


def message_words(message: LogicalMessage) -> str:
    """A logical message, for people."""
    shown = message.content[:_MOST_SHOWN].decode("utf-8", "backslashreplace")
    more = "" if len(message.content) <= _MOST_SHOWN else f"... ({len(message.content)} bytes)"
    how = "" if message.transactional else ", not transactional"
    return f"message {message.prefix!r}{how}: {shown!r}{more}"
