"""Every option that a message advises exists: in the command that the message names, or in some command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pgtail
from tests.tools import make_man

_ROOT: Final = Path(pgtail.__file__).parent
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_COMMAND: Final = re.compile(r"pgtail ((?:[a-z]+ ?)+)")
_OTHER_PROGRAMS: Final = re.compile(r"(?:pip|hadoop classpath) [^;]*")
_NO_MESSAGES: Final = ("cli/", "demo/", "spark/session.py", "stats/report_html.py", "__init__.py")
"""The help, the arguments of other programs, a style sheet, and what is no text of the program; nor are declarations of
options."""
COMMANDS: Final = {
    context.command_path.removeprefix("pgtail "): {
        name for one in make_man.options(context) for name in (*one.opts, *one.secondary_opts)
    }
    for context in make_man.commands()
    if context.parent is not None
}


def texts() -> Iterator[tuple[str, str]]:
    """Every text in the source but docstrings, with its place; what is not constant is {}."""
    for path in sorted(_ROOT.rglob("*.py")):
        name = str(path.relative_to(_ROOT))
        if name.startswith(_NO_MESSAGES) or "options" in name:
            continue
        tree = ast.parse(path.read_text())
        inner = {
            child for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Expr) for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield f"{name}:{node.lineno}", "".join(map(_part, node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
                yield f"{name}:{node.lineno}", node.value


def _part(part: ast.expr) -> str:
    """A part of an f-string."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    shown = part.value if isinstance(part, ast.FormattedValue) else None
    return "pgtail" if isinstance(shown, ast.Name) and shown.id == "COMMAND" else "{}"


def advised(text: str) -> Iterator[tuple[str | None, str]]:
    """The options in a text, with the command named before each in its sentence, None without one."""
    for sentence in re.split(r"[.;:)] |\n|\(|, then ", _OTHER_PROGRAMS.sub("", text)):
        for match in _OPTION.finditer(sentence):
            named = [one[1].split() for one in _COMMAND.finditer(sentence[: match.start()])]
            yield (_command_of(named[-1]) if named else None), match[0]


def _command_of(words: list[str]) -> str:
    """`slot create` of `slot create and`, `stream` of `stream without`."""
    return " ".join(words[: 2 if " ".join(words[:2]) in COMMANDS else 1])


def test_a_message_names_only_options_that_exist() -> None:
    every, seen = set().union(*COMMANDS.values()), 0
    for place, text in texts():
        for named, option in advised(text):
            assert option in (every if named is None else COMMANDS.get(named, ())), f"{place}: {named} {option}: {text}"
            seen += named is not None
    assert seen > 20
