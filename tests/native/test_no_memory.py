"""Without memory, nothing is written that is not whole, and the scanner can go on when there is some again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pgtail.native import compiled
from pgtail.outputs import OutputOptions, open_output
from pgtail.outputs.base import Output
from tests.support.encode import begin, commit, insert, lengths
from tests.support.render import Sink, need_compiled, write_slice
from tests.support.typed_rows import one_of_each

python = pytest.importorskip("_testcapi")
TABLE = one_of_each([23, 25])[0]
WARM = lengths(begin(), insert("1", "x"), commit())
ROWS = [insert("2", "y" * size) for size in (50, 200_000, 50)] + [insert("3", "\x01" * 60_000), insert("4", "z")]
DATA = lengths(begin(), *ROWS, commit()) + WARM


def warm() -> tuple[Output, Sink]:
    """An output that has all plans."""
    sink = Sink()
    output = open_output("json", sink, OutputOptions())
    write_slice(output, None, WARM, TABLE)
    sink.parts.clear()
    return output, sink


def write(output: Output, sink: Sink) -> bytes:
    try:
        write_slice(output, None, DATA, TABLE)
    finally:
        python.remove_mem_hooks()
    return b"".join(sink.parts)


def fail_each_allocation_once() -> None:
    whole = write(*warm())
    for number in range(1, 1000):
        output, sink = warm()
        python.set_nomemory(number, number + 1)
        try:
            assert write(output, sink) == whole
        except MemoryError:
            written = b"".join(sink.parts)
            assert whole.startswith(written)
            assert written[-1:] in (b"", b"\n")
            sink.parts.clear()
            assert write(output, sink) == whole
        else:
            break
    assert 5 < number < 500, number


def test_rows_are_written_whole_or_not_at_all() -> None:
    """In a process of its own: allocations of every thread fail, also of those that other tests have started.

    Those of a coverage tracer, too, so there is none.
    """
    if compiled() is None:
        need_compiled()
    program = f"from {__name__} import fail_each_allocation_once as test; test()"
    untraced = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=untraced)
    assert result.returncode == 0, result.stderr
