"""A sample of `pgtail stats --watch` as a line of JSON (man page pgtail-stats(1))."""

from __future__ import annotations

from typing import Any

from pgtail._orjson import orjson
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.stats.collect import Statistics
from pgtail.stats.report_json import MAX_KEYS, key_object, name_object
from pgtail.stats.top import Sample
from pgtail.terminal.escape import escape_json


def top_json(stats: Statistics, sample: Sample, *, now: int) -> str:
    """The line; `now` is in microseconds since 2000. Tables without changes in the sample are left out."""
    position, last = sample.position, stats.transactions.last
    xid, changes = position.unfinished or (None, 0)
    found: dict[str, Any] = {
        "at": time_text(now),
        "seconds": round(sample.seconds, 3),
        "transactions": sample.transactions,
        "rows": sample.rows,
        "bytes": sample.bytes,
        "lsn": _lsn(position.lsn),
        "server_lsn": _lsn(position.server_lsn),
        "lag_bytes": position.lag,
        "last_commit_ts": None if last is None or last.time is None else time_text(last.time),
        "open": {"xid": xid, "changes": changes} if changes else None,
        "tables": [
            {**name_object(table.relation), **counts._asdict()} for table, counts in sample.tables if any(counts)
        ],
        "hot_keys": [key_object(key) for key in stats.hottest(MAX_KEYS)],
    }
    return escape_json(orjson.dumps(found).decode()) + "\n"


def _lsn(lsn: int | None) -> str | None:
    return lsn_text(lsn) if lsn else None
