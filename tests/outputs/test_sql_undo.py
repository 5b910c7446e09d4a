"""`-o sql --undo` writes and reports the same by the scanner as from decoded messages; the stack that it keeps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.native import compiled
from pgtail.outputs.sql.undo import Stack
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pipeline.pipeline import Pipeline
from tests.support.encode import UNCHANGED, begin, commit, delete, insert, relation, truncate, update
from tests.support.render import WAYS, Way, need_compiled, render

TABLES = (relation(), relation(oid=101, name="f", identity="f", key=(0, 1)))
OMITTED = (update(("1", "b")), update(("2", "b"), ("1", None)), delete("1", None))
REASON = "the server sent no old values: the replica identity lacks v"
ROWS = (
    *OMITTED,
    insert("1", "a"),
    insert("1", None),
    insert("1", "a", oid=101),
    update(("1", UNCHANGED)),
    update(("2", UNCHANGED), ("1", None)),
    update((None, UNCHANGED), ("1", None)),
    update(("1", None)),
    update(("1", "b"), ("1", "a"), "O", oid=101),
    update(("1", "a"), ("1", "a"), "O", oid=101),
    delete("1", "a", kind="O", oid=101),
    truncate(100),
)


def undone(*messages: bytes, way: Way, broken_off: bool = False) -> tuple[list[str], list[str]]:
    """The lines after the head, and the reports."""
    notices: list[str] = []
    found = render(*TABLES, *messages, output="sql", undo=True, report=notices.append, way=way, broken_off=broken_off)
    return found.written.decode().partition("END $$;\n\n")[2].splitlines(), notices


def same(*messages: bytes, broken_off: bool = False) -> tuple[list[str], list[str]]:
    """The lines and the reports, which must be the same in all ways."""
    if compiled() is None:
        need_compiled()
    long, *others = (undone(*messages, way=way, broken_off=broken_off) for way in WAYS)
    assert others == [long] * len(others)
    return long


def test_comments_of_a_transaction_that_ends_in_the_scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = (begin(), *OMITTED, commit(), begin(8), OMITTED[0], insert("3", "c"), commit())
    lines, notices = same(*messages)
    assert lines[0] == "-- 4 changes cannot be undone: a comment stands in the place of each"
    assert [line for line in lines if line.startswith("-- cannot")] == [
        f"-- cannot be undone: {change}): {REASON}"
        for change in (
            "update on public.t (xid 8, seq 1",
            "delete on public.t (xid 7, seq 3",
            "update on public.t (xid 7, seq 2",
            "update on public.t (xid 7, seq 1",
        )
    ]
    assert notices[1:] == [f"3 times update on public.t: {REASON}", f"delete on public.t: {REASON}"]
    decoded: list[str] = []
    usual = Pipeline.feed

    def feed(pipeline: Pipeline, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None:
        decoded.append(type(message).__name__)
        usual(pipeline, message, lsn, offset)

    monkeypatch.setattr(Pipeline, "feed", feed)
    undone(*messages, way="compiled")
    assert decoded[-2:] == ["Begin", "Update"]  # nothing after the first row


@pytest.mark.parametrize("broken_off", [False, True])
@pytest.mark.parametrize("between", [(), (truncate(100),)], ids=["one run", "two runs"])
def test_comments_of_an_incomplete_transaction_are_not_counted(between: tuple[bytes, ...], broken_off: bool) -> None:
    cut = (begin(8), *OMITTED, *between, *OMITTED)
    lines, notices = same(begin(), OMITTED[0], commit(), *cut, broken_off=broken_off)
    assert lines[0] == "-- 1 change cannot be undone: a comment stands in the place of each"
    assert notices[-1] == f"update on public.t: {REASON}"
    assert not any("xid 8" in line for line in lines)


def test_counts_of_transactions_in_several_runs() -> None:
    one_update, one_delete, empty = OMITTED[0], OMITTED[2], truncate(100)
    first = (begin(), one_update, empty, one_update, one_delete, empty, one_update, commit())
    counts = {"update": 3, "truncate": 2, "delete": 1}
    assert reported(*first) == counts
    assert reported(*first, begin(8), one_update) == counts
    second = (begin(8), one_delete, empty, one_delete, commit())
    assert reported(*first, *second) == {"update": 3, "truncate": 3, "delete": 3}
    assert reported(*first, *second, begin(9), empty, one_update) == {"update": 3, "truncate": 3, "delete": 3}


def reported(*messages: bytes) -> dict[str, int]:
    """The reported counts by operation, in every way."""
    _, notices = same(*messages)
    found = [re.fullmatch(r"(?:(\d+) times )?(\w+) on public\.t: .*", line) for line in notices[1:]]
    return {one[2]: int(one[1] or 1) for one in found if one is not None}


@given(
    st.lists(st.lists(st.sampled_from(ROWS), max_size=6), max_size=5),
    st.lists(st.sampled_from(ROWS), max_size=6) | st.none(),
    st.booleans(),
)
def test_any_rows(transactions: list[list[bytes]], cut: list[bytes] | None, broken_off: bool) -> None:
    whole = [message for rows in transactions for message in (begin(), *rows, commit())]
    same(*whole, *(() if cut is None else (begin(), *cut)), broken_off=broken_off)


@given(st.lists(st.binary(max_size=30)), st.lists(st.binary(max_size=300)))
def test_stack_returns_the_last_text_first(before: list[bytes], after: list[bytes]) -> None:
    stack = Stack(chunk=200)
    for texts in (before, after):
        for text in texts:
            stack.push(text)
            if len(text) % 2:
                stack.spill()
        assert [text for found in stack.drain() for text in found] == texts[::-1]
    stack.close()


def test_a_stack_keeps_most_of_it_on_disk() -> None:
    stack, number = Stack(), 100_000
    for index in range(number):
        stack.push(b"%0100d" % index)
        stack.spill()
    for texts in stack.drain():
        assert sum(map(len, texts)) < 2_000_000
        for text in texts:
            number -= 1
            assert text == b"%0100d" % number
    assert number == 0
    stack.close()
