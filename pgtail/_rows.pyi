"""Floor 4, the types of the compiled rows (_rows.pyx)."""

from collections.abc import Callable

from pgtail.outputs.base import Parts
from pgtail.outputs.ndjson import RelationJson
from pgtail.relations import Relation
from pgtail.stats.gather import Statistics
from pgtail.wire.cursor import Buffer

SOURCE: str

def keep_memory() -> None: ...

class Rows:
    inside: bool
    began: bool
    passed: bool
    seq: int
    rows: int
    shown: int
    end_lsn: int
    most: int | None
    until: int | None

    def __init__(
        self,
        find: Callable[[int], RelationJson | None],
        shows: Callable[[Relation, str], bool],
        write: Callable[[bytes], object],
        fill_unchanged: bool,
    ) -> None: ...
    @property
    def transaction(self) -> tuple[int, int, int]: ...
    def forget(self) -> None: ...
    def enter(self, parts: Parts, commit_lsn: int | None, commit_ts: int | None, seq: int, passed: bool) -> None: ...
    def leave(self) -> None: ...
    def take(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int: ...
    def ahead(self, pipe: int, most: int, frames: bytes) -> None: ...

class Tally(Rows):
    def __init__(
        self,
        find: Callable[[int], Relation | None],
        shows: Callable[[Relation, str], bool],
        stats: Statistics,
        filtered: bool,
    ) -> None: ...

def rows_of_one(
    buf: Buffer, pos: int, end: int, framing: int, most: int
) -> tuple[int, bytes, int, tuple[int, ...]]: ...

class Columns:
    inside: bool
    began: bool
    seq: int
    ordinal: int
    rows: int
    full: bool

    def __init__(self, find: Callable[[int], tuple[int, list[str], list[bool], bool] | None]) -> None: ...
    @property
    def transaction(self) -> tuple[int, int, int]: ...
    def forget(self) -> None: ...
    def enter(self, xid: int, commit_lsn: int, commit_ts: int, seq: int, ordinal: int, alone: bool) -> None: ...
    def leave(self) -> None: ...
    def run(self, buf: Buffer, pos: int, end: int, framing: int) -> int: ...
    def take(self) -> dict[str, bytes]: ...
