"""What a server did, recorded and read back: rows of `changes` without Spark, and the plain model's idea of them."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pgtail.arrow.decoding.decode import SegmentChanges, survey
from pgtail.arrow.typed.versions import Version
from pgtail.pgoutput.scalars import parse_lsn
from tests.support.run_process import pgtail
from tests.support.servers import Database
from tests.support.spark.captures import segments
from tests.support.spark.fold import Change, Described, Fold, Happening, Moment, Snapshot, Truncate

Rows = list[dict[str, Any]]
SLOT = "s"
OPS = ("insert", "update", "delete", "truncate", "snapshot")
SETUP = (
    "CREATE PUBLICATION p FOR ALL TABLES",
    f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput'{{}})",
)


def begin(database: Database, *, two_phase: bool = False) -> None:
    """From now on everything is published."""
    publication, slot = SETUP
    database.execute(publication, slot.format(", false, true" if two_phase else ""))


def record(database: Database, directory: Path, *arguments: str, slot: str = SLOT) -> None:
    """Record up to now."""
    pgtail("record", database.conninfo(), "-S", slot, "-D", str(directory), "--until", "now", *arguments)


def changes(directory: Path) -> Rows:
    """Every row, in order."""
    found: Rows = []
    for path in segments(directory):
        with path.open("rb") as file:
            for batch in SegmentChanges(file, path.name):
                found += batch.to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=lambda row: (row["position"], row["ordinal"] or 0, row["seq"] or 0))


def relations(directory: Path) -> dict[str, Version]:
    """Every version of every table."""
    found = {}
    for path in segments(directory):
        with path.open("rb") as file:
            found.update({row["relation"]: Version.of(row) for row in survey(file, path.name).relations})
    return found


def committed(rows: Rows) -> Rows:
    """What was committed, prepared transactions at the place of their outcome."""
    waiting: dict[tuple[str, int], Rows] = {}
    found: Rows = []
    for row in rows:
        if row["state"] == "prepared":
            waiting.setdefault((row["gid"], row["xid"]), []).append(row)
        elif row["op"] in ("commit_prepared", "rollback_prepared"):
            done = waiting.pop((row["gid"], row["xid"]), [])
            if row["op"] == "commit_prepared":
                place = {"position": parse_lsn(row["commit_lsn"]), "commit_ts": row["commit_ts"], "state": None}
                found += [one | place for one in done]
        else:
            found.append(row)
    return sorted(found, key=lambda row: (row["position"], row["seq"] or 0))


def folds(
    rows: Rows,
    versions: dict[str, Version],
    *,
    history: bool = False,
    schema: bool = False,
    snapshots: Sequence[dict[str, Any]] = (),
) -> dict[str, Fold]:
    """Each table by its last name (with its schema), folded from committed rows in order; `snapshots` are rows of the
    table of that name."""
    found = {}
    tables: dict[int, Rows] = {}
    starts = [one | {"op": "starts", "seq": 0} for one in snapshots]
    for row in sorted([*rows, *starts], key=lambda row: (row["position"], row["seq"] or 0)):
        if row["op"] in (*OPS, "starts"):
            tables.setdefault(row["relid"], []).append(row)
    for own in tables.values():
        happenings: list[Happening] = []
        last = ""
        for row in own:
            if row["relation"] != last:
                last = row["relation"]
                happenings.append(Described(moment(row), versions[last]))
            if row["op"] == "truncate":
                happenings.append(Truncate(moment(row)))
            elif row["op"] == "starts":
                copied = [one for one in own if one["op"] == "snapshot" and one["position"] == row["position"]]
                happenings.append(Snapshot(moment(row), [change(one) for one in copied]))
        changes_ = [change(row) for row in own if row["op"] in ("insert", "update", "delete")]
        fold = Fold(happenings, history=history).take(changes_)
        fold.advance()
        now = versions[last]
        found[f"{now.schema}.{now.table}" if schema else now.table] = fold
    return found


def moment(row: dict[str, Any]) -> Moment:
    return Moment(row["position"], row["seq"], micros(row["commit_ts"]))


def micros(time: datetime.datetime) -> int:
    """Since 1970; Spark's times name no zone."""
    return round(time.replace(tzinfo=datetime.UTC).timestamp() * 1_000_000)


def change(row: dict[str, Any]) -> Change:
    unchanged, undecoded = row["unchanged"] or (), row["undecoded"] or ()
    return Change(row["op"], moment(row), row["old"] or {}, row["new"] or {}, unchanged, undecoded)


def texts(database: Database, table: str) -> tuple[list[str], Counter[tuple[str | None, ...]]]:
    """The names of a table's columns, and its rows as text under the settings of a session of pgtail's."""
    found = database.query(
        f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 "
        "AND NOT attisdropped ORDER BY attnum"
    )
    names = [name for (name,) in found]
    shown = ", ".join(f'"{name}"::text' for name in names)
    with database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return names, Counter(connection.execute(f"SELECT {shown} FROM {table}".encode()).fetchall())


def folded(fold: Fold, names: Sequence[str]) -> Counter[tuple[str | None, ...]]:
    """The model's rows, all of whose values are known."""
    rows = list(fold.rows())
    assert all(set(names) <= row.values.keys() for row in rows)
    return Counter(tuple(row.values[name] for name in names) for row in rows)


def run(database: Database, transactions: Iterable[Sequence[str]]) -> None:
    """Each transaction's statements, in one session."""
    with database.connect() as connection:
        for transaction in transactions:
            for statement in transaction:
                connection.execute(statement.encode())
