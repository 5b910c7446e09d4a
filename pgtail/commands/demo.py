"""`pgtail demo`: an embedded server, a workload on it, and pgtail's own commands run as a user would."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from pgtail.commands.console.messages import is_dumb
from pgtail.commands.output.file_sink import put
from pgtail.demo.installation import embedded_installations
from pgtail.demo.server import SUPERUSER, EmbeddedServer
from pgtail.demo.workload import DATABASE, SLOT, create_database, endless_workload, workload
from pgtail.errors import ServerError
from pgtail.files.stopping import after_echo, begin

_PAUSE: Final = 0.35
"""Seconds between two transactions, so that they can be seen to arrive one by one."""


def run(*, serve: bool, environment: Mapping[str, str]) -> None:
    """Run the demo, or with `serve` keep its server running until Ctrl-C. Raises PgtailError.

    `environment` is that of the commands; settings of the user's are about other servers, so it should have none.
    """
    installation = embedded_installations()[0]
    _announce(f"starting PostgreSQL {installation.major} ...")
    begin()
    with EmbeddedServer(installation) as server:
        create_database(server.conninfo)
        _announce(f"database {DATABASE}, publication shop, slot {SLOT}")
        try:
            _serve(server) if serve else _show(server, environment)
        except KeyboardInterrupt:
            _announce("interrupted")
        _announce("stopping the server")


def _show(server: EmbeddedServer, environment: Mapping[str, str]) -> None:
    """Stream the workload as tables while it runs, then as lines and as JSON, since reading consumed nothing."""
    conninfo = server.conninfo(DATABASE)
    stream = ["stream", conninfo, "--slot", SLOT]
    stop = threading.Event()
    thread = _in_background(workload(conninfo), stop)
    try:
        _pgtail([*stream, "--idle-exit", "3", "--output", "table", "--max-rows", "4"], environment)
    finally:
        stop.set()
        thread.join()
    again = [*stream, "--until", "now", "--no-pager", "--exclude", "sessions"]
    _announce("the same transactions again, since reading consumes nothing: a line for each change")
    _pgtail([*again, "--output", "line"], environment)
    _announce("and as JSON, for programs")
    _pgtail([*again, "--output", "json"], environment)


def _serve(server: EmbeddedServer) -> None:
    pgtail = "pgtail" if shutil.which("pgtail") else f"{shlex.quote(sys.executable)} -m pgtail"
    put(
        f"""
The server runs until Ctrl-C. In another terminal, try:

  export PGHOST={shlex.quote(str(server.directory))} PGPORT={server.port}
  export PGUSER={SUPERUSER} PGDATABASE={DATABASE} PATH="$PATH":{shlex.quote(str(server.installation.bindir))}
  {pgtail} stream --slot {SLOT}
  {pgtail} stream --slot {SLOT} -o line
  {pgtail} stream --slot {SLOT} -o json | jq -c '[.op, .table, .new]'
  {pgtail} stream -t orders --op update --where "status=paid"
  psql
"""
    )
    stop = threading.Event()
    thread = _in_background(endless_workload(server.conninfo(DATABASE)), stop, pause=1.0)
    try:
        stop.wait()
    finally:
        stop.set()
        thread.join()


def _in_background(steps: Iterator[None], stop: threading.Event, pause: float = _PAUSE) -> threading.Thread:
    """Run the steps one after another in a thread, with pauses in seconds, until the last one or until `stop`.

    The first error ends them: the user may have dropped a table.
    """

    def run_steps() -> None:
        try:
            while not stop.wait(pause):
                if next(steps, steps) is steps:
                    return
        except ServerError as error:
            _announce(f"the workload has ended: {error}")

    thread = threading.Thread(target=run_steps, daemon=True)
    thread.start()
    return thread


def _pgtail(arguments: list[str], environment: Mapping[str, str]) -> None:
    _announce(f"$ pgtail {shlex.join(arguments)}")
    status = subprocess.run([sys.executable, "-m", "pgtail", *arguments], check=False, env=environment).returncode
    if status:
        raise SystemExit(status)


def _announce(text: str) -> None:
    """A line of the demo itself on standard error, in bold on a terminal."""
    terminal = sys.stderr.isatty()
    color = terminal and not is_dumb()
    sys.stderr.write(after_echo(terminal) + (f"\x1b[1m{text}\x1b[m\n" if color else f"{text}\n"))
    sys.stderr.flush()
