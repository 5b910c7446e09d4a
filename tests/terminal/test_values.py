"""Two values beside each other: what differs is shown, in bounded time."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgtail.pgoutput.cells import Binary
from pgtail.terminal.layout import Item, width_of
from pgtail.terminal.values import ValueStyle
from pgtail.values import UNKNOWN, Types
from pgtail.values.oids import OIDS

_CHARS = st.sampled_from([*"ab'\" \\\n\x1b\x9bé日😀\u0301\u202e\U000e0001", "e\u0301"])
_TEXT = st.lists(_CHARS, max_size=30).map("".join)


def shown(*items: Item) -> list[str]:
    return ["".join([text for text, _ in item]) for item in items]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("a" * 75, "a" * 75 + "NEW", ["…'aaaaaaaaaa'", "…'aaaaaaaaaaNEW'"]),
        ("NEW" + "a" * 75, "a" * 75, ["'NEWaaaaaaaaaa'…", "'aaaaaaaaaa'…"]),
        (
            "a" * 40 + "x" + "b" * 40,
            "a" * 40 + "yy" + "b" * 40,
            ["…'aaaaaaaaaaxbbbbbbbbbb'…", "…'aaaaaaaaaayybbbbbbbbbb'…"],
        ),
        ("a" * 70 + "x" * 90, "a" * 70 + "y", ["…'" + "a" * 10 + "x" * 46 + "'…", "…'aaaaaaaaaay'"]),
        ("日" * 40, "日" * 39 + "本", ["…'日日日日日日'", "…'日日日日日本'"]),
        ("\n" * 50 + "x", "\n" * 50 + "y", [r"…E'\n\n\n\n\nx'", r"…E'\n\n\n\n\ny'"]),
        ("ae" * 40 + "\u0301", "ae" * 40 + "\u0300", ["…'aeaeaeaeae\u0301'", "…'aeaeaeaeae\u0300'"]),
        ("short", "s" * 100, ["'short'", f"'{'s' * 57}'…"]),
    ],
)
def test_a_cut_is_around_the_difference(old: str, new: str, found: list[str]) -> None:
    assert shown(*ValueStyle(60).texts(old, new, bare=False)) == found
    keys = ValueStyle(60, ends=True)  # of keys the start and the end would be shown
    assert shown(*keys.changed(UNKNOWN, old.encode(), new.encode())) == found


@given(_TEXT, st.integers(1, 9), _TEXT, _TEXT, _TEXT, st.integers(8, 70), st.booleans())
@example("a", 9, "", "\U000e0001", "", 8, False)
def test_what_is_shown_of_two_texts_differs(
    common: str, times: int, old: str, new: str, end: str, limit: int, bare: bool
) -> None:
    old, new = common * times + old + end, common * times + new + end
    if bare:  # without quotes, a backslash may stand for itself or for an escape, and '' for an empty text
        old, new = [text.translate({ord("\\"): "|", ord("'"): "|"}) for text in (old, new)]
    items = ValueStyle(limit).texts(old, new, bare=bare)
    assert (shown(*items)[0] != shown(*items)[1]) == (old != new)
    assert max(map(width_of, shown(*items))) <= max(limit, 16)


@pytest.mark.parametrize("size", [100, 70_000])
@pytest.mark.parametrize("encoding", ["utf-8", "latin1", "euc_jp"])
def test_long_values_are_compared_as_others_are(encoding: str, size: int) -> None:
    """Also where the part of a long one that is compared begins or ends inside of a character."""
    codec, letter = Types(encoding=encoding).codec(25), "é" if encoding == "latin1" else "日"
    for shift in range(4):
        start, end = "x" * shift + letter * size, letter * size
        old, new = f"{start}old{end}", f"{start}new!{end}"
        found = shown(*ValueStyle(60).changed(codec, old.encode(encoding), new.encode(encoding)))
        context = letter * (10 // width_of(letter))
        following = letter * 10
        assert found == [f"…'{context}old{following}'…", f"…'{context}new!{following}'…"]


def test_values_that_cannot_be_decoded_are_compared_as_their_bytes() -> None:
    old, new = b"\xff" * 100 + b"\x01", b"\xff" * 100 + b"\x02"
    ends = ["…fffffffff01 (undecoded)", "…fffffffff02 (undecoded)"]
    assert shown(*ValueStyle(60).changed(UNKNOWN, old, new)) == ends
    point = Types().codec(600)
    found = shown(*ValueStyle(60).changed(point, Binary(old), Binary(new)))
    assert found == ends


@pytest.mark.parametrize("form", [bytes, Binary])
@pytest.mark.parametrize("name", ["text", "bytea", "json", "xml"])
def test_ten_megabytes_are_compared_at_once(name: str, form: type[bytes]) -> None:
    old, new = [form(b'"%b"' % middle.join([b"ab" * 2_500_000] * 2)) for middle in (b"1", b"22")]
    before = time.process_time()
    found = shown(*ValueStyle(60).changed(Types().codec(OIDS[name]), old, new))
    assert time.process_time() - before < 10
    assert found[0] != found[1]
    assert max(map(len, found)) < 60
