"""What of a capture a folder OUT has applied, and so needs no more."""

from __future__ import annotations

import itertools

from pgtail.capture.prune import Bound, Prunable
from pgtail.errors import OptionError
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.update import wanted_snapshots
from pgtail.spark.segments.snapshots import listed_in
from pgtail.storage import StorageOptions, locate_target


def applied_to(out: str, capture: Prunable, storage: StorageOptions) -> Bound:
    """How many segments from a capture's start are in OUT, with the snapshots between them.

    Raises OptionError if OUT has none of this capture, InputError.
    """
    batches = Batches(locate_target(out, storage))
    place, known = str(capture.capture.absolute()), batches.plan.captures
    if place not in known:
        others = f"; it was made of {', '.join(sorted(known))}" if known else ""
        raise OptionError(f"{out} has nothing of {place}{others}")
    has = known[place].has
    count = sum(1 for _ in itertools.takewhile(lambda one: has(str(one.name)), capture.stream))
    bound = Bound(count, f"{out} has not applied what follows" if count < len(capture.stream) else "")
    for one in wanted_snapshots(batches, listed_in(place, capture.state)):
        before = capture.before(one.snapshot.table)
        bound = min(bound, Bound(before, f"{out} has not applied {one.snapshot.table}"), key=lambda one: one.count)
    return bound
