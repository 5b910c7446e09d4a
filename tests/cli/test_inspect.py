"""`pgtail inspect` as a command: every form of dump, selection, damage, exit statuses."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import record, segments
from tests.support.corpus import capture, read
from tests.support.encode import begin, commit, frame, insert, recvlogical, relation, snapshot
from tests.support.run import Result, command, here

FORMS = {name: path for name, path in capture("Z_small", "p1").forms.items() if name != "walsender.bin"}
RECV = FORMS["recv.bin"]
WALSENDER = capture("Z_small", "p1").forms["walsender.bin"]
PARALLEL = capture("E_parallel", "p4_parallel").forms["walsender.bin"]
TWO_PHASE = capture("D_twophase", "p3_2pc").forms["walsender.bin"]
ROWS = "insert,update,delete,truncate"


def inspect(*arguments: str | Path) -> Result:
    """Run the command's code on a terminal's width of 120."""
    return here("inspect", *arguments, COLUMNS="120")


def lines(*arguments: str | Path) -> list[dict[str, Any]]:
    """The lines of `-o json`, from a run without errors."""
    ran = inspect(*arguments, "-o", "json")
    assert (ran.status, ran.stderr) == (0, "")
    return ran.objects


def shown(*arguments: str | Path) -> str:
    """The text output of a run without errors."""
    ran = inspect(*arguments)
    assert (ran.status, ran.stderr) == (0, "")
    return ran.stdout.decode()


def contents(line: Any) -> list[tuple[str, str, str]]:
    """The fields of a message without the walsender's header."""
    fields = [(field["field"], field["hex"], field["value"]) for field in line["fields"]]
    return fields[[name for name, _, _ in fields].index("tag") :]


@pytest.mark.parametrize("form", [*FORMS, "walsender.bin"])
def test_every_form_of_a_capture_has_the_same_fields(form: str) -> None:
    path = WALSENDER if form == "walsender.bin" else FORMS[form]
    expected = [contents(line) for line in lines(RECV, "--kind", ROWS)]
    assert len(expected) == 6
    assert [contents(line) for line in lines(path, "--kind", ROWS)] == expected


@pytest.mark.parametrize("path", [RECV, WALSENDER])
def test_offsets_are_the_files_own(path: Path) -> None:
    data = read(path)
    for line in lines(path):
        for field in line["fields"]:
            assert data[field["offset"] :].startswith(bytes.fromhex(field["hex"]))


def test_where_the_file_is_text_offsets_count_from_the_message() -> None:
    text = shown(FORMS["peek.txt"], "--message", "3")
    assert text.startswith("● 3  Insert  public.t  0/5CE2DD0  byte 398  22 bytes\n   +0  49  ")


def test_gzip_and_standard_input() -> None:
    data = read(RECV)
    for given in (data, gzip.compress(data)):
        ran = command("inspect", "-", input=given, environment={"COLUMNS": "120"})
        assert ran.stdout == inspect(RECV).stdout


def test_message_larger_than_the_buffer_is_shown_whole(tmp_path: Path) -> None:
    value = b"x" * (5 << 20)
    insert = b"I" + struct.pack(">IcHcI", 17907, b"N", 1, b"t", len(value)) + value
    begin, described = list(capture("Z_small", "p1").messages())[:2]
    (tmp_path / "recv").write_bytes(b"".join([message + b"\n" for message in (begin.data, described.data, insert)]))
    frames = [b"w" + bytes(24) + message for message in (begin.data, described.data, insert)]
    (tmp_path / "frames").write_bytes(b"".join([struct.pack(">i", len(frame)) + frame for frame in frames]))
    for form in ("recv", "frames"):
        ran = inspect(tmp_path / form, "--message", "3", "-o", "json")
        [line] = ran.objects
        *_, cell = line["fields"]
        assert (cell["column"], cell["hex"]) == ("id", value.hex())
        assert (tmp_path / form).read_bytes()[cell["offset"] :].startswith(value)


def test_messages_are_picked_by_number_and_limit() -> None:
    assert [line["message"] for line in lines(WALSENDER, "--message", "7", "--message", "9-10,12")] == [7, 9, 10, 12]
    assert [line["message"] for line in lines(RECV, "--kind", "commit", "-n", "2")] == [5, 8]


