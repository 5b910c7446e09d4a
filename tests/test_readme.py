"""The shell examples of the README, run one after another as a reader would, against a server of their own.

A comment before a block says what is special about it: `not run: REASON`, `ended with Ctrl-C`, `exits STATUS`, and
`prints REGEX` for what its output must hold; several are separated by `; `.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgtail.server.embedded import EmbeddedServer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(
    r"(?:<!-- (?P<mark>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)\n```$", re.DOTALL | re.MULTILINE
)
CTRL_C = "ended with Ctrl-C"
PATIENCE = 60
"""Seconds for a block."""


@dataclass(frozen=True)
class Block:
    """One example, and what its comment says."""

    text: str
    marks: tuple[str, ...]

    def mark(self, word: str) -> str | None:
        """What follows a word in the comment."""
        return next((mark.removeprefix(word).lstrip(": ") for mark in self.marks if mark.startswith(word)), None)

    @property
    def not_run(self) -> str | None:
        """Why it is not run here."""
        if "jq" in self.text and shutil.which("jq") is None:
            return "jq is not installed"
        return self.mark("not run")


FENCES = list(FENCE.finditer(README))
BLOCKS = [
    Block(match["text"], tuple((match["mark"] or "").split("; ")) if match["mark"] else ())
    for match in FENCES
    if match["language"] == "sh"
]


class Reader:
    """Somebody who types what the README says into one shell, in one directory."""

    def __init__(self, directory: Path, server: EmbeddedServer) -> None:
        self._directory = directory / "work"
        self._directory.mkdir()
        self._state = directory / "environment"
        self._state.write_text("")
        self._server = server
        programs = directory / "bin"
        programs.mkdir()
        pgtail = programs / "pgtail"
        pgtail.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c 'from pgtail.cli import main; main()' \"$@\"\n")
        pgtail.chmod(0o755)
        path = [str(programs), str(server.installation.bindir), os.environ["PATH"]]
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self._environment = {
            **outside,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(ROOT),
            "PGHOST": str(server.directory),
            "PGPORT": str(server.port),
            "PGTAIL_CONFIG": "",
            "PGUSER": "postgres",
        }

    def type(self, block: Block) -> tuple[int, str, str]:
        """Run a block; its exit status, output and errors."""
        script = f". '{self._state}'\nset -euo pipefail\n{block.text}\nexport -p >'{self._state}'\n"
        with subprocess.Popen(
            ["bash", "-c", script],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        ) as process:
            try:
                if CTRL_C in block.marks:
                    self._change_a_row()
                    os.killpg(process.pid, signal.SIGINT)
                output, errors = process.communicate(timeout=PATIENCE)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, output, errors

    def _change_a_row(self) -> None:
        """What the reader does in another terminal, while pgtail watches."""
        with psycopg.connect(self._server.conninfo("shop"), autocommit=True) as connection:
            self._wait_until(connection, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
            connection.execute("INSERT INTO orders VALUES (0, 'Nobody')")
            self._wait_until(
                connection,
                "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= pg_current_wal_lsn()",
            )

    @staticmethod
    def _wait_until(connection: psycopg.Connection[tuple[int]], query: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while connection.execute(query).fetchone() == (0,):
            assert time.monotonic() < deadline, query
            time.sleep(0.05)


@pytest.mark.timeout(600)
def test_the_examples_do_what_the_readme_says(tmp_path: Path, start_server: Callable[..., EmbeddedServer]) -> None:
    reader = Reader(tmp_path, start_server())
    for block in BLOCKS:
        if block.not_run is None:
            status, output, errors = reader.type(block)
            assert status == int(block.mark("exits") or 0), f"{block.text}\n{output}{errors}"
            assert "Traceback" not in errors
            wanted = block.mark("prints")
            assert wanted is None or re.search(wanted, output), f"{block.text}\n{output}{errors}"


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.not_run is not None], ids=lambda block: block.text[:30]
)
def test_examples_that_cannot_run_here_say_why(block: Block) -> None:
    assert block.not_run
    pytest.skip(block.not_run)


def test_every_block_has_a_language_and_every_mark_is_known() -> None:
    assert {match["language"] for match in FENCES} <= {"sh", "json", "text", "sql", "python"}
    for block in BLOCKS:
        for mark in block.marks:
            assert mark == CTRL_C or mark.split()[0].rstrip(":") in {"not", "exits", "prints"}, mark


def test_the_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", README), re.MULTILINE)
    places = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= places
