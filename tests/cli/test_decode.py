"""`pgtail decode` as its users run it: filters, several files, pipes, and its final messages."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from pgtail.commands.console.progress import SMALL
from tests.support.corpus import capture
from tests.support.encode import (
    UNCHANGED,
    begin,
    commit,
    delete,
    insert,
    lengths,
    message,
    recvlogical,
    relation,
    truncate,
    update,
)
from tests.support.limits import within
from tests.support.run import command, decode, here
from tests.support.run_process import PROGRAM, started
from tests.support.terminals import on_terminal, open_terminal

RECV = capture("Z_small", "p1").forms["recv.bin"]

DUMP = recvlogical(
    relation(),
    relation(oid=200, name="other"),
    *[begin(xid=1), insert("1", "one"), insert("2", "two", oid=200), commit()],
    *[begin(xid=2), update(("1", "uno")), update(("10", UNCHANGED)), delete("1", None), message(b"hi"), commit()],
    *[begin(xid=3), truncate(100, 200), commit()],
)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.bin"
    path.write_bytes(DUMP)
    return path


def shown(*arguments: str | Path) -> list[str]:
    """Operation and table of each line."""
    result = decode(*arguments)
    assert result.status == 0, result.stderr
    return [f"{line['op']} {line.get('table', '')}".strip() for line in result.objects]


# -- filters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ("-t t", ["insert t", "update t", "update t", "delete t", "truncate t"]),
        ("--table public.o*", ["insert other", "truncate other"]),
        ("--exclude t", ["insert other", "message", "truncate other"]),
        ("-t * --exclude *.t", ["insert other", "truncate other"]),
        ("--op insert", ["insert t", "insert other"]),
        ("--op delete,message", ["delete t", "message"]),
        ("--op truncate -t other", ["truncate other"]),
        ("--xid 1 --xid 3", ["insert t", "insert other", "truncate t", "truncate other"]),
        ("-t T", []),
        ("-n 1", ["insert t", "insert other"]),
        ("-n 1 --op delete", ["delete t"]),
        ("-n 2 -t other", ["insert other", "truncate other"]),
    ],
)
def test_filters(dump: Path, options: str, lines: list[str]) -> None:
    assert shown(*options.split(), dump) == lines


@pytest.mark.parametrize("more", [(), ("--op", "message,insert")])
@pytest.mark.parametrize("output", ["json", "json-tx", "table"])
def test_a_transaction_of_messages_alone_counts_for_the_limit(output: str, more: tuple[str, ...]) -> None:
    data = recvlogical(relation(), *[begin(), message(b"hi"), commit()] * 2, begin(), insert("1", "a"), commit())
    for limit in (1, 2, 3):
        shown = decode("-o", output, "-n", str(limit), *more, input=data).stdout.decode().lower()
        assert len(re.findall(r"\bmessage\b", shown.replace("1 message", ""))) == min(limit, 2)
        assert len(re.findall(r"\binsert\b", shown)) == (limit > 2)


@pytest.mark.parametrize("output", ["json", "json-tx", "table"])
def test_filtered_transaction_without_a_begin_does_not_count(output: str) -> None:
    rest = [relation(), begin(), delete("1", None), commit(), begin(), delete("2", None), commit()]
    data = lengths(insert("1", "x"), insert("2", "x"), commit(), *rest)
    for limit in (1, 2):
        shown = decode("-o", output, "--op", "delete", "-n", str(limit), input=data).stdout.decode().lower()
        assert len(re.findall(r"\bdelete\b", shown)) == limit
    if output == "json":
        [counts] = decode("--op", "delete", "-o", "json", input=data, name="stats").objects
        assert (counts["transactions"]["count"], counts["transactions"]["incomplete"]) == (2, 0)


@pytest.mark.parametrize("pure", ["", "1"])
def test_what_nothing_passed_of_is_told(pure: str) -> None:
    rows = [
        part
        for time in range(0, 180_000_000, 60_000_000)
        for part in (begin(time=time), insert("2", "x"), commit(time=time))
    ]
    data = recvlogical(relation(), *rows, begin(time=540_000_000), commit(time=540_000_000))

    def said(*options: str) -> str:
        env = {**os.environ, "PGTAIL_PURE": pure, "TZ": "Asia/Tokyo"}
        ran = subprocess.run([*PROGRAM, "decode", *options], input=data, env=env, capture_output=True, check=True)
        return ran.stderr.decode()

    found = "pgtail: note: 0 of 4 transactions matched; the input covers 2000-01-01 09:00 to 09:09+09\n"
    assert said("--where", "id > 7") == said("--xid", "8", "-o", "table") == found
    assert found in said("-t", "other")
    assert said("--where", "id = 2") == said() == ""
    assert "what was read covers" in said("--since", "2001-01-01")
    first = "pgtail: note: 0 transactions matched; the first one was committed later, at 2000-01-01 09:00+09\n"
    assert said("--until", "1999-12-31Z") == first


def test_where_and_values_not_sent(dump: Path) -> None:
    assert shown("--where", "id > 5", dump) == ["update t"]
    assert shown("--where", "v is null", "--op", "insert", dump) == []
    result = decode("--where", "v = uno", "--op", "update", dump)
    assert [line["new"] for line in result.objects] == [{"id": 1, "v": "uno"}]
    note = "note: --where could not be tested on 1 row: the value was not sent or cannot be compared; UNKNOWN in"
    assert result.stderr == f"pgtail: {note} pgtail-filter(7) says what helps\n"
    result = decode("--where", "colour = red", dump)
    assert (result.status, result.stdout) == (0, b"")
    assert "no table had a column colour (--where colour = red)" in result.stderr
    for where, meant in (("V = uno", "v"), ("xdi = 1", "xid"), ("TABLE = t", "table")):
        assert decode("--where", where, dump).stderr.endswith(f"(--where {where}); did you mean {meant}?\n")
    nothing = decode("--where", "colour = red", "--redact", "size", input=recvlogical(begin(), commit()))
    assert nothing.status == 0
    assert re.sub(r"note: .*: it", "note: it", nothing.stderr) == (
        "pgtail: note: it holds 2 messages, but no change, read as recvlogical\n"
        "pgtail: note: 0 of 1 transaction matched; the input covers 2000-01-01 00:00Z\n"
    )


@pytest.mark.parametrize("more", [[], ["--op", "delete"], ["--xid", "9"], ["--where", "id = 1"]])
def test_filter_that_leaves_nothing_names_the_tables_found(dump: Path, more: list[str]) -> None:
    result = decode("-t", "nosuch", *more, dump)
    assert (result.status, result.stdout) == (0, b"")
    note = "note: no selected table has a change: the changes are of public.other, public.t"
    count = "note: 0 of 3 transactions matched; the input covers 2000-01-01 00:00Z"
    assert result.stderr == f"pgtail: {count}\npgtail: {note}\n"
    for mistyped in ("othr", "public.othr"):
        meant = mistyped.replace("othr", "other")
        assert decode("-t", mistyped, *more, dump).stderr.endswith(f"{note}; did you mean {meant}?\n")
    assert decode("-t", "nosuch", "-t", "other", *more, dump).stderr.count("no selected table") == 0
    assert decode("--exclude", "*", *more, dump).stderr.endswith(f"pgtail: {note}\n"), "a message has no table"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--where", "id"), "expected an operator"),
        (("--op", "upsert"), "--op upsert: expected one of insert, update, delete"),
        (("--encoding", "klingon"), "klingon"),
        (("--type", "mood"), "expected NAME=enum"),
        (("--input-format", "xml"), "xml"),
        (("-o", "yaml"), "yaml"),
    ],
)
def test_invalid_options_are_refused(dump: Path, options: tuple[str, ...], words: str) -> None:
    result = command("decode", *options, dump)
    assert (result.status, result.stdout) == (2, b"")
    assert words in result.stderr


# -- files and pipes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["decode", "inspect", "stats"])
def test_input_file_is_never_overwritten(name: str, dump: Path) -> None:
    data, link = dump.read_bytes(), dump.with_name("link")
    link.symlink_to(dump)
    result = command(name, dump, "-f", link)
    assert (result.status, dump.read_bytes()) == (2, data)
    assert f"-f {link} is the same file as {dump}, which is read: name another one" in result.stderr


@pytest.mark.parametrize("name", ["decode", "inspect", "stats"])
def test_a_file_to_write_is_not_touched_before_the_inputs_are_there(name: str, dump: Path, tmp_path: Path) -> None:
    kept, new, missing, empty = (tmp_path / part for part in ("kept", "new", "missing.bin", "empty"))
    kept.write_text("kept")
    empty.mkdir()
    for inputs, words in (
        ((missing,), "missing.bin: No such file"),
        ((dump, missing), "No such"),
        ((empty,), "holds no"),
    ):
        for file in (kept, new):
            result = command(name, *inputs, "-f", file)
            assert (result.status, kept.read_text(), new.exists()) == (1, "kept", False)
            assert words in result.stderr
    assert command("decode", "-o", "csv", missing, "-f", f"{new}/").status == 1
    assert not new.exists()


@pytest.mark.parametrize(
    "options",
    [("-o", "sql", "--redact", "x"), ("-o", "sql", "--columns", "a"), ("-o", "json", "--type", "mood")],
    ids=str,
)
def test_a_file_to_write_is_not_touched_if_options_are_wrong(options: tuple[str, ...], dump: Path) -> None:
    kept = dump.with_name("kept")
    kept.write_text("kept")
    assert command("decode", *options, dump, "-f", kept).status == 2
    assert kept.read_text() == "kept"


def test_standard_input_is_read_without_a_file(dump: Path) -> None:
    expected = decode(dump).stdout
    assert command("decode", "-o", "json", input=dump.read_bytes()).stdout == expected
    assert command("decode", "-o", "json", "-", input=dump.read_bytes()).stdout == expected


def test_standard_input_is_a_terminal() -> None:
    status, text = on_terminal([*PROGRAM, "decode"])
    assert status == 2
    assert "missing FILE, and standard input is a terminal" in text


def test_file_without_messages_is_noted(dump: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    for data in (b"", gzip.compress(b"")):
        empty.write_bytes(data)
        result = decode(empty, dump)
        assert (result.status, result.stdout) == (0, decode(dump).stdout)
        assert result.stderr == f"pgtail: note: {empty}: it is empty\n"
    assert command("decode", "-", input=b"").stderr == "pgtail: note: <stdin>: it is empty\n"
    result = decode("--input-format", "psql", dump)
    assert (result.status, result.stderr) == (0, f"pgtail: note: {dump}: it holds no message, read as psql\n")


def test_several_files_are_one_stream(tmp_path: Path) -> None:
    """Here the second one begins in the middle of a transaction."""
    half = DUMP.index(insert("2", "two", oid=200))
    for name, data in (("a", DUMP[:half]), ("b", gzip.compress(DUMP[half:]))):
        (tmp_path / name).write_bytes(data)
    whole = decode(input=DUMP)
    both = decode(tmp_path / "a", tmp_path / "b")
    assert (both.status, both.stdout, both.stderr) == (0, whole.stdout, "")


def test_missing_file_is_an_error(dump: Path) -> None:
    result = command("decode", dump, "nowhere.bin")
    assert result.status == 1
    assert result.stdout == command("decode", dump).stdout
    assert result.stderr == "pgtail: error: nowhere.bin: No such file or directory\n"


def test_existing_output_file_is_overwritten(dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        result = command("decode", "-f", out, dump)
        assert (result.status, result.stdout) == (0, b"")
    assert out.read_bytes() == command("decode", dump).stdout


def test_a_full_disk(dump: Path) -> None:
    for options in (("-f", "/dev/full"), ("-f", "/no/such/folder/file")):
        result = command("decode", *options, dump)
        assert result.status == 4
        assert result.stderr.startswith(f"pgtail: error: cannot write to {options[1]}: ")


@pytest.mark.parametrize("name", ["decode", "inspect"])
def test_closed_output_pipe_ends_quietly(name: str) -> None:
    big = capture("A_big", "p1_msg").forms["walsender.bin"]
    with started([*PROGRAM, name, str(big)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(within(30)) == 0


def test_no_colours_in_a_pipe(dump: Path) -> None:
    assert b"\x1b" not in command("decode", "-o", "table", dump).stdout
    coloured = command("decode", "-o", "table", "--color", "always", dump, environment={"TERM": "xterm"})
    assert b"\x1b[" in coloured.stdout
    assert b"\x1b" not in command("decode", "-o", "table", dump, environment={"NO_COLOR": "1"}).stdout


def test_progress_of_a_long_file(tmp_path: Path) -> None:
    """Shown on standard error if that is a terminal and the output is neither one nor a pipe; erased at the end.

    There is room for ^C to its right: in the next line, it would leave the bar on the screen.
    """
    piece = insert("1", "x" * 1000) + b"\n"
    long = tmp_path / "long.bin"
    long.write_bytes(recvlogical(relation(), begin()) + piece * (SMALL // len(piece) + 1) + recvlogical(commit()))
    ours, theirs = open_terminal()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
        for options, stdout, drawn in (
            (("-f", os.devnull, long), subprocess.DEVNULL, True),
            (("-f", os.devnull, "-n", "1", RECV), subprocess.DEVNULL, False),
            (("--op", "delete", long), subprocess.PIPE, False),
        ):
            process = subprocess.Popen(
                [*PROGRAM, "decode", *options],
                stdout=stdout,
                stderr=theirs,
                env={**os.environ, "TERM": "xterm", "PGTAIL_PURE": "1"},
            )
            process.communicate(timeout=within(60))
            assert process.returncode == 0
            os.write(theirs, b"|")
            seen = b""
            while not seen.endswith(b"|"):
                seen += os.read(ours, 65536)
            assert (b"rows/s" in seen) == drawn
            assert (b"MB" in seen) == drawn
            lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()))
            assert max(map(cell_len, lines)) <= 80 - len("^C") - 1
    finally:
        os.close(ours)
        os.close(theirs)


# -- beginnings and encodings ------------------------------------------------------------------------------------------


def test_an_encoding() -> None:
    latin = recvlogical(relation(), begin(), b"I\0\0\0\x64N\0\2nt\0\0\0\1\xe9", commit())
    assert decode("--encoding", "latin1", input=latin).objects[0]["new"] == {"id": None, "v": "é"}
    [line] = decode(input=latin).objects
    assert (line["new"], line["undecoded"]) == ({"id": None, "v": "\\xe9"}, ["v"])


NOT_BUILT = """
import sys
sys.modules["pgtail.native._scanner"] = None  # as if there had been no compiler
from pgtail.commands.decode import command as decode
decode.HINT_AFTER = 0.1
from pgtail.__main__ import main
main()
"""


@pytest.mark.parametrize(("pure", "told"), [("", True), ("1", False)])
def test_a_long_run_without_the_compiled_scanner_tells_how_to_get_it(pure: str, told: bool) -> None:
    """Once; not where PGTAIL_PURE switched it off."""
    dump = lengths(relation(), begin(), insert("1", "x"), commit())
    process = subprocess.Popen(
        [sys.executable, "-c", NOT_BUILT, "decode", "-o", "json", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PGTAIL_PURE": pure},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(dump)
    process.stdin.flush()
    assert process.stdout.readline().startswith(b'{"op":"insert"')
    time.sleep(0.5)
    _, told_text = process.communicate(timeout=within(30))
    assert process.returncode == 0
    assert told_text.count(b"install a C compiler and Python's headers") == told


@pytest.mark.parametrize("option", ["-n", "--last", "--jobs"])
def test_a_number_that_no_file_has(option: str, dump: Path) -> None:
    result = here("decode", option, str(1 << 63), dump)
    assert result.status == 2
    assert f"{1 << 63} is not in the range" in result.stderr
    assert here("decode", "-n", str((1 << 63) - 1), dump).status == 0


@pytest.mark.parametrize("size", ["8388608T", "9" * 20 + "G", "9" * 5000])
def test_a_size_that_no_memory_has(size: str, dump: Path) -> None:
    result = here("decode", "--old-values", "seen", "--old-values-limit", size, dump)
    assert result.status == 2
    assert "is not a size such as 500MB or 1GB" in result.stderr


def test_damage_names_the_option_that_skips_it(tmp_path: Path) -> None:
    path = tmp_path / "damaged.bin"
    path.write_bytes(DUMP.replace(relation(oid=200, name="other"), b"X" + relation(oid=200, name="other")[1:]))
    result = decode(path)
    assert (result.status, result.stderr.endswith("no message starts with byte 0x58; --resync skips the damage\n")) == (
        1,
        True,
    )
    result = decode("--resync", path)
    assert (result.status, "--resync" in result.stderr, len(result.objects) > 3) == (1, False, True)


def test_damage_of_gzip_data_names_what_helps(tmp_path: Path) -> None:
    """Where nothing follows, --resync does not help; where a member follows, it does."""
    path, member = tmp_path / "cut.gz", gzip.compress(DUMP)
    path.write_bytes(member[:-9])
    for name in ("decode", "inspect", "stats"):
        cut = here(name, path)
        assert (cut.status, "; the file was not copied whole, or is still being written" in cut.stderr) == (1, True)
        assert "--resync" not in cut.stderr
    piped = command("decode", input=path.read_bytes())
    assert "is cut off: the data end at compressed byte" in piped.stderr
    assert "not copied" not in piped.stderr
    path.write_bytes(member[: len(member) // 2] + bytes(9) + member)
    damaged = decode(path)
    words = "; --resync goes on at the next gzip member, if one follows\n"
    assert (damaged.status, damaged.stderr.endswith(words)) == (1, True)
    assert len(decode("--resync", path).objects) > len(damaged.objects)
    recorded = here("record", "--from", path, "-D", tmp_path / "recorded")
    assert recorded.stderr.endswith("; pgtail decode --resync goes on at the next gzip member, if one follows\n")


def test_a_dump_that_ends_inside_of_a_message_names_what_helps(tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(DUMP[:-5])
    cure = "needed; the input was cut off, is still being written, or is damaged here, which --resync skips\n"
    for name in ("decode", "inspect", "stats"):
        assert here(name, path).stderr.endswith(cure)
    recorded = here("record", "--from", path, "-D", tmp_path / "recorded")
    assert recorded.stderr.endswith(cure.replace("--resync", "pgtail decode --resync"))
    path.write_bytes(DUMP.replace(b"t\0\0\0", b"t\0\1\0", 1))  # a length
    assert decode(path).stderr.endswith(cure)
    assert len(decode("--resync", path).objects) > len(decode(path).objects)
