"""Runs the Python examples of a page: blocks of a session of the interpreter, each after those before it."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def python_blocks(page: Path, beginning: str) -> list[str]:
    """The blocks of Python in a page that begin with these characters."""
    return [block for block in _BLOCK.findall(page.read_text(encoding="utf-8")) if block.startswith(beginning)]


def run_sessions(page: Path) -> int:
    """Compare what each session of a page prints with what it says; returns how many there are."""
    sessions, names, runner = python_blocks(page, ">>> "), dict[str, object](), doctest.DocTestRunner()
    for number, session in enumerate(sessions, 1):
        test = doctest.DocTestParser().get_doctest(session, names, f"example {number}", str(page), None)
        test.globs = names  # those of the examples before it
        failures: list[str] = []
        runner.run(test, out=failures.append, clear_globs=False)
        assert failures == []
    return len(sessions)
