"""Whether the compiled parts are there and to be used; everything they do is also done without them."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType


@functools.cache
def compiled(name: str = "pgtail._rows") -> ModuleType | None:
    """This module, if it was built and PGTAIL_PURE is not set."""
    if os.environ.get("PGTAIL_PURE"):
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def how_rows_run() -> str:
    """A word on which of the two is used, for --version."""
    if compiled() is not None:
        return "compiled rows"
    why = "PGTAIL_PURE is set" if os.environ.get("PGTAIL_PURE") else "installed without a C compiler"
    return f"rows in plain Python ({why})"
