"""Floor 7, `pgtail inspect`: the messages of a dump byte by byte."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pgtail.cli.options import color_options, count, dump_options, own_filter_options

if TYPE_CHECKING:
    from pgtail.cli.sinks import FileSink
    from pgtail.errors import InputError
    from pgtail.inputs import Input
    from pgtail.outputs.bytes_view import Place, View
    from pgtail.wire.cursor import Buffer, Span
    from pgtail.wire.decoder import AnyFrame


_TEXT_FORMS = frozenset(("psql", "csv", "hex", "copytext"))
"""The forms in which a message's bytes are not the file's."""


@click.command("inspect")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option(
    "--message", "numbers", multiple=True, metavar="N|N-M", help="Only message N, or N to M, from 1. Repeatable."
)
@click.option(
    "--offset", "offsets", multiple=True, metavar="BYTE", help="Only the message in which this byte lies. Repeatable."
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only messages of this kind: insert, stream-commit, ..., keepalive, or a first byte such as I. Repeatable.",
)
@click.option(
    "--lsn",
    "lsns",
    multiple=True,
    metavar="LSN|LSN-LSN",
    help="Only messages at this log position or between two, or with a field that names it. Repeatable.",
)
@own_filter_options
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Stop after so many messages shown.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Lines for people, or a JSON object per message.",
)
@click.option("-f", "--file", type=click.Path(), metavar="FILE", help="Write to FILE instead of standard output.")
@click.option(
    "--max-bytes",
    metavar="N",
    callback=count,
    default="48",
    show_default=True,
    help="table: bytes of a field before the rest is only counted; 0 for no limit.",
)
@color_options
@dump_options
@click.option(
    "--resync", is_flag=True, help="After damage go on where messages decode again (exit status 1 all the same)."
)
def command(files: tuple[str, ...], **options: Any) -> None:
    """Show a dump byte by byte. A FILE of - is standard input.

    Each field of each message stands on a line: its offset and bytes, its name and type in the words of PostgreSQL's
    manual, its value, and what that means. Cells stand under the names of their columns, decoded as the column's
    type. Of a damaged message the good fields are shown, then the bad bytes and what was expected there; the exit
    status is 1.

    Offsets count from the start of the file (uncompressed), or with a + from the start of the message where the file
    is text. The filters are about changes: with one of them the other messages are not shown.

    \b
    pgtail inspect changes.bin --message 7
    pgtail inspect changes.bin --offset 1043 --resync
    pgtail inspect changes.bin --kind begin,commit -o json | jq .
    """
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        damaged = Inspect(options).run(files)
    raise SystemExit(1 if damaged else 0)


@dataclass(slots=True)
class _Candidate:
    """A message that was decoded and may be shown, as long as the next one is not."""

    message: AnyFrame
    place: Place
    buf: Buffer
    spans: list[Span]


class Inspect:
    """One run over several files, which are one stream."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Raises OptionError."""
        from pgtail.cli.common import build_filter, build_types, redaction_of
        from pgtail.outputs.bytes_fields import Fields
        from pgtail.outputs.bytes_pick import Pick, kinds, lsns, numbers
        from pgtail.outputs.bytes_scope import Scope
        from pgtail.outputs.table_values import ValueStyle
        from pgtail.wire.cursor import TracedCursor
        from pgtail.wire.decoder import Decoder

        self._options = options
        self._filter = build_filter(options)
        self._pick = Pick(
            numbers=numbers(options["numbers"]) if options["numbers"] else (),
            kinds=kinds(options["kinds"]) if options["kinds"] else (),
            lsns=lsns(options["lsns"]),
            xids=options["xids"],
            filter_=self._filter,
            about_tables=bool(options["tables"]),
            about_changes=bool(options["ops"] or options["where"]),
        )
        self._offsets = [_byte(text) for text in options["offsets"]]
        types = build_types(encoding=options["encoding"], numbers="exact", declared=options["types"])
        self._redaction = redaction_of(options)
        self._scope = Scope(types, self._redaction)
        limit = options["max_bytes"] if options["output"] == "table" else None
        self._fields = Fields(self._scope, ValueStyle(limit), encoding=options["encoding"])
        self._cursor = TracedCursor()
        assume = options["assume"] and options["assume"].partition("=")[2]
        self._decoder = Decoder(assume=assume, encoding=options["encoding"], cursor=self._cursor)
        self._view: View
        self._waiting: _Candidate | None = None
        self._number = self._shown = 0
        self._seen: list[Span] = []
        self._damaged = False

    def run(self, files: tuple[str, ...]) -> bool:
        """Show the files; returns whether something was damaged and passed over. Raises PgtailError, ClosedPipe."""
        from pgtail.cli.common import tell_filter
        from pgtail.cli.sinks import check_not_read, open_sink

        check_not_read(self._options["file"], files)
        with open_sink(self._options["file"]) as sink:
            self._view = self._open_view(sink)
            try:
                for file in files:
                    if not self._file(file, sink):
                        break
            except KeyboardInterrupt:
                pass
            finally:
                sink.flush()
        tell_filter(self._filter)
        return self._damaged

    def _open_view(self, sink: FileSink) -> View:
        from pgtail.cli.common import to_terminal, wants_color
        from pgtail.outputs.bytes_view import JsonView, TextView

        options = self._options
        if options["output"] == "json":
            return JsonView(sink)
        return TextView(
            sink,
            width=shutil.get_terminal_size((120, 24)).columns,
            color=wants_color(options["color"], terminal=to_terminal(options)),
            most_bytes=options["max_bytes"],
            colors=options["colors"] or "",
        )

    def _file(self, name: str, sink: FileSink) -> bool:
        """Show one file; returns whether there is reason to read the next one."""
        from pgtail.inputs import open_input
        from pgtail.inputs.source import Source

        with Source(name, on_wait=sink.flush) as source:
            input_ = open_input(source, self._decoder, format=self._options["input_format"])
            with contextlib.closing(input_):
                return self._whole(input_)

    def _whole(self, input_: Input) -> bool:
        """The same for an input that is open."""
        from pgtail.cli.common import no_quotes
        from pgtail.errors import InputError

        while True:
            try:
                with no_quotes(self._options):
                    return self._messages(input_)
            except InputError as error:
                self._damage(input_, error)
                if not self._options["resync"]:
                    raise
                if not self._goes_on(input_, error):
                    return True

    def _messages(self, input_: Input) -> bool:
        """Every message that is left; returns False where all that was asked for has been shown."""
        for message, lsn, offset, _ in input_.messages():
            self._settle(offset)
            if self._done():
                return False
            if self._offsets and offset > max(self._offsets):
                break
            self._number += 1
            self._scope.enter(message)
            self._waiting = self._candidate(input_, message, lsn, offset)
            if not self._offsets:
                self._settle(None)
        self._settle(None)
        return not self._done()

    def _done(self) -> bool:
        limit = self._options["limit"]
        return self._pick.done(self._number + 1) or (limit is not None and self._shown >= limit)

    def _candidate(self, input_: Input, message: AnyFrame, lsn: int | None, offset: int) -> _Candidate:
        from pgtail.outputs.bytes_view import Place

        cursor, spans = self._cursor, self._cursor.spans
        self._seen = spans
        base = None if input_.name in _TEXT_FORMS else offset
        place = Place(self._number, type(message).__name__, offset, spans[0].start, cursor.pos, base, lsn)
        return _Candidate(message, place, cursor.buf, spans)

    def _settle(self, following: int | None) -> None:
        """Show the message that waits, if it is wanted; `following` is the next one's offset, None at the end."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        place, message = waiting.place, waiting.message
        if self._at_offset(place.offset, following) and self._pick.wants(
            place.number, message, place.lsn, waiting.buf, waiting.spans, self._scope
        ):
            fields = list(self._fields.describe(waiting.buf, waiting.spans))
            place.relation = self._fields.relation
            self._view.message(place, waiting.buf, fields)
            self._shown += 1
        self._scope.leave(message)

    def _at_offset(self, offset: int | None, following: int | None) -> bool:
        if not self._offsets:
            return True
        return any((offset or 0) <= at and (following is None or at < following) for at in self._offsets)

    # -- damage ------------------------------------------------------------------------------------------------

    def _damage(self, input_: Input, error: InputError) -> None:
        """Show what could be decoded of a damaged message, and the bytes that could not."""
        from pgtail.errors import DecodeError
        from pgtail.outputs.bytes_view import Place, damage_of

        cursor = self._cursor
        buf, spans = cursor.buf, cursor.spans
        if not spans or spans is self._seen:
            self._settle(error.offset)
            return  # not one field of the message was read
        base = input_.offset_of(buf, spans[0].start)
        self._settle(error.offset if base is None else base)
        if not isinstance(error, DecodeError):
            return
        self._number += 1
        bad = None if base is None else error.offset - base + spans[0].start
        good, damage = damage_of(error, list(self._fields.describe(buf, spans)), cursor.pos, bad)
        damage.field = self._fields.named(damage.field)
        damage.masked = self._redaction is not None
        at = error.offset if base is None else base
        place = Place(self._number, error.message or "?", at, spans[0].start, damage.end, base)
        place.relation = self._fields.relation
        self._view.message(place, buf, good, damage)

    def _goes_on(self, input_: Input, error: InputError) -> bool:
        """After damage: go to where messages decode again; returns whether there is such a place."""
        from pgtail.cli.standard import say
        from pgtail.outputs.escape import escape

        self._damaged = True
        self._scope.lost()
        found = input_.resync()
        goes_on = "nothing decodes after that" if found is None else f"going on at byte {input_.position}"
        say(escape(f"damage: {error}; skipped {input_.skipped} bytes, {goes_on}"))
        return found is not None


def _byte(text: str) -> int:
    """A byte offset, decimal or 0x...; raises OptionError."""
    from pgtail.errors import OptionError

    try:
        return int(text, 0)
    except ValueError:
        raise OptionError(f"--offset {text}: expected a byte's offset such as 1043 or 0x413") from None
