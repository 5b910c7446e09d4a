"""`pgtail stream` from the outside: where it begins and ends, what it writes, and its exit status."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from pgtail.replication import plan
from tests.support.captures import data_frames, record
from tests.support.corpus import capture
from tests.support.run import command, here
from tests.support.run_process import lines as lines_of
from tests.support.run_process import pgtail
from tests.support.servers import Database
from tests.support.tail import COMMAND, ids, stream, tailing
from tests.support.terminals import on_terminal


def resume(words: str) -> str:
    return words.rpartition("resume at ")[2].strip()


# -- where it begins and ends ----------------------------------------------------------------------------------


def test_until_and_limit(shop: Database) -> None:
    lines, words = stream(shop, "-S", "s", "--until", "now", "--transactions")
    commits = [line for line in lines if line["op"] == "commit"]
    assert "10 transactions shown" in words
    for option in ("--until", "--until-lsn", "-E", "--endpos"):
        for end in (commits[3]["commit_lsn"], commits[3]["end_lsn"]):
            found, words = stream(shop, "-S", "s", option, end)
            assert ids(found) == [0, 1, 2, 3]
            assert resume(words) == commits[3]["end_lsn"]
    found, words = stream(shop, "-S", "s", "-n", "3")
    assert ids(found) == [0, 1, 2]
    assert "3 transactions shown" in words
    assert resume(words) == commits[2]["end_lsn"]
    found, words = stream(shop, "-S", "s", "-n", "2", "--where", "id >= 5")
    assert ids(found) == [5, 6]


def test_since_and_until_a_time(shop: Database, tmp_path: Path) -> None:
    """Times of commits, as the output has them."""
    time.sleep(0.01)  # the last one is committed later than the others on a clock of any resolution
    shop.execute("INSERT INTO t VALUES (10, 'last')")
    lines, _ = stream(shop, "-S", "s", "--until", "now", "--transactions")
    commits = [line for line in lines if line["op"] == "commit"]
    times = [line["commit_ts"] for line in commits]
    assert ids(stream(shop, "-S", "s", "--since", times[7], "--until", times[9])[0]) == [7, 8, 9]
    assert ids(stream(shop, "-S", "s", "--since", commits[8]["commit_lsn"], "--until", "now")[0]) == [8, 9, 10]
    found, words = stream(shop, "-S", "s", "--until", times[3], "--ack", "commit")
    assert ids(found) == [0, 1, 2, 3]
    assert resume(words) == commits[3]["end_lsn"], "nothing that is not shown is acknowledged"
    _, words = stream(shop, "-S", "s", "--since", times[7], "--ack", "commit", "--until", "now", status=2)
    assert "--since together with --ack permanently skips earlier changes" in words
    counted = json.loads(
        pgtail("stats", "-S", "s", "--since", times[5], "--until", times[6], "-o", "json", shop.conninfo())[0]
    )
    assert [(table["table"], table["inserts"]) for table in counted["tables"]] == [("t", 2)]
    for name in ("stream", "stats"):
        _, words = pgtail(name, shop.conninfo(), "--since", "yesterday", "--for", "5s", status=2)
        assert "a temporary slot begins now: no earlier change can be read from it" in words
        for since, until in (
            ("10m", "1h"),
            (commits[8]["commit_lsn"], commits[7]["commit_lsn"]),
            ("2999-01-01", "now"),
        ):
            _, words = pgtail(name, shop.conninfo(), "-S", "s", "--since", since, "--until", until, status=2)
            assert re.search(r"--since \S+ is later than --until \S+: nothing is in between\n", words)
    found, words = stream(shop, "-S", "s", "--where", "id > 99", "--until", "now")
    assert found == []
    assert re.search(r"note: 0 of 7 transactions matched; what was read covers \d{4}-\d\d-\d\d \d\d:\d\d", words)
    pgtail("record", "-S", "s", "-D", str(tmp_path / "c"), "--until", times[6], shop.conninfo())
    assert ids(lines_of(pgtail("decode", str(tmp_path / "c"))[0])) == [4, 5, 6]
    assert ids(stream(shop, "-S", "s", "--until", "now")[0]) == [7, 8, 9, 10]


def test_until_a_time_that_comes(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is committed after it: the server's clock ends the stream."""
    monkeypatch.setattr(plan, "MARGIN", 1_000_000)
    soon = shop.value("SELECT to_char(now() AT TIME ZONE 'UTC' + '1 s', 'YYYY-MM-DD HH24:MI:SS.US')")
    began = time.monotonic()
    ran = here("stream", "-o", "json", shop.conninfo(), "-S", "s", "--until", soon)
    assert [one["new"]["id"] for one in ran.objects] == list(range(10))
    assert "10 transactions shown" in ran.stderr
    assert time.monotonic() - began > 1.5, "a commit may come that is older than those before"


