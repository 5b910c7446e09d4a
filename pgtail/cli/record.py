"""Floor 7, `pgtail record`: a slot, or dumps, to a lossless capture in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from pgtail.cli.options import dump_options, verbose_option
from pgtail.cli.stream_options import (
    content_options,
    duration,
    end_options,
    publication_options,
    server_options,
    size,
)
from pgtail.errors import OptionError

if TYPE_CHECKING:
    from pgtail.captures.recorder import Recorder, Rotation
    from pgtail.cli.voice import Voice
    from pgtail.server.identity import Identity
    from pgtail.server.keeper import Keeper
    from pgtail.server.plan import Plan, Request
    from pgtail.server.recording import Known
    from pgtail.server.spool import Spool
    from pgtail.server.tail import Tail


_OF_A_SLOT: Final = ("host", "dbname", "slot", "allow_gap", "until_lsn", "until", "two_phase", "binary")


def _age(text: str) -> float:
    """Seconds, but not none. Raises BadParameter."""
    seconds = duration(text)
    if not seconds:
        raise click.BadParameter(f"{text} is not more than 0")
    return seconds


@click.command("record", context_settings={"help_option_names": ["--help"]})
@click.argument("source", nargs=-1, metavar="[DSN]")
@server_options
@click.option(
    "-D", "--directory", required=True, type=click.Path(file_okay=False), metavar="DIR", help="The capture's directory."
)
@click.option("-S", "--slot", metavar="NAME", help="The slot to record; created when it is missing.")
@publication_options
@click.option(
    "--from",
    "dumps",
    multiple=True,
    type=click.Path(),
    metavar="FILE...",
    help="Make a capture of dumps, of any form that decode reads, instead of a slot.",
)
@click.option(
    "--segment-size",
    type=size,
    default="64MB",
    show_default=True,
    metavar="SIZE",
    help="Begin another segment after so many bytes, before compression.",
)
@click.option(
    "--segment-age",
    type=_age,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Close a segment that is so old, so that its readers see it: 60, 60s, 5m, 1h.",
)
@click.option(
    "--sync-interval",
    type=duration,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Bring what came to the disk, and acknowledge it, so often.",
)
@click.option("--compress/--no-compress", default=True, help="Write gzip; the default.")
@click.option("--allow-gap", is_flag=True, help="Go on with a capture that the slot does not continue.")
@end_options
@content_options
@click.option("--two-phase", is_flag=True, help="Where the slot is created: decode PREPARE TRANSACTION.")
@dump_options
@verbose_option
def command(source: tuple[str, ...], **options: Any) -> None:
    """Keep a lossless capture of a slot in a directory.

    What is on the disk is acknowledged: the slot moves on, and nobody else sees what was recorded. A slot that does
    not exist is created; it keeps WAL on the server whenever nobody records it. pgtail decode DIR reads a capture.

    \b
    pgtail record shop -S cdc -D cdc           until Ctrl-C; later it goes on
    pgtail decode cdc                          read it
    pgtail record --from dump.bin -D capture   make a capture of a dump
    """
    from pgtail.cli.settings import usual_dsn
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        if not options["directory"]:
            raise OptionError("--directory is empty: name the capture's directory")
        if options["dumps"]:
            _check_options()
            damaged = _from_dumps((*options["dumps"], *source), options)
        else:
            if len(source) > 1:
                raise OptionError(f"one DSN, not {len(source)}: {' '.join(source)}")
            damaged = Record({**options, "dsn": source[0] if source else usual_dsn()}).run()
    raise SystemExit(1 if damaged else 0)


def _check_options() -> None:
    """Dumps come from no server."""
    for name in _OF_A_SLOT:
        if not _was_left(name):
            raise OptionError(f"--{name.replace('_', '-')} is for recording a slot, not for dumps (--from)")


def _was_left(option: str) -> bool:
    """Whether the command line does not have an option."""
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.COMMANDLINE


def _rotation(options: dict[str, Any]) -> Rotation:
    from pgtail.captures.recorder import Rotation

    return Rotation(size=options["segment_size"], age=options["segment_age"], sync_interval=options["sync_interval"])


def _from_dumps(files: tuple[str, ...], options: dict[str, Any]) -> bool:
    """Make a capture of dumps; returns whether something of them is not in it."""
    from pgtail.captures.directory import open_directory
    from pgtail.captures.dumps import record_dumps
    from pgtail.cli.standard import say
    from pgtail.outputs.escape import escape

    assume = options["assume"] and options["assume"].partition("=")[2]
    with open_directory(Path(options["directory"]), empty=True) as directory:
        return record_dumps(
            files,
            directory,
            format=options["input_format"],
            assume=assume,
            encoding=options["encoding"],
            rotation=_rotation(options),
            compress=options["compress"],
            tell=lambda text: say(escape(text)),
        )


class Record:
    """One run of the command on a slot."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def run(self) -> bool:
        """Record until the end. Raises PgtailError."""
        from pgtail.captures.directory import open_directory
        from pgtail.cli.voice import Voice
        from pgtail.server.slots import check_name

        slot = self._options["slot"]
        if slot is None:
            raise OptionError("--slot NAME is missing: the slot to record; it is created where there is none")
        check_name(slot)
        voice = Voice(self._options["verbose"])
        try:
            with open_directory(Path(self._options["directory"])) as directory:
                self._record(directory, voice)
        except KeyboardInterrupt:
            voice.tell("stopped before anything was read")
        finally:
            voice.close()
        return False

    def _record(self, directory: Path, voice: Voice) -> None:
        from pgtail.captures.recovery import recover
        from pgtail.cli.connecting import connector_of
        from pgtail.server.interrupt import Interrupt
        from pgtail.server.recording import prepare_recording
        from pgtail.server.tail import Tail

        options = self._options
        connector, request = connector_of(options), self._request()
        known = _known(directory, recover(directory, compress=options["compress"]).position)
        with Interrupt() as interrupt:
            with interrupt.raising(), connector.ordinary() as connection:
                plan = prepare_recording(request, known, connection, allow_gap=options["allow_gap"])
            for warning in plan.warnings:
                voice.tell(f"warning: {warning}")
            made: list[Recorder] = []

            def make(spool: Spool, position: int, identity: Identity) -> Keeper:
                gap = (known.position, position) if 0 < known.position < position else None
                recorder = self._recorder(directory, plan, identity, gap)
                made.append(recorder)
                return _keeper(spool, recorder, interrupt.wake, position, plan)

            tail = Tail(
                plan,
                connector,
                interrupt,
                voice,
                self._limits(),
                make,
                reconnect=options["reconnect"],
                known=None if known.identity is None else (known.identity, known.position),
            )
            try:
                tail.run()
            finally:
                _last_words(tail, made, directory, voice)

    def _recorder(self, directory: Path, plan: Plan, identity: Identity, gap: tuple[int, int] | None) -> Recorder:
        from pgtail.captures.recorder import Recorder
        from pgtail.server.recording import head_of

        options = self._options
        head = head_of(plan, identity)
        return Recorder(directory, head, rotation=_rotation(options), compress=options["compress"], gap=gap)

    def _request(self) -> Request:
        from pgtail.cli.stream import until_of
        from pgtail.server.options import Wanted
        from pgtail.server.plan import Request

        options = self._options
        return Request(
            slot=options["slot"],
            publications=options["publications"],
            wanted=Wanted(
                binary=options["binary"],
                messages=options["messages"],
                streaming="off",
                two_phase=options["two_phase"],
                origin=options["origin"],
            ),
            ack="commit",
            until=until_of(options),
            encoding=None if _was_left("encoding") else options["encoding"],
            allow_missing_publication=options["allow_missing_publication"],
        )

    def _limits(self) -> Any:
        from pgtail.server.pump import Limits

        options = self._options
        return Limits(seconds=options["seconds"], idle=options["idle"], spill=options["spill_limit"])


def _known(directory: Path, position: int) -> Known:
    from pgtail.captures.reader import last_head
    from pgtail.server.recording import Known

    return Known(str(directory), position, last_head(directory))


def _keeper(spool: Spool, recorder: Recorder, wake: Any, position: int, plan: Plan) -> Keeper:
    from pgtail.server.keeper import Keeper

    return Keeper(spool, recorder, wake, position=position, until=plan.until)


def _last_words(tail: Tail, made: list[Recorder], directory: Path, voice: Voice) -> None:
    from pgtail.server.words import count_text, size_text
    from pgtail.wire.scalars import lsn_text

    if tail.resume is None or not made or not directory.is_dir():  # removed meanwhile, which the error says
        return
    recorder = made[0]
    transactions = count_text(recorder.transactions, "transaction")
    voice.tell(
        f"{transactions} ({size_text(recorder.bytes)}) recorded; {directory} has everything up to"
        f" {lsn_text(tail.resume)}"
    )
