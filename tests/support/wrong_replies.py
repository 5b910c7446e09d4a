"""Wrong replies of a hostile server: functions that change the messages of one reply, by name."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from tests.support.hostile_server import Change, Reply, failure, message

ESCAPES: Final = b"\x1b[31m\x1b]0;owned\x07\x9b2J\xc2\x9b"
"""Control sequences for a terminal, as UTF-8 and as single bytes."""
_TEXT, _INT4, _BOOL, _JSONB, _TIMESTAMP = 25, 23, 16, 3802, 1184

Cells: TypeAlias = list[bytes | None]


def cells_of(body: bytes) -> Cells:
    """The values of a DataRow."""
    [count], pos = struct.unpack_from(">H", body), 2
    found: Cells = []
    for _ in range(count):
        [size] = struct.unpack_from(">i", body, pos)
        pos += 4
        found.append(None if size < 0 else body[pos : pos + size])
        pos += max(size, 0)
    return found


def row(cells: Sequence[bytes | None]) -> bytes:
    """A DataRow."""
    body = struct.pack(">H", len(cells))
    for cell in cells:
        body += struct.pack(">i", -1) if cell is None else struct.pack(">i", len(cell)) + cell
    return message(b"D", body)


def columns_of(body: bytes) -> list[tuple[bytes, bytes]]:
    """The name and the remaining fields of each column of a RowDescription."""
    [count], pos = struct.unpack_from(">H", body), 2
    found = []
    for _ in range(count):
        end = body.index(b"\0", pos)
        found.append((body[pos:end], body[end + 1 : end + 19]))
        pos = end + 19
    return found


def description(columns: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A RowDescription."""
    body = b"".join([name + b"\0" + rest for name, rest in columns])
    return message(b"T", struct.pack(">H", len(columns)) + body)


def typed(rest: bytes, oid: int, code: int = 0) -> bytes:
    """A column's description with another type and format: text (0), binary (1) or any other."""
    return struct.pack(">IhIhiH", *struct.unpack(">IhIhi", rest[:16])[:2], oid, -1, -1, code)


def each_cell(change: Callable[[bytes | None], bytes | None]) -> Callable[[Reply], bytes]:
    """Rows with every value changed."""
    return lambda reply: row([change(cell) for cell in cells_of(reply.body)]) if reply.kind == b"D" else reply.whole


def each_type(oid: int, code: int = 0) -> Callable[[Reply], bytes]:
    """Columns described with another type."""

    def changed(reply: Reply) -> bytes:
        if reply.kind != b"T":
            return reply.whole
        return description([(name, typed(rest, oid, code)) for name, rest in columns_of(reply.body)])

    return changed


def _in_json(change: Callable[[Any], Any]) -> Callable[[Reply], bytes]:
    """JSON objects with every value changed; other values stay."""

    def changed(cell: bytes | None) -> bytes | None:
        if cell is None or not cell.startswith(b"{"):
            return cell
        return json.dumps({name: change(value) for name, value in json.loads(cell).items()}).encode()

    return each_cell(changed)


def _for_json(text: bytes) -> Callable[[Reply], bytes]:
    """This text in place of JSON objects."""
    return each_cell(lambda cell: text if cell is not None and cell.startswith(b"{") else cell)


def _columns(change: Callable[[list[Any]], list[Any]]) -> Callable[[Reply], bytes]:
    """Fewer or more columns, in the description and the rows alike."""

    def changed(reply: Reply) -> bytes:
        if reply.kind == b"T":
            return description(change(columns_of(reply.body)))
        return row(change(cells_of(reply.body))) if reply.kind == b"D" else reply.whole

    return changed


def _instead(replacement: bytes, *kinds: bytes) -> Callable[[Reply], bytes]:
    """This message in place of the whole reply."""

    def changed(reply: Reply) -> bytes:
        if reply.kind in (b"T", b"C"):
            return replacement if reply.kind == b"T" else b"" if kinds else reply.whole
        return b"" if reply.kind == b"D" else reply.whole

    return changed


def _before(extra: bytes) -> Callable[[Reply], bytes]:
    """An extra message before the end of a correct reply."""
    return lambda reply: extra + reply.whole if reply.kind == b"C" else reply.whole


