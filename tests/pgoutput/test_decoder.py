"""The decoder on whole captures: the same messages in any chunks, with tracing, and from any starting point."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.pgoutput.cursor import TracedCursor
from pgtail.pgoutput.decoder import AnyMessage, Decoder
from pgtail.pgoutput.rows import Insert, Update
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.streaming import StreamAbort
from pgtail.pgoutput.transaction import Origin
from tests.support.corpus import Capture, Raw, captures, read

every_capture = pytest.mark.parametrize("capture", captures(), ids=str)

LONG = bytes.fromhex("41 000004e7 000004e9 0000000003e548d8 000303bb39b7dfd2")
SHORT = LONG[:9]
BEGIN = bytes.fromhex("42 0000000001996908 000303bb38a35d65 0000033d")
COMMIT = bytes.fromhex("43 00 0000000001996908 0000000001996938 000303bb38a35d65")
INSERT = bytes.fromhex("49 00004040 4e 0001 74 00000001 37")
INSERT_INSIDE = bytes.fromhex("49 000004c3 00004040 4e 0001 74 00000001 37")
START, STOP = bytes.fromhex("53 000004c3 01"), b"E"


def decoded(messages: list[Raw], made: Decoder) -> list[AnyMessage]:
    return [made.message(raw.data, 0, len(raw.data)) for raw in messages]


def one_after_another(data: bytes, made: Decoder, separator: bytes, step: int | None = None) -> Iterator[AnyMessage]:
    """Read a buffer that grows by `step` bytes whenever a message is incomplete; without `step`, all of it at once."""
    made.separator = separator
    position, end = 0, len(data) if step is None else 0
    while position < len(data):
        try:
            message = made.next_message(data, position, end, final=end == len(data))
        except Truncated:
            assert step is not None
            assert end < len(data)
            end = min(end + step, len(data))
            continue
        yield message
        position = made.cursor.pos
        assert data[position : position + len(separator)] == separator
        position += len(separator)
        end = max(end, min(position, len(data)))


@every_capture
def test_tracing_gives_the_same_messages_and_tiles_each(capture: Capture) -> None:
    messages = list(capture.messages())
    cursor = TracedCursor()
    traced = Decoder(cursor=cursor)
    for raw, message in zip(messages, decoded(messages, Decoder()), strict=True):
        assert traced.message(raw.data, 0, len(raw.data)) == message
        assert cursor.spans[0].start == 0
        assert cursor.spans[-1].end == len(raw.data)
        for before, after in zip(cursor.spans, cursor.spans[1:], strict=False):
            assert before.end == after.start


@every_capture
def test_xids_are_where_the_segments_are(capture: Capture) -> None:
    messages = list(capture.messages())
    made = Decoder()
    for raw, message in zip(messages, decoded(messages, made), strict=True):
        if raw.data[0] in b"RYIUDTM":
            assert (getattr(message, "xid") is not None) == raw.in_stream  # noqa: B009 -- only these kinds have one


@every_capture
def test_without_frames_each_message_ends_by_itself(capture: Capture) -> None:
    messages = list(capture.messages())
    wanted = decoded(messages, Decoder())
    for separator in (b"", b"\n"):
        data = separator.join([raw.data for raw in messages]) + separator
        assert list(one_after_another(data, Decoder(), separator)) == wanted


@every_capture
def test_any_chunking_gives_the_same(capture: Capture) -> None:
    messages = list(capture.messages())
    while sum(len(raw.data) for raw in messages) > 4_000:
        messages = messages[: len(messages) // 2]
    wanted = decoded(messages, Decoder())
    data = b"\n".join([raw.data for raw in messages]) + b"\n"
    for step in (1, 7, 100, 4096):
        assert list(one_after_another(data, Decoder(), b"\n", step)) == wanted


@every_capture
def test_reading_may_start_at_any_frame(capture: Capture) -> None:
    """The first unambiguous message decides whether a source starts inside a segment."""
    messages = list(capture.messages())
    for raw, message in zip(messages, decoded(messages, Decoder()), strict=True):
        assert Decoder().message(raw.data, 0, len(raw.data)) == message


@every_capture
def test_pg_recvlogical_file_has_the_messages_of_the_walsender(capture: Capture) -> None:
    """Except descriptions of tables and types, which differ between sessions, and messages repeated after a restart."""
    data = read(capture.forms["recv.bin"])
    assert data.endswith(b"\n")
    found = list(one_after_another(data, Decoder(), b"\n"))
    wanted = decoded(list(capture.messages()), Decoder())
    if capture.scenario.name == "G_restart":
        assert len(found) > len(wanted)
        return
    names = {message.oid: message.name for message in wanted if isinstance(message, Relation)}
    pairs = zip(changes(found), changes(wanted), strict=True)
    different = {names[two.relation] for one, two in pairs if one != two and isinstance(two, Insert | Update)}
    # The text of reg* depends on the session's search_path, and the two sessions had different ones.
    assert different == ({"ty_reg", "ty_reg_full"} if str(capture).endswith("A_types-p1") else set())


def changes(messages: list[AnyMessage]) -> list[AnyMessage]:
    return [message for message in messages if not isinstance(message, Relation | Type)]


def test_an_origin_does_not_end_a_segment() -> None:
    made = Decoder()
    for data in (START, bytes.fromhex("4f 0000000000000000 6e00")):
        made.message(data, 0, len(data))
    assert made.in_stream
    assert made.message(INSERT_INSIDE, 0, len(INSERT_INSIDE)) == Insert(0x4C3, 0x4040, (b"7",))


def test_origin_does_not_decide_where_a_source_starts() -> None:
    made = Decoder()
    origin = bytes.fromhex("4f 0000000000000000 6e00")
    assert made.message(origin, 0, len(origin)) == Origin(0, "n")
    assert made.in_stream is None


def test_a_source_that_starts_inside_a_segment() -> None:
    made = Decoder()
    assert made.message(INSERT_INSIDE, 0, len(INSERT_INSIDE)) == Insert(0x4C3, 0x4040, (b"7",))
    states = [made.in_stream]
    assert made.message(STOP, 0, 1) == ()
    assert [*states, made.in_stream] == [True, False]
    assert made.message(INSERT, 0, len(INSERT)) == Insert(None, 0x4040, (b"7",))


def test_after_a_segment_nothing_is_guessed() -> None:
    made = Decoder()
    made.message(BEGIN, 0, len(BEGIN))
    with pytest.raises(Malformed):
        made.message(INSERT_INSIDE, 0, len(INSERT_INSIDE))
    made.message(START, 0, len(START))
    with pytest.raises(DecodeError):
        made.message(INSERT, 0, len(INSERT))


def test_undecodable_message_gives_the_error_outside_a_segment() -> None:
    damaged = INSERT[:5] + b"X" + INSERT[6:]
    cursor = TracedCursor()
    made = Decoder(cursor=cursor)
    with pytest.raises(Malformed) as caught:
        made.message(damaged, 0, len(damaged))
    assert (caught.value.message, caught.value.field, caught.value.offset) == ("Insert", "tuple kind", 5)
    assert [(span.field, span.start, span.end) for span in cursor.spans] == [
        ("tag", 0, 1),
        ("relation", 1, 5),
        ("tuple kind", 5, 6),
    ]
    assert made.in_stream is None


@pytest.mark.parametrize("separator", [b"", b"\n"], ids=["none", "newline"])
@pytest.mark.parametrize("follows", [None, BEGIN, SHORT, COMMIT, START], ids=["end", "B", "A", "C", "S"])
@pytest.mark.parametrize("abort", [SHORT, LONG], ids=["short", "long"])
def test_following_byte_decides_the_length_of_a_stream_abort(
    separator: bytes, follows: bytes | None, abort: bytes
) -> None:
    made = Decoder()
    made.separator = separator
    data = abort + separator + (follows or b"")
    message = made.next_message(data, 0, len(data), final=True)
    assert isinstance(message, StreamAbort)
    assert made.cursor.pos == len(abort)
    assert message.abort_lsn == (0x3E548D8 if abort is LONG else None)


@pytest.mark.parametrize("separator", [b"", b"\n"], ids=["none", "newline"])
def test_stream_abort_waits_for_the_following_byte(separator: bytes) -> None:
    made = Decoder()
    made.separator = separator
    data = SHORT + separator
    for end in range(9, len(data) + 1):
        with pytest.raises(Truncated):
            made.next_message(data, 0, end, final=False)
    assert made.next_message(data, 0, len(data), final=True) == StreamAbort(0x4E7, 0x4E9, None, None)


def test_an_incomplete_message_keeps_nothing_in_memory() -> None:
    """Its error, whose traceback has the buffer, goes at once: each chunk of a dump without frames ends in such one."""
    gc.disable()  # it would remove a cycle sooner or later
    try:
        with pytest.raises(Truncated) as raised:
            Decoder().next_message(INSERT[:-1], 0, len(INSERT) - 1, final=False)
        error = weakref.ref(raised.value)
        del raised
        assert error() is None
    finally:
        gc.enable()
