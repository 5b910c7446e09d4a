"""pgtail.read(): what it reads, its rules of iteration, and its errors."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import pgtail
from tests.support import captures as recorded
from tests.support.corpus import Capture, Scenario, capture, scenarios
from tests.support.encode import (
    STREAM_STOP,
    UNCHANGED,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    delete,
    frame,
    insert,
    lengths,
    message,
    prepare,
    relation,
    rollback_prepared,
    snapshot,
    stream_commit,
    stream_start,
    truncate,
    update,
)
from tests.support.run import here

SIMPLE = lengths(relation(), begin(7), insert("1", "a"), insert("2", None), commit(), begin(8, 0x200), commit(0x200))


def changes(*sources: Any, **arguments: Any) -> list[pgtail.Change]:
    """All changes."""
    return [change for transaction in pgtail.read(*sources, **arguments) for change in transaction]


def rows(*sources: Any, **arguments: Any) -> list[Any]:
    """The new rows."""
    return [change.new for change in changes(*sources, **arguments)]


# -- all captures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", scenarios(), ids=str)
def test_changes_are_those_of_the_json_output(scenario: Scenario) -> None:
    """Those of prepared transactions come when they are committed, and are compared without their places."""
    for number, one in enumerate(scenario.captures):
        compare(one.forms[("recv.bin", "walsender.bin")[number % 2]], one)


def parsed(line: bytes | str) -> dict[str, Any]:
    """A line of JSON, its numbers as they are written."""
    found: dict[str, Any] = json.loads(line, parse_float=str, parse_int=str)
    return found


def compare(path: Path, one: Capture) -> None:
    encoding = ("--encoding", one.encoding)
    ran = here("decode", "-o", "json", *encoding, path)
    lines = [line for line in map(parsed, ran.lines) if line["op"] not in ("commit_prepared", "rollback_prepared")]
    found, error = [], None
    try:
        for transaction in pgtail.read(path, encoding=one.encoding):
            found += list(transaction)
    except pgtail.InputError as raised:
        error = raised
    assert (error is None) == (ran.status == 0), error
    made = [parsed(change.json()) for change in found]
    unprepared = [line for line in lines if "state" not in line]
    assert [line for line, change in zip(made, found, strict=True) if change.transaction.gid is None] == unprepared
    for line, change in zip(made, found, strict=True):
        compare_change(line, change)


def compare_change(line: dict[str, Any], change: pgtail.Change) -> None:
    assert [change.op, str(change.seq)] == [line["op"], line.get("seq", "None")]
    assert (change.schema, change.table) == (line.get("schema", ""), line.get("table", ""))
    assert str(change.transaction.xid) == line.get("xid", "None")
    assert [str(change.lsn), str(change.transaction.commit_lsn)] == [line.get(x, "None") for x in ("lsn", "commit_lsn")]
    for row, of_json in ((change.new, line.get("new")), (change.old, line.get("old"))):
        assert (row is None) == (of_json is None)
        if row is not None and of_json is not None:
            absent = (pgtail.UNCHANGED, pgtail.NOT_SENT)
            sent = [name for name in row if name in change.undecoded or row[name] not in absent]
            assert sent == [*of_json]
    assert [list(change.undecoded), list(change.unchanged)] == [line.get(x, []) for x in ("undecoded", "unchanged")]
    assert list(change.key) == line.get("key", list(change.key))


# -- sources -----------------------------------------------------------------------------------------------------------


def pipe_of(data: bytes) -> int:
    """A pipe from which these bytes can be read."""
    ours, theirs = os.pipe()

    def write() -> None:
        with open(theirs, "wb") as file:
            file.write(data)

    threading.Thread(target=write).start()
    return ours


def test_sources(tmp_path: Path) -> None:
    [path] = [path for form, path in capture("Z_small", "p1").forms.items() if form == "walsender.bin"]
    data, expected = path.read_bytes(), [line["op"] for line in here("decode", "-o", "json", path).objects]
    zipped = tmp_path / "dump.gz"
    zipped.write_bytes(gzip.compress(data))
    with (
        open(path, "rb") as file,
        open(path, "rb", buffering=0) as raw,
        open(pipe_of(data), "rb") as pipe,
        gzip.open(zipped) as unzipped,
    ):
        sources: list[Any] = [
            str(path),
            path.as_uri(),
            path,
            data,
            bytearray(data),
            memoryview(data),
            zipped,
            zipped.read_bytes(),
        ]
        sources += [file, raw, pipe, io.BytesIO(data), unzipped, io.BytesIO(zipped.read_bytes())]
        for source in sources:
            assert [change.op for change in changes(source)] == expected, source
    twice = changes(path, data)
    assert [change.op for change in twice] == expected * 2


def test_a_capture_and_its_segments(tmp_path: Path) -> None:
    whole = recorded.whole_streams()[0]
    recorded.record(tmp_path / "capture", recorded.data_frames(whole))
    expected = [line["op"] for line in here("decode", "-o", "json", tmp_path / "capture").objects]
    expected = [op for op in expected if op not in ("commit_prepared", "rollback_prepared")]
    assert len(expected) > 10
    assert [change.op for change in changes(tmp_path / "capture", verify=True)] == expected
    assert [change.op for change in changes(*recorded.segments(tmp_path / "capture"))] == expected


def test_what_is_no_source() -> None:
    with pytest.raises(TypeError, match="needs what it is to read"):
        pgtail.read()
    with pytest.raises(TypeError, match="not int"):
        pgtail.read(7)  # type: ignore[arg-type]
    with pytest.raises(pgtail.InputError, match=r"nothing/here: No such file"):
        next(pgtail.read("nothing/here"))
    with pytest.raises(pgtail.InputError, match=r"no binary file: its read\(\) returns str"):
        next(pgtail.read(io.StringIO("a")))  # type: ignore[arg-type]
    with pytest.raises(pgtail.OptionError, match="reads its files twice, which <file> does not allow"):
        next(pgtail.read(io.BytesIO(SIMPLE), verify=True))
    with pytest.raises(pgtail.OptionError, match="ftp:// is no storage"):
        next(pgtail.read("ftp://x/y"))


# -- iteration ---------------------------------------------------------------------------------------------------------


def of_two_rows(xid: int) -> bytes:
    """A transaction that inserts its xid, and 10 more."""
    lsn = xid << 8
    return lengths(begin(xid, lsn), insert(str(xid), "a"), insert(str(xid + 10), "b"), commit(lsn, lsn + 8))


TWO = lengths(relation()) + of_two_rows(7) + of_two_rows(8)


def test_a_transaction_without_changes_does_not_come() -> None:
    assert [transaction.xid for transaction in pgtail.read(SIMPLE)] == [7]


def test_what_is_left_of_a_transaction_is_skipped() -> None:
    seen = []
    for transaction in pgtail.read(TWO):
        for change in transaction:
            assert change.new is not None
            seen.append(change.new["id"])
            break
    assert seen == [7, 8]
    assert [transaction.xid for transaction in pgtail.read(TWO)] == [7, 8]


def test_a_transaction_is_iterated_over_once_and_before_the_next_one() -> None:
    stream = pgtail.read(TWO)
    first, second = stream
    for skipped in (first, second):  # also the last one
        with pytest.raises(RuntimeError, match=f"{skipped!r} has no changes left: the next one was taken, or it was"):
            iter(skipped)
    assert list(stream) == []
    stream = pgtail.read(TWO)
    first = next(stream)
    begun = iter(first)
    next(begun)
    with pytest.raises(RuntimeError, match="iterated over before"):
        list(first)
    second = next(stream)
    assert [list(begun), [change.key for change in second]] == [[], [{"id": 8}, {"id": 18}]]


def test_the_end_of_a_transaction_is_known_after_its_changes() -> None:
    stream = pgtail.read(TWO)
    first = next(stream)
    assert (first.commit_lsn, first.end_lsn, first.commit_ts) == (0x700, None, datetime(2000, 1, 1, tzinfo=UTC))
    list(first)
    assert (first.end_lsn, str(first.end_lsn), repr(first)) == (0x708, "0/708", "<transaction 7 at 0/700>")


def test_truncates_and_messages_are_in_order() -> None:
    data = lengths(
        message(b"alone", transactional=False, lsn=0x50),
        relation(), begin(), insert("1", "a"), message(b"within"), truncate(100, options=3), commit(),
    )  # fmt: skip
    alone, transaction = None, None
    for number, transaction in enumerate(pgtail.read(data)):
        found = list(transaction)
        if number == 0:
            alone = transaction
            [only] = found
            assert isinstance(only, pgtail.Message)
            assert (only.content, only.transactional, only.schema, only.key, only.new) == (
                b"alone",
                False,
                "",
                {},
                None,
            )
            assert transaction.xid is None
        else:
            assert [change.op for change in found] == ["insert", "message", "truncate"]
            _, within, emptied = found
            assert isinstance(emptied, pgtail.Truncate)
            assert isinstance(within, pgtail.Message)
            assert (emptied.cascade, emptied.restart_identity, emptied.table, emptied.key) == (True, True, "t", {})
    assert alone is not transaction
    assert [len([*one.messages]) for one in pgtail.read(data)] == [1, 1]
    assert [[change.table for change in one.truncates] for one in pgtail.read(data)] == [[], ["t"]]
    transaction = next(pgtail.read(data))
    messages = transaction.messages
    assert len([*transaction]) == 1
    with pytest.raises(RuntimeError, match="it was iterated over before"):
        next(messages)


def test_a_prepared_transaction_comes_when_it_is_committed() -> None:
    def prepared(xid: int, gid: str) -> list[bytes]:
        return [begin_prepare(xid, gid), insert(str(xid), "a"), prepare(xid, gid)]

    data = lengths(
        relation(), *prepared(7, "a"), *prepared(8, "b"), *prepared(9, "never"), begin(10), insert("10", "x"), commit(),
        rollback_prepared(8, "b"), commit_prepared(7, "a", lsn=0x300, end=0x308),
    )  # fmt: skip
    found = [(one.xid, one.gid, one.commit_lsn, [change.key["id"] for change in one]) for one in pgtail.read(data)]
    assert found == [(10, None, 0x100, [10]), (7, "a", 0x300, [7])]


def test_snapshots() -> None:
    data = lengths(*snapshot(["1", "a"], ["2", None], end=0x100), *snapshot(["7", "x"], oid=102, name="u", end=0x100))
    found = [(one.xid, one.snapshot, [(c.op, c.table, c.new) for c in one]) for one in pgtail.read(data)]
    assert found == [
        (None, True, [("snapshot", "t", {"id": 1, "v": "a"}), ("snapshot", "t", {"id": 2, "v": None})]),
        (None, True, [("snapshot", "u", {"id": 7, "v": "x"})]),
    ]


def test_it_is_closed_early() -> None:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    [path] = [path for form, path in capture("Z_small", "p1").forms.items() if form == "walsender.bin"]
    with pgtail.read(path) as stream:
        next(stream)
        transaction = next(stream)
        begun = iter(transaction)
        next(begun)
    with pytest.raises(pgtail.InputError, match="is not complete: the stream was closed"):
        list(begun)
    assert list(stream) == []
    if before:
        assert set(os.listdir("/proc/self/fd")) == before


# -- errors ------------------------------------------------------------------------------------------------------------


def until_error(data: bytes, **arguments: Any) -> tuple[list[Any], list[Any], pgtail.InputError | None]:
    """The xids of whole transactions, the keys of all changes, and the error."""
    whole: list[Any] = []
    keys: list[Any] = []
    try:
        for transaction in pgtail.read(data, **arguments):
            keys.extend(change.key["id"] for change in transaction)
            whole.append(transaction.xid)
    except pgtail.InputError as error:
        return whole, keys, error
    return whole, keys, None


def test_an_input_that_breaks_off_raises_inside_of_its_transaction() -> None:
    for length in range(len(TWO)):
        whole, keys, error = until_error(TWO[:length])
        if keys[-1:] == [18] and whole == [7, 8]:
            assert error is not None or length == len(TWO)
        else:
            assert len(keys) <= 4
        if keys and not whole:
            assert error is not None, length
    cut = TWO[: -len(lengths(commit()))]
    whole, keys, error = until_error(cut)
    assert (whole, keys) == ([7], [7, 17, 8, 18])
    assert str(error) == "<transaction 8 at 0/800> is not complete: the input has no more of it"


def test_damage_raises_after_everything_before_it() -> None:
    data = lengths(relation(), begin(7), insert("1", "a"), commit(), begin(8, 0x200), insert("2", "b"))
    whole, keys, error = until_error(data + lengths(b"I\0\0\0\x64X"))
    assert (whole, keys) == ([7], [1, 2])
    assert isinstance(error, pgtail.Malformed)
    assert (error.source, error.offset, error.message) == ("<bytes>", len(data) + 4 + 25 + 5, "Insert")


def test_damage_is_skipped_if_asked() -> None:
    rest = lengths(begin(9, 0x300), insert("3", "c"), commit(0x300))
    data = lengths(relation(), begin(7), insert("1", "a"), commit()) + b"\0\0\0\7w" + bytes(6) + rest
    with pytest.raises(pgtail.InputError):
        changes(data, input_format="lengths")
    assert [row["id"] for row in rows(data, input_format="lengths", resync=True)] == [1, 3]


def test_an_undecodable_value_raises_when_it_is_read() -> None:
    [change] = changes(lengths(relation(), begin(), insert("one", "a"), commit()))
    row = change.new
    assert row is not None
    assert (change.undecoded, row["v"], row.get("other"), list(row)) == (("id",), "a", None, ["id", "v"])
    by_name: list[Callable[[], Any]] = [lambda: row["id"], lambda: row.get("id"), lambda: change.key["id"]]
    whole: list[Callable[[], Any]] = [
        lambda: dict(row),
        lambda: {**row},
        lambda: [*row.items()],
        lambda: [*row.values()],
    ]
    reads: list[Callable[[], Any]] = [*by_name, *whole, lambda: json.dumps(row)]
    for read in reads:
        with pytest.raises(
            pgtail.UndecodedError, match="public.t, column id: 'one' is not a value of type integer"
        ) as e:
            read()
        assert (e.value.column, e.value.text) == ("id", "one")
    with pytest.raises(KeyError):
        row["other"]
    assert json.loads(change.json())["undecoded"] == ["id"]


def test_values_and_errors_can_go_to_another_process_and_changes_say_that_they_cannot() -> None:
    [change] = changes(lengths(relation(), begin(), update(["1", UNCHANGED], ["1", None]), commit()))
    _, _, damage = until_error(SIMPLE + lengths(b"I\0\0\0\x64X"))
    [undecoded] = changes(lengths(relation(), begin(), insert("one", "a"), commit()))
    with pytest.raises(pgtail.UndecodedError) as raised:
        dict(undecoded.new or {})
    for error in (damage, raised.value, pgtail.ServerError("reason", cure="cure")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    row = pickle.loads(pickle.dumps((change.new, change.lsn)))
    assert row == ({"id": 1, "v": pgtail.UNCHANGED}, change.lsn)
    assert row[0]["v"] is pgtail.UNCHANGED
    with pytest.raises(
        TypeError, match="a change is not copied or pickled: .*; pickle what it has, such as key and new"
    ):
        pickle.dumps([change])


# -- the process -------------------------------------------------------------------------------------------------------


def test_nothing_is_printed_and_notes_go_to_the_logger(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with caplog.at_level(logging.INFO, "pgtail"):
        assert changes(SIMPLE, tables=["orders"]) == []
    assert capfd.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records] == [
        "0 of 2 transactions matched; the input covers 2000-01-01 00:00Z"
        if os.environ.get("TZ", "UTC") == "UTC"
        else caplog.records[0].getMessage(),
        "no selected table has a change: the changes are of public.t",
    ]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


def test_names_that_no_table_has_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, unknown = SIMPLE, "no table had a column w (where w = 'a')"
    assert changes(data, where="w = 'a'") == []
    assert changes(data, tables="u") == []
    assert pgtail.read_arrow(data, where="w = 'a'").read_all().num_rows == 0
    capture = tmp_path / "capture"
    messages = begin(), relation(), insert("1", "a"), insert("2", None), commit()
    recorded.record(capture, [frame(one, 0x100) for one in messages])
    assert pgtail.table_at(capture, "t").num_rows == 2
    assert pgtail.table_at(capture, "t", where="w = 'a'").num_rows == 0
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    other = "no selected table has a change: the changes are of public.t"
    assert [text for text in warned if "has no snapshot" not in text] == [unknown, other, unknown, unknown]


def run(program: str, *arguments: str) -> str:
    """What a program prints; it prints nothing on standard error."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return ran.stdout


