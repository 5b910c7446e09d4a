"""The types of the compiled fast path (_rows.pyx)."""

from collections.abc import Callable
from typing import Any

from pgtail.native import Parts
from pgtail.pgoutput.cursor import Buffer

def keep_memory() -> None: ...

class Rows:
    inside: bool
    began: bool
    passed: bool
    seq: int
    rows: int
    messages: int
    shown: int
    end_lsn: int
    most: int | None
    until: int | None

    def __init__(
        self,
        find: Callable[[int], Any],
        shows: Callable[[Any, str], bool],
        write: Callable[[bytes], object],
        fill_unchanged: bool,
    ) -> None: ...
    @property
    def transaction(self) -> tuple[int, int, int]: ...
    def forget(self) -> None: ...
    def enter(self, parts: Parts, commit_lsn: int | None, commit_ts: int | None, seq: int, passed: bool) -> None: ...
    def leave(self) -> None: ...
    def take(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int: ...

class StatsRows(Rows):
    def __init__(
        self,
        find: Callable[[int], Any],
        shows: Callable[[Any, str], bool],
        stats: object,
        filtered: bool,
    ) -> None: ...

def rows_of_one(
    buf: Buffer, pos: int, end: int, framing: int, limit: int
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
