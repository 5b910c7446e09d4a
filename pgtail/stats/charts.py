"""Charts of the HTML report: shapes in SVG that stretch with the page, and labels in HTML that keep their size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from pgtail.humanize import grouped
from pgtail.local_time import to_local
from pgtail.pgoutput.scalars import time_text
from pgtail.terminal.layout import cut_height

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_MOST_TICKS: Final = 6
"""Labels of the time axis; a narrow page shows every other one."""
_TIME_TICKS: Final = (
    *[_SECOND * part // 1000 for part in (1, 2, 5, 10, 20, 50, 100, 200, 500)],
    *[_SECOND * count for count in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)],
    *[_SECOND * 3600 * count for count in (1, 2, 3, 6, 12)],
    *[_DAY * count * 10**power for power in range(9) for count in (1, 2, 5)],
)
"""Possible distances of two labels in microseconds."""
NBSP: Final = "\N{NO-BREAK SPACE}"


class Unit(NamedTuple):
    """How amounts of a step are shown: `amount` as they are, and on the axis what `axis` shows of an amount / `per`.

    The axis has round numbers, `binary` ones for bytes.
    """

    amount: Callable[[int], str]
    axis: Callable[[float], str]
    per: float = 1
    binary: bool = False


class Layer(NamedTuple):
    """One of the amounts that are stacked: its name and colour, and an amount for each step."""

    name: str
    color: str
    amounts: Sequence[int]


class Axis(NamedTuple):
    """Steps of time, each of `width` microseconds, from `start` on (microseconds since 2000)."""

    start: int
    width: int
    steps: int

    @property
    def stop(self) -> int:
        return self.start + self.width * self.steps

    def percent(self, time: int) -> str:
        """Where a time is, of the width of the chart."""
        return f"{100 * (time - self.start) / (self.width * self.steps):.4g}%"

    def ticks(self) -> list[tuple[int, str]]:
        """The times that have a label, not at the very end, where it would need more room than there is."""
        span, away = self.stop - self.start, to_local(self.start) - self.start
        tick = next((tick for tick in _TIME_TICKS if span <= tick * _MOST_TICKS), _TIME_TICKS[-1])
        days = {_local(time)[0] for time in (self.start, self.stop - 1)}
        first = -(-(self.start + away) // tick) * tick - away
        return [(time, _label(time, tick, dated=len(days) > 1)) for time in range(first, self.stop - span // 20, tick)]

    def words(self, step: int) -> str:
        """The time of a step."""
        day, clock = _local(self.start + step * self.width)
        return f"{day} {clock if self.width < _SECOND else clock[:8]}"


class Mark(NamedTuple):
    """Something at a time: a sign of one character, and what it is."""

    time: int
    sign: str
    words: str


def time_chart(axis: Axis, layers: Sequence[Layer], unit: Unit, marks: Sequence[Mark] = ()) -> str:
    """Amounts of steps of time, stacked, with a legend if there are several.

    The titles of the steps have the amounts. Where few are much higher than the others, they are cut off.
    """
    totals = [sum(amounts) for amounts in zip(*[layer.amounts for layer in layers], strict=True)]
    top = max(cut_height(totals), 1)
    cut = [step for step, total in enumerate(totals) if total > top]
    shapes, left = [], totals
    for layer in reversed(layers):
        shapes.append(f'<path class="{layer.color}" d="{_outline(left, top)}"/>')
        left = [total - amount for total, amount in zip(left, layer.amounts, strict=True)]
    ticks = [(tick, 100 * tick * unit.per / top) for tick in _round_numbers(top, unit)]
    lines = "".join([f"M0 {100 - height:.4g}H{axis.steps}" for _, height in ticks])
    steps = "".join([_step(axis, layers, step, unit) for step, total in enumerate(totals) if total])
    return "".join([
        _legend(layers, marks),
        '<div class="chart"><div class="signs">',
        *_mark_signs(axis, marks),
        _cut_signs(axis, cut, totals, unit),
        '</div><div class="y">',
        *[f'<span style="bottom:{height:.4g}%">{escape(unit.axis(tick))}</span>' for tick, height in ticks],
        f'</div><svg viewBox="0 0 {axis.steps} 100" preserveAspectRatio="none" role="img">',
        f'<path class="grid" d="{lines}"/>{"".join(shapes)}{steps}</svg><div class="x">',
        *[f'<span style="left:{axis.percent(time)}">{label}</span>' for time, label in axis.ticks()],
        "</div></div>",
    ])  # fmt: skip


def bars(rows: Sequence[tuple[str, int]], head: str) -> str:
    """A table of numbers with a bar each."""
    most, total = max([count for _, count in rows], default=1), max(sum([count for _, count in rows]), 1)
    lines = [
        f'<tr><td class="n">{escape(label)}</td><td class="n">{number(count)}</td><td class="bar">'
        f'<svg viewBox="0 0 100 1" preserveAspectRatio="none"><title>{100 * count / total:.3g} %</title>'
        f'<rect class="c0" width="{max(100 * count / most, 0.6 if count else 0):.4g}" height="1"/></svg></td></tr>'
        for label, count in rows
    ]
    return f'<table><tr><th class="n">{head}</th><th class="n">number</th><th></th></tr>{"".join(lines)}</table>'


def number(count: int) -> str:
    """A number that is not broken between lines."""
    return grouped(count).replace(" ", NBSP)


def _outline(totals: Sequence[int], top: int) -> str:
    """The area below amounts, as steps of one unit each."""
    path, before = ["M0 100"], -1
    for step, total in enumerate(totals):
        if total != before:
            path.append(f"H{step}V{100 - 100 * min(total, top) / top:.4g}")
            before = total
    return f"{''.join(path)}H{len(totals)}V100z"


def _step(axis: Axis, layers: Sequence[Layer], step: int, unit: Unit) -> str:
    amounts = [f"{layer.name} {unit.amount(layer.amounts[step])}" for layer in layers if layer.amounts[step]]
    title = escape(f"{axis.words(step)}: {', '.join(amounts)}")
    return f'<rect class="step" x="{step}" width="1" height="100"><title>{title}</title></rect>'


def _legend(layers: Sequence[Layer], marks: Sequence[Mark]) -> str:
    names = [f'<li><i class="{layer.color}"></i>{escape(layer.name)}</li>' for layer in layers if len(layers) > 1]
    names += [f"<li>{sign} {words}</li>" for sign, words in SIGNS.items() if any(mark.sign == sign for mark in marks)]
    return f'<ul class="key">{"".join(names)}</ul>' if names else ""


CUT: Final = "▲"
"""Marks a step that is cut off."""
SIGNS: Final = {"\N{BLACK DIAMOND}": "schema change", "\N{MULTIPLICATION SIGN}": "truncate"}


def _sign(left: str, sign: str, words: str, more: str = "") -> str:
    return f'<span{more} style="left:{left}" title="{escape(words)}">{sign}</span>'


def _mark_signs(axis: Axis, marks: Sequence[Mark]) -> Iterator[str]:
    """Signs at the places of marks; those of one place are side by side."""
    places: dict[str, list[Mark]] = {}
    for mark in marks:
        places.setdefault(axis.percent(mark.time), []).append(mark)
    for place, there in places.items():
        yield _sign(place, "".join(sorted({mark.sign for mark in there})), "; ".join([mark.words for mark in there]))


def _cut_signs(axis: Axis, cut: Sequence[int], totals: Sequence[int], unit: Unit) -> str:
    """Signs over the steps that are cut off; the highest has its amount."""
    signs = []
    for step in cut:
        left, amount = axis.percent(axis.start + (2 * step + 1) * axis.width // 2), unit.axis(totals[step] / unit.per)
        side = ' class="left"' if 2 * step > axis.steps else ' class="right"'
        if totals[step] == max(totals):
            signs.append(_sign(left, escape(amount), axis.words(step), side))
        signs.append(_sign(left, CUT, f"{axis.words(step)}: {amount}, cut off"))
    return "".join(signs)


def _round_numbers(top: int, unit: Unit) -> list[float]:
    """Round numbers of the axis from 0 to that of an amount, at most five."""
    highest, scale = top / unit.per, 1
    while unit.binary and highest >= 1000 * scale:
        scale *= 1024
    powers = range(0 if unit.per == 1 else -4, 19)
    step = next(step for power in powers for part in (1, 2, 5) if (step := part * scale * 10.0**power) * 4 >= highest)
    return [count * step for count in range(5) if count * step <= highest]


def _label(time: int, tick: int, *, dated: bool) -> str:
    day, clock = _local(time)
    if tick >= _DAY:
        return day
    clock = clock[: 12 if tick < _SECOND else 8 if tick < 60 * _SECOND else 5]
    return f"{day.partition('-')[2]} {clock}" if dated else clock


def _local(time: int) -> tuple[str, str]:
    """The local day and time of day."""
    day, _, clock = time_text(to_local(time)).partition("T")
    return day + " BC" * clock.endswith("BC"), clock[:12]
