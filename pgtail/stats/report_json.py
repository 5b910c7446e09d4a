"""The report of `pgtail stats`, and a sample of --watch, as a JSON object each (man page pgtail-stats(1))."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from pgtail._orjson import orjson
from pgtail.changes.events import Transaction
from pgtail.changes.relations import Relation
from pgtail.pgoutput.cells import Binary
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.stats.clients import Client
from pgtail.stats.collect import HotKey, Mark, Statistics, TableCount
from pgtail.stats.prepared import PreparedTransaction, PreparedTransactions
from pgtail.stats.rate import NOTHING, Counts
from pgtail.stats.top import Sample
from pgtail.stats.transactions import Histogram, Largest, TransactionSize
from pgtail.terminal.escape import json_line
from pgtail.values import Undecoded

MAX_KEYS: Final = 20
"""Hot keys in the report."""
MAX_STEPS: Final = 120
"""Steps of the rate in the report."""
MAX_TABLES: Final = 7
"""Tables in it, those with most bytes."""
OPS: Final = ("inserts", "updates", "deletes")
MAX_OPEN: Final = 10
"""Prepared transactions without an outcome in the report."""


def stats_json(stats: Statistics) -> str:
    """The report as one line of JSON."""
    return json_line(stats_object(stats))


def top_json(stats: Statistics, sample: Sample, *, now: int) -> str:
    """The line; `now` is in microseconds since 2000. Tables without changes in the sample are left out."""
    position, times = sample.position, stats.transactions.commits.times
    xid, changes = position.unfinished or (None, 0)
    report: dict[str, Any] = {
        "at": time_text(now),
        "seconds": round(sample.seconds, 3),
        "transactions": sample.transactions,
        "rows": sample.rows,
        "bytes": sample.bytes,
        "lsn": lsn_text(position.lsn) if position.lsn else None,
        "server_lsn": lsn_text(position.server_lsn) if position.server_lsn else None,
        "lag_bytes": position.lag,
        "last_commit_ts": time_text(times[-1]) if times else None,
        "open": {"xid": xid, "changes": changes} if changes else None,
        "tables": [
            {**name_object(table.relation), **counts._asdict()} for table, counts in sample.tables if any(counts)
        ],
        "hot_keys": [_key_object(key) for key in stats.hottest(MAX_KEYS)],
    }
    return json_line(report)


def stats_object(stats: Statistics) -> dict[str, Any]:
    """The report; values of keys are JSON already."""
    keys = stats.hot_keys
    total = stats.bytes
    return {
        "transactions": _transactions(stats),
        **_snapshots(stats),
        "tables": [_table(table, total) for table in stats.by_bytes()],
        "messages": {"count": stats.messages, "bytes": stats.message_bytes},
        "rate": _rate(stats),
        "hot_keys": {
            "counted": keys.total,
            "error": keys.error,
            "keys": [_key_object(key) for key in stats.hottest(MAX_KEYS)],
        },
        "schema_changes": [{**_mark(mark), "differences": mark.differences} for mark in stats.schema_changes.kept],
        "more_schema_changes": stats.schema_changes.more,
        "truncates": [_mark(mark) for mark in stats.truncates.kept],
        "more_truncates": stats.truncates.more,
        "clients": [_client(client) for client in stats.clients],
    }


def name_object(relation: Relation) -> dict[str, Any]:
    """The name of a table; its OID if no description of it was seen."""
    return {"schema": relation.schema, "table": relation.name} if relation.seen else {"relid": relation.oid}


def _table(table: TableCount, total: int) -> dict[str, Any]:
    return {
        **name_object(table.relation),
        "identity": table.relation.identity or None,
        "inserts": table.inserts,
        "updates": table.updates,
        "deletes": table.deletes,
        "truncates": table.truncates,
        **_snapshot(table),
        "bytes": table.bytes,
        "share": round(table.bytes / total, 6) if total else 0.0,
        "key_updates": table.moved,
        "updates_compared": table.compared,
        "updates_without_change": table.same,
        "updates_with_unsent_toast": table.unsent,
        "unsent_toast": table.most_unsent,
    }


def _snapshots(stats: Statistics) -> dict[str, Any]:
    if not stats.snapshots:
        return {}
    return {"snapshots": {"count": stats.snapshots, "rows": stats.snapshot_rows, "bytes": stats.snapshot_bytes}}


def _snapshot(table: TableCount) -> dict[str, int]:
    if not table.snapshot_rows:
        return {}
    return {"snapshot_rows": table.snapshot_rows, "snapshot_bytes": table.snapshot_bytes}


def _transactions(stats: Statistics) -> dict[str, Any]:
    transactions, tables = stats.transactions, [*stats.tables.values()]
    streamed, durations = stats.streamed, transactions.durations

    def sizes(largest: Largest) -> list[dict[str, Any]]:
        return [_size(size, tables) for size in transactions.sizes(largest)]

    return {
        "count": transactions.count,
        "empty": transactions.empty,
        "incomplete": transactions.incomplete,
        "first": None if transactions.first is None else _place(transactions.first),
        "last": None if transactions.last is None else _place(transactions.last),
        "origins": dict(transactions.origins.most_common()),
        "clock_set_back": [
            {"lsn": lsn_text(one.lsn), "from": time_text(one.before), "to": time_text(one.now)}
            for one in transactions.commits.set_back
        ],
        "rows": _histogram(transactions.rows),
        "bytes": _histogram(transactions.bytes),
        "seconds": None if transactions.commits.set_back else {"classes": _classes(durations, 1000)},
        "most_bytes": sizes(transactions.by_bytes),
        "most_rows": sizes(transactions.by_rows),
        "longest": sizes(transactions.by_time),
        "streamed": {"count": stats.streamed_count, "rows": streamed.rows, "bytes": streamed.bytes},
        "prepared": _prepared(stats.prepared),
    }


def _prepared(prepared: PreparedTransactions) -> dict[str, Any]:
    return {
        "count": prepared.count,
        "committed": prepared.outcomes["commit_prepared"],
        "rolled_back": prepared.outcomes["rollback_prepared"],
        "without_outcome": len(prepared.open),
        "longest": [
            {**_waiting(one), "outcome": one.outcome, "seconds": _seconds(one.waited)} for one in prepared.longest
        ],
        "oldest": [_waiting(one) for one in islice(prepared.open.values(), MAX_OPEN)],
    }


def _waiting(prepared: PreparedTransaction) -> dict[str, Any]:
    lsn = None if prepared.lsn is None else lsn_text(prepared.lsn)
    return {"gid": prepared.gid, "xid": prepared.xid, "lsn": lsn, "ts": time_text(prepared.prepared)}


def _mark(mark: Mark) -> dict[str, Any]:
    lsn, time = mark.lsn, mark.time
    place = {"lsn": None if lsn is None else lsn_text(lsn), "ts": None if time is None else time_text(time)}
    return {**name_object(mark.table), **place}


def _place(transaction: Transaction) -> dict[str, Any]:
    """Its position and time, which is that of another server if it has an origin."""
    lsn, time, origin = transaction.lsn, transaction.time, transaction.origin
    place = {"lsn": None if lsn is None else lsn_text(lsn), "ts": None if time is None else time_text(time)}
    return place if origin is None else {**place, "origin": origin}


def _histogram(histogram: Histogram) -> dict[str, Any]:
    return {
        "total": histogram.total,
        "p50": histogram.percentile(50),
        "p95": histogram.percentile(95),
        "p99": histogram.percentile(99),
        "max": histogram.maximum,
        "classes": _classes(histogram),
    }


def _classes(histogram: Histogram, unit: int = 1) -> list[dict[str, Any]]:
    """The classes of numbers; `unit` of these are one."""
    return [{"from": least if unit == 1 else least / unit, "count": count} for least, count in histogram.classes()]


def _size(size: TransactionSize, tables: Sequence[TableCount]) -> dict[str, Any]:
    transaction = size.transaction
    return {
        "xid": transaction.xid,
        **({} if transaction.gid is None else {"gid": transaction.gid}),
        **_place(transaction),
        "rows": size.rows,
        "bytes": size.bytes,
        "seconds_at_least": _seconds(size.at_least),
        "seconds_at_most": _seconds(size.at_most),
        "streamed": transaction.streamed,
        "tables": [
            {**name_object(tables[number].relation), "rows": counts.rows, "bytes": counts.bytes}
            for number, counts in size.tables.items()
        ],
        "more_tables": size.more_tables,
    }


def _client(client: Client) -> dict[str, Any]:
    return {
        "client": client.address,
        "server": client.server,
        "slot": client.slot,
        "status_updates": client.updates,
        "confirmed_lsn": lsn_text(client.confirmed) if client.confirmed else None,
        "behind_bytes": client.behind,
        "most_behind_bytes": client.most_behind,
        "stuck_seconds": _seconds(client.stuck_for),
        "lag": [{"ts": time_text(time), "behind_bytes": behind} for time, behind in client.lag],
    }


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1_000_000


def _rate(stats: Statistics) -> dict[str, Any] | None:
    series = stats.rate.series(MAX_STEPS)
    if series is None:
        return None
    tables = []
    for table in stats.by_bytes()[:MAX_TABLES]:
        steps = [step.get(table.number, NOTHING) for step in series.steps]
        counts = zip(Counts._fields, map(list, zip(*steps, strict=True)), strict=True)
        tables.append({**name_object(table.relation), **dict(counts)})
    return {
        "from": time_text(series.start),
        "step_seconds": series.width / 1_000_000,
        "rows": series.rows,
        "bytes": series.bytes,
        **{op: [sum([getattr(counts, op) for counts in step.values()]) for step in series.steps] for op in OPS},
        "tables": tables,
    }


def _key_object(key: HotKey) -> dict[str, Any]:
    values: dict[str, orjson.Fragment] = {}
    undecoded_names = []
    for column, cell in zip(key.relation.columns, key.cells, strict=True):
        name, codec = column.name, column.codec
        if isinstance(cell, bytes):
            try:
                token = codec.json_binary(cell) if isinstance(cell, Binary) else codec.json_text(cell)
            except Undecoded as found:
                undecoded_names.append(name)
                token = orjson.dumps(found.text)
            values[name] = orjson.Fragment(bytes(token))  # of no subclass, as a cell of json is
    undecoded = {"undecoded": undecoded_names} if undecoded_names else {}
    return {**name_object(key.relation), "key": values, **undecoded, "changes": key.count}
