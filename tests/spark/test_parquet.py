"""What the tasks of `pgtail spark changes` write and count, without Spark: against the rows that are decoded."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgtail.arrow.decoding.decode import survey
from pgtail.arrow.schemas import CHANGES, TRANSACTIONS
from pgtail.arrow.segments.ranges import Place, Range
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.errors import OptionError, OutputError
from pgtail.spark.decoding.transactions import added_up, counted
from pgtail.spark.lake.parquet import FileWriter, TableFolder, codec_of, write_file
from pgtail.spark.lake.sorting import PIECE, Pieces, sorted_changes
from pgtail.storage import locate
from tests.support import encode
from tests.support.corpus import Capture, capture
from tests.support.spark.captures import batches_of, plain, record, rows_of, segments

DAY = 86_400_000_000
"""Of a time as the server counts it, from 2000-01-01 on."""
LARGE = [capture("D_twophase", "p3_2pc"), capture("A_msgs", "p1_msg"), capture("A_dml", "p1_bin")]


def dated(folder: Path, days: list[int], *, backwards: bool = False) -> list[Path]:
    """A capture of one transaction on each of these days (from 2000-01-01 on), and of a message that has no date."""
    folder.mkdir()
    recorder = Recorder(folder, {}, rotation=Rotation(size=400))
    for number, day in sorted(enumerate(days, 1), reverse=backwards):
        begin, time = number << 12, day * DAY + number
        messages = [
            encode.begin(xid=number, lsn=begin, time=time),
            encode.relation(oid=100 + number % 3, name="cab"[number % 3]),
        ]
        messages += [encode.insert(str(number), None, oid=100 + number % 3), encode.commit(lsn=begin, time=time)]
        messages += [encode.message(b"\xff", transactional=False, lsn=begin + 99)]
        for message in messages:
            recorder.take_frame(encode.frame(message, begin))
    recorder.close()
    return segments(folder)


def written(batches: list[pa.RecordBatch], folder: Path, piece: int = PIECE) -> pq.ParquetFile:
    """A file of these rows."""
    rows, file = Pieces(sorted_changes, piece), FileWriter(TableFolder(locate(str(folder)), "snappy"), CHANGES)
    for found in itertools.chain(*(rows.add_batch(batch) for batch in batches), rows.rest()):
        file.write(found)
    done = file.close()
    assert (folder / done.path).stat().st_size == done.size
    return pq.ParquetFile(folder / done.path)


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["position"], row["ordinal"], row["seq"] or 0


def order(row: dict[str, Any]) -> Any:
    return [(row[name] is not None, row[name]) for name in ("commit_date", "schema", "table")], place(row)


def rows_in(file: pq.ParquetFile) -> list[dict[str, Any]]:
    """All rows; each row group is sorted."""
    found = []
    for group in range(file.num_row_groups):
        rows = plain(file.read_row_group(group))
        assert rows == sorted(rows, key=order)
        found += rows
    return sorted(found, key=place)


@pytest.mark.parametrize("recording", LARGE, ids=str)
@pytest.mark.parametrize("piece", [1, 30_000, PIECE])
def test_the_file_holds_the_rows(recording: Capture, piece: int, tmp_path: Path) -> None:
    """In pieces of any size, also when segments come in any order."""
    paths = record(recording, tmp_path / "capture", size=20_000)
    rows = plain(pa.Table.from_batches(batches_of(paths)))
    random.Random(3).shuffle(paths)
    assert rows_in(written(batches_of(paths), tmp_path / "out", piece)) == rows


def test_a_whole_is_sorted_as_a_whole(tmp_path: Path) -> None:
    """Segments in any order become row groups in the stream's order."""
    paths = record(LARGE[0], tmp_path / "capture", size=20_000)
    file = written(batches_of(paths[::-1]), tmp_path / "out")
    assert file.num_row_groups == 1
    assert rows_in(file) == plain(pa.Table.from_batches(batches_of(paths)))


def test_statistics_and_pages_can_be_passed_over(tmp_path: Path) -> None:
    paths = record(LARGE[2], tmp_path / "capture")
    file = written(batches_of(paths), tmp_path / "out")
    group = file.metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    for name in ("schema", "table", "position"):
        assert columns[name].statistics.has_min_max
        assert columns[name].has_column_index
        assert columns[name].has_offset_index
    assert columns["new.key_value.key"].compression == "SNAPPY"
    # What is in it are Parquet's own types, and no second schema of Arrow's.
    assert file.metadata.metadata is None
    time = str(file.schema.column(file.schema.names.index("commit_ts")).logical_type)
    assert time.startswith("Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, ")


