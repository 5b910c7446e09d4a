"""`pgtail stats` of a slot; apart from stats.py because it imports psycopg."""

from __future__ import annotations

from pgtail.changes.filters import Filter
from pgtail.commands.options import StreamOptions
from pgtail.commands.selection import tell_filter
from pgtail.commands.sinks import DirectorySink
from pgtail.commands.stderr import StderrThread
from pgtail.commands.stream import Stream, StreamSink
from pgtail.errors import PgtailError
from pgtail.outputs.base import Output
from pgtail.pipeline.pipeline import Pipeline
from pgtail.replication.plan import Plan
from pgtail.replication.tail import Tail
from pgtail.stats.collect import Statistics


class StatsSlot(Stream):
    """Reads a slot into statistics, and writes nothing."""

    def __init__(self, options: StreamOptions, stats: Statistics) -> None:
        super().__init__(options, stats.redaction)
        self._stats = stats

    def _output(self, sink: StreamSink | DirectorySink, stderr: StderrThread, plan: Plan) -> Output:
        return self._stats

    def _summarize(
        self,
        tail: Tail,
        pipeline: Pipeline,
        filter_: Filter,
        stderr: StderrThread,
        error: PgtailError | None = None,
    ) -> None:
        tell_filter(filter_, stderr.tell)
