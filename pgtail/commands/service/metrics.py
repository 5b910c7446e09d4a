"""Metrics of services for Prometheus, through its client library, over HTTP with /healthz.

Imported only if metrics are asked for.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from pgtail.commands.options.server import Address
from pgtail.commands.service.service import Health
from pgtail.errors import OptionError
from pgtail.service.progress import LakeProgress, SlotProgress, TableRows

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_LONGEST: Final = 200
"""Characters of a label; names of PostgreSQL have at most 63 bytes."""
_OPERATIONS: Final = ("insert", "update", "delete", "truncate", "snapshot")
"""The operations that TableRows counts, in its order."""
_PATIENCE: Final = 10
"""Seconds that a client may take for its request."""
_NO_SUCH_PATH: Final = (404, {"paths": ["/metrics", "/healthz"]})


class _Described(NamedTuple):
    """A metric with one value; a counter if its name ends in _total. Without a value it is left out."""

    name: str
    help: str
    value: Callable[[Any], float | None]


_PROGRESS: Final = (
    _Described("pgtail_lag_bytes", "WAL of the server that is not written yet.",
               lambda progress: progress.lag_bytes),
    _Described("pgtail_last_error_timestamp_seconds", "Time of the last error.",
               lambda progress: progress.last_error),
)  # fmt: skip
_SLOT: Final = (
    _Described("pgtail_received_position_bytes", "Log position (LSN) up to which the server has sent.",
               lambda slot: slot.received or None),
    _Described("pgtail_written_position_bytes", "Log position up to which everything is written safely.",
               lambda slot: slot.written or None),
    _Described("pgtail_acknowledged_position_bytes", "Log position that was last acknowledged to the server.",
               lambda slot: slot.flushed or None),
    _Described("pgtail_server_position_bytes", "Log position of the server, asked every 10 seconds.",
               lambda slot: slot.server),
    _Described("pgtail_last_commit_timestamp_seconds", "When the last transaction that was written was committed.",
               lambda slot: slot.commit_time),
    _Described("pgtail_server_timeline", "Timeline of the server: another one after a promotion.",
               lambda slot: slot.timeline),
    _Described("pgtail_received_bytes_total", "Bytes that the server sent in the stream.",
               lambda slot: slot.received_bytes),
    _Described("pgtail_uploaded_segments_total", "Segments that were uploaded.",
               lambda slot: None if slot.uploads is None else slot.uploads.uploaded),
    _Described("pgtail_upload_failures_total", "Attempts to upload that failed.",
               lambda slot: None if slot.uploads is None else slot.uploads.failures),
    _Described("pgtail_queue_bytes", "Bytes that wait for the output.",
               lambda slot: None if slot.queue is None else slot.queue.waiting),
    _Described("pgtail_queue_spilled_bytes", "Those of them that are on disk.",
               lambda slot: None if slot.queue is None else slot.queue.spilled),
    _Described("pgtail_reconnections_total", "Sessions after the first one.",
               lambda slot: slot.reconnections),
    _Described("pgtail_gaps_total", "Gaps: changes between two sessions that were not read.",
               lambda slot: slot.gaps),
)  # fmt: skip
_COUNTS: Final = (
    _Described("pgtail_transactions_total", "Transactions that were read.",
               lambda counts: counts.transactions),
    _Described("pgtail_read_rows_total", "Rows that were read.",
               lambda counts: counts.rows),
    _Described("pgtail_selected_rows_total", "Rows that the filters let pass.",
               lambda counts: counts.selected),
    _Described("pgtail_recorded_bytes_total", "Bytes that were recorded, before compression.",
               lambda counts: counts.recorded),
    _Described("pgtail_closed_segments_total", "Segments that were closed.",
               lambda counts: counts.segments),
)  # fmt: skip
_LAKE: Final = (
    _Described("pgtail_spark_batch", "Number of the last batch.",
               lambda lake: lake.batch),
    _Described("pgtail_spark_pending_segments", "Segments that were found and are not applied yet.",
               lambda lake: lake.pending),
    _Described("pgtail_spark_segments_total", "Segments that were applied.",
               lambda lake: lake.segments),
    _Described("pgtail_spark_snapshots_total", "Snapshots of tables that were applied.",
               lambda lake: lake.snapshots),
    _Described("pgtail_spark_update_seconds", "How long the last update took.",
               lambda lake: lake.seconds),
)  # fmt: skip


class ProgressCollector(Collector):
    """The metrics of a service."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        progress, now = self._health.progress, time.monotonic()
        if isinstance(progress, SlotProgress):
            yield from _of_slot(progress)
        elif isinstance(progress, LakeProgress):
            yield from _of_lake(progress)
        yield from _common(self._health, now)


