"""State and history of altered tables, as the messages of `pgtail ddl` say what was altered."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pgtail.arrow.table_at import read_table
from pgtail.arrow.typed.columns import OWN
from pgtail.errors import OptionError
from pgtail.spark.session import DRIVER_BYTES
from pgtail.storage import locate
from tests.arrow.test_alterations import TRIGGERS
from tests.spark.test_verify import Recorded
from tests.support.run import here
from tests.support.run_process import PROGRAM, started
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.altered import CREATE, Altered
from tests.support.spark.captures import segments
from tests.support.spark.world import apply, stored

NOT_COMPARED = OWN - {"_unknown", "_rescued", "_valid_from", "_valid_to"}


@pytest.fixture
def quick(spark: Any) -> Iterator[Any]:
    """The session, where small passes are done in the driver."""
    spark.conf.set(DRIVER_BYTES, 16 << 20)
    yield spark
    spark.conf.set(DRIVER_BYTES, 0)


def rows_of(table: pa.Table) -> Counter[str]:
    """Each row as text, also what is unknown of it, and from when to when it was."""
    rows = [{name: value for name, value in row.items() if name not in NOT_COMPARED} for row in table.to_pylist()]
    return Counter(repr(sorted(row.items())) for row in rows)


def test_batches_give_what_show_does(quick: Any, newest_database: Database, tmp_path: Path) -> None:
    """Which is what SELECT shows, as tests/arrow shows."""
    newest_database.execute(CREATE)
    model.begin(newest_database)
    newest_database.execute(TRIGGERS)
    model.run(newest_database, Altered(Random(10)).transactions(30))
    capture, out = tmp_path / "capture", tmp_path / "out"
    model.record(newest_database, capture, "--segment-size", "4KB")
    paths = [*map(str, segments(capture))]
    assert len(paths) >= 3
    for some in (paths[:1], paths[1:2], paths[2:]):
        apply(quick, out, some, ["altered"], ddl=True, bucket_size=2_000)
        apply(quick, out, [], ["altered"], history=True, ddl=True, bucket_size=2_000)
    for kind, more in (("state", []), ("history", ["_xid", "_valid_to_xid"])):
        shown = read_table(locate(str(capture)), "altered", ddl=True, history=kind == "history").rows
        assert rows_of(stored(out, kind)["altered"]) == rows_of(shown.drop_columns(more))
        assert not any(shown["_unknown"].to_pylist())


def test_verify_agrees(quick: Any, newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rows of a snapshot are altered."""
    monkeypatch.setattr("pgtail.commands.spark.verify.session", lambda *_, **__: contextlib.nullcontext(quick))
    altered, recorded = Altered(Random(3)), Recorded(newest_database, tmp_path / "capture", tmp_path / "out")
    newest_database.execute(CREATE, "CREATE PUBLICATION p FOR ALL TABLES")
    model.run(newest_database, altered.transactions(10))
    capture = str(recorded.capture)
    record = ["record", "-S", "verified", "-D", capture, "--snapshot", "--segment-age=1s"]
    with started([*PROGRAM, *record, newest_database.conninfo()]) as recorder:
        recorded.wait()
        newest_database.execute(TRIGGERS)
        model.run(newest_database, altered.transactions(6))
        recorded.wait()
        apply(quick, recorded.out, [capture], ddl=True)
        ran = here("spark", "verify", "-o", "json", capture, str(recorded.out), newest_database.conninfo())
        recorder.terminate()
        recorder.wait()
    [line] = ran.objects
    assert (ran.status, line["unknown"], line["equal"]) == (0, 0, line["rows"])
    assert any(read_table(locate(capture), "altered").rows["_unknown"].to_pylist())
    with pytest.raises(
        OptionError, match="the state in .* was made with --ddl: give it again, or use another directory"
    ):
        apply(quick, recorded.out, [capture])
