"""Tables of reports: a line for each row, which fits the terminal."""

from __future__ import annotations

from pgtail.terminal.layout import item_width, sparkline
from pgtail.terminal.report import table


def test_a_table_fits_any_width() -> None:
    heads = [("name", "dim"), ("rows", "dim"), ("why", "dim")]
    rows = [[((name, "table"),), (("1 234", "value"),), (("a long reason", "value"),)] for name in ("t" * 30, "日本語")]
    for width in range(1, 60):
        lines = table(heads, rows, width, (0, 2))
        assert len(lines) == 3
        assert max(map(item_width, lines)) <= width


def test_a_line_of_samples_goes_from_the_least_to_the_maximum() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3, 1 << 40, 0.5]) == "▁█▁"
    assert sparkline([1000, 1001, 1007], 1000) == "▁▂█"
    assert sparkline([5, 5, 5], 5) == "▁▁▁"
    assert (sparkline([0, 0]), sparkline([])) == ("▁▁", "")
