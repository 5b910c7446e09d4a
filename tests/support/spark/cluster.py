"""A standalone Spark cluster on loopback, and an environment for its tasks that is made of pgtail's wheel."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pgtail.demo.server import free_port
from tests.support.limits import within

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
_DEPLOY = "org.apache.spark.deploy"
_LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVMs that live for seconds."""


@contextlib.contextmanager
def cluster(folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """A master and two workers with one core each, in directories of their own; yields the master's URL.

    `variables` are in the environment of the workers, and so of their executors; the tests' programs are not on their
    PATH.
    """
    with contextlib.ExitStack() as stack:
        port = free_port()
        where = ["--host", "127.0.0.1", "--webui-port", "0"]
        master = stack.enter_context(
            daemon(folder / "master", [f"{_DEPLOY}.master.Master", *where, "--port", str(port)], {})
        )
        wait_for(master, "I have been elected leader")
        url = f"spark://127.0.0.1:{port}"
        for name in ("one", "two"):
            own = folder / name
            limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(own / "work")]
            stack.enter_context(daemon(own, [f"{_DEPLOY}.worker.Worker", *where, *limits, url], variables))
        for name in ("one", "two"):
            wait_for(folder / name / "log", "Successfully registered with master")
        yield url


@contextlib.contextmanager
def daemon(folder: Path, program: list[str], variables: Mapping[str, str]) -> Iterator[Path]:
    """A daemon of Spark's, by its class and its arguments; yields its log."""
    folder.mkdir()
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "JAVA_HOME": os.environ["JAVA_HOME"],
        "JAVA_TOOL_OPTIONS": _LIGHT,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_HOME": str(Path(sysconfig.get_path("purelib"), "pyspark")),
        **variables,
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [BIN / "spark-class", *program],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield folder / "log"
    finally:
        process.terminate()
        process.wait()


def wait_for(log: Path, said: str) -> None:
    """Wait until a daemon's log has this text."""
    end = time.monotonic() + within(60)
    while said not in (text := log.read_text()):
        assert time.monotonic() < end, text
        time.sleep(0.1)


def recipes() -> list[tuple[str, str]]:
    """The blocks of the man page about clusters: language and text."""
    page = (ROOT / "man/parts/pgtail-spark-cluster.7.md").read_text(encoding="utf-8")
    return re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
