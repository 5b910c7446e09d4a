"""`pgtail capture`: its command lines."""

from __future__ import annotations

from typing import Final

import click

from pgtail.cli import Commands
from pgtail.cli.options import takes
from pgtail.commands.capture_options import CaptureListOptions, CaptureVerifyOptions

_directory: Final = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False))


@click.group("capture", cls=Commands, aliases={"ls": "list"})
def command() -> None:
    """List and verify the segments of a capture.

    \b
    pgtail capture list captures/shop
    pgtail capture verify s3://captures/shop

    DIR is the directory that pgtail record writes, or a URI. A recorder may be writing. `pgtail capture ls` is
    `pgtail capture list`. The manual page about the format: pgtail help capture.
    """


@command.command("list")
@_directory
@takes(CaptureListOptions)
def list_(directory: str, options: CaptureListOptions) -> None:
    """Show the segments of a capture: positions, times, tables, sizes, gaps, and the snapshots of tables.

    Reads capture.json and the end of each segment, which says what the segment contains.
    """
    from pgtail.commands.capture_list import run

    run(directory, options)


@command.command("verify")
@_directory
@takes(CaptureVerifyOptions)
def verify(directory: str, options: CaptureVerifyOptions) -> bool:
    """Compare every checksum of a capture, and find what is missing in it.

    Reads every segment, and decodes nothing. The exit status is 1 if something is damaged or missing; each problem is
    named. A pass that was stopped says how to go on.
    """
    from pgtail.commands.capture_verify import run

    return run(directory, options)
