"""Every kind of message and frame, from real captures, compared with values read by hand from their bytes."""

from __future__ import annotations

from functools import cache

import pytest

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.pgoutput.cursor import TracedCursor
from pgtail.pgoutput.decoder import AnyMessage, Decoder, Unknown
from pgtail.pgoutput.kinds import IN_STREAM, MESSAGES
from pgtail.pgoutput.streaming import StreamAbort
from pgtail.pgoutput.walsender import StandbyStatusUpdate, UnknownFrame
from tests.support.corpus import Raw, capture
from tests.support.golden_messages import GOLDEN, GOLDEN_FRAMES, Case, FrameCase

ABORT = ord("A")
LONG_ABORT = 25

every_case = pytest.mark.parametrize("case", GOLDEN, ids=str)
every_frame = pytest.mark.parametrize("case", GOLDEN_FRAMES, ids=lambda case: type(case.frame).__name__)


@cache
def source(name: str) -> tuple[list[bytes], list[Raw]]:
    scenario, _, slot = name.partition("/")
    found = capture(scenario, slot)
    return list(found.frames()), list(found.messages())


def decoder(case: Case) -> Decoder:
    made = Decoder()
    made.in_stream = case.in_stream
    return made


def outcome(made: Decoder, data: bytes) -> AnyMessage | type[DecodeError]:
    try:
        return made.message(data, 0, len(data))
    except DecodeError as error:
        return type(error)


def short(case: Case) -> AnyMessage:
    """A Stream Abort without its log position and time."""
    assert isinstance(case.message, StreamAbort)
    return case.message._replace(abort_lsn=None, abort_time=None)


def test_the_list_has_every_kind_inside_and_outside_of_a_segment() -> None:
    kinds = {type(case.message) for case in GOLDEN}
    assert kinds == set(MESSAGES.values())
    assert {type(case.message) for case in GOLDEN if case.in_stream} == {MESSAGES[tag] for tag in IN_STREAM}


@every_case
def test_cases_are_in_their_captures(case: Case) -> None:
    _, messages = source(case.source)
    assert [raw.in_stream for raw in messages if raw.data == case.data][:1] == [case.in_stream]


@every_frame
def test_frame_cases_are_in_their_captures(case: FrameCase) -> None:
    frames, _ = source(case.source)
    assert case.data in frames


@every_case
def test_whole_message_is_decoded(case: Case) -> None:
    made = decoder(case)
    message = made.message(case.data, 0, len(case.data))
    assert message == case.message
    assert type(message) is type(case.message)
    assert [type(field) for field in message] == [type(field) for field in case.message]
    for name in ("old", "new"):  # binary cells equal text cells of the same bytes
        cells, wanted = getattr(message, name, None), getattr(case.message, name, None)
        assert [type(cell) for cell in cells or ()] == [type(cell) for cell in wanted or ()]


@every_case
def test_in_the_middle_of_a_buffer(case: Case) -> None:
    data = b"\xff" * 7 + case.data + b"B" + b"\xff" * 9
    made = decoder(case)
    assert made.message(data, 7, 7 + len(case.data)) == case.message
    made = decoder(case)
    assert made.next_message(data, 7, len(data), final=False) == case.message
    assert made.cursor.pos == 7 + len(case.data)


@every_case
def test_every_prefix_is_truncated(case: Case) -> None:
    for size in range(len(case.data)):
        wanted: object = Truncated
        if case.data[0] == ABORT and size == 9:
            wanted = short(case)
        assert outcome(decoder(case), case.data[:size]) == wanted, size


@every_case
@pytest.mark.parametrize("separator", [b"", b"\n"], ids=["none", "newline"])
def test_every_prefix_is_truncated_without_a_frame_length(case: Case, separator: bytes) -> None:
    for final in (False, True):
        for size in range(len(case.data)):
            made = decoder(case)
            made.separator = separator
            if case.data[0] == ABORT and size == 9 and final:
                assert isinstance(made.next_message(case.data, 0, size, final=final), StreamAbort)
                continue
            with pytest.raises(Truncated):
                made.next_message(case.data, 0, size, final=final)


