"""Write messages field by field with their bytes, as JSON lines."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from pgtail._orjson import orjson
from pgtail.files.sink import Sink
from pgtail.hexview.fields import ShownField
from pgtail.hexview.views import Damage, MessageLocation
from pgtail.native import compiled
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.terminal.layout import Item
from pgtail.terminal.values import Show

_HEX_PIECE: Final = 64 * 1024


class JsonView:
    """Writes messages as JSON lines: an object for each message, with its fields."""

    def __init__(self, sink: Sink) -> None:
        self._write = sink.write

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[ShownField], damage: Damage | None = None
    ) -> None:
        self._write(self.begin(place).encode())
        for index, field in enumerate(fields):
            if index:
                self._write(b",")
            self._field(place, buf, field)
        self._write(b"]")
        if damage is not None:
            self._write(b',"error":' + _described(place, buf, damage))
        self._write(b"}\n")

    def begin(self, place: MessageLocation) -> str:
        numbers: dict[str, object] = {"number": place.number, "offset": place.offset, "size": place.end - place.start}
        if place.lsn is not None:
            numbers["lsn"] = lsn_text(place.lsn)
        return self.head(place)[0] % numbers

    def head(self, place: MessageLocation) -> tuple[str, None]:
        table = None if place.relation is None else place.relation.qualified
        return _head(place.kind, table, place.offset is not None, place.lsn is not None, place.sent), None

    # -- templates ---------------------------------------------------------------------------------------------

    scanned = True
    spaced = False
    separator = ","
    end = "]}\n"

    def layout(self, place: MessageLocation, fields: Sequence[ShownField]) -> None:
        return None

    def template(self, field: ShownField, data: bytes | None, layout: None) -> str:
        names, means = [text.decode().replace("%", "%%") for text in _around(field)]
        digits, value = ("%s", "%s") if data is None else (data.hex(), self.shown(field.value).replace("%", "%%"))
        digits = f"null{'%.0s' if data is None else ''}" if field.masked else f'"{digits}"'
        return f'{{"offset":%d,"hex":{digits},{names}{value}{means}'

    def content_template(self, field: ShownField, layout: None) -> str:
        return self.template(field, None, layout)

    def content(self, template: str, at: int, cell: bytes, value: Item) -> str:
        return template % (at, cell.hex(), self.shown(value))

    def scanned_content(self, template: str, show: Show, python: Callable[[int, bytes], str]) -> Any:
        fast = compiled()
        return None if fast is None else fast.JsonContent(template, show, python)

    def digits(self, data: bytes) -> str:
        return data.hex()

    def shown(self, value: Item) -> str:
        if len(value) == 1:
            return orjson.dumps(value[0][0])[1:-1].decode()
        return "".join([orjson.dumps(text)[1:-1].decode() for text, _ in value])

    def _field(self, place: MessageLocation, buf: Buffer, field: ShownField) -> None:
        """Write one field; bytes and value may be long and are written in pieces."""
        self._write(b'{"offset":%d,"hex":' % place.at(field.span.start))
        self._write(b"null," if field.masked else b'"')
        for at in () if field.masked else range(field.span.start, field.span.end, _HEX_PIECE):
            self._write(binascii.b2a_hex(buf[at : min(at + _HEX_PIECE, field.span.end)]))
        names, means = _around(field)
        self._write((b"" if field.masked else b'",') + names)
        for text, _ in field.value:
            self._write(orjson.dumps(text)[1:-1])
        self._write(means)


@lru_cache(maxsize=256)
def _head(kind: str, table: str | None, has_offset: bool, has_lsn: bool, sent: FromClient | None) -> str:
    """What precedes the fields of a message."""
    about: dict[str, object] = {"relation": table}
    if sent is not None:
        time = None if sent.time is None else time_text(sent.time)
        about |= {"client": sent.client, "server": sent.server, "packet_ts": time}
    pairs = ['"message":%(number)d', _pairs({"kind": kind}), '"offset":%(offset)d' * has_offset, '"size":%(size)d']
    pairs += ['"lsn":"%(lsn)s"' * has_lsn, _pairs(about), '"fields":[']
    return "{" + ",".join(filter(None, pairs))


def _pairs(pairs: Mapping[str, object]) -> str:
    """The pairs whose value is not None as the inside of a JSON object, in a %-format."""
    return _object(pairs)[1:-1].decode().replace("%", "%%")


def _around(field: ShownField) -> tuple[bytes, bytes]:
    """What is before and after the value of a field, apart from its offset and bytes."""
    names = _object({"field": field.span.field, "column": _column(field), "type": field.type})
    means = b',"means":' + orjson.dumps(", ".join(field.words)) if field.words else b""
    return names[1:-1] + b',"value":"', b'"' + means + b"}"


def _column(field: ShownField) -> str | None:
    """The column of a field, also for the kind and length fields of its value."""
    if field.name == field.span.field:
        return None
    suffix = next((suffix for suffix in (" kind", " length") if field.span.field.endswith(suffix)), "")
    return field.name.removesuffix(suffix)


def _described(place: MessageLocation, buf: Buffer, damage: Damage) -> bytes:
    return _object(
        {
            "offset": place.at(damage.start),
            "hex": None if damage.masked else buf[damage.start : damage.end].hex(),
            "field": damage.field or None,
            "expected": damage.error.reason,
        }
    )


def _object(pairs: Mapping[str, object]) -> bytes:
    """A JSON object of the pairs whose value is not None."""
    return orjson.dumps({key: value for key, value in pairs.items() if value is not None})
