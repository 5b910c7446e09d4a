"""What the tasks of `pgtail spark changes` write and count, without Spark: against the rows that are decoded."""

from __future__ import annotations

import datetime
import io
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.errors import OptionError, OutputError
from pgtail.spark.datasets import parquet
from pgtail.spark.datasets.parquet import CHANGES_LAYOUT, Writer, codec_of, folder_of, own_folder
from pgtail.spark.decoding.decode import changes_of
from pgtail.spark.decoding.transactions import added_up, counted
from pgtail.spark.schemas import CHANGES, TRANSACTIONS
from pgtail.spark.segments.ranges import Place
from pgtail.spark.segments.survey import Survey, Surveyor, survey
from tests.support import encode
from tests.support.corpus import Capture, capture, captures
from tests.support.spark.captures import plain, record, segments

DAY = 86_400_000_000
"""Of a time as the server counts it, from 2000-01-01 on."""
LARGE = [capture("D_twophase", "p3_2pc"), capture("A_msgs", "p1_msg"), capture("A_dml", "p1_bin")]


def batches_of(paths: list[Path]) -> list[pa.RecordBatch]:
    return [batch for path in paths for batch in changes_of(io.BytesIO(path.read_bytes()), str(path))]


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
            recorder.take(encode.frame(message, begin))
    recorder.close()
    return segments(folder)


def written(batches: list[pa.RecordBatch], folder: Path, **options: Any) -> list[tuple[str, pq.ParquetFile]]:
    """The date and the content of each file."""
    writer = Writer(folder, CHANGES_LAYOUT, "snappy", **options)
    for batch in batches:
        writer.add(batch)
    paths = writer.close()
    assert {folder / path for path in paths} == set(folder.rglob("part-*"))
    return [(path.split("/")[0].removeprefix("commit_date="), pq.ParquetFile(folder / path)) for path in paths]


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["position"], row["ordinal"], row["seq"] or 0


def order(row: dict[str, Any]) -> Any:
    return [(row[name] is not None, row[name]) for name in ("schema", "table")], place(row)


def rows_in(files: list[tuple[str, pq.ParquetFile]]) -> list[dict[str, Any]]:
    """All rows, with the date that the folder tells; each row group is sorted."""
    found = []
    for date, file in files:
        for group in range(file.num_row_groups):
            rows = plain(file.read_row_group(group))
            assert rows == sorted(rows, key=order)
            day = None if date.startswith("__") else datetime.date.fromisoformat(date)
            found += [row | {"commit_date": day} for row in rows]
    return sorted(found, key=place)


@pytest.mark.parametrize("recording", LARGE, ids=str)
@pytest.mark.parametrize("piece", [1, 30_000, parquet.PIECE])
def test_the_files_hold_the_rows(recording: Capture, piece: int, tmp_path: Path) -> None:
    """In pieces of any size, also when segments come in any order."""
    paths = record(recording, tmp_path / "capture", size=20_000)
    rows = plain(pa.Table.from_batches(batches_of(paths)))
    random.Random(3).shuffle(paths)
    batches = batches_of(paths)
    assert rows_in(written(batches, tmp_path / "out", piece=piece)) == rows


def test_a_whole_is_sorted_as_a_whole(tmp_path: Path) -> None:
    """Segments in any order, large ones first as Spark gives them, become row groups in the stream's order."""
    paths = record(LARGE[0], tmp_path / "capture", size=20_000)
    files = written(batches_of(paths[::-1]), tmp_path / "out")
    assert {file.num_row_groups for _, file in files} == {1}
    assert rows_in(files) == plain(pa.Table.from_batches(batches_of(paths)))


def test_many_dates_are_few_open_files(tmp_path: Path) -> None:
    days = [*range(40), *range(40), 3]
    paths = dated(tmp_path / "capture", days)
    batches = batches_of(paths)
    rows = plain(pa.Table.from_batches(batches))
    assert len({row["commit_date"] for row in rows}) == 41
    one = written(batches, tmp_path / "one")
    assert len(one) == 41
    assert rows_in(one) == rows
    # A date that comes again when its file is closed gets another one.
    many = written(batches, tmp_path / "many", piece=1)
    assert len(many) > 41
    assert rows_in(many) == rows


