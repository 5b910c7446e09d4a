"""The `capture.json` of a capture in an object store: what counts there, and which recorder writes.

It names the last segment that counts (`uploaded`) and the recorder (`writer`). A recorder replaces it only if no other
recorder has: so the segments of one transaction count all at once, and only one of two recorders continues.

A recorder may be suspended between any two requests, and continue after another has taken over. So it announces the
segments there (`announced`) before it uploads them. The new recorder keeps the announced names in `discarded`: a
segment with such a name never counts, and no recorder uses the name again, whenever the first recorder's request to
create or to delete it arrives.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from pgtail.capture.format import CLOSED, SegmentName
from pgtail.capture.segment import position_of
from pgtail.capture.state import FILE, NO_STATE, CaptureState, parse_state, read_state, state_json
from pgtail.errors import OutputError
from pgtail.storage import Conflict, Location
from pgtail.storage.local import LocalLocation


class TakenOver(OutputError):
    """Another recorder writes to the capture."""


class StoreState:
    """The state of the capture at `target`; `stored` is the one that this recorder has read or written last.

    `uploaded`, `position`, `announced` and `discarded` are those of CaptureState. The other fields are written from the
    state of `spool`.
    """

    def __init__(self, target: Location, spool: Path) -> None:
        self.target = target
        self.stored = NO_STATE
        self.uploaded = ""
        self.position = 0
        self.announced: Mapping[str, str] = {}
        self.discarded: frozenset[str] = frozenset()
        self._spool = spool
        self._writer = secrets.token_hex(8)
        self._version: str | None = None
        self._written = False

    def read(self) -> None:
        """Read the state, before anything is written. Raises InputError."""
        content = (self.target / FILE).read()
        if content is not None:
            self.stored, self._version = parse_state(content[0], str(self.target / FILE)), content[1]
        state = self.stored
        if state.uploaded is not None:
            self.uploaded, self.position = state.uploaded, state.position
            return
        names = [name for entry in self.target.list() if (name := SegmentName.of_file(entry.name)) is not None]
        self.uploaded = str(max(names, default=""))
        self.position = state.position
        if self.uploaded:  # a copy of a local capture
            self.position = max(self.position, position_of(self.target / f"{self.uploaded}{CLOSED}"))

    def check_owner(self) -> None:
        """Check that this recorder wrote the state: perhaps in an attempt whose answer was lost.

        Before it writes one, the state may be that read at the start. `pgtail capture prune` may have changed it.
        Raises TakenOver, InputError.
        """
        content = (self.target / FILE).read()
        state = None if content is None else parse_state(content[0], str(self.target / FILE))
        if content is None or state is None or not (state.writer == self._writer or self._is_unchanged(state)):
            raise TakenOver(
                f"another process records into {self.target}: this one stops. What it has not uploaded was not"
                " acknowledged"
            )
        self.stored, self._version = state, content[1]
        if state.writer == self._writer:
            self._keep(state)

    def write(
        self, *, position: int | None = None, uploaded: str | None = None, announced: Mapping[str, str] | None = None
    ) -> None:
        """Change these fields of the state, unless another recorder has replaced it. Raises OutputError, InputError."""
        while True:
            state = self._next(
                self.position if position is None else position,
                self.uploaded if uploaded is None else uploaded,
                self.announced if announced is None else announced,
            )
            data, place = state_json(state), self.target / FILE
            try:
                version = place.create(data) if self._version is None else place.replace(data, self._version)
                break
            except Conflict:
                before = self._version
                self.check_owner()
                if self._version == before:
                    raise
        self.stored, self._version, self._written = state, version, True
        self._keep(state)

    def _keep(self, state: CaptureState) -> None:
        """Note the state that this recorder has written."""
        self.uploaded, self.position, self.announced = state.uploaded or "", state.position, state.announced

    def _is_unchanged(self, state: CaptureState) -> bool:
        """Whether nothing was recorded since the state was read at the start."""
        return not self._written and self.stored.with_pruned(state.pruned) == state

    def _next(self, position: int, uploaded: str, announced: Mapping[str, str]) -> CaptureState:
        known = read_state(LocalLocation(self._spool))
        if known is NO_STATE:
            raise OutputError(
                f"{self._spool / FILE} is gone: without it the recorder does not know what it has recorded"
            )
        gap = known.gap if known.gap is not None and known.gap.after == uploaded else None
        state = known._replace(position=position, last=uploaded, messages=0, gap=gap, target=None)
        state = state._replace(uploaded=uploaded, writer=self._writer, announced=announced, discarded=self.discarded)
        return state.with_pruned(self.stored.pruned)
