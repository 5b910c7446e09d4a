"""`pgtail expect`: its options."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli.command import Command, heading
from pgtail.cli.options.shared import filter_options, options_from, output_options, verbose_option
from pgtail.cli.options.stream import (
    connection_options,
    duration,
    publication_options,
    reconnect_option,
    slot_option,
)


@click.command(
    "expect",
    cls=Command,
    first=("tables", "ops", "where", "count", "within", "slot", "publications", "output", "file", "dbname"),
)
@connection_options
@slot_option
@publication_options
@reconnect_option
@filter_options
@heading("range")
@click.option(
    "--within", type=duration, metavar="TIME", default="30s", show_default=True, help="How long to wait once ready."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Wait for at least N changes.",
)
@output_options
@verbose_option
def command(**options: Any) -> None:
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
    from pgtail.commands.options import ExpectOptions
    from pgtail.commands.stderr import exit_statuses
    from pgtail.errors import ClosedPipe

    with exit_statuses():
        expect = Expect(options_from(ExpectOptions, options))
        try:
            expect.run()
        except ClosedPipe:
            if expect.expectation.met:
                raise
        raise SystemExit(0 if expect.expectation.met else 1)
