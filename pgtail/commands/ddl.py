"""`pgtail ddl print`, `install` and `remove`: the event triggers that send schema changes as logical messages."""

from __future__ import annotations

from pgtail.commands.connect import connector_of
from pgtail.commands.console.question import check_terminal, confirm
from pgtail.commands.options.common import NOT_DONE
from pgtail.commands.options.server import ChangeOptions, InstallOptions
from pgtail.commands.output.file_sink import put
from pgtail.files.stopping import begin
from pgtail.log import log_outcome
from pgtail.postgres import catalog, ddl_trigger, rows
from pgtail.postgres.connection import Connection
from pgtail.terminal.escape import escape


def show(*, with_statement: bool) -> None:
    """Print the SQL of install() for a database without the triggers. Raises OutputError."""
    put(ddl_trigger.install_sql(with_statement=with_statement).rstrip())


def install(options: InstallOptions) -> None:
    """Install the triggers, or replace those of another version. Raises ServerError and OptionError."""
    begin()
    with connector_of(options.change.connection).ordinary() as connection:
        server = catalog.server_facts(connection)
        before = ddl_trigger.installed(connection, server)
        mark, database = ddl_trigger.mark(with_statement=options.with_statement), escape(server.database)
        if before is not None and before.complete and before.mark == mark:
            log_outcome(f"database {database} has them already ({mark}): nothing was done")
            return
        statements = ddl_trigger.install_sql(with_statement=options.with_statement, replace=before is not None)
        if not _run(connection, statements, options.change, database):
            return
        what = "was installed" if before is None else f"was installed in place of {escape(before.mark)}"
        log_outcome(f"{mark} {what} in database {database}; pgtail ddl remove takes it back")


def remove(options: ChangeOptions) -> None:
    """Remove everything that install() has created. Raises ServerError and OptionError."""
    begin()
    with connector_of(options.connection).ordinary() as connection:
        server = catalog.server_facts(connection)
        before, database = ddl_trigger.installed(connection, server), escape(server.database)
        if before is None:
            log_outcome(f"database {database} has nothing of pgtail ddl: nothing was done")
            return
        if _run(connection, ddl_trigger.remove_sql(), options, database):
            log_outcome(f"{escape(before.mark)} was removed from database {database}")


def _run(connection: Connection, statements: str, options: ChangeOptions, database: str) -> bool:
    """Run the statements, which are one transaction; without --yes, show them and ask first.

    With --dry-run, only show them; returns whether they were run.
    """
    if options.dry_run:
        put(statements)
        log_outcome(NOT_DONE)
        return False
    if not options.yes:
        check_terminal(
            f"database {database} was not changed: there is no terminal to ask on; --yes does it without asking, and"
            " pgtail ddl print shows what"
        )
        put(statements)
        confirm(f"Run this in database {database}?")
    rows.run(connection, "the event triggers", statements)
    return True