def test_warnings_are_not_printed_by_the_library(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(SIMPLE)
    program = """
        import sys, pgtail
        print(sum(1 for transaction in pgtail.read(sys.argv[1], redact="nothing") for change in transaction))
    """
    assert run(program, str(path)) == "2\n"


def test_the_command_line_does_not_import_it(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(SIMPLE)
    program = """
        import sys
        from pgtail.cli import main
        try:
            main(["decode", "-o", "json", "-f", "/dev/null", sys.argv[1]])
        except SystemExit:
            pass
        print([name for name in sys.modules if name.startswith("pgtail.api")])
    """
    assert run(program, str(path)) == "[]\n"


def stream_of(messages: Iterator[bytes], path: Path) -> None:
    with open(path, "wb") as file:
        file.writelines(lengths(data) for data in messages)


@pytest.mark.parametrize("kind", ["plain", "streamed", "prepared"])
def test_memory_is_bounded(tmp_path: Path, kind: str) -> None:
    """A transaction of 96 MB: its changes are not kept."""
    number, size, path = 24_000, 4000, tmp_path / "dump"
    streamed = 7 if kind == "streamed" else None

    def messages() -> Iterator[bytes]:
        yield relation()
        yield {"plain": begin(), "streamed": stream_start(), "prepared": begin_prepare()}[kind]
        for index in range(number):
            yield insert(str(index), f"{index:05}" * (size // 5), xid=streamed)
        if kind == "streamed":
            yield STREAM_STOP
        yield {"plain": commit(), "streamed": stream_commit(), "prepared": prepare()}[kind]
        if kind == "prepared":
            yield commit_prepared()

    stream_of(messages(), path)
    program = """
        import resource, sys, pgtail
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = 0
        for transaction in pgtail.read(sys.argv[1]):
            for change in transaction:
                count += len(change.new["v"]) == 4000
        print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    count, grown = run(program, str(path)).split()
    assert int(count) == number
    assert int(grown) * 1024 < 64 << 20


def test_several_streams_at_once() -> None:
    both = zip(pgtail.read(TWO), pgtail.read(TWO), strict=True)
    assert [[change.key for change in one] == [change.key for change in other] for one, other in both] == [True, True]


def test_deletes_and_updates() -> None:
    data = lengths(
        relation(), begin(), insert("1", "a"), update(["1", UNCHANGED]), update(["2", "b"], old=["1", None]),
        delete("2", None), commit(),
    )  # fmt: skip
    _, toast, moved, gone = changes(data)
    assert (toast.old, toast.new, toast.unchanged) == (None, {"id": 1, "v": pgtail.UNCHANGED}, ("v",))
    assert (moved.key, moved.old, moved.new) == ({"id": 1}, {"id": 1}, {"id": 2, "v": "b"})
    assert (gone.op, gone.key, gone.old, gone.new) == ("delete", {"id": 2}, {"id": 2}, None)
    assert (gone.relation.key, gone.relation.identity) == (["id"], "default")
    assert [(column.name, column.type_name, column.key) for column in gone.relation.columns] == [
        ("id", "integer", True), ("v", "text", False),
    ]  # fmt: skip
    assert repr(gone) == "<delete public.t {'id': 2}>"


def test_a_schema_change_in_a_logical_message() -> None:
    content = b'{"version":1,"tag":"DROP TABLE","oid":100,"schema":"public","name":"t","dropped":true}'
    [change] = changes(lengths(begin(), message(content, "pgtail.ddl"), commit()))
    assert isinstance(change, pgtail.Message)
    assert (change.op, change.prefix, change.content, json.loads(change.json())["op"]) == (
        "ddl", "pgtail.ddl", content, "ddl",
    )  # fmt: skip
    assert (change.schema, change.table, change.relation.oid) == ("public", "t", 100)
    assert repr(change) == "<ddl 'pgtail.ddl' of 86 bytes about public.t>"


def test_a_table_is_shown_with_its_columns() -> None:
    assert repr(changes(SIMPLE)[0].relation) == (
        "<relation 100 'public'.'t' [<column 'id' integer>, <column 'v' text>]>"
    )


def test_an_interrupt_is_python_s_own() -> None:
    """Also while it waits for a pipe."""
    program = """
        import os, signal, threading, pgtail
        ours, theirs = os.pipe()
        for source in (open(ours, "rb"), f"/dev/fd/{ours}"):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                next(pgtail.read(source))
            except KeyboardInterrupt as stopped:
                print(type(stopped).__name__)
    """
    assert run(program) == "KeyboardInterrupt\nKeyboardInterrupt\n"
