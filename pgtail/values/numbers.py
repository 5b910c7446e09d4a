"""Integers, object and transaction ids, and money.

Sources: src/backend/utils/adt/int.c, int8.c, oid.c, xid.c, xid8funcs.c, cash.c.
"""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import BinaryText, Kind, Loader, plain
from pgtail.values.render import large_numbers, numbers, strings


def _integer(layout: str) -> BinaryText:
    unpack = struct.Struct(layout).unpack

    def text(cell: bytes) -> str:
        (value,) = unpack(cell)
        return str(value)

    return text


_cents = struct.Struct(">q").unpack


def money_text(cell: bytes) -> str:
    """Cents, printed as with lc_monetary C, as the stream does not contain the server's locale (cash.c, cash_out)."""
    (value,) = _cents(cell)
    whole, cents = divmod(abs(value), 100)
    return f"{'-' if value < 0 else ''}${whole:,}.{cents:02d}"


INT2: Final = Loader(Kind.NUMBER, numbers, plain(_integer(">h")))
INT4: Final = Loader(Kind.NUMBER, numbers, plain(_integer(">i")))
INT8: Final = Loader(Kind.NUMBER, large_numbers, plain(_integer(">q")))
OID: Final = Loader(Kind.NUMBER, numbers, plain(_integer(">I")))
CID: Final = Loader(Kind.TEXT, strings, plain(_integer(">I")))
XID8: Final = Loader(Kind.TEXT, strings, plain(_integer(">Q")))
MONEY: Final = Loader(Kind.TEXT, strings, plain(money_text))
