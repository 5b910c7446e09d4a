"""Services as those who watch them see them: metrics, health, systemd's notifications, logs, signals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pgtail.capture.contents import ContentsCounter
from pgtail.cli.record import command as record_command
from pgtail.commands.options.server import Address, ServiceOptions
from pgtail.commands.service.service import Notifier, Service
from pgtail.service.progress import CommitTimes, Counts, SlotProgress
from tests.support.limits import within
from tests.support.messages import messages_said
from tests.support.run import command, here
from tests.support.servers import Database
from tests.support.services import DIRECT, Notifications, service, values_of, walsender
from tests.support.tail import tailing, terminate, wait_for

MAN = Path(__file__).parents[3] / "man"
HOSTILE = 'a"b\\c\nd\x1b[31m{e="f"} 1'
"""The name of a table that could end a label."""


def test_what_a_recorder_shows(newest_database: Database, tmp_path: Path) -> None:
    database, secret = newest_database, "SecretOfThisTest"
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    database.execute(f"CREATE TABLE {quoted} (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR ALL TABLES")
    systemd = Notifications(f"@pgtail-test-{os.getpid()}")
    arguments = ["record", database.conninfo(password=secret), "-S", "cap", "-D", str(tmp_path / "c")]
    arguments += ["--segment-age", "1s", "--max-lag", "1000TB"]
    environment = {"NOTIFY_SOCKET": systemd.name, "WATCHDOG_USEC": "1500000"}
    with service(*arguments, environment=environment) as running:
        wait_for("readiness", lambda: "READY=1" in systemd.lines)
        database.execute(
            f"INSERT INTO {quoted} SELECT i, 'x' FROM generate_series(1, 500) i",
            f"UPDATE {quoted} SET v = 'y' WHERE id < 8",
            f"DELETE FROM {quoted} WHERE id = 9",
            f"TRUNCATE {quoted}",
        )
        running.event("segment_closed")
        wait_for("end of the lag", lambda: running.value("pgtail_lag_bytes") == 0)
        text = running.get("/metrics")[1]
        found = values_of(text)
        rows = {key[1:]: value for key, value in found.items() if key[0] == "pgtail_rows_total"}
        of_table = {operation: count for operation, schema, table, count in [(*key, rows[key]) for key in rows]}
        assert {key[1:] for key in rows} == {("public", HOSTILE)}
        assert of_table == {"insert": 500, "update": 7, "delete": 1, "truncate": 1}
        assert found["pgtail_transactions_total",] == 4
        assert found["pgtail_read_rows_total",] == 509
        assert found["pgtail_written_position_bytes",] >= found["pgtail_server_position_bytes",] > 0
        assert abs(found["pgtail_last_commit_timestamp_seconds",] - time.time()) < 300
        assert (found["pgtail_up",], found["pgtail_lag_exceeded",], found["pgtail_lag_seconds",]) == (1, 0, 0)
        assert _lint(text) == []
        assert running.health() == (200, {"status": "ok"})
        assert running.get("/")[0] == 404

        pid = walsender(database)
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        assert running.becomes(503) == "the server is silent"
        assert running.value("pgtail_up") == 0
        assert time.monotonic() - begun < 15 or os.getloadavg()[0] > 4
        wait_for("a status", lambda: "STATUS=the server is silent" in systemd.lines)
        os.kill(pid, signal.SIGCONT)
        running.becomes(200, lambda reason: reason == "{'status': 'ok'}")
        terminate(database)
        running.event("reconnected")
        wait_for("one reconnection", lambda: running.value("pgtail_reconnections_total") == 1)
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 0
        assert [one for one in running.log if {"time", "level", "event", "message"} - one.keys()] == []
        assert secret not in json.dumps(running.log)
    wait_for("the end", lambda: "STOPPING=1" in systemd.lines)
    assert systemd.lines.count("READY=1") == 1
    assert systemd.lines.count("WATCHDOG=1") >= 5
    assert any("rows/s" in line for line in systemd.lines)


def _lint(text: str) -> list[str]:
    """What `promtool check metrics` would object to, by its rules (client_golang, promlint)."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    problems = [f"{name} has no help" for name in kinds if not helps.get(name)]
    for name, kind in kinds.items():
        if (kind == "counter") != name.endswith("_total"):
            problems.append(f"{name} is a {kind}")
        if re.search(r"[A-Z]|__|_(gauge|counter|count|sum|bucket)$", name) or not name.startswith("pgtail_"):
            problems.append(f"{name}: a bad name")
        if re.search(r"(milli|micro|nano|kilo|mega)?(seconds|bytes)_(?!total$)", name):
            problems.append(f"{name}: its unit is not at the end")
        if re.search(r"_(ms|millis|us|minutes|hours|days|kb|mb|percent)(_|$)", name):
            problems.append(f"{name}: not a base unit")
    promtool = shutil.which("promtool")
    if promtool is not None:
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, check=False, text=True
        )
        problems += [checked.stderr] if checked.returncode else []
    samples = re.findall(r"^([a-z_]+)(\{.*\})? \S+$", text, re.MULTILINE)
    return problems + [f"{name} has no type" for name, _ in samples if name not in kinds]


