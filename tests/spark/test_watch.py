"""`pgtail spark` as its users run it: also killed in the middle of --watch, and interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pgtail.cli import main
from pgtail.commands.spark import SparkProgress
from pgtail.errors import InputError, OptionError
from pgtail.spark import stored
from pgtail.spark.datasets.manifest import Output
from pgtail.spark.datasets.update import Datasets
from pgtail.spark.datasets.watch import watch
from tests.support.corpus import capture
from tests.support.limits import within
from tests.support.run import command
from tests.support.spark import model
from tests.support.spark.captures import plain, record, rows_of
from tests.support.spark.quick import QUICK
from tests.support.spark.world import as_texts, same_as_model, same_lives
from tests.support.terminals import open_terminal

MANY = capture("D_twophase", "p3_2pc")
CONF = [f"--conf={name}={value}" for name, value in QUICK.items()]
PATIENCE = 100


def in_order(found: Any) -> list[dict[str, Any]]:
    return sorted(plain(found.toArrow()), key=lambda row: (row["position"], row["ordinal"], row["seq"] or 0))


def test_streaming_gives_what_one_batch_gives(spark: Any, tmp_path: Path) -> None:
    paths = record(MANY, tmp_path / "one", size=20_000)
    record(MANY, tmp_path / "other", size=45_000)
    captures = [str(tmp_path / "one"), str(tmp_path / "other")]
    datasets = Datasets(spark, str(tmp_path / "out"))
    watch(spark, captures, datasets, once=True)
    rows = rows_of(paths)
    assert in_order(stored(spark, str(tmp_path / "out"), "changes")) == rows


def test_damage_ends_it_and_is_named(spark: Any, tmp_path: Path) -> None:
    [path] = record(capture("Z_small", "p1"), tmp_path / "capture")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=f"^file:{path}: "):
        watch(spark, [str(path.parent)], Datasets(spark, str(tmp_path / "out")), once=True)


def test_what_ends_a_batch_is_told_as_without_watch(spark: Any, tmp_path: Path) -> None:
    record(capture("Z_small", "p1"), tmp_path / "capture")
    out = str(tmp_path / "out")
    with Output(out).writing("parquet", []), pytest.raises(OptionError, match="another process writes to"):
        watch(spark, [str(tmp_path / "capture")], Datasets(spark, out), once=True)


Start = Callable[[str, Path, Path], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a --watch with the JVM in its process group; what is left of it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def watching(kind: str, capture_: Path, out: Path) -> subprocess.Popen[str]:
        arguments = ["spark", kind, "--watch", "--every=1s", "--master=local[1]", *CONF, str(capture_), str(out)]
        program = "from pgtail.cli import main; main(prog_name='pgtail')"
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
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


def batches(out: Path) -> int:
    return len(list(out.glob("changes/batch=*")))


@pytest.mark.timeout(300)
def test_killed_in_mid_watch_and_started_again_it_gives_the_same(spark: Any, tmp_path: Path, start: Start) -> None:
    """Segments appear one by one, in any order; it is killed while it works on one, and ended by Ctrl-C at last.

    The changes, and every row or (history) every version of every row, are then those of an undisturbed run.
    """
    paths = record(MANY, tmp_path / "whole", size=30_000)
    assert len(paths) > 4
    rows = rows_of(paths)
    growing, out = tmp_path / "growing", tmp_path / "out"
    growing.mkdir()
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    # The beginning comes first, or there would be no history to be killed over.
    later = paths[3:]
    chance.shuffle(later)
    arriving = [*paths[:3], *later]
    moment, kind = chance.randrange(3), chance.choice(["history", "state"])
    root = out / kind
    begun = root / "data"
    arrive(arriving[:1], growing)
    first = start(kind, growing, out)
    wait_for((root / "manifest.json").exists, first)
    known = len(list(begun.iterdir()))
    arrive(arriving[1:3], growing)
    # While it makes changes, between these and the state or history, while it makes that.
    if moment == 0:
        wait_for(lambda: any(out.glob("_pgtail/staging-*")) or batches(out) >= 2, first)
    else:
        wait_for(lambda: batches(out) >= 2 and (moment == 1 or len(list(begun.iterdir())) > known), first)
    first.kill()
    first.communicate()
    arrive(arriving[3:-1], growing)
    second = start(kind, growing, out)
    known = batches(out)
    wait_for(lambda: batches(out) > known, second)
    arrive(arriving[-1:], growing)
    wait_for(lambda: applied_to(root) == paths[-1].stem, second)
    assert applied(out) == len(paths)
    second.send_signal(signal.SIGINT)
    _, errors = second.communicate(timeout=within(PATIENCE))
    assert second.returncode == 0, errors
    assert "Traceback" not in errors
    assert re.search(r"stopped: what was written stays", errors)
    wait_until_gone(second.pid)
    assert in_order(stored(spark, str(out), "changes")) == rows
    whole = tmp_path / "whole"
    folds = model.folds(model.committed(model.changes(whole)), model.relations(whole), history=kind == "history")
    same_as_model(folds, as_texts(spark, root))
    if kind == "history":
        same_lives(spark, root, folds)


def arrive(paths: list[Path], folder: Path) -> None:
    """As a recorder does it: whole under another name first."""
    for path in paths:
        part = folder / f"{path.name}.part"
        shutil.copy(path, part)
        part.rename(folder / path.name)


def applied(out: Path) -> int:
    """How many segments the manifest names."""
    return len(json.loads((out / "_pgtail" / "manifest.json").read_bytes())["segments"])


def applied_to(root: Path) -> str:
    """The name of the last segment that is in a state or history."""
    return str(json.loads((root / "manifest.json").read_bytes())["last"])


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
    monkeypatch.setattr("pgtail.commands.spark.session", lambda *_, **__: contextlib.nullcontext(spark))
    [path] = record(capture("Z_small", "p1"), tmp_path / "capture")
    arguments = ["spark", "changes", str(tmp_path / "capture"), str(tmp_path / "out")]
    for said in ("1 new segment", "0 new segments"):
        done = CliRunner().invoke(main, arguments)
        assert (done.exit_code, done.output) == (0, f"pgtail: {said}\n")
    assert in_order(spark.read.parquet(str(tmp_path / "out" / "changes")).drop("batch")) == rows_of([path])
    path.rename(path.with_name("0" * 16 + "-" + "0" * 10 + ".pgcap")).write_bytes(b"S\0")
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert done.output.startswith(f"pgtail: error: file:{tmp_path}/capture/0000")


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
        progress = SparkProgress(0)
        with progress.shown(spark):
            Datasets(spark, str(tmp_path / "out"), tell=progress.tell).update([str(tmp_path / "capture")])
            time.sleep(1)
    looking.join()
    os.close(master)
    text = b"".join(shown).decode()
    assert "collecting tables" in text
    assert "\x1b[2K" in text[-40:], "the line is gone at the end"


def test_the_queries_of_the_manual_run_on_what_the_command_writes(spark: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "man/parts/pgtail-spark.1.md").read_text(encoding="utf-8")
    [block] = [text for text in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if "warehouse/changes" in text]
    paths = record(capture("A_dml", "p1"), tmp_path / "capture")
    Datasets(spark, str(tmp_path / "warehouse")).update([str(tmp_path / "capture")])
    statements = block.replace("parquet.`warehouse", f"parquet.`{tmp_path}/warehouse").replace(
        "'orders'", "'t_default'"
    )
    _, counted, history = [spark.sql(text).collect() for text in statements.split(";") if text.strip()]
    rows = rows_of(paths)
    counts = Counter((row["schema"], row["table"], row["op"]) for row in rows)
    assert {(row.schema, row.table, row.op): row[3] for row in counted} == counts
    ids = [{**(row["old"] or {}), **(row["new"] or {})}.get("id") for row in rows]
    of_row = [row for row, id_ in zip(rows, ids, strict=True) if row["table"] == "t_default" and id_ == "1"]
    assert [row.op for row in history] == [row["op"] for row in of_row]
    assert len(history) > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["capture"], "expected CAPTURE... OUT"),
        (["--conf=x", "capture", "out"], "--conf x: expected NAME=VALUE"),
        (["--watch", "--compact", "capture", "out"], "--watch does not end"),
        (["capture", "s3a://bucket/out"], "a manifest cannot be kept on s3a"),
        (["--every=soon", "capture", "out"], "'soon' is not a time such as 30s"),
    ],
)
def test_a_command_line_that_makes_no_sense_starts_nothing(arguments: list[str], said: str) -> None:
    done = command("spark", "changes", *arguments)
    assert done.status == 2
    assert said in done.stderr
