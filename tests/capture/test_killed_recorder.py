"""A recorder that is killed between a Prepare and its outcome: the capture continues as if nothing had happened.

Each history has another moment.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import pytest

from tests.support.hostile_server import HostileServer, Last, Reply
from tests.support.run import command
from tests.support.run_process import PROGRAM, pgtail, started
from tests.support.servers import Database
from tests.support.tail import wait_for, wait_for_free_slots
from tests.support.two_phase import ADVANCE, CREATE_SLOT, SETUP, SWITCH_ON

GID: Final = "the gid"
PREPARE: Final = f"BEGIN; INSERT INTO t VALUES (2), (3); PREPARE TRANSACTION '{GID}'"
LARGE: Final = PREPARE.replace("VALUES (2), (3)", "SELECT generate_series(10, 3000)")
COMMIT, ROLL_BACK = (f"{what} PREPARED '{GID}'" for what in ("COMMIT", "ROLLBACK"))

Moment = Literal["received", "synced", "cut off"]
"""When it is killed: before the Prepare is on disk, after that, or when it has lost its connection and has another."""


@dataclass(frozen=True, slots=True)
class History:
    """Statements `before` the disturbed run; those `during` it, of which the last one sends a Prepare; and `after`.

    `switched`: the slot gets two_phase after those `before`, which are recorded, unless they are `skipped`.
    """

    before: Sequence[str]
    during: Sequence[str]
    after: Sequence[str]
    switched: bool = False
    skipped: bool = False


HISTORIES: Final = {
    "commit": History(["INSERT INTO t VALUES (1)"], ["INSERT INTO t VALUES (5)", PREPARE], [COMMIT]),
    "rollback": History(["INSERT INTO t VALUES (1)"], ["INSERT INTO t VALUES (5)", PREPARE], [ROLL_BACK]),
    "sent late": History(
        [PREPARE, "INSERT INTO t VALUES (1)"], ["INSERT INTO t VALUES (5)", COMMIT], [], switched=True
    ),
    "sent late, of several segments": History(
        [LARGE, "INSERT INTO t VALUES (1)"], ["INSERT INTO t VALUES (5)", COMMIT], [], switched=True
    ),
    "sent late, first of its run": History([PREPARE, "INSERT INTO t VALUES (1)"], [COMMIT], [], switched=True),
    "sent late, first of its capture": History(
        [PREPARE, "INSERT INTO t VALUES (1)"], [COMMIT], [], switched=True, skipped=True
    ),
}


class _Held:
    """What a HostileServer does: the client gets nothing of the stream after the first Prepare.

    With `cut` it closes the connection there, and passes on what comes when the client has connected again.
    """

    def __init__(self, *, cut: bool) -> None:
        self._cut = cut
        self.sent, self.again = threading.Event(), threading.Event()

    def __call__(self, reply: Reply) -> bytes:
        if not (reply.replication and reply.kind == b"d"):
            return reply.whole
        if self.sent.is_set():
            self.again.set()
            return reply.whole if self._cut else b""
        if reply.body[:1] == b"w" and reply.body[25:26] == b"P":
            self.sent.set()
            return Last(reply.whole) if self._cut else reply.whole
        return reply.whole


def make(database: Database, folder: Path, history: History, moment: Moment) -> tuple[Path, Path]:
    """Two captures of the same history: of a recorder that was disturbed, and of one that was not."""
    slots = {name: folder / name for name in ("disturbed", "undisturbed")}
    database.execute(*SETUP, *[CREATE_SLOT.format(name, str(not history.switched)) for name in slots])
    database.execute(*history.before)
    for name, directory in slots.items():
        if history.skipped:
            database.execute(ADVANCE.format(name))
        else:
            _record(database, name, directory)
        if history.switched:
            database.execute(SWITCH_ON.format(name))
    _disturb(database, slots["disturbed"], history.during, moment)
    database.execute(*history.after, "INSERT INTO t VALUES (7)")
    for name, directory in slots.items():
        wait_for_free_slots(database)
        _record(database, name, directory)
    return slots["disturbed"], slots["undisturbed"]


def _record(database: Database, slot: str, directory: Path) -> None:
    """Record up to now."""
    pgtail("record", database.conninfo(), "-S", slot, "-D", str(directory), "--until", "now")


def _disturb(database: Database, directory: Path, statements: Sequence[str], moment: Moment) -> None:
    """Record these statements, but for what is sent after the Prepare."""
    held = _Held(cut=moment == "cut off")
    with closing(HostileServer("127.0.0.1", database.server.port)) as server:
        server.change = held
        interval = "60" if moment == "received" else "0.05"
        arguments = ["-S", "disturbed", "-D", str(directory), "--sync-interval", interval, "--no-compress"]
        arguments += ["--segment-size", "20kB"]
        conninfo = database.conninfo(tcp=True, port=server.port)
        with started([*PROGRAM, "record", conninfo, *arguments], stderr=subprocess.PIPE, text=True) as running:
            database.execute(*statements)
            wait_for("prepare", held.sent.is_set)
            if moment == "received":
                wait_for("segment", lambda: list(directory.glob("*.part")))
            elif moment == "synced":
                wait_for("prepare on disk", lambda: _on_disk(directory))
            else:
                wait_for("next connection", held.again.is_set)
            assert running.poll() is None, running.communicate()
            assert moment != "received" or not _on_disk(directory)
            running.kill()
            running.communicate()


def _on_disk(directory: Path) -> bool:
    """Whether the Prepare is in a segment: the gid is in it twice, first in Begin Prepare."""
    return any(path.read_bytes().count(f"{GID}\0".encode()) == 2 for path in directory.glob("*.pgcap*"))


MOMENTS = get_args(Moment)
CASES = [(name, MOMENTS[number % 3]) for number, name in enumerate(HISTORIES)]


@pytest.mark.parametrize(("name", "moment"), CASES)
def test_each_transaction_is_there_once_with_its_outcome(
    newest_database: Database, tmp_path: Path, name: str, moment: Moment
) -> None:
    captures = make(newest_database, tmp_path, HISTORIES[name], moment)
    found, expected = (command("decode", "-o", "json", capture) for capture in captures)
    assert (found.status, found.stderr) == (expected.status, expected.stderr) == (0, "")
    assert found.lines == expected.lines
    prepared = [one["new"]["v"] for one in found.objects if one["op"] == "insert" and one.get("gid")]
    outcomes = [one["op"] for one in found.objects if one["op"].endswith("_prepared")]
    assert prepared == sorted(set(prepared)) != []
    assert outcomes == ["rollback_prepared" if name == "rollback" else "commit_prepared"]
