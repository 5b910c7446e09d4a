"""libpq's functions that receive rows of COPY, for rows that a test has: as psycopg has them, and for compiled code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Final

import psycopg

_C: Final = ctypes.CDLL(None)
_C.malloc.restype, _C.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_GetCopyData: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)
_ConsumeInput: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class CopyOut:
    """A connection in COPY_OUT: these rows, then the length `then` for ever; `broken` says whether reading more fails.

    As from libpq, each row is in memory of its own that ends with it. Wait 0 milliseconds for its socket.
    """

    pgconn_ptr = socket = 0
    error_message = b"the connection broke"

    def __init__(self, rows: Iterable[bytes], then: int = -1, *, broken: bool = False) -> None:
        self._rows = iter(rows)
        self._then = then
        self._broken = broken
        self._callbacks = _GetCopyData(self._get), _ConsumeInput(lambda _: not broken)
        """Python frees them with this object."""
        self.functions = *[_address(one) for one in self._callbacks], _address(_C.free)

    def get_copy_data(self, asynchronous: int) -> tuple[int, memoryview]:
        assert asynchronous == 1
        row = next(self._rows, None)
        return (self._then, memoryview(b"")) if row is None else (len(row), memoryview(row))

    def consume_input(self) -> None:
        if self._broken:
            raise psycopg.OperationalError(self.error_message.decode())

    def _get(self, _: int, row: Any, asynchronous: int) -> int:
        size, data = self.get_copy_data(asynchronous)
        if size > 0:
            row[0] = _C.malloc(size)
            ctypes.memmove(row[0], bytes(data), size)
        return size


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
