"""`pgtail doctor`: its options."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli.command import Command, heading
from pgtail.cli.options.shared import color_options
from pgtail.cli.options.stream import connection_options
from pgtail.commands.options import ConnectionOptions, ReportOptions, from_parameters
from pgtail.commands.stderr import exit_statuses


@click.command("doctor", cls=Command)
@connection_options
@heading("output")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="Format; json in a pipe: a line per finding."
)
@color_options
def command(**options: Any) -> None:
    """Check a server's setup for logical replication, and say how to fix it.

    Checks the server, the connection to it, the publications and tables of the database, and all slots. Each finding
    is ok, a warning or a problem, with the cure as SQL or as a setting. Nothing is changed. The exit status is 0 if
    all is ok, 1 with warnings, 2 with problems, and 3 if the server cannot be reached.

    \b
    pgtail doctor shop
    pgtail doctor shop -o json | jq 'select(.severity == "problem")'
    """
    from pgtail.commands.doctor import run

    with exit_statuses():
        raise SystemExit(run(from_parameters(ConnectionOptions, options), from_parameters(ReportOptions, options)))
