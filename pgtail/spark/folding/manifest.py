"""The manifest of a state: which files count, and which part of the stream they hold; no Spark.

It is replaced in one step. What it does not name does not exist for readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from pgtail.capture.format import is_gap
from pgtail.errors import InputError
from pgtail.spark.folding.versions import Version

NAME: Final = "manifest.json"
FORMAT: Final = 1

Place: TypeAlias = tuple[int, int]
"""(position, ordinal): the LSN that orders a transaction, and the number of a message in it."""


class Piece(NamedTuple):
    """A part of the stream that lies whole before us: from a place on (inclusive) up to another one (exclusive).

    `name` and `predecessor` are a segment's and that of the segment before it, '' where there is none. `open`: the
    stream goes on inside a transaction, in a segment that follows.
    """

    first: Place
    behind: Place
    name: str = ""
    predecessor: str = ""
    open: bool = False


@dataclass(slots=True)
class TableFiles:
    """A table in the store. `named` is the place since which it has its name; `files` has lists by bucket."""

    versions: list[Version]
    named: Place
    buckets: int = 1
    whole: bool = False
    """Whether its rows can no more be found by a hash of what identifies them: all buckets are done as one."""
    files: dict[int, list[str]] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each of `files`."""

    @property
    def size(self) -> int:
        """Bytes of the table's rows."""
        return sum(self.sizes.values())

    @property
    def current(self) -> Version:
        """The table's version in force."""
        return self.versions[-1]

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "versions": [version.to_json() for version in self.versions],
            "named": list(self.named),
            "buckets": self.buckets,
            "whole": self.whole,
            "files": {str(bucket): paths for bucket, paths in self.files.items()},
            "closed": self.closed,
            "sizes": self.sizes,
        }

    @classmethod
    def of(cls, found: dict[str, Any]) -> TableFiles:
        """From the manifest."""
        return cls(
            [Version.of(version) for version in found["versions"]],
            (found["named"][0], found["named"][1]),
            found["buckets"],
            found["whole"],
            {int(bucket): list(paths) for bucket, paths in found["files"].items()},
            list(found["closed"]),
            found["sizes"],
        )


@dataclass(slots=True)
class Manifest:
    """What a state consists of. `number` counts its changes; `applied` are the parts of the stream that are in it."""

    number: int = 0
    history: bool = False
    applied: list[tuple[Place, Place]] = field(default_factory=list)
    last: str = ""
    """The name of the last segment applied."""
    gaps: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[int, TableFiles] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    """Files of changes of prepared transactions whose outcome has not come."""
    retired: dict[str, float] = field(default_factory=dict)
    """Files that no longer count, and since when (Unix time)."""

    @property
    def behind(self) -> Place:
        """The place up to which everything is in it."""
        return self.applied[-1][1] if self.applied else (-1, 0)

    def named(self) -> set[str]:
        """Every file that counts."""
        found = set(self.pending)
        for table in self.tables.values():
            found.update(table.closed, *table.files.values())
        return found

    def encode(self) -> bytes:
        """As it is written."""
        found = {
            "format": FORMAT,
            "number": self.number,
            "history": self.history,
            "applied": self.applied,
            "last": self.last,
            "gaps": self.gaps,
            "tables": {str(relid): table.to_json() for relid, table in self.tables.items()},
            "pending": self.pending,
            "retired": self.retired,
        }
        return json.dumps(found, ensure_ascii=False, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes, source: str) -> Manifest:
        """Raises InputError where it is damaged, or another version's."""
        try:
            found = json.loads(data)
            if found["format"] != FORMAT:
                raise InputError(f"is of format {found['format']}; this pgtail reads {FORMAT}", source=source)
            return cls(
                found["number"],
                found["history"],
                [((a[0], a[1]), (b[0], b[1])) for a, b in found["applied"]],
                found["last"],
                found["gaps"],
                {int(relid): TableFiles.of(table) for relid, table in found["tables"].items()},
                found["pending"],
                found["retired"],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"is damaged: {error}", source=source) from None


class MissingSegment(InputError):
    """A segment is not there yet: nothing behind it can be applied.

    `missing` is its name, or between which LSNs a recorder went over a gap, in words; '' where `successor` begins a
    capture that no other one overlaps: nobody tells what lies between them.
    """

    def __init__(self, missing: str, successor: str) -> None:
        if is_gap(missing):
            what = f"what was committed {missing}, and will never come: only --allow-gap goes on"
            why = f"what was committed {missing} is not in the capture: {successor} stands behind that gap"
        elif missing:
            what = f"the segment {missing}"
            why = f"the segment {missing} is missing: {successor} continues it, and nothing can be applied without it"
        else:
            what = f"what lies before {successor}"
            why = (
                f"{successor} begins a capture behind the end of what was applied: whether anything was committed "
                "between them no capture tells"
            )
        super().__init__(f"{why} (--allow-gap goes on, and records the gap)")
        self.missing, self.what = missing, what


@dataclass(slots=True)
class Next:
    """What of some pieces is to be applied now: the parts that are new.

    `gaps` are those that are gone over; `missing` is what is waited for.
    """

    parts: list[tuple[Place, Place]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    missing: MissingSegment | None = None


def next_part(
    manifest: Manifest, pieces: Iterable[Piece], known: Iterable[str] = (), *, allow_gap: bool = False
) -> Next:
    """What is to be applied of pieces. `known` are names of further segments that are there, with nothing of their own.

    Raises InputError for a piece that comes too late.
    """
    found = Next()
    behind, unended = manifest.behind, None
    there = {manifest.last, *known}
    for piece in sorted(set(pieces)):
        there.add(piece.name)
        if not any(first <= piece.first and piece.behind <= end for first, end in [*manifest.applied, *found.parts]):
            if piece.behind <= behind:
                raise InputError(
                    f"the segment {piece.name or piece.first} belongs into a gap that was gone over: "
                    "make the state anew, in another directory"
                )
            if _leaves_a_gap(piece, there, behind):
                missing = MissingSegment(piece.predecessor, piece.name)
                if not allow_gap:
                    found.missing = missing
                    break
                found.gaps.append({"missing": piece.predecessor, "before": piece.name, "place": list(piece.first)})
            found.parts.append((max(piece.first, behind), piece.behind))
            behind = piece.behind
        unended = (piece.behind[0], 0) if piece.open else None
    if unended is not None:
        # The transaction's next segment is closed already, or will be at once: half of it is nobody's state.
        found.parts = [(first, min(end, unended)) for first, end in found.parts if first < unended]
    return found


def _leaves_a_gap(piece: Piece, there: set[str], behind: Place) -> bool:
    """Whether something may lie between a piece and what is in it up to `behind`, or is to be."""
    if piece.predecessor:
        return piece.predecessor not in there
    return bool(piece.name) and (0, 0) <= behind < piece.first


def last_whole(manifest: Manifest, pieces: Iterable[Piece]) -> str:
    """The name of the last piece that is in it to its end."""
    whole = [piece for piece in pieces if piece.behind <= manifest.behind]
    return max(whole, key=lambda piece: piece.behind).name if whole else manifest.last


def joined(parts: Sequence[tuple[Place, Place]]) -> list[tuple[Place, Place]]:
    """Parts in order, those that touch made one."""
    found: list[tuple[Place, Place]] = []
    for first, behind in sorted(parts):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(behind, found[-1][1]))
        else:
            found.append((first, behind))
    return found
