"""Writes the man pages from the commands' own help and the hand-written parts under man/parts: `make man`.

A command's page has its name, synopsis, description, commands and options from click, then the sections of
man/parts/PAGE.md, if that exists. SEE ALSO has the pages that it mentions. A part that belongs to no command is a page
of its own; that of pgtail-options has the table of all options below it. A new command or option needs no edit here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from pgtail import __version__
from pgtail.cli import main
from pgtail.cli.command import GROUPS, groups, title
from tests.tools import make_schemas
from tests.tools.roff import bold, escape, from_markdown, heading, italic, prose, verbatim

MAN = Path(__file__).parents[2] / "man"
PARTS = MAN / "parts"

_METAVARS = {"integer": "N", "integer range": "N", "float": "N", "float range": "N", "path": "FILE", "filename": "FILE"}
_SEE_ALSO = "SEE ALSO"
_TABLE = "pgtail-options.7"


def commands() -> Iterator[click.Context]:
    """A click context for pgtail and each of its commands, including those of groups."""
    yield from _contexts(main, "pgtail", None)


def _contexts(command: click.Command, name: str, parent: click.Context | None) -> Iterator[click.Context]:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    command.get_help_option(context)  # click caches the first one it makes; subcommands ask for it
    yield context
    if isinstance(command, click.Group):
        for subcommand in command.list_commands(context):
            found = command.get_command(context, subcommand)
            assert found is not None
            yield from _contexts(found, subcommand, context)


def page_name(context: click.Context) -> str:
    """pgtail-decode.1 for `pgtail decode`."""
    return f"{context.command_path.replace(' ', '-')}.1"


def options(context: click.Context) -> list[click.Option]:
    """The visible options of a command, including --help."""
    return [one for one in context.command.get_params(context) if isinstance(one, click.Option) and not one.hidden]


def pages() -> dict[str, str]:
    """Every page's source by its file name."""
    found = {page_name(context): context for context in commands()}
    separate = sorted(part.stem for part in PARTS.glob("*.md") if part.stem not in found)
    names = [*found, *separate]
    made = {name: _page(name, [*_command(context), *_part(name)], names) for name, context in found.items()}
    rest = {name: [*_part(name), *(_table() if name == _TABLE else ())] for name in separate}
    return made | {name: _page(name, lines, names) for name, lines in rest.items()}


def _page(name: str, lines: list[str], names: list[str]) -> str:
    title, _, section = name.rpartition(".")
    head = [
        *(["'\\\" t"] if ".TS" in lines else []),
        rf".\" Made by `make man` from the command's help and man/parts/{name}.md: edit those.",
        rf'.TH {escape(title.upper())} {section} "" "pgtail {__version__}" "pgtail manual"',
        ".ad l",
        ".nr HY 0",
    ]
    text = re.sub(r"\\f[BIP]|\\(?=-)", "", "\n".join(lines))
    related = [other for other in names if "pgtail.1" in (name, other) or re.search(_reference(other), text)]
    others = [f"{bold(other.rpartition('.')[0])}({other.rpartition('.')[2]})" for other in related if other != name]
    own = [*(f"{other}," for other in others[:-1]), *others[-1:]]
    if heading(_SEE_ALSO) in lines:
        place = lines.index(heading(_SEE_ALSO)) + 1
        lines = [*lines[:place], *own[:-1], own[-1] + ",", *lines[place:]]
    else:
        lines = [*lines, heading(_SEE_ALSO), *own]
    return "\n".join([*head, *lines, ""])


def _reference(page: str) -> str:
    """A pattern of pgtail-decode(1) for pgtail-decode.1."""
    title, _, section = page.rpartition(".")
    return rf"(?<![\w-]){re.escape(title)}\({section}\)"


def _part(name: str) -> Iterator[str]:
    part = PARTS / f"{name}.md"
    if part.exists():
        yield from from_markdown(part.read_text(encoding="utf-8").rstrip("\n"))


