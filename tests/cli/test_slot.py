"""`pgtail slot` as users run it: what it shows, and what it does to slots."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtail.commands.slot.table import render
from pgtail.postgres import slot_report
from pgtail.postgres.connection import Connector, parameters
from pgtail.postgres.pg_wal import PgWal, Step
from pgtail.postgres.slot_report import GROWTH, SAFE_SECONDS, SlotGrowth
from pgtail.terminal.style import PLAIN
from tests.conftest import StartServer
from tests.support.limits import within
from tests.support.refused import physical_slot
from tests.support.run_process import PROGRAM, lines, pgtail, started
from tests.support.servers import Database, since
from tests.support.tail import PATIENCE, tailing, wait_for
from tests.support.terminals import on_terminal


def publish(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")


def slots(database: Database) -> dict[str, list[object]]:
    rows = database.query(
        "SELECT slot_name, plugin, temporary, confirmed_flush_lsn FROM pg_replication_slots"
        " WHERE database = current_database()"
    )
    return {str(name): rest for name, *rest in rows}


def own(database: Database, text: str) -> dict[str, dict[str, object]]:
    """The listed slots of one database by name: the server may also have those of other tests."""
    return {str(one["slot_name"]): one for one in lines(text) if one["database"] == database.name}


# -- list ------------------------------------------------------------------------------------------------------


def test_a_list_shows_what_the_server_reports(database: Database) -> None:
    publish(database)
    database.query("SELECT pg_create_logical_replication_slot('held', 'pgoutput')")
    database.query("SELECT pg_create_logical_replication_slot('read', 'pgoutput')")
    database.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 10000) i")
    with tailing(database, "-S", "read", env={"PGAPPNAME": "my reader"}) as running:
        running.wait_for_slot(database, "read")
        running.wait_for_lines(10000)
        pid = database.value("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'read'")
        out, _ = pgtail("slot", "list", database.conninfo(), "-o", "json")
        running.stop()
    found = own(database, out)
    held, read = found["held"], found["read"]
    assert (read["active"], read["active_pid"], read["user"]) == (True, pid, "postgres")
    assert (read["application_name"], read["client"]) == ("my reader", "local")
    told = [held[name] for name in ("active", "active_pid", "plugin", "slot_type")]
    assert told == [False, None, "pgoutput", "logical"]
    [(restart, confirmed, xmin, lag, size)] = database.query(
        "SELECT restart_lsn, confirmed_flush_lsn, catalog_xmin::text::bigint,"
        " pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint,"
        " pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint"
        " FROM pg_replication_slots WHERE slot_name = 'held'"
    )
    assert (held["restart_lsn"], held["confirmed_flush_lsn"], held["catalog_xmin"]) == (restart, confirmed, xmin)
    assert 1_000_000 < int(str(held["lag_bytes"])) <= lag
    assert 1_000_000 < int(str(held["wal_held_bytes"])) <= size
    assert int(str(held["catalog_xmin_age"])) >= 1
    assert int(str(held["pg_wal_bytes"])) >= int(str(held["drop_frees_bytes"])) >= 0
    assert held.get("wal_status") == ("reserved" if database.version >= 13 else None)
    assert ("total_bytes" in read) == ("two_phase" in read) == (database.version >= 14)
    assert ("failover" in read) == ("inactive_since" in read) == (database.version >= 17)
    assert ("mem_exceeded_count" in read) == ("slotsync_skip_count" in read) == (database.version >= 19)
    if database.version >= 17:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(held["inactive_since"]))


def test_the_list_says_how_long_a_consumer_takes_to_confirm(newest_database: Database) -> None:
    publish(newest_database)
    newest_database.query("SELECT pg_create_logical_replication_slot('read', 'pgoutput')")

    def found() -> re.Match[str] | None:
        newest_database.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1, 'x' FROM t")
        out, _ = pgtail("slot", "list", "-v", newest_database.conninfo(), env={"COLUMNS": "300"})
        return re.search(r"  restart [0-9A-F/]+  takes (\d+ ms|\d\.\d s|\d+ s) to confirm  WAL reserved", out)

    with tailing(newest_database, "-S", "read", "--ack", "commit") as running:
        wait_for("delay", found)
        running.stop()


def test_table_stays_within_the_width_with_the_same_contents(newest_database: Database) -> None:
    database = newest_database
    publish(database)
    database.query("SELECT pg_create_logical_replication_slot('audit', 'pgoutput', false, true)")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    with physical_slot(database):
        for width in (40, 60, 80):
            given = ("slot", "list", database.conninfo(), "-o", "table")
            out, _ = pgtail(*given, env={"COLUMNS": str(width)})
            assert max(map(len, out.splitlines())) <= width
            lines = {line.split()[1]: line for line in out.splitlines() if line.startswith("●")}
            assert set(lines) >= {"audit", "phys"}
            for name in ("audit", "phys"):
                cause = r" +unread, no limit" if width >= 60 else ""
                assert re.fullmatch(rf"● {name} +inactive( \d+ (s|min))? +[0-9.]+ (bytes|[kM]B){cause}", lines[name])
            details, _ = pgtail(*given, "-v", env={"COLUMNS": str(width)})
            assert max(map(len, details.splitlines())) <= width
            words = " ".join(details.split())
            assert f"pgoutput database {database.name} lag " in words
            assert "two_phase" in words
            assert re.search("● phys [^●]* physical ", words)
            assert "\x1b" not in out + details
        color, _ = pgtail("slot", "list", database.conninfo(), "-o", "table", "--color", "always")
        assert "\x1b[1maudit" in color
        variables = {"PGTAIL_COLOR": "always", "PGTAIL_COLORS": "table=35"}
        color, _ = pgtail("slot", "list", database.conninfo(), "-o", "table", env=variables)
        assert "\x1b[35maudit" in color


def test_reports_in_a_pipe_are_plain_text(newest_database: Database) -> None:
    publish(newest_database)
    newest_database.query("SELECT pg_create_logical_replication_slot('audit', 'pgoutput')")
    for command in (["slot", "list"], ["doctor"], ["stats", "--slot", "audit"]):
        given = [*PROGRAM, *command, newest_database.conninfo()]
        text, json = [
            subprocess.run([*given, *output], capture_output=True, check=False, text=True).stdout
            for output in ([], ["-o", "json"])
        ]
        assert text
        assert not text.startswith("{")
        assert "\x1b" not in text
        assert lines(json)


def test_an_invalid_slot_and_a_server_without_slots(start_server: StartServer) -> None:
    server = start_server(max_slot_wal_keep_size="1MB")
    database = Database(server, "postgres")
    out, _ = pgtail("slot", "list", database.conninfo(), "-o", "table")
    assert "the server has no replication slots" in out
    database.query("SELECT pg_create_logical_replication_slot('lost', 'pgoutput')")
    database.execute("CREATE TABLE big (id int)")
    for _ in range(3):
        database.execute("SELECT pg_switch_wal()", "INSERT INTO big SELECT generate_series(1, 100000)", "CHECKPOINT")
    out, _ = pgtail("slot", "list", database.conninfo(), "-o", "table")
    assert re.search(r"● lost +INVALID +lost: wal_removed\n", out)
    [slot] = lines(pgtail("slot", "list", database.conninfo(), "-o", "json")[0])
    assert slot["wal_status"] == "lost"
    _, words = pgtail("stream", database.conninfo(), "--fork", "lost", status=3)
    assert "slot lost is invalidated" in words
    _, words = pgtail("stream", database.conninfo(), "-S", "nosuch", status=3)
    assert "lost, pgoutput, database postgres, invalidated" in words


def test_the_reader_is_hidden_from_an_ordinary_role(newest_database: Database) -> None:
    database = newest_database
    publish(database)
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    database.execute("CREATE ROLE nosy LOGIN")
    try:
        with tailing(database, "-S", "s") as running:
            running.wait_for_slot(database, "s")
            conninfo = database.conninfo(user="nosy")
            out, _ = pgtail("slot", "list", "-v", conninfo, "-o", "table", env={"COLUMNS": "160"})
            assert "client (hidden from this role: it needs pg_read_all_stats)" in out
            running.stop()
    finally:
        database.execute("DROP ROLE nosy")


def test_watch_repeats_until_ctrl_c(newest_database: Database) -> None:
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    command = [*PROGRAM, "slot", "list", newest_database.conninfo(), "--watch", "-o", "json"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(3):
            line = process.stdout.readline()
            assert b'"slot_name":"s"' in line
        assert json.loads(line)["wal_growth_bytes_per_minute"] >= 0
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=within(PATIENCE))
    assert process.returncode == 0
    assert errors == b""


def test_watch_shows_how_fast_the_retained_wal_grows(newest_database: Database) -> None:
    """The same picture after Ctrl-C; the slot that retains most is the first."""
    connector = Connector(parameters(newest_database.conninfo()))
    for name in ("a_new", "b_old"):
        newest_database.query(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    with connector.ordinary() as connection:
        new, old = [slot_report.report(connection, newest_database.version, name) for name in ("a_new", "b_old")]
    assert new is not None
    assert old is not None

    def at(held: int, safe: int | None, report: slot_report.SlotReport = old) -> slot_report.SlotReport:
        return replace(report, facts={**report.facts, "wal_held_bytes": held, "safe_wal_size": safe})

    growth, megabyte = SlotGrowth(), 1 << 20
    first = growth.added([at(megabyte, None, new), at(2 * megabyte, 90 * megabyte)], 0)
    assert [report.slot.name for report in first] == ["b_old", "a_new"]
    assert [(report.facts[GROWTH], report.facts[SAFE_SECONDS]) for report in first] == [(None, None)] * 2
    grown = growth.added([at(0, None, new), at(4 * megabyte, 88 * megabyte)], 30)
    facts = [(report.facts[GROWTH], report.facts[SAFE_SECONDS]) for report in grown]
    assert facts == [(4 * megabyte, 1320), (-2 * megabyte, None)]
    later = growth.added([at(4 * megabyte, 88 * megabyte)], 95)
    assert later[0].facts[GROWTH] == 0, "the last minute counts"
    words = " ".join(render(grown, None, PLAIN, width=100).split())
    assert "SLOT STATE WAL HELD A MINUTE TREND WHAT HOLDS IT" in words
    assert re.search(r"b_old inactive (?:\d+ (?:s|min) )?4.0 MB \+4.0 MB ▁█ lost in 22 min, unread ● a_new", words)
    assert re.search(r"a_new inactive (?:\d+ (?:s|min) )?0 bytes -2.0 MB █▁ unread$", words)
    by_name = render(grown, None, PLAIN, width=80, by_name=True)
    assert re.findall("● ([a-z_]+)", by_name) == ["a_new", "b_old"]
    for second in range(97, 400, 2):
        watched = growth.added([at(second, None)], second)
    assert watched[0].samples == tuple(range(339, 400, 2)), "those of the last minute"
    for width, cells in ((80, 8), (160, 30)):
        [trend] = re.findall("[▁▂▃▄▅▆▇█]+", render(watched, None, PLAIN, width=width))
        assert (len(trend), trend[0], trend[-1]) == (cells, "▁", "█")


def test_invalid_slots_come_first(newest_database: Database) -> None:
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with Connector(parameters(newest_database.conninfo())).ordinary() as connection:
        found = slot_report.report(connection, newest_database.version, "s")
    assert found is not None

    def slot(name: str, held: int, invalid: str | None = None) -> slot_report.SlotReport:
        row = replace(found.slot, name=name, invalid=invalid)
        return slot_report.SlotReport(row, {**found.facts, "wal_held_bytes": held})

    slots = [
        slot("little", 1 << 20),
        slot("lost", 5 << 30, "rows_removed"),
        slot("much", 2 << 30),
        slot("also", 2 << 30),
    ]
    shown = render(slots, None, PLAIN, width=80)
    assert re.findall("● ([a-z_]+)", shown) == ["lost", "also", "much", "little"]
    assert re.search(r"● lost +INVALID +lost: rows_removed\n", shown), "the server keeps nothing for it"


def test_names_of_slots_do_not_drive_the_terminal(newest_database: Database) -> None:
    """A real server has none such; what answers in its place may say anything."""
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with Connector(parameters(newest_database.conninfo())).ordinary() as connection:
        real = slot_report.report(connection, newest_database.version, "s")
    assert real is not None
    name = "\x1b[2J"
    slot = slot_report.SlotReport(replace(real.slot, name=name), real.facts)
    shown = render([slot], PgWal(unlimited=True, size=None, steps=(Step((name,), 1 << 24),)), PLAIN, width=80)
    assert "\x1b" not in shown
    assert shown.count(r"\x1b[2J") == 2


def test_watch_uses_the_alternate_screen_of_a_terminal(newest_database: Database) -> None:
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    command = [*PROGRAM, "slot", "list", newest_database.conninfo(), "--watch"]
    status, shown = on_terminal(command, until="inactive", answer="\x03")
    assert status == 0
    assert shown.startswith("\x1b[?1049h")
    pages, _, left = shown.partition("\x1b[?1049l\x1b[?25h")
    assert "q ends it, s sorts by name" in pages
    assert re.match(r"\d\d:\d\d:\d\d\r\n\r\npg_wal has ", left), "the last picture stays"
    assert "inactive" in left
    assert "ends it" not in left
    assert (
        on_terminal(["/bin/sh", "-c", 'exec "$@" < /dev/null', "sh", *command], until="Ctrl-C ends it", answer="\x03")[
            0
        ]
        == 0
    )


def test_watch_on_a_plain_terminal(newest_database: Database) -> None:
    """Reports follow each other without control sequences, and the samples are ASCII if the encoding has no more."""
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    command = [*PROGRAM, "slot", "list", newest_database.conninfo(), "--watch"]
    plain = {"TERM": "dumb", "LC_ALL": "C"}
    status, shown = on_terminal(command, before=[("inactive", "")], until="inactive", answer="\x03", env=plain)
    assert status == 0
    assert "\x1b" not in shown
    assert shown.count("TREND") == 2
    assert re.search(r" [.]+ +unread", shown)


def test_keys_change_the_order_and_end_it(start_server: StartServer) -> None:
    """On 24 lines those that are not shown are counted; the terminal is as it was before."""
    database = Database(start_server(max_replication_slots=40), "postgres")
    database.execute("CREATE TABLE t (id int)")
    for number in range(30):
        database.query(f"SELECT pg_create_logical_replication_slot('s{29 - number:02}', 'pgoutput')")
    shell = ["/bin/sh", "-c", 'stty -g; "$@"; echo "status $?"; stty -g', "sh"]
    status, shown = on_terminal(
        [*shell, *PROGRAM, "slot", "list", database.conninfo(), "--watch"],
        before=[("more slots", "s"), ("sorts worst first", "x"), ("sorts worst first", "s"), ("sorts by name", "s")],
        until="sorts worst first",
        answer="q",
        env={"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"},
    )
    assert status == 0
    screens, _, left = shown.partition("\x1b[?1049l")
    before, *pages = screens.split("\x1b[H")
    first = [re.findall("● (s[0-9]+)", page)[0] for page in pages]
    orders = ["by name" if "sorts worst first" in page else "worst first" for page in pages]
    assert first == [{"by name": "s00", "worst first": "s29"}[order] for order in orders]
    assert [order for order, _ in itertools.groupby(orders)] == ["worst first", "by name"] * 2
    for page in pages:
        lines = page.replace("\x1b[K", "").splitlines()
        assert len(lines) <= 24
        listed, [more] = page.count("●"), re.findall(r"… (\d+) more slots", page)
        assert listed + int(more) == 30
    assert left.count("●") == 30, "all are there when it ends"
    assert "status 0" in left
    assert before.split()[0] == left.split()[-1], "the terminal is as it was"


def test_keys_are_read_again_once_a_shell_has_restored_the_terminal(newest_database: Database, tmp_path: Path) -> None:
    """As after Ctrl-Z and fg."""
    shown = tmp_path / "shown"
    script = '(until test -e "$0"; do sleep 0.1; done; stty icanon echo < /dev/tty; echo restored) & exec "$@"'
    command = ["/bin/sh", "-c", script, str(shown), *PROGRAM, "slot", "list", newest_database.conninfo(), "--watch"]
    status, _ = on_terminal(command, before=[("q ends it", shown.touch), ("restored", "q")])
    assert status == 0


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_terminal(newest_database: Database, tmp_path: Path, ending: signal.Signals) -> None:
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    file = tmp_path / "pid"
    script = """stty -g; /bin/sh -c 'echo $$ > "$0"; exec "$@"' "$@"; stty -g"""
    status, shown = on_terminal(
        ["/bin/sh", "-c", script, "sh", str(file), *PROGRAM, "slot", "list", newest_database.conninfo(), "--watch"],
        before=[("q ends it", lambda: os.kill(int(file.read_text()), ending))],
    )
    assert status == 0
    assert shown.split()[0] == shown.split()[-1]


def test_watch_waits_for_a_server_that_is_away(start_server: StartServer) -> None:
    server = start_server()
    database = Database(server, "postgres")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with tailing("list", database.conninfo(), "--watch", "-o", "json", command="slot") as running:
        running.wait_for_lines(1)
        server.stop()
        running.wait_for_words("pgtail: the server is away since ")
        assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; trying again: .", running.stderr)
        server.start()
        running.wait_for_words("pgtail: connected again")
        running.wait_for_lines(len(running.out) + 2)
        running.stop()
        assert running.stderr.count("the server is away") == 1, "told once"

    command = [*PROGRAM, "slot", "list", database.conninfo(), "--watch"]
    away = "\x1b[Hevery 2 s, "
    status, shown = on_terminal(
        command,
        before=[("inactive", server.stop), ("the server is away since", server.start), ("inactive", server.stop)],
        until="the server is away since",
        answer="\x03",
        env={"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"},
    )
    assert status == 0
    pages, _, left = shown.partition("\x1b[?1049l")
    assert "the server is away" not in pages.split(away)[1]
    assert max(len(line) for line in left.splitlines()) <= 80
    assert re.search(r"the server is away since [-0-9: ]+; trying again: [^●]+SLOT[^●]+● s ", left), left


def test_watch_reports_a_server_that_does_not_answer(start_server: StartServer) -> None:
    """Its postmaster is stopped: it accepts connections, and never says anything on them."""
    server = start_server()
    database = Database(server, "postgres")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    postmaster = server.pid
    assert postmaster is not None
    with tailing("list", database.conninfo(), "--watch", "-o", "json", command="slot") as running:
        running.wait_for_lines(1)
        os.kill(postmaster, signal.SIGSTOP)
        try:
            running.wait_for_words("pgtail: the server is away since ")
        finally:
            os.kill(postmaster, signal.SIGCONT)
        running.wait_for_words("pgtail: connected again")
        running.stop()


def test_watch_of_a_server_that_was_never_there_is_an_error(tmp_path: Path) -> None:
    _, words = pgtail("slot", "list", f"host={tmp_path}", "--watch", status=75)
    assert "Check that the server runs, and where" in words


# -- create, copy, advance, drop -------------------------------------------------------------------------------


@since(12)
def test_create_copy_advance_and_drop(database: Database) -> None:
    publish(database)
    conninfo = database.conninfo()
    out, words = pgtail("slot", "create", "made", conninfo)
    assert slots(database)["made"] == ["pgoutput", False, out.strip()]
    assert "It retains WAL until it is dropped: pgtail slot drop made" in words
    database.execute("INSERT INTO t VALUES (1)")
    out, words = pgtail("slot", "copy", "made", "copied", conninfo)
    assert slots(database)["copied"] == slots(database)["made"] == ["pgoutput", False, out.strip()]
    out, _ = pgtail("slot", "copy", conninfo, "made", "other")  # as for create and drop, the DSN may come first
    assert slots(database)["other"] == ["pgoutput", False, out.strip()]
    before = database.value("SELECT pg_current_wal_flush_lsn()")
    out, _ = pgtail("slot", "advance", "copied", "now", conninfo, "--yes")
    assert slots(database)["copied"][2] == out.strip()
    assert database.value(f"SELECT '{out.strip()}'::pg_lsn >= '{before}'")
    assert slots(database)["made"][2] != out.strip()
    _, words = pgtail("slot", "drop", "copied", conninfo, "--yes")
    assert "slot copied was dropped" in words
    assert set(slots(database)) == {"made", "other"}


def test_the_slot_may_come_after_the_database(newest_database: Database) -> None:
    """As for stream with -S, or in the other order; a server has no database of the slot's name."""
    conninfo = newest_database.conninfo()
    server = newest_database.server
    where = {"PGHOST": str(server.directory), "PGPORT": str(server.port), "PGUSER": "postgres"}
    for name, arguments in {
        "one": [conninfo, "-S", "one"],
        "two": [conninfo, "two"],
        "three": [newest_database.name, "three"],
    }.items():
        pgtail("slot", "create", *arguments, env=where)
        assert set(slots(newest_database)) == {name}
        orders = [["now", conninfo, "-S", name], [*arguments, "now"], ["now", *arguments], [name, "now", conninfo]]
        for places in orders:
            out, _ = pgtail("slot", "advance", *places, "--yes", env=where)
            assert slots(newest_database)[name][2] == out.strip()
        pgtail("slot", "drop", *arguments, "--yes", env=where)
        assert slots(newest_database) == {}
    for command in (
        ["drop"],
        ["drop", "a", "b", "-S", "c"],
        ["advance", "a", "-S", "b"],
        ["advance", "a", "b"],
        ["advance"],
    ):
        pgtail("slot", *command, "--yes", status=2)
    _, words = pgtail("slot", "drop", "no_slot", "no_database", "--yes", env=where, status=3)
    assert 'database "no_database" does not exist' in words
    assert "The arguments are one slot and a database; of several slots, name each alone." in words


