"""The types of one stream: what Type messages, enums, encodings and number styles change."""

from __future__ import annotations

import json
import struct
from importlib import import_module
from pkgutil import iter_modules

import pytest

import pgtail.values
from pgtail.errors import OptionError
from pgtail.values import MODULES, UNKNOWN, Types, Undecoded, ValueKind
from pgtail.values.codec import LONG
from pgtail.values.oids import BUILTIN
from pgtail.values.render import string
from tests.support.cells import array, record
from tests.support.servers import fresh_database
from tests.support.truth import both_forms, pin
from tests.values.conftest import World

INT4_ONE = bytes.fromhex("00000001")
TEXT_ARRAY = bytes.fromhex("00000001000000000000001900000001000000010000000161")


def undecoded(cell: bytes) -> str:
    return "\\x" + cell.hex()


@pytest.mark.parametrize("module", MODULES)
def test_every_loader_is_found_by_the_name_of_a_builtin_type(module: str) -> None:
    types = import_module(f"pgtail.values.{module}").TYPES
    assert {*MODULES[module]} == {*types}
    assert {*types} <= {row.name for row in BUILTIN.values()}


def test_every_module_with_types_is_in_the_table() -> None:
    names = [found.name for found in iter_modules(pgtail.values.__path__)]
    assert {name for name in names if hasattr(import_module(f"pgtail.values.{name}"), "TYPES")} == {
        *MODULES,
        "extensions",  # whose types have no OID of their own
    }


def test_domain_has_the_kind_of_its_base_type() -> None:
    types = Types()
    types.declare(16400, "", "int4")
    types.declare(16401, "", "_text")
    assert types.codec(16400).kind is ValueKind.NUMBER
    assert types.codec(16400).json_text(b"1") == types.codec(16400).json_binary(INT4_ONE) == b"1"
    assert types.codec(16401).kind is ValueKind.ARRAY
    assert types.codec(16401).json_text(b"{a}") == types.codec(16401).json_binary(TEXT_ARRAY) == b'["a"]'


def test_a_name_in_another_schema_is_another_type() -> None:
    types = Types()
    types.declare(16400, "public", "int4")
    assert types.codec(16400).kind is ValueKind.TEXT
    assert types.codec(16400).json_text(b"1") == b'"1"'
    with pytest.raises(Undecoded):
        types.codec(16400).json_binary(INT4_ONE)


def test_codec_changes_after_declare() -> None:
    types = Types()
    assert types.codec(16400).kind is ValueKind.TEXT
    types.declare(16400, "", "int4")
    now = types.codec(16400)
    assert now.kind is ValueKind.NUMBER
    types.declare(16400, "", "int4")
    assert types.codec(16400) is now
    types.declare(16400, "public", "mood")
    assert types.codec(16400).kind is ValueKind.TEXT


def test_builtin_oids_cannot_be_redeclared() -> None:
    types = Types()
    types.declare(23, "public", "mood")
    assert types.codec(23).kind is ValueKind.NUMBER


def test_enum_in_binary_form_must_be_declared() -> None:
    label = b"sad"
    types = Types()
    types.declare(16400, "public", "mood")
    assert types.codec(16400).json_text(label) == b'"sad"'
    with pytest.raises(Undecoded) as shown:
        types.codec(16400).text_binary(label)
    assert shown.value.text == undecoded(label)


@pytest.mark.parametrize("name", ["mood", "public.mood"])
def test_enum_by_name(name: str) -> None:
    types = Types(enums=[name])
    types.declare(16400, "public", "mood")
    types.declare(16401, "public", "_mood")
    types.declare(16402, "other", "mood")
    assert types.codec(16400).text_binary(b"sad") == "sad"
    assert types.codec(16401).json_binary(array(16400, b"sad", b"b c")) == b'["sad","b c"]'
    assert types.codec(16401).json_binary(array(29999, b"sad")) == b'["sad"]'
    if name == "mood":
        assert types.codec(16402).text_binary(b"sad") == "sad"
    else:
        with pytest.raises(Undecoded):
            types.codec(16402).text_binary(b"sad")


