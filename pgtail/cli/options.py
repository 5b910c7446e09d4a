"""The options of a command, made from a class of pgtail.commands.options.common. Imports click and nothing heavier."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from pgtail.cli import complete
from pgtail.cli.command import GROUPS, GroupedOption
from pgtail.cli.settings import Configured, ConfiguredArgument, always_redacted, given, select_zone, settings_in_use
from pgtail.commands.console.messages import exit_statuses, messages
from pgtail.errors import OptionError
from pgtail.local_time import is_utc
from pgtail.options import GIVEN, Option, from_parameters, options_of
from pgtail.pgoutput.scalars import Point, time_text

F = TypeVar("F", bound=Callable[..., Any])


class _Positive(click.IntRange):
    """A number from 1 on that a counter holds. The help names the least one only."""

    name = "integer"  # errors name it

    def __init__(self) -> None:
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found: int = super().convert(value, param, ctx)
        if found > sys.maxsize:
            self.fail(f"{found} is not in the range 1<=x<={sys.maxsize}.", param, ctx)
        return found


_TYPES: Final = {
    "number": click.INT,
    "positive number": _Positive(),
    "file": click.Path(),
    "folder": click.Path(file_okay=False),
}

dsn_argument: Final = click.argument("dsn", cls=ConfiguredArgument, required=False, shell_complete=complete.dsn)


def takes(cls: type[Any], **changes: Mapping[str, Any] | None) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command the options of a class, with `changes` as those of a family.

    The function gets an object of the class as `options`, and returns the exit status (None is 0). Errors are reported.
    """
    declared = dict(options_of(cls, changes))

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**parameters: Any) -> None:
            arguments = {name: value for name, value in parameters.items() if name not in {*declared, *GIVEN}}
            for name, option in declared.items():
                if option.instead_of is not None and parameters[name] is not None and not given(option.instead_of):
                    parameters[option.instead_of] = None
            parameters["settings"] = settings_in_use()
            parameters["always_redacted"] = always_redacted() if "redact" in declared else ()
            quiet, json = parameters.get("quiet", False), parameters.get("log_format") == "json"
            with messages(quiet=quiet, verbose=parameters.get("verbose", 0), json=json) as logger, exit_statuses():
                for name, option in declared.items():
                    if text := _in_utc(parameters[name]):
                        logger.info(f"{option.long_name} is {text}")
                status = function(options=from_parameters(cls, parameters, changes), **arguments)
            raise SystemExit(int(status or 0))

        for name, option in reversed(declared.items()):
            _click_option(name, option)(run)
        return run

    return decorate


def _click_option(name: str, declared: Option) -> Callable[[F], F]:
    assert declared.group in GROUPS
    default, switch = declared.default, "/" in declared.names[0]
    more: dict[str, Any] = {"metavar": declared.metavar, "help": declared.help, "group": declared.group}
    more["aliases"] = declared.aliases
    if isinstance(declared.kind, tuple):
        more["type"] = click.Choice(declared.kind)
    elif declared.kind != "text":
        more["type"] = _TYPES[declared.kind]
    if declared.convert is not None:
        more["callback"] = converting(declared.convert)
    if name == "utc":  # the zone must be known before times are read
        more |= {"callback": select_zone, "is_eager": True}
    if declared.completion is not None:
        more["shell_complete"] = getattr(complete, declared.completion)
    if declared.counted:
        more["count"] = True
    elif default is False and not switch:
        more["is_flag"] = True
    elif default is not None or switch:
        more["default"] = default
    return click.option(
        *declared.names,
        name,
        cls=GroupedOption if declared.setting is None else Configured,
        multiple=default == (),
        required=declared.required,
        show_default=declared.shown_default or (isinstance(default, str | int) and not isinstance(default, bool)),
        **more,
    )


def _in_utc(value: Any) -> str | None:
    """Which time in UTC a local one is; None for other values."""
    if isinstance(value, Point) and value.local and value.time is not None:
        return None if is_utc() else time_text(value.time).replace(".000000", "")
    return None


def converting(convert: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """The callback of a parameter whose text means something else; `convert` raises ValueError and OptionError."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else convert(value)
        except (ValueError, OptionError) as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


def _or_standard_input(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> tuple[str, ...]:
    """The files; standard input if there are none, unless it is a terminal."""
    if files or ctx.resilient_parsing:
        return files
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("missing FILE, and standard input is a terminal", ctx)
    return ("-",)


files_argument: Final = click.argument(
    "files", nargs=-1, metavar="[FILE]...", type=click.Path(), callback=_or_standard_input
)
"""The dumps to read; standard input without any."""
