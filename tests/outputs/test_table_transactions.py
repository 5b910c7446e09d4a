"""`-o table`: transactions, messages and schema changes, and that text from a server cannot break them."""

from __future__ import annotations

import re
import tracemalloc
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtail.changes.filters import Filter
from pgtail.humanize import counted
from pgtail.outputs import OutputOptions
from pgtail.outputs.table.table import age
from pgtail.pgoutput.cells import UNCHANGED, Binary, Cell
from pgtail.pgoutput.rows import Delete, Insert, Update
from pgtail.pgoutput.transaction import Commit, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared
from tests.support.render_text import INT4, JSONB, NOON, NUMERIC, TEXT, relation, table, table_of, transaction
from tests.support.tables import FOOTER, HEADER, ORDERS

# -- transactions --------------------------------------------------------------------------------------------------


def test_origin_and_counts() -> None:
    begin, *rest = transaction(
        Origin(5, "node_b"),
        ORDERS,
        Insert(None, 1, (b"1", b"", b"0", None)),
        Message(None, 1, 9, "audit", b"moved by teller 4\x1b[31m"),
        Message(None, 1, 9, "raw", b"\xff\x00"),
    )
    text = table_of([begin, *rest])
    assert text.startswith(HEADER.rstrip("\n") + "  from node_b\n")
    assert r"  MESSAGE  audit                E'moved by teller 4\x1b[31m'" in text
    assert r"  MESSAGE  raw                  \xff00 (2 bytes)" in text
    assert text.endswith("  1 change, 2 messages · end 0/1949A68\n")


@pytest.mark.parametrize(
    ("rows", "filter_", "shown", "footer"),
    [
        (50_002, None, 20, "50 002 changes, 49 982 not shown (--max-rows 20)"),
        (20, None, 20, "20 changes"),
        (5, Filter(where=["id > 2"]), 2, "2 of 5 changes"),
        (0, None, 0, ""),
    ],
)
def test_rows_that_are_not_shown_are_counted(rows: int, filter_: Filter | None, shown: int, footer: str) -> None:
    inserts = [Insert(None, 1, (b"%d" % n, b"", b"0", None)) for n in range(rows)]
    text = table_of(transaction(ORDERS, *inserts), filter_=filter_)
    assert text.count("INSERT") == shown
    assert text.endswith(f"  {footer} · end 0/1949A68\n") if rows else text == ""


def test_without_a_limit_rows_come_in_pages_of_the_same_widths() -> None:
    inserts = [Insert(None, 1, (b"%d" % n, b"x", b"0", None)) for n in range(10, 1010)]
    text = table_of(transaction(ORDERS, *inserts), OutputOptions(max_rows=0))
    places = [line.index("customer") for line in text.split("\n") if "INSERT" in line and "id=1" not in line]
    assert text.count("INSERT") == 1000
    assert len(set(places)) == 1


def test_blocks_are_separated_by_an_empty_line() -> None:
    messages = transaction(ORDERS, Delete(None, 1, "K", (b"7", None, None, None)))
    text = table_of([*messages, *transaction(), *messages])
    assert text.count("\n\n") == 1
    assert not text.startswith("\n")
    assert text.endswith(FOOTER)


def test_incomplete_transaction_is_marked() -> None:
    text = table_of(transaction(ORDERS, Insert(None, 1, (b"1", b"", b"0", None)))[:-1])
    assert text.endswith("  1 change  broken off here: its end was not seen\n")
    assert table_of(transaction()[:-1]) == HEADER + "  0 changes  broken off here: its end was not seen\n"


def test_changes_without_a_begin_still_have_a_header() -> None:
    text = table_of([ORDERS, Delete(None, 1, "K", (b"7", None, None, None)), Commit(0, 0x10, 0x20, NOON)])
    assert text.startswith("● xid unknown  its beginning was not seen\n")
    assert text.endswith("  1 change · commit 0/10 · end 0/20\n")


def test_a_prepared_transaction_and_its_outcomes() -> None:
    when = NOON - 3_000
    text = table_of(
        [
            BeginPrepare(0x194B120, 0x194B1F0, when, 751, "transfer-91"),
            ORDERS,
            Delete(None, 1, "K", (b"7", None, None, None)),
            Prepare(0, 0x194B120, 0x194B1F0, when, 751, "transfer-91"),
            CommitPrepared(0, 0x194B200, 0x194B230, NOON, 751, "transfer-91"),
            RollbackPrepared(0, 0x194B120, 0x194B300, when, NOON, 752, "x\x1b"),
        ]
    )
    prepared, committed, rolled_back = text.split("\n\n")
    assert prepared.split("\n") == [
        "● xid 751  0/194B120  2026-11-28 11:59:59.997000Z  3 ms ago",
        "  prepared 'transfer-91'",
        "  DELETE   public.orders  id=7  only the key was sent",
        "  1 change · end 0/194B1F0",
    ]
    assert committed.split("\n") == [
        "● xid 751  0/194B200  2026-11-28 12:00:00.000000Z  0 ms ago",
        "  prepared 'transfer-91' committed  end 0/194B230",
    ]
    assert rolled_back.split("\n") == [
        "● xid 752  0/194B300  2026-11-28 12:00:00.000000Z  0 ms ago",
        r"  prepared E'x\x1b' rolled back",
        "",
    ]


