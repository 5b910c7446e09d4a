"""Compiled plans: what the rows of a transaction share, and what each has of its own."""

from __future__ import annotations

import time
from typing import Any

from pgtail.changes.events import Transaction
from pgtail.native.plan import Field, Text, Value
from pgtail.outputs.executor import Program, joined_parts
from pgtail.outputs.fields import PlanRow


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
