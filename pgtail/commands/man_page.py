"""`pgtail help PAGE`: a manual page, shown by the program man."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pgtail
from pgtail.errors import OptionError


def show(page: str) -> None:
    """Show a page such as pgtail-filter.7. Raises OptionError if it is not installed, or if man is not."""
    path = next((path for path in _places(page) if path.is_file()), None)
    if path is None:
        raise OptionError(f"the manual page {page} is not installed; it is in pgtail's sources, as man/{page}")
    try:
        subprocess.run(["man", path], check=False)
    except FileNotFoundError:
        cure = "on Debian and Ubuntu: apt install man-db"
        raise OptionError(f"the program man is not installed ({cure}); the page is {path}") from None


def _places(page: str) -> Iterator[Path]:
    """Where the page may be: in a checkout, and where pip installs it."""
    yield Path(pgtail.__file__).parents[1] / "man" / page
    section = page.rpartition(".")[2]
    yield Path(sys.prefix, "share", "man", f"man{section}", page)
