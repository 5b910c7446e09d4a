"""`pgtail record` on real servers: it continues where it stopped, and acknowledges what is on disk."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pgtail.capture.state import FILE
from pgtail.cli.record import command as record_command
from pgtail.demo.server import EmbeddedServer
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from tests.support.captures import segments
from tests.support.limits import within
from tests.support.run import Result, command, here
from tests.support.run_process import PROGRAM, started
from tests.support.servers import Database, fresh_database
from tests.support.tail import PATIENCE, stream, wait_for, wait_for_free_slots

SCHEMA = "CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR ALL TABLES"


def record(database: Database, directory: Path, *options: str, slot: str = "cap", status: int | None = None) -> Result:
    result = command("record", database.conninfo(), "-S", slot, "-D", directory, *options)
    assert status in (None, result.status), result.stderr
    return result


def recording(database: Database, directory: Path, *options: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A running `pgtail record`."""
    arguments = [database.conninfo(), "-S", "cap", "-D", str(directory), *options]
    return started([*PROGRAM, "record", *arguments], stderr=subprocess.PIPE, text=True)


def confirmed(database: Database) -> int:
    return parse_lsn(database.value("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'cap'"))


def test_it_creates_the_slot_and_continues(database: Database, tmp_path: Path) -> None:
    database.execute(*SCHEMA)
    first = record(database, tmp_path / "c", "--until", "now")
    assert (
        first.status,
        "slot cap was created. It retains WAL until it is dropped: pgtail slot drop cap" in first.stderr,
    ) == (0, True)
    database.execute("SELECT pg_create_logical_replication_slot('truth', 'pgoutput')")
    database.execute(*[f"INSERT INTO t VALUES ({i}, 'row {i}')" for i in range(10)])
    assert record(database, tmp_path / "c", "--until", "now").status == 0
    database.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(100, 3000) i", "TRUNCATE t")
    assert record(database, tmp_path / "c", "--until", "now", "--segment-size", "50kB").status == 0
    assert len(segments(tmp_path / "c")) > 5
    truth, _ = stream(database, "-S", "truth", "--until", "now", "-o", "json")
    found = command("decode", "-o", "json", tmp_path / "c")
    assert (found.status, found.stderr) == (0, "")
    assert len(found.lines) == len(truth) == 2911 + (database.version >= 11)  # TRUNCATE is sent since 11
    assert [(one["commit_lsn"], one["seq"]) for one in truth] == [
        (one["commit_lsn"], str(one["seq"])) for one in found.objects
    ]


def test_acknowledged_changes_and_idle_positions_are_on_disk(newest_database: Database, tmp_path: Path) -> None:
    database = newest_database
    database.execute(*SCHEMA)
    record(database, tmp_path / "c", "--until", "now")
    with recording(database, tmp_path / "c", "--sync-interval", "0.05") as running:
        before = confirmed(database)
        database.execute("INSERT INTO t VALUES (1, 'x')")
        committed = parse_lsn(database.value("SELECT pg_current_wal_flush_lsn()"))
        wait_for("acknowledgement", lambda: confirmed(database) > before)
        acknowledged = confirmed(database)  # it may be that of another record, which the server wrote meanwhile
        after = max(committed, parse_lsn(database.value("SELECT pg_current_wal_flush_lsn()")))
        assert acknowledged <= after
        running.kill()
        running.communicate()
    found = command("decode", "-o", "json", tmp_path / "c")
    assert [one["new"] for one in found.objects] == [{"id": 1, "v": "x"}]
    wait_for_free_slots(database)
    database.execute("CREATE TABLE unpublished ()", "SELECT pg_switch_wal()", "CHECKPOINT")
    assert record(database, tmp_path / "c", "--until", "now").status == 0
    idle = confirmed(database)
    assert idle > after
    assert record(database, tmp_path / "c", "--until", "now").status == 0
    assert confirmed(database) >= idle


