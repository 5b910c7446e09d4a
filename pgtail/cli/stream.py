"""`pgtail stream`: its command line."""

from __future__ import annotations

import click

from pgtail.cli.command import Command
from pgtail.cli.options import dsn_argument, takes
from pgtail.commands.options.server import StreamOptions


@click.command(
    "stream",
    cls=Command,
    first=(
        "slot",
        "fork",
        "ack",
        "snapshot",
        "until",
        "limit",
        "output",
        "file",
        "tables",
        "ops",
        "where",
        "changed",
        "columns",
        "xids",
        "undo",
    ),
)
@dsn_argument
@takes(StreamOptions)
def command(options: StreamOptions) -> bool:
    """Tail a replication slot, as tables or JSON.

    DSN is a connection string, a URI or a database name; the rest comes from PG* variables, the service file and
    .pgpass. An existing slot is read without consuming anything, unless --ack is given.

    \b
    pgtail stream shop                      database shop from now on
    pgtail stream shop -S cdc --until now   what slot cdc retains
    pgtail stream shop --fork cdc           the same, while cdc is in use
    pgtail stream shop -t orders | jq .new  one table, as JSON
    """
    from pgtail.commands.stream.command import Stream

    return Stream(options).run()
