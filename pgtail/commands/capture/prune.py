"""`pgtail capture prune`: finds the segments that can be removed from a capture's start, and removes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pgtail.capture.prune import Bound, Prunable, PrunePlan, prune
from pgtail.capture.reader import first_segment
from pgtail.commands.options.capture import PruneOptions
from pgtail.commands.options.common import NOT_DONE
from pgtail.commands.output.file_sink import put
from pgtail.errors import Interrupted, OptionError
from pgtail.files.stopping import begin, status_after
from pgtail.humanize import counted, size_text
from pgtail.local_time import clock
from pgtail.log import log_outcome, logger
from pgtail.pgoutput.scalars import Point, lsn_text
from pgtail.spark.session import check_installed
from pgtail.storage import locate
from pgtail.terminal.escape import escape, json_line


def run(place: str, options: PruneOptions) -> None:
    """Say what would be removed, or remove it. Raises PgtailError and ClosedPipe."""
    if options.before is None and options.keep is None and not options.applied:
        raise OptionError("say what to remove: --before TIME|LSN, --keep TIME or --applied OUT")
    capture, delete = locate(place, options.storage), options.delete and not options.dry_run
    begin()
    try:
        found = Prunable(capture)
        plan = found.plan(_bounds(found, options), lasting=not options.yes)
        if plan.why:
            logger.info(escape(f"no more is removed: {plan.why}"))
        if options.verbosity.verbose:
            for one in plan.segments:
                log_outcome(escape(str(one.location)))
        if delete:
            prune(capture, plan.pruned)
    except KeyboardInterrupt as stopped:
        raise Interrupted("interrupted", status_after(stopped), source=str(capture)) from None
    if options.output == "json":
        for line in _json(str(capture), plan, done=delete):
            put(json_line(line).rstrip("\n"))
        return
    put(escape(f"{capture}: {_summary(plan, done=delete)}"))
    if plan.pruned is not None and not delete:
        log_outcome(NOT_DONE if options.dry_run else "nothing was removed: --delete does that")


def _bounds(prunable: Prunable, options: PruneOptions) -> Iterator[Bound]:
    """The bounds of the removal, from the options. Raises PgtailError."""
    if options.before is not None:
        yield Bound(first_segment(prunable.stream, options.before))
    if options.keep is not None:
        yield Bound(first_segment(prunable.stream, Point(time=clock() - int(options.keep * 1_000_000))))
    if options.applied:
        check_installed()
        from pgtail.spark.lake.batches import applied_to

        for out in options.applied:
            yield applied_to(out, prunable, options.storage)


def _json(place: str, plan: PrunePlan, *, done: bool) -> Iterator[dict[str, Any]]:
    for segment in plan.segments:
        yield {"kind": "segment", "segment": str(segment.name), "bytes": segment.size}
    for snapshot in plan.snapshots:
        yield {
            "kind": "snapshot",
            "schema": snapshot.schema,
            "table": snapshot.table,
            "lsn": lsn_text(snapshot.lsn),
            "segments": len(snapshot.segments),
            "bytes": snapshot.bytes,
        }
    yield {
        "kind": "prune",
        "capture": place,
        "removed": done and plan.pruned is not None,
        "segments": len(plan.segments),
        "snapshots": len(plan.snapshots),
        "bytes": plan.size,
        "pruned": None if plan.pruned is None else plan.pruned.shown(),
        "why": plan.why or None,
    }


def _summary(plan: PrunePlan, *, done: bool) -> str:
    if plan.pruned is None:
        return "nothing to remove" + ("" if plan.why else ": each segment has something to keep, or is the last one")
    what = counted(len(plan.segments), "segment")
    if plan.snapshots:
        what += f" and {counted(len(plan.snapshots), 'snapshot')}"
    verb = "removed" if done else "would be removed"
    return f"{what} {verb}, {size_text(plan.size)}: it begins after {lsn_text(plan.pruned.position)}"
