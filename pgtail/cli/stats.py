"""Floor 7, `pgtail stats`: who writes what, in dumps or in what a slot holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import click

from pgtail.cli.decode import Decode
from pgtail.cli.options import color_options, dump_options, filter_options, limit_option, verbose_option
from pgtail.cli.stream import Stream
from pgtail.cli.stream_options import duration, place, publication_options, server_options, slot_option
from pgtail.errors import InputError, OptionError, ServerError

if TYPE_CHECKING:
    from pgtail.cli.directory import DirectorySink
    from pgtail.cli.formats import Target
    from pgtail.cli.sinks import FileSink
    from pgtail.cli.voice import StreamSink, Voice
    from pgtail.filters import Filter
    from pgtail.outputs.base import Output
    from pgtail.outputs.table_style import Palette
    from pgtail.pipeline import Pipeline
    from pgtail.server.plan import Plan
    from pgtail.server.tail import Tail
    from pgtail.stats.gather import Statistics


@click.command("stats", context_settings={"help_option_names": ["--help"]})
@click.argument("sources", nargs=-1, metavar="[FILE|DSN]...")
@slot_option
@server_options
@publication_options
@click.option("--until", type=place, metavar="LSN|now", help="Read a slot up to there; now is the default.")
@click.option("--for", "seconds", type=duration, metavar="TIME", help="Read a slot for so long instead.")
@filter_options
@limit_option
@dump_options
@click.option("--resync", is_flag=True, help="After damage go on where messages decode again.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    help="Format; table on a terminal and json in a pipe unless told otherwise.",
)
@click.option("-f", "--file", type=click.Path(), metavar="FILE", help="Write to FILE instead of standard output.")
@color_options
@verbose_option
def command(sources: tuple[str, ...], **options: Any) -> None:
    """Tell who writes what: by table, transaction, time and key.

    Counts what dumps hold, or with --slot what a slot holds, which is not consumed; with --for and no --slot, what is
    committed from now on. The filters say what is counted.

    \b
    pgtail stats changes.bin
    pgtail stats --slot audit shop
    pgtail stats shop --for 60s -o json | jq '.tables[0]'
    """
    from pgtail.cli.common import redaction_of, report_palette
    from pgtail.cli.sinks import check_not_read, open_sink
    from pgtail.cli.standard import exit_statuses
    from pgtail.stats.gather import Statistics

    with exit_statuses():
        check_not_read(options["file"], sources)
        stats = Statistics(redaction_of(options))
        palette = report_palette(options)
        run = _over(sources, options, stats)
        # What cannot be written to is told before anything is gathered; what stood there stays as long.
        with open_sink(options["file"], append=True) as sink:
            try:
                damaged = run()
            except (InputError, ServerError):
                if stats.tables or stats.transactions.count:
                    _write(stats, options, sink, palette)
                raise
            _write(stats, options, sink, palette)
    raise SystemExit(1 if damaged else 0)


class _Run(Protocol):
    def __call__(self) -> bool: ...


def _over(sources: tuple[str, ...], options: dict[str, Any], stats: Statistics) -> _Run:
    """What is to be read: files, or a slot. Raises OptionError."""
    # The report is the only output, and comes at the end: nothing is written while it is gathered.
    gathering = {**options, "file": os.devnull, "output": "table"}
    if options["slot"] is None and options["seconds"] is None:
        if not sources:
            raise OptionError(
                "nothing to read: name FILEs, or a slot (--slot NAME); --for TIME watches a temporary one"
            )
        return lambda: _Files(gathering, stats).run(sources)
    if len(sources) > 1:
        raise OptionError("a slot is read from one database: give one DSN")
    for name in ("input_format", "assume", "types"):
        if options[name]:
            raise OptionError(f"--{name.removesuffix('s').replace('_', '-')} is for dumps, not for a slot")
    until = options["until"] or ("now" if options["seconds"] is None else None)
    live = {**gathering, "dsn": sources[0] if sources else None, "until": until, "ack": "none", "encoding": None}
    return lambda: _Slot(live, stats).run()


def _write(stats: Statistics, options: dict[str, Any], sink: FileSink, palette: Palette | None) -> None:
    """The report in these colours, or as JSON, in place of what the file held."""
    import contextlib
    import shutil

    if options["file"] not in (None, "-"):
        with contextlib.suppress(OSError):  # a device or a pipe
            os.ftruncate(sink.fd, 0)
    if palette is None:
        from pgtail.outputs.stats_json import stats_json

        sink.write(stats_json(stats))
    else:
        from pgtail.outputs.stats_table import stats_table

        sink.write(stats_table(stats, palette, width=shutil.get_terminal_size((100, 24)).columns))
    sink.flush()


class _Files(Decode):
    """Dumps, read for their numbers."""

    def __init__(self, options: dict[str, Any], stats: Statistics) -> None:
        super().__init__(options)
        self._stats = stats

    def _output(self, sink: Target) -> Output:
        return self._stats


class _Slot(Stream):
    """A slot, read for its numbers."""

    def __init__(self, options: dict[str, Any], stats: Statistics) -> None:
        super().__init__(options)
        self._stats = stats

    def _output(self, sink: StreamSink | DirectorySink, voice: Voice, plan: Plan) -> Output:
        return self._stats

    def _last_words(
        self, tail: Tail, pipeline: Pipeline, filter_: Filter, voice: Voice, *, written: bool = True
    ) -> None:
        from pgtail.cli.common import tell_filter

        tell_filter(filter_, voice.tell)