def test_enum_by_oid_of_a_live_session() -> None:
    types = Types()
    types.declare(16401, "public", "_mood")
    with pytest.raises(Undecoded):
        types.codec(16401).json_binary(array(16400, b"sad"))
    assert types.codec(16400).kind is ValueKind.TEXT
    types.declare_enums([16400])
    assert types.codec(16400).text_binary(b"sad") == "sad"
    assert types.codec(16401).json_binary(array(16400, b"sad")) == b'["sad"]'
    with pytest.raises(Undecoded):
        types.codec(16400).text_binary(b"")


def test_composite_of_undeclared_types() -> None:
    types = Types()
    types.declare(16400, "public", "pair")
    inner = record((23, INT4_ONE), (25, b"a b"))
    assert types.codec(16400).text_binary(inner) == '(1,"a b")'
    assert types.codec(16400).text_binary(record((16999, inner), (1009, TEXT_ARRAY))) == '("(1,""a b"")",{a})'
    for cell in (record(), record((16999, b"sad")), record((0, b"")), inner + b"\0", b"sad"):
        with pytest.raises(Undecoded):
            types.codec(16400).text_binary(cell)


def test_type_named_like_an_array() -> None:
    types = Types()
    types.declare(16400, "public", "_pair")
    codec = types.codec(16400)
    assert codec.json_text(b"(1,a)") == b'"(1,a)"'
    assert codec.json_binary(record((23, INT4_ONE), (25, b"a"))) == b'"(1,a)"'


def test_elements_of_a_users_array_are_strings() -> None:
    types = Types()
    types.declare(16400, "", "int4")
    types.declare(16401, "public", "_posint")
    assert types.codec(16401).json_text(b"{1,NULL}") == b'["1",null]'
    assert types.codec(16401).json_binary(array(16400, INT4_ONE)) == b'["1"]'


def test_arrays_of_geometries_have_another_delimiter() -> None:
    types = Types()
    types.declare(16401, "public", "_geometry")
    assert types.codec(16401).json_text(b"{0101:0102}") == b'["0101","0102"]'


def test_numbers_as_strings() -> None:
    types = Types(numbers="string")
    tokens = {name: types.codec(oid).json_text(b"12") for oid, name in ((20, "int8"), (1700, "numeric"), (23, "int4"))}
    assert tokens == {"int8": b'"12"', "numeric": b'"12"', "int4": b"12"}
    assert types.codec(1700).json_text(b"NaN") == b'"NaN"'
    assert types.codec(1016).json_text(b"{1,NULL}") == b'["1",null]'
    assert types.codec(1007).json_text(b"{1,NULL}") == b"[1,null]"
    assert types.codec(20).json_binary(bytes(8)) == b'"0"'
    assert types.codec(20).kind is ValueKind.NUMBER
    with pytest.raises(Undecoded):
        types.codec(20).json_text(b"x")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"<e>\xe9</e>", "<e>é</e>"),
        (b'<?xml version="1.0" encoding="LATIN1"?>\n<e>\xe9</e>', "<e>é</e>"),
        (b'<?xml version="1.0" encoding="LATIN1"?><e/>', "<e/>"),
        (b'<?xml version="1.1" encoding="LATIN1"?><e/>', '<?xml version="1.1"?><e/>'),
        (
            b'<?xml version="1.0" encoding="LATIN1" standalone="yes"?><e/>',
            '<?xml version="1.0" standalone="yes"?><e/>',
        ),
    ],
)
def test_xml_without_the_encoding_that_its_binary_form_names(sent: bytes, text: str) -> None:
    assert json.loads(Types(encoding="latin1").codec(142).json_binary(sent)) == text


