"""`pgtail demo`: its command line."""

from __future__ import annotations

import os

import click

from pgtail.cli.command import Command
from pgtail.cli.settings import unset
from pgtail.commands.console.messages import exit_statuses


@click.command("demo", cls=Command)
@click.option("--serve", is_flag=True, help="Keep the server and a workload running until Ctrl-C.")
def command(serve: bool) -> None:
    """Show what pgtail does, on an embedded server.

    The server comes with the extra `demo`. It listens on this machine only, lives in a temporary directory, and is
    removed at the end.
    """
    from pgtail.commands import demo

    with exit_statuses():
        demo.run(serve=serve, environment=unset(os.environ))
