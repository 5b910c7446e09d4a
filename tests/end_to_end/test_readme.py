"""Runs the shell examples of the tutorial, the README and the other man pages, against a server of their own.

A comment before a block says how to check it, with marks separated by `; `: `not run: REASON`; `run last` (after all
others); `ended with Ctrl-C`; `exits STATUS`; `prints REGEX` (the output must match). In man/parts only blocks marked as
`sh` are run; they use the slot and the dump of the tutorial.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.demo.workload import create_database
from tests.support.limits import within

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = ROOT / "man" / "parts" / "pgtail-tutorial.7.md"
PARTS = sorted(set(TUTORIAL.parent.glob("*.md")) - {TUTORIAL})
FENCE = re.compile(
    r"(?:<!-- (?P<mark>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)\n```$", re.DOTALL | re.MULTILINE
)
CTRL_C = "ended with Ctrl-C"
LAST = "run last"
BLOCK_TIMEOUT = 60
"""Seconds for a block, on an idle machine."""
TOOLS = ("bash", "gzip", "grep", "timeout")
"""What the examples need besides pgtail, a server's programs and jq."""
JQ = shutil.which("jq")


@dataclass(frozen=True)
class Block:
    """One example and the marks of its comment."""

    text: str
    marks: tuple[str, ...]

    def mark(self, word: str) -> str | None:
        """The text after a word in the comment; None without that word."""
        return next((mark.removeprefix(word).lstrip(": ") for mark in self.marks if mark.startswith(word)), None)

    @property
    def not_run(self) -> str | None:
        """Why the block is not run here; None if it is run."""
        return self.mark("not run")

    @property
    def not_read(self) -> str | None:
        """Why its output is not checked; None if it is."""
        return "jq is not installed: everything else is run" if "jq" in self.text and JQ is None else None


def fences(page: Path) -> list[re.Match[str]]:
    """The fenced blocks of a page."""
    return list(FENCE.finditer(page.read_text(encoding="utf-8")))


FENCES = fences(ROOT / "README.md")


def blocks(fenced: Iterable[re.Match[str]]) -> list[Block]:
    """The shell examples among fenced blocks."""
    return [
        Block(match["text"], tuple(match["mark"].split("; ")) if match["mark"] else ())
        for match in fenced
        if match["language"] == "sh"
    ]


BLOCKS = sorted(
    (block for page in (TUTORIAL, ROOT / "README.md", *PARTS) for block in blocks(fences(page))),
    key=lambda block: LAST in block.marks,
)


class Reader:
    """Types the examples into one shell, in one directory."""

    def __init__(self, directory: Path, server: EmbeddedServer) -> None:
        self._directory = directory / "work"
        self._directory.mkdir()
        self._state = directory / "environment"
        self._state.write_text("")
        self._server = server
        programs = directory / "bin"
        programs.mkdir()
        pgtail = programs / "pgtail"
        pgtail.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c 'from pgtail.__main__ import main; main()' \"$@\"\n")
        pgtail.chmod(0o755)
        if JQ is None:  # later blocks need the slots, files and rows that the other commands of a block make
            stand_in = programs / "jq"
            stand_in.write_text("#!/bin/sh\nexec cat\n")
            stand_in.chmod(0o755)
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
        """Run a block; return its exit status, output and errors."""
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
                output, errors = process.communicate(timeout=within(BLOCK_TIMEOUT))
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, output, errors

    def _change_a_row(self) -> None:
        """Do what the reader does in another terminal while pgtail is streaming."""
        with psycopg.connect(self._server.conninfo("shop"), autocommit=True) as connection:
            self._wait_until(connection, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
            connection.execute("INSERT INTO orders VALUES (0, 'Nobody')")
            self._wait_until(
                connection,
                "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= pg_current_wal_lsn()",
            )

    @staticmethod
    def _wait_until(connection: psycopg.Connection[tuple[int]], query: str) -> None:
        begun = time.monotonic()
        while connection.execute(query).fetchone() == (0,):
            assert time.monotonic() - begun < within(BLOCK_TIMEOUT), query
            time.sleep(0.05)


def test_the_examples_do_what_they_say(tmp_path: Path, start_server: Callable[..., EmbeddedServer]) -> None:
    for tool in TOOLS:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed, which the examples need")
    server = start_server()
    create_database(server.conninfo)  # a reader may go on with the server of pgtail demo --serve
    reader = Reader(tmp_path, server)
    for block in BLOCKS:
        if block.not_run is None:
            status, output, errors = reader.type(block)
            assert status == int(block.mark("exits") or 0), f"{block.text}\n{output}{errors}"
            assert "Traceback" not in errors
            wanted = None if block.not_read else block.mark("prints")
            assert wanted is None or re.search(wanted, output), f"{block.text}\n{output}{errors}"


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.not_run or block.not_read], ids=lambda block: block.text[:30]
)
def test_examples_that_cannot_run_here_give_a_reason(block: Block) -> None:
    pytest.skip(str(block.not_run or block.not_read))


def test_every_block_has_a_language_and_every_mark_is_known() -> None:
    assert {match["language"] for match in FENCES} <= {"sh", "json", "text", "sql", "python"}
    for block in BLOCKS:
        for mark in block.marks:
            assert mark in {CTRL_C, LAST} or mark.split()[0].rstrip(":") in {"not", "exits", "prints"}, mark


def test_the_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", README), re.MULTILINE)
    places = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= places
