"""A question before something is changed, asked on the terminal."""

from __future__ import annotations

import sys

from pgtail.errors import OptionError
from pgtail.log import log_outcome


def check_terminal(refusal: str) -> None:
    """Check that there is a terminal to ask on. Raises OptionError with `refusal`."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise OptionError(refusal)


def confirm(question: str) -> None:
    """Ask a question; returns after a yes, else exits with 1."""
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = "no"
    if not answer:
        sys.stderr.write("\n")
    if answer.strip().lower() not in ("y", "yes"):
        log_outcome("nothing was done")
        raise SystemExit(1)
