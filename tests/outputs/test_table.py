"""`-o table`: rows, strings and layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from pgtail.outputs import OutputOptions
from pgtail.pgoutput.cells import UNCHANGED, Binary
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation
from pgtail.terminal.values import ValueStyle
from pgtail.values import UNKNOWN, Types
from tests.support import encode
from tests.support.corpus import Capture, captures
from tests.support.golden_outputs import FOLDER, GOLDEN, render
from tests.support.render import WAYS, Way
from tests.support.render import render as rendered
from tests.support.render_text import (
    BOOL,
    BYTEA,
    INT4,
    JSONB,
    TEXT,
    TIMESTAMPTZ,
    capture_table,
    relation,
    table_of,
    transaction,
)
from tests.support.tables import ORDERS, one

# -- captures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GOLDEN)
def test_capture_matches_its_golden_file(golden: str) -> None:
    assert render(golden) == (FOLDER / f"{golden}.txt").read_text(encoding="utf-8")


def test_every_golden_file_is_tested() -> None:
    assert {file.stem for file in Path(FOLDER).iterdir()} == set(GOLDEN)


@pytest.mark.parametrize("capture", captures()[::2], ids=str)
def test_no_line_is_wider_than_the_terminal(capture: Capture) -> None:
    for width, most in ((40, 20), (80, 20), (97, 0)):
        text = capture_table(capture, OutputOptions(width=width, max_rows=most, max_width=most or None))
        assert max(map(cell_len, text.split("\n"))) <= width


BINARY_CAPTURES = [c for c in captures() if c.binary and c.scenario.has(f"{c.name.removesuffix('_bin')}.walsender.bin")]


@pytest.mark.parametrize("capture", [c for c in BINARY_CAPTURES if c.scenario.name in ("A_dml", "A_part")], ids=str)
def test_text_and_binary_captures_look_the_same(capture: Capture) -> None:
    text_capture = Capture(capture.scenario, capture.name.removesuffix("_bin"))
    assert capture_table(capture) == capture_table(text_capture)


# -- rows ----------------------------------------------------------------------------------------------------------


def test_key_comes_first_and_values_differ_from_null() -> None:
    row = one(b"1042", b"Ada Lovelace", b"129.50", None)
    assert (
        row == "  INSERT   public.orders  id=1042  customer 'Ada Lovelace'  total 129.50\n" + " " * 35 + "note NULL\n"
    )
    assert "note ''" in one(b"1", b"", b"0", b"")


TWO = (("a", TEXT, True), ("b", TEXT, True))
FULL = relation(*TWO, identity="f")


@pytest.mark.parametrize(
    ("table", "change", "shown"),
    [
        (FULL, Update(None, 1, "O", (b"x", b"y"), (b"", UNCHANGED)), "a 'x' → ''  b (unchanged)"),
        (ORDERS, Insert(None, 1, (b"1", b"", b"0", None)), "note NULL"),
        (ORDERS, Delete(None, 1, "K", (b"7", None, None, None)), "id=7  only the key was sent"),
        # A key that changed, and a part of one that was not sent again.
        (ORDERS, Update(None, 1, "K", (b"7", *[None] * 3), (b"8", b"Ada", b"1", None)), "id=7 → 8  customer 'Ada'"),
        (relation(*TWO), Update(None, 1, "K", (b"x", b"y"), (b"z", UNCHANGED)), "a='x' → 'z', b='y'\n"),
        (
            relation(("id", INT4, True), ("v", TEXT, False), ("d", TIMESTAMPTZ, False)),
            Insert(None, 1, (b"1", b"caf\xe9", Binary(b"\x00"))),
            r"v \x636166e9 (undecoded)  d \x00 (undecoded)",
        ),
        # Values of these types need no quotes.
        (
            relation(("at", TIMESTAMPTZ, False), ("doc", JSONB, False), ("ok", BOOL, False), ("raw", BYTEA, False)),
            Insert(None, 1, (b"infinity", b'{"k": 1}', b"t", b"\\x00ff")),
            'at infinity  doc {"k": 1}  ok true  raw \\x00ff\n',
        ),
        (relation(), Insert(None, 1, ()), "INSERT   public.t  no columns\n"),
    ],
)
def test_cells_in_a_row(table: Relation, change: AnyFrame, shown: str) -> None:
    assert shown in table_of(transaction(table, change), OutputOptions(all_columns=True))


def test_an_unchanged_value_is_filled_in_on_request_and_still_marked() -> None:
    messages = transaction(FULL, Update(None, 1, "O", (b"x", b"y"), (b"z", UNCHANGED)))
    assert "b 'y' (unchanged)" in table_of(messages, OutputOptions(fill_unchanged=True, all_columns=True))


def test_a_table_that_was_never_described_has_numbered_columns() -> None:
    text = table_of(transaction(Insert(None, 16385, (b"1", None)), Delete(None, 16385, "K", (b"1", None))))
    assert "INSERT   relation 16385  ?1 '1'  ?2 NULL\n" in text
    assert "DELETE   relation 16385  ?1 '1'  only the key was sent\n" in text


def test_cells_beyond_the_relation_are_shown() -> None:
    assert "note NULL  ?5 'more'" in one(b"1", b"", b"0", None, b"more", options=OutputOptions(width=120))


WIDE = encode.relation(columns=[("id", 23), *[(f"c{number}", 25) for number in range(1, 15)]])
WHOLE = encode.relation(oid=101, name="whole", columns=[("id", 23), ("a", 25), ("b", 25)], identity="f", key=(0, 1, 2))


@pytest.mark.parametrize("way", WAYS)
def test_an_update_shows_the_key_and_what_changed_or_may_have(way: Way) -> None:
    wide = encode.update(("7", "x", encode.UNCHANGED, *[None] * 11, "y"))
    whole = encode.update(("7", "new", "x"), ("7", "old", "x"), "O", oid=101)
    stream = [WIDE, WHOLE, encode.begin(), wide, whole, encode.commit()]
    few, everything = [
        rendered(*stream, output="table", way=way, width=150, all_columns=all_columns).lines[1:-1]
        for all_columns in (False, True)
    ]
    assert few == [
        "  UPDATE   public.t      id=7  ?c1 'x'  ?c14 'y'  c2 (unchanged)",
        "  UPDATE   public.whole        id 7  a 'old' → 'new'",
        "           +11 NULL in public.t: c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13",
    ]
    assert everything[0] == "  UPDATE   public.t      id=7  c1 'x'  c2 (unchanged)  c14 'y'"
    assert everything[1] == "  UPDATE   public.whole        id 7  a 'old' → 'new'  b 'x'"


@pytest.mark.parametrize("way", WAYS)
def test_columns_that_are_null_in_every_row_are_one_line(way: Way) -> None:
    """A value that an update did not change, and so does not show, is one too."""
    identity = encode.relation(
        columns=[("id", 23), *[(f"c{number}", 25) for number in range(1, 15)]], identity="f", key=range(15)
    )
    kept = ("2", *["v"] * 2, *[None] * 12)
    rows = [encode.insert("1", "v", *[None] * 13), encode.update(("2", "w", *kept[2:]), kept, "O")]
    lines = rendered(identity, encode.begin(), *rows, encode.commit(), output="table", way=way).lines[1:-1]
    assert lines == [
        "  INSERT   public.t  id 1  c1 'v'  c2 NULL",
        "  UPDATE   public.t  id 2  c1 'v' → 'w'",
        "           +12 NULL: c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14",
    ]
    narrow = rendered(identity, encode.begin(), *rows, encode.commit(), output="table", way=way, width=40).lines[1:-1]
    assert narrow[-2:] == ["    +12 NULL: c3, c4, c5, c6, c7, c8,", "    c9, c10, c11, c12, c13, c14"]


def test_truncate_shows_its_options() -> None:
    orders, lines = ORDERS, relation(("id", INT4, True), oid=2, name="order_lines")
    text = table_of(transaction(orders, lines, Truncate(None, 3, (1, 2)), Truncate(None, 0, (1,))))
    assert "  TRUNC    public.orders       cascade, restart identity\n" in text
    assert "  TRUNC    public.order_lines  cascade, restart identity\n" in text
    assert "  TRUNC    public.orders\n  3 changes" in text


# -- strings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("O'Brien", "'O''Brien'"),
        (r"C:\new", r"'C:\new'"),
        ("moved\x1b[31m", r"E'moved\x1b[31m'"),
        ("line\nC:\\new", r"E'line\nC:\\new'"),
        ("it's\t", r"E'it''s\t'"),
        ("[bold red]x[/]", "'[bold red]x[/]'"),
        ("abc\u202etxt", r"E'abc\u202etxt'"),
        ("日本語", "'日本語'"),
    ],
)
def test_a_string_is_a_literal_that_postgresql_reads_back(sent: str, shown: str) -> None:
    assert f"customer {shown}" in one(b"1", sent.encode(), b"0", None, options=OutputOptions(width=120))


@pytest.mark.parametrize(
    ("sent", "limit", "shown"),
    [
        ("a" * 20, 22, "'" + "a" * 20 + "'"),
        ("a" * 21, 22, "'" + "a" * 19 + "'…"),
        ("日本語日本語", 10, "'日本語'…"),
        ("'" * 20, 10, "'''''''…".replace("…", "'…")),
        ("\n" * 20, 10, r"E'\n\n\n'…"),
        ("\x1b" * 20, 10, r"E'\x1b'…"),
        ("b" * 100_000, 10, "'bbbbbbb'…"),
        ("é" * 100_000, 10, "'ééééééé'…"),
    ],
)
def test_a_long_string_is_cut_between_characters_and_closed(sent: str, limit: int, shown: str) -> None:
    row = one(b"1", sent.encode(), b"0", None, options=OutputOptions(width=200, max_width=limit))
    assert f"customer {shown}  total" in row
    assert cell_len(shown) <= limit


def test_a_long_value_of_another_type_is_cut_too() -> None:
    row = one(b"1", b"", b"1" * 50, None, options=OutputOptions(width=200, max_width=10))
    assert "total 111111111…  note" in row


def test_without_a_limit_a_value_is_shown_whole_over_several_lines() -> None:
    value = "".join([chr(0x3041 + n % 80) for n in range(5000)])
    row = one(b"1", value.encode(), b"0", None, options=OutputOptions(width=80, max_width=None))
    assert value in "".join([line.strip() for line in row.split("\n")])


@pytest.mark.parametrize("text", ["日本語é😀'x" * 40_000, "日本語é😀'x\n\\" * 40_000, "x" * 300_000])
def test_a_very_long_value_is_the_same_in_pieces(text: str) -> None:
    [(whole, _)] = ValueStyle(len(text) * 20).string(text)
    for codec, cell in ((UNKNOWN, text.encode()), (Types(encoding="utf-16-le").unknown(), text.encode("utf-16-le"))):
        pieces = ValueStyle(None).cell(codec, cell)
        assert len(pieces) > 10
        assert "".join([piece for piece, _ in pieces]) == whole


def test_a_very_long_value_that_is_not_text_is_shown_as_its_bytes() -> None:
    cell = "é".encode() * 100_000 + b"\xff"
    *pieces, _, mark = ValueStyle(None).cell(UNKNOWN, cell)
    assert "".join([piece for piece, _ in pieces]) == "\\x" + cell.hex()
    assert mark == ("(undecoded)", "note")


# -- layout --------------------------------------------------------------------------------------------------------


def test_columns_are_aligned_in_cells() -> None:
    wide = relation(("id", INT4, True), ("v", TEXT, False), oid=2, name="événements日本")
    text = table_of(
        transaction(ORDERS, wide, Insert(None, 1, (b"1042", b"a", b"1", None)), Insert(None, 2, (b"7", b"x")))
    )
    first, second = [line for line in text.split("\n") if "INSERT" in line]
    assert cell_len(first[: first.index("id=")]) == cell_len(second[: second.index("id=")])
    assert cell_len(first[: first.index("customer")]) == cell_len(second[: second.index("v 'x'")])


def test_long_name_does_not_widen_the_column_for_others() -> None:
    long = relation(("id", INT4, True), ("v", TEXT, False), oid=2, name="n" * 63)
    text = table_of(transaction(ORDERS, long, Insert(None, 1, (b"1", b"a", b"1", None)), Insert(None, 2, (b"7", b"x"))))
    assert "  INSERT   public.orders  id=1  customer 'a'" in text
    assert f"  INSERT   public.{'n' * 62}\n           n  id=7\n           v 'x'\n" in text


def test_longer_row_does_not_move_the_others() -> None:
    inserts = [Insert(None, 1, (key, b"Ada", b"1", None)) for key in (b"7", b"12345678")]
    text = table_of(transaction(ORDERS, *[inserts[0]] * 100, inserts[1]), OutputOptions(max_rows=0))
    assert "  INSERT   public.orders  id=7  customer 'Ada'" in text
    assert "  INSERT   public.orders  id=12345678  customer 'Ada'" in text


def test_values_go_below_on_a_narrow_terminal() -> None:
    insert = Insert(None, 1, (b"1042", b"Ada", b"129.50", None))
    assert table_of(transaction(ORDERS, insert), OutputOptions(width=40)) == (
        "● xid 743  0/1949A30\n"
        "  2026-11-28 11:59:59.988000Z  12 ms ago\n"
        "  INSERT   public.orders  id=1042\n"
        "    customer 'Ada'  total 129.50\n"
        "    note NULL\n"
        "  1 change · end 0/1949A68\n"
    )
