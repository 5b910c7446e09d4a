"""What ALTER TABLE did with the rows of a table between its versions, as the messages of `pgtail ddl` say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pgtail.arrow.segments.ranges import Place, Range
from pgtail.arrow.typed.versions import Version, keeps_values
from pgtail.changes.ddl import Ddl, parse
from pgtail.humanize import counted
from pgtail.values.oids import BUILTIN

_NOWHERE: Final = Place(-1, 0)


class Origins(NamedTuple):
    """Where rows that become rows of the next version have their values from; others are unknown."""

    kept: Mapping[str, str]
    """The columns whose values stay known: name before -> name now."""
    added: Mapping[str, str | None]
    """The columns that the rows did not have, by name, with PostgreSQL's text of their value in all of them."""


class Alteration(NamedTuple):
    """A message about a table: at `own`, its position and ordinal, and before the row at `place`, position and seq.

    `ddl` is None if it is not known what was done.
    """

    own: Place
    place: Place
    ddl: Ddl | None


class Step(NamedTuple):
    """A range of changes of one version, and where the rows before them have their values from, if that is known."""

    places: Range
    origins: Origins | None


def alterations_of(rows: Iterable[Mapping[str, Any]], relid: int) -> list[Alteration]:
    """The alterations of a table, in order, from rows of `ddl`."""
    own: dict[Place, Alteration] = {}
    for row in rows:
        if row["relid"] in (relid, 0):
            place, content = Place(row["position"], row["ordinal"]), row["content"]
            ddl = None if content is None else parse(content.encode())
            own[place] = Alteration(place, Place(row["position"], row["seq"] + 1), ddl)
    return [own[place] for place in sorted(own)]


def note_of(dropped: int, table: str) -> str:
    """The note about alterations of a table that were dropped."""
    what = counted(dropped, "message")
    return f"{what} of pgtail ddl left out, as {table} had other columns then: what was rolled back, or forged"


class Alterations:
    """Matches the alterations of one table with its versions, in the order of its changes.

    An alteration counts if the next change is of a version that has exactly its columns, also by way of later
    alterations. Others are dropped: of a savepoint that was rolled back, or forged. `done` continues where another one
    was `done`.
    """

    def __init__(self, alterations: Sequence[Alteration], done: tuple[Place, Place] = (_NOWHERE, _NOWHERE)) -> None:
        base, self._last = done
        self._base = next((one.ddl for one in alterations if one.own == base), None)
        self._base_place = base
        self._following = [one for one in alterations if one.own > self._last]
        self.dropped = 0

    @property
    def unread(self) -> bool:
        """Whether there are alterations that no step has read."""
        return bool(self._following)

    @property
    def done(self) -> tuple[Place, Place]:
        """The own places of the alteration that describes the current version, and of the last one that was read."""
        return _NOWHERE if self._base is None else self._base_place, self._last

    def steps(self, before: Version | None, now: Version, places: Range) -> Iterator[Step]:
        """The steps of the next changes, all of the version `now`, the first and the last one at the ends of `places`.

        `before` is the version of the rows; None if there are none.
        """
        start, chain = places.first, list[Alteration]()
        while self._following and self._following[0].place <= start:
            chain.append(self._read())
        if before != now and self._following and not any(_describes(one.ddl, now) for one in chain):
            # The message of a released savepoint may come after the row that followed it.
            late = self._following[0]
            if late.place == start.next and _describes(late.ddl, now):
                chain.append(self._read())
        origins = self._match(before, now, chain)
        while self._following and self._following[0].place < places.end:
            chain.append(one := self._read())
            step = self._match(now, now, chain)
            if step is not None:
                yield Step(Range(start, one.place), origins)
                start, origins = one.place, step
        yield Step(Range(start, places.end), origins)
        self.dropped += len(chain)

    def _read(self) -> Alteration:
        self._last = self._following[0].own
        return self._following.pop(0)

    def _match(self, before: Version | None, now: Version, chain: list[Alteration]) -> Origins | None:
        """The origins for a step by these alterations, of which those that count are removed; None if there is none."""
        for number, one in enumerate(chain):
            if one.ddl is None:
                self._base = None
                del chain[: number + 1]
                return self._match(before, now, chain)
        last = max([number for number, one in enumerate(chain) if _describes(one.ddl, now)], default=-1)
        if last < 0:
            self._base = self._base if _describes(self._base, now) else None
            return None
        counting = chain[: last + 1]
        del chain[: last + 1]
        base, self._base, self._base_place = self._base, counting[-1].ddl, counting[-1].own
        if base is None and before is not None:  # the first one is often that of `pgtail ddl install`
            first = next((number for number, one in enumerate(counting) if _describes(one.ddl, before)), last)
            base, counting = counting[first].ddl, counting[first + 1 :]
        if base is None or before is None or not counting:
            return None
        origins = _origins(base, counting, before, now)
        same = before == now and len(origins.kept) == len(now.columns) and all(a == b for a, b in origins.kept.items())
        return None if same else origins


def _describes(ddl: Ddl | None, version: Version) -> bool:
    """Whether the table of a message has exactly the columns of a version, with the same types, and the same key."""
    if ddl is None or ddl.dropped:
        return False
    names = {column.name for column in version.columns}
    columns = [column for column in ddl.columns if column.name in names or column.generated is None]
    if [column.name for column in columns] != [column.name for column in version.columns]:
        return False
    pairs = zip(columns, version.columns, strict=True)
    # Types of the database's own have other names in the stream: a domain that of its base type.
    if any(now.declared.oid in BUILTIN and now.declared.name != column.type for column, now in pairs):
        return False
    if version.partition is not None:
        return True
    key = {column.name for column in columns if column.key and ddl.identity in ("default", "index")}
    return ddl.identity == version.identity and key == set(version.key)


def _origins(base: Ddl, counting: Sequence[Alteration], before: Version, now: Version) -> Origins:
    """The origins of rows of `before`, which `base` describes; the last alteration describes `now`."""
    tables = [one.ddl for one in counting if one.ddl is not None]
    names = {column.attnum: column.name for column in base.columns}
    old = {column.name: column for column in before.columns}
    numbers = {column.name: column.attnum for column in tables[-1].columns}
    # Where rows of the transaction precede a message, the last one may be from after the command.
    doubtful = {
        column.attnum
        for number, one in enumerate(counting)
        if one.place.ordinal > 1 and _describes(one.ddl, before)
        if one.place not in [earlier.place for earlier in counting[:number]]
        for column in tables[number].columns
    }
    kept: dict[str, str] = {}
    added: dict[str, str | None] = {}
    for column in now.columns:
        number = numbers[column.name]
        if number in names:
            was = old.get(names[number])
            if was is not None and keeps_values(was, column, now):
                kept[was.name] = column.name
        elif number not in doubtful:
            seen = [one for table in tables for one in table.columns if one.attnum == number]
            filled = any(one.not_null or one.has_default or one.generated for one in seen)
            # Messages differ after a rewrite, which stores other values, and after a savepoint that was rolled back.
            if len({(one.type, one.missing) for one in seen}) == 1 and not (filled and seen[0].missing is None):
                added[column.name] = seen[0].missing
    return Origins(kept, added)
