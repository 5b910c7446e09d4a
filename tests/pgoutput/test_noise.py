"""100,000 damaged messages: each decodes, or raises Truncated or Malformed and nothing else."""

from __future__ import annotations

import random
from functools import cache

from pgtail.errors import Malformed, Truncated
from pgtail.pgoutput.cursor import TracedCursor
from pgtail.pgoutput.decoder import Decoder
from tests.support.corpus import captures

MUTATIONS = 100_000

SMALL = 2_000
"""Bytes of the longest message that is damaged: with longer ones most of the time would go into copying."""

LENGTHS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x3f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0")
COUNTS = (b"\xff\xff", b"\0\0", b"\x06\x40", b"\x06\x41", b"\x7f\xff", b"\x80\0")
TAGS = b"BMCORYIUDTSEcAbPKrpwkNKOtbnu"


@cache
def originals() -> list[tuple[bytes, bool]]:
    """Different messages of every kind: no more than 200 of each, or Insert would be nearly all of them."""
    by_kind: dict[tuple[int, bool], set[bytes]] = {}
    for capture in captures():
        for raw in capture.messages():
            if len(raw.data) <= SMALL:
                kind = by_kind.setdefault((raw.data[0], raw.in_stream), set())
                if len(kind) < 200:
                    kind.add(raw.data)
    return [(data, key[1]) for key in sorted(by_kind) for data in sorted(by_kind[key])]


def damage(data: bytearray, choose: random.Random) -> None:
    """Damage a message once more, in place."""
    at = int(choose.random() * (len(data) + 1))
    match int(choose.random() * 8):
        case 0 if at < len(data):
            data[at] ^= 1 << int(choose.random() * 8)
        case 1 if at < len(data):
            data[at] = int(choose.random() * 256)
        case 2:
            del data[at:]
        case 3:
            data[at:at] = choose.randbytes(1 + int(choose.random() * 5))
        case 4:
            del data[at : at + 1 + int(choose.random() * 6)]
        case 5:
            data[at : at + 4] = LENGTHS[int(choose.random() * len(LENGTHS))]
        case 6:
            data[at : at + 2] = COUNTS[int(choose.random() * len(COUNTS))]
        case _:
            data[at : at + 1] = TAGS[int(choose.random() * len(TAGS)) :][:1]


def test_originals_include_every_kind() -> None:
    assert {data[0] for data, _ in originals()} == set(b"BMCORYIUDTSEcAbPKrp")
    assert len(originals()) > 1000


def test_noise_gives_only_documented_errors() -> None:
    choose = random.Random("noise")
    messages = originals()
    frames, loose = Decoder(), Decoder()
    loose.separator = b"\n"
    outcomes = {"message": 0, "truncated": 0, "malformed": 0}
    for number in range(MUTATIONS):
        original, in_stream = messages[int(choose.random() * len(messages))]
        data = bytearray(original)
        damage(data, choose)
        while choose.random() < 0.3:
            damage(data, choose)
        damaged = bytes(data)
        try:
            if number % 2:
                frames.in_stream = in_stream if number % 6 else None
                frames.message(damaged, 0, len(damaged))
            else:
                loose.in_stream = in_stream
                loose.next_message(damaged, 0, len(damaged), final=number % 4 == 0)
                assert loose.cursor.pos <= len(damaged)
        except Truncated as error:
            outcomes["truncated"] += 1
            assert 0 <= error.offset <= len(damaged)
        except Malformed as error:
            outcomes["malformed"] += 1
            assert 0 <= error.offset <= len(damaged)
        else:
            outcomes["message"] += 1
    assert all(count > MUTATIONS // 20 for count in outcomes.values()), outcomes


def test_tracing_noise_gives_the_same_outcome_as_reading_it() -> None:
    choose = random.Random("traced noise")
    messages = originals()
    plain, traced = Decoder(), Decoder(cursor=TracedCursor())
    for _ in range(20_000):
        original, in_stream = messages[int(choose.random() * len(messages))]
        data = bytearray(original)
        damage(data, choose)
        damaged = bytes(data)
        assert outcome(plain, damaged, in_stream) == outcome(traced, damaged, in_stream)


def outcome(decoder: Decoder, data: bytes, in_stream: bool) -> object:
    decoder.in_stream = in_stream
    try:
        return decoder.message(data, 0, len(data))
    except (Truncated, Malformed) as error:
        return type(error), str(error), error.field, error.message
