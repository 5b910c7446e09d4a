"""What the values of options and arguments are completed with. Imports click and nothing heavier.

Each function is the `shell_complete` of a parameter: it gives the values that may replace the incomplete one. Those
that ask a server connect as the command line so far says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from pgtail.cli.settings import SettingError, settings
from pgtail.options import from_parameters

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pgtail.commands.options.server import ConnectionOptions
    from pgtail.postgres.catalog import Named


def slots(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Logical slots of the server."""
    return _matching(_on_server("slots", ctx), incomplete)


def publications(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Publications of the database."""
    return _matching(_on_server("publications", ctx), incomplete)


def dsn(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Databases of the server and connection services."""
    from pgtail.commands.completion import services

    return _matching([*_on_server("databases", ctx), *[f"service={name}" for name in services()]], incomplete)


def dsn_or_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The same, and files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(value) for value in dsn(ctx, param, incomplete)] + [CompletionItem(incomplete, type="file")]


def tables(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Tables of the database; with a schema once something is typed."""
    found = _on_server("tables", ctx)
    names = dict.fromkeys([name.partition(".")[2] for name in found])
    return _others(ctx, param, _items([*names, *(found if _last(incomplete) else ())], incomplete))


def columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Columns of these tables; with the table, and then its schema, once that is typed."""
    return _others(ctx, param, _items(_columns(ctx, _last(incomplete)), incomplete))


def condition(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """A condition with a column in place of its last word."""
    word = re.search(r"[\w.]*$", incomplete)
    assert word is not None
    return [incomplete[: word.start()] + column for column in _matching(_columns(ctx, word[0]), word[0])]


def _columns(ctx: click.Context, word: str) -> list[str]:
    """The columns of the database, to complete this word."""
    found = [name.split(".") for name in _on_server("columns", ctx)]
    return list(dict.fromkeys([".".join(parts[-used:]) for used in ((1, 2, 3) if word else (1,)) for parts in found]))


def ops(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Operations."""
    from pgtail.changes.filters import OPS

    return _others(ctx, param, _items(OPS, incomplete))


def points(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Words for a time, and durations ago."""
    return _matching(
        ["today", "yesterday", "10m", "1h", "1d", *(["now"] if "now" in str(param.metavar) else ())], incomplete
    )


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Kinds of messages and frames."""
    from pgtail.hexview.selection import KIND_NAMES

    return _items(KIND_NAMES, incomplete)


def wal2json(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Options of wal2json, to be turned on or off."""
    from pgtail.outputs.wal2json.options import DEFAULTS

    return _matching([f"{name}={'off' if on else 'on'}" for name, on in DEFAULTS.items()], incomplete)


def colors(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Things that have a colour."""
    from pgtail.terminal.style import THINGS

    return _items([f"{thing}=" for thing in THINGS], incomplete, ":")


def _on_server(named: Named, ctx: click.Context) -> list[str]:
    if all(parameter.name != "host" for parameter in ctx.command.params):
        return []  # the command reads files
    from pgtail.commands.completion import on_server

    return on_server(named, _connection(ctx))


def _connection(ctx: click.Context) -> ConnectionOptions:
    """Where the command line so far says to connect, else the configuration."""
    from pgtail.commands.options.server import ConnectionOptions

    given = {name: value for name, value in ctx.params.items() if value is not None}
    words = given.get("source") or (given.get("sources") if given.get("slot") else None)
    configured: dict[str, Any] = {}
    try:
        if "dsn" in settings(ctx):
            configured["dsn"] = settings(ctx)["dsn"].value
    except SettingError:
        pass  # the command itself reports it
    named = {"dsn": words[0]} if words else {}
    return from_parameters(ConnectionOptions, {**configured, **named, **given})


def _last(incomplete: str, separator: str = ",") -> str:
    """The last of several items, which is the one to complete."""
    return incomplete.rpartition(separator)[2]


def _items(values: Iterable[str], incomplete: str, separator: str = ",") -> list[str]:
    """The values that begin as the last item does, after the items before it, and are none of these."""
    before = incomplete.removesuffix(_last(incomplete, separator))
    there = before.split(separator)
    return [before + value for value in _matching(values, _last(incomplete, separator)) if value not in there]


def _others(ctx: click.Context, param: click.Parameter, values: list[str]) -> list[str]:
    """The values without those that the option, which is repeatable, has already on the command line."""
    there = ctx.params.get(param.name or "") or ()
    return [value for value in values if value not in there]


def _matching(values: Iterable[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]
