"""Replies of a hostile or broken server: each query of each command gets the replies of wrong_replies.py.

There must be no traceback, no control sequence on the terminal, and a documented exit status. A real server answers
everything else. Each query gets some of the wrong replies.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtail.doctor.server import USED_SLOTS
from tests.support import forked
from tests.support.forked import Ran
from tests.support.hostile_server import Change, HostileServer, Last, Reply, failure, message, unchanged
from tests.support.servers import Database
from tests.support.wrong_replies import ESCAPES, WRONG_REPLIES

_NONSENSE = message(b"S", b"client_encoding\0" + ESCAPES + b"\0")
_CHANGING = re.compile(r"pgtail_\d+_\w+|[0-9A-F]+/[0-9A-F]+|\d+")
_HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\udc80-\udcff]")

COMMANDS: dict[str, tuple[str, ...]] = {
    "doctor": ("doctor", "DSN"),
    "list": ("slot", "list", "DSN", "-o", "json"),
    "table": ("slot", "list", "DSN", "-o", "table"),
    "create": ("slot", "create", "made", "DSN"),
    "drop": ("slot", "drop", "dropped", "DSN", "--yes"),
    "advance": ("slot", "advance", "s", "now", "DSN", "--yes"),
    "copy": ("slot", "copy", "s", "made", "DSN"),
    "stream": ("stream", "DSN", "-P", "p", "-S", "s", "--until", "now", "-t", "t"),
    "temporary": ("stream", "DSN", "-P", "p", "--until", "now"),
    "fork": ("stream", "DSN", "-P", "young", "--fork", "s", "--until", "now"),
    "record": ("record", "DSN", "-P", "p", "-S", "made", "-D", "DIR", "--until", "now"),
    "expect": ("expect", "DSN", "-P", "p", "-S", "s", "-t", "t", "--timeout", "1s"),
    "stats": ("stats", "--slot", "s", "DSN", "-P", "p"),
}


class ProxiedDatabase:
    """A database behind a hostile server, with the slots that the commands need."""

    def __init__(self, database: Database, directory: Path) -> None:
        self.database = database
        self.server = HostileServer("127.0.0.1", database.server.port)
        self._directory = directory
        self._runs = 0
        forked.load()

    def run(self, command: str, change: Change) -> Ran:
        self._reset()
        self._runs += 1
        dsn = self.database.conninfo(tcp=True).replace(f"port={self.database.server.port}", f"port={self.server.port}")
        places = {"DSN": dsn, "DIR": str(self._directory / str(self._runs))}
        self.server.change = change
        return forked.run(*[places.get(argument, argument) for argument in COMMANDS[command]])

    def queries(self, command: str) -> list[str]:
        """The queries of an undisturbed run, without the parts that change from run to run."""
        found: dict[str, None] = {}

        def listen(reply: Reply) -> bytes:
            found[asked(reply)] = None
            return reply.whole

        ran = self.run(command, listen)
        assert ran.status <= 2, ran.err
        return [query for query in found if query]

    def _reset(self) -> None:
        there = {name for (name,) in self.database.query("SELECT slot_name FROM pg_replication_slots")}
        if "made" in there:
            self.database.query("SELECT pg_drop_replication_slot('made')")
        for name in {"s", "dropped"} - there:
            self.database.query(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")


@pytest.fixture
def proxied(newest_database: Database, tmp_path: Path) -> Iterator[ProxiedDatabase]:
    newest_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE poor (id int)",
        "CREATE UNLOGGED TABLE loose (id int)",
        "CREATE PUBLICATION p FOR TABLE t",
        "CREATE PUBLICATION everything FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "CREATE PUBLICATION young FOR TABLE t",
        "INSERT INTO t VALUES (1, 'x')",
    )
    made = ProxiedDatabase(newest_database, tmp_path)
    yield made
    made.server.close()


def asked(reply: Reply) -> str:
    return _CHANGING.sub("N", reply.query or "")


def about(query: str, change: Change) -> Change:
    """Change the replies to one query."""
    return lambda reply: change(reply) if asked(reply) == query else reply.whole


def check(ran: Ran, what: str, *statuses: int) -> None:
    """Check that a run ended with a documented status and showed no control sequences."""
    err = ran.err.decode(errors="surrogateescape")
    assert ran.status in (statuses or (0, 1, 2, 3, 75)), f"{what}: {ran.status}\n{err}"
    assert "Traceback" not in err, f"{what}\n{err}"
    assert "Exception ignored" not in err, f"{what}\n{err}"
    for shown in (err, ran.out.decode(errors="surrogateescape")):
        assert not _HIDDEN.search(shown), f"{what}: {shown!r}"


def test_no_reply_causes_a_traceback(proxied: ProxiedDatabase) -> None:
    """What several commands ask is answered wrongly to two of them."""
    choose, times = random.Random(1), Counter[str]()
    for command in COMMANDS:
        for query in proxied.queries(command):
            times[query] += 1
            if times[query] <= 2:
                name = choose.choice(sorted(WRONG_REPLIES))
                check(proxied.run(command, about(query, WRONG_REPLIES[name])), f"{command}: {name} in place of {query}")


@pytest.mark.parametrize(
    ("command", "part", "name", "words"),
    [
        ("stream", "wal_sender_timeout", "null", "about itself cannot be read: server_version_num is missing"),
        ("stream", "wal_sender_timeout", "no rows", "about itself cannot be read: it has 0 rows, not one"),
        ("stream", "wal_sender_timeout", "no UTF-8", r"server_version_num is '\xff\xfe\x80', not a whole number"),
        ("stream", "wal_sender_timeout", "huge", "server_version_num is '9999"),
        ("stream", "FROM pg_publication p", "few columns", "about the publications cannot be read: pubname is missing"),
        ("stream", "IDENTIFY_SYSTEM", "no rows", "about the server's identity cannot be read: it has 0 rows"),
        ("stream", "IDENTIFY_SYSTEM", "escapes", r"timeline is E'\x1b[31m"),
        ("stream", "client_encoding TO", "encoding", "its client_encoding"),
        ("create", "CREATE_REPLICATION_SLOT", "words", "consistent_point is 'no such thing', not a log position"),
        ("create", "CREATE_REPLICATION_SLOT", "copy in", "unexpected result from the server (COPY_IN)"),
        ("record", "IDENTIFY_SYSTEM", "words", "timeline is 'no such thing', not a whole number"),
        ("list", "jsonb_build_object", "json nulls", "about the slots cannot be read: slot_name is missing"),
        ("list", "jsonb_build_object", "json true", "is 'True', not"),
        ("list", "jsonb_build_object", "json deep", "not a JSON object"),
        ("list", "jsonb_build_object", "json numbers", "not a JSON object"),
        ("list", "jsonb_build_object", "typed format 7", "psycopg cannot decode it"),
        ("list", "jsonb_build_object", "encoding", r"codec not available in Python: ''\x1b[31mnonsense''"),
        ("doctor", "FROM pg_settings", "null", "about the settings cannot be read"),
        ("stats", "wal_sender_timeout", "typed binary", ""),
        ("fork", "BEGIN", "notification", ""),
    ],
)
def test_unreadable_replies_are_reported(
    proxied: ProxiedDatabase, command: str, part: str, name: str, words: str
) -> None:
    change = WRONG_REPLIES[name]
    ran = proxied.run(command, lambda reply: change(reply) if part in (reply.query or "") else reply.whole)
    check(ran, f"{command}: {name}", *([3] if words else []))
    assert words in ran.err.decode()


def test_a_failed_check_does_not_end_the_doctor(proxied: ProxiedDatabase) -> None:
    ran = proxied.run("doctor", about(USED_SLOTS, WRONG_REPLIES["words"]))
    check(ran, "doctor", 1, 2)
    assert "could not be checked: the server's answer about the slots cannot be read" in " ".join(
        ran.out.decode().split()
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda reply: None if reply.kind == b"R" else reply.whole,
        lambda reply: message(b"R", b"\0\0\0\x63") if reply.kind == b"R" else reply.whole,
        lambda reply: failure(b"go away " + ESCAPES, b"28000", b"FATAL") if reply.kind == b"R" else reply.whole,
        lambda reply: b"HTTP/1.1 400 " + ESCAPES if reply.kind == b"R" else reply.whole,
        lambda reply: message(b"S", b"server_version\0" + ESCAPES + b"\0") if reply.kind == b"S" else reply.whole,
        lambda reply: (_NONSENSE if reply.kind == b"K" else b"") + reply.whole,
        lambda reply: b"" if reply.kind in b"SK" else reply.whole,
    ],
)  # fmt: skip
def test_wrong_replies_at_startup(proxied: ProxiedDatabase, change: Change) -> None:
    check(proxied.run("list", lambda reply: change(reply) if reply.query is None else reply.whole), "startup", 0, 3, 75)
    first = proxied.run("stream", lambda one: change(one) if one.replication and one.query is None else one.whole)
    check(first, "", 0, 3, 75)


def _first(kind: bytes, answer: bytes) -> Change:
    """Replace the first message of this kind in a stream, then close the connection."""

    def change(reply: Reply) -> bytes:
        streamed = reply.replication and "START_REPLICATION" in (reply.query or "")
        return Last(answer) if streamed and reply.kind == kind else reply.whole

    return change


@pytest.mark.parametrize(
    "change",
    [
        _first(b"W", failure(b"no " + ESCAPES, b"42704")),
        _first(b"W", message(b"C", b"START\0") + message(b"Z", b"I")),
        _first(b"W", message(b"H", b"\0\0\0")),
        _first(b"W", message(b"G", b"\0\0\0")),
        _first(b"d", failure(b"could not map filenumber " + ESCAPES, b"XX000")),
        _first(b"d", failure(b"enough", b"\xff\x1b[", b"\xff") + message(b"Z", b"I")),
        _first(b"d", message(b"d", b"w" + b"\xff" * 40)),
        _first(b"d", message(b"d", b"\x1b[31m")),
        _first(b"d", message(b"d", b"")),
        _first(b"d", message(b"N", b"SWARNING\0C55000\0Mskipped loading publication " + ESCAPES + b"\0\0")),
        _first(b"d", _NONSENSE + message(b"N", b"M\xff\x9b\0\0") + message(b"c", b"")),
    ],
)  # fmt: skip
def test_wrong_messages_in_the_stream(proxied: ProxiedDatabase, change: Change) -> None:
    for command in ("stream", "record"):
        check(proxied.run(command, _ending(change)), command, 1, 3, 75)


def _ending(change: Change) -> Change:
    """Refuse the connections after a wrong reply, so that the command cannot retry forever."""
    changed = False

    def ending(reply: Reply) -> bytes | None:
        nonlocal changed
        if changed and reply.query is None:
            return failure(b"that was all", b"28000", b"FATAL") if reply.kind == b"R" else None
        answer = change(reply)
        changed = changed or (answer != reply.whole)
        return answer

    return ending


def test_the_hostile_server_can_change_nothing(proxied: ProxiedDatabase) -> None:
    for command in ("list", "stream", "record"):
        check(proxied.run(command, unchanged), command, 0)
