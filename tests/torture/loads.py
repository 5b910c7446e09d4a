"""Large loads, each with the memory that pgtail takes for it: that must be bounded.

Many open streamed transactions, one transaction of many rows, rows of as many columns as PostgreSQL allows, and many
concurrent writers. What is written is counted, or compared with the table.
"""

from __future__ import annotations

import random
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from tests.support.encode import (
    STREAM_STOP,
    insert,
    lengths,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
)
from tests.support.run import command
from tests.support.servers import Database, fresh_database
from tests.torture.bench import Bench

MEGABYTE: Final = 1 << 20
BOUND: Final = 256 * MEGABYTE
COLUMNS: Final = 1600
"""The most that a table may have."""
WRITERS: Final = 24
_SEGMENTS: Final = 3
_ROWS: Final = 20
"""Of a segment of a streamed transaction."""
_HOUR: Final = 3600


def open_streams(folder: Path, count: int) -> tuple[int, str]:
    """So many streamed transactions are open at a time; every tenth is rolled back."""
    path = folder / "dump"
    with path.open("wb") as file:
        file.writelines(_streams(count))
    out = folder / "out"
    run = command("decode", "-o", "json", "-f", out, path, timeout=_HOUR, measured=True)
    rows, expected = _count_lines(out), (count - count // 10) * _SEGMENTS * _ROWS
    return run.peak, run.stderr if run.status or rows == expected else f"{rows} of {expected} rows"


def _streams(count: int) -> Iterator[bytes]:
    for segment in range(_SEGMENTS):
        for xid in range(1000, 1000 + count):
            head = [relation(xid=xid)] if segment == 0 else []
            rows = [insert(str(number), f"{xid} {segment} {number}" + 60 * "x", xid=xid) for number in range(_ROWS)]
            yield lengths(stream_start(xid, first=segment == 0), *head, *rows, STREAM_STOP)
    for xid in range(1000, 1000 + count):
        yield lengths(stream_abort(xid, xid) if xid % 10 == 0 else stream_commit(xid, xid << 8, (xid << 8) + 8))


def large_transaction(database: Database, folder: Path, rows: int, streaming: str) -> tuple[int, str]:
    """One transaction of so many rows, streamed or not."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)", "CREATE PUBLICATION p FOR TABLE t")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    database.execute(f"INSERT INTO t SELECT i, 'the text of row ' || i FROM generate_series(1, {rows}) i")
    out = folder / "out"
    options = ("-S", "s", "--until", "now", "--streaming", streaming, "-o", "json", "-f", out)
    run = command("stream", database.conninfo(), *options, timeout=_HOUR, measured=True)
    found = _count_lines(out)
    return run.peak, run.stderr if run.status else "" if found == rows else f"{found} of {rows} rows"


def wide_rows(database: Database, folder: Path, rows: int) -> tuple[int, str]:
    """Rows of as many columns as a table may have, updated with all old values, in several outputs."""
    names = [f"c{number}" for number in range(COLUMNS - 1)]
    columns = ", ".join([f"{name} int2" for name in names])
    database.execute(
        f"CREATE TABLE t (id int2 PRIMARY KEY, {columns})",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    values = ", ".join([f"(i + {number})::int2" for number in range(COLUMNS - 1)])
    database.execute(f"INSERT INTO t SELECT i::int2, {values} FROM generate_series(1, {rows}) i")
    database.execute("UPDATE t SET c7 = NULL, c1598 = -1")
    peak, out = 0, folder / "out"
    for output in ("table", "sql", "debezium", "json"):
        options = ("-S", "s", "--until", "now", "-o", output, "-f", out)
        out.unlink(missing_ok=True)
        run = command("stream", database.conninfo(), *options, timeout=_HOUR, measured=True)
        peak = max(peak, run.peak)
        if run.status:
            return peak, run.stderr
    with out.open("rb") as lines:
        shown = {one["new"]["id"]: one["new"] for one in map(orjson.loads, lines)}
    table = {row["id"]: row for (row,) in database.query("SELECT to_jsonb(t) FROM t")}
    return peak, "" if shown == table and len(table) == rows else "the rows are not those of the table"


def many_writers(database: Database, folder: Path, transactions: int) -> tuple[int, str]:
    """Sessions that write beside each other, with savepoints that are rolled back, and large transactions."""
    database.execute(
        "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, who int, note text)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    threads = [threading.Thread(target=_write, args=[database, who, transactions]) for who in range(WRITERS)]
    for thread in threads:
        thread.start()
    out = folder / "out"
    options = ("-S", "s", "--ack", "commit", "-o", "json", "-f", out)
    first = command("stream", database.conninfo(), *options, "--for", "1s", timeout=_HOUR, measured=True)
    for thread in threads:
        thread.join()
    rest = command("stream", database.conninfo(), *options, "--until", "now", timeout=_HOUR, measured=True)
    peak = max(first.peak, rest.peak)
    if first.status or rest.status:
        return peak, first.stderr + rest.stderr
    with out.open("rb") as lines:
        shown = [one["new"]["id"] for one in map(orjson.loads, lines)]
    # The second run repeats a transaction inside of which the first one was stopped, which it says.
    again = re.search(r"after ([\d ]+) changes?$", first.stderr, re.MULTILINE)
    twice = int(again[1].replace(" ", "")) if again else 0
    ids = {id_ for (id_,) in database.query("SELECT id FROM t")}
    return peak, "" if len(shown) == len(ids) + twice and {*shown} == ids else "other rows"


def _write(database: Database, who: int, transactions: int) -> None:
    with database.connect() as session:
        for number in range(transactions):
            rows = 2000 if number % 20 == who % 20 else 3
            with session.transaction():
                add = f"INSERT INTO t (who, note) SELECT {who}, repeat('x', 50) FROM generate_series(1, {rows})"
                session.execute(add)
                session.execute("SAVEPOINT one")
                session.execute(add)
                session.execute("ROLLBACK TO one" if number % 2 else "RELEASE one")
                session.execute(add)


def _count_lines(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while piece := file.read(MEGABYTE):
            found += piece.count(b"\n")
    return found


LOADS: Final = ("streams", "columns", "writers", "at commit", "streamed")


def trial(bench: Bench, _: random.Random) -> str:
    """One of the loads; raises AssertionError if it took too much memory, or its rows are wrong."""
    kind, scale = bench.turn(LOADS), bench.size(1.0, 0.01)
    sizes = {"streams": 10_000, "columns": 3_000, "writers": 1_000}
    size = max(10, int(sizes.get(kind, 20_000_000) * scale))
    with fresh_database(bench.newest) as database, tempfile.TemporaryDirectory() as folder:
        database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '1MB'")
        match kind:
            case "streams":
                peak, wrong = open_streams(Path(folder), size)
            case "columns":
                peak, wrong = wide_rows(database, Path(folder), size)
            case "writers":
                peak, wrong = many_writers(database, Path(folder), size)
            case _:
                streaming = "off" if kind == "at commit" else "on"
                peak, wrong = large_transaction(database, Path(folder), size, streaming)
    assert not wrong, wrong
    assert peak < BOUND
    return f"{kind}: {size}, {peak / MEGABYTE:.0f} MB"
