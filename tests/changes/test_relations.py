"""Which version of a table applies where, and how two versions differ."""

from __future__ import annotations

import pytest

from pgtail.changes.relations import Relation, Relations, differences
from pgtail.pgoutput.schema import Relation as Message
from pgtail.pgoutput.schema import RelationColumn, Type
from pgtail.values import Types

INT4, TEXT, NUMERIC = 23, 25, 1700
OID = 16400


def described(*names: str, name: str = "t", identity: str = "d", oid: int = OID, type_: int = INT4) -> Message:
    columns = tuple(RelationColumn(int(i == 0), column, type_, -1) for i, column in enumerate(names))
    return Message(None, oid, "public", name, identity, columns)


def names(relation: Relation) -> list[str]:
    return [column.name for column in relation.columns]


@pytest.fixture
def relations() -> Relations:
    return Relations(Types())


def test_last_description_applies(relations: Relations) -> None:
    before, first = relations.see(described("id"))
    assert before is None
    assert relations.get(OID) is first
    before, second = relations.see(described("id", "v"))
    assert before is first
    assert relations.get(OID) is second
    assert relations.versions == [first, second]
    assert [relation.version for relation in relations.versions] == [0, 1]


def test_repeated_description_is_no_new_version(relations: Relations) -> None:
    _, first = relations.see(described("id"))
    assert relations.see(described("id")) == (first, first)
    assert len(relations.versions) == 1


def test_return_to_an_earlier_description_is_a_new_version(relations: Relations) -> None:
    for columns in (("a",), ("a", "b"), ("a",)):
        relations.see(described(*columns))
    assert [names(relation) for relation in relations.versions] == [["a"], ["a", "b"], ["a"]]


def test_a_table_that_was_never_described(relations: Relations) -> None:
    unseen = relations.get(OID)
    assert (unseen.seen, unseen.oid, unseen.columns, unseen.key) == (False, OID, (), [])
    assert unseen.qualified == f"relation {OID}"
    assert relations.get(OID) is unseen
    before, now = relations.see(described("id"))
    assert before is unseen
    assert relations.get(OID) is now


def test_an_empty_namespace_is_pg_catalog(relations: Relations) -> None:
    _, now = relations.see(Message(None, OID, "", "t", "d", ()))
    assert now.qualified == "pg_catalog.t"


@pytest.mark.parametrize(
    ("letter", "word", "key"),
    [("d", "default", ["a"]), ("n", "nothing", ["a"]), ("f", "full", []), ("i", "index", ["a"])],
)
def test_identities(relations: Relations, letter: str, word: str, key: list[str]) -> None:
    _, now = relations.see(described("a", "b", identity=letter))
    assert (now.identity, now.key) == (word, key)


def test_a_stream_sees_its_own_description_and_others_do_not(relations: Relations) -> None:
    _, outside = relations.see(described("id"))
    _, inside = relations.see(described("id", "v"), 7)
    assert relations.get(OID) is outside
    assert relations.get(OID, 8) is outside
    assert relations.get(OID, 7) is inside
    relations.keep(7)
    assert relations.get(OID) is inside


def test_rolled_back_stream_leaves_no_description(relations: Relations) -> None:
    _, outside = relations.see(described("id"))
    relations.see(described("id", "v"), 7)
    relations.drop(7)
    assert relations.get(OID) is outside
    assert relations.get(OID, 7) is outside


def test_newer_description_survives_the_commit_of_a_stream(relations: Relations) -> None:
    relations.see(described("id", "a"), 7)
    _, newer = relations.see(described("id", "b"))
    relations.keep(7)
    assert relations.get(OID) is newer


def test_later_description_wins_in_either_commit_order(relations: Relations) -> None:
    for first, second in ((7, 8), (8, 7)):
        relations.see(described("id", "a"), 7)
        _, newer = relations.see(described("id", "b"), 8)
        relations.keep(first)
        relations.keep(second)
        assert relations.get(OID) is newer


def test_a_stream_that_never_described_anything(relations: Relations) -> None:
    relations.keep(7)
    relations.drop(7)
    assert relations.get(OID, 7).seen is False


def test_a_renamed_type_makes_another_version_with_its_codec(relations: Relations) -> None:
    relations.see_type(Type(None, 20000, "public", "thing"))
    _, before = relations.see(described("id", type_=20000))
    relations.see_type(Type(None, 20000, "public", "hstore"))
    _, now = relations.see(described("id", type_=20000))
    assert now is not before
    assert now.columns[0].type_name != before.columns[0].type_name
    assert differences(before, now) == ["column id: its type public.thing is called public.hstore now"]


def test_type_declared_late_applies_from_then_on(relations: Relations) -> None:
    _, before = relations.see(described("id", type_=20000))
    relations.see_type(Type(None, 20000, "", "int4"))
    _, now = relations.see(described("id", type_=20000))
    assert now.columns[0].codec is not before.columns[0].codec
    assert now.columns[0].codec.json_text(b"5") == b"5"


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (described("a", "b"), described("a", "b"), []),
        (described("a"), described("a", name="u"), ["renamed from public.t"]),
        (described("a", name="T t"), described("a"), ['renamed from public."T t"']),
        (described("a"), described("a", identity="f"), ["replica identity default -> full"]),
        (described("a"), described("a", "b"), ["column b added"]),
        (described("a", "b"), described("a"), ["column b dropped"]),
        (described("a", "b"), described("a", "C"), ['column b renamed to "C"']),
        (
            described("a", "b"),
            described("b", "a"),
            ["column b joined the replica identity", "column a left the replica identity"],
        ),
        (described("a"), described("a", type_=TEXT), ["column a retyped from integer to text"]),
        (described("a", "b"), described("a", "x", "y"), ["column b dropped", "column x added", "column y added"]),
    ],
)
def test_differences(relations: Relations, before: Message, now: Message, found: list[str]) -> None:
    _, one = relations.see(before)
    _, two = relations.see(now)
    assert differences(one, two) == found


def test_a_column_of_another_type_and_name_is_dropped_and_added(relations: Relations) -> None:
    columns = (RelationColumn(1, "a", INT4, -1), RelationColumn(0, "b", INT4, -1))
    other = (RelationColumn(1, "a", INT4, -1), RelationColumn(0, "c", NUMERIC, 655366))
    _, one = relations.see(Message(None, OID, "public", "t", "d", columns))
    _, two = relations.see(Message(None, OID, "public", "t", "d", other))
    assert differences(one, two) == ["column b dropped", "column c added"]
    assert two.columns[1].type_name == "numeric(10,2)"