def test_impossible_requests_are_refused(newest_database: Database) -> None:
    conninfo = newest_database.conninfo()
    newest_database.query("SELECT pg_create_logical_replication_slot('made', 'pgoutput')")
    before = slots(newest_database)

    def refused(*arguments: str, status: int = 2) -> str:
        return pgtail("slot", *arguments, conninfo, status=status)[1]

    words = refused("create", "made", status=3)
    assert "slot made exists already" in words
    assert f"drop it: pgtail slot drop made '{conninfo}'\n" in words
    assert "slot made exists already" in refused("copy", "made", "made", status=3)
    assert "lower case" in refused("create", "Made")
    asked = "slot made was not changed: there is no terminal to ask on whether to"
    assert f"{asked} drop it, which cannot be undone; --yes" in refused("drop", "made")
    place = newest_database.value("SELECT pg_current_wal_flush_lsn()")
    assert f"{asked} advance it to {place}, which cannot be undone; --yes" in refused("advance", "made", place)
    assert "a slot cannot go back" in refused("advance", "made", "0/1", "--yes")
    assert "beyond the server's position" in refused("advance", "made", "FFFFFFFF/0", "--yes")
    words = refused("drop", "nosuch", "--yes", status=3)
    assert "there is no slot nosuch" in words
    assert "made, pgoutput" in words
    assert slots(newest_database) == before


