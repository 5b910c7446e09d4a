"""The table of a transaction's rows in `-o table`, without its header and footer."""

from __future__ import annotations

from pgtail.outputs import OutputOptions
from pgtail.pgoutput.cells import Cell
from pgtail.pgoutput.rows import Insert
from tests.support.render_text import INT4, NUMERIC, TEXT, relation, table_of, transaction

ORDERS = relation(
    ("id", INT4, True), ("customer", TEXT, False), ("total", NUMERIC, False), ("note", TEXT, False), name="orders"
)
HEADER = "● xid 743  0/1949A30  2026-11-28 11:59:59.988000Z  12 ms ago\n"
FOOTER = "  1 change · end 0/1949A68\n"


def rows_of(text: str) -> str:
    """The lines between the header and the footer of the only transaction."""
    assert text.startswith(HEADER)
    assert text.endswith(FOOTER)
    return text.removeprefix(HEADER).removesuffix(FOOTER)


def one(*cells: Cell, options: OutputOptions | None = None) -> str:
    """The row of an insert into orders."""
    return rows_of(table_of(transaction(ORDERS, Insert(None, 1, cells)), options))
