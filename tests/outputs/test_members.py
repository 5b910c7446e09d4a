"""What changed in a long value: its members, in tables and in lines on a terminal."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.changes.relations import Column
from pgtail.outputs.members import ChangedMember, changed_members
from pgtail.pgoutput.cells import Binary
from pgtail.terminal.layout import width_of
from pgtail.terminal.values import ValueStyle
from pgtail.values import Types
from tests.support.encode import UNCHANGED, begin, commit, insert, lengths, relation, update
from tests.support.render import WAYS, Way, render
from tests.support.run import decode
from tests.support.servers import Database, every_version
from tests.support.workload import pgoutput, write

JSON, JSONB, TEXT, TEXTS, NUMERICS, INT2VECTOR = 114, 3802, 25, 1009, 1231, 22
HSTORE, PAIR, CUBE = 20_000, 20_001, 20_002
SHORT = ValueStyle(8)


def column(oid: int) -> Column:
    types = Types()
    for number, name in ((HSTORE, "hstore"), (PAIR, "pair"), (CUBE, "cube")):
        types.declare(number, "public", name)
    return Column("doc", oid, -1, False, types.type_name(oid), types.codec(oid))


def members(oid: int, old: bytes, new: bytes) -> list[str]:
    """The members as text: path old→new, where nothing is - for what is not there."""
    found = changed_members(column(oid), old, new, SHORT)
    return [f"{''.join(path)} {was or '-'}→{now or '-'}" for path, was, now in found]


@pytest.mark.parametrize(
    ("oid", "old", "new", "found"),
    [
        (JSONB, '{"a": {"zip": "1"}, "t": [1]}', '{"a": {"zip": "2"}, "t": [1, 2]}', ['.a.zip "1"→"2"', ".t[1] -→2"]),
        (JSON, '{"n":1.0, "s":"\\u0041"}', '{ "n":1.00, "s":"A" }', [".n 1.0→1.00", '.s "\\u0041"→"A"']),
        (JSONB, '{"a": {"b": null}}', '{"a": [null], "": 0}', ['.a {"b": null}→[null]', '."" -→0']),
        (JSONB, '{"a.b": 1, "c\\"d": 1}', "{}", ['."a.b" 1→-', '."c\\"d" 1→-']),
        (JSONB, '{"\x9b": 1, "größe": 1}', "{}", ['."\\u009b" 1→-', ".größe 1→-"]),
        (JSONB, "[1, 2, 3, 4]", "[0, 1, 2, 3, 4]", ["[0] -→0"]),
        (JSONB, "[1, 2, 3, 4, 5]", "[1, 9, 5]", ["[1] 2→9", "[2] 3→-", "[3] 4→-"]),
        # What is not compared by members.
        (JSONB, '{"a": 1, "b": 2}', '["a", 1, "b", 2]', []),
        (JSON, '{"a": 1, "b": 2}', '{"b": 2, "a": 1}', []),
        (JSON, '{"a": 1, "a": 2}', '{"a": 1, "a": 3}', []),
        (JSON, '{"x": {"a": 1, "a": 2}}', '{"x": {"a": 1, "a": 3}}', ['.x {"a": 1, "a": 2}→{"a": 1, "a": 3}']),
        (JSON, '{"a": 1, "b"', '{"a": 1, "c"', []),
        (JSON, "[" * 40 + "]" * 40, "[" * 40 + "1" + "]" * 40, ["[0]" * 32 + " [[[[[[[[]]]]]]]]→[[[[[[[[1]]]]]]]]"]),
        (JSON, "[" * 990 + "]" * 990, "[" * 990 + "1" + "]" * 990, []),
        (JSON, "[" * 5000 + "]" * 5000, "[" * 5000 + "1" + "]" * 5000, []),
        (TEXT, '{"a": 1, "b": 2}', '{"a": 1, "b": 3}', []),
        # Arrays have the subscripts of SQL.
        (TEXTS, '{a,NULL,"c d"}', '{a,b,"c d",NULL}', ['[2] null→"b"', "[4] -→null"]),
        (NUMERICS, "{{1.0,2},{3,4}}", "{{1.0,2},{3,NaN}}", ['[2][2] 4→"NaN"']),
        (NUMERICS, "[0:1][-3:-2]={{1,2},{3,4}}", "[0:1][-3:-2]={{1,5},{3,4}}", ["[0][-2] 2→5"]),
        (NUMERICS, "[0:2]={1,2,3}", "[1:3]={1,2,4}", []),
        (NUMERICS, "{1,2,3,4}", "{{1,2},{3,4}}", []),
        (199, '{"{\\"a\\": [1]}"}', '{"{\\"a\\": [2]}"}', ["[1].a[0] 1→2"]),
        (HSTORE, '"a"=>"1", "b\\"c"=>NULL', '"a"=>"2", "b\\"c"=>"NULL"', ['.a "1"→"2"', '."b\\"c" null→"NULL"']),
        (HSTORE, '"a"=>"1", b', '"a"=>"2", b', []),
        (PAIR, '(1,"a ""b""",,"")', '(2,"a ""b""",x,)', ['.f1 "1"→"2"', '.f3 null→"x"', '.f4 ""→null']),
        (PAIR, '("a ""b""","\\\\")', '("a ""c""","\\\\")', ['.f1 "a \\"b\\""→"a \\"c\\""']),
        (PAIR, "(1,2,3,é)", "(1,2,3,ö,5)", ['.f4 "é"→"ö"', '.f5 -→"5"']),
        (PAIR, "[1, 2, 3)", "[1, 2, 4)", []),
        (CUBE, "(1, 2, 3)", "(1, 2, 4)", []),
    ],
)  # fmt: skip
def test_members(oid: int, old: str, new: str, found: list[str]) -> None:
    assert members(oid, old.encode(), new.encode()) == found


