"""Conditions on changes: a tree of tests with SQL's three-valued logic, as where_parser.py reads it.

bound_condition.py binds it to a table and an operation and evaluates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from pgtail.native.plan import ROW_OPS


def like(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression for fullmatch(). Raises ValueError if its last backslash escapes nothing.

    Each part between two % takes the leftmost place that it fits, which no later part changes: the groups are atomic.
    """
    pieces = re.findall(r"\\?.", pattern, re.DOTALL)
    if pieces and pieces[-1] == "\\":
        raise ValueError("the pattern ends with a backslash that escapes nothing; double it")
    parts = [""]
    for piece in pieces:
        if piece == "%":
            parts.append("")
        else:
            parts[-1] += "." if piece == "_" else re.escape(piece[-1])
    first, *later = parts
    between = "".join([f"(?>.*?{part})" for part in later[:-1]])
    return re.compile(first + between + (f".*{later[-1]}" if later else ""), re.DOTALL)


Property: TypeAlias = Literal["op", "schema", "table", "xid", "commit_ts"]
PROPERTIES: Final[tuple[Property, ...]] = ("op", "schema", "table", "xid", "commit_ts")
"""What a condition can test besides columns."""
CONTEXT: Final = "context"
"""The property that stands for the context (--context), and the name of its table for --redact."""
CHANGE_OPS: Final = (*ROW_OPS, "truncate", "message", "ddl")
"""The values of the property op."""


class Operand(Struct, frozen=True):
    """A column, or, if `is_property`, one of PROPERTIES or the context (--context).

    `row` is the old or the new row; if empty, the new row, or the old row of a delete. `path` has the keys and indexes
    of `->` and `->>`.
    """

    name: str
    row: Literal["", "old", "new"] = ""
    is_property: bool = False
    path: tuple[str | int, ...] = ()


class Test(Struct, frozen=True, eq=False):
    """A test of one operand.

    `op` is a comparison, `in`, `like`, `ilike`, `~`, `~*` (regular expressions of Python's), `is null`, `distinct` or
    `changed`. It compares with `values`, or with `other`. `numeric`: all values are numbers without quotes. `shown` is
    the test as messages may quote it; if it is `secret`, they may not quote the values.
    """

    operand: Operand
    op: str
    values: tuple[str, ...] = ()
    other: Operand | None = None
    numeric: bool = False
    shown: str = ""
    secret: bool = False


class Not(Struct, frozen=True, eq=False):
    """True where `part` is false, and the other way round."""

    part: Condition


class And(Struct, frozen=True, eq=False):
    """True if all parts are, false if one is false. The parts are evaluated in order, up to the first false one."""

    parts: tuple[Condition, ...]


class Or(Struct, frozen=True, eq=False):
    """True if one part is, false if all are false. The parts are evaluated in order, up to the first true one."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Test | Not | And | Or


def tests_of(condition: Condition) -> Iterator[Test]:
    """The tests in a condition, in order."""
    if isinstance(condition, Test):
        yield condition
    else:
        for part in [condition.part] if isinstance(condition, Not) else condition.parts:
            yield from tests_of(part)