def _at(kind: bytes, answer: bytes | None) -> Change:
    return lambda reply: answer if reply.kind == kind else reply.whole


_STATUS = message(b"S", b"client_encoding\0\x1b[31mnonsense\0")

WRONG_REPLIES: Final[dict[str, Change]] = {
    "null": each_cell(lambda _: None),
    "empty": each_cell(lambda _: b""),
    "escapes": each_cell(lambda _: ESCAPES),
    "no UTF-8": each_cell(lambda _: b"\xff\xfe\x80"),
    "huge": each_cell(lambda _: b"9" * 5000),
    "large": each_cell(lambda _: b"99999999999999999999"),
    "negative": each_cell(lambda _: b"-9223372036854775808"),
    "words": each_cell(lambda _: b"no such thing"),
    "NaN": each_cell(lambda _: b"NaN"),
    "position": each_cell(lambda _: b"FFFFFFFF/FFFFFFFF"),
    "true": each_cell(lambda _: b"t"),
    "no rows": lambda reply: b"" if reply.kind == b"D" else reply.whole,
    "two rows": lambda reply: reply.whole * 2 if reply.kind == b"D" else reply.whole,
    "no columns": _columns(lambda _: []),
    "few columns": _columns(lambda all_: all_[1:]),
    "many columns": _columns(lambda all_: all_ * 2),
    "other names": lambda reply: (
        description([(b"\xff\x1b[1m", rest) for _, rest in columns_of(reply.body)])
        if reply.kind == b"T"
        else reply.whole
    ),
    "typed int": each_type(_INT4),
    "typed bool": each_type(_BOOL),
    "typed jsonb": each_type(_JSONB),
    "typed time": each_type(_TIMESTAMP),
    "typed binary": each_type(_INT4, 1),
    "typed format 7": each_type(_TEXT, 7),
    "typed array": each_type(1009),
    "json null": _for_json(b"null"),
    "json list": _for_json(b"[1, 2]"),
    "json empty": _for_json(b"{}"),
    "json cut": _for_json(b'{"slot_name": '),
    "json deep": _for_json(b'{"slot_name": ' + b"[" * 100_000),
    "json deep values": _in_json(lambda _: json.loads("[" * 400 + "]" * 400)),
    "json nulls": _in_json(lambda _: None),
    "json texts": _in_json(lambda _: "\x1b[31m\ud800"),
    "json numbers": _in_json(lambda _: 10**30),
    "json floats": _in_json(lambda _: float("inf")),
    "json objects": _in_json(lambda _: {"a": 1}),
    "json true": _in_json(lambda _: True),
    "json zero": _in_json(lambda _: 0),
    "error": _instead(failure(b"no " + ESCAPES, b"42501")),
    "error without fields": _instead(message(b"E", b"\0")),
    "error with a strange state": _instead(failure(b"\xff\xff", b"\x1b[31m", b"\xff")),
    "error in the rows": _at(b"C", failure(b"enough", b"XX000")),
    "fatal": _instead(failure(b"terminated \x1b[31m", b"57P01", b"FATAL")),
    "closed": _at(b"T", None),
    "closed in the rows": _at(b"C", None),
    "noise": _at(b"T", b"\xff" * 64),
    "no message": _at(b"T", message(b"T", b"\xff\xff")),
    "cut row": _at(b"D", message(b"D", b"\x00\x01\x00\x00\x00\xff")),
    "empty query": _instead(message(b"I", b""), b"C"),
    "copy in": _instead(message(b"G", b"\0\0\0"), b"C"),
    "copy out": _instead(message(b"H", b"\0\0\0") + message(b"d", b"x") + message(b"c", b""), b"C"),
    "notice": _before(failure(b"look " + ESCAPES, b"01000", b"WARNING").replace(b"E", b"N", 1)),
    "notification": _before(message(b"A", struct.pack(">I", 1) + b"\x1b[31m\0\xff\0")),
    "encoding": _before(_STATUS),
    "strange encoding": _before(message(b"S", b"client_encoding\0EUC_TW\0")),
    "other encoding": _before(message(b"S", b"client_encoding\0LATIN1\0")),
    "version": _before(message(b"S", b"server_version\0\x1b[31m\0")),
}
"""Call the function with every message of a reply."""
