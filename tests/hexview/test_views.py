"""`inspect`: every byte of a message belongs to a field, and damage is shown where the decoder found it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtail.changes.filters import Filter
from pgtail.errors import DecodeError, OptionError
from pgtail.hexview.fields import Field, Fields
from pgtail.hexview.json_view import JsonView
from pgtail.hexview.scope import Scope
from pgtail.hexview.selection import Between, MessageSelection, kinds, lsns, numbers
from pgtail.hexview.text_view import TextView
from pgtail.hexview.views import MessageLocation, View, locate_damage
from pgtail.pgoutput.cursor import TracedCursor
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.terminal.values import ValueStyle
from pgtail.values import Types
from tests.support.corpus import Capture, capture, captures
from tests.support.render_text import Memory
from tests.support.run import here

Z_SMALL = capture("Z_small", "p1")


@dataclass
class Seen:
    """One message of a capture, with all arguments of View.message()."""

    message: AnyFrame
    lsn: int | None
    place: MessageLocation
    frame: bytes
    fields: list[Field]
    scope: Scope
    cursor: TracedCursor


def inspected(source: Capture, limit: int | None = None) -> Iterator[Seen]:
    """Every frame of a capture."""
    scope = Scope(Types())
    fields = Fields(scope, ValueStyle(limit), encoding="utf-8")
    cursor = TracedCursor()
    decoder = Decoder(cursor=cursor)
    offset = 0
    for number, frame in enumerate(source.frames(), 1):
        message, lsn, _ = decoder.frame(frame, 0, len(frame))
        scope.enter(message)
        described = list(fields.describe(frame, cursor.spans))
        place = MessageLocation(number, type(message).__name__, offset, 0, len(frame), offset, lsn, fields.relation)
        yield Seen(message, lsn, place, frame, described, scope, cursor)
        scope.leave(message)
        offset += len(frame)


def shown(source: Capture, *wanted: int, width: int = 120, most: int | None = 48) -> str:
    """Some messages of a capture as text."""
    memory = Memory()
    view = TextView(memory, width=width, color=False, max_bytes=most)
    for seen in inspected(source, most):
        if seen.place.number in wanted:
            view.message(seen.place, seen.frame, seen.fields)
    return memory.text


def test_an_update_byte_by_byte() -> None:
    assert shown(Z_SMALL, 17) == (
        "● 17  Update  public.t  0/5CE2FE0  byte 565  50 bytes\n"
        "  565  77                       frame                  Byte1                'w'  XLogData\n"
        "  566  00 00 00 00 05 ce 2f e0  start of WAL data      Int64 (XLogRecPtr)   0/5CE2FE0\n"
        "  574  00 00 00 00 05 ce 2f e0  end of WAL             Int64 (XLogRecPtr)   0/5CE2FE0\n"
        "  582  00 03 03 bb 3a 7e ff f7  server clock           Int64 (TimestampTz)  2026-11-20 22:06:45.301239Z\n"
        "  590  55                       tag                    Byte1                'U'  Update\n"
        "  591  00 00 45 f3              relation               Int32 (Oid)          17907  public.t\n"
        "  595  4b                       tuple kind             Byte1                'K'  the old row's identity\n"
        "  596  00 02                    old number of columns  Int16                2\n"
        "  598  74                         id kind              Byte1                't'  text\n"
        "  599  00 00 00 01                id length            Int32                1\n"
        "  603  32                         id                   Byten (text)         2  integer\n"
        "  604  6e                         v kind               Byte1                'n'  not part of the identity\n"
        "  605  4e                       new tuple              Byte1                'N'  the new row\n"
        "  606  00 02                    new number of columns  Int16                2\n"
        "  608  74                         id kind              Byte1                't'  text\n"
        "  609  00 00 00 01                id length            Int32                1\n"
        "  613  33                         id                   Byten (text)         3  integer\n"
        "  614  6e                         v kind               Byte1                'n'  NULL\n"
    )


def test_a_relation_at_80_columns() -> None:
    assert shown(Z_SMALL, 5, width=80) == (
        "● 5  Relation  public.t  byte 100  65 bytes\n"
        "  100  77                frame                  Byte1   'w'  XLogData\n"
        "  101  0000000000000000  start of WAL data      Int64   0/0\n"
        "  109  0000000000000000  end of WAL             Int64   0/0\n"
        "  117  000303bb3a7efc3a  server clock           Int64\n"
        "                           2026-11-20 22:06:45.300282Z\n"
        "  125  52                tag                    Byte1   'R'  Relation\n"
        "  126  000045f3          oid                    Int32   17907  public.t\n"
        "  130  7075626c696300    namespace              String  'public'\n"
        "  137  7400              relation name          String  't'\n"
        "  139  64                replica identity       Byte1   'd'  default\n"
        "  140  0002              number of columns      Int16   2\n"
        "  142  01                  column[0] flags      Int8    1  part of the identity\n"
        "  143  696400              column[0] name       String  'id'\n"
        "  146  00000017            column[0] type       Int32   23  integer\n"
        "  150  ffffffff            column[0] atttypmod  Int32   -1\n"
        "  154  00                  column[1] flags      Int8    0\n"
        "  155  7600                column[1] name       String  'v'\n"
        "  157  00000019            column[1] type       Int32   25  text\n"
        "  161  ffffffff            column[1] atttypmod  Int32   -1\n"
    )


def test_a_begin_at_40_columns() -> None:
    """Half as many bytes on a line; a value goes below its name if there is no room."""
    assert shown(Z_SMALL, 4, width=40) == (
        "● 4  Begin  0/5CE2DD0  byte 54  46 bytes\n"
        "   54  77        frame             Byte1\n"
        "                   'w'  XLogData\n"
        "   55  00000000  start of WAL data\n"
        "   59  05ce2dd0                    Int64\n"
        "                   0/5CE2DD0\n"
        "   63  00000000  end of WAL        Int64\n"
        "   67  05ce2dd0    0/5CE2DD0\n"
        "   71  000303bb  server clock      Int64\n"
        "   75  3a7efbea    2026-11-20\n"
        "                   22:06:45.300202Z\n"
        "   79  42        tag               Byte1\n"
        "                   'B'  Begin\n"
        "   80  00000000  final_lsn         Int64\n"
        "   84  05ce2f30    0/5CE2F30\n"
        "   88  000303bb  commit_time       Int64\n"
        "   92  3a7efa42    2026-11-20\n"
        "                   22:06:45.299778Z\n"
        "   96  00000544  xid               Int32\n"
        "                   1348\n"
    )


@pytest.mark.parametrize("source", captures(), ids=str)
def test_the_fields_of_every_message_cover_all_its_bytes(source: Capture) -> None:
    for seen in inspected(source, 48):
        position = 0
        for field in seen.fields:
            assert field.span.start == position
            assert field.value
            position = field.span.end
        assert position == len(seen.frame)


@pytest.mark.parametrize("scenario", ["A_names", "A_types", "A_big", "D_twophase"])
def test_no_line_is_wider_than_the_terminal(scenario: str) -> None:
    [source, *_] = [one for one in captures() if one.scenario.name == scenario and one.scenario.version == "pg16"]
    for width in (40, 60, 80, 160):
        memory = Memory()
        view = TextView(memory, width=width, color=False, max_bytes=48)
        for seen in inspected(source, 48):
            view.message(seen.place, seen.frame, seen.fields)
        lines = memory.text.split("\n")
        assert max(map(cell_len, lines)) <= width
        assert not {unicodedata.category(char) for line in lines for char in line} & {"Cc", "Cf", "Zl", "Zp"}


@pytest.mark.parametrize("width", [40, 41, 50, 57, 60])
@pytest.mark.parametrize("most", [1, 4, 7])
def test_a_line_with_the_count_of_bytes_is_not_wider_either(width: int, most: int) -> None:
    """Neither from the view nor from the scanner, which shows the later rows of a table."""
    given = Z_SMALL.scenario.folder / "p1.walsender.bin"
    result = here("inspect", "-o", "table", "--color", "never", "--max-bytes", str(most), given, COLUMNS=str(width))
    lines = result.stdout.decode().split("\n")
    assert any(re.search(r"\d more bytes?$", line) for line in lines)
    assert max(map(cell_len, lines)) <= width


def test_long_fields_are_cut_with_a_count_unless_all_is_asked_for() -> None:
    source = capture("A_big", "p1_msg")
    [big, *_] = [seen.place.number for seen in inspected(source, 48) if len(seen.frame) > 100_000]
    assert "2097106 more bytes" in shown(source, big)
    whole = shown(source, big, most=None)
    assert "more bytes" not in whole
    assert whole.count("\n") > 2_000_000 / 8


def test_json_has_every_field_with_its_bytes() -> None:
    memory = Memory()
    view = JsonView(memory)
    for seen in inspected(Z_SMALL):
        view.message(seen.place, seen.frame, seen.fields)
    lines = [json.loads(line) for line in memory.text.splitlines()]
    for line, frame in zip(lines, Z_SMALL.frames(), strict=True):
        assert "".join([field["hex"] for field in line["fields"]]) == frame.hex()
        assert line["size"] == len(frame)
    [insert] = [line for line in lines if line["message"] == 6]
    assert (insert["kind"], insert["relation"]) == ("Insert", "public.t")
    assert insert["fields"][-1] == {
        "offset": 209,
        "hex": "6f6e65",
        "field": "new[1]",
        "column": "v",
        "type": "Byten (text)",
        "value": "'one'",
        "means": "text",
    }


# -- damage --------------------------------------------------------------------------------------------------------


def damaged(data: bytes, view: View, *, known: bool = True) -> DecodeError:
    """Decode a damaged frame after the others of a capture, and show it."""
    scope = Scope(Types())
    fields = Fields(scope, ValueStyle(48), encoding="utf-8")
    cursor = TracedCursor()
    decoder = Decoder(cursor=cursor)
    for frame in list(Z_SMALL.frames())[:5] if known else []:
        message, _, _ = decoder.frame(frame, 0, len(frame))
        scope.enter(message)
        scope.leave(message)
    with pytest.raises(DecodeError) as raised:
        decoder.frame(data, 0, len(data))
    good, damage = locate_damage(
        raised.value, list(fields.describe(data, cursor.spans)), cursor.pos, raised.value.offset
    )
    assert (good, damage) == locate_damage(raised.value, list(fields.describe(data, cursor.spans)), cursor.pos, None)
    damage.field = fields.named(damage.field)
    view.message(
        MessageLocation(6, raised.value.message or "?", 0, 0, damage.end, 0, None, fields.relation), data, good, damage
    )
    return raised.value


INSERT = list(Z_SMALL.frames())[5]


def test_a_wrong_byte_is_shown_with_what_was_expected() -> None:
    memory = Memory()
    bad = bytearray(INSERT)
    bad[33] = ord("X")
    error = damaged(bytes(bad), TextView(memory, width=120, color=False, max_bytes=48))
    assert error.offset == 33
    *good, last, _ = memory.text.split("\n")
    assert good[-1].endswith("new number of columns  Int16                2")
    assert last.split(maxsplit=2) == [
        "33",
        "58",
        "✗ id kind                                   'X' where 't', 'b', 'n' or 'u' was expected",
    ]


def test_impossible_length_is_the_bad_field() -> None:
    memory = Memory()
    bad = INSERT[:34] + b"\xff\xff\xff\xff" + INSERT[38:]
    damaged(bad, TextView(memory, width=120, color=False, max_bytes=48))
    assert memory.text.endswith("✗ id length                                 a length of -1 bytes\n")


def test_bytes_that_are_missing_are_named() -> None:
    memory = Memory()
    damaged(INSERT[:-2], TextView(memory, width=120, color=False, max_bytes=48))
    *_, length, last, _ = memory.text.split("\n")
    assert "v length" in length
    assert last.split()[1:4] == ["6f", "✗", "v"]
    assert last.endswith("2 more bytes needed")


def test_bytes_that_are_left_over_are_shown() -> None:
    memory = Memory()
    damaged(INSERT + b"\x00\x01", JsonView(memory))
    line = json.loads(memory.text)
    assert line["error"] == {"offset": len(INSERT), "hex": "0001", "expected": "2 bytes left over"}
    assert "".join([field["hex"] for field in line["fields"]]) == INSERT.hex()


@given(st.integers(0, len(INSERT) - 1), st.integers(1, 255), st.booleans())
def test_good_fields_and_bad_bytes_are_shown_for_any_damage(at: int, change: int, known: bool) -> None:
    bad = bytearray(INSERT)
    bad[at] ^= change
    memory = Memory()
    try:
        damaged(bytes(bad), TextView(memory, width=100, color=False, max_bytes=48), known=known)
    except pytest.fail.Exception:
        return  # that byte may have any value
    assert max(map(cell_len, memory.text.split("\n"))) <= 100
    assert memory.text.count("✗") == 1


@pytest.mark.parametrize("size", range(len(INSERT)))
def test_cut_message_shows_all_its_bytes(size: int) -> None:
    memory = Memory()
    damaged(INSERT[:size], JsonView(memory))
    line = json.loads(memory.text)
    assert "".join([field["hex"] for field in line["fields"]]) + line["error"]["hex"] == INSERT[:size].hex()


# -- selection -----------------------------------------------------------------------------------------------------


def picked(pick: MessageSelection, source: Capture = Z_SMALL) -> list[int]:
    """The numbers of the selected messages."""
    return [
        seen.place.number
        for seen in inspected(source)
        if pick.wants(seen.place.number, seen.message, seen.lsn, seen.frame, seen.cursor.trace, seen.scope)
    ]


def kinds_of(pick: MessageSelection, source: Capture = Z_SMALL) -> set[str]:
    """The kinds of the selected messages."""
    wanted = set(picked(pick, source))
    return {seen.place.kind for seen in inspected(source) if seen.place.number in wanted}


def test_numbers_and_ranges() -> None:
    assert picked(MessageSelection(numbers=numbers(["7", "9-10,12"]))) == [7, 9, 10, 12]
    assert MessageSelection(numbers=numbers(["7", "9-10"])).done(11)
    assert not MessageSelection(numbers=numbers(["7", "9-10"])).done(10)
    assert not MessageSelection().done(1)


def test_kinds_by_name_and_by_first_byte() -> None:
    assert kinds(["begin,Stream Commit", "I", "b", "keep-alive"]) == {
        "Begin",
        "StreamCommit",
        "Insert",
        "BeginPrepare",
        "Keepalive",
    }
    assert kinds_of(MessageSelection(kinds={"Begin", "Insert"})) == {"Begin", "Insert"}


def test_log_positions_of_the_frame_and_in_fields() -> None:
    assert lsns(["0/1-0/F"]) == [Between(1, 15)]
    found = picked(MessageSelection(lsns=lsns(["0/5CE2FB0"])))
    assert [seen.place.kind for seen in inspected(Z_SMALL) if seen.place.number in found] == ["Begin", "Commit"]


@pytest.mark.parametrize(
    ("read", "text"), [(numbers, "x"), (numbers, "1-"), (kinds, "insrt"), (lsns, "12"), (lsns, "0/1-"), (lsns, "0/1-x")]
)
def test_invalid_selections_are_rejected(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(OptionError, match="expected"):
        read([text])


def test_filters_are_about_changes() -> None:
    assert kinds_of(MessageSelection(filter_=Filter(tables=["t"]), about_tables=True)) == {
        "Relation",
        "Insert",
        "Update",
        "Delete",
        "Truncate",
    }
    assert kinds_of(MessageSelection(filter_=Filter(ops=["delete", "message"]), about_changes=True)) == {
        "Delete",
        "Message",
    }
    assert picked(MessageSelection(filter_=Filter(tables=["nothing"]), about_tables=True)) == []
    rows = MessageSelection(filter_=Filter(where=["v = one"]), about_changes=True)
    assert [seen.place.number for seen in inspected(Z_SMALL) if seen.place.number in picked(rows)] == [6]


def test_an_excluded_table_leaves_everything_else() -> None:
    found = kinds_of(MessageSelection(filter_=Filter(exclude=["public.t"])))
    assert {"Begin", "Commit", "Keepalive"} <= found
    assert not found & {"Relation", "Insert", "Update", "Delete", "Truncate"}


def test_a_transaction_with_all_its_messages() -> None:
    pick = MessageSelection(filter_=Filter(xids=[1349]), xids=[1349])
    assert [seen.place.kind for seen in inspected(Z_SMALL) if seen.place.number in picked(pick)] == [
        "Begin",
        "Update",
        "Commit",
    ]


def test_a_streamed_transaction_is_found_in_its_segments_and_at_its_end() -> None:
    source = capture("E_parallel", "p4_parallel")
    xids = {seen.message.xid for seen in inspected(source) if seen.place.kind == "StreamCommit"}  # type: ignore[union-attr]
    assert xids
    for xid in xids:
        assert isinstance(xid, int)
        found = kinds_of(MessageSelection(filter_=Filter(xids=[xid]), xids=[xid]), source)
        assert {"StreamStart", "Insert", "StreamStop", "StreamCommit"} <= found
        assert "Begin" not in found


def test_prepared_transactions_are_found_with_their_outcome() -> None:
    source = capture("D_twophase", "p3_2pc")
    [xid, *_] = [seen.message.xid for seen in inspected(source) if seen.place.kind == "BeginPrepare"]  # type: ignore[union-attr]
    assert isinstance(xid, int)
    found = kinds_of(MessageSelection(filter_=Filter(xids=[xid]), xids=[xid]), source)
    assert found >= {"BeginPrepare", "Prepare", "CommitPrepared", "Insert"}
