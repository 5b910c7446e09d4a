"""The functions of the libpq that psycopg uses, for compiled code: a call of psycopg costs more than a row of COPY."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Final, cast

from psycopg import pq
from psycopg.pq.abc import PGconn

_NAMES: Final = "PQgetCopyData", "PQconsumeInput", "PQfreemem"


@functools.cache
def copy_functions() -> tuple[int, ...] | None:
    """The addresses of PQgetCopyData, PQconsumeInput and PQfreemem.

    None if psycopg's own module is not compiled, or has no shared libpq. The lookup goes through that module, so it
    finds what the module calls, unless the process has a libpq for all.
    """
    module = sys.modules[pq.PGconn.__module__].__file__
    if pq.__impl__ == "python" or module is None or hasattr(ctypes.CDLL(None), _NAMES[0]):
        return None
    try:
        library = ctypes.CDLL(module)
        return tuple([ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _NAMES])
    except (AttributeError, OSError):
        return None


def address_of(pgconn: PGconn) -> int:
    """The connection's address in libpq, while it is open."""
    return cast(int, cast(Any, pgconn).pgconn_ptr)
