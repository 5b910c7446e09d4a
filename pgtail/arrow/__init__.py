"""Changes as Arrow columns, with PostgreSQL's text or typed, and the fold of changes to the rows of a table."""

from __future__ import annotations

import importlib.util

from pgtail.errors import COMMAND, OptionError


def check_installed(what: str) -> None:
    """Raise OptionError if the extra `arrow` is not installed, which `what` needs."""
    missing = [name for name in ("pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        raise OptionError(
            f"{what} needs {' and '.join(missing)}, of pgtail's extra `arrow`. From pgtail's checkout:"
            f"{COMMAND}pip install '.[arrow]'"
        )
