"""`pgtail help`: the help of a command, or a manual page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import click

import pgtail
from pgtail.cli import main
from pgtail.cli.command import Command
from pgtail.commands.console.messages import exit_statuses
from pgtail.commands.output.file_sink import put
from pgtail.errors import OptionError


def show(page: str) -> None:
    """Show a page such as pgtail-filter.7. Raises OptionError if it is not installed, or if man is not."""
    path = _found(page, f"man/man{page.rpartition('.')[2]}")
    try:
        subprocess.run(["man", path], check=False)
    except FileNotFoundError:
        cure = "on Debian and Ubuntu: apt install man-db"
        raise OptionError(f"the program man is not installed ({cure}); the page is {path}") from None


def _found(name: str, folder: str) -> Path:
    """A file of man/ in a checkout, or where pip installs it below share/. Raises OptionError."""
    places = (Path(pgtail.__file__).parents[1] / "man" / name, Path(sys.prefix, "share", folder, Path(name).name))
    for path in places:
        if path.is_file():
            return path
    raise OptionError(f"man/{name} of pgtail's sources is not installed")


SCHEMAS: Final = {
    **{name: name for name in (*("json", "json-tx", "wal2json", "wal2json-v1", "debezium"), "stats", "doctor", "log")},
    "expect": "json",
    "slot-list": "slot-list",
    "capture-list": "capture-list",
}
"""What programs read, by name -> the file of its JSON Schema."""


_PAGES: Final = """tutorial.7 filter.7 output.5 json.5 formats.5 input.5 server.7 options.7 config.5 redact.7 \
old-values.7 follow.3 arrow.3 capture.5 storage.7 service.7 metrics.7 spark-source.7 spark-cluster.7 security.7 \
changes.7"""
PAGES: Final = {"pgtail": "pgtail.1", "python": "pgtail.3", **{page[:-2]: f"pgtail-{page}" for page in _PAGES.split()}}
"""Word -> the manual page about it. That of the command config is shown by `pgtail config --help`."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Commands, after a command its subcommands or the groups of its options."""
    topic: click.Command | None = main
    for word in ctx.params.get("words") or ():
        topic = topic.get_command(ctx, word) if isinstance(topic, click.Group) else None
    if isinstance(topic, click.Group):
        names = [*topic.list_commands(ctx), *(PAGES if topic is main else ())]
        return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
    return topic.help_values(click.Context(topic), incomplete) if isinstance(topic, Command) else []


@click.command("help", cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND|PAGE]... [all|GROUP]", shell_complete=_complete)
@click.option(
    "--schema",
    metavar="NAME",
    type=click.Choice(SCHEMAS),
    help="Print the JSON Schema of an output: " + ", ".join(SCHEMAS) + ".",
)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], schema: str | None) -> None:
    """Show the help of a command, or a manual page.

    The same as --help after the command: without more the options used most, with all every option, with the name of
    a group the options of that group. The pages are pgtail (what the commands have in common), tutorial, filter (which
    changes are shown), output (tables and lines), json, formats, input (forms of dumps), server, options, config,
    redact, old-values, python (the library), follow, arrow, capture, storage, service, metrics, spark-source,
    spark-cluster, security, and changes (between versions).

    \b
    pgtail help stream
    pgtail help stream all
    pgtail help decode filter
    pgtail help slot create
    pgtail help filter
    pgtail help --schema json
    """
    if schema is not None:
        with exit_statuses():
            put(_found(f"schema/{SCHEMAS[schema]}.json", "pgtail/schema").read_text("utf-8").rstrip("\n"))
        return
    if len(words) == 1 and words[0] in PAGES:
        with exit_statuses():
            show(PAGES[words[0]])
        return
    topic: click.Command | None = main
    names = 0
    while isinstance(topic, click.Group) and names < len(words):
        topic = topic.get_command(ctx, words[names])
        names += 1
    more = [] if topic is None else ["--help"]  # a command that does not exist is an error
    rest = words[names:]
    asked = topic.help_values(click.Context(topic), "") if isinstance(topic, Command) else []
    if isinstance(topic, Command) and not asked and rest == ("all",):
        rest = ()  # its help always shows all options
    if topic is not None and rest and (len(rest) > 1 or rest[0] not in asked):
        after = f"expected {', '.join(asked)}, or nothing" if asked else "expected nothing"
        raise click.UsageError(f"{' '.join(rest)!r} after {words[names - 1]}: {after}", ctx)
    main([*words[:names], *more, *rest], prog_name="pgtail")
