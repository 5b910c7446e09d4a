"""The column `context` of `changes`: the same as in JSON lines, wherever segments divide a transaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgtail.arrow.decoding.contexts import contexts_of
from pgtail.arrow.decoding.decode import SegmentChanges
from pgtail.arrow.schemas import WITH_CONTEXT
from pgtail.arrow.segments.ranges import EVERYWHERE, Parts, Place, Range
from pgtail.capture.recorder import Rotation
from pgtail.capture.segment import read_head
from pgtail.commands.options.common import DumpOptions
from pgtail.commands.record.dumps import record_dumps
from pgtail.errors import InputError
from pgtail.storage import NO_OPTIONS
from pgtail.storage.local import LocalLocation
from tests.changes.test_context import ADA, DUMP, EMIT
from tests.support.captures import segments
from tests.support.encode import begin, commit, insert, lengths, message, relation
from tests.support.run import decode
from tests.support.servers import Database, since
from tests.support.spark import model

WAYS = pytest.mark.parametrize("parts", [EVERYWHERE, (Range(Place(0, 0), Place(1 << 63, 0)),)], ids=["fast", "long"])


def rows(paths: list[Path], prefix: str, *, parts: Parts = EVERYWHERE, tables: tuple[str, ...] = ()) -> pa.Table:
    """The rows of segments, each decoded alone."""
    batches: list[pa.RecordBatch] = []
    for path in paths:
        contexts = contexts_of(prefix, str(path), NO_OPTIONS)
        with path.open("rb") as file:
            batches += SegmentChanges(file, str(path), parts=parts, tables=tables, contexts=contexts)
    return pa.Table.from_batches(batches, WITH_CONTEXT)


def divided(data: bytes, folder: Path, *, size: int) -> list[Path]:
    """A capture of a dump, with a segment for each `size` bytes."""
    dump = folder / "dump"
    dump.write_bytes(data)
    capture = folder / "capture"
    capture.mkdir()
    record_dumps([str(dump)], capture, DumpOptions(input_format="lengths"), rotation=Rotation(size=size), compress=True)
    return segments(capture)


def column_of(line: dict[str, Any]) -> Any:
    """The column's text for what a line has; objects are compared as such."""
    if "context_base64" in line:
        return r"\xff00"
    return line.get("context")


def read(text: str | None) -> Any:
    """An object, or another text."""
    try:
        return json.loads(text or "null")
    except ValueError:
        return text


@WAYS
@pytest.mark.parametrize("size", [1, 100, 1_000_000])
def test_each_row_has_the_context_that_json_has(size: int, parts: Parts, tmp_path: Path) -> None:
    paths = divided(DUMP, tmp_path, size=size)
    lines = decode("--context", "who", paths[0].parent).objects
    found = rows(paths, "who", parts=parts)
    assert [read(text) for text in found["context"].to_pylist()] == [column_of(line) for line in lines]
    assert found["op"].to_pylist() == [line["op"] for line in lines]
    assert len({*found["context"].to_pylist()}) > 2
    assert any(read_head(LocalLocation(path)).transaction for path in paths) == (size < 1_000_000)


def test_the_text_of_bytes_is_never_that_of_a_text(tmp_path: Path) -> None:
    contents = [b"a\xff", rb"\x61ff", b"", "é".encode()]
    some = [message for content in contents for message in (message_of(content), insert("1", "v"))]
    paths = divided(lengths(relation(), begin(5), *some, commit()), tmp_path, size=1_000_000)
    inserts = [row["context"] for row in rows(paths, "who").to_pylist() if row["op"] == "insert"]
    assert inserts == [r"\x61ff", r"\x5c7836316666", "", "é"]


def message_of(content: bytes) -> bytes:
    return message(content, "who")


def many(count: int) -> list[bytes]:
    return [insert(str(number), "v" * 50) for number in range(count)]


