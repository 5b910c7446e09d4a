"""Floor 7, `pgtail doctor`: what is wrong with a server's setup for logical replication, and the cure."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli.options import color_options
from pgtail.cli.stream_options import connection_options


@click.command("doctor", context_settings={"help_option_names": ["--help"]})
@connection_options
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="Format; json in a pipe: a line per finding."
)
@color_options
def command(**options: Any) -> None:
    """Look at a server's setup for logical replication, and say what to do about it.

    Checks the server, the way to it, the publications and tables of the database, and all slots. Each finding is ok, a
    warning or a problem, with the cure as SQL or setting. Nothing is changed. The exit status is 0 where all is ok, 1
    with warnings, 2 with problems, and 3 where the server cannot be reached.

    \b
    pgtail doctor shop
    pgtail doctor shop -o json | jq 'select(.severity == "problem")'
    """
    from pgtail.cli.doctor_view import show
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        raise SystemExit(show(options))