def test_pages_rules_and_dashboard_name_what_there_is() -> None:
    import prometheus_client.process_collector as processes

    from pgtail.commands.service import metrics

    there = set(re.findall(r'"(pgtail_[a-z_]+)"', Path(metrics.__file__).read_text(encoding="utf-8")))
    there = {{"pgtail_rows": "pgtail_rows_total", "pgtail_spark_changes": "pgtail_spark_changes_total"}.get(one, one)
             for one in there} | {"pgtail_info"}  # fmt: skip
    own = re.findall(r"_prefix \+ '([a-z_]+)'", Path(processes.__file__).read_text(encoding="utf-8"))
    there |= {f"pgtail_process_{name}" for name in own}
    page = (MAN / "parts" / "pgtail-metrics.7.md").read_text(encoding="utf-8")
    described = {name for line in re.findall(r"^`pgtail_.*`$", page, re.MULTILINE) for name in re.findall(r"\w+", line)}
    assert described == there
    rules = (MAN / "pgtail-alerts.yml").read_text(encoding="utf-8")
    assert f"```\n{rules}```" in page
    dashboard = json.loads((MAN / "pgtail-dashboard.json").read_text(encoding="utf-8"))
    shown = json.dumps(dashboard["panels"])
    for text in (rules, shown):
        names = set(re.findall(r"pgtail_[a-z_]+", text))
        assert names
        assert names <= there


