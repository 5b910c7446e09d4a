"""The report of `pgtail spark verify`: a table for people, or a line of JSON for each table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pgtail.humanize import counted, grouped
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import escape, json_line, shell_word
from pgtail.terminal.layout import Item, indented, padding, paragraph
from pgtail.terminal.report import table
from pgtail.terminal.style import Fragment, Painter, Palette

if TYPE_CHECKING:
    from pgtail.spark.state.comparison import Example
    from pgtail.spark.verify.tables import VerifiedTable

_COUNTS: Final = ("rows", "equal", "unknown", "missing", "extra", "different")
_STYLES: Final = {"unknown": "warning", "missing": "bad", "extra": "bad", "different": "bad"}
_INDENT: Final = 4


def verified_json(tables: Sequence[VerifiedTable], lsn: int, *, sample: float) -> str:
    """A line for each table."""
    lines = [
        {
            "schema": verified.schema,
            "table": verified.table,
            "relid": verified.relid,
            "lsn": lsn_text(lsn),
            "sample": sample,
            **{name: getattr(verified.found, name) for name in _COUNTS},
            "examples": {
                kind: [{"row": dict(example.row), "columns": list(example.columns)} for example in some]
                for kind, some in verified.found.examples.items()
            },
        }
        for verified in tables
    ]
    return "".join(map(json_line, lines))


def report_table(
    found: Sequence[VerifiedTable], lsn: int, palette: Palette, *, width: int, recorder: str, roots: Collection[int]
) -> str:
    """The report as text of at most `width` cells a line, as far as names allow. `recorder`: what records, as typed;
    `roots`: the OIDs of tables that are published for their partitions."""
    return Painter(palette).lines(_lines(found, lsn, max(width, 40), recorder, roots))


def _lines(
    tables: Sequence[VerifiedTable], lsn: int, width: int, recorder: str, roots: Collection[int]
) -> Iterator[list[Fragment]]:
    names = [escape(f"{one.schema}.{one.table}") for one in tables]
    titles = [(title.upper(), "dim") for title in ("  table", *_COUNTS)]
    heads, *rows = table(titles, [*map(_cells, tables, names)], width)
    yield heads
    for verified, row in zip(tables, rows, strict=True):
        yield row
        for kind, examples in verified.found.examples.items():
            words = f"{kind}: " + "; ".join(map(_example, examples))
            yield from indented(paragraph(escape(words), _STYLES[kind], width - _INDENT), _INDENT)
    yield []
    worst = next((state for state in ("bad", "warning") if state in map(_state, tables)), "good")
    yield from paragraph(_summary(tables, lsn), worst, width)
    if some := [name for one, name in zip(tables, names, strict=True) if one.relid in roots and not one.found.same]:
        words = "ATTACH PARTITION of a table with rows, DETACH PARTITION and TRUNCATE of a partition send nothing"
        yield from paragraph(f"{', '.join(some)}: {words}, and may be the cause.", "note", width)
    if cured := [name for one, name in zip(tables, names, strict=True) if _state(one) != "good"]:
        options = " ".join(f"--snapshot-table {shell_word(name)}" for name in cured)
        words = "To make the state right from then on, end the recorder of the capture, and start it with:"
        yield from paragraph(words, "note", width)
        yield [padding(_INDENT), (f"{recorder} {options}", "cure")]


def _cells(one: VerifiedTable, name: str) -> list[Item]:
    counts = [(getattr(one.found, count), _STYLES.get(count, "value")) for count in _COUNTS]
    shown = [(grouped(number), style if number else "value") for number, style in counts]
    return [(("● ", _state(one)), (name, "table")), *[(cell,) for cell in shown]]


def _example(one: Example) -> str:
    row = ", ".join(f"{name}={'NULL' if text is None else text}" for name, text in one.row)
    return f"{row} ({', '.join(one.columns)})" if one.columns else row


def _state(one: VerifiedTable) -> str:
    return "bad" if not one.found.same else "warning" if one.found.unknown else "good"


def _summary(tables: Sequence[VerifiedTable], lsn: int) -> str:
    different = sum(not one.found.same for one in tables)
    if different:
        return f"{counted(different, 'table')} of {len(tables)} different at {lsn_text(lsn)}"
    unknown = sum(one.found.unknown for one in tables)
    words = f", as far as the state knows them ({counted(unknown, 'row')} with unknown values)" if unknown else ""
    return f"{counted(len(tables), 'table')} equal at {lsn_text(lsn)}{words}"
