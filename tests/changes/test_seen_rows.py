"""Old rows that were not sent: taken from what the stream has shown, and from nothing that may have changed unseen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.complete_tables import EVERY, NONE, CompleteTables
from pgtail.changes.events import SEEN, RowChange
from pgtail.changes.seen_rows import SeenRows
from pgtail.changes.streaming import Show
from pgtail.pgoutput.cells import UNCHANGED as UNKNOWN
from pgtail.pgoutput.decoder import Decoder
from pgtail.values import Types
from pgtail.values.oids import OIDS
from tests.support.encode import (
    INT4,
    STREAM_STOP,
    TEXT,
    UNCHANGED,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    delete,
    frame,
    insert,
    message,
    prepare,
    relation,
    rollback_prepared,
    snapshot,
    stream_abort,
    stream_commit,
    stream_start,
    truncate,
    update,
)

Old = tuple[object, ...] | None
Messages = bytes | CompleteTables | Sequence[bytes | CompleteTables]
ROW = (b"1", b"a")
INSERTED = insert("1", "a")
GONE = delete("1", None)


def transaction(lsn: int, *messages: bytes) -> list[bytes]:
    return [begin(7, lsn), *messages, commit(lsn, lsn + 8)]


def old_rows(*messages: Messages, rows: SeenRows | None = None, show: Show | None = None) -> list[Old]:
    """Of each update and delete the old row that was seen, or None."""
    assembler = Assembler(Types(), tells_descriptions=True, show=show)
    decoder, found = Decoder(), list[Old]()
    rows = rows or SeenRows()
    for data in flat(messages):
        if isinstance(data, CompleteTables):
            rows.trust(data)
            continue
        framed = frame(data)
        for event in assembler.feed(*decoder.frame(framed, 0, len(framed))[:2]):
            rows.take_event(event)
            if isinstance(event, RowChange) and event.op in ("update", "delete"):
                found.append(event.old if event.old_kind == SEEN else None)
    assembler.close()
    return found


def flat(messages: Iterable[Messages]) -> list[bytes | CompleteTables]:
    return [data for one in messages for data in ([one] if isinstance(one, bytes | CompleteTables) else one)]


def after(*between: Messages) -> Old:
    """The old row of a delete that follows the row's insert and what is in between."""
    return old_rows(relation(), transaction(0x100, INSERTED), *between, transaction(0x900, GONE))[-1]


def test_a_row_is_known_by_its_key() -> None:
    moved, kept = update(("2", "b"), ("1", None)), update(("2", "c"))
    changes = (INSERTED, update(("1", "b")), moved, kept, GONE, delete("2", None), delete("2", None))
    assert old_rows(relation(), transaction(0x100, *changes)) == [
        *((b"1", b"a"), (b"1", b"b"), (b"2", b"b"), None, (b"2", b"c"), None)
    ]


def test_what_an_update_did_not_touch_is_known_from_before_or_unknown() -> None:
    touched = update(("1", UNCHANGED))
    assert old_rows(relation(), transaction(0x100, INSERTED, touched, GONE)) == [ROW, ROW]
    assert old_rows(relation(), transaction(0x100, touched, GONE)) == [None, None]
    columns = (("id", INT4), ("v", TEXT), ("w", TEXT))
    described = relation(columns=columns)
    rows = (update(("1", UNCHANGED, "x")), update(("1", "b", "y")), delete("1", None, None))
    assert old_rows(described, transaction(0x100, *rows)) == [None, (b"1", UNKNOWN, b"x"), (b"1", b"b", b"y")]


def test_an_old_key_fills_a_key_that_was_not_touched() -> None:
    rows = (INSERTED, update((UNCHANGED, "b"), ("1", None)), GONE)
    assert old_rows(relation(), transaction(0x100, *rows)) == [ROW, (b"1", b"b")]


