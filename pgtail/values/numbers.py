"""Integers, object and transaction ids, and money.

Sources: src/backend/utils/adt/int.c, int8.c, oid.c, oid8.c, xid.c, xid8funcs.c, cash.c.
"""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import BinaryText, Loader, ValueKind, plain
from pgtail.values.render import large_numbers, numbers, strings


def _integer(layout: str) -> BinaryText:
    unpack = struct.Struct(layout).unpack
    return lambda cell: str(unpack(cell)[0])


_cents = struct.Struct(">q").unpack


def money_text(cell: bytes) -> str:
    """Cents, printed as with lc_monetary C, as the stream does not contain the server's locale (cash.c, cash_out)."""
    (value,) = _cents(cell)
    whole, cents = divmod(abs(value), 100)
    return f"{'-' if value < 0 else ''}${whole:,}.{cents:02d}"


TYPES: Final = {
    "int2": Loader(ValueKind.NUMBER, numbers, plain(_integer(">h"))),
    "int4": Loader(ValueKind.NUMBER, numbers, plain(_integer(">i"))),
    "int8": Loader(ValueKind.NUMBER, large_numbers, plain(_integer(">q"))),
    "oid": Loader(ValueKind.NUMBER, numbers, plain(_integer(">I"))),
    "xid": Loader(ValueKind.NUMBER, numbers, plain(_integer(">I"))),
    "cid": Loader(ValueKind.TEXT, strings, plain(_integer(">I"))),
    "xid8": Loader(ValueKind.TEXT, strings, plain(_integer(">Q"))),
    "oid8": Loader(ValueKind.TEXT, strings, plain(_integer(">Q"))),
    "money": Loader(ValueKind.TEXT, strings, plain(money_text)),
}