BEHIND = "\\udbff\\udfff"
DIGITS = Decimal("1234567890123456789012345678901234.5678")


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        (pa.int64(), [5, None, -(1 << 63)], ["-9223372036854775808", "5"]),
        (pa.decimal128(38, 4), [DIGITS, Decimal("-0.0001")], ["-0.0001", str(DIGITS)]),
        (pa.date32(), [0, -719162], ['"0001-01-01"', '"1970-01-01"']),
        (pa.date32(), [0, 2932897], None),
        (pa.timestamp("us", "UTC"), [1, -1], ['"1969-12-31T23:59:59.999999Z"', '"1970-01-01T00:00:00.000001Z"']),
        (pa.timestamp("us"), [0], ['"1970-01-01T00:00:00.000000"'] * 2),
        (pa.timestamp("us"), [-62135596800000001], None),
        (pa.string(), ["b", 'a"é'], ['"a\\"\\u00e9"', '"b"']),
        (pa.string(), ["a" * 65, "b" * 65], [f'"{"a" * 64}"', f'"{"b" * 64}{BEHIND}"']),
        (pa.float64(), [1.0, -0.1], ["-0.1", "1.0"]),
        (pa.float64(), [0.0, None], ["-0.0", "0.0"]),
        (pa.float32(), [-0.0], ["-0.0", "0.0"]),
        (pa.float64(), [1.0, float("nan")], None),
        (pa.float32(), [1.0, float("inf")], None),
        (pa.bool_(), [True, True], ["true", "true"]),
        (pa.int32(), [None, None], None),
    ],
)
def test_a_bound_is_exact_or_is_not_there(
    kind: Any, values: list[Any], bounds: list[str] | None, tmp_path: Path
) -> None:
    array = pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
    if pa.types.is_date(kind):
        array = pa.array(values, pa.int32()).cast(kind)
    whole = pa.table({"c": array, "i": pa.array([1] * len(values), pa.int32())})
    stats = json.loads(
        write_file(TableFolder(locate(str(tmp_path)), "snappy"), whole).stats, parse_float=str, parse_int=str
    )
    assert stats.pop("numRecords") == str(len(values))
    assert stats.pop("nullCount") == {"c": str(array.null_count), "i": "0"}
    if array.null_count == len(values):
        assert stats == {"minValues": {"i": "1"}, "maxValues": {"i": "1"}}
    elif bounds is None:
        assert stats == {}, "without one column's bounds another's would hide its rows"
    else:
        least, most = (json.loads(one, parse_float=str, parse_int=str) for one in bounds)
        assert stats == {"minValues": {"c": least, "i": "1"}, "maxValues": {"c": most, "i": "1"}}


@pytest.mark.parametrize("name", ["none", "uncompressed", "snappy", "GZIP", "brotli", "zstd", "lz4", "lz4_raw"])
def test_spark_reads_what_codecs_are_called(name: str) -> None:
    codec = codec_of(name)
    assert codec == "none" or pa.Codec.is_available(codec)


def test_a_codec_that_arrow_lacks_is_named() -> None:
    with pytest.raises(OptionError, match=r"spark.sql.parquet.compression.codec is lzo: .* one of none, .* zstd"):
        codec_of("lzo")


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not match"):
        write_both(str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=f"cannot write {tmp_path}/file.*: Not a directory|File exists"):
        write_both(str(tmp_path / "file"))


def write_both(folder: str) -> None:
    file = FileWriter(TableFolder(locate(folder), "snappy"), pa.schema([("a", pa.int32())]))
    try:
        file.write(pa.table({"a": pa.array([1], pa.int32())}))
        file.write(pa.table({"b": [1]}))
    finally:
        file.abandon()


@pytest.mark.parametrize("recording", LARGE, ids=str)
def test_transactions_are_counted(recording: Capture, tmp_path: Path) -> None:
    """In parts as they come, and these added up: as from each row alone."""
    batches = batches_of(record(recording, tmp_path / "capture", size=10_000_000))
    pieces = [batch.slice(at, size) for batch in batches for at, size in cuts(batch)]
    found = added_up(pa.concat_tables([counted(piece).rows for piece in pieces]))
    expected = list(transactions_in(plain(pa.Table.from_batches(batches))))
    assert transactions_as_rows(found) == expected
    assert len(expected) > 3


def transactions_as_rows(found: pa.Table) -> list[dict[str, Any]]:
    """As `plain` has the rows of changes."""
    nulls = {name: pa.nulls(found.num_rows, CHANGES.field(name).type) for name in ("old", "new")}
    for name, column in nulls.items():
        found = found.append_column(name, column)
    return [{name: row[name] for name in TRANSACTIONS.names} for row in plain(found)]


def cuts(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Pieces of many sizes; the rows of a message stay together."""
    places = list(zip(batch["position"].to_pylist(), batch["ordinal"].to_pylist(), strict=True))
    source, at = random.Random(5), 0
    while at < len(places):
        end = min(at + source.choice([1, 2, 7, 100]), len(places))
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        yield at, end - at
        at = end


def transactions_in(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    own = [row for row in rows if row["xid"] is not None and not row["op"].endswith("_prepared")]
    for position, some in itertools.groupby(own, lambda row: row["position"]):
        of_one = list(some)
        shared = ("xid", "commit_lsn", "commit_ts", "prepare_lsn", "prepare_ts", "origin", "gid", "state")
        yield {
            "position": position,
            **{name: of_one[0][name] for name in shared},
            "changes": sum(row["seq"] is not None for row in of_one),
            "messages": sum(row["op"] == "message" for row in of_one),
            "bytes": sum({row["ordinal"]: row["bytes"] for row in of_one}.values()),
            "tables": sorted({f"{row['schema']}.{row['table']}" for row in of_one if row["table"]}),
            "commit_date": of_one[0]["commit_date"],
        }


def test_a_survey_says_where_a_segment_starts_in_the_stream(tmp_path: Path) -> None:
    """Also where dumps were recorded in another order than that of their positions."""
    for path in dated(tmp_path / "capture", list(range(9)), backwards=True):
        found = survey(io.BytesIO(path.read_bytes()), str(path))
        places = [Place(row["position"], row["ordinal"]) for row in rows_of([path])]
        assert found.places == (Range(places[0], places[-1].next) if places else None)
