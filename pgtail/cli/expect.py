"""`pgtail expect`: its command line."""

from __future__ import annotations

import click

from pgtail.cli.command import Command
from pgtail.cli.options import dsn_argument, takes
from pgtail.commands.options.server import ExpectOptions
from pgtail.errors import ClosedPipe


class _WithCommand(Command):
    """What follows -- is the argument `command`, and nothing else is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        if ctx.params["command"]:
            raise click.UsageError("one DSN; a command comes after --", ctx)
        ctx.params["command"] = tuple(args[at + 1 :])
        return rest


@click.command(
    "expect",
    cls=_WithCommand,
    first=("tables", "ops", "where", "count", "timeout", "slot", "publications", "output", "file", "dbname"),
)
@dsn_argument
@click.argument("command", nargs=-1, metavar="[-- COMMAND]...")
@takes(ExpectOptions)
def command(command: tuple[str, ...], options: ExpectOptions) -> bool:
    """Wait for changes, for tests and CI.

    Exits with status 0 as soon as changes that pass the filters are committed; they are the output. Exits with 1, and
    prints what came instead on standard error, if they do not come in time.

    "pgtail: ready" on standard error means that every commit from then on will be seen. With --slot, changes that the
    slot retains count too; they are not consumed. A COMMAND is started then; it is stopped if the changes do not come,
    and otherwise awaited. If it fails, the exit status is 1, whatever comes.

    \b
    pgtail expect shop -t orders --op update --where 'status = paid'
    pgtail expect shop -t 'audit.*' --count 3 -o table
    pgtail expect shop -t orders -- curl -sf -X POST localhost:8080/pay
    """
    from pgtail.commands.stream.expect import Expect

    expect = Expect(options, command)
    try:
        expect.run()
    except ClosedPipe:
        if expect.succeeded:
            raise
    return not expect.succeeded
