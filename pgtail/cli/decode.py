"""`pgtail decode`: its options."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli.command import Command
from pgtail.cli.options.shared import (
    dump_options,
    filter_options,
    limit_option,
    options_from,
    output_options,
    pager_option,
    verbose_option,
    verify_option,
)
from pgtail.cli.options.stream import dump_range_options


@click.command(
    "decode",
    cls=Command,
    first=("output", "format_string", "file", "tables", "ops", "where", "since", "until", "redact", "limit"),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@output_options
@filter_options
@dump_range_options
@limit_option
@dump_options
@click.option(
    "--strict", is_flag=True, help="Stop, with exit status 1, if the input starts or ends inside a transaction."
)
@verify_option
@click.option(
    "--resync", is_flag=True, help="Skip damage, up to the next message that decodes; the exit status is still 1."
)
@click.option(
    "--client/--no-client",
    default=None,
    help="Show what the client of a packet capture sent: START_REPLICATION and status updates. Default: in tables and"
    " lines without a filter.",
)
@pager_option
@verbose_option
def command(files: tuple[str, ...], **options: Any) -> None:
    """Decode dumps of pgoutput messages. A FILE of - is standard input, a directory is a capture of pgtail record.

    The form of each file is detected from its content: files of pg_recvlogical, concatenated messages, walsender
    frames, psql's output of pg_logical_slot_peek_binary_changes in any layout, hex lines, and COPY text, CSV and
    binary; any of them may be gzipped. Several files are read as one stream.

    \b
    pgtail decode changes.bin | jq -c 'select(.op == "delete")'
    psql -XAtc "SELECT data
      FROM pg_logical_slot_peek_binary_changes('slot', NULL, 1000,
           'proto_version', '1', 'publication_names', 'pub')" |
        pgtail decode -
    """
    from pgtail.commands.decode import Decode
    from pgtail.commands.options import DecodeOptions
    from pgtail.commands.stderr import exit_statuses

    with exit_statuses():
        damaged = Decode(options_from(DecodeOptions, options)).run(files)
    raise SystemExit(1 if damaged else 0)
