"""Ranges of overlapping segments: what is read of all of them together is everything, each place once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtail.arrow.decoding.decode import survey
from pgtail.arrow.segments.ranges import EVERYWHERE, Place, Range, within
from pgtail.arrow.segments.survey import Survey
from pgtail.demo.server import EmbeddedServer
from pgtail.errors import InputError, OptionError
from pgtail.spark.segments.applied import SegmentRun
from pgtail.spark.segments.listing import collapse_whole_segments, parts_of, server_of
from tests.support.servers import fresh_database
from tests.support.spark import model

PLACES = st.builds(Place, st.integers(1, 6), st.integers(0, 4))
PARTS = st.tuples(PLACES, PLACES).map(lambda pair: Range(min(pair), max(pair).next))
ALL = [Place(position, ordinal) for position in range(1, 7) for ordinal in range(5)]


def surveys(parts: list[Range], stream: str = "s") -> list[Survey]:
    return [Survey(f"/{number}/x.pgcap", part, stream, "server", "") for number, part in enumerate(parts)]


def applied(part: Range) -> SegmentRun:
    return SegmentRun("a", "b", "", "s", places=part)


@given(st.lists(PARTS, max_size=6), st.lists(PARTS, max_size=2))
def test_every_place_is_read_once_unless_it_was_covered(parts: list[Range], covered: list[Range]) -> None:
    before = parts_of(surveys(covered))
    already = [part for some in before.values() for part in some or ()]
    wanted = parts_of(surveys(parts), [applied(part) for part in already])
    for place in ALL:
        there = any(within((part,), *place) for part in parts)
        done = any(within((part,), *place) for part in already)
        assert sum(within(some, *place) for some in wanted.values()) == (there and not done)


@given(st.lists(PARTS, max_size=6))
def test_a_segment_that_is_read_whole_is_not_cut(parts: list[Range]) -> None:
    found = surveys(parts)
    wanted = parts_of(found)
    for segment in found:
        some = collapse_whole_segments(wanted, found).get(segment.path, ())
        assert segment.places is not None
        inside = [place for place in ALL if within((segment.places,), *place)]
        read = [within(wanted.get(segment.path, ()), *place) for place in inside]
        assert [within(some, *place) for place in inside] == read
        assert (some is EVERYWHERE) == all(read)


@given(
    st.permutations([Range(Place(1, 0), Place(3, 3)), Range(Place(2, 1), Place(5, 1)), Range(Place(1, 2), Place(6, 5))])
)
def test_the_order_in_which_they_come_changes_nothing(parts: list[Range]) -> None:
    found = parts_of(surveys(parts))
    assert {place for place in ALL if any(within(some, *place) for some in found.values())} == {
        place for place in ALL if Place(1, 0) <= place
    }


def test_there_is_nothing_between_a_segment_and_the_next() -> None:
    one = Survey("/a/0000000000000001-0000000001.pgcap", Range(Place(1, 1), Place(1, 4)), "s", "server", "")
    two = Survey("/a/0000000000000005-0000000001.pgcap", Range(Place(5, 1), Place(5, 4)), "s", "server", one.name)
    other = Survey("/b/0000000000000001-0000000001.pgcap", Range(Place(1, 1), Place(5, 4)), "s", "server", "")
    taken = [applied(part) for some in parts_of([two, one]).values() for part in some or ()]
    assert parts_of([other], taken) == {}


def test_segments_of_other_streams_must_not_overlap() -> None:
    one = surveys([Range(Place(1, 1), Place(3, 4))])
    same = [replace(part, path="/other/x.pgcap", stream="t") for part in one]
    with pytest.raises(OptionError, match="/other/x.pgcap overlaps another capture") as refused:
        parts_of([*one, *same])
    assert str(refused.value).endswith(f"\n/other/x.pgcap: t\n{one[0].path}: {one[0].stream}")
    later = [replace(part, path="/other/x.pgcap", stream="t", places=Range(Place(4, 1), Place(4, 3))) for part in one]
    assert len(parts_of([*one, *later])) == 2


def test_captures_of_two_servers_are_not_one() -> None:
    one, other = surveys([Range(Place(1, 1), Place(1, 2)), Range(Place(2, 1), Place(2, 2))])
    assert (
        server_of([one, other], one.server, ["/earlier"]) == server_of([replace(one, server=""), other]) == one.server
    )
    with pytest.raises(InputError, match=f"^{other.path} and {one.path} come from different servers or databases"):
        server_of([one, replace(other, server="another")])
    with pytest.raises(InputError, match=f"^{one.path} and /earlier, /too come from different servers or databases"):
        server_of([one, other], "another", ["/earlier", "/too"])


def test_databases_and_ways_to_decode_are_told_apart(newest_server: EmbeddedServer, tmp_path: Path) -> None:
    """Two databases of a server write one log; a slot with two_phase has prepared transactions at other places."""
    with fresh_database(newest_server) as one, fresh_database(newest_server) as other:
        slots = {"s1": one, "s2": one, "s3": other}
        for database in (one, other):
            database.execute("CREATE TABLE t (a int)", "CREATE PUBLICATION p FOR ALL TABLES")
        for name, database in slots.items():
            two_phase = "true" if name == "s2" else "false"
            database.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', false, {two_phase})")
        for database in (one, other, one):
            database.execute("INSERT INTO t VALUES (1)")
        for name, database in slots.items():
            model.record(database, tmp_path / name, slot=name)
    found = {path.parent.name: surveyed(path) for path in tmp_path.rglob("*.pgcap")}
    assert len(found) == 3
    with pytest.raises(InputError, match=r"/s3/\S+ and \S+/s1/\S+ come from different servers or databases"):
        server_of([found["s1"], found["s3"]])
    server_of([found["s1"], found["s2"]])
    with pytest.raises(OptionError, match="overlaps another capture, of another stream"):
        parts_of([found["s1"], found["s2"]])


def surveyed(path: Path) -> Survey:
    with path.open("rb") as file:
        return survey(file, str(path))
