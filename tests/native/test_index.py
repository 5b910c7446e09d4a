"""The batches of index(): the rows, transactions and marks of captures, random streams and pieces of them."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pytest

from pgtail.native import compiled
from pgtail.native.batch import Batch, BeginEntry
from pgtail.native.plan import LARGE
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.frames import COPY_DATA, LENGTHS, SEPARATED, head
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.transaction import Begin, Commit, Message, Origin
from pgtail.pgoutput.walsender import Keepalive
from tests.support.batches import CommitEntry, RowEntry, marks_of, rows_of, transactions_of
from tests.support.corpus import Capture, captures
from tests.support.encode import (
    UNCHANGED,
    begin,
    commit,
    delete,
    frame,
    insert,
    lengths,
    message,
    origin,
    recvlogical,
    relation,
    stream_start,
    truncate,
    type_,
    update,
)
from tests.support.render import need_compiled
from tests.support.streams import Stream

FRAMINGS = (SEPARATED, LENGTHS, COPY_DATA)
ROWS, MARKS = (Insert, Update, Delete), (Relation, Type, Origin, Truncate, Message, Keepalive)
TAGS = dict(zip(MARKS, "RYOTMk", strict=True))
SAMPLE = (
    *(type_(16_400, "mood"), relation(), begin(), origin("o"), insert("1", None), update(("1", UNCHANGED))),
    *(update(("2", "b"), ("1", None)), message(b"m"), delete("1", "a", kind="O"), truncate(100, 101), commit()),
    *(begin(8, 0x200), commit(0x200, 0x208), message(b"", transactional=False), begin(9, 0x300), insert()),
)
"""Messages of all kinds that a batch has."""


class Placed(NamedTuple):
    """A decoded message, where its frame is in the buffer, and whether it is inside a stream segment."""

    start: int
    stop: int
    lsn: int | None
    in_stream: bool
    message: AnyFrame
    size: int
    """Of the frame without its head or, without frames, of the message."""

    def is_a(self, *kinds: type) -> bool:
        """Whether it is of one of these kinds, and not too large for a batch."""
        return isinstance(self.message, kinds) and self.size <= LARGE


def index(data: bytes, start: int, stop: int, framing: int, in_stream: bool = False) -> Batch:
    module = compiled()
    if module is None:
        need_compiled()
    assert module is not None
    batch: Batch = module.index(data, start, stop, framing, in_stream)
    return batch


def framed(frames: Iterable[bytes], framing: int) -> tuple[bytes, list[Placed]]:
    """The frames in a buffer, and what the decoder says about them."""
    decoder, data, placed = Decoder(), bytearray(), []
    decoder.in_stream = False
    found: AnyFrame
    for one in frames:
        start, inside = len(data), decoder.in_stream
        if framing == SEPARATED:
            if one[:1] != b"w":
                continue
            data += one[25:] + b"\n"
            found, lsn, size = decoder.message(one, 25, len(one)), None, len(one) - 25
        else:
            data += head(len(one), framing) + one
            found, lsn, _ = decoder.frame(one, 0, len(one))
            lsn, size = lsn if one[:1] == b"w" else None, len(one)
        in_stream = inside is True and decoder.in_stream is True
        placed.append(Placed(start, len(data), lsn, in_stream, found, size))
    return bytes(data), placed


def walked(data: bytes, placed: Sequence[Placed], framing: int) -> Iterator[Batch]:
    """The batches of a buffer, and that each ends where it should."""
    places = {one.start: place for place, one in enumerate(placed)}
    pos = 0
    while pos < len(data):
        first = placed[places[pos]]
        batch = index(data, pos, len(data), framing, first.in_stream)
        yield batch
        assert (batch.start, batch.ended == "whole") == (pos, batch.stop == len(data))
        if batch.ended == "other":
            after = placed[places[batch.stop]]
            known = bool(transactions_of(batch))
            inside = known and transactions_of(batch)[-1].commit is None
            fitting = [*(ROWS if inside or not known else ()), *([] if inside else [Begin])]
            fitting += [*MARKS, *([] if known and not inside else [Commit])]
            fitting = [*ROWS] if batch.in_stream else fitting
            assert not after.is_a(*fitting) or after.in_stream != batch.in_stream
        if batch.stop == pos:
            pos = first.stop
        else:
            pos = batch.stop


def row_of(one: Placed) -> RowEntry:
    row = one.message
    assert isinstance(row, (Insert, Update, Delete))
    old_kind, old = ("", None) if isinstance(row, Insert) else (row.old_kind, row.old)
    new = None if isinstance(row, Delete) else row.new
    place = (one.start, one.stop, one.lsn, row.xid, row.relation)
    return RowEntry(*place, type(row).__name__[0], old_kind, old, new)


def check(data: bytes, placed: Sequence[Placed], framing: int) -> int:
    """The batches have all messages that they may have, as the decoder reads them; returns how many rows these are."""
    batches = [*walked(data, placed, framing)]
    rows = [row for batch in batches for row in rows_of(batch)]
    assert rows == [row_of(one) for one in placed if one.is_a(*ROWS)]
    marks = [(mark.start, mark.stop, mark.tag) for batch in batches for mark in marks_of(batch)]
    outside = [one for one in placed if one.is_a(*MARKS) and not one.in_stream]
    assert marks == [(one.start, one.stop, TAGS[type(one.message)]) for one in outside]
    transactions = [one for batch in batches for one in transactions_of(batch)]
    begins = [one.begin for one in transactions if one.begin is not None]
    assert begins == [BeginEntry(one.start, *one.message) for one in placed if one.is_a(Begin)]
    commits = [one.commit for one in transactions if one.commit is not None]
    assert commits == [CommitEntry(one.start, *one.message) for one in placed if one.is_a(Commit)]
    for batch in batches:
        check_order(batch)
    return len(rows)


def check_order(batch: Batch) -> None:
    """The spans tile the batch, every row is of one transaction, and a mark stands after its rows."""
    rows, transactions, marks = rows_of(batch), transactions_of(batch), marks_of(batch)
    begins = [one.begin.start for one in transactions if one.begin is not None]
    commits = [one.commit.start for one in transactions if one.commit is not None]
    starts = {*begins, *commits, *(row.start for row in rows), *(mark.start for mark in marks), batch.stop}
    assert min(starts) == batch.start
    assert len(starts) == len(begins) + len(commits) + len(rows) + len(marks) + 1
    assert starts.issuperset([*(row.stop for row in rows), *(mark.stop for mark in marks)])
    assert [row for one in transactions for row in range(one.first_row, one.end_row)] == [*range(len(rows))]
    for one in transactions:
        first = [rows[one.first_row].start] if one.end_row > one.first_row else []
        places = [*([one.begin.start] if one.begin else []), *first, *([one.commit.start] if one.commit else [])]
        assert places == sorted(places)
    starts_of_rows = [row.start for row in rows]
    assert [mark.row for mark in marks] == [bisect.bisect(starts_of_rows, mark.start) for mark in marks]


@pytest.mark.parametrize("capture", [one for one in captures() if "walsender.bin" in one.forms], ids=str)
def test_rows_of_captures(capture: Capture) -> None:
    for framing in FRAMINGS:
        check(*framed(capture.frames(), framing), framing)


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_random_streams(seed: int) -> None:
    stream = Stream(random.Random(seed))
    frames = [frame(data, lsn) for lsn, data in stream.messages]
    for framing in FRAMINGS:
        check(*framed(frames, framing), framing)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_prefix_is_incomplete(framing: int) -> None:
    """Wherever the buffer ends, the batch has the messages before, and says that the last one is cut off."""
    data, placed = framed(map(frame, SAMPLE), framing)
    whole = index(data, 0, len(data), framing)
    assert whole.ended == "whole"
    ends = [0, *(one.stop for one in placed)]
    for stop in range(len(data)):
        batch = index(data, 0, stop, framing)
        last = max(end for end in ends if end <= stop)
        assert (batch.stop, batch.ended) == (last, "whole" if stop == last else "incomplete")
        assert rows_of(batch) == [row for row in rows_of(whole) if row.stop <= stop]
        assert marks_of(batch) == [mark for mark in marks_of(whole) if mark.stop <= stop]


@pytest.mark.parametrize("framing", FRAMINGS)
def test_any_pieces_have_the_same_rows(framing: int) -> None:
    """A part of the buffer is indexed, and then the next one from where that ended."""
    choose = random.Random(framing)
    frames = [one for capture in captures()[:6] if "walsender.bin" in capture.forms for one in capture.frames()]
    for sample in ([frame(one) for one in SAMPLE], frames):
        data, placed = framed(sample, framing)
        rows = [row_of(one) for one in placed if one.is_a(*ROWS)]
        longest = max(one.stop - one.start for one in placed)
        for _ in range(3):
            pos, found, size = 0, [], choose.choice((longest, longest + 50, 3 * longest, len(data)))
            while pos < len(data):
                batch = index(data, pos, min(pos + size, len(data)), framing)
                found += rows_of(batch)
                pos = batch.stop
                assert batch.ended != "other"
                assert batch.stop > batch.start
            assert found == rows


def test_a_batch_is_of_limited_size() -> None:
    columns = 1000
    data = lengths(begin(), *[insert(*[None] * columns)] * 200, commit())
    batch = index(data, 0, len(data), LENGTHS)
    assert batch.ended == "full"
    assert 60 <= len(rows_of(batch)) <= 70
    again = index(data, batch.stop, len(data), LENGTHS)
    assert transactions_of(again)[0].begin is None
    assert rows_of(again)[0].start == batch.stop


@pytest.mark.parametrize(
    "messages",
    [
        (begin(), begin()),
        (begin(), commit(), commit()),
        (begin(), commit(), insert("1")),
        (b"I\0\0\0\x64K\0\0",),
        (b"D\0\0\0\x64N\0\0",),
        (b"U\0\0\0\x64N\0\1u", b"U\0\0\0\x64O\0\1uN\0\1n"),
        (b"U\0\0\0\x64K\0\1nK\0\1n",),
        (b"I\0\0\0\x64N\0\1x",),
        (b"I\0\0\0\x64N\x06\x41" + b"n" * 1601,),
        (insert("x" * (1 << 20)),),
        (begin(), stream_start()),
        (begin(), b"?"),
    ],
)
def test_what_is_left_to_the_decoder(messages: Sequence[bytes]) -> None:
    """A batch ends before it, and has nothing of it."""
    for data, framing in ((lengths(*messages), LENGTHS), (recvlogical(*messages), SEPARATED)):
        batch = index(data, 0, len(data), framing)
        before = (lengths if framing == LENGTHS else recvlogical)(*messages[:-1])
        assert (batch.stop, batch.ended) == (len(before), "other")
        assert [row.stop <= batch.stop for row in rows_of(batch)] == [True] * len(rows_of(batch))


@pytest.mark.parametrize("framing", [LENGTHS, COPY_DATA])
def test_a_message_of_another_size_than_its_frame(framing: int) -> None:
    for one, more in itertools.product((begin(), insert("1", None), update(("1",)), delete("1"), commit()), (-1, 1)):
        damaged = one + b"\0" if more > 0 else one[:-1]
        data = head(25 + len(damaged), framing) + frame(damaged)
        assert index(data, 0, len(data), framing).ended == "other"


def test_damage_is_never_read_as_more_than_the_buffer() -> None:
    """Any bytes give a batch whose spans tile it; under AddressSanitizer this shows that nothing else is read."""
    choose = random.Random(0)
    for framing in FRAMINGS:
        data, _ = framed(map(frame, SAMPLE), framing)
        for _ in range(2000):
            damaged = bytearray(data)
            for _ in range(choose.randrange(1, 5)):
                damaged[choose.randrange(len(data))] = choose.choice((0, 0xFF, choose.randrange(256)))
            stop = choose.randrange(len(data) + 1)
            batch = index(bytes(damaged[:stop]), 0, stop, framing, choose.random() < 0.2)
            check_order(batch)
            assert batch.stop <= stop


def test_a_batch_keeps_its_buffer() -> None:
    data = bytearray(lengths(begin(), insert("1", "a")))
    batch = index(data, 0, len(data), LENGTHS)  # type: ignore[arg-type]  # any buffer
    with pytest.raises(BufferError):
        data.clear()
    assert rows_of(batch)[0].new == (b"1", b"a")
    del batch
    data.clear()


def test_parts_of_a_buffer() -> None:
    data = lengths(begin(), insert("1"))
    for start, stop in ((-1, 2), (3, 2), (0, len(data) + 1)):
        with pytest.raises(ValueError, match="not a part of the buffer"):
            index(data, start, stop, LENGTHS)
