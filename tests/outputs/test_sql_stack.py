"""The stack of `-o sql --undo`: in memory, and beyond a limit in a temporary file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgtail.outputs.sql.undo import Stack


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
