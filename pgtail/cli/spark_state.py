"""Floor 7, `pgtail spark state`, and what it has in common with history and all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgtail.cli.options import in_order
from pgtail.cli.spark_follow import Step, changes_options, run
from pgtail.cli.spark_options import duration, spark_options, watch_options
from pgtail.errors import OptionError

if TYPE_CHECKING:
    from pgtail.spark.apply import Applied

F = TypeVar("F", bound=Callable[..., Any])


def state_options(function: F) -> F:
    """As of when, and how: `until`, `allow_gap`, `retain`."""
    return in_order(
        [
            click.option(
                "--until",
                metavar="LSN|TIME",
                help="As of then: without what was committed later. A time is ISO 8601, in UTC where it names no zone.",
            ),
            click.option(
                "--allow-gap",
                is_flag=True,
                help="Go on where a segment is missing, and record the gap: what it held is then wrong or absent.",
            ),
            click.option(
                "--retain",
                type=duration,
                default="1h",
                show_default=True,
                metavar="TIME",
                help="Keep files that no longer count for so long: somebody may be reading them.",
            ),
        ]
    )(function)


@click.command("state")
@click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT")
@changes_options
@state_options
@watch_options
@spark_options
def command(places: tuple[str, ...], **options: Any) -> None:
    """Keep the rows of every table as they are after the last commit: OUT/state.

    Run again, or with --watch, it applies what is new. Prepared transactions count once they are committed. A value
    that was never sent (from before the capture, or made by ALTER TABLE) is named in _unknown, and never guessed.
    Makes OUT/changes first. Read it with pgtail.spark.state(spark, "OUT", "schema.table").

    \b
    pgtail spark state captures/shop warehouse
    pgtail spark state --until 2026-11-20T22:05:00Z captures/shop as-of-then
    """
    run(places, options, [step(options, history=False)])


def step(options: dict[str, Any], *, history: bool) -> Step:
    """Brings the state, or the history, up to date. Raises OptionError."""
    from pgtail.spark.settings import Settings, until_of

    if options["watch"] and options["until"] is not None:
        raise click.UsageError("--watch does not end, and --until is for the end: name one of them")
    try:
        until = None if options["until"] is None else until_of(options["until"])
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="--until") from None
    settings = Settings(
        history=history,
        until=until,
        allow_gap=options["allow_gap"],
        wait=options["watch"],
        retain=options["retain"],
    )

    def bring(spark: Any, out: str, tell: Callable[[str], None]) -> str:
        from pgtail.spark.statefolder import bring_up

        return _in_words("history" if history else "state", bring_up(spark, out, settings, tell))

    return bring


def _in_words(kind: str, applied: Applied) -> str:
    from pgtail.wire.scalars import lsn_text

    found = [f"{kind}: {applied.changes} changes applied, up to {lsn_text(max(applied.behind[0], 0))}"]
    found += [f"gone over the gap before {gap['before']}" for gap in applied.gaps]
    found += [f"relation {oid} was never described: nothing of it is in the {kind}" for oid in applied.unknown_tables]
    if applied.waiting is not None:
        found.append(f"waiting for {applied.waiting.what}")
    return "; ".join(found)
