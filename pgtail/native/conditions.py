"""How the scanner sees the tests of a condition (changes/bound_condition.py)."""

from __future__ import annotations

from typing import NamedTuple


class NotTested(Exception):
    """A value was not sent, or cannot be compared."""


class NativeTest(NamedTuple):
    """A test in the scanner: its operator, how texts compare (HOWS in _condition.pxi), the values to compare with."""

    op: str
    how: str
    values: tuple[bytes, ...] = ()
