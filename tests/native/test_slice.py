"""Where a slice of a batch ends, what is in it, and what is written of slices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pgtail.capture.recorder import NO_LIMITS
from pgtail.changes.events import Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.native import compiled
from pgtail.native.batch import Slice
from pgtail.pgoutput.frames import LENGTHS
from pgtail.values import UNKNOWN
from tests.support.encode import begin, commit, delete, insert, lengths, message, origin, relation, update
from tests.support.render import WAYS, need_compiled, render
from tests.support.run import here
from tests.support.streams import Stream


def table(oid: int, columns: int, identity: str = "default") -> Relation:
    made = [Column(f"c{index}", 25, -1, index == 0, "text", UNKNOWN) for index in range(columns)]
    return Relation(oid, "public", f"t{oid}", identity, tuple(made), True, oid)


TABLES = {100: table(100, 2), 101: table(101, 1, "full")}
OPEN = Transaction(7, commit_lsn=0x100, commit_ts=5, changes=3)
SNAPSHOT = Transaction(None, commit_lsn=0x100, commit_ts=5, snapshot=True)


def slice_of(*messages: bytes, at: int = 0, transaction: Transaction | None = None) -> tuple[Slice | None, list[int]]:
    """The slice that starts with the message at this place, and where each message starts and the last one ends."""
    module = compiled()
    if module is None:
        need_compiled()
    assert module is not None
    places = [len(lengths(*messages[:count])) for count in range(len(messages) + 1)]
    data = lengths(*messages)
    found: Slice | None = module.index(data, 0, len(data), LENGTHS).slice(places[at], TABLES, transaction)
    return found, places


def test_rows_are_counted_by_oids_that_end_in_the_same_byte() -> None:
    module = compiled()
    if module is None:
        need_compiled()
    assert module is not None
    oids = [0x4000, 0x4000, 0, 0x4100, 0, 0, 0x4000]
    data = lengths(begin(), *[insert("1", oid=oid) for oid in oids], commit())
    copied = module.copied_messages(module.index(data, 0, len(data), LENGTHS), 0, False, False, 1 << 20, *NO_LIMITS)
    assert copied.tables == [(0x4000, 3, 0, 0), (0, 3, 0, 0), (0x4100, 1, 0, 0)]


WHOLE = [begin(8, 0x200, 6), insert("1", "2"), commit(0x200, 0x208, 6)]


@pytest.mark.parametrize(
    ("messages", "transaction", "taken"),
    [
        ([*WHOLE, *WHOLE], None, 6),
        ([*WHOLE, begin()], None, 3),
        ([*WHOLE, begin(), insert("1", "2")], None, 5),
        ([*WHOLE, begin(), commit()], None, 5),
        ([*WHOLE, begin(), origin("o"), insert("1", "2")], None, 3),
        ([*WHOLE, begin(0), insert("1", "2")], None, 3),
        ([begin(), insert("1", "2"), relation(), insert("1", "2"), commit()], None, 2),
        ([begin(), insert("1", "2"), insert("1")], None, 2),
        ([begin(), insert("1"), insert("1", "2")], None, 0),
        ([begin(), insert("1", "2"), update(("1", "2"), ("1",))], None, 2),
        ([begin(), insert("1", "2"), insert("1", "2", oid=102)], None, 2),
        ([begin(), insert("1", "2"), commit(lsn=0x101)], None, 2),
        ([begin(), insert("1", "2"), commit(time=1)], None, 2),
        ([begin(), insert("1", "2"), commit(flags=1)], None, 2),
        ([begin(), commit(flags=1)], None, 0),
        ([insert("1", "2"), commit(time=5), *WHOLE], OPEN, 5),
        ([insert("1", "2"), commit(time=6), *WHOLE], OPEN, 1),
        ([commit(time=5), *WHOLE], OPEN, 4),
        ([begin(), insert("1", "2")], OPEN, 0),
        ([insert("1", "2")], None, 0),
        ([insert("1", "2"), commit(time=5)], SNAPSHOT, 1),
        ([insert("1", "2"), delete("1", "2")], SNAPSHOT, 1),
        ([message(b"m"), insert("1", "2")], OPEN, 0),
    ],
)
def test_where_a_slice_ends(messages: Sequence[bytes], transaction: Transaction | None, taken: int) -> None:
    found, places = slice_of(*messages, transaction=transaction)
    assert found is not None
    assert found.stop == places[taken]
    assert found.totals().messages == taken


def test_a_slice_starts_with_a_message_of_the_batch() -> None:
    messages = [*WHOLE, message(b"m", transactional=False), *WHOLE]
    inside = Transaction(8, commit_lsn=0x200, commit_ts=6)
    for at, transaction, end in (
        (0, None, 3),
        (1, inside, 3),
        (2, inside, 3),
        (3, None, 3),
        (4, None, 7),
        (5, inside, 7),
    ):
        found, places = slice_of(*messages, at=at, transaction=transaction)
        assert found is not None
        assert (found.start, found.stop) == (places[at], places[end])
    module = compiled()
    assert module is not None
    data = lengths(*messages)
    batch = module.index(data, 0, len(data), LENGTHS)
    for inner in (1, len(data) - 1, len(data)):
        assert batch.slice(inner, TABLES, None) is None
    assert batch.slice(0, TABLES, None) is None  # slices are asked for in ascending order


def test_what_is_in_a_slice() -> None:
    rows = [insert("1", "2"), delete("1", None), insert("1", oid=101), update(("2",), ("1",), "O", oid=101)]
    ended = commit(time=5, end=0x108)
    found, _ = slice_of(*rows, ended, begin(8, 0x200, 4), commit(0x200, 0x208, 4), *WHOLE[:2], transaction=OPEN)
    assert found is not None
    totals = found.totals()
    assert (totals.rows, totals.messages, totals.transactions, totals.shown) == (5, 9, 2, 1)
    assert (totals.times, totals.end_lsn, totals.changes) == ((4, 5), 0x208, 1)
    assert totals.opened is not None
    assert totals.opened[1:] == (0x200, 6, 8)
    assert found.counts() == [(TABLES[100], [2, 0, 1, 0]), (TABLES[101], [1, 1, 0, 0])]
    shown = [found.row(place) for place in range(5)]
    assert [(row.op, row.seq, row.old_kind, row.relation.oid) for row in shown] == [
        ("insert", 4, "", 100),
        ("delete", 5, "K", 100),
        ("insert", 6, "", 101),
        ("update", 7, "O", 101),
        ("insert", 1, "", 100),
    ]
    assert [(row.begin is None, row.is_last) for row in shown] == [(True, False)] * 4 + [(False, True)]
    assert (shown[3].old, shown[3].new) == ((b"1",), (b"2",))
    with pytest.raises(IndexError):
        found.row(5)


def test_a_row_is_of_its_transaction_wherever_that_is() -> None:
    xids: list[int] = []
    messages: list[bytes] = []
    for xid in range(2, 40):
        rows = xid * 7 % 4  # every fourth one is empty
        xids += [xid] * rows
        messages += [
            begin(xid, 0x100 * xid, xid),
            *[insert("1", "2")] * rows,
            commit(0x100 * xid, 0x100 * xid + 8, xid),
        ]
    found, _ = slice_of(*messages)
    assert found is not None
    begins = [found.row(place).begin for place in range(len(xids))]
    assert [begin.xid for begin in begins if begin is not None] == xids


@pytest.mark.parametrize(
    ("shown", "until", "taken"),
    [
        *((None, None, 9), (1, None, 2), (2, None, 5), (3, None, 9)),
        *((None, 0x107, 2), (None, 0x108, 2), (None, 0x109, 3), (None, 0x100, 2), (None, 0xFF, 0), (None, 0x308, 8)),
        (1, 0x308, 2),
    ],
)
def test_where_to_stop(shown: int | None, until: int | None, taken: int) -> None:
    first = [begin(7, 0x100), insert("1", "2"), commit(0x100, 0x108)]
    second = [begin(8, 0x200), insert("1", "2"), commit(0x200, 0x208)]
    third = [begin(9, 0x300), insert("1", "2"), commit(0x300, 0x308)]
    found, places = slice_of(*first, *second, *third)
    assert found is not None
    found.end_before(until, 1 << 63, 1 << 62)
    if shown is not None:
        found.end_shown(shown)
    assert found.stop == places[8 if shown == 3 else taken]


OUTPUTS: Final = ("json", "json-tx", "csv", "sql", "wal2json", "wal2json-v1", "line")


@pytest.mark.parametrize("filters", [None, {"ops": ["insert"]}, {"where": ["id > 2"]}, {"xids": [3, 4, 50]}])
@pytest.mark.parametrize("output", OUTPUTS)
def test_slices_are_written_as_decoded_rows_are(output: str, filters: dict[str, Any] | None) -> None:
    """Also with rows that are written alone, first, last and between others of their transactions."""
    choose = random.Random(output)
    rows = [insert("1", "two"), insert("x", b"\xff\xfe"), update(("3", "\x01")), insert(b"\0\0\0\7", "é")]
    messages = [relation()]
    for xid in range(1, 60):
        chosen = choose.choices(rows, weights=(5, 1, 1, 1), k=choose.choice((0, 1, 2, 5)))
        for _ in range(choose.choice((0, 0, 1))):
            chosen.insert(choose.choice((0, 1)), relation())
        messages += [begin(xid, 0x100 * xid), *chosen, commit(0x100 * xid, 0x100 * xid + 8)]
    written = []
    for way in WAYS:
        done = render(*messages, output=output, way=way, filters=filters)
        written.append((done.written, done.notes, done.rows, done.left_out, done.tables))
    assert written[0] == written[1]


def test_every_chunking_writes_the_same(tmp_path: Path) -> None:
    """A batch ends where a read ended; what is written does not show where."""
    for seed in range(12):
        stream = Stream(random.Random(seed))
        path = tmp_path / "input"
        path.write_bytes(lengths(*[data for _, data in stream.messages]))
        whole = here("decode", "--input-format", "lengths", path)
        choose = random.Random(seed)
        for _ in range(3):
            piece = choose.randrange(1, 3000)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("pgtail.inputs.source.base.CHUNK", piece)
                again = here("decode", "--input-format", "lengths", path)
            assert (again.status, again.stdout, again.stderr) == (whole.status, whole.stdout, whole.stderr)


def test_a_batch_is_taken_in_slices_of_one_transaction() -> None:
    """After a slice that was cut, few rows are checked at once; what is taken does not depend on it."""
    module = compiled()
    if module is None:
        need_compiled()
    assert module is not None
    sizes = [1, 40, 0, 3, 200, 0, 0, 1, 17, 16, 15, 1]
    messages, ends, data = list[bytes](), list[int](), b""
    for number, size in enumerate(sizes):
        lsn = 0x100 * number + 0x100
        messages = [begin(number + 1, lsn), *[insert("1", "2")] * size, commit(lsn, lsn + 8)]
        data += lengths(*messages)
        if size:
            ends.append(len(data))
    batch, pos, taken = module.index(data, 0, len(data), LENGTHS), 0, list[int]()
    transaction: Transaction | None = None
    while pos < len(data):
        found = batch.slice(pos, TABLES, transaction)
        found.end_shown(1, True)
        assert found.stop > pos
        pos, totals = found.stop, found.totals()
        if not found.goes_on:
            taken.append(pos)
            transaction = None
        elif transaction is None:
            transaction = Transaction(1, commit_lsn=totals.opened.final_lsn, commit_ts=totals.opened.commit_time)
        if transaction is not None:
            transaction.changes = totals.changes
    assert taken == ends
