"""Floor 7, `pgtail decode`: dumps of any form to tables or JSON."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pgtail.captures.names import CLOSED, OPEN
from pgtail.cli.options import dump_options, filter_options, limit_option, output_options, verbose_option
from pgtail.errors import AssemblyError, InputError

if TYPE_CHECKING:
    from pgtail.cli.formats import Target
    from pgtail.inputs import Input
    from pgtail.outputs.base import Output
    from pgtail.pipeline import Pipeline
    from pgtail.transaction import Note
    from pgtail.wire.decoder import Decoder


@click.command("decode")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@output_options
@filter_options
@limit_option
@dump_options
@click.option("--strict", is_flag=True, help="Stop, with exit status 1, where the input starts or ends in the middle.")
@click.option(
    "--resync", is_flag=True, help="After damage go on where messages decode again (exit status 1 all the same)."
)
@verbose_option
def command(files: tuple[str, ...], **options: Any) -> None:
    """Decode dumps of pgoutput messages. A FILE of - is standard input, a directory is a capture of pgtail record.

    The form of each file is recognised by its content: what pg_recvlogical wrote, messages one after another,
    walsender frames, psql's output of pg_logical_slot_peek_binary_changes in any layout, hex lines, COPY text, CSV and
    binary, all of them also inside gzip. Several files are read as one stream.

    \b
    pgtail decode changes.bin | jq -c 'select(.op == "delete")'
    psql -XAtc "SELECT data
      FROM pg_logical_slot_peek_binary_changes('slot', NULL, 1000,
           'proto_version', '1', 'publication_names', 'pub')" |
        pgtail decode -
    """
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        damaged = Decode(options).run(files)
    raise SystemExit(1 if damaged else 0)


class Decode:
    """One run over several files: one stream, one output; options that another command lacks have their defaults."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = {**command.make_context("decode", ["-"]).params, **options}
        self._source: str | None = None
        self._damaged = False
        self._came = False

    def run(self, files: tuple[str, ...]) -> bool:
        """Decode all files; returns whether something was damaged and passed over. Raises PgtailError, ClosedPipe."""
        from pgtail.assembler import Assembler
        from pgtail.cli.common import build_filter, build_types, show_of, tell_filter
        from pgtail.cli.formats import open_target
        from pgtail.cli.settings import words
        from pgtail.cli.sinks import check_not_read
        from pgtail.cli.standard import say
        from pgtail.compiled import compiled
        from pgtail.outputs.escape import escape
        from pgtail.pipeline import Pipeline
        from pgtail.wire.decoder import Decoder

        fast = compiled()
        if fast is not None:
            fast.keep_memory()
        options = self._options
        if options["verbose"] and (settings := words()):
            say(escape(f"settings: {settings}"))
        types = build_types(encoding=options["encoding"], numbers=options["numbers"], declared=options["types"])
        filter_ = build_filter(options)
        assume = options["assume"] and options["assume"].partition("=")[2]
        decoder = Decoder(assume=assume, encoding=options["encoding"])
        assembler = Assembler(types, strict=options["strict"], show=show_of(options))
        check_not_read(options["file"], files)
        with open_target(options["file"]) as sink:
            output = self._output(sink)
            pipeline = Pipeline(assembler, output, filter_=filter_, note=self._note, limit=options["limit"])
            pipeline.shorten(decoder)
            try:
                self._files(files, decoder, pipeline, sink)
            finally:
                sink.flush()
                assembler.close()
        tell_filter(filter_)
        if filter_.no_table_passed:
            self._tell(f"note: --table and --exclude leave nothing: what came is of {_some(list(filter_.left_out))}")
        return self._damaged or pipeline.damaged

    def _output(self, sink: Target) -> Output:
        from pgtail.cli.common import build_output

        return build_output(self._options, sink)

    def _files(self, files: tuple[str, ...], decoder: Decoder, pipeline: Pipeline, sink: Target) -> None:
        try:
            if all(self._file(file, decoder, pipeline, sink) for file in self._expanded(files)):
                pipeline.finish()
            else:
                pipeline.break_off()
        except InputError as error:
            pipeline.break_off()
            if error.source is None:
                error.source = self._source
            raise
        except KeyboardInterrupt:
            pipeline.break_off()

    def _expanded(self, names: tuple[str, ...]) -> Iterator[str]:
        """The files, and instead of a directory the segments of the capture in it."""
        for name in names:
            if not (name.endswith(CLOSED) or os.path.isdir(name)):
                yield name
                continue
            from pgtail.captures.look import Look

            look = Look(self._tell)
            yield from look.capture(name) if os.path.isdir(name) else look.segment(name)
            self._damaged = self._damaged or look.damaged

    def _tell(self, text: str) -> None:
        from pgtail.cli.standard import say
        from pgtail.outputs.escape import escape

        say(escape(text))

    def _file(self, name: str, decoder: Decoder, pipeline: Pipeline, sink: Target) -> bool:
        """Decode one file; returns whether there is reason to read the next one."""
        from pgtail.cli.progress import progress, wanted
        from pgtail.inputs import open_input
        from pgtail.inputs.source import Source

        with Source(name, on_wait=sink.flush) as source:
            self._source = source.name
            input_ = open_input(source, decoder, format=self._options["input_format"])
            if self._options["verbose"]:
                self._tell(f"{source.name}: {input_.name}")
            with (
                contextlib.closing(input_),
                progress(source, pipeline) if wanted(self._options["file"]) else contextlib.nullcontext(),
            ):
                before, self._came = pipeline.rows, False
                goes_on = self._whole(input_, pipeline)
                if not self._came and pipeline.rows == before and not source.name.endswith((CLOSED, OPEN)):
                    what = f"it holds no message, read as {input_.name}" if input_.position else "it is empty"
                    self._tell(f"note: {source.name}: {what}")
                return goes_on

    def _whole(self, input_: Input, pipeline: Pipeline) -> bool:
        """The same for an input that is open."""
        while True:
            try:
                return self._messages(input_, pipeline)
            except AssemblyError:
                raise
            except InputError as error:
                if input_.source.name.endswith(OPEN):
                    self._tell(f"note: {error}")
                    return True
                if not self._options["resync"]:
                    raise
                if not self._skip(input_, pipeline, error):
                    return True

    def _messages(self, input_: Input, pipeline: Pipeline) -> bool:
        from pgtail.cli.common import no_quotes

        feed, limit = pipeline.feed, self._options["limit"]
        with no_quotes(self._options):
            for message, lsn, offset, _ in input_.messages():
                self._came = True
                feed(message, lsn, offset)
                if limit is not None and pipeline.shown >= limit:
                    return False
        return True

    def _skip(self, input_: Input, pipeline: Pipeline, error: InputError) -> bool:
        """Go on after damage; returns whether there is anything to go on with."""
        self._damaged = True
        pipeline.lost()
        before = input_.position
        found = input_.resync()
        skipped = input_.position - before if found is None else found
        goes_on = "nothing decodes after that" if found is None else f"going on at byte {input_.position}"
        self._tell(f"damage: {error}; skipped {skipped} bytes, {goes_on}")
        return found is not None

    def _note(self, note: Note) -> None:
        from pgtail.cli.common import tell_note

        tell_note(note, self._source)


def _some(names: list[str]) -> str:
    """The first ten of them, and how many more."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
