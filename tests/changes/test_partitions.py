"""What the Relations of a root and of its partition say, as messages: in every output, by decoder and scanner."""

from __future__ import annotations

import orjson
import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Described, SchemaChange
from pgtail.pgoutput.decoder import Decoder
from pgtail.values import Types
from tests.support.encode import (
    INT4,
    STREAM_STOP,
    TEXT,
    begin,
    commit,
    delete,
    frame,
    insert,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
    truncate,
    type_,
    update,
)
from tests.support.render import all_ways, render
from tests.support.same import OUTPUTS, same

COLUMNS = (("id", INT4), ("d", INT4), ("v", TEXT))
ROOT = relation(100, "ev", COLUMNS, identity="f", key=(0, 1, 2))
ROOT_BY_KEY = relation(100, "ev", COLUMNS, key=(0, 1))
LEAF = relation(101, "ev_1", COLUMNS, key=(0, 1))
FULL_LEAF = relation(101, "ev_1", COLUMNS, identity="f", key=(0, 1, 2))
OTHER = relation(102, "ev_2", (("v", TEXT), ("d", INT4), ("id", INT4)), identity="i", key=(0, 2))
"""A partition with its columns in another order."""
BY_KEY = relation(103, "ev_3", COLUMNS, key=(0, 1))
ROWS = (
    insert("1", "1", "a"),
    update(["1", "1", "b"]),
    update(["2", "1", "b"], ["1", "1", None], "O"),
    delete("2", "1", None, kind="O"),
)
KEY_ONLY, NULL = {"id": 2, "d": 1}, {"id": 2, "d": 1, "v": None}


def old_rows(*messages: bytes) -> list[object]:
    """The old rows in the JSON of a transaction."""
    return [one["old"] for one in all_ways(begin(), *messages, commit()).objects if "old" in one]


def versions(*messages: bytes) -> list[tuple[str, str, list[str]]]:
    """The table, identity and key of each version that is told of."""
    assembler, decoder, found = Assembler(Types()), Decoder(), list[tuple[str, str, list[str]]]()
    for data in messages:
        framed = frame(data)
        message, lsn, _ = decoder.frame(framed, 0, len(framed))
        events = assembler.feed(message, lsn)
        now = [event.now for event in events if isinstance(event, SchemaChange)]
        found += [(one.name, one.identity, one.key) for one in now]
    return found


@pytest.mark.parametrize(("output", "options"), OUTPUTS)
def test_decoder_and_scanner_write_the_same(output: str, options: dict[str, object]) -> None:
    pairs = ((LEAF,), (type_(20000, "x"), OTHER), (FULL_LEAF,))
    messages = [one for pair in pairs for one in (ROOT, *pair, *ROWS)]
    same(begin(), *messages, commit(), output=output, **options)


def test_a_null_outside_of_the_partitions_identity_is_no_value() -> None:
    assert old_rows(ROOT, LEAF, *ROWS) == [{"id": 1, "d": 1}, KEY_ONLY]
    assert old_rows(ROOT, type_(20000, "x"), LEAF, *ROWS)[1] == KEY_ONLY
    assert old_rows(ROOT, FULL_LEAF, *ROWS)[1] == NULL
    assert old_rows(ROOT, LEAF, insert("1", "1", "a"), delete("2", "1", "b", kind="O")) == [{**KEY_ONLY, "v": "b"}]


def test_what_all_partitions_have_in_common_is_known() -> None:
    rows = ROOT, LEAF, *ROWS, ROOT, OTHER, *ROWS
    assert old_rows(*rows)[2:] == [{"id": 1, "d": 1}, {"id": 2, "d": 1}]  # values that were sent stay
    assert old_rows(*rows, delete("2", None, None, kind="O"))[4:] == [{"id": 2}]
    found = versions(begin(), *rows, commit())
    assert found[-1] == ("ev", "nothing", ["id"])
    assert versions(begin(), ROOT, FULL_LEAF, *ROWS, ROOT, OTHER, *ROWS)[-1] == ("ev", "index", ["id", "v"])


def test_the_identity_of_a_partition_may_change() -> None:
    assert old_rows(ROOT, LEAF, *ROWS, ROOT, FULL_LEAF, *ROWS)[2:] == [{"id": 1, "d": 1, "v": None}, NULL]
    assert old_rows(ROOT, FULL_LEAF, *ROWS, ROOT, LEAF, *ROWS)[2:] == [{"id": 1, "d": 1}, KEY_ONLY]
    detached = LEAF, insert("1", "1", "a", oid=101)
    assert old_rows(ROOT, LEAF, *ROWS, *detached, *ROWS)[3:] == [NULL]
    assert versions(begin(), ROOT, LEAF, *ROWS, *detached)[-1] == ("ev", "full", [])


