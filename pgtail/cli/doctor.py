"""`pgtail doctor`: its command line."""

from __future__ import annotations

import click

from pgtail.cli.command import Command
from pgtail.cli.options import dsn_argument, takes
from pgtail.commands.options.server import DoctorOptions


@click.command("doctor", cls=Command)
@dsn_argument
@takes(DoctorOptions)
def command(options: DoctorOptions) -> int:
    """Check a server's setup for logical replication, and say how to fix it.

    Checks the server, the connection to it, the publications and tables of the database, and all slots. Each finding
    is ok, a warning or a problem, with the cure as SQL, as a setting or as a command of pgtail. The worst come last.
    Nothing is changed. The exit status is 0 if all is ok, 1 with warnings, 2 with problems, and 3 if the server cannot
    be reached.

    \b
    pgtail doctor shop
    pgtail doctor -q shop
    pgtail doctor shop -o json | jq 'select(.severity == "problem")'
    """
    from pgtail.commands.doctor import run

    return run(options)
