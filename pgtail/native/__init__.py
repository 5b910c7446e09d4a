"""Loads the compiled code if it was built. Everything it does is also available in Python."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from types import ModuleType
from typing import Final

_SCANNER: Final = "pgtail.native._scanner"


@functools.cache
def compiled(name: str = _SCANNER) -> ModuleType | None:
    """The module `name`; None if it was not built or PGTAIL_PURE is set."""
    if os.environ.get("PGTAIL_PURE"):
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def keep_memory() -> None:
    """Make the allocator keep freed buffers, if the module was built: see its keep_memory()."""
    module = compiled()
    if module is not None:
        module.keep_memory()


def implementation_name() -> str:
    """Which implementation is used, for --version."""
    pure = os.environ.get("PGTAIL_PURE")
    if not pure and importlib.util.find_spec(_SCANNER) is not None:  # loading it takes long
        return "compiled scanner"
    why = "PGTAIL_PURE is set" if pure else "installed without a C compiler"
    return f"plain Python ({why})"
