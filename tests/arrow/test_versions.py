"""Which columns of a version of a table are those of the next one: every pair of small tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.arrow.typed.arrow_types import Declared
from pgtail.arrow.typed.versions import Version, VersionColumn, kept

TYPES = {"int": Declared(23, -1, "integer"), "text": Declared(25, -1, "text"), "big": Declared(20, -1, "bigint")}


def version(columns: str, *, key: Sequence[str] = ("id",)) -> Version:
    """Of columns such as `id int, a text`."""
    pairs = [pair.split() for pair in columns.split(", ") if pair]
    found = tuple(VersionColumn(name, TYPES[kind]) for name, kind in pairs)
    return Version("r", "public", "t", "default", tuple(name for name in key if name in dict(pairs)), found)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        # One ALTER TABLE.
        ("id int, a int", "id int, a int, b int", "id=id a=a"),
        ("id int, a int, b int, c int", "id int, a int, c int", "id=id a=a c=c"),
        ("id int, a int, b text", "id int, x int, b text", "id=id a=x b=b"),
        ("id int, a int, b text", "id int, a big, b text", "id=id a=a b=b"),
        ("id int, a int", "id int, a big", "id=id a=a"),
        ("id int, a int", "id int, a text", "id=id a=a"),
        ("id int, a text, b int", "id int, a int, b int", "id=id b=b"),
        # RENAME a TO x, or DROP a, ADD x.
        ("id int, a int", "id int, x int", "id=id"),
        ("id int", "x int", ""),
        # RENAME a TO x and its type, or a column that a publication's list did not have.
        ("id int, a int, b text", "id int, x big, b text", "id=id b=b"),
        # DROP a, ADD a; or names exchanged by RENAME, which types may exclude.
        ("id int, a int, b int", "id int, b int, a int", "id=id"),
        ("id int, a int, b text", "id int, b text, a int", "id=id b=b"),
        ("id int, a int, b int, c text", "id int, b int, a int, c text", "id=id"),
        ("id int, a int, b int, c text", "id int, b int, c text, a int", "id=id c=c"),
        # RENAME a TO old, ADD a.
        ("id int, a int, b int", "id int, old int, b int, a int", "id=id a=old b=b"),
        ("id int, a int", "id int, old int, a int", "id=id"),
        # DROP a, RENAME n TO a.
        ("id int, a int, b text, n int", "id int, b text, a int", "id=id b=b"),
        ("id int, a int, b text, n big", "id int, b text, a big", "id=id b=b"),
        ("id int, a int, n big", "id int, a big", "id=id"),
        # Which one was dropped and which one renamed.
        ("id int, a int, b int, c text", "id int, x int, c text", "id=id c=c"),
        # ADD id, with a key: columns in the key and others do not exchange their names.
        ("id int, a int, b text", "a int, id int, b text", "a=a"),
    ],
)
def test_what_a_description_shows(before: str, now: str, expected: str) -> None:
    found = kept(version(before), version(now))
    assert " ".join(f"{old}={new}" for old, new in found.items()) == expected


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


def certain(before: Version, now: Version) -> dict[str, str]:
    """The columns that are the same in all of these histories."""
    every = [set(zip(one, range(len(now.columns)), strict=False)) for one in readings(before, now)]
    return {before.columns[old].name: now.columns[new].name for old, new in set.intersection(*every)}


def tables(names: str, most: int) -> Iterator[str]:
    """Every table of up to so many columns."""
    for size in range(most + 1):
        for some in itertools.permutations(names, size):
            for types in itertools.product(("int", "text"), repeat=size):
                yield ", ".join(f"{name} {kind}" for name, kind in zip(some, types, strict=True))


FOUR = ("a int, b int, c int, d int", "a int, b text, c int, d text")


@pytest.mark.parametrize("key", ["", "b"])
def test_what_is_kept_is_the_same_in_every_history(key: str) -> None:
    """Of pairs of small tables: every one that tables of one to four columns may become."""
    for columns in [", ".join(one.split(", ")[:size]) for one in FOUR for size in range(5)]:
        before = version(columns, key=key)
        for after in tables("abcx", 4):
            now = version(after, key=key)
            found, same = kept(before, now), certain(before, now)
            assert found.items() <= same.items(), (columns, after)
            types, types_now = dict(before.columns), dict(now.columns)
            assert all(types[old] != types_now[same[old]] for old in same.keys() - found.keys()), (columns, after)


@given(st.integers(1, 7), st.integers(0, 7), st.data())
def test_wider_tables(size: int, size_now: int, data: st.DataObject) -> None:
    columns = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(sorted(TYPES)))
    drawn = [data.draw(st.lists(columns, max_size=most, unique_by=itemgetter(0))) for most in (size, size_now)]
    before, now = (version(", ".join(map(" ".join, one)), key="ab") for one in drawn)
    found, same = kept(before, now), certain(before, now)
    assert found.items() <= same.items()
