"""JSON in colours is the same JSON, wherever its parts were split."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pgtail.terminal.json_colors import ColoringSink
from pgtail.terminal.style import SGR
from tests.support.corpus import capture
from tests.support.render import Sink
from tests.support.run import decode, here
from tests.support.terminals import on_terminal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\:,{}[] nul\né')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('k"\\:'), max_size=3), inner),
    max_leaves=8,
)


@given(VALUES, st.sampled_from([None, (",", ":")]), st.lists(st.integers(0, 80), max_size=4))
def test_colours_are_all_that_is_added(value: object, separators: tuple[str, str] | None, cuts: list[int]) -> None:
    line = json.dumps(value, separators=separators).encode() + b"\n"
    whole, parted = Sink(), Sink()
    ColoringSink(whole).write(line)
    painter = ColoringSink(parted)
    places = [0, *sorted(cuts), len(line)]
    for start, end in pairwise(places):
        painter.write(line[start:end])
    assert SGR.sub("", whole.text) == line.decode()
    assert SGR.sub("", parted.text) == line.decode()


def test_the_colours_are_those_of_jq() -> None:
    sink = Sink()
    ColoringSink(sink).write(b'{"a":"x","b":null,"c":[1,true]}\n')
    name, string, null, syntax, end = "\x1b[34;1m", "\x1b[0;32m", "\x1b[0;90m", "\x1b[1;39m", "\x1b[0m"
    assert sink.text == (
        f'{syntax}{{{end}{name}"a"{end}{syntax}:{end}{string}"x"{end}{syntax},{end}{name}"b"{end}{syntax}:{end}'
        f'{null}null{end}{syntax},{end}{name}"c"{end}{syntax}:[{end}1{syntax},{end}true{syntax}]}}{end}\n'
    )


def test_only_a_terminal_gets_them() -> None:
    path = capture("Z_small", "p1").forms["recv.bin"]
    plain = decode("-o", "json", path).stdout.decode()
    assert decode("-o", "json", "--color", "always", path).stdout.decode() == plain
    report = here("stats", "-o", "json", "--color", "always", path).stdout.decode()
    assert json.loads(report)
    command = [str(Path(sys.executable).with_name("pgtail")), "decode", "--no-pager", "-o", "json", str(path)]
    for variables, colored in (({}, True), ({"NO_COLOR": "1"}, False)):
        status, shown = on_terminal(command, env=variables)
        assert status == 0
        assert ("\x1b" in shown) == colored
        assert SGR.sub("", shown).replace("\r\n", "\n") == plain
        _, shown = on_terminal([command[0], "stats", "--no-pager", "-o", "json", str(path)], env=variables)
        assert ("\x1b" in shown) == colored
        assert SGR.sub("", shown).replace("\r\n", "\n") == report
