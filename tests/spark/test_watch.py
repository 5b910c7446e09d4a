"""`pgtail spark` as its users run it: also killed in the middle of --watch, and interrupted."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pgtail.cli import main
from pgtail.commands.console.messages import messages
from pgtail.commands.options.common import Verbosity
from pgtail.commands.spark.command import SparkProgress
from pgtail.humanize import seconds_text
from pgtail.log import log_outcome
from pgtail.spark import read
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.update import update_state
from pgtail.storage import locate
from tests.spark.test_changes import in_order
from tests.support.corpus import capture
from tests.support.limits import within
from tests.support.services import DIRECT, values_of
from tests.support.spark import model, quick
from tests.support.spark.captures import record, rows_of
from tests.support.spark.world import apply, same_as_model, same_lives, stored
from tests.support.terminals import open_terminal

MANY = capture("D_twophase", "p3_2pc")
PATIENCE = 100


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a --watch with the JVM in its process group; what is left of it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def watching(kind: str, capture_: Path, out: Path, *more: str) -> subprocess.Popen[str]:
        options = [kind, *more, "--watch", "--every=1s", "--master=local[1]", *quick.CONF]
        process = quick.start([*options, str(capture_), str(out)], stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield watching
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def wait_for(what: Any, process: subprocess.Popen[str]) -> None:
    begun = time.monotonic()
    while not what():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() - begun < within(PATIENCE)
        time.sleep(0.2)


def applied(out: Path, kind: str = "") -> Any:
    """How far `changes` (or a state, a history) is: the names of the last segments, or a position."""
    plan = Batches(locate(str(out))).plan
    if kind:
        return plan.notes[kind].end.position if kind in plan.notes else -1
    return [one.end for capture_ in plan.captures.values() for one in capture_.runs]


def metrics(port: int) -> dict[tuple[str, ...], float]:
    with DIRECT.open(f"http://127.0.0.1:{port}/metrics", timeout=within(30)) as answer:
        return values_of(answer.read().decode())


def test_killed_in_mid_watch_and_started_again_it_gives_the_same(
    spark: Any, tmp_path: Path, start: Start, seed: random.Random
) -> None:
    """Segments appear one by one, in any order; it is killed while it works on one, and ended by Ctrl-C at last.

    The changes, and every row or (history) every version of every row, are then those of an undisturbed run. A reader
    sees whole batches at any time.
    """
    paths = record(MANY, tmp_path / "whole", size=30_000)
    assert len(paths) > 4
    rows = rows_of(paths)
    growing, out = tmp_path / "growing", tmp_path / "out"
    growing.mkdir()
    # The beginning comes first, or there would be no history to be killed over.
    later = paths[3:]
    seed.shuffle(later)
    arriving = [*paths[:3], *later]
    kind = seed.choice(["history", "state"])
    arrive(arriving[:1], growing)
    apply(spark, out, [str(growing)], history=kind == "history")
    known = files_in(out)
    arrive(arriving[1:3], growing)
    first = start(kind, growing, out)
    # As soon as it has written some of its files, and then any time.
    wait_for(lambda: files_in(out) > known, first)
    time.sleep(seed.random())
    first.kill()
    first.communicate()
    numbers = {row["position"] for row in rows_of(arriving[:3])}
    there = in_order(read(spark, str(out), "changes"))
    assert {row["position"] for row in there} <= numbers
    assert there in [rows_of(sorted(arriving[:count])) for count in (1, 2, 3)]
    arrive(arriving[3:-1], growing)
    [there_before] = Batches(locate(str(out))).plan.captures.values()
    new = [path for path in paths if not there_before.has(path.stem)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    second = start(kind, growing, out, f"--metrics={port}")
    wait_for(lambda: len(applied(out)) and arriving[3].stem <= max(applied(out)), second)
    arrive(arriving[-1:], growing)
    wait_for(lambda: applied(out) == [paths[-1].stem] and applied(out, kind) >= rows[-1]["position"], second)
    # It is up once its first run has ended, which is after that wrote its last table.
    wait_for(lambda: metrics(port)["pgtail_up",] == 1, second)
    found = metrics(port)
    second.send_signal(signal.SIGINT)
    _, errors = second.communicate(timeout=within(PATIENCE))
    assert second.returncode == 0, errors
    assert "Traceback" not in errors
    assert re.search(r"stopped: what was written stays", errors)
    assert found["pgtail_spark_segments_total",] in (len(new) - 1, len(new))
    # The signal may have come between the last plan and its last table: that batch does not count yet.
    assert Batches(locate(str(out))).plan.batch - found["pgtail_spark_batch",] in (0, 1)
    assert found["pgtail_spark_changes_total", kind] > 0
    wait_until_gone(second.pid)
    assert in_order(read(spark, str(out), "changes")) == rows
    # It ends a batch that was broken off.
    Lake(spark, str(out))
    whole = tmp_path / "whole"
    folds = model.folds(model.committed(model.changes(whole)), model.relations(whole), history=kind == "history")
    (same_lives if kind == "history" else same_as_model)(folds, stored(out, kind))


def files_in(out: Path) -> int:
    """How many data files there are."""
    return len(list(out.glob("**/*.parquet")))


def arrive(paths: list[Path], folder: Path) -> None:
    """As a recorder does it: whole under another name first."""
    for path in paths:
        part = folder / f"{path.name}.part"
        shutil.copy(path, part)
        part.rename(folder / path.name)


def wait_until_gone(group: int) -> None:
    """No process of the group is left, the JVM among them."""
    end = time.monotonic() + within(20)
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("a process is left over")


def test_the_command_says_what_it_did(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the session that runs already, so as not to start another one."""
    monkeypatch.setattr("pgtail.commands.spark.command.session", lambda *_, **__: contextlib.nullcontext(spark))
    [path] = record(capture("Z_small", "p1"), tmp_path / "capture")
    arguments = ["spark", "changes", str(tmp_path / "capture"), str(tmp_path / "out")]
    for said in ("1 new segment", "0 new segments"):
        done = CliRunner().invoke(main, arguments)
        assert (done.exit_code, done.output) == (0, f"pgtail: {said}\n")
    assert in_order(read(spark, str(tmp_path / "out"), "changes")) == rows_of([path])
    path.rename(path.with_name("0" * 8 + "F" * 8 + "-" + "0" * 10 + ".pgcap")).write_bytes(b"S\0")
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert done.output.startswith(f"pgtail: error: {tmp_path}/capture/0000")


