"""Floor 7, `pgtail demo`: an embedded server, a little business, and pgtail's own commands run on it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pgtail.cli.settings import unset

if TYPE_CHECKING:
    from pgtail.server.embedded import EmbeddedServer

_PAUSE = 0.35
"""Seconds between two transactions: time to see them come."""


@click.command("demo")
@click.option("--serve", is_flag=True, help="Leave the server running, with some business on it, until Ctrl-C.")
def command(serve: bool) -> None:
    """Show what pgtail does, on an embedded server.

    The server comes with the extra `demo`, listens on this machine alone, lives in a temporary directory, and is gone
    afterwards.
    """
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        from pgtail.server.embedded import EmbeddedServer
        from pgtail.server.installation import embedded_installations
        from pgtail.server.shop import DATABASE, SLOT, open_shop

        installation = embedded_installations()[0]
        _tell(f"starting PostgreSQL {installation.major} ...")
        with EmbeddedServer(installation) as server:
            open_shop(server.conninfo)
            _tell(f"database {DATABASE}, publication shop, slot {SLOT}")
            try:
                _serve(server) if serve else _show(server)
            except KeyboardInterrupt:
                _tell("interrupted")
            _tell("stopping the server")


def _show(server: EmbeddedServer) -> None:
    """Tail the business as tables while it goes on, then once more as JSON: reading consumed nothing."""
    from pgtail.server.shop import DATABASE, SLOT, business

    conninfo = server.conninfo(DATABASE)
    stop = threading.Event()
    worker = _in_background(business(conninfo), stop)
    try:
        _run(["stream", conninfo, "--slot", SLOT, "--idle-exit", "3", "--output", "table", "--max-rows", "4"])
    finally:
        stop.set()
        worker.join()
    _tell("the same transactions once more, for programs: reading them has consumed nothing")
    _run(["stream", conninfo, "--slot", SLOT, "--until", "now", "--output", "json", "--exclude", "sessions"])


def _serve(server: EmbeddedServer) -> None:
    """Keep the server alive and busy."""
    from pgtail.cli.sinks import put
    from pgtail.server.shop import DATABASE, SLOT, endless_business

    conninfo = shlex.quote(server.conninfo(DATABASE))
    pgtail = "pgtail" if shutil.which("pgtail") else f"{shlex.quote(sys.executable)} -m pgtail"
    put(
        f"""
The server runs until Ctrl-C. In another terminal, try:

  {pgtail} stream {conninfo} --slot {SLOT}
  {pgtail} stream {conninfo} --slot {SLOT} -o json | jq -c '[.op, .table, .new]'
  {pgtail} stream {conninfo} -t orders --op update --where "status=paid"
  {shlex.quote(str(server.installation.program("psql")))} {conninfo}
"""
    )
    stop = threading.Event()
    worker = _in_background(endless_business(conninfo=server.conninfo(DATABASE)), stop, pause=1.0)
    try:
        worker.join()
    finally:
        stop.set()
        worker.join()


def _in_background(steps: Iterator[None], stop: threading.Event, pause: float = _PAUSE) -> threading.Thread:
    """Take the steps one after another in a thread, with pauses, until there are no more or `stop` is set."""

    def take() -> None:
        while not stop.wait(pause):
            if next(steps, steps) is steps:
                return

    worker = threading.Thread(target=take, daemon=True)
    worker.start()
    return worker


def _run(arguments: list[str]) -> None:
    """One of pgtail's own commands, shown and run as a user would; settings are about other servers."""
    _tell(f"$ pgtail {shlex.join(arguments)}")
    command = [sys.executable, "-m", "pgtail", *arguments]
    status = subprocess.run(command, check=False, env=unset(os.environ)).returncode
    if status:
        raise SystemExit(status)


def _tell(text: str) -> None:
    click.secho(text, fg="cyan", err=True)
