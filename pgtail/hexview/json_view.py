"""Write messages field by field with their bytes, as JSON lines."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from pgtail._orjson import orjson
from pgtail.files.sink import Sink
from pgtail.hexview.fields import ShownField
from pgtail.hexview.views import Damage, MessageLocation
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text, time_text

_HEX_PIECE: Final = 64 * 1024


class JsonView:
    """Writes messages as JSON lines: an object for each message, with its fields."""

    def __init__(self, sink: Sink) -> None:
        self._write = sink.write

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[ShownField], damage: Damage | None = None
    ) -> None:
        texts = [_begin(place)]
        for index, field in enumerate(fields):
            span, masked = field.span, field.masked
            names, means = _around(span.field, field.name, field.type, field.words)
            texts.append(b'%b{"offset":%d,"hex":' % (b"," if index else b"", place.at(span.start)))
            texts.append(b"null" if masked else b'"')
            for at in () if masked else range(span.start, span.end, _HEX_PIECE):
                if at > span.start:  # it is long: not all of it is in memory
                    self._write(b"".join(texts))
                    texts.clear()
                texts.append(binascii.b2a_hex(buf[at : min(at + _HEX_PIECE, span.end)]))
            texts.append(names if masked else b'"' + names)
            texts += [orjson.dumps(text)[1:-1] for text, _ in field.value]
            texts.append(means)
        texts.append(b"]")
        if damage is not None:
            texts.append(b',"error":' + _described(place, buf, damage))
        texts.append(b"}\n")
        self._write(b"".join(texts))


def _begin(place: MessageLocation) -> bytes:
    """The text before the fields of a message."""
    numbers: dict[str, object] = {"number": place.number, "offset": place.offset, "size": place.end - place.start}
    if place.lsn is not None:
        numbers["lsn"] = lsn_text(place.lsn)
    table = None if place.relation is None else place.relation.qualified
    head = _head(place.kind, table, place.offset is not None, place.lsn is not None, place.sent)
    return (head % numbers).encode()


@lru_cache(maxsize=256)
def _head(kind: str, table: str | None, has_offset: bool, has_lsn: bool, sent: FromClient | None) -> str:
    """The same as a %-format of its numbers."""
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


@lru_cache(maxsize=1024)
def _around(field: str, name: str, type_: str, words: tuple[str, ...]) -> tuple[bytes, bytes]:
    """The texts before and after the value of a field, apart from its offset and bytes."""
    names = _object({"field": field, "column": _column(field, name), "type": type_})
    means = b',"means":' + orjson.dumps(", ".join(words)) if words else b""
    return b"," + names[1:-1] + b',"value":"', b'"' + means + b"}"


def _column(field: str, name: str) -> str | None:
    """The column of a field, also for the kind and length fields of its value."""
    if name == field:
        return None
    suffix = next((suffix for suffix in (" kind", " length") if field.endswith(suffix)), "")
    return name.removesuffix(suffix)


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
