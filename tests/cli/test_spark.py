"""`pgtail spark`: options are passed on, and contradictory ones are refused before Spark starts."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgtail.capture.format import CLOSED
from pgtail.cli import main
from pgtail.commands.options.common import ReportOptions, Verbosity
from pgtail.commands.options.server import ConnectionOptions
from pgtail.commands.options.spark import SparkOptions, VerifyOptions
from pgtail.commands.spark import command as spark
from pgtail.commands.spark import verify as spark_verify
from pgtail.commands.spark.command import Dataset
from pgtail.pgoutput.scalars import Point
from pgtail.spark.session import NEEDED
from pgtail.storage import StorageOptions

CHANGES = ["-t", "a.*", "-t", "b", "--watch", "--every", "2m", "--master", "yarn", "--conf", "a=b"]
CHANGES += ["--storage", "aws_region=x", "-v"]
needs_spark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED), reason="the extra `spark` is not installed"
)
STATE = ["--until", "0/10", "--allow-gap", "--retain", "30s"]


@pytest.mark.parametrize(
    ("command", "more", "datasets"),
    [
        ("changes", ["--compact"], ()),
        ("tables", ["--compact"], ("tables",)),
        ("state", STATE, ("state",)),
        ("history", STATE, ("history",)),
        ("all", ["--compact", *STATE], ("tables", "state", "history")),
    ],
)
def test_every_option_of_a_command_is_passed_on(
    command: str, more: list[str], datasets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[tuple[SparkOptions, Sequence[Dataset]]] = []
    monkeypatch.setattr(spark, "run", lambda options, made: passed.append((options, made)))
    ran = CliRunner().invoke(main, ["spark", command, *CHANGES, *more, "one", "two", "out"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.stderr
    with_state = "--until" in more
    expected = SparkOptions(
        captures=["one", "two"],
        out="out",
        tables=("a.*", "b"),
        compact="--compact" in more,
        until=Point(lsn=0x10) if with_state else None,
        allow_gap=with_state,
        retain=30 if with_state else 3600,
        watch=True,
        every=120,
        storage=StorageOptions((("aws_region", "x"),)),
        master="yarn",
        conf=("a=b",),
        verbosity=Verbosity(verbose=1),
    )
    assert passed == [(expected, datasets)]


def test_every_option_of_verify_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[tuple[Sequence[str], VerifyOptions]] = []

    def run(places: Sequence[str], options: VerifyOptions) -> bool:
        passed.append((places, options))
        return True

    monkeypatch.setattr(spark_verify, "run", run)
    given = ["-t", "a.*,b", "--sample", "2.5%", "--timeout", "90s", "-P", "p", "-P", "q", "-o", "json", "-h", "server"]
    more = ["--master", "yarn", "--conf", "a=b", "--storage", "aws_region=x", "-v"]
    ran = CliRunner().invoke(main, ["spark", "verify", *given, *more, "one", "out", "shop"], catch_exceptions=False)
    assert ran.exit_code == 1, "there is a difference"
    expected = VerifyOptions(
        connection=ConnectionOptions(host="server"),
        publications=("p", "q"),
        tables=("a.*", "b"),
        sample=2.5,
        timeout=90,
        report=ReportOptions(output="json"),
        storage=StorageOptions((("aws_region", "x"),)),
        master="yarn",
        conf=("a=b",),
        verbosity=Verbosity(verbose=1),
    )
    assert passed == [(("one", "out", "shop"), expected)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["changes", "capture"], "expected CAPTURE... OUT"),
        (["changes", "--watch", "--compact", "capture", "out"], "--watch merges small files by itself"),
        (["state", "--watch", "--until", "0/1", "capture", "out"], "--watch does not end"),
        (["all", "--until", "someday", "capture", "out"], "invalid value for '--until': 'someday' is neither an LSN"),
        (["tables", "--every", "soon", "capture", "out"], "'soon' is not a time such as 30s"),
        pytest.param(["tables", "capture", "ftp://host/out"], "ftp:// is no storage", marks=needs_spark),
        (["verify", "out", "shop"], "expected CAPTURE... OUT DSN"),
        (["verify", "-d", "shop", "out"], "expected CAPTURE... OUT DSN"),
        (["verify", "--sample", "0", "capture", "out", "shop"], "0 is not a percentage above 0"),
        (["verify", "--sample", "few", "capture", "out", "shop"], "few is not a percentage above 0"),
    ],
)
def test_contradictions_are_refused_before_spark_starts(arguments: list[str], message: str) -> None:
    ran = CliRunner().invoke(main, ["spark", *arguments])
    assert ran.exit_code == 2
    assert message in ran.stderr


@needs_spark
def test_wrong_places_are_told_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "session", None)
    ran = CliRunner().invoke(main, ["spark", "all", "captures/none", "out"])
    assert (ran.exit_code, "there is no " in ran.stderr) == (1, True)
    (tmp_path / f"0{CLOSED}").touch()
    ran = CliRunner().invoke(main, ["spark", "all", "out", str(tmp_path)])
    assert (ran.exit_code, "captures are named first" in ran.stderr) == (2, True)


def test_what_is_not_installed_is_told_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDED, "pyarrow", ((999,), None))
    ran = CliRunner().invoke(main, ["spark", "all", "captures/none", "out"])
    assert ran.exit_code == 2
    assert "pgtail spark needs what is not installed here: " in ran.stderr