def test_lines_with_keys_and_what_changed(shop: Database) -> None:
    shop.execute("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET note = 'new' WHERE id = 3", "DELETE FROM t")
    options = ("--until", "now", "--where", "id = 3")
    with tailing(shop, "-S", "s", "-o", "line", *options) as running:
        running.end()
        shown = [line.decode().split(maxsplit=3)[3] for line in running.out]
    assert [" ".join(line.split()) for line in shown] == [
        "INSERT public.t [id=3] note='row 3'",
        "UPDATE public.t id=3 note='row 3'→'new'",
        "DELETE public.t id=3 note='new'",
    ]
    found, _ = stream(shop, "-S", "s", *options, "--changed", "--columns", "note")
    assert [change.get("new") for change in found] == [{"id": "3", "note": "row 3"}, {"note": "new"}, None]


def test_values_that_look_like_those_of_other_settings_are_repeated_as_sql(shop: Database) -> None:
    """The settings of the session are known: such a text is no date and no amount."""
    shop.execute("CREATE TYPE pair AS (day text, price text)", "CREATE TABLE pairs (id int PRIMARY KEY, v pair)")
    shop.execute("ALTER PUBLICATION p ADD TABLE pairs")
    shop.execute("INSERT INTO pairs VALUES (1, '(01/02/2026,\"-1 2:03:04\")'), (2, '(,\"5 €\")')")
    sql = pgtail("stream", shop.conninfo(), "-S", "s", "-o", "sql", "-t", "pairs", "--until", "now")[0]
    assert sql.count("INSERT INTO") == 2
    assert "was not written under" not in sql


def test_from(shop: Database) -> None:
    lines, _ = stream(shop, "-S", "s", "--until", "now", "--transactions")
    ends = [line["end_lsn"] for line in lines if line["op"] == "commit"]
    for option in ("--from", "-I", "--startpos"):
        found, words = stream(shop, "-S", "s", option, ends[6], "--until", "now")
        assert ids(found) == [7, 8, 9]
    found, words = stream(shop, "-S", "s", "--from", "0/1", "--until", "now")
    assert ids(found) == list(range(10))
    assert "--startpos 0/1 is before the slot's confirmed_flush_lsn: starting there, at" in words
    found, words = stream(shop, "-S", "s", "--from", "FFFFFFFF/0", status=2)
    assert "beyond the server's position" in words
    found, words = stream(shop, "-S", "s", "--from", "0/12345678Z", status=2)
    assert "not a log position" in words
    with tailing(shop, "-S", "s", "--from", "now") as running:
        running.wait_for_slot(shop, "s")
        shop.execute("INSERT INTO t VALUES (10)")
        assert ids(running.changes_of(1)) == [10]
        running.stop()


def test_from_with_ack_skips_changes_only_with_yes(shop: Database) -> None:
    lines, _ = stream(shop, "-S", "s", "--until", "now", "--transactions")
    end = [line["end_lsn"] for line in lines if line["op"] == "commit"][6]
    for ack in ("commit", "exit"):
        _, words = stream(shop, "-S", "s", "--from", end, "--ack", ack, "--until", "now", status=2)
        assert "--yes" in words
    found, words = stream(shop, "-S", "s", "--from", end, "--ack", "exit", "--until", "now", "--yes")
    assert ids(found) == [7, 8, 9]
    found, words = stream(shop, "-S", "s", "--until", "now")
    assert found == []


