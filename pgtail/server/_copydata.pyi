"""Floor 5, the types of the compiled way of reading frames (_copydata.pyx)."""

from collections.abc import Callable, Sequence

from psycopg.pq.abc import PGconn

SOURCE: str

class Reader:
    stopped: bool

    def __init__(self, library: bytes, most: int, few: int, soon: int, amid: bytes) -> None: ...
    def next(
        self,
        pgconn: PGconn,
        writing: bool,
        others: Sequence[tuple[int, int]],
        milliseconds: int,
        at_once: Callable[[bytes], None] | None = None,
    ) -> tuple[bytes, int, bool, list[int]]: ...
