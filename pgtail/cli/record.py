"""`pgtail record`: its options."""

from __future__ import annotations

from typing import Any, Final

import click

from pgtail.cli import complete
from pgtail.cli.command import Command, heading
from pgtail.cli.options.shared import dump_options, options_from, verbose_option, verify_option
from pgtail.cli.options.stream import (
    content_options,
    duration,
    end_options,
    positive_duration,
    publication_options,
    server_options,
    size,
)
from pgtail.cli.settings import default_dsn, given
from pgtail.errors import OptionError

_OF_A_SLOT: Final = ("host", "dbname", "slot", "spool", "allow_gap", "until_lsn", "until", "two_phase", "binary")


@click.command(
    "record",
    cls=Command,
    first=(
        "directory",
        "spool",
        "slot",
        "publications",
        "dumps",
        "until",
        "seconds",
        "segment_size",
        "segment_age",
        "compress",
        "verbose",
    ),
)
@click.argument("source", nargs=-1, metavar="[DSN]", shell_complete=complete.dsn_or_file)
@server_options
@heading("capture")
@click.option(
    "-D",
    "--directory",
    required=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The capture's directory, or a URI such as s3://bucket/path.",
)
@click.option(
    "--spool",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="With a URI: the local directory for segments that are not uploaded yet.",
)
@heading("slot")
@click.option(
    "-S",
    "--slot",
    metavar="NAME",
    shell_complete=complete.slots,
    help="The slot to record; created if it does not exist.",
)
@publication_options
@heading("input")
@click.option(
    "--from",
    "dumps",
    multiple=True,
    type=click.Path(),
    metavar="FILE...",
    help="Make a capture of dumps, in any form that decode reads, instead of a slot.",
)
@heading("capture")
@click.option(
    "--segment-size",
    type=size,
    default="64MB",
    show_default=True,
    metavar="SIZE",
    help="Start another segment after this size, before compression.",
)
@click.option(
    "--segment-age",
    type=positive_duration,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Close a segment after this time, so that readers see it: 60, 60s, 5m, 1h.",
)
@click.option(
    "--sync-interval",
    type=duration,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Sync to disk, and acknowledge, at this interval.",
)
@click.option("--compress/--no-compress", default=True, help="Compress with gzip; the default.")
@click.option("--allow-gap", is_flag=True, help="Continue a capture even if the slot has skipped changes.")
@end_options
@content_options
@heading("protocol")
@click.option("--two-phase", is_flag=True, help="If the slot is created: decode PREPARE TRANSACTION.")
@dump_options
@verify_option
@verbose_option
def command(source: tuple[str, ...], **options: Any) -> None:
    """Record a slot, or dumps, losslessly in a directory.

    What is synced to disk is acknowledged: the slot advances, and no other reader gets those changes. A slot that
    does not exist is created; it retains WAL on the server until it is dropped. pgtail decode DIR reads a capture.

    \b
    pgtail record shop -S cdc -D cdc           until Ctrl-C; repeat to resume
    pgtail decode cdc                          read it
    pgtail record --from dump.bin -D capture   make a capture of a dump
    """
    from pgtail.commands.options import RecordOptions
    from pgtail.commands.record import Record, record_dumps
    from pgtail.commands.stderr import exit_statuses

    with exit_statuses():
        if not options["directory"]:
            raise OptionError("--directory is empty: name the capture's directory")
        dumps = options["dumps"]
        if dumps:
            _check_no_slot_options()
            damaged = record_dumps((*dumps, *source), options_from(RecordOptions, options))
        else:
            if options["verify"]:
                raise OptionError("--verify is for dumps (--from), not for a slot")
            if len(source) > 1:
                raise OptionError(f"one DSN, not {len(source)}: {' '.join(source)}")
            options["dsn"] = source[0] if source else default_dsn()
            options["server_encoding"] = options["encoding"] if given("encoding") else None
            damaged = Record(options_from(RecordOptions, options)).run()
    raise SystemExit(1 if damaged else 0)


def _check_no_slot_options() -> None:
    """Dumps come from no server. Raises OptionError."""
    for name in _OF_A_SLOT:
        if given(name):
            raise OptionError(f"--{name.replace('_', '-')} is for recording a slot, not for dumps (--from)")
