"""Messages as bytes: what the decoder reads from them is the message, and the bytes are the manual's."""

from __future__ import annotations

import pytest

from pgtail.errors import Malformed, Truncated
from pgtail.pgoutput.cursor import MAX_NAME
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.schema import Relation, RelationColumn, Type
from pgtail.pgoutput.transaction import Begin, Commit, Origin
from pgtail.pgoutput.walsender import XLogData
from tests.support import encode

BEGIN = Begin(0x1_0000_0010, -7, 0)
COMMIT = Commit(0, 0x1_0000_0010, 0x1_0000_0040, 5)
COLUMNS = (RelationColumn(1, "id", 23, -1), RelationColumn(0, "größe", 0xFFFF_FFFF, 7))
RELATION = Relation(None, 0x8000_0001, "", 'a "b"', "f", COLUMNS)
TYPE = Type(None, 16400, "public", "mood")


@pytest.mark.parametrize("message", [BEGIN, COMMIT, RELATION, RELATION._replace(columns=()), TYPE])
def test_decoding_what_was_encoded(message: Begin | Commit | Relation | Type) -> None:
    data = message.encode()
    assert Decoder().message(data, 0, len(data)) == message


def test_the_bytes_of_the_protocol() -> None:
    assert BEGIN.encode() == encode.begin(0, 0x1_0000_0010, -7)
    assert COMMIT.encode() == encode.commit(0x1_0000_0010, 0x1_0000_0040, 5)
    assert TYPE.encode() == encode.type_(16400, "mood")
    relation = RELATION._replace(columns=(COLUMNS[0], COLUMNS[1]._replace(typmod=-1)), identity="d")
    columns = (("id", 23), ("größe", 0xFFFF_FFFF))
    assert relation.encode() == encode.relation(0x8000_0001, 'a "b"', columns, schema="")
    assert XLogData(8, 8, 0).encode(b"m") == encode.frame(b"m", 8)


def test_a_name_without_an_end_is_waited_for_up_to_a_limit() -> None:
    for size, error in ((MAX_NAME, Truncated), (MAX_NAME + 1, Malformed)):
        data = b"O" + bytes(8) + b"x" * size
        with pytest.raises(error) as found:
            Decoder().message(data, 0, len(data))
        assert (found.value.offset, found.value.field) == (9, "name")
    name = "x" * MAX_NAME
    data = encode.origin(name)
    assert Decoder().message(data, 0, len(data)) == Origin(0, name)


def test_names_in_another_encoding() -> None:
    """Bytes that are not valid become lone surrogates, and these the bytes again."""
    data = b"Y\0\0\0\1s\0\xe4\xff\0"
    for encoding in ("latin-1", "utf-8"):
        text = b"\xe4\xff".decode(encoding, "surrogateescape")
        assert Type(None, 1, "s", text).encode(encoding) == data
