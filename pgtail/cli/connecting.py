"""Floor 7, the connection options to a Connector, and a password asked on the terminal."""

from __future__ import annotations

import getpass
import os
from typing import Any

from pgtail.server.connection import Connector, parameters


def connector_of(options: dict[str, Any]) -> Connector:
    """What the connection options say. Raises OptionError."""
    found = parameters(
        options["dsn"],
        host=options["host"],
        port=options["port"],
        user=options["username"],
        dbname=options["dbname"],
    )
    return Connector(found, ask=_ask_for_password, ask_first=options["password"])


def _ask_for_password(prompt: str) -> str | None:
    """Ask on the terminal, whatever standard input is; None where there is no terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None
    return getpass.getpass(prompt)
