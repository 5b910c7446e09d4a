"""What a pipeline counts."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.filters import Filter
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.pipeline import Pipeline
from pgtail.values import Types
from tests.support.corpus import Capture, capture
from tests.support.render import WAYS, Sink, Way, feed, rows_by
from tests.support.run import decode


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("output", ["json", "table"])
@pytest.mark.parametrize("filters", [{}, {"where": ["id in (1, 3)"]}, {"tables": ["st"]}, {"ops": ["delete"]}], ids=str)
@pytest.mark.parametrize("names", [("D_twophase", "p3_2pc"), ("C_stream", "p2_stream")], ids="-".join)
def test_rows_are_counted_and_those_that_the_filter_leaves_out(
    names: tuple[str, str], filters: dict[str, Any], output: str, way: Way
) -> None:
    one = capture(*names)
    sink, assembler = Sink(), Assembler(Types())
    with rows_by(way):
        made = open_output(output, sink, OutputOptions())
        pipeline = Pipeline(assembler, made, filter_=Filter(**filters), note=lambda _: None)
        try:
            feed(one.frames(), Decoder(), pipeline)
            pipeline.finish()
        finally:
            assembler.close()
    options = [f"--{name.removesuffix('s')}={text}" for name, (text,) in filters.items()]
    assert pipeline.rows == rows_of(one)
    assert pipeline.rows - pipeline.left_out == rows_of(one, *options)


@cache
def rows_of(one: Capture, *options: str) -> int:
    """The rows that decode shows."""
    found = decode(*options, one.forms["walsender.bin"]).objects
    return len([row for row in found if row["op"] in ("insert", "update", "delete")])
