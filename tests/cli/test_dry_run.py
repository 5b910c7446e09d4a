"""--dry-run: the checks and the words of the command, and nothing is changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgtail.capture.format import OPEN
from pgtail.capture.state import StateFile
from pgtail.pgoutput.scalars import parse_lsn
from tests.support.captures import segments
from tests.support.run_process import pgtail
from tests.support.servers import Database
from tests.support.tail import tailing, wait_for

DONE = "pgtail: nothing was done (--dry-run)\n"


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE audit (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE orders, audit",
        "INSERT INTO orders VALUES (1), (2)",
    )
    return newest_database


def slots(database: Database) -> list[tuple[object, ...]]:
    return database.query("SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots ORDER BY 1")


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_slots_stay(shop: Database) -> None:
    where = shop.conninfo()
    pgtail("slot", "create", "s", where)
    shop.execute("INSERT INTO orders VALUES (3)")
    before, place = slots(shop), shop.value("SELECT pg_current_wal_lsn()")
    out, said = pgtail("slot", "drop", "s", where, "--dry-run", "--yes")
    assert (out, slots(shop)) == ("", before)
    first, second = said.splitlines()
    assert first.startswith(f"pgtail: slot s, pgoutput, database {shop.name}, at {before[0][1]}, retains ")
    assert second == "pgtail: it would be dropped; nothing was done (--dry-run)"
    out, said = pgtail("slot", "advance", "s", place, where, "--dry-run")
    assert (out, slots(shop)) == ("", before)
    assert said.endswith(f"pgtail: it would be advanced to {place}; nothing was done (--dry-run)\n")


def test_slots_are_checked(shop: Database) -> None:
    where = shop.conninfo()
    pgtail("slot", "create", "s", where)
    assert "there is no slot nosuch" in pgtail("slot", "drop", "nosuch", where, "--dry-run", status=3)[1]
    assert "a slot cannot go back" in pgtail("slot", "advance", "s", "0/1", where, "--dry-run", status=2)[1]
    with tailing(shop, "-S", "s") as running:
        running.wait_for_slot(shop, "s")
        assert "slot s is in use by pid" in pgtail("slot", "drop", "s", where, "--dry-run", status=75)[1]
        running.stop()


def test_a_recording_begins_and_continues(shop: Database, tmp_path: Path) -> None:
    capture = tmp_path / "a" / "c"
    command = ("record", shop.conninfo(), "-S", "s", "-D", str(capture))
    _, said = pgtail(*command, "--snapshot", "--dry-run")
    assert said == (
        f"pgtail: in {capture}, which would be created, a capture would begin\n"
        "pgtail: slot s would be created: p (2 tables)\n"
        "pgtail: 2 tables would be copied first: public.audit, public.orders\n"
        f"{DONE}"
    )
    assert not slots(shop)
    assert not capture.parent.exists()
    pgtail(*command, "--snapshot", "--until", "now")
    shop.execute("INSERT INTO orders VALUES (3)")
    before, [(_, position)] = files(capture), slots(shop)
    _, said = pgtail(*command, "--snapshot", "--dry-run")
    assert said == (
        f"pgtail: in {capture} the capture would be continued from {position}\n"
        f"pgtail: slot s would be read from {position}: p (2 tables)\n"
        "pgtail: 0 tables would be copied first\n"
        f"{DONE}"
    )
    _, said = pgtail(*command, "--snapshot-table", "orders", "--dry-run")
    assert "1 table would be copied first: public.orders" in said
    assert "matches no published table" in pgtail(*command, "--snapshot-table", "no", "--dry-run", status=2)[1]
    assert files(capture) == before
    assert slots(shop) == [("s", position)]


def test_a_snapshot_without_its_files_would_be_copied_again(shop: Database, tmp_path: Path) -> None:
    capture = tmp_path / "c"
    command = ("record", shop.conninfo(), "-S", "s", "-D", str(capture), "--snapshot")
    pgtail(*command, "--until", "now")
    [lost] = [one for one in StateFile(capture).now.snapshots if one.table == "orders"]
    [file] = capture.glob(f"{lost.segments[0].name}*")
    file.unlink()
    before = files(capture)
    _, said = pgtail(*command, "--dry-run")
    assert "would be removed: segments of it are missing" in said
    assert "1 table would be copied first: public.orders\n" in said
    assert files(capture) == before
    _, said = pgtail(*command, "--until", "now")
    assert "is removed: segments of it are missing" in said
    assert pgtail(*command, "--dry-run")[1].endswith(f"0 tables would be copied first\n{DONE}")


def test_a_recording_is_checked(shop: Database, tmp_path: Path) -> None:
    capture = tmp_path / "c"
    command = ("record", shop.conninfo(), "-S", "s", "-D", str(capture))
    pgtail(*command, "--until", "now")
    shop.execute("INSERT INTO orders VALUES (3)")
    pgtail("slot", "advance", "s", "now", shop.conninfo(), "--yes")
    before = files(capture)
    assert "another client has consumed it" in pgtail(*command, "--dry-run", status=3)[1]
    assert "the capture has a gap" in pgtail(*command, "--dry-run", "--allow-gap")[1]
    assert 'has no publication "nosuch"' in pgtail(*command, "--dry-run", "--allow-gap", "-P", "nosuch", status=3)[1]
    assert files(capture) == before
    stored = ("record", shop.conninfo(), "-S", "s", "-D", "s3://x/y", "--spool", str(tmp_path), "--dry-run")
    assert "--dry-run examines a local capture" in pgtail(*stored, status=2)[1]
    dump = ("record", "--from", str(tmp_path / "x"), "-D", str(tmp_path / "d"), "--dry-run")
    assert "--dry-run is for recording a slot" in pgtail(*dump, status=2)[1]


def test_an_open_segment_counts_and_stays(shop: Database, tmp_path: Path) -> None:
    """A killed recorder's segment is examined as the next run would, and not closed."""
    capture = tmp_path / "c"
    command = ("record", shop.conninfo(), "-S", "s", "-D", str(capture), "--no-compress")
    options = ("-S", "s", "-D", str(capture), "--no-compress", "--sync-interval", "0.1s")
    with tailing(shop, *options, command="record") as running:
        running.wait_for_slot(shop, "s")
        shop.execute("INSERT INTO orders VALUES (3)")
        place = shop.value("SELECT pg_current_wal_lsn()")
        wait_for("acknowledgement", lambda: parse_lsn(str(slots(shop)[0][1])) >= parse_lsn(place))
        running.kill()
    before = files(capture)
    assert [name for name in before if name.endswith(OPEN)]
    _, said = pgtail(*command, "--dry-run")
    assert files(capture) == before
    _, again = pgtail(*command, "--until", place)
    assert files(capture) != before
    for words in (said, again):
        assert "was not closed, and is not compressed: its bytes have no checksum" in words
    found = re.search(r"the capture would be continued from (\S+)\n", said)
    assert found is not None
    assert parse_lsn(place) <= parse_lsn(found[1]) <= parse_lsn(str(slots(shop)[0][1]))


