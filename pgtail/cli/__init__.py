"""The command line: a module per command and a line in COMMANDS. Imports click and nothing heavier."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from pgtail import __version__
from pgtail.cli.command import Command, plain_errors

COMMANDS: Final = {
    "stream": "Tail a replication slot, as tables or JSON.",
    "decode": "Decode dumps of pgoutput messages.",
    "record": "Record a slot, or dumps, losslessly in a directory.",
    "capture": "List and verify the segments of a capture, and remove the oldest ones.",
    "show": "Show the rows of a table as they were.",
    "spark": "Turn captures into tables, on Spark.",
    "inspect": "Show the bytes and fields of a dump.",
    "slot": "List, create, drop, advance and copy replication slots.",
    "ddl": "Make a server send schema changes, too, as messages.",
    "doctor": "Check a server's setup for logical replication, and say how to fix it.",
    "stats": "Count what is written: by table, transaction, time and key.",
    "expect": "Wait for changes, for tests and CI.",
    "demo": "Show what pgtail does, on an embedded server.",
    "config": "Show the settings in force, and where they come from.",
    "completion": "Print the completion script of a shell.",
    "help": "Show the help of a command, or a manual page.",
}
"""Name -> the first sentence of its help, so that --help need not import it; a test compares them.

A module of this package with the same name has the command as `command`. It is imported when it is used, and imports
the module of pgtail.commands when it runs, so that help and completion start fast.
"""


class Commands(click.Group):
    """A group that lists its commands in their order and suggests a name for a misspelled one.

    `summaries` are those of commands in modules of this package, by name; `aliases` are short names of commands.
    """

    command_class = Command

    def __init__(
        self,
        *args: Any,
        summaries: Mapping[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._summaries = summaries or {}
        self._aliases = aliases or {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in self.list_commands(ctx)])

    def _summary(self, ctx: click.Context, name: str) -> str:
        return self._summaries.get(name) or self.commands[name].get_short_help_str(200)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._summaries, *self.commands]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from pgtail.humanize import similar

            meant = similar(args[0], self.list_commands(ctx))
            if meant is None:
                raise
            raise click.UsageError(f"{error.message} Did you mean {meant}?", ctx) from None

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with plain_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with plain_errors():
            return super().invoke(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._summaries:
            return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command


def _print_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from pgtail.commands.console.messages import exit_statuses
        from pgtail.commands.output.file_sink import put
        from pgtail.native import implementation_name

        with exit_statuses():
            put(f"pgtail {__version__}, {implementation_name()}")
        ctx.exit()


@click.group(
    cls=Commands, summaries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version, and whether rows are decoded by compiled code or plain Python.",
)
def main() -> None:
    """Tail, decode and inspect PostgreSQL logical replication (pgoutput).

    \b
    pgtail stream --slot S         tail a slot, without consuming it
    pgtail decode FILE... | jq .   dumps of any form, as JSON
    pgtail spark changes DIR OUT   captures to tables, on Spark
    pgtail inspect FILE            the bytes of every message
    pgtail demo                    try it on an embedded server

    Manual pages: pgtail help pgtail, tutorial, filter, output, json, formats, input, server, options, config, redact,
    old-values, python, follow, arrow, capture, storage, service, metrics, spark-source, spark-cluster, security or
    changes.
    Who wrote a change, and what else the stream does not say: pgtail help server.
    """


if "_PGTAIL_COMPLETE" in os.environ:
    import_module("pgtail.cli.completion")  # how click answers a shell
