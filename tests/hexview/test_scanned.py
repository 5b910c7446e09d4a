"""The compiled scanner shows the same messages as the templates do in plain Python, as the whole command runs them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pgtail.commands.inspect import Inspect
from pgtail.commands.options import FilterOptions, InspectOptions, ReportOptions
from pgtail.errors import Interrupted
from pgtail.hexview import rows
from pgtail.hexview.json_view import JsonView
from pgtail.native import compiled
from pgtail.records import replace
from tests.support.captures import record, segments
from tests.support.corpus import captures
from tests.support.encode import begin, commit, frame, insert, lengths, recvlogical, relation, snapshot
from tests.support.forms import copydata
from tests.support.forms import lengths as in_lengths
from tests.support.forms import recvlogical as in_recvlogical

pytestmark = pytest.mark.skipif(compiled() is None, reason="the scanner was not built")

JSON, TABLE = ReportOptions(output="json"), ReportOptions(output="table")
COLORED = ReportOptions(output="table", color="always")
RUNS: list[tuple[int, InspectOptions]] = [
    (120, InspectOptions(report=JSON)),
    (120, InspectOptions(report=TABLE, max_bytes=None)),
    (100, InspectOptions(report=COLORED, max_bytes=8)),
    (160, InspectOptions(report=TABLE, filter=FilterOptions(redact=("*a*",)), limit=300)),
    (80, InspectOptions(report=COLORED, max_bytes=40)),
    (52, InspectOptions(report=replace(COLORED, colors="value=bold"))),
]
"""The width of the terminal, and options."""


class Counted:
    """How many messages the scanner showed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages = 0
        scan = rows.TemplateWriter.scan

        def counting(itself: rows.TemplateWriter, *arguments: Any) -> tuple[int, int]:
            found = scan(itself, *arguments)
            self.messages += found[1]
            return found

        monkeypatch.setattr(rows.TemplateWriter, "scan", counting)