def test_triggers_are_neither_installed_nor_removed(shop: Database) -> None:
    triggers = "SELECT evtname FROM pg_event_trigger ORDER BY 1"
    out, said = pgtail("ddl", "install", shop.conninfo(), "--dry-run", "--yes")
    assert ("CREATE EVENT TRIGGER pgtail_ddl ON ddl_command_end" in out, said) == (True, DONE)
    assert not shop.query(triggers)
    pgtail("ddl", "install", shop.conninfo(), "--yes")
    before = shop.query(triggers)
    out, said = pgtail("ddl", "remove", shop.conninfo(), "--dry-run")
    assert ("DROP EVENT TRIGGER" in out, said) == (True, DONE)
    assert shop.query(triggers) == before


def test_a_capture_is_not_pruned(shop: Database, tmp_path: Path) -> None:
    capture = tmp_path / "c"
    for number in (3, 4, 5):
        pgtail("record", shop.conninfo(), "-S", "s", "-D", str(capture), "--until", "now")
        shop.execute(f"INSERT INTO orders VALUES ({number})")
    before = files(capture)
    prune = ("capture", "prune", str(capture), "--before", "FFFFFFFF/0")
    for options in ["--dry-run"], ["--dry-run", "--delete"]:
        out, said = pgtail(*prune, *options)
        assert "would be removed" in out
        assert said.endswith(DONE)
        assert files(capture) == before
    pgtail(*prune, "--delete")
    assert len(segments(capture)) < len(before)
