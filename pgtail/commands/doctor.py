"""`pgtail doctor`: the findings as a report for people, the worst last, or as lines of JSON."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from pgtail.commands.connect import connector_of
from pgtail.commands.console.styling import report_json, report_palette, terminal_width
from pgtail.commands.options.server import DoctorOptions
from pgtail.commands.output.file_sink import open_sink
from pgtail.doctor import COMMENT, Finding, Report, Severity, examine
from pgtail.files.stopping import begin
from pgtail.humanize import counted
from pgtail.terminal.escape import escape, escape_sql, json_line
from pgtail.terminal.layout import SPACE, Item, indented, padding, paragraph, width_of, wrap
from pgtail.terminal.style import Fragment, Painter, Palette

_STYLES: Final = {Severity.OK: "good", Severity.WARNING: "warning", Severity.PROBLEM: "bad"}
_SEVERITY_WIDTH: Final = 9
_MARGIN: Final = 2 + _SEVERITY_WIDTH
_MAX_SUBJECTS: Final = 5
_MAX_CURE_LINES: Final = 8
_SQL_WORD: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")
"""A part of a statement that must not be broken."""


def run(options: DoctorOptions) -> int:
    """Examine a server, write the report, and return the exit status. Raises PgtailError and ClosedPipe."""
    palette = report_palette(options.report)
    begin()
    report = examine(connector_of(options.connection))
    least = Severity.PROBLEM if options.verbosity.quiet else Severity.OK
    if palette is None:
        text = report_json(_json(report, least), options.report)
    else:
        text = render(report, palette, least, width=terminal_width())
    with open_sink(None) as sink, contextlib.suppress(KeyboardInterrupt):
        sink.show(text)
    return int(report.severity)


def _json(report: Report, least: Severity) -> str:
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
        if finding.severity >= least
    ]
    return "".join(map(json_line, lines))


def render(report: Report, palette: Palette, least: Severity, *, width: int) -> str:
    """The findings of at least this severity as text of at most `width` cells a line, as far as names allow.

    The worst come last, above a line that counts all: a terminal shows the end of a long report first.
    """
    painter = Painter(palette)
    return painter.lines(_lines(report, least, max(width, 40)))


def _lines(report: Report, least: Severity, width: int) -> Iterator[list[Fragment]]:
    server = report.server
    title = f"PostgreSQL {server.version_text} at {server.address}, database {server.database}, role {server.role}"
    if report.provider is not None:
        title += f", {report.provider.name}"
    yield from paragraph(escape(title), "value", width)
    for severity in Severity:
        for family, findings in report.findings.items():
            those = [finding for finding in findings if finding.severity is severity >= least]
            if those:
                yield []
                yield [(family if severity is Severity.OK else f"{family}: {severity.word}s", "table")]
            for _, alike in itertools.groupby(those, lambda one: (one.check, len(one.cure), one.cure[:1])):
                yield from _findings([*alike], width)
    yield []
    counts = {severity: sum(one.severity is severity for _, one in report.all()) for severity in Severity}
    yield [
        (f"{counts[Severity.OK]} ok, ", "plain"),
        (counted(counts[Severity.WARNING], "warning"), "warning" if counts[Severity.WARNING] else "plain"),
        (", ", "plain"),
        (counted(counts[Severity.PROBLEM], "problem"), "bad" if counts[Severity.PROBLEM] else "plain"),
    ]


def _findings(findings: Sequence[Finding], width: int) -> Iterator[list[Fragment]]:
    """Findings of a check whose cures begin alike, and below them the cures, with what they have in common once."""
    for finding in findings:
        yield from _finding(finding, width)
    if findings[0].severity is Severity.OK:
        return
    lines = [line for same in zip(*[one.cure for one in findings], strict=True) for line in dict.fromkeys(same)]
    for cure in lines[:_MAX_CURE_LINES]:
        yield from indented(_cure(escape(cure), width - _MARGIN), _MARGIN)
    if len(lines) > _MAX_CURE_LINES:
        more = f"… and {len(lines) - _MAX_CURE_LINES} more (-o json has them all)"
        yield [padding(_MARGIN), (more, "note")]


def _finding(finding: Finding, width: int) -> Iterator[list[Fragment]]:
    """A finding without its cure."""
    style = _STYLES[finding.severity]
    text_style = "dim" if finding.severity is Severity.OK else "value"
    word = finding.severity.word
    head: list[Fragment] = [(f"● {word}", style), padding(_SEVERITY_WIDTH - len(word))]
    for line in _wrapped(finding.text, text_style, width):
        yield [*head, *line]
        head = [padding(_MARGIN)]
    if finding.severity is Severity.OK:
        return
    if len(finding.subjects) > 1 or any(escape_sql(name) not in finding.text for name in finding.subjects):
        yield from indented(_wrapped(_subjects(finding.subjects), "table", width), _MARGIN)


def _cure(text: str, width: int) -> Iterator[list[Fragment]]:
    """A line of a cure, wrapped so that it can be pasted: comments are repeated, SQL is broken outside of quotes.

    A shell could not run a command of which a line begins with a comment: it is not broken.
    """
    if text.startswith(f"{COMMENT}pgtail "):
        yield [(COMMENT, "value"), (text.removeprefix(COMMENT), "cure")]
        return
    if not text.startswith(COMMENT):
        yield from wrap([_sql(text, "cure", width)], width)
        return
    room = width - len(COMMENT)
    for line in wrap([_sql(text.removeprefix(COMMENT), "value", room)], room):
        yield [(COMMENT, "value"), *line]


def _wrapped(text: str, style: str, width: int) -> Iterator[list[Fragment]]:
    return paragraph(escape(text), style, width - _MARGIN)


def _sql(text: str, style: str, width: int) -> Item:
    """Text that is broken between words outside of quotes, if it is longer than a line."""
    words = [text] if width_of(text) <= width else _SQL_WORD.findall(text)
    return tuple([fragment for word in words for fragment in (SPACE, (word, style))][1:])


def _subjects(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(map(escape_sql, names[:_MAX_SUBJECTS]))
    return shown if len(names) <= _MAX_SUBJECTS else f"{shown} … and {len(names) - _MAX_SUBJECTS} more"
