"""`pgtail capture`: its command lines."""

from __future__ import annotations

from typing import Final

import click

from pgtail.cli import Commands
from pgtail.cli.options import takes
from pgtail.commands.options.capture import CaptureListOptions, CaptureVerifyOptions, PruneOptions

_directory: Final = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False))


@click.group("capture", cls=Commands, aliases={"ls": "list"})
def command() -> None:
    """List and verify the segments of a capture, and remove the oldest ones.

    \b
    pgtail capture list captures/shop
    pgtail capture verify s3://captures/shop
    pgtail capture prune captures/shop --keep 30d --delete

    DIR is the directory that pgtail record writes, or a URI. A recorder may be writing. `pgtail capture ls` is
    `pgtail capture list`. The manual page about the format: pgtail help capture.
    """


@command.command("list")
@_directory
@takes(CaptureListOptions)
def list_(directory: str, options: CaptureListOptions) -> bool:
    """Show the segments of a capture: positions, times, tables, sizes, gaps, and the snapshots of tables.

    Reads capture.json and the end of each segment, which says what the segment contains. The exit status is 1 if a
    segment is missing.
    """
    from pgtail.commands.capture.list import run

    return run(directory, options)


@command.command("verify")
@_directory
@takes(CaptureVerifyOptions)
def verify(directory: str, options: CaptureVerifyOptions) -> bool:
    """Compare every checksum of a capture, and find what is missing in it.

    Reads every segment, and decodes nothing. The exit status is 1 if something is damaged or missing; each problem is
    named. A pass that was stopped says how to go on.
    """
    from pgtail.commands.capture.verify import run

    return run(directory, options)


@command.command("prune")
@_directory
@takes(PruneOptions)
def prune(directory: str, options: PruneOptions) -> None:
    """Remove the oldest segments of a capture, with --delete; without it say what would be removed.

    Only whole segments go, from the start, and nothing that the rest needs: what is left decodes as before. A recorder
    and readers may be at work. Where several of --before, --keep and --applied are given, all of them must allow it.

    \b
    pgtail capture prune captures/shop --keep 30d
    pgtail capture prune captures/shop --applied warehouse --delete
    """
    from pgtail.commands.capture.prune import run

    run(directory, options)
