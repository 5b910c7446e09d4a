"""The types pg_lsn, tid, pg_snapshot and txid_snapshot.

Sources: src/backend/utils/adt/pg_lsn.c, tid.c, xid8funcs.c.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from pgtail.pgoutput.scalars import lsn_text
from pgtail.values.codec import Loader, ValueKind, plain
from pgtail.values.nested import joined
from pgtail.values.render import strings

_lsn = struct.Struct(">Q").unpack
_tid = struct.Struct(">IH").unpack
_snapshot = struct.Struct(">iQQ")


def snapshot_text(cell: bytes) -> str:
    """The number of listed transactions, xmin, xmax, the listed transactions."""
    count, xmin, xmax = _snapshot.unpack_from(cell)
    if count < 0 or len(cell) != _snapshot.size + 8 * count:
        raise ValueError("snapshot of another length")
    if not 0 < xmin <= xmax:
        raise ValueError("xmin of a snapshot is beyond its xmax")
    return f"{xmin}:{xmax}:{joined(_xids(cell, xmin, xmax), ',', len(cell))}"


def _xids(cell: bytes, first: int, end: int) -> Iterator[str]:
    for (xid,) in struct.iter_unpack(">Q", memoryview(cell)[_snapshot.size :]):
        if not first <= xid < end:
            raise ValueError("transactions of a snapshot out of order")
        yield str(xid)
        first = xid


TYPES: Final = {
    "pg_lsn": Loader(ValueKind.TEXT, strings, plain(lambda cell: lsn_text(*_lsn(cell)))),
    # Block number and offset in the block.
    "tid": Loader(ValueKind.TEXT, strings, plain(lambda cell: "({},{})".format(*_tid(cell)))),
    "pg_snapshot": Loader(ValueKind.TEXT, strings, plain(snapshot_text)),
    "txid_snapshot": Loader(ValueKind.TEXT, strings, plain(snapshot_text)),
}