def test_binary_values_have_the_same_members() -> None:
    old, new = [b"\x01" + text for text in (b'{"a": 1, "b": 1}', b'{"a": 1, "b": 2}')]
    assert members(JSONB, Binary(old), Binary(new)) == [".b 1→2"]


def test_values_that_fit_beside_each_other_or_are_very_long_have_none() -> None:
    old, new = b'{"a": 1}', b'{"a": 2}'
    assert changed_members(column(JSON), old, new, ValueStyle(16)) == []
    assert len(changed_members(column(JSON), old, new, ValueStyle(15))) == 1
    assert changed_members(column(JSON), old, new, ValueStyle(None)) == []
    long = b'{"b": "' + b"x" * 65_536 + b'", '
    assert changed_members(column(JSON), long + old[1:], long + new[1:], SHORT) == []


class Number(str):
    """A number as it was written."""

    __slots__ = ()


_KEYS = st.sampled_from(["a", "b", "a.b", 'a"', "[0]", "é", "\n", ""])
_LEAVES = st.sampled_from(["1", "1.0", "1.00", "-2e3", "null", "true", '"1"', '"a"', '"\\u0061"', "[]", "{}"])


def _nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(inner, max_size=5).map(lambda items: f"[{', '.join(items)}]")
    pairs = st.dictionaries(_KEYS, inner, max_size=4).map(dict.items)
    return lists | pairs.map(lambda items: f"{{{', '.join([f'{json.dumps(key)}: {value}' for key, value in items])}}}")


_DOCUMENTS = st.recursive(_LEAVES, _nest, max_leaves=12)


def parse(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number)


def replay(document: Any, found: list[ChangedMember]) -> Any:
    """The old document after these changes."""
    removed = []
    last: Any
    for path, old, new in found:
        *steps, last = [int(step[1:-1]) if step[0] == "[" else _key(step[1:]) for step in path]
        inside = document
        for step in steps:
            inside = inside[step]
        if new is None:
            assert inside[last] == parse(old or "")
            removed.append((inside, last))
        elif old is None and isinstance(inside, list):
            inside.insert(last, parse(new))
        else:
            assert (last not in inside) if old is None else inside[last] == parse(old)
            inside[last] = parse(new)
    for inside, last in reversed(removed):
        del inside[last]
    return document


def _key(step: str) -> str:
    return str(json.loads(step)) if step.startswith('"') else step


@given(_DOCUMENTS, _DOCUMENTS)
def test_the_old_document_with_its_changed_members_is_the_new_one(old: str, new: str) -> None:
    found = changed_members(column(JSON), old.encode(), new.encode(), SHORT)
    before, now = parse(old), parse(new)
    assert found or before == now or type(before) is not type(now) or isinstance(now, str) or len(old + new) <= 8
    assert not found or replay(before, found) == now
    assert all(member.old != member.new for member in found)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[],{}," * 8000 + "%s]",
        "[" * 31 + "1," * 30_000 + "%s" + "]" * 31,
        '{"x":' * 900 + '"%s"' + "}" * 900,
        "{" + ",".join([f'"{number}":[%s]' for number in range(5000)]) + "}",
        '"a"=>"%s"' * 6000,
        '("a""%s' + '"",' * 15_000 + ")",
        "(" + "," * 60_000 + "%s)",
    ],
)
def test_no_value_takes_long_to_compare(text: str) -> None:
    before = time.process_time()
    for oid in (JSON, HSTORE, PAIR, TEXTS):
        changed_members(column(oid), text.replace("%s", "1").encode(), text.replace("%s", "2").encode(), SHORT)
    assert time.process_time() - before < 20


# -- tables and lines ----------------------------------------------------------------------------------------------

