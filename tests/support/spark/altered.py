"""Tables under random ALTER TABLEs, on a server; and the histories between two descriptions of a table, all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pgtail.spark.typed.arrow_types import Declared
from pgtail.spark.typed.versions import Version, VersionColumn

Reading = tuple[int, ...]
"""For each column that stayed, its place before; the others are new ones, and come after it."""


def same_type(one: VersionColumn, other: VersionColumn) -> bool:
    return one.declared == other.declared


def readings(before: Version, now: Version) -> list[Reading]:
    """Every history of a table that the rule in pgtail-spark-state(1) allows, one after another."""
    old, new = before.columns, now.columns
    names = {column.name for column in old} & {column.name for column in new}
    places = {column.name: place for place, column in enumerate(old)}
    unchanged = {column.name for column in new if column.name in names and same_type(column, old[places[column.name]])}
    possible = [
        one for size in range(min(len(old), len(new)) + 1) for one in itertools.combinations(range(len(old)), size)
    ]

    def new_names(one: Reading) -> int:
        """How many names of before are those of new columns."""
        return sum(column.name in names for column in new[len(one) :])

    def names_stay(one: Reading) -> bool:
        pairs = [(old[place].name, column.name) for place, column in zip(one, new, strict=False)]
        return not new_names(one) and not any(was != is_ and {was, is_} & unchanged for was, is_ in pairs)

    def unrenamed(one: Reading) -> bool:
        pairs = [(old[place].name, column.name) for place, column in zip(one, new, strict=False)]
        return all(was == is_ or is_ not in names for was, is_ in pairs)

    def exchanged(place: int, column: VersionColumn) -> bool:
        was = old[place]
        in_key = (was.name in before.key) == (column.name in now.key)
        return was.name == column.name or column.name not in unchanged or (same_type(was, column) and in_key)

    fewest = min(new_names(one) for one in possible if unrenamed(one))
    if fewest == 0:
        return [one for one in possible if names_stay(one)]
    return [
        one
        for one in possible
        if new_names(one) <= fewest and all(itertools.starmap(exchanged, zip(one, new, strict=False)))
    ]


# -- a table on a server -----------------------------------------------------------------------------------------------

Values = dict[str, str | None]

TYPES: Final = {
    "integer": Declared(23, -1, "integer"),
    "bigint": Declared(20, -1, "bigint"),
    "text": Declared(25, -1, "text"),
}


@dataclass(eq=False)
class Own:
    """A column, whatever its name and type are."""

    name: str
    kind: str


@dataclass
class Altered:
    """A table, what becomes of its columns, and all rows that the server had before each change of one."""

    name: str
    source: Random
    full: bool
    columns: list[Own] = field(default_factory=list)
    key: Own = field(default_factory=lambda: Own("id", "integer"))
    ids: list[int] = field(default_factory=list)
    next: int = 1
    shown: list[Own] | None = None
    """The columns when the server last described the table, and that description."""
    version: Version | None = None
    before: list[list[Values]] = field(default_factory=list)
    steps: int = 0
    hidden: int = 0
    """Alterations between two changes; and those that were not made since no description shows them."""

    def create(self) -> list[str]:
        kinds = [self.source.choice(list(TYPES)) for _ in range(self.source.randint(1, 4))]
        self.columns = [Own(f"c{number}", kind) for number, kind in enumerate(kinds)]
        self.columns.insert(self.source.choice([0, 0, len(kinds) // 2, len(kinds)]), self.key)
        columns = ", ".join(f"{one.name} {one.kind}" for one in self.columns)
        identity = f"ALTER TABLE {self.name} REPLICA IDENTITY FULL"
        created = f"CREATE TABLE {self.name} ({columns}{'' if self.full else ', PRIMARY KEY (id)'})"
        return [created, *([identity] if self.full else []), *(self.insert() for _ in range(5))]

    def step(self) -> Iterator[str]:
        """Some alterations, then some changes."""
        yield from self.alter()
        for _ in range(self.source.randint(1, 2)):
            yield self.change()

    # -- alterations -----------------------------------------------------------------------------------------------

    def alter(self) -> list[str]:
        """One or several alterations that a description shows; see readings()."""
        self.steps += 1
        while True:
            columns = list(self.columns)
            were = [(one, one.name, one.kind) for one in columns]
            done = [action for _ in range(self.source.choice([1, 1, 2, 2, 3, 4])) for action in self.action()]
            if len(self.columns) < 8:
                if self.is_shown():
                    return self.together(done)
                self.hidden += 1
            self.columns = columns
            for one, name, kind in were:
                one.name, one.kind = name, kind

    def together(self, actions: list[str]) -> list[str]:
        """DROP and ADD in one statement, or not. PostgreSQL drops first."""
        if [action.split()[0] for action in actions] == ["DROP", "ADD"] and self.source.random() < 0.5:
            actions = [", ".join(actions)]
        return [f"ALTER TABLE {self.name} {action}" for action in actions]

    def action(self) -> list[str]:
        actions: list[Callable[[], list[str]]] = [
            self.add,
            self.drop,
            self.replace,
            self.rename,
            self.retype,
            self.swap,
        ]
        return self.source.choice(actions)()

    def add(self) -> list[str]:
        one = Own(self.free(), self.source.choice(list(TYPES)))
        self.columns.append(one)
        return [f"ADD {one.name} {one.kind}{self.source.choice(['', ' DEFAULT 7'])}"]

    def drop(self) -> list[str]:
        if len(self.columns) == 1:
            return []
        one = self.source.choice([one for one in self.columns if one is not self.key])
        self.columns.remove(one)
        return [f"DROP {one.name}"]

    def replace(self) -> list[str]:
        """By a new column of that name."""
        if len(self.columns) == 1:
            return []
        one = self.source.choice([one for one in self.columns if one is not self.key])
        self.columns.remove(one)
        kind = self.source.choice([one.kind, *TYPES])
        self.columns.append(Own(one.name, kind))
        return [f"DROP {one.name}", f"ADD {one.name} {kind}"]

    def rename(self) -> list[str]:
        one = self.source.choice(self.columns)
        was, one.name = one.name, self.free()
        return [f"RENAME {was} TO {one.name}"]

    def swap(self) -> list[str]:
        if len(self.columns) == 1:
            return []
        one, other = self.source.sample(self.columns, 2)
        found = [
            f"RENAME {one.name} TO swapped",
            f"RENAME {other.name} TO {one.name}",
            f"RENAME swapped TO {other.name}",
        ]
        one.name, other.name = other.name, one.name
        return found

    def retype(self) -> list[str]:
        one = self.source.choice(self.columns)
        one.kind = self.source.choice(list(TYPES))
        return [f"ALTER {one.name} TYPE {one.kind} USING {one.name}::{one.kind}"]

    def free(self) -> str:
        return self.source.choice(sorted({f"c{number}" for number in range(12)} - {one.name for one in self.columns}))

    # -- descriptions ----------------------------------------------------------------------------------------------

    def description(self) -> Version:
        columns = tuple(VersionColumn(one.name, TYPES[one.kind]) for one in self.columns)
        key = () if self.full else (self.key.name,)
        return Version("", "public", self.name, "full" if self.full else "default", key, columns)

    def is_shown(self) -> bool:
        """Whether what became of the columns is among what their description says."""
        if self.shown is None or self.version is None:
            return True
        stayed = tuple(self.shown.index(one) for one in self.columns if one in self.shown)
        return stayed in readings(self.version, self.description())

    # -- changes ---------------------------------------------------------------------------------------------------

    def change(self) -> str:
        """One change of one row. The server describes the table before it."""
        return self.source.choice([self.insert, self.update, self.update, self.delete] if self.ids else [self.insert])()

    def insert(self) -> str:
        self.described()
        self.ids.append(self.next)
        self.next += 1
        values = [str(self.ids[-1]) if one is self.key else self.value() for one in self.columns]
        return f"INSERT INTO {self.name} VALUES ({', '.join(values)})"

    def update(self) -> str:
        self.described()
        others = [one for one in self.columns if one is not self.key]
        to = f"{self.source.choice(others).name} = {self.value()}" if others else f"{self.key.name} = {self.key.name}"
        return f"UPDATE {self.name} SET {to} WHERE {self.key.name} = '{self.source.choice(self.ids)}'"

    def delete(self) -> str:
        self.described()
        gone = self.ids.pop(self.source.randrange(len(self.ids)))
        return f"DELETE FROM {self.name} WHERE {self.key.name} = '{gone}'"

    def described(self) -> None:
        self.shown, self.version = list(self.columns), self.description()

    def value(self) -> str:
        return self.source.choice(["NULL", f"'{self.source.randrange(1000)}'"])
