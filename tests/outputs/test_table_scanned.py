"""`-o table` looks the same whether the scanner counts the rows beyond --max-rows or the decoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.outputs import OutputOptions
from tests.support import encode
from tests.support.corpus import Capture, captures
from tests.support.render import WAYS, Way
from tests.support.render_text import TEXT, scanned_table

KEY = b"0123456789abcdef"
SELECTIONS: list[tuple[OutputOptions, Callable[[], Filter | None], list[str], bytes | None]] = [
    (OutputOptions(), lambda: None, [], None),
    (OutputOptions(max_rows=1, width=120), lambda: None, [], None),
    (OutputOptions(max_rows=2, max_width=8, schema_changes=True), lambda: None, [], None),
    (OutputOptions(max_rows=0, max_width=None, colored=True), lambda: None, [], None),
    (OutputOptions(max_rows=0, width=47, colored=True), lambda: None, [], None),
    (OutputOptions(max_rows=4, width=47, changed=True, highlight=("a",)), lambda: None, [], None),
    (OutputOptions(max_rows=0, width=60, changed=True, fill_unchanged=True, colored=True), lambda: None, [], None),
    (OutputOptions(max_rows=1), lambda: Filter(ops=["update", "delete"]), [], None),
    (OutputOptions(max_rows=2), lambda: Filter(where=["id > 3"]), [], None),
    (OutputOptions(max_rows=3), lambda: None, ["*a*"], None),
    (OutputOptions(max_width=12), lambda: None, ["*"], KEY),
    (OutputOptions(max_rows=0, all_columns=True, colored=True), lambda: None, [], None),
]


@pytest.mark.parametrize(("number", "capture"), [*enumerate(captures()[::4])], ids=str)
def test_captures_look_the_same(number: int, capture: Capture) -> None:
    frames = [*capture.frames()]
    for options, filter_, masked, key in SELECTIONS[number % 3 :: 3]:
        decoded, scanned = [
            scanned_table(frames, by, options, filter_(), Redaction(masked, key) if masked else None) for by in WAYS
        ]
        assert scanned == decoded


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("limit", [None, 60])
def test_large_masked_values_look_the_same(key: bytes | None, limit: int | None) -> None:
    rows = [encode.insert(str(size), "x" * size) for size in (10, 65_000, 66_000, 300_000)]
    frames = [*map(encode.frame, (encode.begin(), encode.relation(), *rows, encode.commit()))]
    decoded, scanned = [
        scanned_table(frames, by, OutputOptions(max_width=limit), None, Redaction(["v"], key)) for by in WAYS
    ]
    assert scanned == decoded
    assert "xxx" not in decoded


@pytest.mark.parametrize("way", WAYS)
def test_each_transaction_shows_its_first_rows(way: Way) -> None:
    rows = [encode.insert(str(number), "x") for number in range(5)]
    transactions = [encode.begin(), encode.relation(), *rows, encode.commit(), encode.begin(), *rows, encode.commit()]
    text = scanned_table([*map(encode.frame, transactions)], way, OutputOptions(max_rows=2), None, None)
    assert text.count("INSERT") == 4
    assert text.count("5 changes, 3 not shown (--max-rows 2)") == 2


@pytest.mark.parametrize("way", WAYS)
def test_long_keys_show_which_row_it_is(way: Way) -> None:
    """Keys that differ at their ends only are not cut there, and a line ends between the columns of a key."""
    path = "s3://lake/" + "event/" * 20
    ids = [f"550e8400-e29b-41d4-a716-44665544000{number}" for number in range(2)]
    messages = [
        *(encode.begin(), encode.relation(1, "objects", [("path", TEXT), ("tag", TEXT)])),
        *(encode.insert(f"{path}1", path, oid=1), encode.update((f"{path}2", "b"), (f"{path}1", None), oid=1)),
        encode.relation(2, "subscriptions", [("tenant_id", TEXT), ("subscription_id", TEXT)], key=[0, 1]),
        *(encode.insert(*ids, oid=2), encode.commit()),
    ]
    text = scanned_table([*map(encode.frame, messages)], way, OutputOptions(width=80, max_width=60), None, None)
    shown = "".join([line.strip() for line in text.split("\n")])
    assert [shown.count(f"{path}{number}'") for number in (1, 2)] == [2, 1]
    assert f"tag '{path[:57]}'…" in shown
    assert f"           tenant_id='{ids[0]}',\n           subscription_id='{ids[1]}'\n" in text


@pytest.mark.parametrize("width", [20, 47, 200])
def test_names_that_do_not_fit_and_tables_without_columns(width: int) -> None:
    key, long = "k" * 40, encode.relation(name="a long name " * 9, columns=[("id", TEXT), ("v", TEXT)])
    rows = [encode.insert(key, "x"), encode.delete(key, None), encode.insert(key, None)]
    empty = [encode.relation(columns=[], key=[]), encode.insert(), encode.delete(), encode.update([], [], "O")]
    frames = [*map(encode.frame, (encode.begin(), long, *rows, *rows, *empty, encode.commit()))]
    decoded, scanned = [scanned_table(frames, by, OutputOptions(max_rows=0, width=width), None, None) for by in WAYS]
    assert scanned == decoded
    assert decoded.count("no columns") == 3


def test_values_go_below_a_wide_key_where_that_takes_fewer_lines() -> None:
    """Where less than half the width is left beside it: here 43 cells of 120, and then 83 of 160."""
    key, note = "0698de74-4838-45f9-8b5c-b69f693d97fd", "leave it with a neighbour"
    columns = [("id", TEXT), ("note", TEXT), ("place", TEXT), ("state", TEXT)]
    table = encode.relation(name="invoice_items", schema="billing", columns=columns)
    rows = [encode.insert(key, note, note, note), encode.insert(key, None, None, "paid")]
    frames = [*map(encode.frame, (encode.begin(), table, *rows, encode.commit()))]
    for width, beside in ((120, False), (160, True)):
        decoded, scanned = [scanned_table(frames, by, OutputOptions(width=width), None, None) for by in WAYS]
        assert scanned == decoded
        start = f"  INSERT   billing.invoice_items  id='{key}'"
        below = f"{start}\n           note '{note}'  place '{note}'  state '{note}'\n"
        assert (f"{start}  note '{note}'" in decoded, below in decoded) == (beside, not beside)
        assert f"{start}  note NULL  place NULL  state 'paid'\n" in decoded
