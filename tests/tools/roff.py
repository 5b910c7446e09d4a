"""A small part of Markdown as man page source: headings, paragraphs, lists, tables, fences, `code`, *names*.

Text between fences or backticks is shown literally; everything that roff would interpret is escaped.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

_ESCAPES = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
)
_INLINE = re.compile(
    r"`(?P<code>[^`]+)`"
    r"|(?<!\w)\*(?P<name>[^*\s](?:[^*]*[^*\s])?)\*"
    r"|(?P<page>\b[a-z][\w-]*)\((?P<section>[1-8])\)"
    r"|(?<![\w-])(?P<option>--?[a-zA-Z][\w-]*)"
)
_COMMENT = re.compile(r"^ *<!--.*?-->\n", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^( *)```\w*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def escape(text: str) -> str:
    """Text with everything escaped that roff would take for an instruction."""
    return _guarded(text.translate(_ESCAPES))


def _guarded(line: str) -> str:
    return "\\&" + line if line.startswith(".") else line


def bold(text: str) -> str:
    """Text to be typed literally."""
    return rf"\fB{escape(text)}\fP"


def italic(text: str) -> str:
    """A placeholder."""
    return rf"\fI{escape(text)}\fP"


def inline(text: str) -> str:
    """Text of a paragraph on one line: `code`, *names*, options and page(5) in their type."""
    done, parts = 0, []
    for match in _INLINE.finditer(text):
        parts.append(text[done : match.start()].translate(_ESCAPES))
        done = match.end()
        if match["name"]:
            parts.append(italic(match["name"]))
        elif match["page"]:
            parts.append(f"{bold(match['page'])}({match['section']})")
        else:
            parts.append(bold(match["code"] or match["option"]))
    return _guarded("".join(parts) + text[done:].translate(_ESCAPES))


def prose(lines: Iterable[str]) -> Iterator[str]:
    """A paragraph, in lines that read well in the source too."""
    text = inline(" ".join(line.strip() for line in lines))
    yield from map(_guarded, textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False))


def verbatim(lines: Iterable[str]) -> Iterator[str]:
    """Lines shown as they are."""
    yield ".EX"
    yield from map(escape, lines)
    yield ".EE"


def heading(text: str) -> str:
    """A section's first line."""
    return f".SH {escape(text.upper())}"


def from_markdown(text: str) -> Iterator[str]:
    """The lines of a part. Comments are left out; an indented block belongs to the definition or item above it."""
    above = ""
    for line in _lines(text):
        if not (line == ".PP" and above.startswith(".S")):  # a heading begins a paragraph by itself
            yield line
        above = line


def _lines(text: str) -> Iterator[str]:
    pieces = _FENCED.split(_COMMENT.sub("", text))
    for around, indent, fenced in zip(pieces[::3], [*pieces[1::3], ""], [*pieces[2::3], ""], strict=True):
        for block in re.split(r"\n\s*\n", around.strip("\n")):
            yield from _block(block.split("\n"))
        if fenced:
            yield ".IP" if indent else ".PP"
            yield from verbatim(line.removeprefix(indent) for line in fenced.rstrip("\n").split("\n"))


def _block(block: list[str]) -> Iterator[str]:
    first = block[0]
    if first.startswith("#"):
        level, _, title = first.partition(" ")
        yield heading(title) if level == "#" else f".SS {escape(title)}"
    elif len(block) > 1 and block[1].startswith(":   "):
        yield from (".TP", inline(first), *prose([block[1][4:], *block[2:]]))
    elif first.startswith("| "):
        yield from _table([line.strip("| ").split(" | ") for line in (first, *block[2:])])
    elif first.startswith("1. "):
        numbered = re.split(r"^(\d+\.) ", "\n".join(block), flags=re.MULTILINE)[1:]
        for number, item in zip(numbered[::2], numbered[1::2], strict=True):
            yield from (f".IP {number} 4", *prose(item.split("\n")))
    elif first.startswith("- "):
        for item in re.split(r"^- ", "\n".join(block), flags=re.MULTILINE)[1:]:
            yield from (r".IP \(bu 2", *prose(item.split("\n")))
    elif first.strip():
        yield from (".IP" if first.startswith("    ") else ".PP", *prose(block))


def _table(rows: list[list[str]]) -> Iterator[str]:
    """A table with a line of titles; the columns after a narrow first one are equally wide."""
    others = len(rows[0]) - 1
    yield from (".TS", f"lb{' lb' * others}", f"l{f' lw({52 // others}n)' * others}.")
    yield from ("\t".join(map(inline, rows[0])), "_")
    for row in rows[1:]:
        yield from "\t".join(["T{\n" + "\n".join(prose([cell])) + "\nT}" for cell in row]).split("\n")
    yield ".TE"
