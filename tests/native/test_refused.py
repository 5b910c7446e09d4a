"""What the scanner refuses when Python code calls it with what it cannot do, or has another version than it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pgtail.native import compiled
from pgtail.native.plan import Field, Padded, Plan, Value
from pgtail.outputs import OutputOptions
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write
from pgtail.pgoutput.frames import LENGTHS
from tests.support.encode import begin, commit, lengths
from tests.support.render import need_compiled, write_slice
from tests.support.typed_rows import one_of_each

TABLE, ROWS = one_of_each([23])


@pytest.fixture(scope="module")
def native() -> Any:
    module = compiled()
    if module is None:
        need_compiled()
    return module


class Plans(PlannedOutput):
    of_rows: Plan

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        return self.of_rows, self.write


def written(native: Any, *, begin_: Plan = (), row: Plan = ()) -> bytes:
    """What an output with these plans writes of a transaction with a row."""
    parts: list[bytes] = []
    output = Plans(SimpleNamespace(write=parts.append), OutputOptions())
    output.begin, output.of_rows = begin_, row
    write_slice(output, None, lengths(begin(), ROWS[0], commit()), TABLE)
    return b"".join(parts)


def test_what_stands_for_fields_that_are_not_known(native: Any) -> None:
    """Also where no output uses it."""
    row = (Value(Field.ABORTED, b"a", missing=b"no "), Value(Field.END_LSN, b"e", missing=Field.SEQ))
    assert written(native, row=row) == b"no 1"


def test_a_start_of_a_transaction_that_may_be_declined(native: Any) -> None:
    with pytest.raises(ValueError, match=r"^the start or end of a transaction cannot be declined$"):
        written(native, begin_=(Padded((b"\x07",), bytes, least=3),), row=(b"row",))


def test_an_unknown_piece_of_a_plan(native: Any) -> None:
    with pytest.raises(TypeError, match=r"^no piece of a plan: 1$"):
        written(native, begin_=(1,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^no field of compiled code: Value"):
        written(native, row=(Value(Field.NOW_MS),))


def test_what_is_no_row_of_a_stream_segment(native: Any) -> None:
    data = lengths(begin())
    assert native.index(data, 0, len(data), LENGTHS, True).stop == 0


def test_python_code_of_another_version() -> None:
    """Run in a new process, which loads the compiled code for the first time."""
    program = "import pgtail.native.plan as plan; plan.LARGE += 1; import pgtail.native._scanner"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "the compiled scanner has other limits than pgtail/native/plan.py: build it again" in done.stderr