def test_for_and_idle_exit(shop: Database) -> None:
    begun = time.monotonic()
    lines, _ = stream(shop, "-S", "s", "--for", "1.5")
    assert time.monotonic() - begun >= 1.5
    assert ids(lines) == list(range(10))
    with tailing(shop, "-S", "s", "--idle-exit", "3") as running:
        running.wait_for_lines(10)
        time.sleep(1.5)
        begun = time.monotonic()
        shop.execute("INSERT INTO t VALUES (10)")
        running.wait_for_lines(11)
        running.end()
        assert time.monotonic() - begun > 3


def test_idle_exit_waits_for_a_silent_backlog(shop: Database) -> None:
    """Much WAL of tables that are not published: the server is silent meanwhile, but not idle."""
    shop.execute("CREATE TABLE unpublished (v text)")
    for _ in range(3):
        shop.execute("INSERT INTO unpublished SELECT repeat('x', 500) FROM generate_series(1, 40000)")
    shop.execute("INSERT INTO t VALUES (10)")
    lines, _ = stream(shop, "-S", "s", "--idle-exit", "0.05")
    assert ids(lines) == list(range(11))


def test_a_created_slot_stays_and_acknowledges(shop: Database) -> None:
    with tailing(shop, "-S", "made", "--create-slot") as running:
        running.wait_for_slot(shop, "made")
        shop.execute("INSERT INTO t VALUES (10)")
        running.wait_for_lines(1)
        words = running.stop()
    query = "SELECT temporary, active, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'made'"
    [(temporary, _, confirmed)] = shop.query(query)
    assert not temporary
    assert confirmed == resume(words)
    assert "lower case letters" in stream(shop, "-S", "Upper", "--create-slot", status=2)[1]
    assert "--create-slot needs a name" in stream(shop, "--create-slot", status=2)[1]


# -- output ----------------------------------------------------------------------------------------------------


def test_output_is_flushed_at_each_commit_and_in_pauses(shop: Database) -> None:
    with tailing(shop, "-S", "s", "--from", "now", "-o", "json-tx") as running:
        running.wait_for_slot(shop, "s")
        shop.execute("INSERT INTO t VALUES (10), (11)")
        [line] = running.changes_of(1)
        assert [change["new"]["id"] for change in line["changes"]] == ["10", "11"]
        running.stop()


def test_a_file_is_appended_to(shop: Database, tmp_path: Path) -> None:
    file = tmp_path / "changes.json"
    for _ in range(2):
        lines, words = stream(shop, "-S", "s", "-n", "5", "-f", str(file), "--ack", "commit")
        assert lines == []
    assert [json.loads(line)["new"]["id"] for line in file.read_text().splitlines()] == list(range(10))
    file.write_text('{"op":"ins')  # as a crash leaves it
    stream(shop, "-S", "s", "-f", str(file), "--until", "now")
    assert file.read_text() == '{"op":"ins\n'
    _, words = stream(shop, "-S", "s", "-f", str(tmp_path / "no" / "file"), status=4)
    assert "cannot write to" in words
    before = shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    shop.execute("INSERT INTO t VALUES (10)")
    _, words = stream(shop, "-S", "s", "-n", "1", "-f", "/dev/full", "--ack", "commit", status=4)
    assert "cannot write to /dev/full: No space left on device" in words
    assert shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots") == before


def test_the_trace_has_every_frame(shop: Database) -> None:
    _, words = stream(shop, "-S", "s", "-n", "2", "-vv")
    assert 'START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version ' in words
    assert "publication_names '\"p\"', messages 'on', streaming 'on', origin 'any')" in words
    assert "options: proto_version 4, messages on, streaming on, origin any" in words
    traced = [line for line in words.splitlines() if line[1:3] == "  "]
    assert {line[0] for line in traced} == {"w", "k", "r"}
    assert [line.split()[-3] for line in traced if line[0] == "w"][:4] == ["Begin,", "Relation,", "Insert,", "Commit,"]
    assert all("flush 0/0  apply 0/0" in line for line in traced if line[0] == "r")


