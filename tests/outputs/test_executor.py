"""Compiled plans: what the rows of a transaction share, and what each has of its own; and the example of plan.py."""

from __future__ import annotations

import sys
import textwrap
import time
from types import ModuleType
from typing import Any

import pytest

from pgtail.changes.events import Transaction
from pgtail.native import plan
from pgtail.native.plan import Field, Text, Value
from pgtail.outputs import FORMATS, Format
from pgtail.outputs.executor import Program, joined_parts
from pgtail.outputs.fields import PlanRow
from tests.support.encode import UNCHANGED, begin, commit, delete, insert, relation, update
from tests.support.render import WAYS, Way, render

_IMPORTS = """\
from pgtail.native.plan import Cell, Cells, Field, Form, Value
from pgtail.outputs.ndjson import dumps
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import encoding_of_text
"""


def rows(transaction: Transaction, *lsns: int) -> list[PlanRow]:
    known: dict[object, Any] = {}
    return [PlanRow(transaction, time.time_ns, None, lsn, known=known) for lsn in lsns]


def test_a_field_of_the_row_in_place_of_one_of_the_transaction_is_not_shared() -> None:
    program = Program((Value(Field.TIME, missing=Field.LSN), b" ", Value(Field.XID, missing=b"-"), b";"))
    texts = [joined_parts(program.parts(row)) for row in rows(Transaction(None), 1, 2)]
    assert texts == [b"0/1 -;", b"0/2 -;"]


def test_what_depends_on_the_transaction_is_made_once_for_its_rows() -> None:
    rendered: list[Transaction] = []

    def render(transaction: Transaction) -> bytes:
        rendered.append(transaction)
        return b"text"

    text = Text(render)
    plans = (b"a ", Value(Field.XID), text, Value(Field.LSN, b" ")), (text,)
    for xid in (5, 6):
        shared = rows(Transaction(xid), 1, 2)
        texts = [joined_parts(Program(plan).parts(row)) for row in shared for plan in plans]
        assert texts == [b"a %dtext 0/1" % xid, b"text", b"a %dtext 0/2" % xid, b"text"]
    assert [transaction.xid for transaction in rendered] == [5, 6]


@pytest.mark.parametrize("way", WAYS)
def test_the_example_of_a_format(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    documentation = plan.__doc__ or ""
    code = "\n".join([line for line in documentation.splitlines() if line.startswith("    ") or not line])
    module = ModuleType("example")
    exec("from __future__ import annotations\n" + _IMPORTS + textwrap.dedent(code), module.__dict__)
    monkeypatch.setitem(sys.modules, "example", module)
    monkeypatch.setitem(FORMATS, "example", Format("example", "Example"))
    messages = [insert("1", "x"), insert("2", None), update(("1", UNCHANGED)), delete("1", None)]
    assert render(relation(), begin(xid=7), *messages, commit(), output="example", way=way).lines == [
        '7 insert public.t id="1" v="x"',
        '7 insert public.t id="2" v=NULL',
        '7 update public.t id="1" v=?',
        '7 delete public.t id="1" v=NULL',
    ]
