"""The connection options to a Connector, and a password asked on the terminal."""

from __future__ import annotations

import os
import re
import sys
from getpass import getpass
from pathlib import Path

from pgtail.commands.console.messages import repeat_connection
from pgtail.commands.options.server import ConnectionOptions
from pgtail.errors import COMMAND, OptionError, ServerError
from pgtail.files.stopping import status_after
from pgtail.postgres.connection import Connector, parameters
from pgtail.terminal.escape import shell_word


def connector_of(options: ConnectionOptions) -> Connector:
    """Makes connections as the options say. Raises OptionError."""
    found = parameters(options.dsn, host=options.host, port=options.port, user=options.username, dbname=options.dbname)
    if options.no_password and options.password:
        raise OptionError("--password and --no-password contradict each other: give one of them")
    ask = None if options.no_password else _ask_for_password
    connector = Connector(found, ask=ask, ask_first=options.password)
    repeat_connection(_words(options, connector))
    return connector


def with_name_cure(error: ServerError, name: str | None, command: str) -> ServerError:
    """The error of a connection; its cure is another one if no database has the argument's name, which is a file's or
    may be a slot's. `command` reads the slot.
    """
    missing = re.search('database "(.*)" does not exist', error.reason)
    if name is None or missing is None or "=" in name or "://" in name:
        return error
    if not name.startswith(missing[1]):  # another one's; the server cuts it after 63 bytes
        return error
    from pgtail.capture.lock import has_segments  # not loaded for every connection

    path, word = Path(name), shell_word(name)
    reads = "stats" if command == "stats" else "decode"
    if path.is_file() or has_segments(path):
        error.cure = f"it is a {'file' if path.is_file() else 'capture'}:{COMMAND}pgtail {reads} {word}"
    else:
        error.cure = f"a slot is named with --slot: pgtail {command} --slot {word}; psql -l lists the databases"
    return error


def _words(options: ConnectionOptions, connector: Connector) -> str:
    """The options for a command line, quoted for a shell, or a connection string in their place; never a password."""
    if any(set("=/") & set(name or "") for name in (options.dsn, options.dbname)):
        return shell_word(connector.dsn())
    flags = (("-h", options.host), ("-p", options.port), ("-U", options.username), ("-d", options.dbname))
    words = [f"{flag} {shell_word(value)}" for flag, value in flags if value is not None]
    return " ".join(words if options.dsn is None else [*words, shell_word(options.dsn)])


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
