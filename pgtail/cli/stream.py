"""`pgtail stream`: its options."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli.command import Command
from pgtail.cli.options.shared import filter_options, limit_option, options_from, output_options, verbose_option
from pgtail.cli.options.stream import connection_options, protocol_options, range_options, slot_options
from pgtail.cli.settings import given


@click.command(
    "stream",
    cls=Command,
    first=("slot", "fork", "ack", "until", "limit", "output", "file", "tables", "ops", "where"),
)
@connection_options
@slot_options
@range_options
@limit_option
@output_options
@filter_options
@protocol_options
@verbose_option
def command(**options: Any) -> None:
    """Tail a replication slot, as tables or JSON.

    DSN is a connection string, a URI or a database name; the rest comes from PG* variables, the service file and
    .pgpass. An existing slot is read without consuming anything, unless --ack is given.

    \b
    pgtail stream shop                      database shop from now on
    pgtail stream shop -S cdc --until now   what slot cdc retains
    pgtail stream shop --fork cdc           the same, while cdc is in use
    pgtail stream shop -t orders | jq .new  one table, as JSON
    """
    from pgtail.commands.options import StreamOptions
    from pgtail.commands.stderr import exit_statuses
    from pgtail.commands.stream import Stream

    if options["fork"] is not None and not given("slot"):
        options["slot"] = None  # a slot from the configuration

    with exit_statuses():
        raise SystemExit(1 if Stream(options_from(StreamOptions, options)).run() else 0)
