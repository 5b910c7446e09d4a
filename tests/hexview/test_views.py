"""`inspect`: every byte of a message belongs to a field, and damage is shown where the decoder found it."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtail.errors import DecodeError
from pgtail.hexview.fields import FieldDescriber, Scope
from pgtail.hexview.json_view import JsonView
from pgtail.hexview.text_view import TextView
from pgtail.hexview.views import MessageLocation, locate_damage
from pgtail.pgoutput.cursor import TracedCursor
from pgtail.pgoutput.decoder import Decoder
from pgtail.terminal.values import ValueStyle
from pgtail.values import Types
from tests.support.corpus import Capture, capture, captures
from tests.support.render import Sink, rows_by
from tests.support.run import here

Z_SMALL = capture("Z_small", "p1")


def shown(source: Capture, *numbers: int, width: int = 120, most: int = 48) -> str:
    """Some messages of a capture as text, or all."""
    options = ["-o", "table", "--color", "never", "--max-bytes", str(most), *[f"--message={one}" for one in numbers]]
    result = here("inspect", *options, source.forms["walsender.bin"], COLUMNS=str(width))
    assert (result.status, result.stderr) == (0, "")
    return result.stdout.decode()


def test_an_update_byte_by_byte() -> None:
    assert shown(Z_SMALL, 17) == (
        "● 17  Update  public.t  0/5CE2FE0  byte 633  50 bytes\n"
        "  633  77                       frame                  Byte1                'w'  XLogData\n"
        "  634  00 00 00 00 05 ce 2f e0  start of WAL data      Int64 (XLogRecPtr)   0/5CE2FE0\n"
        "  642  00 00 00 00 05 ce 2f e0  end of WAL             Int64 (XLogRecPtr)   0/5CE2FE0\n"
        "  650  00 03 03 bb 3a 7e ff f7  server clock           Int64 (TimestampTz)  2026-11-20 22:06:45.301239Z\n"
        "  658  55                       tag                    Byte1                'U'  Update\n"
        "  659  00 00 45 f3              relation               Int32 (Oid)          17907  public.t\n"
        "  663  4b                       tuple kind             Byte1                'K'  the old row's identity\n"
        "  664  00 02                    old number of columns  Int16                2\n"
        "  666  74                         id kind              Byte1                't'  text\n"
        "  667  00 00 00 01                id length            Int32                1\n"
        "  671  32                         id                   Byten (text)         2  integer\n"
        "  672  6e                         v kind               Byte1                'n'  not part of the identity\n"
        "  673  4e                       new tuple              Byte1                'N'  the new row\n"
        "  674  00 02                    new number of columns  Int16                2\n"
        "  676  74                         id kind              Byte1                't'  text\n"
        "  677  00 00 00 01                id length            Int32                1\n"
        "  681  33                         id                   Byten (text)         3  integer\n"
        "  682  6e                         v kind               Byte1                'n'  NULL\n"
    )


def test_a_relation_at_80_columns() -> None:
    assert shown(Z_SMALL, 5, width=80) == (
        "● 5  Relation  public.t  byte 120  65 bytes\n"
        "  120  77                frame                  Byte1   'w'  XLogData\n"
        "  121  0000000000000000  start of WAL data      Int64   0/0\n"
        "  129  0000000000000000  end of WAL             Int64   0/0\n"
        "  137  000303bb3a7efc3a  server clock           Int64\n"
        "                           2026-11-20 22:06:45.300282Z\n"
        "  145  52                tag                    Byte1   'R'  Relation\n"
        "  146  000045f3          oid                    Int32   17907  public.t\n"
        "  150  7075626c696300    namespace              String  'public'\n"
        "  157  7400              relation name          String  't'\n"
        "  159  64                replica identity       Byte1   'd'  default\n"
        "  160  0002              number of columns      Int16   2\n"
        "  162  01                  column[0] flags      Int8    1  part of the identity\n"
        "  163  696400              column[0] name       String  'id'\n"
        "  166  00000017            column[0] type       Int32   23  integer\n"
        "  170  ffffffff            column[0] atttypmod  Int32   -1\n"
        "  174  00                  column[1] flags      Int8    0\n"
        "  175  7600                column[1] name       String  'v'\n"
        "  177  00000019            column[1] type       Int32   25  text\n"
        "  181  ffffffff            column[1] atttypmod  Int32   -1\n"
    )


def test_a_begin_at_40_columns() -> None:
    """Half as many bytes on a line; a value goes below its name if there is no room."""
    assert shown(Z_SMALL, 4, width=40) == (
        "● 4  Begin  0/5CE2DD0  byte 70  46 bytes\n"
        "   70  77        frame             Byte1\n"
        "                   'w'  XLogData\n"
        "   71  00000000  start of WAL data\n"
        "   75  05ce2dd0                    Int64\n"
        "                   0/5CE2DD0\n"
        "   79  00000000  end of WAL        Int64\n"
        "   83  05ce2dd0    0/5CE2DD0\n"
        "   87  000303bb  server clock      Int64\n"
        "   91  3a7efbea    2026-11-20\n"
        "                   22:06:45.300202Z\n"
        "   95  42        tag               Byte1\n"
        "                   'B'  Begin\n"
        "   96  00000000  final_lsn         Int64\n"
        "  100  05ce2f30    0/5CE2F30\n"
        "  104  000303bb  commit_time       Int64\n"
        "  108  3a7efa42    2026-11-20\n"
        "                   22:06:45.299778Z\n"
        "  112  00000544  xid               Int32\n"
        "                   1348\n"
    )


@pytest.mark.parametrize("source", captures()[::4], ids=str)
def test_the_fields_of_every_message_cover_all_its_bytes(source: Capture) -> None:
    with rows_by("decoder"):
        lines = here("inspect", "-o", "json", source.forms["walsender.bin"]).objects
    for line, frame in zip(lines, source.frames(), strict=True):
        assert "".join([field["hex"] for field in line["fields"]]) == frame.hex()
        assert all(field["value"] for field in line["fields"])
        assert line["size"] == len(frame)


@pytest.mark.parametrize("scenario", ["A_names", "A_types", "A_big", "D_twophase"])
def test_no_line_is_wider_than_the_terminal(scenario: str) -> None:
    [source, *_] = [one for one in captures() if one.scenario.name == scenario and one.scenario.version == "pg16"]
    for width in (40, 60, 80, 160):
        with rows_by("decoder"):
            lines = shown(source, width=width).split("\n")
        assert max(map(cell_len, lines)) <= width
        assert not {unicodedata.category(char) for line in lines for char in line} & {"Cc", "Cf", "Zl", "Zp"}


@pytest.mark.parametrize("width", [40, 41, 50, 57, 60])
@pytest.mark.parametrize("most", [1, 4, 7])
def test_a_line_with_the_count_of_bytes_is_not_wider_either(width: int, most: int) -> None:
    """Neither from the view nor from the scanner, which shows the later rows of a table."""
    lines = shown(Z_SMALL, width=width, most=most).split("\n")
    assert any(re.search(r"\d more bytes?$", line) for line in lines)
    assert max(map(cell_len, lines)) <= width


def test_long_fields_are_cut_with_a_count_unless_all_is_asked_for() -> None:
    source = capture("A_big", "p1_msg")
    [big, *_] = [number for number, frame in enumerate(source.frames(), 1) if len(frame) > 100_000]
    assert "2097106 more bytes" in shown(source, big)
    whole = shown(source, big, most=0)
    assert "more bytes" not in whole
    assert whole.count("\n") > 2_000_000 / 8


def test_a_field_in_json() -> None:
    [insert] = here("inspect", "-o", "json", "--message", "6", Z_SMALL.forms["walsender.bin"]).objects
    assert (insert["kind"], insert["relation"]) == ("Insert", "public.t")
    assert insert["fields"][-1] == {
        "offset": 233,
        "hex": "6f6e65",
        "field": "new[1]",
        "column": "v",
        "type": "Byten (text)",
        "value": "'one'",
        "means": "text",
    }


# -- damage --------------------------------------------------------------------------------------------------------


def damaged(data: bytes, view: JsonView | TextView, *, known: bool = True) -> DecodeError:
    """Decode a damaged frame after the others of a capture, and show it."""
    scope = Scope(Types())
    fields = FieldDescriber(scope, ValueStyle(48), encoding="utf-8")
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


def test_impossible_length_is_the_bad_field() -> None:
    sink = Sink()
    bad = INSERT[:34] + b"\xff\xff\xff\xff" + INSERT[38:]
    damaged(bad, TextView(sink, width=120, color=False, max_bytes=48))
    assert sink.text.endswith("✗ id length                                 a length of -1 bytes\n")


def test_bytes_that_are_missing_are_named() -> None:
    sink = Sink()
    damaged(INSERT[:-2], TextView(sink, width=120, color=False, max_bytes=48))
    *_, length, last, _ = sink.text.split("\n")
    assert "v length" in length
    assert last.split()[1:4] == ["6f", "✗", "v"]
    assert last.endswith("2 more bytes needed")


def test_bytes_that_are_left_over_are_shown() -> None:
    sink = Sink()
    damaged(INSERT + b"\x00\x01", JsonView(sink))
    line = json.loads(sink.text)
    assert line["error"] == {"offset": len(INSERT), "hex": "0001", "expected": "2 bytes left over"}
    assert "".join([field["hex"] for field in line["fields"]]) == INSERT.hex()


@given(st.integers(0, len(INSERT) - 1), st.integers(1, 255), st.booleans())
def test_good_fields_and_bad_bytes_are_shown_for_any_damage(at: int, change: int, known: bool) -> None:
    bad = bytearray(INSERT)
    bad[at] ^= change
    sink = Sink()
    try:
        damaged(bytes(bad), TextView(sink, width=100, color=False, max_bytes=48), known=known)
    except pytest.fail.Exception:
        return  # that byte may have any value
    assert max(map(cell_len, sink.text.split("\n"))) <= 100
    assert sink.text.count("✗") == 1


@pytest.mark.parametrize("size", range(len(INSERT)))
def test_cut_message_shows_all_its_bytes(size: int) -> None:
    sink = Sink()
    damaged(INSERT[:size], JsonView(sink))
    line = json.loads(sink.text)
    assert "".join([field["hex"] for field in line["fields"]]) + line["error"]["hex"] == INSERT[:size].hex()