def test_each_alert_comes(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    made_up = (Path(__file__).with_name("alerts.yml")).read_text(encoding="utf-8")
    (tmp_path / "test.yml").write_text(made_up.replace("RULES", str(MAN / "pgtail-alerts.yml")), encoding="utf-8")
    for kind, file in (("check", MAN / "pgtail-alerts.yml"), ("test", tmp_path / "test.yml")):
        done = subprocess.run([promtool, kind, "rules", str(file)], capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    rules = (MAN / "pgtail-alerts.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"alert: (\w+)", rules)) == set(re.findall(r"alertname: (\w+)", made_up))


def test_systemd_accepts_the_units_of_the_page(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    page = (MAN / "parts" / "pgtail-service.7.md").read_text(encoding="utf-8")
    units = re.findall(r"^# /etc/systemd/system/(\S+)\n((?:(?!^```|^# /etc).*\n)+)", page, re.MULTILINE)
    assert [name for name, _ in units] == ["pgtail-record@.service", "pgtail-spark.service", "pgtail-spark.timer"]
    for name, text in units:
        there = text.replace("/usr/local/bin/pgtail", sys.executable)
        (tmp_path / name.replace("@", "@shop")).write_text(there, encoding="utf-8")
    for one in tmp_path.iterdir():
        verify = ["systemd-analyze", "verify", "--man=no", f"./{one.name}"]
        done = subprocess.run(verify, cwd=tmp_path, capture_output=True, check=False, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), one.name


@pytest.mark.parametrize("output", ["json", "csv"])
def test_logrotate(newest_database: Database, tmp_path: Path, output: str) -> None:
    database, file, old = newest_database, tmp_path / "changes", tmp_path / "old"
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    with tailing(database, "-S", "s", "--create-slot", "--ack", "commit", "-o", output, "-f", str(file)) as running:
        running.wait_for_slot(database, "s")

        def text(path: Path) -> str:
            return path.read_text() if path.exists() else ""

        database.execute("INSERT INTO t VALUES (1)")
        wait_for("a change", lambda: text(file).count("\n") == 1 + (output == "csv"))
        file.rename(old)
        before = text(old)
        running.process.send_signal(signal.SIGUSR1)
        wait_for("a new file", file.exists)
        database.execute("INSERT INTO t VALUES (2)")
        wait_for("the next change", lambda: text(file).count("\n") == 1 + (output == "csv"))
        running.stop()
    assert text(old) == before
    if output == "csv":
        assert text(old).splitlines()[0] == text(file).splitlines()[0]
    else:
        assert [json.loads(text(one))["new"] for one in (old, file)] == [{"id": 1}, {"id": 2}]


class _Output:
    """What Progress reads of an output."""

    busy_since: float | None = None
    uploading_since: float | None = None
    commit_time: int | None = None
    delivered = acknowledged = 0

    def counts(self) -> Counts:
        return Counts(0, 0)

    def status_words(self) -> list[str]:
        return ["2 rows"]


def test_lag() -> None:
    progress, output, now = SlotProgress(), _Output(), time.monotonic()
    progress.output = output
    progress.followed(now)
    assert (progress.lag_bytes, progress.lag_seconds(now)) == (None, None)
    output.acknowledged = 900
    progress.server_at(1000, now)
    assert (progress.lag_bytes, progress.lag_seconds(now)) == (100, None)  # nothing was written yet
    output.commit_time = (time.time_ns() // 1000 - 946_684_800_000_000) - 60_000_000
    assert 59 < (progress.lag_seconds(now) or 0) < 62
    output.acknowledged = 1000
    progress.server_at(1000, now)
    assert progress.lag_seconds(now) == 0
    progress.lost("away")
    found = progress.trouble(now)
    assert found is not None
    assert found.reason == "away"
    assert (progress.lag_seconds(now) or 0) < 2  # since nothing was missing, not since the last commit
    assert progress.status(now) == ["0/0", "lag 1.0 kB", "2 rows"]
    assert progress.status(now + 20) == ["0/0", "2 rows"]  # it is not known any more where the server is
    with progress.copying_tables():
        assert progress.trouble(now) is None
        assert progress.status(now) == ["copying tables"]
    progress.followed(now)
    assert progress.trouble(now) is None
    assert progress.trouble(now + 4) is not None  # silent
    output.busy_since = now - 6
    assert progress.trouble(now) == (now - 6, "the output is blocked")
    output.busy_since, output.uploading_since = None, now - 29
    assert progress.trouble(now) is None
    output.uploading_since = now - 31
    assert progress.trouble(now) == (now - 31, "the upload takes long")
    assert not progress.is_stuck(now, 30)


def test_metrics_over_http_need_no_other_thread() -> None:
    options = ServiceOptions(metrics=Address("127.0.0.1", 0))
    with messages_said() as said, Service(options, SlotProgress(), {"command": "record"}):
        assert [one.name for one in threading.enumerate() if one.name in ("service", "metrics")] == ["metrics"]
        with DIRECT.open(said[0].removeprefix("note: metrics at "), timeout=within(30)) as answer:
            assert b"pgtail_up 0" in answer.read()
    wait_for("the end", lambda: "metrics" not in [one.name for one in threading.enumerate()])


def test_commit_times_belong_to_positions() -> None:
    times = CommitTimes()
    times.reached(10, 1)
    times.reached(20, 2)
    assert times.written(9) is None
    assert times.written(15) == 1
    assert times.written(20) == 2
    for position in range(30, 10_000):
        times.reached(position, position)
    assert times.written(29) == 2
    assert times.written(9999) == 9999


def _described(oid: int) -> bytes:
    """A frame that describes a table."""
    return b"w" + bytes(24) + b"R" + oid.to_bytes(4, "big") + b"s\0t%d\0d\0\0" % oid


def _inserted(oid: int) -> bytes:
    """A frame with a row of it."""
    return b"w" + bytes(24) + b"I" + oid.to_bytes(4, "big") + b"N\0\0"


def test_rows_of_many_tables_are_counted_together() -> None:
    counter = ContentsCounter()
    for number in range(1500):
        counter.take_frame(_described(number))
        counter.take_frame(_inserted(number))
        if number % 100 == 0:
            counter.start_segment({}, inside=False)
    found = counter.rows_by_table()
    assert len(found) == 1001
    assert sum(one.inserts for one in found) == 1500
    assert [one.inserts for one in found if not one.table] == [500]


def test_nothing_is_sent_without_systemd(tmp_path: Path) -> None:
    assert not Notifier({})
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).send("READY=1")
    there = Notifications(str(tmp_path / "socket"))
    other = Notifier({"NOTIFY_SOCKET": there.name, "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"})
    assert other.watchdog is None
    other.status("a\nREADY=1")
    wait_for("a status", lambda: there.lines)
    assert there.lines == ["STATUS=a READY=1"]


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--metrics", "port", "'port' is not a port, or HOST:PORT"),
        ("--metrics", "h:99999", "is not a port"),
        ("--max-lag", "5", "5 needs a unit: 500MB, or 5m"),
        ("--max-lag", "much", "'much' is neither a size such as 500MB nor a time such as 5m"),
    ],
)
def test_invalid_options(option: str, text: str, words: str) -> None:
    result = here("record", "-D", "c", option, text)
    assert (result.status, words in result.stderr) == (2, True), result.stderr


def test_addresses_and_lags() -> None:
    def given(*arguments: str) -> dict[str, object]:
        return record_command.make_context("record", ["-D", "c", *arguments]).params

    assert given("--metrics", "9187")["metrics"] == ("127.0.0.1", 9187)
    assert given("--metrics", "[::1]:9187")["metrics"] == ("::1", 9187)
    assert given("--max-lag", "5m")["max_lag"] == (None, 300)
    assert given("--max-lag", "5MB")["max_lag"] == (5 << 20, None)


def test_a_port_in_use(newest_database: Database, tmp_path: Path) -> None:
    database = newest_database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    with service("record", database.conninfo(), "-S", "s", "-D", str(tmp_path / "c")) as running:
        port = str(running.port)
        result = command("stream", database.conninfo(), "--metrics", port)
        assert (result.status, f"cannot listen on 127.0.0.1:{port}" in result.stderr) == (2, True), result.stderr
