"""`-o line`: every kind of change on one line, cut on a terminal and nowhere else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pgtail.outputs.line import ColumnText, cut, padded
from pgtail.outputs.template import SEQUENCES
from pgtail.terminal.escape import hides
from pgtail.terminal.layout import width_of
from tests.support.corpus import Capture, capture, captures
from tests.support.encode import (
    STREAM_STOP,
    UNCHANGED,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    delete,
    insert,
    lengths,
    message,
    origin,
    prepare,
    relation,
    rollback_prepared,
    stream_abort,
    stream_start,
    truncate,
    update,
)
from tests.support.render import WAYS, Way, render
from tests.support.run import decode
from tests.support.terminals import on_terminal

FULL = relation(oid=200, name="Order Items", columns=[("id", 23), ("a", 25), ("B b", 25)], identity="f", key=(0, 1, 2))
SGR = re.compile(r"\x1b\[[0-9;]*m")


def lines(*messages: bytes, way: Way = "decoder", **options: Any) -> list[str]:
    """The lines without the time 2000-01-01 00:00:00.000000Z."""
    found = render(*messages, output="line", way=way, lsn=0x90, **options).lines
    return [line.removeprefix("2000-01-01 00:00:00.000000Z ") for line in found]


@pytest.mark.parametrize("way", WAYS)
def test_rows(way: Way) -> None:
    rows = [insert("1", "it's"), insert("2", None), update(("1", UNCHANGED)), update(("3", ""), ("1", None))]
    assert lines(relation(), begin(xid=9), *rows, delete("3", None), commit(), way=way) == [
        "9 INSERT  public.t         [id=1]      v='it''s'",
        "9 INSERT  public.t         [id=2]      v=NULL",
        "9 UPDATE  public.t         [id=1]     ",
        "9 UPDATE  public.t         [id=1→3]    ?v=''",
        "9 DELETE  public.t         [id=3]",
    ]


@pytest.mark.parametrize("way", WAYS)
def test_of_a_whole_old_row_only_what_changed(way: Way) -> None:
    old = ("1", "x", None)
    rows = [update(("1", "y", None), old, "O", oid=200), update(("1", "x", "n"), old, "O", oid=200)]
    rows += [update(("2", UNCHANGED, None), old, "O", oid=200), delete(*old, kind="O", oid=200)]
    assert lines(FULL, begin(xid=9), *rows, commit(), way=way) == [
        """9 UPDATE  public."Order Items"   id=1 a='x'→'y'""",
        """9 UPDATE  public."Order Items"   id=1 "B b"=NULL→'n'""",
        """9 UPDATE  public."Order Items"   id=1→2""",
        """9 DELETE  public."Order Items"   id=1 a='x' "B b"=NULL""",
    ]


@pytest.mark.parametrize("way", WAYS)
def test_of_a_table_that_was_never_described_all_is_shown(way: Way) -> None:
    rows = [insert("1", None, oid=300), update(("2", UNCHANGED), ("1", "x"), "O", oid=300), delete("2", None, oid=300)]
    assert lines(begin(xid=9), *rows, delete("3", "y", kind="O", oid=300), commit(), way=way) == [
        "9 INSERT  relation 300       ?1='1' ?2=NULL",
        "9 UPDATE  relation 300       ??1='2'",
        "9 DELETE  relation 300      ?1='2'",
        "9 DELETE  relation 300      ?1='3' ?2='y'",
    ]


def test_what_is_no_row() -> None:
    messages = [
        *[relation(), begin(xid=9), origin("node_b"), truncate(100, options=3), message(b"hi\tthere", "pre\x07fix")],
        *[commit(), message(b"\xff", "lone", transactional=False)],
        *[begin_prepare(5, "g 1"), insert("7", "p"), prepare(5, "g 1"), commit_prepared(5, "g 1")],
        *[begin_prepare(6, "g"), insert("8", "p"), prepare(6, "g"), rollback_prepared(6, "g")],
        *[begin(xid=10), relation(columns=[("id", 23), ("w", 25)]), insert("9", "x")],
    ]
    assert lines(*messages, schema_changes=True, broken_off=True) == [
        "- - SCHEMA  public.t         id integer key, v text, identity default",
        "9 TRUNC   public.t          from node_b  cascade, restart identity",
        r"9 MESSAGE pre\x07fix       E'hi\tthere' from node_b",
        r"0/90 - MESSAGE lone             \xff (1 bytes) not transactional",
        "5 INSERT  public.t         [id=7] (prepared)  v='p' gid 'g 1'",
        "5 COMMIT  prepared 'g 1'",
        "6 INSERT  public.t         [id=8] (prepared)  v='p' gid 'g'",
        "6 ROLLBACK prepared 'g'",
        "- - SCHEMA  public.t         column v renamed to w",
        "10 INSERT  public.t         [id=9]      w='x'",
        "10 broken off here: its end was not seen",
    ]


def test_what_was_not_committed_is_marked() -> None:
    data = lengths(relation(), stream_start(7), insert("1", "x", xid=7), STREAM_STOP, stream_abort(7, 7), lsn=0x90)
    result = decode("-o", "line", "--show-aborted", "--show-uncommitted", input=data)
    assert result.stdout.decode().splitlines() == [
        "0/90 7 INSERT  public.t         [id=1] (open)  v='x'",
        "0/90 7 INSERT  public.t         [id=1] (aborted)  v='x'",
    ]


def test_colours_change_nothing_but_colours() -> None:
    path = capture("A_dml", "p1").forms["walsender.bin"]
    plain = decode("-o", "line", path).stdout.decode()
    coloured = decode("-o", "line", "--color", "always", path).stdout.decode()
    assert coloured.count("\x1b") > 1000
    assert SGR.sub("", coloured) == plain


TEMPLATE = ("--format-string", "".join(f"%{letter} " for letter in SEQUENCES))


@pytest.mark.parametrize("one", [one for one in captures() if one.scenario.version == "pg16"], ids=str)
def test_every_change_of_a_capture_is_one_line_that_drives_nothing(one: Capture) -> None:
    given = ("--encoding", "latin1" if one.encoding == "LATIN1" else "utf-8", one.forms["walsender.bin"])
    changes = decode(*given)
    for output in (("-o", "line"), TEMPLATE):
        shown = decode(*output, *given)
        assert (shown.status, len(shown.lines)) == (0, len(changes.lines))
        assert not any(hides(line) for line in shown.stdout.decode().removesuffix("\n").split("\n"))


@pytest.mark.parametrize("width", ["80", "160"])
def test_a_terminal_gets_lines_of_its_width_and_a_pipe_whole_ones(width: str) -> None:
    path = str(capture("A_dml", "p1").forms["walsender.bin"])
    pgtail = str(Path(sys.executable).with_name("pgtail"))
    status, shown = on_terminal([pgtail, "decode", "--no-pager", "-o", "line", path], env={"COLUMNS": width})
    found = [SGR.sub("", line) for line in shown.splitlines() if not line.startswith(("pgtail: note: ", " "))]
    assert status == 0
    assert max(map(width_of, found)) == int(width)
    whole = decode("-o", "line", path).stdout.decode().splitlines()
    assert len(found) == len(whole)
    assert not any(line.endswith("…") for line in whole)
    time = "2026-11-20 22:06:14.070078Z " if width == "160" else r"(2026-)?11-20 22:06:14Z "
    assert re.match(time, found[0])


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["abcdef"], "abcdef"),
        (["abcd", " e"], "abcd e"),
        (["ab", " c", " d"], "ab c d"),
        (["ab", " c", " de"], "ab… +2"),
        (["a", " bcdef"], "a … +1"),
        (["abcdefgh", " i"], "ab… +1"),
        (["abcdefg"], "abcde…"),
        (["\x1b[1mabcdefg\x1b[0m"], "\x1b[1mabcde…"),
        (["日本"], "日本"),
        (["日本語"], "日本語"),
        (["日本語x"], "日本…"),
    ],
)
def test_fitting_counts_cells(columns: list[str], found: str) -> None:
    assert cut([*map(ColumnText, columns)], 6, "…") == found


def test_padding_counts_cells() -> None:
    assert padded(4, "\x1b[1m語\x1b[0m".encode()).decode() == "\x1b[1m語\x1b[0m  "
    assert padded(4, b"abcde") == b"abcde"


@pytest.mark.parametrize("way", WAYS)
def test_a_cut_line_ends_its_colours(way: Way) -> None:
    row = update(("1", "y" * 50, ""), ("1", "x" * 50, ""), "O", oid=200)
    options: dict[str, Any] = {"measure": lambda: 80, "colored": True}
    (line,) = render(FULL, begin(), row, commit(), output="line", way=way, **options).lines
    assert line.endswith("yy\x1b[0m… +1")
    assert width_of(SGR.sub("", line)) == 80


WIDE = [("id", 23), *[(f"c{number}", 25) for number in range(1, 30)]]


@pytest.mark.parametrize("way", WAYS)
def test_a_terminal_shows_the_key_then_what_changed_then_the_rest(way: Way) -> None:
    before = ["7", *["x"] * 28, "old"]
    stream = [relation(columns=WIDE, identity="f", key=range(30)), begin(xid=9)]
    stream += [update([*before[:-1], "new"], before, "O"), insert(*before), commit()]
    terminal: dict[str, Any] = {"way": way, "measure": lambda: 80}
    start = "2000-01-01 00:00:00Z 9 UPDATE  public.t           id=7 c29='old'→'new'"
    assert lines(*stream, **terminal) == [
        f"{start} c1='… +27",
        "2000-01-01 00:00:00Z 9 INSERT  public.t           id=7 c1='x' c2='x' c3='x'… +26",
    ]
    assert lines(*stream, **terminal, changed=True)[0] == start
    whole = lines(*stream, **terminal, max_width=None)
    rest = " ".join([f"c{number}='x'" for number in range(1, 29)])
    assert whole[0] == f"{start} {rest}"
    assert lines(*stream, way=way)[0] == "9 UPDATE  public.t           id=7 c29='old'→'new'"  # in a pipe


@pytest.mark.parametrize("way", WAYS)
def test_lines_follow_a_terminal_that_is_resized(way: Way) -> None:
    """Before the next transaction or, in the scanner, before the next run."""
    widths = [80, 80, 60, 60]
    rows = [part for _ in range(6) for part in (begin(), insert("1", "x" * 200), commit())]

    def measure() -> int:
        return widths.pop(0) if widths else 60

    found = render(relation(), *rows, output="line", way=way, measure=measure).lines
    assert width_of(found[0]) == 80
    assert {width_of(line) for line in found[2:]} == {60}


def test_matches_are_marked_and_nothing_else_changes() -> None:
    row = update(("1", "paid", ""), ("1", "new", ""), "O", oid=200)
    colored: dict[str, Any] = {"output": "line", "colored": True}
    (plain,) = render(FULL, begin(), row, commit(), **colored).lines
    (marked,) = render(FULL, begin(), row, commit(), highlight=("id=1|'paid'", "UPD"), **colored).lines
    assert SGR.sub("", marked) == SGR.sub("", plain)
    match = "\x1b[1;7m"
    assert f"{match}UPD\x1b[0m\x1b[38;5;16;48;5;81mATE\x1b[0m" in marked
    assert f"{match}id=\x1b[0m{match}1\x1b[0m " in marked
    assert f"{match}'paid'\x1b[0m" in marked


@pytest.mark.parametrize("colored", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_an_old_value_that_is_cut_does_not_look_like_the_new_one(way: Way, colored: bool) -> None:
    table = relation(columns=(("id", 23), ("v", 25), ("w", 25)), identity="f", key=range(3))
    stream = (table, begin(xid=9), update(("7", "new", "b"), ("7", "old", "a"), "O"), commit())
    whole = "2000-01-01 00:00:00Z 9 UPDATE  public.t           id=7 v='old'→'new' w='a'→'b'"

    def shown(width: int) -> str:
        (line,) = lines(*stream, way=way, measure=lambda: width, colored=colored)
        return SGR.sub("", line)

    found = [shown(width) for width in range(58, len(whole) + 1)]
    assert [len(line) for line in found] == [*map(width_of, found)]
    assert found[-1] == whole
    assert not [line for line in found if re.search("(v|w)='[^→]*…", line)]
    assert {line[line.index(" v=") :] for line in found if "v=…" in line} > {" v=… +1", " v=…→'ne… +1"}


@pytest.mark.parametrize("way", WAYS)
def test_a_long_key_leaves_room_for_what_changed_on_a_narrow_terminal(way: Way) -> None:
    def shown(type_oid: int, key: str, **options: Any) -> str:
        table = relation(columns=(("id", type_oid), ("v", 25)))
        line = "".join(lines(table, begin(xid=9), insert(key, "new"), commit(), **options))
        return line.partition("  public.t")[2].strip()

    uuid = "550e8400-e29b-41d4-a716-446655440000"
    assert shown(2950, uuid, way=way, measure=lambda: 80) == "[id=550e84…440000]  v='new'"
    assert shown(25, "event/00000017", way=way, measure=lambda: 80) == "[id='even'…'0017']  v='new'"
    assert shown(25, "event/00000'7", way=way, measure=lambda: 80) == "[id='event/0000'…]  v='new'"
    assert shown(25, "event/00000é7", way=way, measure=lambda: 80) == "[id='event/0000'…]  v='new'"
    assert shown(20, "1234567890123456789", measure=lambda: 80) == "[id=1234567890123456789]  v='ne…"
    for options in ({"measure": lambda: 120}, {}):
        assert shown(2950, uuid, **options) == f"[id={uuid}]  v='new'"


def test_a_long_name_is_cut_in_the_middle_on_a_terminal() -> None:
    table = relation(name="a_table_with_a_very_long_name_2026_01")
    (line,) = lines(table, begin(xid=9), insert("1", "x"), commit(), measure=lambda: 80)
    assert line == "2000-01-01 00:00:00Z 9 INSERT  public.a_tab…ame_2026_01 [id=1]      v='x'"
