"""One transaction of very many rows passes in bounded memory: 100 000 rows here, five million with PGTAIL_BIG=1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtail.native import compiled
from tests.support.encode import STREAM_STOP, begin, commit, insert, lengths, relation, stream_commit, stream_start
from tests.support.run import Result, command
from tests.support.servers import Database

BIG = bool(os.environ.get("PGTAIL_BIG"))
ROWS = 5_000_000 if BIG else 100_000
PIECE = 5_000
TEXT = "the text of row" + 660 * "."
TIMEOUT = (1800 if BIG else 120) * (1 if compiled() else 30)
"""Seconds for one run, as tests.support.limits counts them. The decoder alone is about thirty times slower."""
MEGABYTE = 1024 * 1024
BOUND = 256 * MEGABYTE
"""Memory, with messages as small as these."""
GROWTH = 60 * MEGABYTE
"""How much more may be used than for a twentieth of the rows: the texts alone of the others take more."""

pytestmark = pytest.mark.timeout(2 * TIMEOUT)


def pieces(rows: int, *, streamed: bool) -> Iterator[bytes]:
    """A dump of one transaction."""
    xid = 7 if streamed else None
    head = [stream_start(), relation(xid=7)] if streamed else [begin(), relation()]
    yield lengths(*head, lsn=1)
    piece = lengths(*[insert(str(number), f"{TEXT} {number}", xid=xid) for number in range(PIECE)], lsn=1)
    for _ in range(rows // PIECE):
        yield piece
    yield lengths(*([STREAM_STOP, stream_commit()] if streamed else [commit()]), lsn=1)


def dump(path: Path, rows: int, *, streamed: bool) -> Path:
    with path.open("wb") as file:
        file.writelines(pieces(rows, streamed=streamed))
    return path


def decode(folder: Path, rows: int, output: str, *, streamed: bool) -> tuple[int, Result]:
    """How many rows the output has, and the run."""
    found = dump(folder / "dump", rows, streamed=streamed)
    out = folder / "out"
    run = command("decode", "-o", output, "--max-rows", "0", "-f", out, found, timeout=TIMEOUT, measured=True)
    assert (run.status, run.stderr) == (0, "")
    return count(out, b"the text of row"), run


def count(path: Path, what: bytes) -> int:
    found, rest = 0, b""
    with path.open("rb") as file:
        while piece := file.read(MEGABYTE):
            piece = rest + piece
            found += piece.count(what)
            rest = piece[-len(what) + 1 :]
    return found


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("output", ["json", "json-tx", "table"])
def test_decode(tmp_path: Path, output: str, streamed: bool) -> None:
    rows, large = decode(tmp_path, ROWS, output, streamed=streamed)
    assert rows == ROWS
    rows, small = decode(tmp_path, ROWS // 20, output, streamed=streamed)
    assert rows == ROWS // 20
    if large.peak:  # only Linux reports it
        assert large.peak < BOUND
        assert large.peak - small.peak < GROWTH


@pytest.mark.parametrize("streaming", ["off", "on"])
def test_stream(newest_database: Database, tmp_path: Path, streaming: str) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute(f"INSERT INTO t SELECT n, '{TEXT} ' || n FROM generate_series(1, {ROWS}) n")
    out = tmp_path / "out"
    where = newest_database.conninfo(options="-c logical_decoding_work_mem=1MB")
    options = ("-S", "s", "--until", "now", "--streaming", streaming, "-o", "json", "-f", out)
    run = command("stream", where, *options, timeout=TIMEOUT, measured=True)
    assert run.status == 0, run.stderr
    assert count(out, b'"op":"insert"') == ROWS
    assert run.peak < BOUND
