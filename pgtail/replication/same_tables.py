"""Whether a table, and what publishes it, is as it was when the server described it in an earlier session."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from pgtail.errors import ServerError
from pgtail.postgres import rows
from pgtail.postgres.connection import Connector
from pgtail.postgres.table_versions import Moment, Query, Versions, moment, settle, versions
from pgtail.records import NamedTuple

_PATIENCE: Final = 0.5
"""Seconds for an answer; without one nothing is asked until the next session."""
_SETTLING: Final = 0.4
_CONNECT_TIMEOUT: Final = 5


class _Answer(NamedTuple):
    moment: Moment
    versions: Versions


class SameTables:
    """Compares versions of tables from before a description, which have nothing that was committed after it, with
    those from after a later one, which have everything that was committed before it.

    `begin` is for the thread that runs the sessions, `is_same` for the one that processes the stream.
    """

    def __init__(self, connector: Connector, publications: Sequence[str], major: int) -> None:
        self._connector = connector.without_asking()
        self._publications, self._major = publications, major
        self._before: _Answer | None = None
        """From before this session, with a position after its snapshot."""
        self._after: _Answer | None = None
        """The last one of this session, with a position before its snapshot."""
        self._described: dict[int, str | None] = {}
        """The versions of the tables when they were described, unless they are not known."""
        self._silent = False
        """Whether an answer did not come in this session."""

    def begin(self, query: Query) -> None:
        """The stream starts next, on the session of this query; what it sent before was processed."""
        self._before = self._after = None
        self._silent = False
        with contextlib.suppress(ServerError):
            found = versions(query, self._publications, self._major)
            self._before = _Answer(moment(query), found)

    def is_same(self, oid: int, commits_at: int | None, *, asked: bool) -> bool:
        """A table was described in a transaction with this commit LSN, if it is known. Whether it is sure that it had
        no change since it was described before; False if that is not `asked`.
        """
        known, before = self._described.get(oid), self._before
        if asked and commits_at is not None and known is not None and self._now(commits_at).get(oid) == known:
            return True
        usable = before is not None and commits_at is not None and commits_at > before.moment.position
        self._described[oid] = before.versions.get(oid) if before is not None and usable else None
        return False

    def _now(self, position: int) -> Versions:
        """The versions after everything that was committed up to this position; none if they are not known."""
        found = self._known(position)
        if found is None and self._before is not None and not self._silent:
            asking = threading.Thread(target=self._ask, name="versions", daemon=True)
            asking.start()
            asking.join(_PATIENCE)
            found = self._known(position)
            self._silent = found is None
        return found or {}

    def _known(self, position: int) -> Versions | None:
        """They, if an answer has come already."""
        after, before = self._after, self._before
        if after is None or before is None or after.moment.started != before.moment.started:
            return None
        return after.versions if after.moment.position >= position else None

    def _ask(self) -> None:
        with contextlib.suppress(ServerError), self._connector.ordinary(connect_timeout=_CONNECT_TIMEOUT) as connection:
            query = partial(rows.rows, connection)
            query("its versions", "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")  # a pooler keeps to one server
            now = moment(query)
            if settle(query, _SETTLING):
                self._after = _Answer(now, versions(query, self._publications, self._major))
