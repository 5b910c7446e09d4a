"""pgtail under spark-submit: its master and its settings hold, unless pgtail's own options say otherwise."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from pgtail.spark.session import set_java_home
from tests.support.corpus import capture
from tests.support.limits import within
from tests.support.spark.captures import batches_of, record
from tests.support.spark.cluster import BIN, recipes
from tests.support.spark.quick import QUICK


def test_a_run_has_the_master_and_the_settings_of_spark_submit(tmp_path: Path) -> None:
    found = submitted(tmp_path, [])
    assert (found["spark.master"], found["spark.app.name"]) == ("local[1]", "nightly")
    assert found["spark.sql.session.timeZone"] == "Europe/Berlin", "spark-submit says so"
    assert found["spark.sql.caseSensitive"] == "true", "it is pgtail's own, and spark-submit says nothing"
    assert found["spark.driver.memory"] == QUICK["spark.driver.memory"]


def submitted(folder: Path, options: list[str]) -> dict[str, Any]:
    """Run `pgtail spark changes` by PySpark's spark-submit; returns what Spark's event log says of its settings."""
    set_java_home()
    paths = record(capture("Z_small", "p1"), folder / "capture")
    (folder / "log").mkdir()
    program = folder / "run_pgtail.py"
    [line] = [line for _, text in recipes() for line in text.splitlines() if line.endswith(f"> {program.name}")]
    subprocess.run(["sh", "-c", line], cwd=folder, check=True)
    settings = {
        **QUICK,
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "log").as_uri(),
    }
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    arguments = ["spark", "changes", *options, "capture", "out"]
    variables = {"PATH": f"{BIN}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "America/New_York"}
    done = subprocess.run(
        [BIN / "spark-submit", "--master=local[1]", "--name=nightly", *conf, program, *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=within(100),
    )
    assert done.returncode == 0, done.stderr
    columns = ["position", "ordinal", "op", "commit_ts"]
    changes = pl.scan_delta(str(folder / "out" / "changes")).select(columns).collect()
    expected = pl.DataFrame(pa.Table.from_batches(batches_of(paths))).select(columns)
    assert sorted(changes.rows()) == sorted(expected.rows()) != []
    logs = [path.read_text() for path in (folder / "log").rglob("events_*")]
    events = [json.loads(line) for text in logs for line in text.splitlines()]
    [environment] = [one for one in events if one["Event"] == "SparkListenerEnvironmentUpdate"]
    found: dict[str, Any] = environment["Spark Properties"]
    return found