def test_a_slot_in_use_is_neither_dropped_nor_advanced(newest_database: Database) -> None:
    publish(newest_database)
    pgtail("slot", "create", "s", newest_database.conninfo())
    with tailing(newest_database, "-S", "s") as running:
        running.wait_for_slot(newest_database, "s")
        for arguments in (["drop", "s"], ["advance", "s", "now"]):
            _, words = pgtail("slot", *arguments, newest_database.conninfo(), "--yes", status=75)
            assert "slot s is in use by pid" in words
        running.stop()


def test_action_is_reported_if_its_position_cannot_be_written(newest_database: Database) -> None:
    conninfo = newest_database.conninfo()
    for arguments, words in (
        (("slot", "create", "s", conninfo), "slot s was created. It retains WAL"),
        (("slot", "copy", "s", "c", conninfo), "slot c is a copy of s. It retains WAL"),
        (("slot", "advance", "s", "now", conninfo, "--yes"), ""),
    ):
        with open("/dev/full", "wb") as full:
            ran = subprocess.run([*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, check=False)
        said = ran.stderr.decode()
        assert (ran.returncode, words in said) == (4, True), said
        assert said.endswith("pgtail: error: cannot write to standard output: No space left on device\n")
    assert set(slots(newest_database)) == {"s", "c"}


def test_drop_asks(newest_database: Database) -> None:
    pgtail("slot", "create", "s", newest_database.conninfo())
    command = [*PROGRAM, "slot", "drop", "s", newest_database.conninfo()]
    status, shown = on_terminal(command, until="[y/N]", answer="n\n")
    assert status == 1
    assert f"slot s, pgoutput, database {newest_database.name}, at " in " ".join(shown.split())
    assert "nothing was done" in shown
    assert set(slots(newest_database)) == {"s"}
    status, shown = on_terminal(command, until="[y/N]", answer="y\n")
    assert status == 0, shown
    assert slots(newest_database) == {}


@since(17)
def test_two_phase_and_failover(database: Database) -> None:
    conninfo = database.conninfo()
    pgtail("slot", "create", "s", conninfo, "--two-phase", "--failover")
    assert database.query("SELECT two_phase, failover FROM pg_replication_slots") == [(True, True)]
    _, words = pgtail("slot", "copy", "s", "c", conninfo)
    assert "slot s has two_phase, its copy does not" in words
    assert "slot s has failover, its copy does not" in words
    rows = database.query("SELECT two_phase, failover FROM pg_replication_slots WHERE slot_name = 'c'")
    assert rows == [(False, False)]
    _, words = pgtail("slot", "create", "x", conninfo, "--temporary", "--failover", status=2)
    assert "it cannot fail over to a standby" in words


@since(10, before=17)
def test_failover_needs_17(database: Database) -> None:
    _, words = pgtail("slot", "create", "s", database.conninfo(), "--failover", status=2)
    assert "--failover needs PostgreSQL 17" in words


def test_create_waits_for_transactions_and_names_each_once(database: Database) -> None:
    publish(database)
    with database.connect() as session:
        session.execute("SET application_name TO 'long runner'")
        session.execute("BEGIN; INSERT INTO t VALUES (7)")
        command = [*PROGRAM, "slot", "create", "s", database.conninfo()]
        with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            said = process.stderr.readline().decode()
            assert "waits for a transaction to end" in said
            assert f"pid {session.info.backend_pid}, user postgres, long runner" in said
            time.sleep(1.5)
            session.execute("COMMIT")
            out, rest = process.communicate(timeout=within(PATIENCE))
    assert process.returncode == 0
    assert slots(database)["s"] == ["pgoutput", False, out.decode().strip()]
    said = f"slot s was created. It retains WAL until it is dropped: pgtail slot drop s '{database.conninfo()}'"
    assert rest.decode() == f"pgtail: {said}\n"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_temporary_slot_exists_until_the_command_ends(newest_database: Database, ending: signal.Signals) -> None:
    command = [*PROGRAM, "slot", "create", "s", newest_database.conninfo(), "--temporary"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        point = process.stdout.readline().decode().strip()
        assert slots(newest_database)["s"] == ["pgoutput", True, point]
        process.send_signal(ending)
        process.communicate(timeout=within(PATIENCE))
    assert process.returncode == (0 if ending is signal.SIGINT else -ending)
    wait_for("end of the slot", lambda: not slots(newest_database))
