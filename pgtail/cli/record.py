"""`pgtail record`: its command line."""

from __future__ import annotations

from typing import Final

import click
from msgspec.structs import replace

from pgtail.cli import complete
from pgtail.cli.command import Command
from pgtail.cli.options import takes
from pgtail.cli.settings import default_dsn, given
from pgtail.commands.options.server import RecordOptions
from pgtail.errors import OptionError

_OF_A_SLOT: Final = (
    "host", "dbname", "slot", "spool", "allow_gap", "snapshot", "snapshot_tables", "until_lsn", "until", "two_phase",
    "binary", "wait", "dry_run",
)  # fmt: skip


@click.command(
    "record",
    cls=Command,
    first=(
        "directory",
        "spool",
        "slot",
        "publications",
        "dumps",
        "snapshot",
        "snapshot_tables",
        "until",
        "seconds",
        "segment_size",
        "segment_age",
        "compress",
        "verbose",
    ),
)
@click.argument("source", nargs=-1, metavar="[DSN]", shell_complete=complete.dsn_or_file)
@takes(RecordOptions)
def command(source: tuple[str, ...], options: RecordOptions) -> bool:
    """Record a slot, or dumps, losslessly in a directory.

    What is synced to disk is acknowledged: the slot advances, and no other reader gets those changes. A slot that
    does not exist is created; it retains WAL on the server until it is dropped. pgtail decode DIR reads a capture.

    \b
    pgtail record shop -S cdc -D cdc             until Ctrl-C; resumes
    pgtail record shop -S cdc -D cdc --snapshot  all rows first
    pgtail decode cdc                            read it
    pgtail record --from dump.bin -D capture     from a dump
    """
    from pgtail.commands.record.command import RecordSlot, record_dumps

    if not options.directory:
        raise OptionError("--directory is empty: name the capture's directory")
    if options.dumps:
        _check_no_slot_options()
        return record_dumps((*options.dumps, *source), options)
    if options.dump.verify:
        raise OptionError("--verify is for dumps (--from), not for a slot")
    if len(source) > 1:
        raise OptionError(f"one DSN, not {len(source)}: {' '.join(source)}")
    connection = replace(options.connection, dsn=source[0] if source else default_dsn())
    request = replace(options.request, encoding=options.dump.encoding if given("encoding") else None)
    return RecordSlot(replace(options, connection=connection, request=request)).run()


def _check_no_slot_options() -> None:
    """Dumps come from no server. Raises OptionError."""
    for name in _OF_A_SLOT:
        if given(name):
            raise OptionError(f"--{name.replace('_', '-')} is for recording a slot, not for dumps (--from)")