def test_a_status_carries_a_flush_only_where_it_advances(shop: Database) -> None:
    with tailing(shop, "-S", "s", "--ack", "commit", "-vv") as running:
        running.wait_for_lines(10)
        time.sleep(2.5)
        shop.execute("INSERT INTO t VALUES (10)")
        running.wait_for_lines(11)
        time.sleep(1.5)
        words = running.stop()
    flushes = [line.split()[4] for line in words.splitlines() if line.startswith("r  ")]
    advances = [flush for flush in flushes if flush != "0/0"]
    assert len(advances) >= 2
    assert advances == sorted(set(advances), key=lambda lsn: int(lsn.partition("/")[2], 16))


def test_terminal_shows_opening_messages_and_a_status_line(shop: Database) -> None:
    command = [*COMMAND, shop.conninfo(), "-S", "s"]
    complete = " · lag 0 bytes · 10 transactions"
    status, shown = on_terminal(command, until=complete, answer="\x03", env={"TERM": "xterm-256color"})
    assert status == 0
    first, second, rest = shown.split("\r\n", 2)
    assert re.search(r"pgtail: slot s, publication p \(1 table\), from [0-9A-F]+/[0-9A-F]+ on$", first)
    assert second == "pgtail: acknowledging: none; the slot does not move"
    assert "options: proto_version" not in rest
    assert "INSERT" in shown
    assert complete in shown
    assert shown.endswith("\n")
    assert "10 transactions shown; resume at" in shown.splitlines()[-1]
    _, words = stream(shop, "-S", "s", "--until", "now", "-v")
    for more in ("PostgreSQL ", "behind the server", "of WAL before the first row", "options: proto_version"):
        assert more in words


def test_two_phase(shop: Database) -> None:
    with tailing(shop, "--two-phase", "-S", "both", "--create-slot") as running:
        running.wait_for_slot(shop, "both")
        shop.execute("BEGIN; INSERT INTO t VALUES (10); PREPARE TRANSACTION 'gid one';")
        [line] = running.changes_of(1)
        assert (line["state"], line["gid"]) == ("prepared", "gid one")
        shop.execute("COMMIT PREPARED 'gid one'")
        assert running.changes_of(2)[1]["op"] == "commit_prepared"
        running.stop()
    assert shop.value("SELECT two_phase FROM pg_replication_slots WHERE slot_name = 'both'") is True


def test_a_file_or_a_slot_in_place_of_a_database(shop: Database, tmp_path: Path) -> None:
    where = {"PGHOST": str(shop.server.directory), "PGPORT": str(shop.server.port), "PGUSER": "postgres"}

    def cure(*arguments: str | Path) -> str:
        ran = command(*arguments, environment=where)
        assert (ran.status, ran.stdout) == (3, b"")
        return ran.stderr.partition("does not exist\n")[2].strip()

    dump = Path(__file__)
    assert cure("stream", dump) == f"it is a file: pgtail decode {dump}"
    assert cure("stats", "--watch", dump) == f"it is a file: pgtail stats {dump}"
    record(tmp_path, data_frames(capture("Z_small", "p1")))
    assert cure("stream", tmp_path, "--until", "now") == f"it is a capture: pgtail decode {tmp_path}"
    for name in ("stream", "expect"):
        assert cure(name, "cdc").startswith(f"a slot is named with --slot: pgtail {name} --slot cdc; ")
    for other in (["-d", "cdc"], ["postgresql:///postgresql"], ["dbname=cdc"]):
        assert "Name a database that exists" in cure("stream", *other)


def test_a_directory_as_the_file_names_what_writes_one(tmp_path: Path) -> None:
    ran = command("stream", "-f", tmp_path)
    assert ran.status == 2
    assert f"pgtail decode -o csv -f {tmp_path} captures" in ran.stderr


def test_a_connection_string_that_is_none() -> None:
    assert "cannot be parsed: missing = after ..." in command("stream", "secret words = 'paid'").stderr