TABLE = relation(columns=[("id", 23), ("doc", JSONB), ("t", TEXT)], identity="f", key=range(3))
FIRST = {"name": "Ada", "address": {"zip": "10117", "street": "St James's Square"}, "tags": ["math"], "gone": True}
SECOND = {"name": "Ada", "address": {"zip": "10118", "street": "St James's Square"}, "tags": ["math", "poet"]}


def shown(*cells: tuple[Any, Any], kind: str = "O", **options: Any) -> list[str]:
    """The lines of an update from the first of each pair to the second; line is as on a terminal."""
    old, new = ["1", *[before for before, _ in cells]], ["1", *[now for _, now in cells]]
    if options.get("output") == "line":
        options["measure"] = lambda width=options["width"]: width
    lines = render(TABLE, begin(xid=9), update(new, old, kind), commit(), **options).lines
    return [line.removeprefix("2000-01-01 00:00:00Z ") for line in lines if "UPDATE" in line or line.startswith("    ")]


@pytest.mark.parametrize("way", WAYS)
def test_the_members_of_a_document_that_changed(way: Way) -> None:
    pair = (json.dumps(FIRST), json.dumps(SECOND))
    assert shown(pair, ("x", "x"), output="table", way=way) == [
        '  UPDATE   public.t  id 1  doc.address.zip: "10117" → "10118"',
        '                     doc.tags[1]: "poet" (added)  doc.gone: true (removed)',
    ]
    (line,) = shown(pair, ("x", "x"), output="line", width=160, way=way)
    assert line.partition(" id=1 ")[2] == (
        """doc.address.zip="10117"→"10118" doc.tags[1]="poet" (added) doc.gone=true (removed) t='x'"""
    )
    assert "doc={" in shown(pair, ("x", "x"), output="line", width=160, max_width=None, way=way)[0]


def test_no_more_than_five_members_are_shown() -> None:
    old, new = [json.dumps({f"k{number}": number + plus for number in range(12)}) for plus in (0, 1)]
    (first, *rest) = shown((old, new), ("x", "x"), output="table")
    assert first.endswith("id 1  doc.k0: 0 → 1  doc.k1: 1 → 2  doc.k2: 2 → 3")
    assert [*map(str.strip, rest)] == ["doc.k3: 3 → 4  doc.k4: 4 → 5  and 7 more"]
    (line,) = shown((old, new), ("x", "x"), output="line", width=200)
    assert line.endswith(" id=1 doc.k0=0→1 doc.k1=1→2 doc.k2=2→3 doc.k3=3→4 doc.k4=4→5 (and 7 more) t='x'")


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_a_member_takes_one_line(width: int) -> None:
    def document(tail: str) -> str:
        leaf = {"a" * 30: "日" * 100 + tail, "b": "\u009b" * 50 + tail, "c": ["x"] * (len(tail) * 40), tail: "z" * 200}
        return json.dumps({"some": {"where": {"deep down" * 5: leaf}}}, ensure_ascii=False)

    lines = shown((document("1"), document("22")), ("x", "x"), output="table", width=width)
    assert max(map(width_of, lines)) <= width
    found = [line for line in lines if "doc" in line]
    assert len(found) == 5
    assert all(re.search(r"doc.*…?: \S+( → \S+| \(added\)(  and 39 more)?)$", line) for line in found)
    assert lines[-1].endswith("and 39 more")


@pytest.mark.parametrize("way", WAYS)
def test_a_long_key_shows_what_changed(way: Way) -> None:
    table = relation(columns=[("path", TEXT), ("n", 23)])
    row = update(("/srv/data/in/2026/file.txt", "1"), ("/srv/data/in/2025/file.txt", None))
    terminal: dict[str, Any] = {"measure": lambda: 80, "way": way}
    (line,) = render(table, begin(xid=9), row, commit(), output="line", **terminal).lines
    assert line.endswith("[path=…'5'…→…'6'…]  ?n=1")


def test_an_old_value_that_was_seen_has_its_arrow() -> None:
    table = relation(columns=[("id", 23), ("doc", JSONB)])
    old, new = [json.dumps(document) for document in (FIRST, SECOND)]
    rows = [begin(9), insert("1", old), commit(), begin(10, 0x200), update(("1", new)), commit(0x200, 0x208)]
    found = decode("-o", "table", "--old-values", "seen", "--op", "update", input=lengths(table, *rows, lsn=0x90))
    assert 'doc.address.zip: "10117" ⇢ "10118"' in found.stdout.decode()


def test_a_masked_value_has_no_members() -> None:
    pair = (json.dumps(FIRST), json.dumps(SECOND))
    for output in ("table", "line"):
        (line,) = shown(pair, ("x" * 99, "x" * 99 + "y"), output=output, width=150, redact=["t.doc", "t.t"])
        assert "gone" not in line
        assert line.count("'(redacted)'") == 4


