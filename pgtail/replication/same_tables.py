"""Decides whether the seen rows of a table are still right when a session describes it for the first time.

A change of a table is unseen if the table was not published, under its name, at the change's place in the WAL; or if
the table was rewritten. The catalogs prove that neither happened:

1. V1, the version of the table (postgres/table_versions.py), is read at a moment t1. L1 is the end of the WAL when
   every transaction that ran at t1 has ended, prepared ones included. So all that commits after L1 began after t1.
2. A session described the table in a transaction that commits at C1 >= L1, which forgot what was seen before.
3. A later session describes the table in a transaction that is not streamed, and commits at C2. V2, read after that,
   equals V1. So the catalogs had these rows from t1 on up to C2, whether or not the commits in between can be seen yet.
4. A transaction that commits between C1 and C2 began after t1. So each of its changes is after t1 in the WAL, and is
   decoded with the catalogs of its place, where the table was published and is the same as now: it was sent, in this
   session or an earlier one. This also holds if it was streamed, sent when prepared, or repeated by a later session.

Rows that a snapshot copied at the consistent point of a new slot are like those of a session before: V1 is then read
before the slot is created, L1 is that point, which the server finds only once every transaction that ran when it began
to create the slot has ended, and the snapshot has every commit before it and no other. The stream may be that of
another slot.

All this requires one server process that is not a standby, as a restored server may continue with the same timeline. If
the answer is unknown, or late, the table counts as changed.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Container
from typing import Final, NamedTuple

from pgtail.errors import ServerError
from pgtail.postgres.connection import SHORT_TIMEOUT, Connection
from pgtail.postgres.table_versions import MAJORS, Moment, moment, versions
from pgtail.replication.identity import Identity
from pgtail.replication.plan import Publisher

_PATIENCE: Final = 1.0
"""Seconds for which the stream of a session waits for answers, all of them together."""
_PAUSES: Final = (0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
"""Seconds between two questions whether transactions have ended; the last one repeats."""


class _Known(NamedTuple):
    """V1 and L1."""

    version: str
    settled_at: int


class _Answer(NamedTuple):
    """The versions of tables; every commit before the LSN `position` is in them."""

    position: int
    versions: dict[int, str]


class SameTables:
    """Compares the versions of tables. The thread that processes the stream calls restart(), forget() and is_same()."""

    def __init__(self, publisher: Publisher) -> None:
        self._connector = publisher.connector.without_asking()
        self._plan = publisher.plan
        self._lock = threading.Lock()
        self._identity = Identity("", 0)
        self._known: dict[int, _Known] = {}
        self._begun: _Answer | None = None
        """From the beginning of this session."""
        self._before_slot: tuple[str, dict[int, str]] | None = None
        """The start of the server process, and the versions before the slot was created."""
        self._copies: dict[int, tuple[str, _Known]] = {}
        """Of tables that were copied: that start, V1 and L1."""
        self._copied_at: int | None = None
        """The commit LSN of the snapshot, with which its tables are described."""
        self._patience = 0.0
        """The seconds that are left in this session."""
        self._in_session: set[int] = set()
        """The tables that were described in this session, by OID."""
        self._seen_since: dict[int, int] = {}
        """Of tables that were described: the commit LSN of the last description that forgot what was seen, or -1."""

    def begin(self, identity: Identity) -> None:
        """A session of this server begins."""
        with self._lock:
            before, self._identity = self._identity, identity
            if identity.in_recovery or not identity.same_run(before):
                self._known = {
                    oid: known for oid, (started, known) in self._copies.items() if started == identity.started
                }
            self._begun = None
            self._patience = _PATIENCE
        if not identity.in_recovery and self._plan.server.major in MAJORS:
            threading.Thread(target=self._learn, args=(identity,), name="versions", daemon=True).start()

    def before_slot(self) -> None:
        """A slot will be created, and tables are copied at its consistent point."""
        self._before_slot = None
        if self._plan.server.in_recovery or self._plan.server.major not in MAJORS:
            return
        # Not as a walsender: it might still be there when the next one connects, and they are limited.
        ordinary = self._connector.ordinary(connect_timeout=SHORT_TIMEOUT)
        with contextlib.suppress(ServerError), ordinary as connection, connection.transaction():
            started = moment(connection).started
            self._before_slot = started, self._versions(connection)

    def copied(self, point: int, tables: Container[int] | None = None) -> None:
        """The slot was created, and these tables, or all, are copied at its consistent point.

        Call it before begin().
        """
        self._copied_at = point - 1
        if self._before_slot is not None:
            started, found = self._before_slot
            for oid, version in found.items():
                if tables is None or oid in tables:
                    self._copies[oid] = started, _Known(version, self._copied_at)

    def restart(self) -> None:
        """The stream continues in another session."""
        self._in_session.clear()

    def forget(self) -> None:
        """Forget which descriptions came last."""
        self._seen_since = dict.fromkeys(self._seen_since, -1)

    def is_same(self, oid: int, commits_at: int | None, *, seen: bool, copied_at: int | None = None) -> bool:
        """Whether the seen rows of a table are still right when it is described; otherwise they must be forgotten.

        Call it for each description, in their order, with the commit LSN of its transaction, None if that is not known;
        with `seen` if anything was seen of this version of the table. `copied_at` is the commit LSN of its snapshot,
        which counts as seen if it was not described since then. The answer may take a moment.
        """
        if copied_at is not None and oid not in self._seen_since:
            self._seen_since[oid], seen = copied_at, True
        is_first = oid not in self._in_session
        if commits_at is None or commits_at != self._copied_at:
            self._in_session.add(oid)
        if seen and is_first and commits_at is not None and self._is_unchanged(oid, commits_at):
            return True
        self._seen_since[oid] = -1 if commits_at is None else commits_at
        return False

    def _is_unchanged(self, oid: int, commits_at: int) -> bool:
        """Whether no change was unseen since the last description, as above: 1 to 4."""
        known, answer = self._known.get(oid), self._begun
        if known is None or self._seen_since.get(oid, -1) < known.settled_at:
            return False
        if answer is None or answer.position <= commits_at:
            answer = self._ask(oid) if self._patience else None
        return answer is not None and answer.versions.get(oid) == known.version

    def _ask(self, oid: int) -> _Answer | None:
        """The current version of one table in the catalogs; None if that takes too long."""
        answers: list[_Answer] = []

        def ask() -> None:
            with contextlib.suppress(ServerError), self._connected() as connection:
                answers.append(self._answer(connection, self._identity, oid))

        begun = time.monotonic()
        thread = threading.Thread(target=ask, name="version", daemon=True)
        thread.start()
        thread.join(self._patience)
        self._patience = max(0.0, self._patience - (time.monotonic() - begun))
        return answers[0] if answers else None

    def _learn(self, identity: Identity) -> None:
        """Learn V1, and L1 once that is known; a table whose version is known keeps its earlier L1."""
        pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        with contextlib.suppress(ServerError):
            with self._connected() as connection:
                answer = self._answer(connection, identity)
                now = self._moment(connection, identity)
            following = now.next
            with self._lock:
                if identity is self._identity:
                    self._begun = answer
            while now.oldest < following:
                time.sleep(next(pauses))
                if identity is not self._identity:
                    return
                with self._connected() as connection:
                    now = self._moment(connection, identity)
            with self._lock:
                if identity is self._identity:
                    self._known = {
                        oid: known if known is not None and known.version == version else _Known(version, now.position)
                        for oid, version in answer.versions.items()
                        for known in (self._known.get(oid),)
                    }

    def _connected(self) -> contextlib.closing[Connection]:
        return contextlib.closing(self._connector.replication(connect_timeout=SHORT_TIMEOUT))

    def _answer(self, connection: Connection, identity: Identity, oid: int | None = None) -> _Answer:
        position = self._moment(connection, identity).position
        return _Answer(position, self._versions(connection, oid))

    def _versions(self, connection: Connection, oid: int | None = None) -> dict[int, str]:
        return versions(connection, self._plan.options.publications, self._plan.server.major, oid)

    def _moment(self, connection: Connection, identity: Identity) -> Moment:
        """Now. Raises ServerError if this is not the process that sends the stream."""
        now = moment(connection)
        if now.started != identity.started:
            raise ServerError("this is another server")
        return now