def compare(paths: list[Path], options: InspectOptions, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> bytes:
    """Inspect a file with the scanner and without it; returns what both show."""
    shown = []
    for fast in (compiled(), None):
        monkeypatch.setattr(rows, "compiled", lambda fast=fast: fast)
        Inspect(options).run(tuple(map(str, paths)))
        shown.append(capfdbinary.readouterr())
    assert shown[0] == shown[1]
    return bytes(shown[0].out)


@pytest.mark.parametrize("run", range(len(RUNS)))
def test_captures(run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    """A thirty-second of the captures, in the forms that have chunks."""
    width, options = RUNS[run]
    monkeypatch.setenv("COLUMNS", str(width))
    counted = Counted(monkeypatch)
    for number, one in enumerate(captures()[run::32]):
        path = tmp_path / "dump"
        path.write_bytes((in_lengths, in_recvlogical, copydata)[number % 3](one))
        compare([path], options, monkeypatch, capfdbinary)
    if options.report.colors:
        assert counted.messages == 0
    else:
        assert counted.messages > 100


def test_values_of_every_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    """Values and words that just fit in a line, do not, and need several; odd characters; long messages."""
    choose = random.Random(7)
    texts = ["x" * size for size in range(130)] + [
        "",
        " ",
        "it's",
        'a "quoted" \\ one',
        "Grüße",
        "\t",
        "%s %d",
        "x" * 70_000,
    ]
    values = [*texts, *["".join(choose.choices("ab '\"\\é", k=choose.randrange(60))) for _ in range(100)]]
    rows_of = [insert(str(number), value) for number, value in enumerate(values)]
    messages = [begin(), *rows_of, insert("1", None), commit()]
    long = relation(columns=[("id", 23), ("a_column_whose_name_is_quite_long", 25)])
    messages = [relation(), *messages, *messages, long, *messages]
    path = tmp_path / "dump"
    counted = Counted(monkeypatch)
    for width in (60, 73, 80, 90, 110, 125, 140):
        for number, (_, options) in enumerate(RUNS[:3]):
            monkeypatch.setenv("COLUMNS", str(width))
            path.write_bytes(lengths(*messages) if number else recvlogical(*messages))
            shown = compare([path], options, monkeypatch, capfdbinary)
            assert shown.count(b"Insert") > 3 * len(values)
    assert counted.messages > 10 * len(values)


@pytest.mark.parametrize("limit", [1, 2, 3, 40, 41])
def test_a_limit_ends_inside_a_run(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    path = tmp_path / "dump"
    path.write_bytes(recvlogical(relation(), begin(), *[insert(str(number), "v") for number in range(100)], commit()))
    options = InspectOptions(report=JSON, limit=limit)
    assert compare([path], options, monkeypatch, capfdbinary).count(b"\n") == limit


def test_segments_that_continue_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    """One whose predecessor was read repeats its beginning, which is not shown again."""
    messages = [relation(), begin(), *[insert(str(number), "v" * 100) for number in range(500)], commit()]
    record(tmp_path / "capture", [frame(one, lsn=0x200 + number) for number, one in enumerate(messages)])
    paths = segments(tmp_path / "capture")
    assert len(paths) > 4
    options = InspectOptions(report=JSON)
    compare([*paths[:3], paths[-1]], options, monkeypatch, capfdbinary)


def test_damage_after_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    """The number and offset of the damaged message, its fields, and the messages after it."""
    good = recvlogical(relation(), begin(), *[insert(str(number), "v") for number in range(50)])
    path = tmp_path / "dump"
    path.write_bytes(good + b"I\0\0\0dNdamage" + good + recvlogical(commit()))
    options = InspectOptions(report=JSON, resync=True)
    shown = compare([path], options, monkeypatch, capfdbinary)
    assert b'"message":53,' in shown
    assert b'"error":' in shown


@pytest.mark.parametrize("report", [JSON, TABLE], ids=["json", "table"])
def test_a_begin_with_xid_0_is_shown_as_that_of_a_snapshot(
    report: ReportOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    path = tmp_path / "dump"
    ordinary = [begin(), *[insert(str(number), "v") for number in range(20)], commit()]
    path.write_bytes(
        recvlogical(relation(), *ordinary, *snapshot(["1", "a"]), *ordinary, *snapshot(["1", "a"]), *ordinary)
    )
    monkeypatch.setenv("COLUMNS", "160")
    shown = compare([path], InspectOptions(report=report), monkeypatch, capfdbinary)
    assert shown.count(b"none: the rows of a snapshot follow") == 2


def test_only_the_rows_of_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    path = tmp_path / "dump"
    path.write_bytes(recvlogical(*snapshot(["1", "a"], ["2", "b"]), begin(), insert("3", "c"), commit()))
    options = InspectOptions(report=JSON, filter=FilterOptions(ops=("snapshot",)))
    assert compare([path], options, monkeypatch, capfdbinary).count(b'"kind":"Insert"') == 2


def test_messages_unlike_those_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    """Rows of tables that were not described, positions that are too long for the line, and damage."""
    row, key = insert("1", "v"), b"\0\2t\0\0\0\x011n"
    others = [insert("1", "v", oid=7), b"D\0\0\0dN" + key, b"U\0\0\0dK" + key + b"X" + key, b"U\0\0\0dK" + key]
    frames = [relation(name="a_table_with_a_long_name", columns=[("id", 23), ("50%", 25)]), begin(), row, row]
    path = tmp_path / "dump"
    for width in (60, 64, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        ends = b"".join([lengths(row, lsn=1 << 4 * digits) for digits in (1, 2, 7, 8, 15)])
        for other in others:
            path.write_bytes(lengths(*frames, lsn=1) + ends + lengths(other, row, commit(), lsn=1))
            shown = compare([path], InspectOptions(report=TABLE, resync=True), monkeypatch, capfdbinary)
            assert shown.count(b"Insert") >= 8


def test_a_message_that_an_exception_breaks_off_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    """For example that of a signal, while Python shows a value."""
    content = JsonView.content

    def broken_off(view: JsonView, template: str, at: int, cell: bytes, value: Any) -> str:
        if cell == "é".encode():
            raise KeyboardInterrupt
        return content(view, template, at, cell, value)

    monkeypatch.setattr(JsonView, "content", broken_off)
    path = tmp_path / "dump"
    path.write_bytes(lengths(relation(), begin(), *[insert("1", value) for value in "äöüé"], commit()))
    with pytest.raises(Interrupted):
        Inspect(InspectOptions(report=JSON)).run((str(path),))
    shown = capfdbinary.readouterr().out
    assert shown.count(b'"kind":"Insert"') == shown.count(b"\n") - 2 == 3
    assert shown.endswith(b"}\n")
