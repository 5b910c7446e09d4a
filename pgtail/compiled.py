"""Whether the compiled part, pgtail._rows, is there and to be used; everything it does is also done without it."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType


@functools.cache
def compiled() -> ModuleType | None:
    """pgtail._rows, if it was built and PGTAIL_PURE is not set."""
    if os.environ.get("PGTAIL_PURE"):
        return None
    try:
        return importlib.import_module("pgtail._rows")
    except ImportError:
        return None


def how_rows_run() -> str:
    """A word on which of the two is used, for --version."""
    if compiled() is not None:
        return "compiled rows"
    why = "PGTAIL_PURE is set" if os.environ.get("PGTAIL_PURE") else "installed without a C compiler"
    return f"rows in plain Python ({why})"