@pytest.mark.parametrize("limit", [1, 3, 40])
def test_a_limit_ends_inside_a_transaction(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(recvlogical(relation(), begin(), *[insert(str(number), "v") for number in range(100)], commit()))
    assert len(lines(path, "--limit", str(limit))) == limit


def test_nothing_is_read_after_the_last_number(tmp_path: Path) -> None:
    bad = damaged(tmp_path, RECV, 71, ord("X"))
    assert [inspect(bad, "--message", last).status for last in ("1", "3")] == [0, 1]


def kinds(*arguments: str | Path) -> set[str]:
    """The kinds of the selected messages."""
    return {line["kind"] for line in inspect(*arguments, "-o", "json").objects}


def test_messages_are_picked_by_kind_by_name_and_by_first_byte() -> None:
    assert kinds(WALSENDER, "--kind", "begin,Stream Commit", "--kind", "I", "--kind", "keep-alive") == {
        "Begin",
        "Insert",
        "Keepalive",
    }
    assert kinds(TWO_PHASE, "--kind", "b") == {"BeginPrepare"}


def test_messages_are_picked_by_the_bytes_in_them() -> None:
    everything = lines(RECV)
    for at in (0, 62, 63, 70, 84, 85, len(read(RECV)) - 1):
        [line] = lines(RECV, "--offset", str(at))
        assert line == [one for one in everything if one["offset"] <= at][-1]
    [line] = lines(FORMS["peek.hex"], "--offset", "0x100")
    assert line["offset"] <= 0x100


def test_messages_are_picked_by_log_position() -> None:
    assert [line["kind"] for line in lines(RECV, "--lsn", "0/5CE2FB0")] == ["Begin", "Commit"]
    assert {line["kind"] for line in lines(WALSENDER, "--lsn", "0/5CE2F60-0/5CE2FE0")} >= {"Keepalive", "Update"}


@pytest.mark.parametrize(
    ("option", "value", "selected"),
    [
        ("-t", "t", {"Relation", "Insert", "Update", "Delete", "Truncate"}),
        ("--op", "delete,message", {"Delete", "Message"}),
        ("--exclude", "public.t", {"Begin", "Commit", "Keepalive", "Message"}),
    ],
)
def test_filters_are_about_changes(option: str, value: str, selected: set[str]) -> None:
    assert kinds(WALSENDER, option, value) == selected


def test_a_transaction_with_all_its_messages() -> None:
    assert [line["kind"] for line in lines(RECV, "--xid", "1349")] == ["Begin", "Update", "Commit"]


@pytest.mark.parametrize(
    ("path", "parts", "ends"),
    [
        (PARALLEL, {"StreamStart", "Insert", "StreamStop"}, {"StreamCommit"}),
        (TWO_PHASE, {"BeginPrepare", "Prepare", "Insert"}, {"CommitPrepared", "RollbackPrepared"}),
    ],
)
def test_streamed_and_prepared_transactions_are_found_whole(path: Path, parts: set[str], ends: set[str]) -> None:
    outcomes = [
        {field["field"]: field["value"] for field in end["fields"]} for end in lines(path, "--kind", ",".join(ends))
    ]
    for xid in {outcome["xid"] for outcome in outcomes}:
        found = kinds(path, "--xid", xid)
        assert parts <= found
        assert found & ends
        assert "Begin" not in found


@pytest.mark.parametrize("nothing", [("-t", "nothing"), ("--message", "99"), ("--offset", "9999"), ("--lsn", "1/0")])
def test_empty_selection_reports_what_was_read(nothing: tuple[str, ...]) -> None:
    ran = inspect(RECV, *nothing)
    assert (ran.status, ran.stdout) == (0, b"")
    [last] = [one["message"] for one in lines(RECV, "--offset", str(len(read(RECV)) - 1))]
    expected = f"note: nothing matched in {last} messages, up to byte {len(read(RECV))}"
    assert expected in ran.stderr


def test_a_begin_with_xid_0_is_shown_as_that_of_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    ordinary = [begin(), insert("3", "c"), commit()]
    path.write_bytes(recvlogical(*snapshot(["1", "a"], ["2", "b"]), *ordinary, *snapshot(["1", "a"]), *ordinary))
    assert shown(path).count("none: the rows of a snapshot follow") == 2
    assert len(lines(path, "--op", "snapshot")) == 3


def test_filter_on_values_not_sent_is_noted() -> None:
    ran = inspect(RECV, "--where", "v = one")
    assert ran.status == 0
    assert ran.stdout.startswith(b"\xe2\x97\x8f 3  Insert")
    assert "could not be tested on 1 row" in ran.stderr


def test_colors_are_on_request() -> None:
    plain = inspect(RECV)
    assert b"\x1b" not in plain.stdout
    assert b"\x1b[1m" in inspect(RECV, "--color", "always").stdout


def test_output_goes_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert inspect(RECV, "-f", target).stdout == b""
    assert target.read_bytes() == inspect(RECV).stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--message", "x"], "expected a number such as 7"),
        (["--message", "1-"], "expected a number such as 7"),
        (["--message", "0"], "messages are counted from 1"),
        (["--message", "9-7"], "begins with its lower number"),
        (["--offset", "x"], "expected a byte offset such as 1043"),
        (["--kind", "insrt"], "expected one of Begin, "),
        (["--lsn", "12"], "expected an LSN such as"),
        (["--lsn", "0/1-"], "expected an LSN such as"),
        (["--lsn", "0/1-x"], "expected an LSN such as"),
        (["--encoding", "x"], "'x' is no encoding of PostgreSQL that Python has"),
    ],
)
def test_invalid_option_values_are_refused(arguments: list[str], complaint: str) -> None:
    ran = inspect(RECV, *arguments)
    assert ran.status == 2
    assert complaint in ran.stderr


# -- damage --------------------------------------------------------------------------------------------------------


