"""Every command: options in groups, --help in two sizes, one style of error. Imports click and nothing heavier."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import click

from pgtail.files.stopping import status_after

REMOVED: Final = {
    "--assume": "leave it out: the messages show whether a Stream Abort has an LSN and a time",
    "--critical": "leave it out: slots that retain 10 GB of WAL are red; -o json has wal_held_bytes",
    "--interval": "leave it out: --watch shows a report every 2 seconds",
    "--metrics-file": "--metrics PORT serves the metrics; curl http://127.0.0.1:PORT/metrics writes them to a file",
    "--unhealthy-after": "leave it out: /healthz answers 503 after 8 seconds; let what probes it allow some failures",
    "--within": "--timeout is its name",
    "--wrap": "--max-width 0 shows whole lines, which the terminal wraps",
    "stats --jobs": "leave it out; one process counts",
}
"""Option, of every command or of the one before it -> what to do instead. A setting has the name `--setting`."""


def cure_of_removed(option: str, command: str = "") -> str | None:
    """What to do instead of an option that a command (such as `spark changes`) had; None if it never had it."""
    return REMOVED.get(f"{command} {option}") or REMOVED.get(option)


GROUPS: Final = {
    "connection": "Connection",
    "slot": "Slot and publication",
    "range": "Start and stop",
    "filter": "Filter",
    "masking": "Masking",
    "output": "Output",
    "capture": "Capture",
    "snapshot": "Snapshot",
    "input": "Input",
    "protocol": "Protocol",
    "service": "Service",
    "other": "Other options",
}
"""Name -> heading, in the order of --help all."""

_ASKED: Final = "pgtail.help"


class GroupedOption(click.Option):
    """An option in a group (a key of GROUPS) of --help; `aliases` are names that work, and are not listed."""

    def __init__(self, *args: Any, group: str, aliases: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.aliases = aliases

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        listed, self.opts = self.opts, [*self.opts, *self.aliases]
        super().add_to_parser(parser, ctx)
        self.opts = listed


def groups(options: list[click.Option]) -> dict[str, list[click.Option]]:
    """The options by the name of their group, `other` without one, in the order of GROUPS."""
    found: dict[str, list[click.Option]] = {name: [] for name in GROUPS}
    for option in options:
        found[getattr(option, "group", "other")].append(option)
    return {name: those for name, those in found.items() if those}


def title(group: str, all_groups: dict[str, list[click.Option]]) -> str:
    """The heading of a group; a group that is alone has a general one."""
    return GROUPS[group] if len(all_groups) > 1 else "Options"


class CommandLineError(click.ClickException):
    """A wrong command line, shown as every other error is, with the way to the help."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        meant = _what_is_meant(error) if isinstance(error, click.NoSuchOption) else ""
        message = meant or " ".join(error.format_message().split())  # click breaks lines between choices
        super().__init__(message[:1].lower() + message[1:])
        self._path = None if error.ctx is None else error.ctx.command_path

    def show(self, file: Any = None) -> None:
        from pgtail.commands.console.messages import messages
        from pgtail.errors import COMMAND
        from pgtail.terminal.escape import escape

        cure = "" if self._path is None else f"\nfor help:{COMMAND}{self._path} --help"
        with messages() as logger:
            logger.error(f"{escape(self.message)}{cure}")


def _what_is_meant(error: click.NoSuchOption) -> str:
    """The message with what to do instead, the commands that have the option, or the most similar one, if any."""
    root = None if error.ctx is None else error.ctx.find_root()
    path = "" if root is None or error.ctx is None else error.ctx.command_path.removeprefix(f"{root.command_path} ")
    if (cure := cure_of_removed(error.option_name, path)) is not None:
        return f"{error.option_name} was removed: {cure}"
    names = [] if root is None else list(_with_option(root.command, root, error.option_name))
    if names:
        return f"{error.message} It is an option of pgtail {', '.join(names)}."
    meant = next((name for name in error.possibilities or () if name.startswith("--")), None)  # -t is like --tz
    return error.message if meant is None else f"{error.message} Did you mean {meant}?"


