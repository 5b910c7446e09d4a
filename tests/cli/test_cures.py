"""Every option that a message advises exists in the commands that can print it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import pgtail
from tests.tools import make_man

_ROOT: Final = Path(pgtail.__file__).parent
_OPTION: Final = re.compile(r"(?<![\w-])(?:--[a-z][a-z0-9-]+|-[A-Zdhp](?= [A-Z{]))")
"""An option, or the short form of one before its value."""
_COMMAND: Final = re.compile(r"pgtail ((?:[a-z]+ ?)+)")
_OTHER_PROGRAMS: Final = re.compile(r"(?:pip|hadoop classpath) [^;]*")
_NO_MESSAGES: Final = {"pgtail.demo.server", "pgtail.demo.installation", "pgtail.spark.java", "pgtail.__init__"}
"""The arguments of other programs, and what is no text of the program."""
_PRINTED_WITH: Final = {
    "pgtail.capture": "--directory",
    "pgtail.changes": "--where",
    "pgtail.changes.assembler": "--strict",
    "pgtail.changes.redaction": "--redact",
    "pgtail.changes.seen_rows": "--old-values",
    "pgtail.commands.capture_prune": "--applied",
    "pgtail.commands.checksums": "--verify",
    "pgtail.commands.column_check": "--redact",
    "pgtail.commands.connect": "--op",
    "pgtail.commands.connect --slot": "--slot",
    "pgtail.commands.decode --since": "--jobs",
    "pgtail.commands.decode_parts": "--jobs",
    "pgtail.commands.demo": "--proto-version",  # the arguments of the commands that it runs
    "pgtail.commands.expect": "--count",
    "pgtail.commands.jobs": "--jobs",
    "pgtail.commands.last": "--last",
    "pgtail.commands.metrics": "--max-lag",
    "pgtail.commands.output": "--format-string",
    "pgtail.commands.reading --resync": "--resync",
    "pgtail.commands.selection": "--where",
    "pgtail.commands.service": "--max-lag",
    "pgtail.commands.spark --delete": "--delete",
    "pgtail.commands.spark_verify": "--sample",
    "pgtail.commands.spark_verify --segment-age": "--segment-age",  # of pgtail record, which it names
    "pgtail.commands.stream": "--streaming",
    "pgtail.commands.spark_verify_report": "--snapshot-table",  # of pgtail record, which it names
    "pgtail.replication.tail --create-slot": "--create-slot",
    "pgtail.replication.tail --slot": "--create-slot",
    "pgtail.replication.tail --until": "--create-slot",
    "pgtail.inputs": "--input-format",
    "pgtail.outputs": "--format-string",
    "pgtail.postgres": "--publication",
    "pgtail.postgres.errors": "--host",
    "pgtail.postgres.errors --binary": "--binary",
    "pgtail.postgres.errors --allow-missing-publication": "--allow-missing-publication",
    "pgtail.postgres.pgoutput_options": "--origin",
    "pgtail.postgres.pgoutput_options --streaming": "--streaming",
    "pgtail.postgres.pgoutput_options --two-phase": "--two-phase",
    "pgtail.postgres.publications --exclude": "--exclude",
    "pgtail.postgres.publications --table": "--table",
    "pgtail.postgres.slots": "--slot",
    "pgtail.replication": "--publication",
    "pgtail.replication.decoding_errors --startpos": "--ack",
    "pgtail.replication.record_plan": "--segment-size",
    "pgtail.replication.plan --create-slot": "--create-slot",
    "pgtail.replication.plan --startpos": "--ack",
    "pgtail.replication.tail": "--reconnect",
    "pgtail.replication.tail --startpos": "--ack",
    "pgtail.spark.lake.update": "--table",
    "pgtail.spark.state.increment": "--allow-gap",
    "pgtail.storage": "--storage",
}
"""Which commands print the texts of a module or package, or those of its texts that name an option, which they complain
about and do not advise: the commands that have this option. The longest entry counts."""


class Text(NamedTuple):
    """A text in the source; what is not constant is {}. `refuses`: an OptionError about an option that was given."""

    module: str
    line: int
    text: str
    refuses: bool


def texts() -> Iterator[Text]:
    """Every text in the source but docstrings and the help."""
    for path in sorted(_ROOT.rglob("*.py")):
        module = ".".join(("pgtail", *path.relative_to(_ROOT).with_suffix("").parts))
        if module.startswith("pgtail.cli.") or module in _NO_MESSAGES:
            continue
        tree = ast.parse(path.read_text())
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node, above in parents.items():
            if isinstance(node, ast.JoinedStr):
                text = "".join(map(_part, node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if isinstance(above, (ast.Expr, ast.JoinedStr)) or _declares(node, parents):
                continue
            if module == "pgtail.commands.demo":
                text = text.replace("{} stream", "pgtail stream")
            yield Text(module.removesuffix(".__init__"), node.lineno, text, _refuses(node, parents))


def _part(part: ast.expr) -> str:
    """A part of an f-string, as in Text."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    shown = part.value if isinstance(part, ast.FormattedValue) else None
    return "pgtail" if isinstance(shown, ast.Name) and shown.id == "COMMAND" else "{}"


