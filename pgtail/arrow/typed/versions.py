"""The versions of a table, and which values stay known from one to the next; uses no Arrow array.

pgoutput sends a table's columns, not what ALTER TABLE did with its rows. Values that it may have changed are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from pgtail.arrow.typed.arrow_types import STRING, Declared, arrow_type, widest
from pgtail.values.oids import BUILTIN


class VersionColumn(NamedTuple):
    """A column of one version of a table."""

    name: str
    declared: Declared


class Version(Struct, frozen=True):
    """A table as a Relation message described it. `key` is empty for identity full, and if there is none.

    `partition` is the one whose identity the table has, as SQL writes its name: two partitions may have rows with one
    key.
    """

    relation: str
    schema: str
    table: str
    identity: str
    key: tuple[str, ...]
    columns: tuple[VersionColumn, ...]
    partition: str | None = None

    @property
    def full(self) -> bool:
        """Whether the server sends the whole old row."""
        return self.identity == "full"

    @property
    def identified(self) -> bool:
        """Whether updates and deletes identify their row."""
        return self.full or bool(self.key)

    @property
    def identifying(self) -> tuple[str, ...]:
        """The columns that identify a row: the key, or all of them."""
        return tuple(column.name for column in self.columns) if self.full else self.key

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Version:
        """From a row of `relations`."""
        columns = tuple(
            VersionColumn(one["name"], Declared(one["type_oid"], one["typmod"], one["type"])) for one in row["columns"]
        )
        flagged = tuple(one["name"] for one in row["columns"] if one["key"])
        key = flagged if row["identity"] in ("default", "index") else ()
        return cls(row["relation"], row["schema"], row["table"], row["identity"], key, columns, row.get("partition"))


def kept(before: Version, now: Version) -> dict[str, str]:
    """The columns whose values stay known from one version to the next: name before -> name now.

    A column is known to be an earlier one if the order leaves no other possibility; see _reading(). Its values are
    known if its name or its type stayed. The protocol does not send a USING expression of ALTER TABLE. If rows are
    found by a column's text, the text must stay exactly the same.
    """
    names = {}
    for old, new in _same_columns(before, now):
        if keeps_values(old, new, now) if old.name == new.name else _same_type(old, new):
            names[old.name] = new.name
    return names


def keeps_values(old: VersionColumn, new: VersionColumn, now: Version) -> bool:
    """Whether the values of a column of the version before stay known as those of a column `now`."""
    stays = same_text if now.full or new.name in now.key else same_value
    return stays(old.declared, new.declared)


_MayBecome: TypeAlias = Callable[[VersionColumn, VersionColumn], bool]


def _same_columns(before: Version, now: Version) -> Iterator[tuple[VersionColumn, VersionColumn]]:
    """The columns that are certainly the same in both versions."""
    old = before.columns
    new, may_become = _reading(before, now)
    first = _places(old, new, may_become)
    last = _places(old[::-1], new[::-1], may_become)
    for number, place in enumerate(first):
        if place == len(old) - 1 - last[len(new) - 1 - number]:
            yield old[place], new[number]


def _reading(before: Version, now: Version) -> tuple[Sequence[VersionColumn], _MayBecome]:
    """The columns that existed before, and a function for which of the earlier ones each may be.

    PostgreSQL puts a new column last and never moves one: the columns that stayed come first, in the order of before.
    A name stays with its column if that can hold for all names: ALTER TABLE could have dropped a column and given its
    name and type to another one, but nothing shows it. If it cannot hold, as few names as possible count as those of
    new columns, and columns of one type, both in the key or both not, may have taken each other's names.
    """
    was, becomes = dict(before.columns), dict(now.columns)
    names = was.keys() & becomes.keys()
    same = {name for name in names if _same_type(VersionColumn(name, was[name]), VersionColumn(name, becomes[name]))}

    def names_stay(old: VersionColumn, new: VersionColumn) -> bool:
        return old.name == new.name or not same.intersection((old.name, new.name))

    def as_named(old: VersionColumn, new: VersionColumn) -> bool:
        return old.name == new.name or new.name not in names

    def names_move(old: VersionColumn, new: VersionColumn) -> bool:
        alike = _same_type(old, new) and (old.name in before.key) == (new.name in now.key)
        return old.name == new.name or new.name not in same or alike

    named = now.columns[: len(_places(before.columns, now.columns, as_named))]
    while named and named[-1].name not in names:  # it may be a new one
        named = named[:-1]
    moved = any(column.name in names for column in now.columns[len(named) :])
    return named, names_move if moved else names_stay


def _places(old: Sequence[VersionColumn], new: Sequence[VersionColumn], may_become: _MayBecome) -> list[int]:
    """The first place in `old`, in its order, for each column of `new`, up to one that has none."""
    places: list[int] = []
    place = 0
    for column in new:
        while place < len(old) and not may_become(old[place], column):
            place += 1
        if place == len(old):
            break
        places.append(place)
        place += 1
    return places


def _same_type(one: VersionColumn, other: VersionColumn) -> bool:
    return (one.declared.oid, one.declared.typmod) == (other.declared.oid, other.declared.typmod)


_INTEGERS: Final = frozenset({"int2", "int4", "int8"})
_EXACT: Final = _INTEGERS | {"numeric"}
_TEXTS: Final = frozenset({"text", "varchar"})
_SAME_AS_TEXT: Final = frozenset({"text", "varchar", "int2", "int4", "int8", "oid", "numeric", "uuid", "json", "name"})
"""The types whose cast to text gives their output, whatever the session's settings were."""


def same_text(before: Declared, now: Declared) -> bool:
    """Whether ALTER TABLE ... TYPE, without USING, leaves PostgreSQL's text of every value as it was."""
    if (before.oid, before.typmod) == (now.oid, now.typmod):
        return True
    if before.oid not in BUILTIN or now.oid not in BUILTIN:
        return False
    was, becomes = BUILTIN[before.oid].name, BUILTIN[now.oid].name
    if becomes in _TEXTS and was in _SAME_AS_TEXT:
        return now.typmod < 0 or (was == becomes and 0 <= before.typmod <= now.typmod)
    if was == becomes and was in ("timestamp", "timestamptz"):
        return now.typmod in (-1, 6)
    if becomes == "numeric" and now.typmod < 0:
        return was in _EXACT
    return was in _INTEGERS and becomes in _INTEGERS and _holds(before, now)


def same_value(before: Declared, now: Declared) -> bool:
    """Whether ALTER TABLE ... TYPE, without USING, leaves every value as it was; decimals may get other zeros."""
    if same_text(before, now):
        return True
    numbers = all(one.oid in BUILTIN and BUILTIN[one.oid].name in _EXACT for one in (before, now))
    return numbers and arrow_type(now) != STRING and _holds(before, now)


def _holds(before: Declared, now: Declared) -> bool:
    return bool(widest((arrow_type(before), arrow_type(now))) == arrow_type(now))
