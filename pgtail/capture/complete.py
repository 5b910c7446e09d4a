"""How far the closed segments of captures go, while recorders write."""

from __future__ import annotations

from collections.abc import Mapping

from pgtail.capture.format import CLOSED, SegmentName
from pgtail.capture.state import not_recorded, read_state
from pgtail.records import NamedTuple
from pgtail.storage import Location


class Reach(NamedTuple):
    """The closed segments of a capture have everything up to the LSN `position`; `head` has parameters of segments."""

    position: int
    head: Mapping[str, str]


def reach_of(capture: Location) -> Reach:
    """How far a capture goes now. Raises InputError if its state is damaged, or if it has none."""
    state = read_state(capture)
    if state is None:
        raise not_recorded(capture)
    last = SegmentName.parse(state.last)
    if last is None or (capture / f"{last}{CLOSED}").head() is not None:
        return Reach(state.position, state.head)
    return Reach(min(state.position, last.position), state.head)