def test_a_weaker_identity_than_that_of_the_root_need_not_be_of_full() -> None:
    by_code = relation(101, "ev_1", COLUMNS, identity="i", key=(2,))
    assert old_rows(ROOT_BY_KEY, by_code, insert("1", "1", "a"), delete(None, None, "a")) == [{"v": "a"}]
    assert old_rows(ROOT_BY_KEY, LEAF, *ROWS)[1] == KEY_ONLY
    assert old_rows(ROOT_BY_KEY, FULL_LEAF, insert("1", "1", "a"), delete("2", "1", "b"))[0] == {**KEY_ONLY, "v": "b"}


def test_no_description_tells_what_did_not_change() -> None:
    rows = ROOT, LEAF, *ROWS
    assert versions(begin(), *rows, *rows, ROOT, *ROWS, *rows, commit()) == [
        ("ev", "full", []),
        ("ev_1", "default", ["id", "d"]),
        ("ev", "default", ["id", "d"]),
    ]


def test_the_note_names_the_partition() -> None:
    found = render(begin(), ROOT, LEAF, *ROWS, ROOT, OTHER, *ROWS, commit(), output="json", schema_changes=True)
    words = [one["differences"] for one in found.objects if one["op"] == "relation" and one.get("differences")]
    assert words[0] == [
        "replica identity full -> default, that of its partition public.ev_1",
        "column v left the replica identity",
    ]
    assert words[1][0] == "replica identity default -> nothing: its partitions have different ones, public.ev_1 default"


def test_relations_that_are_no_pair() -> None:
    other = relation(101, "other", (*COLUMNS, ("more", TEXT)))
    for between in (
        (LEAF, truncate(100, 101)),
        (LEAF, commit(), begin()),
        (other,),
        (LEAF, insert("1", "1", "a", oid=101)),
    ):
        assert old_rows(ROOT, *between, *ROWS)[1] == NULL


def test_what_is_between_two_relations_of_its_root_is_a_partition() -> None:
    head = ROOT, LEAF, ROOT, OTHER, ROOT
    assert old_rows(*head, *ROWS, delete("2", None, None, kind="O"))[2] == {"id": 2}
    assembler, decoder = Assembler(Types(), tells_descriptions=True), Decoder()
    events = [event for one in head for event in assembler.feed(decoder.frame(frame(one), 0, 25 + len(one))[0], None)]
    assert [event.oid for event in events if isinstance(event, Described)] == [100, 101, 102]


def streamed(*messages: bytes, xid: int = 7, first: int = 1) -> list[bytes]:
    """Messages without an xid of their own, as a segment of a streamed transaction."""
    own = xid.to_bytes(4, "big")
    return [stream_start(xid, first), *[one[:1] + own + one[1:] for one in messages], STREAM_STOP]


def test_in_streamed_transactions() -> None:
    def olds(*messages: bytes) -> list[object]:
        return [one["old"] for one in all_ways(*messages).objects if one["op"] == "delete"]

    after = begin(9, 0x200), *ROWS, commit(0x200, 0x208)
    assert olds(*streamed(ROOT, LEAF, *ROWS), stream_commit(), *after) == [KEY_ONLY, KEY_ONLY]
    two = *streamed(ROOT, FULL_LEAF, *ROWS), *streamed(ROOT, BY_KEY, *ROWS, xid=8), *streamed(*ROWS, first=0)
    assert olds(*two, stream_commit(), stream_commit(8, 0x110, 0x118), *after) == [NULL, NULL, KEY_ONLY, KEY_ONLY]
    again = *streamed(ROOT, LEAF, *ROWS), stream_abort(7, 7), begin(9, 0x200), ROOT, LEAF, *ROWS, commit(0x200, 0x208)
    assert olds(*again) == [KEY_ONLY]


def test_a_partition_described_while_a_streamed_transaction_is_open() -> None:
    """The transaction described the root first, without this partition; after its commit both apply."""
    rows = begin(9, 0x80), ROOT, BY_KEY, *ROWS, commit(0x80, 0x88)
    after = begin(10, 0x200), delete("2", "1", None, kind="O"), commit(0x200, 0x208)
    first, second = streamed(ROOT, FULL_LEAF, *ROWS), streamed(ROOT, FULL_LEAF, *ROWS, first=0)
    found = all_ways(*first, *rows, *second, stream_commit(), *after)
    assert orjson.loads(found.lines[-1])["old"] == KEY_ONLY