def test_nothing_comes_of_nothing(tmp_path: Path) -> None:
    assert written([], tmp_path / "out") == []
    assert written([pa.RecordBatch.from_pylist([], schema=CHANGES)], tmp_path / "out") == []
    assert not (tmp_path / "out").exists()


def test_statistics_and_pages_can_be_passed_over(tmp_path: Path) -> None:
    paths = record(LARGE[2], tmp_path / "capture")
    [(_, file)] = written(batches_of(paths), tmp_path / "out")
    group = file.metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert "commit_date" not in columns
    for name in ("schema", "table", "position"):
        assert columns[name].statistics.has_min_max
        assert columns[name].has_column_index
        assert columns[name].has_offset_index
    assert columns["new.key_value.key"].compression == "SNAPPY"
    # What is in it are Parquet's own types, and no second schema of Arrow's.
    assert file.metadata.metadata is None
    time = str(file.schema.column(file.schema.names.index("commit_ts")).logical_type)
    assert time.startswith("Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, ")


def test_a_folder_has_the_name_that_spark_gives_it() -> None:
    """Years as java.time.LocalDate has them: tests.spark.test_tasks compares with Spark."""
    unix = (datetime.date(2000, 1, 1) - datetime.date(1970, 1, 1)).days
    assert folder_of(unix) == "commit_date=2000-01-01"
    assert folder_of(None) == "commit_date=__HIVE_DEFAULT_PARTITION__"
    assert folder_of(-719528) == "commit_date=0000-01-01"
    assert folder_of(-719529) == "commit_date=-0001-12-31"
    assert folder_of(2932897) == "commit_date=+10000-01-01"


@pytest.mark.parametrize("name", ["none", "uncompressed", "snappy", "GZIP", "brotli", "zstd", "lz4", "lz4_raw"])
def test_spark_reads_what_codecs_are_called(name: str) -> None:
    codec = codec_of(name)
    assert codec == "none" or pa.Codec.is_available(codec)


def test_a_codec_that_arrow_lacks_is_named() -> None:
    with pytest.raises(OptionError, match=r"spark.sql.parquet.compression.codec is lzo: .* one of none, .* zstd"):
        codec_of("lzo")


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    batches = batches_of(record(LARGE[1], tmp_path / "capture"))

    def write(folder: Path) -> None:
        with own_folder(folder) as own:
            assert written(batches, own / "changes")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "out" / "own")
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=f"cannot write to {tmp_path}/file/own: Not a directory"):
        write(tmp_path / "file" / "own")


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


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "not compiled"])
@pytest.mark.parametrize("recording", [one for one in captures() if one.scenario.version == "pg18"], ids=str)
def test_a_survey_made_while_decoding_is_the_survey(
    recording: Capture, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = record(recording, tmp_path / "capture", size=30_000)
    if not compiled:
        monkeypatch.setattr("pgtail.spark.decoding.fast_path.compiled", lambda: None)
    for path in paths:
        assert surveyed(path) == survey(io.BytesIO(path.read_bytes()), str(path))


def test_a_survey_says_where_a_segment_starts_in_the_stream(tmp_path: Path) -> None:
    """Also where dumps were recorded in another order than that of their positions."""
    for path in dated(tmp_path / "capture", list(range(9)), backwards=True):
        found = surveyed(path)
        assert found == survey(io.BytesIO(path.read_bytes()), str(path))


def surveyed(path: Path) -> Survey:
    """As the tasks do it that decode."""
    surveyor = Surveyor()
    for batch in changes_of(io.BytesIO(path.read_bytes()), str(path), surveyor=surveyor):
        ends = [Place(*(batch[name][row].as_py() for name in ("position", "ordinal"))) for row in (0, -1)]
        surveyor.rows(*ends)
    return surveyor.end()