def test_a_frozen_recorder_keeps_its_directory(newest_database: Database, tmp_path: Path) -> None:
    """Another one waits, though the slot is free; it goes on when the first one is gone."""
    database = newest_database
    database.execute(*SCHEMA)
    record(database, tmp_path / "c", "--until", "now")
    with recording(database, tmp_path / "c", "--sync-interval", "0.05") as first:
        database.execute("INSERT INTO t VALUES (1, 'x')")
        wait_for("row", lambda: len(command("decode", "-o", "json", tmp_path / "c").lines) == 1)
        first.send_signal(signal.SIGSTOP)
        database.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        wait_for_free_slots(database)
        refused = record(database, tmp_path / "c", "--until", "now", status=75)
        assert "another process records into" in refused.stderr
        database.execute("INSERT INTO t VALUES (2, 'y')")
        first.kill()
        first.communicate()
    assert record(database, tmp_path / "c", "--wait", "--until", "now").status == 0
    assert [one["new"]["id"] for one in command("decode", "-o", "json", tmp_path / "c").objects] == [1, 2]


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0.7", 0.7), (".05", 0.05), ("90s", 90), ("500ms", 0.5), ("5m", 300), ("1h", 3600)]
)
def test_times_are_seconds_or_have_a_unit(text: str, seconds: float) -> None:
    given = ["-D", "c", "--segment-age", text, "--sync-interval", text]
    options = record_command.make_context("record", given).params
    assert (options["segment_age"], options["sync_interval"]) == (seconds, seconds)


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--segment-age", "soon", "'soon' is not a time such as 30s, 500ms or 2m"),
        ("--segment-age", "-1", "'-1' is not a time such as 30s"),
        ("--segment-age", "0ms", "0ms is not more than 0"),
        ("--sync-interval", "5 days", "'5 days' is not a time such as 30s"),
    ],
)
def test_invalid_times(option: str, text: str, words: str) -> None:
    result = here("record", "-D", "c", option, text)
    assert (result.status, f"invalid value for '{option}': {words}" in result.stderr) == (2, True), result.stderr


def test_a_gap_is_refused(newest_database: Database, tmp_path: Path) -> None:
    database = newest_database
    database.execute(*SCHEMA)
    record(database, tmp_path / "c", "--until", "now")
    database.execute("INSERT INTO t VALUES (1, 'lost')")
    stream(database, "-S", "cap", "--until", "now", "--ack", "commit", "-o", "json")
    assert "another client has consumed it" in record(database, tmp_path / "c", "--until", "now", status=3).stderr
    database.execute("INSERT INTO t VALUES (2, 'kept')")
    allowed = record(database, tmp_path / "c", "--until", "now", "--allow-gap", status=0)
    assert "warning: the capture has a gap: it lacks what was committed" in allowed.stderr
    found = command("decode", "-o", "json", tmp_path / "c")
    assert [one["new"]["v"] for one in found.objects] == ["kept"]
    assert "there is a gap before it: what was committed between" in found.stderr
    database.execute("SELECT pg_drop_replication_slot('cap')")
    assert "slot cap does not exist" in record(database, tmp_path / "c", "--until", "now", status=3).stderr
    other = record(database, tmp_path / "c", "--until", "now", slot="other", status=2)
    assert "is of slot cap, not other" in other.stderr


def test_a_publication_of_the_capture_that_is_left_out_is_refused(newest_database: Database, tmp_path: Path) -> None:
    """Its changes would be acknowledged, and lost, without a gap that anybody sees."""
    database, directory = newest_database, tmp_path / "c"
    database.execute(*SCHEMA, "CREATE TABLE u (id int PRIMARY KEY)", 'CREATE PUBLICATION "a,b" FOR TABLE u')
    both = ("--until", "now", "-P", "p", "-P", "a,b")
    record(database, directory, *both, status=0)
    database.execute("INSERT INTO u VALUES (1)")
    before = confirmed(database)
    refused = record(database, directory, "--until", "now", "-P", "a,b", status=2).stderr
    assert "is of publication p, which would be left out: add -P p, " in refused
    assert confirmed(database) == before
    record(database, directory, *both, status=0)
    database.execute("INSERT INTO u VALUES (2)")
    record(database, directory, "--until", "now", "-P", "a,b", "--allow-gap", status=0)
    record(database, directory, *both, status=0)
    assert [one["new"]["id"] for one in command("decode", "-o", "json", directory).objects] == [1, 2]
    database.execute("ALTER PUBLICATION p RENAME TO q")
    renamed = record(database, directory, "--until", "now", "-P", "a,b", status=2).stderr
    assert "publication p, which does not exist any more, or has another name: name another directory" in renamed