def test_a_binary_hstore_has_no_key_that_is_null() -> None:
    types = Types()
    types.declare(16400, "public", "hstore")
    one, null = struct.pack(">i1s", 1, b"k"), struct.pack(">i", -1)
    assert json.loads(types.codec(16400).json_binary(struct.pack(">i", 1) + one + null)) == '"k"=>NULL'
    for damaged in (null + one, one + null + b"x", one):
        with pytest.raises(Undecoded):
            types.codec(16400).json_binary(struct.pack(">i", 1) + damaged)


def test_unknown_columns() -> None:
    for codec in (UNKNOWN, Types().unknown()):
        assert codec.kind is ValueKind.TEXT
        assert codec.json_text(b"1") == b'"1"'
        with pytest.raises(Undecoded) as shown:
            codec.json_binary(INT4_ONE)
        assert shown.value.text == undecoded(INT4_ONE)
    assert Types(encoding="latin1").unknown().json_text(b"\xe9") == '"é"'.encode()


def test_unknown_encoding() -> None:
    for encoding in ("klingon", "hex"):
        with pytest.raises(OptionError, match=encoding):
            Types(encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "wire"),
    [("latin1", b"\xe9"), ("utf-8", "é".encode()), ("UTF8", "é".encode()), ("euc_jp", b"\x8f\xab\xb1")],
)
def test_encodings(encoding: str, wire: bytes) -> None:
    types = Types(encoding=encoding)
    assert types.codec(25).json_text(wire) == types.codec(25).json_binary(wire) == '"é"'.encode()
    assert types.codec(25).text_text(wire) == "é"
    assert types.codec(114).json_text(b'["' + wire + b'"]') == '["é"]'.encode()
    assert types.codec(3802).json_binary(b'\1["' + wire + b'"]') == '["é"]'.encode()
    assert types.codec(1009).json_text(b"{" + wire + b',"b c"}') == '["é","b c"]'.encode()
    assert types.codec(1009).json_binary(array(25, wire)) == '["é"]'.encode()


def test_backslash_as_second_byte_of_a_character() -> None:
    """In SJIS and Big5 a character's second byte may be a backslash or a brace: texts are taken apart decoded."""
    types = Types(encoding="shift_jis")
    wire = '{表,"ソ "}'.encode("shift_jis")
    assert b"\\" in wire
    assert types.codec(1009).json_text(wire) == '["表","ソ "]'.encode()


@pytest.mark.parametrize("encoding", ["utf-8", "euc_jp"])
@pytest.mark.parametrize("text", ['é\n"x\\日本' * 200_000, "a" * (1 << 21)])
def test_long_texts_are_decoded_in_pieces(encoding: str, text: str) -> None:
    codec = Types(encoding=encoding).codec(25)
    cell = text.encode(encoding)
    assert len(cell) > LONG
    assert codec.json_text(cell) == codec.json_binary(cell) == string(text)
    with pytest.raises(Undecoded) as shown:
        codec.json_text(cell + b"\xe6")
    assert shown.value.text == undecoded(cell + b"\xe6")


def test_latin1_database(world: World) -> None:
    """A session in LATIN1, as --encoding latin1 reads it: text kinds, and the declaration that xml_send writes."""
    if world.version < 13:
        pytest.skip("its CREATE DATABASE has no LOCALE")
    expressions = {
        25: "'é \"x\"'::text",
        1009: "ARRAY['é', 'ü ö']",
        3614: "'''é'':1A'::tsvector",
        114: "'[\"é\"]'::json",
        1700: "1.50::numeric",
    }
    if world.has_xml:
        expressions[142] = "('<?xml version=\"1.0\"?>' || chr(10) || '<e>é</e>')::xml"
    with (
        fresh_database(world.database.server, encoding="LATIN1", locale="C") as database,
        database.connect() as session,
    ):
        pin(session)
        session.execute("SET client_encoding = 'LATIN1'")
        types = Types(encoding="latin1")
        for oid, expression in expressions.items():
            [(text, binary)] = both_forms(session, f"SELECT {expression}", encoding="latin1")
            codec = types.codec(oid)
            assert codec.text_binary(binary) == codec.text_text(text) == text.decode("latin1")
            assert codec.json_binary(binary) == codec.json_text(text)
