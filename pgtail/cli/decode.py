"""`pgtail decode`: its command line."""

from __future__ import annotations

import click

from pgtail.cli.command import Command
from pgtail.cli.options import files_argument, takes
from pgtail.commands.options.common import DecodeOptions


@click.command(
    "decode",
    cls=Command,
    first=(
        "output",
        "format_string",
        "file",
        "tables",
        "ops",
        "where",
        "changed",
        "columns",
        "xids",
        "since",
        "until",
        "undo",
        "redact",
        "limit",
    ),
)
@files_argument
@takes(DecodeOptions)
def command(files: tuple[str, ...], options: DecodeOptions) -> bool:
    """Decode dumps of pgoutput messages. A directory is a capture of pgtail record.

    Without a FILE, or with -, standard input is read.

    The form of each file is detected from its content: files of pg_recvlogical, concatenated messages, walsender
    frames, psql's output of pg_logical_slot_peek_binary_changes in any layout, hex lines, and COPY text, CSV and
    binary; any of them may be gzipped. Several files are read as one stream.

    \b
    pgtail decode changes.bin | jq -c 'select(.op == "delete")'
    pgtail decode --follow --last 5 captures/shop
    psql -XAtc "SELECT data
      FROM pg_logical_slot_peek_binary_changes('slot', NULL, 1000,
           'proto_version', '1', 'publication_names', 'pub')" |
        pgtail decode
    """
    from pgtail.commands.decode.command import Decode
    from pgtail.commands.parallel import parallel_reading

    return Decode(options, divide=parallel_reading).run(files)