def test_options_that_leave_out_what_the_capture_has_are_refused(newest_database: Database, tmp_path: Path) -> None:
    """It would be acknowledged, and lost, without a gap that anybody sees."""
    database, directory = newest_database, tmp_path / "c"
    database.execute(*SCHEMA, "SELECT pg_replication_origin_create('elsewhere')")
    message = "SELECT pg_logical_emit_message(true, 'p', 'm')"
    replicated = "SELECT pg_replication_origin_session_setup('elsewhere')", "INSERT INTO t VALUES ({})"
    try:
        record(database, directory, "--until", "now", status=0)
        database.execute(message)
        database.execute(*[one.format(1) for one in replicated])
        before = confirmed(database)
        for options, what in ((("--no-messages",), "logical messages"), (("--origin", "none"), "replicated from else")):
            refused = record(database, directory, "--until", "now", *options, status=2).stderr
            assert f"leave out {' '.join(options)}, name another directory" in refused
            assert what in refused
            assert confirmed(database) == before
        record(database, directory, "--until", "now", status=0)
        left_out = "--until", "now", "--no-messages", "--origin", "none"
        database.execute(message)
        database.execute(*[one.format(2) for one in replicated])
        record(database, directory, *left_out, "--allow-gap", status=0)
        database.execute("INSERT INTO t VALUES (3, '')")
        record(database, directory, *left_out, status=0)  # as the run before
        record(database, directory, "--until", "now", status=0)
    finally:
        wait_for_free_slots(database)
        database.execute("SELECT pg_replication_origin_drop('elsewhere')")
    shown = command("decode", "-o", "json", directory).objects
    assert [one.get("new", {}).get("id") for one in shown] == [None, 1, 3]


def test_gap_is_recorded_in_the_capture(newest_database: Database, tmp_path: Path) -> None:
    """The next segment records it, even if the run that skipped the gap got nothing, or nothing complete."""
    database = newest_database
    database.execute(*SCHEMA)
    record(database, tmp_path / "c", "--until", "now")
    database.execute("INSERT INTO t VALUES (1, 'before')")
    record(database, tmp_path / "c", "--until", "now")
    first = lsn_text(confirmed(database))
    for number in (2, 3):
        database.execute(f"INSERT INTO t VALUES ({number}, 'lost')")
        last = database.value("SELECT end_lsn FROM pg_replication_slot_advance('cap', pg_current_wal_lsn())")
        record(database, tmp_path / "c", "--until", "now", "--allow-gap", status=0)
    words = f"between {first} and {last} is not in the capture"
    note = f"pgtail: note: {tmp_path / 'c'}: there is a gap at the end: what was committed {words}\n"
    assert command("decode", "-o", "json", tmp_path / "c").stderr == note
    for number in (4, 5):
        database.execute(f"INSERT INTO t VALUES ({number}, 'behind')")
        record(database, tmp_path / "c", "--until", "now", status=0)
    found = command("decode", "-o", "json", tmp_path / "c")
    assert [one["new"]["v"] for one in found.objects] == ["before", "behind", "behind"]
    _, after_gap, _ = segments(tmp_path / "c")
    note = f"pgtail: note: {after_gap}: there is a gap before it: what was committed {words}\n"
    assert (found.status, found.stderr) == (0, note)
    assert command("decode", "-o", "json", *segments(tmp_path / "c")).stderr == note
    # Statements that undo the changes before the gap would give rows that never existed.
    undo, cures = ("decode", "-o", "sql", "--undo"), f"--resync writes them, --since {last} those for what came after"
    whole, explicit = tmp_path / "c", segments(tmp_path / "c")
    for refused in (command(*undo, whole), command(*undo, whole, "--where", "v = 'before'"), command(*undo, *explicit)):
        assert (refused.status, refused.stdout, cures in refused.stderr) == (1, b"", True)
    for options, count in (((whole, "--resync"), 3), ((whole, "--since", last), 2), (tuple(explicit[1:]), 2)):
        undone = command(*undo, *options)
        assert (undone.status, undone.stdout.count(b"DELETE FROM")) == (0, count), undone.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_closes_the_open_segment(newest_database: Database, tmp_path: Path, sent: signal.Signals) -> None:
    database = newest_database
    database.execute(*SCHEMA)
    record(database, tmp_path / "c", "--until", "now")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    with recording(database, tmp_path / "c", "--sync-interval", "60") as running:
        wait_for("segment", lambda: list((tmp_path / "c").glob("*.part")))
        running.send_signal(sent)
        _, said = running.communicate(timeout=within(PATIENCE))
    assert (running.returncode, " ends at 0/" in said) == (0, True)
    assert not list((tmp_path / "c").glob("*.part"))
    assert [one["new"]["id"] for one in command("decode", "-o", "json", tmp_path / "c").objects] == [1]


