"""A standalone cluster: the recipes of the man page, word for word, between buckets, with an environment of a wheel.

pip installs every package that the environment needs, as the man page says.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl

from pgtail.spark.session import set_java_home
from pgtail.storage import Location
from tests.support.corpus import capture
from tests.support.limits import within
from tests.support.object_store import ObjectStore
from tests.support.spark import model
from tests.support.spark.captures import record, rows_of
from tests.support.spark.cluster import BIN, ROOT, cluster, recipes
from tests.support.spark.quick import QUICK
from tests.support.spark.world import same_as_model, same_lives, stored
from tests.torture.bench import Bench


def trial(bench: Bench, _: random.Random) -> str:
    """The recipes of the manual."""
    with tempfile.TemporaryDirectory() as folder:
        return run_recipes(bench.s3, Path(folder))


def run_recipes(s3: ObjectStore, tmp_path: Path) -> str:
    """Run them in this folder; returns what they counted."""
    paths = record(capture("D_twophase", "p3_2pc"), tmp_path / "capture", size=100_000)
    uri, out = s3.upload(tmp_path / "capture", "cluster/captures"), s3.locate("cluster/warehouse")
    (_, make), (_, all_), (_, submit_all), (_, report), (_, submit) = recipes()
    set_java_home()
    with cluster(tmp_path, s3.environment) as master:

        def run(text: str) -> str:
            names = {
                "'.[": f"'{ROOT}[",
                "spark://master:7077": master,
                "s3://captures/shop": uri,
                "s3://warehouse/shop": str(out),
            }
            for name, own in names.items():
                text = text.replace(name, own)
            return ran(text, tmp_path, s3)

        run(make)
        [found] = run("environment/bin/python -c 'import pgtail; print(pgtail.__file__)'").splitlines()
        assert Path(found).is_relative_to(tmp_path / "environment"), "tasks have pgtail from nowhere else"
        run(all_)
        same(tmp_path / "capture", paths, out)
        assert "0 new segments" in run(submit_all)
        (tmp_path / "report.py").write_text(report.replace("s3://warehouse/shop", str(out)))
        shown = run(submit)
    counts = Counter(row["op"] for row in rows_of(paths))
    assert [line.split("|")[1:3] for line in shown.splitlines() if line.startswith("|")][1:] == [
        [op.rjust(len(max(counts, key=len))), f"{count:5}"] for op, count in sorted(counts.items())
    ]
    for worker in ("one", "two"):
        assert list((tmp_path / worker / "work").glob("*/*/environment/bin/python")), "it has the archive"
    return f"{counts.total()} changes"


def ran(text: str, folder: Path, s3: ObjectStore) -> str:
    """What a shell that runs this prints. Spark's own files of settings make it small."""
    settings = {name: value for name, value in QUICK.items() if "sql" in name} | {
        "spark.driver.host": "127.0.0.1",
        # Both workers are there before the first task is given out.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    variables = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    done = subprocess.run(
        ["bash", "-euc", text],
        cwd=folder,
        env={**os.environ, **s3.environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=within(300),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def same(captured: Path, paths: list[Path], out: Location) -> None:
    """Everything is what the capture says."""
    columns = ["position", "ordinal", "op", "lsn"]
    changes = pl.scan_delta(str(out / "changes"), storage_options=out.storage.as_dict()).select(columns).collect()
    assert sorted(changes.rows()) == sorted(tuple(row[name] for name in columns) for row in rows_of(paths))
    rows, versions = model.committed(model.changes(captured)), model.relations(captured)
    same_as_model(model.folds(rows, versions), stored(out, "state"))
    same_lives(model.folds(rows, versions, history=True), stored(out, "history"))
