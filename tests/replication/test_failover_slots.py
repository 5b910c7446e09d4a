"""Slots that a standby synchronizes from its primary (17 and later): they are unusable there until a promotion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.support.run import command
from tests.support.run_process import lines, pgtail
from tests.support.servers import Database, installations
from tests.support.standbys import catch_up, failover_pair, insert, synchronize
from tests.support.tail import stream

NEWEST = list(installations().values())[-1]
USED = "slot cdc is synchronized from the primary of this standby: it cannot be used here."


def uses(database: Database, capture: Path) -> list[list[str]]:
    """Every command that reads or changes a slot."""
    conninfo = database.conninfo()
    return [
        ["stream", conninfo, "-S", "cdc", "--until", "now"],
        ["stats", conninfo, "--slot", "cdc"],
        ["expect", conninfo, "-S", "cdc", "--op", "insert"],
        ["record", conninfo, "-S", "cdc", "-D", str(capture), "--until", "now"],
        ["stream", conninfo, "-S", "cdc", "--ack", "commit", "--until", "now"],
        ["slot", "advance", "cdc", "now", "--yes", "-d", conninfo],
        ["slot", "drop", "cdc", "--yes", "-d", conninfo],
    ]


@pytest.mark.skipif(NEWEST.major < 17, reason="failover slots exist from PostgreSQL 17 on")
def test_synchronized_slot_is_usable_only_after_the_promotion(start_server: StartServer, tmp_path: Path) -> None:
    with failover_pair(start_server()) as (primary, standby):
        primary.query("SELECT pg_create_logical_replication_slot('cdc', 'pgoutput', failover => true)")
        synchronize(primary, standby, "cdc")
        insert(primary, standby, 1)
        catch_up(primary, standby)
        for arguments in uses(standby, tmp_path / "c"):
            _, words = pgtail(*arguments, status=75)
            assert USED in words, (arguments, words)
        assert "promoted, or read a copy of it: pgtail stream --fork cdc" in pgtail(
            *uses(standby, tmp_path)[0], status=75
        )[1].replace("\n        ", " ")
        looked_at, _ = stream(standby, "--fork", "cdc", "--until", "now")
        assert [line["new"]["id"] for line in looked_at] == ["1"]
        check_others(standby)

        primary.server.stop()
        standby.query("SELECT pg_promote()")
        standby.execute("INSERT INTO t VALUES (2)")
        assert standby.value("SELECT synced FROM pg_replication_slots WHERE slot_name = 'cdc'")
        check_others(standby)
        for arguments in uses(standby, tmp_path / "c"):
            out, words = pgtail(*arguments)
            if arguments[0] == "stream" and "--ack" not in arguments:
                assert [line["new"]["id"] for line in lines(out)] == [1, 2], words
        out, _ = pgtail("decode", "-o", "json", str(tmp_path / "c"))
        assert [line["new"]["id"] for line in lines(out)] == [1, 2]
        assert not standby.query("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'cdc'")


def check_others(database: Database) -> None:
    """Read-only commands find no problem with it, on a standby or not."""
    out, _ = pgtail("slot", "list", "-o", "json", "-d", database.conninfo())
    [slot] = [json.loads(line) for line in out.splitlines() if '"cdc"' in line]
    assert (slot["synced"], slot["failover"], slot["invalidation_reason"]) == (True, True, None)
    assert "cdc" in pgtail("slot", "list", "-o", "table", "-d", database.conninfo())[0]
    checked = command("doctor", "-o", "json", "-d", database.conninfo()).objects
    findings = [one for one in checked if "cdc" in one["subjects"]]
    assert [(one["check"], one["severity"]) for one in findings] == [("slots", "ok")], findings
