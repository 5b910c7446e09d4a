"""`pgtail ddl`: its command lines."""

from __future__ import annotations

import click

from pgtail.cli import Commands
from pgtail.cli.options import dsn_argument, takes
from pgtail.commands.options.server import ChangeOptions, InstallOptions, PrintOptions


@click.group("ddl", cls=Commands)
def command() -> None:
    """Make a server send schema changes, too, as messages.

    \b
    pgtail ddl print          the SQL: a schema, a function, event triggers
    pgtail ddl install shop   runs it in the database shop, after a question
    pgtail ddl remove shop    removes all of it

    Then every command that shows changes also shows CREATE, ALTER and DROP TABLE: --op ddl.
    """


@command.command("print")
@takes(PrintOptions)
def print_(options: PrintOptions) -> None:
    """Print the SQL of `install`. It connects to no server.

    It is one transaction, for psql: `pgtail ddl print | psql shop`.
    """
    from pgtail.commands import ddl

    ddl.show(with_statement=options.with_statement)


@command.command("install")
@dsn_argument
@takes(InstallOptions)
def install(options: InstallOptions) -> None:
    """Install the event triggers in a database.

    pgtail shows the SQL and asks first. It needs a superuser, and PostgreSQL 14 or later. Triggers of another version
    are replaced. Each published table is described in a first message.
    """
    from pgtail.commands import ddl

    ddl.install(options)


@command.command("remove")
@dsn_argument
@takes(ChangeOptions)
def remove(options: ChangeOptions) -> None:
    """Remove everything that `install` has created.

    pgtail shows the SQL and asks first.
    """
    from pgtail.commands import ddl

    ddl.remove(options)