@pytest.mark.parametrize(
    "between",
    [
        transaction(0x200, truncate(100)),
        [relation()],
        transaction(0x200, relation()),
        transaction(0x100),
        transaction(0x80),
        [begin(8, 0x200)],
        [insert("3", "c"), commit(0x200)],
        [commit_prepared(9, "lost", 0x200)],
        [b"?unknown"],
        [begin_prepare(8, "g", 0x200), insert("2", "b"), b"?unknown", prepare(8, "g", 0x200)],
        transaction(0x200, insert("2", "b", "c")),
        transaction(0x200, insert(None, "b")),
        transaction(0x200, update((None, "b"), ("2", None))),
        snapshot(("2", "b"), end=0x201),
        [begin(0, 0x200), commit(0x200, 0x201)],
        [stream_start(8), relation(xid=8), insert("2", "b", xid=8), STREAM_STOP, stream_commit(8, 0x200)],
    ],
    ids=[
        *("truncate", "equal description", "description inside", "same position", "earlier position", "no end"),
        *(
            "no beginning",
            "lost prepare",
            "unknown message",
            "unknown message in a prepared transaction",
            "row of another width",
            "row without its key",
            "update to a row without its key",
            "snapshot",
            "snapshot of an unknown table",
            "streamed description",
        ),
    ],
)
def test_what_may_have_changed_unseen_is_forgotten(between: list[bytes]) -> None:
    assert after(between) is None


@pytest.mark.parametrize(
    "between",
    [
        [],
        transaction(0x200, truncate(101)),
        [relation(oid=101, name="other")],
        transaction(0x200, message(b"x")),
        [stream_start(8), insert("2", "b", xid=8), STREAM_STOP, stream_abort(8, 8)],
        [begin_prepare(8, "g", 0x200), insert("2", "b"), prepare(8, "g", 0x200), rollback_prepared(8, "g")],
        snapshot(("1", "a"), end=0x201),
    ],
)
def test_everything_else_leaves_rows_known(between: list[bytes]) -> None:
    assert after(relation(oid=101, name="other"), between) == ROW


def test_a_prepared_transaction_counts_when_it_is_committed() -> None:
    before = [relation(), *transaction(0x100, INSERTED, insert("2", "b"))]
    prepared = [begin_prepare(8, "g", 0x200), update(("1", "new")), update(("1", "newer")), prepare(8, "g", 0x200)]
    ends = [*transaction(0x900, update(("1", "x")), delete("2", None))]
    seen_inside = [ROW, (b"1", b"new")]
    committed, rolled_back = commit_prepared(8, "g", 0x300), rollback_prepared(8, "g")
    assert old_rows(before, prepared, committed, ends) == [*seen_inside, (b"1", b"newer"), (b"2", b"b")]
    assert old_rows(before, prepared, rolled_back, ends) == [*seen_inside, None, (b"2", b"b")]
    assert old_rows(before, prepared, relation(), committed, ends) == [*seen_inside, None, None]


def test_what_a_streamed_transaction_rolled_back_was_never_there() -> None:
    segment = [stream_start(8), relation(xid=8), insert("1", "a", xid=8), update(("1", "b"), xid=9), STREAM_STOP]
    kept = [*segment, stream_commit(8, 0x200), *transaction(0x300, GONE)]
    partly = [*segment, stream_abort(8, 9), stream_commit(8, 0x200), *transaction(0x300, GONE)]
    assert old_rows(kept) == [ROW, (b"1", b"b")]
    assert old_rows(partly) == [ROW]
    shown = Show(aborted=True, uncommitted=True)  # as open, and then as it ended
    assert old_rows(kept, show=shown) == [None, ROW, (b"1", b"b")]
    assert old_rows(partly, show=shown) == [None, None, ROW]


def test_a_description_inside_a_streamed_transaction_forgets_what_came_before_it() -> None:
    first, second = insert("1", "a", xid=8), insert("2", "b", xid=8)
    segment = [stream_start(8), relation(xid=8), first, relation(xid=8), second, STREAM_STOP, stream_commit(8, 0x200)]
    assert old_rows(segment, transaction(0x300, GONE, delete("2", None))) == [None, (b"2", b"b")]


def test_tables_whose_rows_are_not_remembered() -> None:
    def last(*, type_: str = "int4", value: str = "text", complete: CompleteTables | None = None) -> Old:
        described = relation(columns=(("id", OIDS[type_]), ("v", OIDS[value])))
        rows = SeenRows()
        rows.trust(complete)
        return old_rows(described, transaction(0x100, INSERTED, GONE), rows=rows)[0]

    assert last() == ROW
    assert last(complete=EVERY) == last(complete=CompleteTables(names=frozenset([("public", "t")]))) == ROW
    assert last(complete=NONE) is None
    assert last(type_="float8") is last(type_="regclass") is last(value="regclass") is last(value="_regtype") is None
    assert old_rows(relation(key=()), transaction(0x100, INSERTED, GONE)) == [None]
    whole = old_rows(relation(identity="f", key=(0, 1)), transaction(0x100, INSERTED, delete("1", "a", kind="O")))
    assert whole == [None]  # the server sent it


