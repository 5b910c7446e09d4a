"""Floor 7, the options of formats that others read: what they mean, and where they make no sense."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pgtail.errors import OptionError

if TYPE_CHECKING:
    from pgtail.cli.directory import DirectorySink
    from pgtail.cli.sinks import FileSink
    from pgtail.server.plan import Plan

Target: TypeAlias = "FileSink | DirectorySink"
"""Where an output goes."""

_OF: dict[str, tuple[str, ...]] = {
    "undo": ("sql",),
    "wal2json": ("wal2json", "wal2json-v1"),
    "source_name": ("debezium",),
    "kafka_schema": ("debezium",),
}
"""Option -> the formats that it belongs to."""

_HOLD_PREPARED = ("wal2json", "wal2json-v1", "debezium", "csv")


def format_options(options: dict[str, Any], name: str, sink: object, database: str) -> dict[str, Any]:
    """Fields of OutputOptions for the format `name`. Raises OptionError where something does not belong together."""
    from pgtail.cli.directory import DirectorySink
    from pgtail.outputs.wal2json_options import enabled

    for option, formats in _OF.items():
        if options[option] and name not in formats:
            shown = "--schema" if option == "kafka_schema" else "--" + option.replace("_", "-")
            raise OptionError(f"{shown} belongs to -o {' and '.join(formats)}, not to {name}")
    if isinstance(sink, DirectorySink) and name != "csv":
        raise OptionError(f"-f {sink.name} is a directory: only csv writes one file per table")
    source, _, said = (options["source_name"] or "pgtail").partition("/")
    return {
        "numbers": options["numbers"],
        "undo": options["undo"],
        "wal2json": enabled(options["wal2json"]),
        "source_name": source,
        "database": said or database,
        "kafka_schema": options["kafka_schema"],
        "open_file": sink.open if isinstance(sink, DirectorySink) else None,
    }


def check_acknowledged(options: dict[str, Any], plan: Plan) -> None:
    """Whether nothing is acknowledged before it is written. Raises OptionError.

    A temporary slot may be: it does not outlive this run.
    """
    if plan.temporary or plan.ack == "none":
        return
    if options["undo"] and plan.ack == "commit":
        raise OptionError(
            "--undo writes at the end: with --ack commit, what it has not written yet would be acknowledged; use"
            " --ack exit or --ack none"
        )
    two_phase = plan.two_phase or (plan.slot is not None and plan.slot.two_phase)
    if two_phase and (options["output"] in _HOLD_PREPARED or options["undo"]):
        raise OptionError(
            f"-o {options['output']} shows a prepared transaction when it is committed: with --ack {plan.ack} the slot"
            " would forget it before. Use --ack none, or a slot that was not created with two_phase"
        )


@contextlib.contextmanager
def open_target(file: str | None, *, append: bool = False) -> Iterator[Target]:
    """Standard output, a file, or a directory (DIR/, or one that is there). Raises OutputError."""
    from pgtail.cli.directory import DirectorySink
    from pgtail.cli.sinks import open_sink

    if file is not None and (file.endswith("/") or os.path.isdir(file)):
        yield DirectorySink(file, append=append)
        return
    with open_sink(file, append=append) as sink:
        yield sink