# -- whole rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_update_that_changed_nothing_says_so(way: Way) -> None:
    for new, said in (("x", True), (UNCHANGED, True), ("y", False), (None, False)):
        for options in ({"output": "table"}, {"output": "table", "all_columns": True}, {"output": "line", "width": 80}):
            (line,) = shown(("[]", "[]"), ("x", new), way=way, **options)
            assert ("nothing changed" in line) == said
            (line,) = shown(("[]", "[]"), ("x", new), way=way, kind="K", **options)
            assert "nothing changed" not in line
    assert shown(("[]", "[]"), ("x", "x"), output="table") == ["  UPDATE   public.t  id 1  nothing changed"]
    (line,) = shown(("[]", "[]"), ("x", "x"), output="line", width=80)
    assert line.endswith(" id=1 (nothing changed) doc… +1")
    (line,) = shown(("[]", "[]"), ("x", "x"), output="line", width=80, max_width=None)
    assert line.endswith(" id=1 (nothing changed) doc=[] t='x'")
    for output in ("table", "line"):  # a column that is not shown may have changed
        assert "nothing" not in "".join(shown(("[]", "[]"), ("x", "y"), output=output, width=80, columns=("id",)))


@pytest.mark.parametrize("way", WAYS)
def test_unchanged_toast_is_named(way: Way) -> None:
    key = relation(columns=[("id", 23), ("n", 23), ("a", TEXT), ("b", TEXT)])
    rows = [update(("1", None, UNCHANGED, UNCHANGED)), update(("2", "5", UNCHANGED, "b"), ("1", None, None, None))]

    def lines(**options: Any) -> list[str]:
        found = render(key, begin(xid=9), *rows, commit(), way=way, **options).lines
        return [line.partition("public.t")[2].strip() for line in found if "UPDATE" in line]

    assert lines(output="table") == ["id=1      ?n NULL  a, b (unchanged)", "id=1 → 2  ?n 5  ?b 'b'  a (unchanged)"]
    assert lines(output="line", measure=lambda: 120) == [
        "[id=1]      ?n=NULL a=(unchanged) b=(unchanged)",
        "[id=1→2]    ?n=5 ?b='b' a=(unchanged)",
    ]
    assert lines(output="table", changed=True) == ["id=1      ?n NULL", "id=1 → 2  ?n 5  ?b 'b'"]
    assert lines(output="line") == ["[id=1]      ?n=NULL", "[id=1→2]    ?n=5 ?b='b'"]


@pytest.mark.parametrize("form", ["text", "binary"])
@every_version()
def test_on_a_server(database: Database, form: str) -> None:
    """Each statement, and what a table shows of it."""
    if form == "binary" and database.version < 14:
        pytest.skip("pgoutput has the option binary since PostgreSQL 14")
    statements = {
        "doc = jsonb_set(doc, '{address,zip}', '\"10118\"')": 'doc.address.zip: "10117" → "10118"',
        "raw = replace(raw::text, '1.0', '1.00')::json": "raw.n: 1.0 → 1.00",
        "tags = array_append(tags, 'poet')": 'tags[7]: "poet" (added)',
        "tags[0] = 'zero'": "tags {",
        "pair.b = 'two, three'": 'pair.f2: "two" → "two, three"',
        "t = t || 'NEW'": "t …'aaaaaaaaaa' → …'aaaaaaaaaaNEW'",
        "t = t": "nothing changed",
        "big = big": "nothing changed  big (unchanged)",
    }
    database.execute(
        "CREATE TYPE two AS (a text, b text)",
        "CREATE TABLE long (id int, doc jsonb, raw json, tags text[], pair two, t text, big text)",
        "ALTER TABLE long REPLICA IDENTITY FULL, ALTER big SET STORAGE EXTERNAL",
        "CREATE PUBLICATION pub FOR TABLE long",
        'INSERT INTO long VALUES (1, \'{"address": {"zip": "10117", "street": "12 St James Square"}}\','
        ' \'{"n": 1.0, "text": "twenty letters and more"}\', \'{one,two,three,four,five,six}\','
        " ('twenty letters and more', 'two'), repeat('a', 75), repeat('x', 9000))",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        *[f"UPDATE long SET {statement}" for statement in statements],
    )
    options = {"binary": "true"} if form == "binary" else {}
    messages = pgoutput(database, "s", **options)
    lines = [line for line in write("table", messages, width=200).written.decode().splitlines() if "UPDATE" in line]
    assert len(lines) == len(statements)
    for line, expected in zip(lines, statements.values(), strict=True):
        assert line.partition("id 1  ")[2].startswith(expected)
