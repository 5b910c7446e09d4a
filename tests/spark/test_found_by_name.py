"""Spark finds the data source "pgtail" by its name: Spark Connect, SQL and pipelines need no register()."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pgtail.spark.session
from pgtail.demo.server import free_port
from pgtail.errors import OptionError
from pgtail.spark.session import set_java_home
from pyspark_pgtail import DefaultSource
from tests.spark.test_changes import in_order, recorded, rows
from tests.support.limits import within
from tests.support.spark.cluster import BIN, daemon, wait_for
from tests.support.spark.quick import QUICK

__all__ = ["recorded", "rows"]  # fixtures

_PIPELINE = """
from pyspark import pipelines
from pyspark.sql import SparkSession

spark = SparkSession.active()
pipelines.create_streaming_table("shop_changes")


@pipelines.append_flow(target="shop_changes")
def every_change():
    return spark.readStream.format("pgtail").load({capture!r})


@pipelines.materialized_view
def changes_by_op():
    return spark.read.table("shop_changes").groupBy("op").count()
"""


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "deltalake"])
def test_the_module_never_fails_to_import(missing: str) -> None:
    """It is imported for every data source in Python, also where the extra is not installed."""
    program = (
        f"import sys; sys.modules[{missing!r}] = None; import pyspark_pgtail as m; print(hasattr(m, 'DefaultSource'))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(missing != "pyspark")


def test_what_is_not_installed_is_an_error_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgtail.spark.session, "NEEDED", {"no-such-package": ((1, 2), None)})
    with pytest.raises(OptionError, match=r"not installed here: no-such-package >= 1\.2\.\n.*\n *pip install"):
        DefaultSource({"path": "captures/shop"}).schema()


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for Spark Connect, which knows nothing of pgtail but what is installed."""
    for name in ("grpc", "zstandard", "yaml"):
        pytest.importorskip(name, reason="Spark Connect's client needs pyspark[pipelines]")
    set_java_home()
    folder, port = tmp_path_factory.mktemp("connect") / "server", free_port()
    settings = {
        **QUICK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.log.level": "INFO",
    }
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    program = ["org.apache.spark.deploy.SparkSubmit", "--master=local[2]", *conf, "--class", server, "spark-internal"]
    with daemon(folder, program, {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "1g"}) as log:
        wait_for(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def remote(connect: str) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect).getOrCreate()
    yield session
    session.stop()


def test_spark_connect_and_sql(remote: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    assert in_order(remote.read.format("pgtail").load(str(recorded / "one"))) == rows
    remote.sql(f"CREATE TEMPORARY VIEW pgtail_view USING pgtail OPTIONS (path '{recorded / 'one'}', ops 'delete')")
    assert in_order(remote.table("pgtail_view")) == [row for row in rows if row["op"] == "delete"]


def test_a_pipeline(connect: str, remote: Any, recorded: Path, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_PIPELINE.format(capture=str(recorded / "one")))
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(
        f"name: shop\nstorage: {(tmp_path / 'storage').as_uri()}\nlibraries:\n- glob: {{include: shop.py}}\n"
    )
    ran = subprocess.run(
        [BIN / "spark-pipelines", "run", "--remote", connect, "--spec", spec],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=within(200),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert in_order(remote.table("shop_changes")) == rows
    assert dict(map(tuple, remote.table("changes_by_op").collect())) == Counter(row["op"] for row in rows)
