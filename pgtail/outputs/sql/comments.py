"""The texts of comments in SQL scripts."""

from __future__ import annotations

from pgtail.changes.events import LogicalMessage, SchemaChange, Transaction
from pgtail.changes.relations import differences
from pgtail.native.plan import Field, Plan, Text, Value
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.terminal.escape import escape, quoted
from pgtail.values import UNKNOWN, Undecoded

_MAX_SHOWN = 200
"""Characters, or bytes that are no text, that are shown of a logical message."""


def heading(before: bytes = b"") -> Plan:
    """A comment that names a transaction, or the table of a snapshot."""
    lsn, time = Value(Field.COMMIT_LSN, b", "), Value(Field.COMMIT_TIME, b", committed at ")
    return (b"-- " + before, Value(Field.XID, b"xid "), Text(_without_xid), lsn, time, Text(_unusual), b"\n")


def _without_xid(transaction: Transaction) -> bytes:
    if transaction.snapshot:
        return snapshot_text(transaction).encode()
    return b"" if transaction.xid is not None else b"xid unknown"


def snapshot_text(transaction: Transaction) -> str:
    """A snapshot and its table in words."""
    table = transaction.table
    return f"snapshot of {'an unknown table' if table is None else escape(table.qualified)}"


def _unusual(transaction: Transaction) -> bytes:
    """What the heading says of a transaction that is not simply committed."""
    parts = []
    if transaction.commit_ts is None:
        if transaction.prepare_lsn is not None:
            parts.append(lsn_text(transaction.prepare_lsn))
        word = "prepared" if transaction.state == "prepared" else "committed"
        parts.append(f"{word} {_when(transaction.prepare_ts)}")
    if transaction.origin is not None:
        parts.append(f"from {transaction.origin}")
    if not transaction.begun:
        parts.append("its beginning was not seen")
    return "".join([f", {escape(part)}" for part in parts]).encode()


def _when(time: int | None) -> str:
    return "at an unknown time" if time is None else f"at {time_text(time).replace('T', ' ')}"


def schema_change_text(event: SchemaChange) -> str:
    """The differences of a table to its last description, in words; empty if there are none."""
    changes = [] if event.before is None else differences(event.before, event.now)
    return f"{event.now.qualified}: {'; '.join(changes)} (the DDL is not in the stream)" if changes else ""


def message_text(message: LogicalMessage) -> str:
    """A logical message in words; the content as tables show it: a string, or bytes that are no text in hexadecimal."""
    size = len(message.content)
    try:
        text = UNKNOWN.text_text(message.content)
        shown, cut = quoted(text[:_MAX_SHOWN]), len(text) > _MAX_SHOWN
    except Undecoded:
        shown, cut = f"\\x{message.content[:_MAX_SHOWN].hex()}", size > _MAX_SHOWN
    how = "" if message.transactional else ", not transactional"
    return f"message {quoted(message.prefix)}{how}: {shown}{f'… ({size} bytes)' if cut else ''}"
