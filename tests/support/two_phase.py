"""Statements about slots that send prepared transactions, or do so only from some moment on."""

from __future__ import annotations

from typing import Final

SETUP: Final = ("CREATE TABLE t (v int)", "ALTER TABLE t REPLICA IDENTITY FULL", "CREATE PUBLICATION p FOR ALL TABLES")
CREATE_SLOT: Final = "SELECT pg_create_logical_replication_slot('{}', 'pgoutput', false, {})"
ADVANCE: Final = "SELECT pg_replication_slot_advance('{}', pg_current_wal_insert_lsn())"
SWITCH_ON: Final = (
    "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{}', NULL, 1,"
    " 'proto_version', '3', 'publication_names', 'p', 'two_phase', 'on')"
)
