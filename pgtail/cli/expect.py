"""`pgtail expect`: its command line."""

from __future__ import annotations

import click

from pgtail.cli.command import Command
from pgtail.cli.options import dsn_argument, takes
from pgtail.commands.server_options import ExpectOptions


@click.command(
    "expect",
    cls=Command,
    first=("tables", "ops", "where", "count", "within", "slot", "publications", "output", "file", "dbname"),
)
@dsn_argument
@takes(ExpectOptions)
def command(options: ExpectOptions) -> bool:
    """Wait for changes, for tests and CI.

    Exits with status 0 as soon as changes that pass the filters are committed; they are the output. Exits with 1, and
    prints what came instead on standard error, if they do not come in time.

    "pgtail: ready" on standard error means that every commit from then on will be seen. With --slot, changes that the
    slot retains count too; they are not consumed.

    \b
    pgtail expect shop -t orders --op update --where 'status = paid'
    pgtail expect shop -t 'audit.*' --count 3 -o table
    """
    from pgtail.commands.expect import Expect
    from pgtail.errors import ClosedPipe

    expect = Expect(options)
    try:
        expect.run()
    except ClosedPipe:
        if expect.expectation.met:
            raise
    return not expect.expectation.met
