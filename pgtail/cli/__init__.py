"""Floor 7, the terminal roof: one file per command and one line in COMMANDS; imports click and nothing heavier."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import click

from pgtail import __version__
from pgtail.entry import INTERRUPTED

COMMANDS: Final = {
    "stream": "pgtail.cli.stream",
    "decode": "pgtail.cli.decode",
    "record": "pgtail.cli.record",
    "spark": "pgtail.cli.spark",
    "inspect": "pgtail.cli.inspect",
    "slot": "pgtail.cli.slot",
    "doctor": "pgtail.cli.doctor",
    "stats": "pgtail.cli.stats",
    "expect": "pgtail.cli.expect",
    "demo": "pgtail.cli.demo",
    "config": "pgtail.cli.config",
    "completion": "pgtail.cli.completion",
}
"""Name -> module, which holds the command as `command`: loaded when it is needed."""

SUMMARIES: Final = {
    "pgtail.cli.stream": "Tail a replication slot, as tables or JSON.",
    "pgtail.cli.decode": "Decode dumps of pgoutput messages.",
    "pgtail.cli.record": "Keep a lossless capture of a slot in a directory.",
    "pgtail.cli.spark": "Turn captures into tables, on Spark.",
    "pgtail.cli.inspect": "Show a dump byte by byte.",
    "pgtail.cli.slot": "List, create, drop, advance and copy replication slots.",
    "pgtail.cli.doctor": "Look at a server's setup for logical replication, and say what to do about it.",
    "pgtail.cli.config": "Show the settings in force, and where they come from.",
    "pgtail.cli.stats": "Tell who writes what: by table, transaction, time and key.",
    "pgtail.cli.expect": "Wait for changes, for tests and CI.",
    "pgtail.cli.demo": "Show what pgtail does, on an embedded server.",
    "pgtail.cli.completion": "Print the completion script of a shell.",
}
"""Module -> its first sentence once more, so that --help need not load it; a test compares."""


@contextlib.contextmanager
def _not_begun() -> Iterator[None]:
    """Ctrl-C that gets here came before the command had begun: else it would have ended in its own way."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


class Commands(click.Group):
    """A group that imports a command's module when the command is used; `modules` has them by name."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, SUMMARIES.get(module) or self._summary(ctx, name)) for name, module in self._modules.items()]
            )

    def _summary(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(200)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            for close in difflib.get_close_matches(args[0], self._modules, 1):
                raise click.UsageError(f"{error.message} Did you mean {close}?", ctx) from None
            raise

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _not_begun():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _not_begun():
            return super().invoke(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = self._modules.get(cmd_name)
        if module is None:
            return None
        command: click.Command = import_module(module).command
        return command


def _tell_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from pgtail.cli.sinks import put
        from pgtail.cli.standard import exit_statuses
        from pgtail.compiled import how_rows_run

        with exit_statuses():
            put(f"pgtail {__version__}, {how_rows_run()}")
        ctx.exit()


@click.group(
    cls=Commands, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Tell the version, and how rows are read: compiled, or in plain Python.",
)
def main() -> None:
    """Tail, decode and inspect PostgreSQL logical replication (pgoutput).

    \b
    pgtail stream --slot S         tail a slot, without consuming it
    pgtail decode FILE... | jq .   dumps of any form, as lines of JSON
    pgtail spark changes DIR OUT   captures to tables, on Spark
    pgtail inspect FILE            every message byte by byte
    pgtail demo                    all of it on an embedded server
    """