def damaged(tmp_path: Path, source: Path, at: int, byte: int) -> Path:
    """A copy with one byte changed."""
    data = bytearray(read(source))
    data[at] = byte
    target = tmp_path / "damaged"
    target.write_bytes(data)
    return target


def test_a_damaged_message_shows_its_good_fields_and_the_bad_byte(tmp_path: Path) -> None:
    ran = inspect(damaged(tmp_path, RECV, 71, ord("X")), "--offset", "70")
    assert ran.status == 1
    *good, bad, end = ran.stdout.decode().split("\n")
    assert good == [
        "● 3  Insert  public.t  byte 63  9 bytes",
        "  63  49                       tag                    Byte1        'I'  Insert",
        "  64  00 00 45 f3              relation               Int32 (Oid)  17907  public.t",
        "  68  4e                       tuple kind             Byte1        'N'  the new row",
        "  69  00 02                    new number of columns  Int16        2",
    ]
    assert bad == "  71  58                       ✗ id kind" + 27 * " " + "'X' where 't', 'b', 'n' or 'u' was expected"
    assert end == ""
    assert "byte 71: Insert.new[0] kind: 'X' where" in ran.stderr
    assert ran.stderr.endswith("; --resync skips the damage\n")


def test_a_message_of_an_unknown_kind(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(b"Zabc")
    shown = inspect(tmp_path / "dump", "--input-format", "raw").stdout.decode()
    assert shown == "● 1  ?  byte 0  1 byte\n  0  5a                       ✗ tag    no message starts with byte 0x5a\n"


def test_the_bad_byte_is_red(tmp_path: Path) -> None:
    ran = inspect(damaged(tmp_path, RECV, 71, ord("X")), "--color", "always")
    assert b"\x1b[38;5;231;48;5;124m58\x1b[0m" in ran.stdout


def test_resync_continues_and_sets_the_exit_status(tmp_path: Path) -> None:
    bad = damaged(tmp_path, RECV, 71, ord("X"))
    ran = inspect(bad, "--resync", "-o", "json")
    found = ran.objects
    assert ran.status == 1
    assert "going on at byte 86" in ran.stderr
    assert [line["message"] for line in found if "error" in line] == [3]
    assert found[-1]["kind"] == "Commit"
    assert [contents(line) for line in found[3:]] == [contents(line) for line in lines(RECV)[3:]]


def test_the_number_of_a_damaged_message_after_many_rows(tmp_path: Path) -> None:
    good = recvlogical(relation(), begin(), *[insert(str(number), "v") for number in range(50)])
    path = tmp_path / "dump"
    path.write_bytes(good + b"I\0\0\0dNdamage" + good + recvlogical(commit()))
    ran = inspect(path, "--resync", "-o", "json")
    [damaged] = [line for line in ran.objects if "error" in line]
    assert (ran.status, damaged["message"], damaged["offset"]) == (1, 53, len(good))


def test_damage_inside_a_frame_is_shown_at_its_offset(tmp_path: Path) -> None:
    everything = lines(WALSENDER, "--kind", "insert")
    [kind] = [field["offset"] for field in everything[0]["fields"] if field["field"] == "new[0] kind"]
    ran = inspect(damaged(tmp_path, WALSENDER, kind, ord("X")), "--resync", "-o", "json")
    [error] = [line["error"] for line in ran.objects if "error" in line]
    assert (error["offset"], error["hex"], error["field"]) == (kind, "58", "id kind")
    assert ran.status == 1


def test_damage_in_a_text_form_is_shown_within_its_message(tmp_path: Path) -> None:
    hexed = read(FORMS["peek.hex"]).replace(b"4e0002740000000131", b"4e0002580000000131", 1)
    (tmp_path / "damaged.hex").write_bytes(hexed)
    ran = inspect(tmp_path / "damaged.hex", "--message", "3")
    assert ran.status == 1
    assert "\n  +8  58                       ✗ id kind  " in ran.stdout.decode()


def test_file_that_is_not_a_dump_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x00\x01\x02nothing")
    ran = inspect(tmp_path / "x")
    assert (ran.status, ran.stdout) == (1, b"")
    assert "none of the known forms" in ran.stderr
    assert inspect(tmp_path / "missing").status == 1


def test_message_before_a_wrong_byte_is_shown_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.bin"
    path.write_bytes(recvlogical(relation(), begin()) + insert("1", "one") + b"X" + recvlogical(insert("2", "two")))
    ran = inspect("--input-format", "recvlogical", path)
    assert ran.status == 1
    assert ran.stdout.count(b" Insert ") == 1
    assert "byte 85: Insert: byte 0x58 instead of the newline after the message" in ran.stderr


def test_a_segment_that_continues_a_transaction_does_not_show_its_beginning_again(tmp_path: Path) -> None:
    messages = [relation(), begin(), *[insert(str(number), "v" * 100) for number in range(500)], commit()]
    record(tmp_path / "capture", [frame(one, lsn=0x200 + number) for number, one in enumerate(messages)])
    paths = segments(tmp_path / "capture")
    assert len(paths) > 4
    assert [line["kind"] for line in lines(*paths)] == ["Relation", "Begin", *["Insert"] * 500, "Commit"]