def _declares(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a text is part of an option's declaration: it is in a call with `help`, or in family()."""
    above = parents.get(node)
    if isinstance(above, ast.Call):
        named = isinstance(above.func, ast.Name) and above.func.id == "family"
        return named or any(one.arg == "help" for one in above.keywords) or _declares(above, parents)
    return above is not None and not isinstance(above, ast.stmt) and _declares(above, parents)


def _refuses(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    above = parents.get(node)
    if isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "OptionError":
        return True
    return above is not None and not isinstance(above, ast.stmt) and _refuses(above, parents)


def advised(text: str) -> Iterator[tuple[str | None, str]]:
    """The options in a text, with the command named before each in its sentence, None without one."""
    for sentence in re.split(r"[.;:)] |\n|\(|, then ", _OTHER_PROGRAMS.sub("", text)):
        for match in _OPTION.finditer(sentence):
            named = [one[1].split() for one in _COMMAND.finditer(sentence[: match.start()])]
            yield (_command_of(named[-1]) if named else None), match[0]


def _command_of(words: list[str]) -> str:
    """`slot create` of `slot create and`, `stream` of `stream without`."""
    return " ".join(words[: 2 if " ".join(words[:2]) in COMMANDS else 1])


def printers(text: Text, option: str) -> list[str]:
    """The commands that print an option in a text without naming a command."""
    if text.refuses:  # it combines options that were given
        others = {one for named, one in advised(text.text) if named is None}
        return [name for name, has in COMMANDS.items() if others <= has]
    keys = [key for key in _PRINTED_WITH if f"{text.module}.".startswith(f"{key}.") or key == f"{text.module} {option}"]
    assert keys, f"{text.module}:{text.line} names {option}: who prints it? (_PRINTED_WITH)"
    return [name for name, has in COMMANDS.items() if _PRINTED_WITH[max(keys, key=len)] in has]


COMMANDS: Final = {
    context.command_path.removeprefix("pgtail "): {
        name for one in make_man.options(context) for name in (*one.opts, *one.secondary_opts)
    }
    for context in make_man.commands()
    if context.parent is not None
}


@pytest.fixture(scope="module")
def found() -> list[Text]:
    """The texts that name an option."""
    return [text for text in texts() if any(advised(text.text))]


def test_a_message_names_only_options_that_its_command_has(found: list[Text]) -> None:
    missing = []
    for text in found:
        for named, option in advised(text.text):
            who = printers(text, option) if named is None else [named]
            assert who, f"no command has all the options of {text}"
            missing += [
                f"{command} has no {option}: {text}" for command in who if option not in COMMANDS.get(command, ())
            ]
    assert not missing, "\n".join(missing)


def test_the_texts_are_found(found: list[Text]) -> None:
    """Those that once advised what there was not, and others."""
    together = " ".join([text.text for text in found])
    for words in ("--reconnect continues", "pgtail stream --encoding NAME", "or pgtail record --allow-gap"):
        assert words in together


def test_every_entry_is_needed(found: list[Text]) -> None:
    used = {(text.module, option) for text in found for named, option in advised(text.text) if named is None}
    for key in _PRINTED_WITH:
        module, _, option = key.partition(" ")
        assert any(f"{one}.".startswith(f"{module}.") and option in ("", its) for one, its in used), key
