"""`--format-string`: every sequence, and that a change is always one line."""

from __future__ import annotations

import pytest

from pgtail.outputs.template import SEQUENCES
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
    stream_abort,
    stream_start,
    truncate,
    update,
)
from tests.support.run import decode

DUMP = lengths(
    relation(),
    relation(oid=200, name="full", identity="f", key=(0, 1)),
    *[begin(xid=9, time=1), origin("node_b"), insert("1", "it's\n\x1b[31m"), update(("2", UNCHANGED), ("1", None))],
    *[delete("2", None), insert("3", None, oid=200), update(("3", ""), ("3", "x"), "O", oid=200)],
    *[truncate(100), message(b"hi\tthere", "pre\x07fix"), commit(time=1)],
    *[begin_prepare(5, "g 1"), insert("7", "p"), prepare(5, "g 1"), commit_prepared(5, "g 1", time=2)],
    lsn=0x90,
)
UNSET = lengths(relation(), stream_start(7), insert("1", "x", xid=7), STREAM_STOP, stream_abort(7, 7))


def lines(format_: str, *options: str, data: bytes = DUMP) -> list[str]:
    result = decode("--format-string", format_, *options, input=data)
    assert result.status == 0, result.stderr
    return [line.decode() for line in result.lines]


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("%o", "insert update delete insert update truncate message insert commit_prepared"),
        ("%t", "public.t public.t public.t public.full public.full public.t pre\\x07fix public.t "),
        ("%S|%T", "public|t public|t public|t public|full public|full public|t | public|t |"),
        ("%k", "id=1 id=2 id=2     id=7 "),
        ("%x", "9 9 9 9 9 9 9 5 5"),
        ("%q", "1 2 3 4 5 6  1 "),
        ("%l", "0/90 0/90 0/90 0/90 0/90 0/90 0/90 0/90 "),
        ("%c", "0/100 0/100 0/100 0/100 0/100 0/100 0/100 0/100 0/200"),
        ("%r", "node_b node_b node_b node_b node_b node_b node_b  "),
        ("%g|%a", "| | | | | | | g 1|prepared g 1|"),
        ("%m", "      hi\\tthere  "),
        ("%{v}", "it's\\n\\x1b[31m       p "),
        ("%{id}", "1 2 2 3 3   7 "),
        ("%[v]", r"E'it''s\n\x1b[31m' (unchanged)  NULL ''   'p' "),
        ("%[nosuch]%[id]", "1 2 2 3 3   7 "),
        ("%{nosuch}%%", "% % % % % % % % %"),
    ],
)
def test_sequences(format_: str, expected: str) -> None:
    assert " ".join(lines(format_)) == expected


def test_rows_are_written_as_in_tables() -> None:
    found = [line.split("|") for line in lines("%v|%O")]
    assert found == [
        [r"id=1 v=E'it''s\n\x1b[31m'", ""],
        ["id=2 v=(unchanged)", "id=1"],
        ["id=2", "id=2"],
        ["id=3 v=NULL", ""],
        ["id=3 v=''", "id=3 v='x'"],
        ["", ""],
        ["", ""],
        ["id=7 v='p'", ""],
        ["", ""],
    ]


def test_times_and_escapes() -> None:
    first = lines(r"%d\t%o\\n\n%x")
    assert first[:2] == ["2000-01-01T00:00:00.000001Z\tinsert\\n", "9"]
    assert lines("%d")[-1] == "2000-01-01T00:00:00.000002Z"


def test_a_column_that_no_table_has_is_noted() -> None:
    result = decode("--format-string", "%{ID} %[nosuch] %{id}", input=DUMP)
    assert result.status == 0
    assert result.stderr.splitlines() == [
        "pgtail: note: no table had a column ID (--format-string); did you mean id?",
        "pgtail: note: no table had a column nosuch (--format-string)",
    ]
    assert decode("--format-string", "%{ID}", "-q", input=DUMP).stderr == ""
    assert decode("--format-string", "%{ID}", "--op", "message", input=DUMP).stderr == ""  # no row was shown


def test_the_users_text_need_not_be_utf8() -> None:
    result = decode("--format-string", "%x\udcff", input=DUMP)
    assert (result.status, result.lines[0]) == (0, b"9\xff")


def test_uncommitted_changes_are_marked() -> None:
    shown = lines("%a %{id}", "--show-aborted", "--show-uncommitted", data=UNSET)
    assert shown == ["open 1", "aborted 1"]
    result = decode("--format-string", "%o", "--show-aborted", input=UNSET)
    assert (result.status, "needs %a" in result.stderr) == (2, True)


def test_masked_values_stay_masked() -> None:
    shown = "".join(lines("".join(f"%{letter}" for letter in SEQUENCES if letter != "m") + "%{v}", "--redact", "v"))
    assert "it's" not in shown
    assert "it''s" not in shown
    assert "(redacted)" in shown


@pytest.mark.parametrize("format_", ["%z", "%", "%{v", "%{}", "%[v", "%[]", "\\q", "%-3o"])
def test_unknown_sequence_is_refused(format_: str) -> None:
    result = decode("--format-string", format_, input=DUMP)
    assert (result.status, result.stdout) == (2, b"")
    assert "--format-string: " in result.stderr
    assert "is none of %o, %t" in result.stderr


def test_format_string_and_output_exclude_each_other() -> None:
    result = decode("--format-string", "%o", "-o", "json", input=DUMP)
    assert (result.status, "give one of them" in result.stderr) == (2, True)