def test_the_memory_is_limited_and_the_least_recently_used_rows_go() -> None:
    rows = SeenRows(limit=2600)
    many = [insert(str(number), "x" * 50) for number in range(2, 6)]
    changes = [INSERTED, *many, update(("1", "b")), *[insert(str(number), "x" * 50) for number in range(6, 10)]]
    assert old_rows(relation(), transaction(0x100, *changes, delete("2", None), GONE), rows=rows) == [
        *(ROW, None, (b"1", b"b"))
    ]
    assert rows.dropped > 0


def test_the_memory_of_forgotten_tables_and_of_prepared_transactions_is_limited() -> None:
    rows = SeenRows(limit=4000)
    big = "x" * 400
    again = [data for lsn in range(1, 50) for data in (relation(), *transaction(lsn, insert("1", big)))]
    assert old_rows(again, transaction(0x900, GONE), rows=rows) == [(b"1", big.encode())]
    assert rows.dropped == 0
    prepared = [begin_prepare(8, "g", 0xA00), *[insert(str(one), big) for one in range(20)], prepare(8, "g", 0xA00)]
    gone = [delete(str(one), None) for one in range(20)]
    found = old_rows(
        relation(), prepared, commit_prepared(8, "g", 0xB00), transaction(0xC00, *gone), rows=SeenRows(4100)
    )
    assert [one for one in found if one is not None][-1] == (b"19", big.encode())
    assert found[0] is None


def test_without_being_asked_only_tables_are_remembered_of_which_the_stream_has_every_change() -> None:
    def found(complete: CompleteTables | None, *between: bytes | CompleteTables, asked: bool = False) -> Old:
        rows = SeenRows(asked=asked)
        rows.trust(complete)
        messages: list[bytes | CompleteTables] = []
        for number, one in enumerate(between):
            messages += [one, *transaction(0x200 + number, INSERTED)]
        return old_rows(relation(), transaction(0x100, INSERTED), messages, transaction(0x900, GONE), rows=rows)[-1]

    assert found(None) is found(NONE) is None
    assert found(None, EVERY) == found(EVERY) == ROW
    # The same description may stand for an ALTER PUBLICATION.
    assert found(EVERY, relation()) is None
    assert found(EVERY, relation(), asked=True) == found(None, asked=True) == ROW
    assert found(EVERY, relation(), EVERY) == found(EVERY, CompleteTables(names=frozenset([("public", "t")]))) == ROW
    assert found(EVERY, NONE) is found(EVERY, relation(), EVERY, relation()) is None


def test_descriptions_up_to_a_position_where_the_publications_are_known_are_no_doubt() -> None:
    def found(complete: CompleteTables, until: int, *, restarted: bool = False) -> Old:
        rows = SeenRows(asked=False)
        rows.trust(complete, until=until)
        if restarted:
            rows.restart()
        return old_rows(relation(), transaction(0x300, relation(), INSERTED), transaction(0x900, GONE), rows=rows)[-1]

    assert found(EVERY, 0x300) == ROW
    assert found(EVERY, 0x2FF) is found(EVERY, 0x300, restarted=True) is None
    assert found(CompleteTables(names=frozenset([("public", "t")])), 0x300) is None


def test_what_is_described_first_after_a_reconnection_is_in_doubt_until_the_publications_are_asked() -> None:
    rows = SeenRows(asked=False)
    rows.trust(EVERY)
    for number, expected in enumerate((ROW, None, ROW), 1):
        assert old_rows(relation(), transaction(number << 8, INSERTED, GONE), rows=rows) == [expected]
        rows.restart()
        if number == 2:
            rows.begin_session()
            rows.trust(EVERY)


def test_which_tables_are_complete_is_written_as_text() -> None:
    named = CompleteTables(names=frozenset([("s", 'a "b", c'), ("s", "\udcff")]))
    assert [CompleteTables.parse(one.text()) for one in (named, EVERY, NONE)] == [named, EVERY, NONE]
    assert [CompleteTables.parse(text) for text in ("", "some", "[1]", "{}x")] == [None] * 4
    assert CompleteTables(names=frozenset([("s", "x" * 99999)])).text() == ""
