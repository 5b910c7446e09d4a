"""The connection options to a Connector, and a password asked on the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from getpass import getpass
from pathlib import Path

from msgspec.structs import replace

from pgtail.commands.console import messages as stderr
from pgtail.commands.options.server import ConnectionOptions
from pgtail.errors import COMMAND, OptionError, PgtailError, ServerError
from pgtail.files.stopping import status_after
from pgtail.postgres import catalog
from pgtail.postgres.connection import Connector, parameters
from pgtail.terminal.escape import shell_word

_SELECTION = re.compile(r"([\w.*]+):(insert|update|delete|truncate|message)\b")
"""What somebody writes who takes the argument for a selection of changes."""


def connector_of(options: ConnectionOptions) -> Connector:
    """Makes connections as the options say. Raises OptionError."""
    found = parameters(options.dsn, host=options.host, port=options.port, user=options.username, dbname=options.dbname)
    if options.no_password and options.password:
        raise OptionError("--password and --no-password contradict each other: give one of them")
    ask = None if options.no_password else _ask_for_password
    connector = Connector(found, ask=ask, ask_first=options.password)
    stderr.connection_words = _words(options, connector)
    return connector


def _words(options: ConnectionOptions, connector: Connector) -> str:
    """The options for a command line, quoted for a shell, or a connection string in their place; never a password."""
    if any(set("=/") & set(name or "") for name in (options.dsn, options.dbname)):
        return shell_word(connector.dsn())
    flags = (("-h", options.host), ("-p", options.port), ("-U", options.username), ("-d", options.dbname))
    words = [f"{flag} {shell_word(value)}" for flag, value in flags if value is not None]
    return " ".join(words if options.dsn is None else [*words, shell_word(options.dsn)])


def connector_for_changes(options: ConnectionOptions) -> Connector:
    """The same for a command that selects changes, by its options alone. Raises OptionError."""
    selection = _SELECTION.match(options.dsn or "")
    if selection is not None:
        raise OptionError(
            "the argument names the database; options select changes:"
            f"{COMMAND}-t {shell_word(selection[1])} --op {selection[2]} --where CONDITION"
        )
    return connector_of(options)


def with_name_cure(error: ServerError, options: ConnectionOptions, dumps: str) -> ServerError:
    """The error of a connection, and its cure if the name is of a dump, a slot, or a table of the default database.

    `dumps`: the command that reads dumps.
    """
    name = options.dsn
    if name is None or f'database "{name}" does not exist' not in error.reason:
        return error
    from pgtail.capture.lock import has_segments  # not loaded for every connection

    path = Path(name)
    if path.is_file() or has_segments(path):
        kind = "file" if path.is_file() else "capture"
        return ServerError(error.reason, cure=f"{name} is a {kind}:{COMMAND}pgtail {dumps} {shell_word(name)}")
    default = replace(options, dsn=None)
    with contextlib.suppress(PgtailError), connector_of(default).without_asking().ordinary() as connection:
        if name in catalog.names(connection, "slots"):
            return ServerError(error.reason, cure=f"{name} is a slot: read it with --slot {name}")
        tables = [table for table in catalog.names(connection, "tables") if name in (table, table.partition(".")[2])]
        if tables:
            return ServerError(error.reason, cure=f"{name} is a table: select it with -t {shell_word(name)}")
    return error


def _ask_for_password(prompt: str) -> str | None:
    """Ask on the terminal, even if standard input is redirected; None without a terminal, or after Ctrl-D.

    A request to stop ends the process: nothing was connected to yet.
    """
    try:  # without a terminal getpass() would read standard input
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None
    try:
        return getpass(prompt)
    except EOFError:
        sys.stderr.write("\n")
        return None
    except KeyboardInterrupt as stopped:
        raise SystemExit(status_after(stopped)) from None