@pytest.mark.parametrize(
    "away", [shutil.rmtree, lambda path: path.rename(path.with_name("other"))], ids=["removed", "renamed"]
)
def test_missing_directory_stops_acknowledgements(
    newest_database: Database, tmp_path: Path, away: Callable[[Path], object]
) -> None:
    database, directory = newest_database, tmp_path / "c"
    database.execute(*SCHEMA)
    record(database, directory, "--until", "now")
    with recording(database, directory, "--sync-interval", "50ms") as running:
        database.execute("INSERT INTO t VALUES (1, 'x')")
        first = parse_lsn(database.value("SELECT pg_current_wal_lsn()"))
        wait_for("acknowledged", lambda: confirmed(database) >= first)
        away(directory)
        database.execute("INSERT INTO t VALUES (2, 'y')")
        last = parse_lsn(database.value("SELECT pg_current_wal_lsn()"))
        _, said = running.communicate(timeout=within(PATIENCE))
    assert (running.returncode, "is gone: it or its directory was removed or renamed" in said) == (4, True)
    assert "has everything" not in said
    assert confirmed(database) < last


def test_a_slot_is_needed(newest_database: Database, tmp_path: Path) -> None:
    result = command("record", newest_database.conninfo(), "-D", tmp_path / "c")
    assert (result.status, "--slot NAME" in result.stderr, "--from FILE" in result.stderr) == (2, True, True)


def test_capture_of_another_slot_or_server_is_refused(newest_database: Database, tmp_path: Path) -> None:
    """Even if only positions were recorded so far: changes before them in the slot would be lost silently."""
    database, directory = newest_database, tmp_path / "c"
    database.execute(*SCHEMA, "SELECT pg_create_logical_replication_slot('older', 'pgoutput')")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    record(database, directory, "--until", "now")
    other = record(database, directory, "--until", "now", slot="older", status=2)
    assert "is of slot cap, not older" in other.stderr
    note = json.loads((directory / FILE).read_text())
    before = confirmed(database)
    for words, change in [
        ("this is another server", {"parameters": note["parameters"] | {"pgtail.system_identifier": "1"}}),
        ("it is another server, or it was restored from a backup", {"position": "FFFF/0"}),
    ]:
        (directory / FILE).write_text(json.dumps(note | change))
        assert words in record(database, directory, "--until", "now", "--allow-gap", status=3).stderr
    (directory / FILE).write_text(json.dumps(note | {"parameters": {"pgtail.from": "dumps"}}))
    assert "was made from dumps" in record(database, directory, "--until", "now").stderr
    assert confirmed(database) == before


def test_text_is_recorded_in_the_server_encoding(newest_server: EmbeddedServer, tmp_path: Path) -> None:
    """Otherwise one character without a UTF8 equivalent would make recording the slot impossible."""
    with fresh_database(newest_server, encoding="LATIN1", lc_collate="C", lc_ctype="C") as database:
        database.execute(*SCHEMA)
        record(database, tmp_path / "c", "--until", "now")
        database.execute("INSERT INTO t VALUES (1, 'd' || chr(233) || 'j' || chr(224))")
        assert record(database, tmp_path / "c", "--until", "now", "--encoding", "latin1").status == 0
    found = command("decode", "-o", "json", "--encoding", "latin1", tmp_path / "c")
    assert [one["new"]["v"] for one in found.objects] == ["d\u00e9j\u00e0"]
    assert (
        b"client_encoding\0iso8859-1\0"
        in subprocess.run(["gzip", "-dc", *segments(tmp_path / "c")], check=True, capture_output=True).stdout
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-D", "", "-S", "s"], "--directory is empty"),
        (["-D", "x", "--from", "dump", "-S", "s"], "--slot is for recording a slot, not for dumps"),
        (["-D", "x", "--from", "dump", "--until", "now"], "--until is for recording a slot"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], words: str) -> None:
    result = command("record", *arguments)
    assert (result.status, words in result.stderr) == (2, True)
