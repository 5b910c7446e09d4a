"""The scenarios to record: each one's statements, from the sql.log of PostgreSQL 16's captures, and its captures."""

from __future__ import annotations

import contextlib
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

CAPTURES = Path(__file__).parents[1] / "captures"
Session = psycopg.Connection[tuple[Any, ...]]

_STATEMENT = re.compile(r"^-- #\d+ session=(\w+) .*\n", re.MULTILINE)
_SETUP = re.compile(r"^-- statements 1\.\.(\d+) ran BEFORE", re.MULTILINE)
_MD5 = re.compile(r"md5\((g::text(?:\|\|'\w')?)\)")
_COPY = re.compile(r"(COPY .* FROM STDIN);\n(.*)\\\.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Capture:
    """One way of reading a scenario's log: its name, pgoutput's options, and the first version that knows them."""

    name: str
    options: dict[str, str]
    since: int = 14

    @property
    def two_phase(self) -> bool:
        """Whether its slots are created for two-phase decoding."""
        return "two_phase" in self.options


@dataclass(frozen=True, slots=True)
class Scenario:
    """Statements in named sessions: those before the slots were created, and those that are captured."""

    name: str
    captures: tuple[Capture, ...]
    since: int = 14

    def statements(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """(session, statement) before the slots, and after."""
        path = CAPTURES / "pg16" / self.name / "sql.log"
        text = (path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())).decode()
        head, *pieces = _STATEMENT.split(text)
        found = _SETUP.search(head)
        assert found, f"{path} does not say which statements are its set-up"
        # Digits in place of md5: as long, so streamed as early, but much smaller when compressed.
        lean = [_MD5.sub(r"lpad(\1, 32, '0')", piece.rstrip("\n")) for piece in pieces]
        both = list(zip(lean[::2], lean[1::2], strict=True))
        return both[: int(found[1])], both[int(found[1]) :]


def _options(proto_version: int, publications: str = "pub", **more: str) -> dict[str, str]:
    return {"proto_version": str(proto_version), "publication_names": publications, **more}


SCENARIOS = (
    Scenario("A_types", (Capture("p1", _options(1)), Capture("p1_bin", _options(1, binary="true")))),
    Scenario("A_dml", (Capture("p1", _options(1)), Capture("p1_bin", _options(1, binary="true")))),
    Scenario(
        "A_ddl",
        (
            Capture("p1", _options(1)),
            Capture("p1_bin", _options(1, binary="true")),
            Capture("p1_pub2", _options(1, "pub2")),
            Capture("p1_both", _options(1, "pub2,pub")),
        ),
    ),
    Scenario(
        "A_msgs",
        (
            Capture("p1", _options(1)),
            Capture("p1_msg", _options(1, messages="true")),
            Capture("p1_msg_bin", _options(1, messages="true", binary="true")),
        ),
    ),
    Scenario(
        "C_stream",
        (
            Capture("p2_stream_msg", _options(2, streaming="on", messages="true")),
            Capture("p2_stream_bin", _options(2, streaming="on", binary="true")),
        ),
    ),
    Scenario(
        "D_twophase",
        (
            Capture("p1_no2pc", _options(1)),
            Capture("p3_2pc", _options(3, two_phase="on"), since=15),
            Capture("p3_2pc_bin", _options(3, two_phase="on", binary="true"), since=15),
            Capture("p3_2pc_stream", _options(3, two_phase="on", streaming="on", messages="true"), since=15),
            Capture("p4_2pc_parallel", _options(4, two_phase="on", streaming="parallel", messages="true"), since=16),
        ),
    ),
    Scenario(
        "E_parallel",
        (
            Capture("p4_parallel", _options(4, streaming="parallel")),
            Capture("p4_parallel_bin", _options(4, streaming="parallel", binary="true", messages="true")),
            Capture("p4_on", _options(4, streaming="on")),
        ),
        since=16,
    ),
)


class Sessions:
    """The named sessions of a scenario in one database, opened when first used."""

    def __init__(self, conninfo: str, stack: contextlib.ExitStack) -> None:
        self._conninfo = conninfo
        self._stack = stack
        self._open: dict[str, Session] = {}

    def run(self, statements: list[tuple[str, str]]) -> Iterator[str]:
        """Run statements in turn; yields the answer to each: its command tag, or ERROR with the message."""
        for name, statement in statements:
            if name not in self._open:
                session = psycopg.connect(self._conninfo, autocommit=True)
                self._open[name] = self._stack.enter_context(contextlib.closing(session))
            try:
                yield run(self._open[name], statement)
            except psycopg.Error as error:
                yield f"ERROR {error.sqlstate}: {error.diag.message_primary}"


def run(session: Session, statement: str) -> str:
    """Run one statement, a COPY FROM STDIN with the data below it; returns its command tag."""
    copied = _COPY.match(statement)
    if copied is None:
        return session.execute(statement.encode()).statusmessage or ""
    cursor = session.cursor()
    with cursor.copy(copied[1].encode()) as copy:
        copy.write(copied[2])
    return cursor.statusmessage or ""
