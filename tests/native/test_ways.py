"""The scanner writes what the decoder writes: random streams, outputs and options for 10 seconds."""

from __future__ import annotations

from pgtail.native import compiled
from tests.support.every import ALL, new_seed
from tests.support.render import need_compiled
from tests.torture.streams import run

SECONDS = 300 if ALL else 10


def test_random_streams_outputs_and_options() -> None:
    if compiled() is None:
        need_compiled()
    cases, wrong = run(new_seed(), SECONDS)
    assert not wrong, "\n".join(wrong)
    assert cases > 1
