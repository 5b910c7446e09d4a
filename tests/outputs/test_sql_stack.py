"""The stack of `-o sql --undo`: in memory, and beyond a limit in a temporary file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgtail.outputs.sql.stack import Stack


@given(st.lists(st.one_of(st.binary(max_size=30), st.none())))
def test_stack_returns_the_last_text_first(steps: list[bytes | None]) -> None:
    stack, model = Stack(chunk=200), list[bytes]()
    for step in steps:
        if step is not None:
            stack.push(step)
            model.append(step)
        elif model:
            assert stack.pop() == model.pop()
        assert len(stack) == len(model)
    while model:
        assert stack.pop() == model.pop()
    stack.close()


def test_a_stack_keeps_most_of_it_on_disk() -> None:
    stack = Stack()
    for number in range(100_000):
        stack.push(b"%0100d" % number)
    assert stack.in_memory < 2_000_000
    assert all(stack.pop() == b"%0100d" % number for number in reversed(range(100_000)))
    stack.close()