@WAYS
def test_a_missing_segment_is_an_error_only_if_it_may_have_the_context(parts: Parts, tmp_path: Path) -> None:
    """The segments of a transaction without messages need no other; those after a message need that."""
    plain = [begin(5, 0x100), *many(200), commit(0x100, 0x108)]
    spoken = [begin(6, 0x200), *many(100), message(ADA, "who"), *many(200), commit(0x200, 0x208)]
    paths = divided(lengths(relation(), *plain, *spoken), tmp_path, size=3000)
    heads = [read_head(LocalLocation(path)) for path in paths]
    after = [path for path, head in zip(paths, heads, strict=True) if head.transaction and head.transaction[1]]
    assert len(after) > 3
    for path in paths:
        if path != after[-1]:
            path.rename(path.with_suffix(".away"))
    with pytest.raises(InputError, match="whose context may be in the segment before it: .* is not there") as raised:
        rows(after[-1:], "who", parts=parts)
    assert raised.value.source == str(after[-1])
    for path in (*paths[1:4], *after[1:]):
        if path != after[-1]:
            path.with_suffix(".away").rename(path)
    assert {*rows(paths[1:4], "who", parts=parts)["context"].to_pylist()} == {None}
    with pytest.raises(InputError, match=f"{paths[paths.index(after[0])].stem} is not there") as raised:
        rows(after[-1:], "who", parts=parts)
    first = after[0].with_suffix(".away")
    first.rename(after[0])
    before = paths[paths.index(after[0]) - 1]
    before.with_suffix(".away").rename(before)
    assert {*rows(after[-1:], "who", parts=parts)["context"].to_pylist()} == {ADA.decode()}


def test_a_damaged_segment_before_it_is_named(tmp_path: Path) -> None:
    spoken = [begin(6, 0x200), message(ADA, "who"), *many(200), commit(0x200, 0x208)]
    first, *_, last = divided(lengths(relation(), *spoken), tmp_path, size=3000)
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with pytest.raises(InputError) as raised:
        rows([last], "who")
    assert raised.value.source == str(first)


@since(14)
@WAYS
def test_a_transaction_of_a_server_over_many_segments(parts: Parts, database: Database, tmp_path: Path) -> None:
    """Contexts at its start, after several segments, and in the last one; other transactions are beside it."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int)")
    model.begin(database)
    fill = "INSERT INTO t SELECT i, md5(i::text) FROM generate_series({}, {}) i"
    database.execute(
        *["BEGIN", EMIT.format("ada"), "INSERT INTO u VALUES (1)", "COMMIT", "INSERT INTO t VALUES (0, 'none')"],
        *["BEGIN", fill.format(1, 100), EMIT.format("ada"), fill.format(101, 4000), "SAVEPOINT a", EMIT.format("eve")],
        *[fill.format(10_000, 10_010), "ROLLBACK TO a", fill.format(4001, 6000)],
        *[EMIT.format("bob"), fill.format(6001, 9000), "TRUNCATE t", "COMMIT", "INSERT INTO t VALUES (-1, 'none')"],
    )
    model.record(database, tmp_path / "capture", "--segment-size", "64kB")
    paths = segments(tmp_path / "capture")
    inside = [head.transaction for head in (read_head(LocalLocation(path)) for path in paths) if head.transaction]
    assert [messages for _, messages, _ in inside] == sorted(messages for _, messages, _ in inside)
    assert sum(messages == 1 for _, messages, _ in inside) > 3

    found = rows(paths, "context", parts=parts)
    lines = decode("--context", "context", tmp_path / "capture").objects
    assert [read(text) for text in found["context"].to_pylist()] == [column_of(line) for line in lines]
    of_t = rows(paths, "context", parts=parts, tables=("t",)).to_pylist()
    users = {int(dict(row["new"])["id"]): read(row["context"]) for row in of_t if row["op"] == "insert"}
    ada, bob = ({"user": name} for name in ("ada", "bob"))
    assert users == {
        0: None,
        -1: None,
        **{number: None if number <= 100 else ada if number <= 6000 else bob for number in range(1, 9001)},
    }
    assert [read(row["context"]) for row in of_t if row["op"] == "truncate"] == [bob]