def test_message_outside_of_transactions_is_a_separate_block() -> None:
    lone = Message(None, 0, 9, "nontx", b"hello")
    sink, pipeline = table()
    pipeline.feed(lone, 0x34ECA10)
    assert sink.text == "  MESSAGE  nontx  'hello'  not transactional  0/34ECA10\n"


def test_nontransactional_message_may_appear_inside_a_transaction() -> None:
    lone = Message(None, 0, 9, "nontx", b"hello")
    text = table_of(transaction(ORDERS, Delete(None, 1, "K", (b"7", None, None, None)), lone))
    assert "  MESSAGE  nontx                'hello'  not transactional\n" in text
    assert text.endswith(FOOTER)


def test_nontransactional_message_before_the_first_row_does_not_move_columns() -> None:
    row = Delete(None, 1, "K", (b"7", None, None, None))
    text = table_of(transaction(ORDERS, Message(None, 0, 9, "a_very_long_prefix", b"hello"), row))
    assert text.startswith("  MESSAGE  a_very_long_prefix  'hello'  not transactional\n")
    assert "  DELETE   public.orders  id=7  only the key was sent\n" in text


def test_schema_changes_are_shown_when_asked_for() -> None:
    wider = relation(("id", INT4, True), ("customer", TEXT, False), ("total", NUMERIC, False), name="orders")
    messages = [ORDERS, *transaction(wider, Insert(None, 1, (b"1", b"", b"0")))]
    text = table_of(messages, OutputOptions(schema_changes=True, width=120))
    assert "SCHEMA   public.orders  id integer key  customer text  total numeric  note text  identity default\n" in text
    assert "SCHEMA   public.orders  column note dropped\n" in text
    assert "SCHEMA" not in table_of(messages)


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "0 ms ago"),
        (12_345, "12 ms ago"),
        (1_249_000, "1.2 s ago"),
        (42_000_000, "42 s ago"),
        (3_599_000_000, "59 min ago"),
        (7_200_000_000, "2 h ago"),
        (86_400_000_000 * 3, "3 d ago"),
        (86_400_000_000 * 800, "2 y ago"),
        (-3_000_000, "3.0 s ahead of this clock"),
    ],
)
def test_ages(micros: int, shown: str) -> None:
    assert age(micros) == shown


def test_counts() -> None:
    assert [counted(n, "change") for n in (0, 1, 2, 500_002)] == [
        "0 changes",
        "1 change",
        "2 changes",
        "500 002 changes",
    ]


# -- what a peer may send ------------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=90)
ANY_CELL: st.SearchStrategy[Cell] = st.one_of(
    st.none(),
    st.just(UNCHANGED),
    ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=20).map(Binary),
)
SGR = re.compile(r"\x1b\[[0-9;]+m")
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(
    names=st.lists(ANY_TEXT, min_size=5, max_size=5),
    cells=st.lists(st.tuples(ANY_CELL, ANY_CELL, ANY_CELL), min_size=1, max_size=4),
    content=st.binary(max_size=50) | ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")),
    width=st.integers(1, 200),
    most=st.none() | st.integers(1, 70),
)
def test_nothing_from_a_peer_drives_the_terminal_or_breaks_the_layout(
    names: list[str], cells: list[tuple[Cell, Cell, Cell]], content: bytes, width: int, most: int | None
) -> None:
    described = relation((names[0], INT4, True), (names[1], TEXT, False), (names[1], JSONB, False), name=names[2])
    messages = transaction(
        Origin(1, names[3]),
        described,
        *[Insert(None, 1, row) for row in cells],
        *[Update(None, 1, "O", row, cells[0]) for row in cells],
        *[Update(None, 1, "K", row, cells[0]) for row in cells],
        *[Delete(None, 1, "K", row) for row in cells],
        Message(None, 1, 1, names[4], content),
        Message(None, 0, 1, names[4], content),
    )
    messages.append(CommitPrepared(0, 1, 2, NOON, 3, names[4]))
    text = table_of(messages, OutputOptions(width=width, max_width=most, schema_changes=True))
    lines = text.split("\n")
    assert not {unicodedata.category(char) for line in lines for char in line} & HIDDEN
    assert max(map(cell_len, lines)) <= max(width, 40)
    colored = table_of(messages, OutputOptions(width=width, max_width=most, schema_changes=True, colored=True))
    assert SGR.sub("", colored) == text


def test_memory_stays_bounded_whatever_the_limits() -> None:
    for options in (OutputOptions(max_rows=0, max_width=None), OutputOptions(max_rows=20)):
        sink, pipeline = table(options)
        begin, *_ = transaction()
        pipeline.feed(ORDERS, None)
        pipeline.feed(begin, None)
        insert = Insert(None, 1, (b"1", b"x" * 1000, b"0", None))
        tracemalloc.start()
        for _ in range(3_000):
            pipeline.feed(insert, None)
            sink.parts.clear()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2_000_000
