"""Write messages field by field with their bytes, as JSON lines."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import Final

from pgtail._orjson import orjson
from pgtail.files.sink import Sink
from pgtail.hexview.fields import ShownField
from pgtail.hexview.views import Damage, MessageLocation
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.scalars import lsn_text, time_text

_HEX_PIECE: Final = 64 * 1024


class JsonView:
    """Writes messages as JSON lines: an object for each message, with its fields."""

    def __init__(self, sink: Sink) -> None:
        self._write = sink.write

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[ShownField], damage: Damage | None = None
    ) -> None:
        """Show one message, as far as it could be decoded."""
        texts = [_head(place)[:-1], b',"fields":[']
        for index, field in enumerate(fields):
            span = field.span
            texts.append(b'%b{"offset":%d,"hex":' % (b"," if index else b"", place.at(span.start)))
            texts.append(b"null," if field.masked else b'"')
            for at in () if field.masked else range(span.start, span.end, _HEX_PIECE):
                if at > span.start:  # it is long: not all of it is in memory
                    self._write(b"".join(texts))
                    texts.clear()
                texts.append(binascii.b2a_hex(buf[at : min(at + _HEX_PIECE, span.end)]))
            texts += [b"" if field.masked else b'",', _described(field)[1:]]
        texts.append(b"]")
        if damage is not None:
            texts.append(b',"error":' + _damaged(place, buf, damage))
        texts.append(b"}\n")
        self._write(b"".join(texts))


def _head(place: MessageLocation) -> bytes:
    """A message without its fields."""
    sent = place.sent
    return _object(
        {
            "message": place.number,
            "kind": place.kind,
            "offset": place.offset,
            "size": place.end - place.start,
            "lsn": None if place.lsn is None else lsn_text(place.lsn),
            "relation": None if place.relation is None else place.relation.qualified,
            "client": sent and sent.client,
            "server": sent and sent.server,
            "packet_ts": None if sent is None or sent.time is None else time_text(sent.time),
        }
    )


def _described(field: ShownField) -> bytes:
    """A field without its offset and bytes."""
    name = field.span.field
    return _object(
        {
            "field": name,
            "column": _column(name, field.name),
            "type": field.type,
            "value": "".join([text for text, _ in field.value]),
            "means": ", ".join(field.words) or None,
        }
    )


def _column(field: str, name: str) -> str | None:
    """The column of a field, also for the kind and length fields of its value."""
    if name == field:
        return None
    suffix = next((suffix for suffix in (" kind", " length") if field.endswith(suffix)), "")
    return name.removesuffix(suffix)


def _damaged(place: MessageLocation, buf: Buffer, damage: Damage) -> bytes:
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