def _command(context: click.Context) -> Iterator[str]:
    yield heading("NAME")
    summary = context.command.get_short_help_str(200).rstrip(".")
    summary = summary[:1].lower() + summary[1:]
    yield rf"{escape(context.command_path.replace(' ', '-'))} \- {escape(summary)}"
    yield heading("SYNOPSIS")
    yield " ".join([bold(context.command_path), r"[\fIOPTION\fP]...", *_arguments(context)])
    yield heading("DESCRIPTION")
    yield from _help(context.command)
    if isinstance(context.command, click.Group):
        yield heading("COMMANDS")
        yield from _subcommands(context)
    yield heading("OPTIONS")
    grouped = groups(options(context))
    for name, those in grouped.items():
        if len(grouped) > 1:
            yield f".SS {escape(title(name, grouped))}"
        for option in those:
            yield ".TP"
            yield _invocation(option)
            yield from prose([_described(option)])


def _arguments(context: click.Context) -> Iterator[str]:
    if isinstance(context.command, click.Group):
        yield r"\fICOMMAND\fP [\fIARGUMENT\fP]..."
    for argument in context.command.get_params(context):
        if isinstance(argument, click.Argument):
            choices = _choices(argument.type)
            several = argument.metavar.endswith("...") if argument.metavar else argument.nargs == -1
            name = (argument.metavar or (argument.name or "").upper()).removesuffix("...").strip("[]")
            text = choices or italic(name)
            yield (text if argument.required else f"[{text}]") + ("..." if several else "")


def _help(command: click.Command) -> Iterator[str]:
    """The docstring: paragraphs, and verbatim blocks after a line of \\b."""
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield from verbatim(paragraph.removeprefix("\b").strip("\n").split("\n"))
        else:
            yield from prose(paragraph.split("\n"))


def _subcommands(context: click.Context) -> Iterator[str]:
    for found in commands():
        if found.parent is not None and found.parent.command is context.command:
            yield ".TP"
            yield f"{bold(page_name(found).removesuffix('.1'))}(1)"
            yield escape(found.command.get_short_help_str(200))


def _choices(type_: object) -> str:
    return "|\\:".join(bold(str(choice)) for choice in type_.choices) if isinstance(type_, click.Choice) else ""


def _invocation(option: click.Option, *, choices: bool = True) -> str:
    """An option's names and its argument, with `choices` the values that it may have."""
    names = ", ".join(bold(name) for name in [*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    name = option.metavar or _METAVARS.get(option.type.name, option.type.name.upper())
    return f"{names} {(choices and not option.metavar and _choices(option.type)) or italic(name)}"


def _described(option: click.Option) -> str:
    words = [option.help or ""]
    if option.show_default and option.default is not None and not option.is_flag:
        shown = option.show_default if isinstance(option.show_default, str) else option.default
        words.append(f"Default: `{shown}`.")
    if option.envvar:
        names = [option.envvar] if isinstance(option.envvar, str) else option.envvar
        words.append(f"Environment: {', '.join(f'`{name}`' for name in names)}.")
    return " ".join(words)


def _table() -> Iterator[str]:
    """Every option of every command, by its name; options of one name that take different values are apart."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for context in commands():
        for group, those in groups(options(context)).items():
            for option in those:
                row = (_sort_key(option), _invocation(option, choices=False), GROUPS[group])
                rows.setdefault(row, []).append(context.command_path.partition(" ")[2] or "pgtail")
    yield from (".nh", ".TS", "lb lb lb", "lw(31n) lw(11n) lw(22n).", "Option\tGroup\tCommands", "_")
    for (_, names, group), paths in sorted(rows.items()):
        yield f"T{{\n{names}\nT}}\tT{{\n{escape(group)}\nT}}\tT{{\n{escape(', '.join(paths))}\nT}}"
    yield ".TE"


def _sort_key(option: click.Option) -> str:
    return next(name for name in option.opts if name.startswith("--"))


def write() -> None:
    """Write every page, and remove those of commands that no longer exist."""
    made = pages()
    for stale in {page.name for page in MAN.glob("*.[1-8]")} - set(made):
        (MAN / stale).unlink()
    for name, text in made.items():
        (MAN / name).write_text(text, encoding="utf-8")
    make_schemas.write()
    print(f"wrote {', '.join(sorted(made))} and the schemas in {MAN.name}/")


if __name__ == "__main__":
    write()