def test_on_a_terminal_it_shows_how_far_it_is(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(capture("Z_small", "p1"), tmp_path / "capture")
    monkeypatch.setenv("TERM", "xterm")
    master, slave = open_terminal()
    shown: list[bytes] = []

    def look() -> None:
        """A terminal that nobody reads would stop the writer."""
        with contextlib.suppress(OSError):
            while data := os.read(master, 4096):
                shown.append(data)

    looking = threading.Thread(target=look)
    looking.start()
    with open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        progress = SparkProgress(Verbosity())

        def show_task(text: str) -> None:
            """The bar is drawn twice a second."""
            progress.show_task(text)
            time.sleep(1)

        with messages(), progress.shown(), progress.counting(spark):
            lake = Lake(spark, str(tmp_path / "out"), show_task=show_task)
            assert lake.newest() is None
            lake.update([str(tmp_path / "capture")])
            log_outcome("1 new segment")
            newest = lake.newest()
            progress.wait(newest)
            time.sleep(1)
    looking.join()
    os.close(master)
    text = b"".join(shown).decode()
    assert all(words in text for words in ("starting Spark", "decoding 1 segment ", "collecting tables"))
    times = [row["commit_ts"] for row in rows_of(record(capture("Z_small", "p1"), tmp_path / "again"))]
    assert newest == datetime.fromisoformat(max(times))
    age = seconds_text(int((datetime.now(UTC) - newest).total_seconds()))  # of days
    assert f"waiting for new segments (lake is {age} old)" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert "━" not in text.rpartition("waiting for new segments")[2], "no bar while nothing is under way"
    assert "\x1b[2Kpgtail: 1 new segment" in text, "a message stands where the bar was"
    assert "\x1b[2K" in text[-40:], "the line is gone at the end"


def test_the_queries_of_the_manual_run_on_what_the_command_writes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of SQL and of Python, on a warehouse of its own; test_cluster.py runs those that need a cluster."""
    parts = Path(__file__).parents[2] / "man/parts"
    page = "".join((parts / f"pgtail-spark{name}.md").read_text(encoding="utf-8") for name in (".1", "-source.7"))
    paths = record(capture("A_dml", "p1"), tmp_path / "capture")
    lake = Lake(spark, str(tmp_path / "warehouse"))
    lake.update([str(tmp_path / "capture")], typed=True)
    update_state(lake, Settings())
    monkeypatch.chdir(tmp_path)
    page = page.replace("public.orders", "public.t_default").replace("'orders'", "'t_default'")
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(programs) > 1
    names: dict[str, Any] = {"spark": spark}
    for program in programs:
        program = program.replace('"captures/shop"', repr(str(tmp_path / "capture")))
        exec(program.replace('"orders', f'"{tmp_path}/orders'), names)  # the JVM has another working directory
    assert names["by_polars"] == names["by_pandas"] == names["by_duckdb"] == names["by_spark"] > 0
    of_table = [row for row in rows_of(paths) if row["table"] == "t_default"]
    assert spark.read.parquet(str(tmp_path / "orders")).count() == len(of_table)
    [block] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    read(spark, "warehouse", "changes").createOrReplaceTempView("changes")
    counted, history = [spark.sql(text).collect() for text in block.split(";") if text.strip()]
    rows = rows_of(paths)
    counts = Counter((row["schema"], row["table"], row["op"]) for row in rows)
    assert {(row.schema, row.table, row.op): row[3] for row in counted} == counts
    ids = [{**(row["old"] or {}), **(row["new"] or {})}.get("id") for row in rows]
    of_row = [row for row, id_ in zip(rows, ids, strict=True) if row["table"] == "t_default" and id_ == "1"]
    assert [row.op for row in history] == [row["op"] for row in of_row]
    assert len(history) > 1
