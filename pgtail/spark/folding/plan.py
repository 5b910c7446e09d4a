"""What happens to whole tables within a batch, and by what its rows are found; no Spark.

The driver makes it from a survey of the batch; every task gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pgtail.spark.folding.fold import Described, Happening, Moment, Truncate
from pgtail.spark.folding.fold_task import TableStream
from pgtail.spark.folding.manifest import TableFiles
from pgtail.spark.folding.versions import Version, same_key

Mode: TypeAlias = Literal["key", "bag", "append", "whole"]
"""How rows are found: by their key, by all of their values (identity full), never (no identity); whole: by different
ways within the batch, so that one task has to have all rows of the table."""


class Run(NamedTuple):
    """Changes of one version of a table that no other version's lie between: from and to which moment."""

    relid: int
    relation: str
    first: Moment
    last: Moment


@dataclass(slots=True)
class TablePlan:
    """One table in one batch."""

    mode: Mode
    stream: TableStream
    versions: list[Version] = field(default_factory=list)
    """Those of this batch, each once, in the order of their last appearance."""

    @property
    def touches_all(self) -> bool:
        """Whether rows are concerned that have no change in the batch."""
        return self.mode == "whole" or bool(self.stream.happenings)


def plans(
    runs: Iterable[Run],
    truncates: Iterable[tuple[int, Moment]],
    versions: Mapping[tuple[int, str], Version],
    stored: Mapping[int, TableFiles],
) -> dict[int, TablePlan]:
    """The plan of each table in a batch. `runs` are all of them; versions are by relid and fingerprint."""
    by_table: dict[int, list[Run]] = {}
    for run in runs:
        by_table.setdefault(run.relid, []).append(run)
    emptied: dict[int, list[Happening]] = {}
    for relid, moment in truncates:
        emptied.setdefault(relid, []).append(Truncate(moment))
    found = {}
    for relid, own in by_table.items():
        before = stored.get(relid)
        found[relid] = _plan(sorted(own, key=lambda run: run.first), emptied.get(relid, []), versions, before)
    return found


def _plan(
    runs: Sequence[Run],
    emptied: Sequence[Happening],
    versions: Mapping[tuple[int, str], Version],
    stored: TableFiles | None,
) -> TablePlan:
    start = None if stored is None else stored.current
    version = start
    described: list[Happening] = []
    appeared: dict[Version, None] = {}
    for run in runs:
        now = versions[run.relid, run.relation]
        if version is not None and now != version:
            described.append(Described(run.first, now))
        version = now
        appeared.pop(now, None)
        appeared[now] = None
    first = start or versions[runs[0].relid, runs[0].relation]
    chain = [first, *(one.version for one in described if isinstance(one, Described))]
    mode = _mode(chain, whole=stored is not None and stored.whole)
    # A version is described before what it brings: the sort is stable.
    happenings = sorted([*described, *emptied], key=lambda one: one.moment[:2])
    return TablePlan(mode, TableStream(first, happenings), list(appeared))


def _mode(chain: Sequence[Version], *, whole: bool) -> Mode:
    if all(version.key for version in chain):
        return "key" if all(map(same_key, chain, chain[1:])) else "whole"
    if any(version.key for version in chain):
        return "whole"
    if not any(version.full for version in chain):
        return "append"
    return "bag" if len(chain) == 1 and not whole else "whole"


def stays_whole(plan: TablePlan, stored: TableFiles | None) -> bool:
    """Whether the table has rows, from now on, that no hash finds: under identity full, those of other versions."""
    described = any(isinstance(one, Described) for one in plan.stream.happenings)
    return plan.versions[-1].full and (described or (stored is not None and stored.whole))


def roots(moves: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """Keys that rows moved between, as (relid, hash before, hash now) -> one hash for all that hang together."""
    parents: dict[tuple[int, int], int] = {}

    def root(relid: int, one: int) -> int:
        found = one
        while (above := parents.setdefault((relid, found), found)) != found:
            found = above
        while (above := parents[relid, one]) != found:
            parents[relid, one] = found
            one = above
        return found

    for relid, before, now in moves:
        parents[relid, root(relid, before)] = root(relid, now)
    return {(relid, one): root(relid, one) for relid, one in list(parents)}