def _of_slot(slot: SlotProgress) -> Iterator[Metric]:
    yield from _described(_SLOT, slot)
    if slot.uploads is not None:
        sizes = slot.uploads.spool
        yield _family("pgtail_spool_bytes", "Bytes in the spool.", sum(sizes))
        yield _family("pgtail_spool_files", "Files in the spool.", len(sizes))
    if slot.output is not None:
        counts = slot.output.counts()
        yield from _described(_COUNTS, counts)
        if counts.tables is not None:
            yield _rows(counts.tables)


def _of_lake(lake: LakeProgress) -> Iterator[Metric]:
    yield from _described(_LAKE, lake)
    changes = CounterMetricFamily("pgtail_spark_changes", "Changes that were applied.", labels=["dataset"])
    for dataset, count in list(lake.changes.items()):
        changes.add_metric([dataset], count)
    yield changes


def _described(those: Iterable[_Described], source: Any) -> Iterator[Metric]:
    for one in those:
        value = one.value(source)
        if value is not None:
            yield _family(one.name, one.help, value)


def _rows(tables: Iterable[TableRows]) -> Metric:
    labels = ("schema", "table", "operation")
    rows = CounterMetricFamily("pgtail_rows", "Rows that were read, by table and operation.", labels=labels)
    for one in tables:
        for operation, count in zip(_OPERATIONS, one[2:], strict=True):
            if count:
                rows.add_metric([one.schema[:_LONGEST], one.table[:_LONGEST], operation], count)
    return rows


def _common(health: Health, now: float) -> Iterator[Metric]:
    progress = health.progress
    works = progress.ready and not progress.stopping and progress.trouble(now) is None
    yield _family("pgtail_up", "Whether the work goes on: 1, or 0.", works)
    yield from _described(_PROGRESS, progress)
    seconds = progress.lag_seconds(now)
    if seconds is not None:
        yield _family("pgtail_lag_seconds", "How old what is written is; 0 while nothing is missing.", seconds)
    if health.max_lag is not None:
        yield _family("pgtail_lag_exceeded", "Whether the lag is more than --max-lag.", health.excess(now) is not None)
    yield InfoMetricFamily("pgtail", "What runs.", value={key: text[:_LONGEST] for key, text in health.info.items()})


def _family(name: str, text: str, value: float) -> Metric:
    if name.endswith("_total"):
        return CounterMetricFamily(name, text, value=value)
    return GaugeMetricFamily(name, text, value=value)


class Server:
    """Answers requests for /metrics and /healthz in the background, until close(). Raises OptionError.

    `address` is where, with the port if it was 0.
    """

    def __init__(self, health: Health, address: Address) -> None:
        registry = CollectorRegistry()
        registry.register(ProgressCollector(health))
        ProcessCollector(namespace="pgtail", registry=registry)
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self._health = health
        server = _IPv6Server if ":" in address.host else _Server
        try:
            self._server = make_server(address.host, address.port, self._answer, server, _Handler)
        except OSError as error:
            raise OptionError(f"--metrics: cannot listen on {address.host}:{address.port}: {error.strerror}") from None
        self.address = Address(address.host, self._server.server_port)
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def _answer(self, request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = request["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(request, start_response)
        status, content = self._health.answer(time.monotonic()) if path == "/healthz" else _NO_SUCH_PATH
        start_response(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", "application/json")])
        return [f"{json.dumps(content)}\n".encode()]

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error of the service."""


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not in the log."""
