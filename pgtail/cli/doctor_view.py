"""Floor 7, what the doctor found: for people by family, what is wrong in colour, and as lines of JSON."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from typing import Any, Final

from pgtail.cli.common import report_palette
from pgtail.cli.connecting import connector_of
from pgtail.cli.sinks import open_sink
from pgtail.outputs.amounts import counted
from pgtail.outputs.escape import escape, in_json
from pgtail.outputs.table_layout import SPACE, Item, padding, sentence, width_of, wrap
from pgtail.outputs.table_style import Fragment, Painter, Palette
from pgtail.server.doctor import Finding, Report, Severity, examine
from pgtail.unhurried import orjson

_STYLES: Final = {Severity.OK: "good", Severity.WARNING: "warning", Severity.PROBLEM: "bad"}
_WORD: Final = 9
_MARGIN: Final = 2 + _WORD
_MOST: Final = 5
"""Subjects and lines of a cure that a person is shown."""
_WORDS: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")


def show(options: dict[str, Any]) -> int:
    """Examine, write what was found, and return the exit status. Raises PgtailError, and ClosedPipe."""
    palette = report_palette(options)
    report = examine(connector_of(options))
    if palette is None:
        text = _json(report)
    else:
        text = render(report, palette, width=shutil.get_terminal_size((100, 24)).columns)
    with open_sink(None) as sink, contextlib.suppress(KeyboardInterrupt):
        sink.write(text.encode("utf-8", "backslashreplace"))
        sink.flush()
    return int(report.severity)


def _json(report: Report) -> str:
    lines = [
        {
            "family": family,
            "check": finding.check,
            "severity": finding.severity.word,
            "text": finding.text,
            "subjects": finding.subjects,
            "cure": finding.cure,
        }
        for family, finding in report.all()
    ]
    return "".join([in_json(orjson.dumps(line).decode()) + "\n" for line in lines])


def render(report: Report, palette: Palette, *, width: int) -> str:
    """The report as text of at most `width` cells a line, as far as names allow."""
    painter = Painter(palette)
    return "".join([painter.line(line) + "\n" for line in _lines(report, max(width, 40))])


def _lines(report: Report, width: int) -> Iterator[list[Fragment]]:
    server = report.server
    words = f"PostgreSQL {server.version_text} at {server.address}, database {server.database}, role {server.role}"
    if report.provider is not None:
        words += f", {report.provider.name}"
    yield from wrap([sentence(escape(words), "value", width)], width)
    for family, findings in report.findings.items():
        yield []
        yield [(family, "table")]
        for finding in findings:
            yield from _finding(finding, width)
    yield []
    counts = {severity: sum(one.severity is severity for _, one in report.all()) for severity in Severity}
    yield [
        (f"{counts[Severity.OK]} ok, ", "plain"),
        (counted(counts[Severity.WARNING], "warning"), "warning" if counts[Severity.WARNING] else "plain"),
        (", ", "plain"),
        (counted(counts[Severity.PROBLEM], "problem"), "bad" if counts[Severity.PROBLEM] else "plain"),
    ]


def _finding(finding: Finding, width: int) -> Iterator[list[Fragment]]:
    style = _STYLES[finding.severity]
    text_style = "dim" if finding.severity is Severity.OK else "value"
    head: list[Fragment] = [("● ", style), (finding.severity.word.ljust(_WORD), style)]
    for line in _wrapped(finding.text, text_style, width):
        yield [*head, *line]
        head = [padding(_MARGIN)]
    if finding.severity is Severity.OK:
        return
    if len(finding.subjects) > 1 or any(name not in finding.text for name in finding.subjects):
        for line in _wrapped(_cut(", ".join(finding.subjects[:_MOST]), len(finding.subjects)), "table", width):
            yield [padding(_MARGIN), *line]
    for cure in finding.cure[:_MOST]:
        for line in wrap([_unbroken(escape(cure), "lsn", width - _MARGIN)], width - _MARGIN):
            yield [padding(_MARGIN), *line]
    if len(finding.cure) > _MOST:
        yield [padding(_MARGIN), (_cut("", len(finding.cure)) + " (-o json has them all)", "note")]


def _wrapped(text: str, style: str, width: int) -> Iterator[list[Fragment]]:
    room = width - _MARGIN
    yield from wrap([sentence(escape(text), style, room)], room)


def _unbroken(text: str, style: str, width: int) -> Item:
    """A cure that can be pasted: where it is longer than a line, it is broken outside of quotes."""
    words = [text] if width_of(text) <= width else _WORDS.findall(text)
    return tuple([fragment for word in words for fragment in (SPACE, (word, style))][1:])


def _cut(text: str, number: int) -> str:
    """The text, and how many more there are."""
    return text if number <= _MOST else f"{text} … and {number - _MOST} more".strip()