def _with_option(command: click.Command, ctx: click.Context, option: str, path: str = "") -> Iterator[str]:
    """The commands that have this option, below a command and itself."""
    if path and any(option in (*one.opts, *one.secondary_opts) for one in command.get_params(ctx)):
        yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            if (below := command.get_command(ctx, name)) is not None:
                yield from _with_option(below, ctx, option, f"{path} {name}".lstrip())


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Show a wrong command line as CommandLineError, and exit quietly when stopped before the command has started."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise SystemExit(status_after(stopped)) from None
    except click.UsageError as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            raise  # it is the help
        raise CommandLineError(error) from None


class Command(click.Command):
    """A command with options in groups; `first` names the parameters that --help shows, () for all.

    With `first`, --help takes `all` or the name of a group.
    """

    def __init__(self, *args: Any, first: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first = first
        self._help: click.Option | None = None

    def options(self, ctx: click.Context) -> list[click.Option]:
        """The visible options, --help last."""
        return [one for one in self.get_params(ctx) if isinstance(one, click.Option) and not one.hidden]

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option --help, which may take a value; one object for all parsers of the command."""
        if not self.first:
            return super().get_help_option(ctx)
        if self._help is None:
            self._help = click.Option(
                self.get_help_option_names(ctx),
                is_flag=False,
                flag_value="",
                metavar="[all|GROUP]",
                expose_value=False,
                is_eager=True,
                callback=_print_help,
                shell_complete=lambda ctx, param, incomplete: self.help_values(ctx, incomplete),
                help="Show the most used options, all, or a group.",
            )
        return self._help

    def help_values(self, ctx: click.Context, incomplete: str) -> list[str]:
        """The values of --help that begin so."""
        values = ["all", *groups(self.options(ctx))] if self.first else []
        return [value for value in values if value.startswith(incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and args and self._with_value(ctx, args[-1]):
            args = args[:-1]  # its value is being completed; with it, click would drop the arguments
        if not ctx.resilient_parsing:
            self._refuse_equals(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            error.ctx = ctx  # click leaves it out here
            raise

    def _refuse_equals(self, ctx: click.Context, args: list[str]) -> None:
        """After a short option a = would be part of the value, which nobody means. Raises UsageError."""
        for arg in args[: args.index("--") if "--" in args else None]:
            option = self._with_value(ctx, arg[:2]) if arg[2:3] == "=" else None
            if option is not None:
                long = next((f" or {name}={arg[3:]}" for name in option.opts if name.startswith("--")), "")
                raise click.UsageError(f"{arg}: no = follows a short option: write {arg[:2]} {arg[3:]}{long}", ctx)

    def _with_value(self, ctx: click.Context, word: str) -> click.Option | None:
        """The option with this name, if it takes a value."""
        options = [one for one in self.options(ctx) if word in (*one.opts, *one.secondary_opts)]
        return next((one for one in options if not (one.is_flag or one.count)), None)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.meta.get(_ASKED) in GROUPS:
            self.format_options(ctx, formatter)
        else:
            super().format_help(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        asked = ctx.meta.get(_ASKED, "")
        options = self.options(ctx)
        grouped = groups(options)
        write = partial(_write, ctx, formatter)
        if asked == "all" or not self.first:
            for name, those in grouped.items():
                write(title(name, grouped), those)
        elif asked in grouped:
            write(GROUPS[asked], grouped[asked])
        else:
            named = {one.name: one for one in options}
            write("Options", [*[named[name] for name in self.first], options[-1]])
            formatter.write_paragraph()
            formatter.write_text(
                f"--help all shows all {len(options)} options, --help GROUP those of a group: {', '.join(grouped)}."
            )


def _write(ctx: click.Context, formatter: click.HelpFormatter, head: str, options: list[click.Option]) -> None:
    with formatter.section(head):
        formatter.write_dl([record for one in options if (record := one.get_help_record(ctx))])


def _print_help(ctx: click.Context, param: click.Parameter, asked: str | None) -> None:
    if asked is not None and not ctx.resilient_parsing:
        ctx.meta[_ASKED] = asked
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