@every_case
def test_trailing_bytes_are_malformed(case: Case) -> None:
    """Except between the two lengths of a Stream Abort, where more bytes could still complete it."""
    for extra in (b"\n", b"\0", b"\0" * 15, b"\0" * 17, case.data):
        wanted: type[DecodeError] = Malformed
        if case.data[0] == ABORT and len(case.data) + len(extra) < LONG_ABORT:
            wanted = Truncated
        assert outcome(decoder(case), case.data + extra) is wanted


@every_case
def test_tracing_keeps_the_good_fields_of_a_damaged_message(case: Case) -> None:
    whole = TracedCursor()
    made = Decoder(cursor=whole)
    made.in_stream = case.in_stream
    made.message(case.data, 0, len(case.data))
    for size in range(1, len(case.data)):
        if case.data[0] == ABORT and size == 9:
            continue
        cursor = TracedCursor()
        made = Decoder(cursor=cursor)
        made.in_stream = case.in_stream
        with pytest.raises(Truncated) as caught:
            made.message(case.data[:size], 0, size)
        assert cursor.spans == [span for span in whole.spans if span.end <= size][: len(cursor.spans)]
        assert caught.value.message == type(case.message).__name__
        good = cursor.spans[-1].end
        assert caught.value.offset == good
        assert caught.value.field is not None


@every_frame
def test_a_whole_frame(case: FrameCase) -> None:
    assert Decoder().frame(case.data, 0, len(case.data)) == (case.frame, case.lsn, case.clock)


@every_frame
def test_every_prefix_of_a_frame_is_truncated_and_more_is_malformed(case: FrameCase) -> None:
    for size in range(len(case.data)):
        with pytest.raises(Truncated):
            Decoder().frame(case.data, 0, size)
    with pytest.raises(Malformed):
        Decoder().frame(case.data + b"\0", 0, len(case.data) + 1)


def test_standby_status_update_follows_the_manual() -> None:
    """The client's own frame, which no capture holds: written by hand from the manual's layout."""
    data = bytes.fromhex("72 0000000005ce2d99 0000000005ce2d98 0000000000000000 000303bb3a7e3d22 01")
    status = StandbyStatusUpdate(0x5CE2D99, 0x5CE2D98, 0, 848527605251362, 1)
    assert Decoder().frame(data, 0, len(data)) == (status, None, 848527605251362)
    assert status.encode() == data
    for size in range(len(data)):
        with pytest.raises(Truncated):
            Decoder().frame(data, 0, size)


def test_a_frame_of_unknown_kind_is_shown() -> None:
    data = b"s\1\2\3"
    assert Decoder().frame(data, 0, 4) == (UnknownFrame(ord("s"), b"\1\2\3"), None, None)
    assert Decoder().frame(b"z", 0, 1) == (UnknownFrame(ord("z"), b""), None, None)


def test_a_message_of_unknown_kind_is_shown_where_its_length_is_known() -> None:
    frame = GOLDEN_FRAMES[1].data[:25] + b"\xfebody"
    unknown = Unknown(0xFE, b"body")
    assert Decoder().frame(frame, 0, len(frame)) == (unknown, 0x5CE2DD0, 848527605300202)
    assert Decoder().message(b"\xfebody", 0, 5) == unknown
    made = Decoder()
    made.separator = b"\n"
    with pytest.raises(Malformed, match="0xfe"):
        made.next_message(b"\xfebody\n", 0, 6, final=True)


def test_a_keepalive_without_a_position_has_none() -> None:
    data = bytes.fromhex("6b 0000000000000000 000303bb3a7e3d22 01")
    _, lsn, _ = Decoder().frame(data, 0, len(data))
    assert lsn is None
