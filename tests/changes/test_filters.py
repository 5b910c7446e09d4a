"""Which changes pass a filter."""

from __future__ import annotations

from typing import Any

import pytest

from pgtail.changes.events import (
    Change,
    LogicalMessage,
    Outcome,
    RowChange,
    TableTruncate,
    Transaction,
    not_in_identity,
)
from pgtail.changes.filters import Filter, condition_of
from pgtail.changes.relations import Relation, Relations
from pgtail.commands.stream.expectation import Expectation
from pgtail.errors import OptionError
from pgtail.pgoutput.cells import UNCHANGED, Binary, Cell
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.schema import RelationColumn
from pgtail.values import Types
from tests.support import encode
from tests.support.render import WAYS, Way, render
from tests.support.zones import zone

BOOL, INT8, INT4, TEXT, NUMERIC, TIMESTAMP, BYTEA = 16, 20, 23, 25, 1700, 1114, 17
TRANSACTION = Transaction(7)
_relations = Relations(Types())


def table(
    schema: str = "public", name: str = "t", types: tuple[int, ...] = (INT4, TEXT), identity: str = "d"
) -> Relation:
    """A table with columns a (the key), b, c, ..."""
    columns = [RelationColumn(int(i == 0), "abcdefgh"[i], oid, -1) for i, oid in enumerate(types)]
    oid = 1000 + len(_relations.versions)
    return _relations.see(RelationMessage(None, oid, schema, name, identity, tuple(columns)))[1]


def insert(relation: Relation, *cells: Cell) -> RowChange:
    return RowChange("insert", TRANSACTION, 1, None, relation, "", None, cells)


def delete(relation: Relation, kind: str, *cells: Cell) -> RowChange:
    return RowChange("delete", TRANSACTION, 1, None, relation, kind, cells, None)


def truncate(relation: Relation) -> TableTruncate:
    return TableTruncate(TRANSACTION, 1, None, relation, cascade=False, restart_identity=False)


MESSAGE = LogicalMessage(TRANSACTION, None, "p", b"", transactional=True)
ALONE = LogicalMessage(None, None, "p", b"", transactional=False)
OUTCOME = Outcome("commit_prepared", 9, "g", 1, 2, 3)


@pytest.mark.parametrize(
    ("options", "schema", "name", "passes"),
    [
        ({}, "public", "t", True),
        ({"tables": ["t"]}, "public", "t", True),
        ({"tables": ["t"]}, "other", "t", True),
        ({"tables": ["t"]}, "public", "tt", False),
        ({"tables": ["T"]}, "public", "t", False),
        ({"tables": ["t*"]}, "public", "tt", True),
        ({"tables": ["other.t"]}, "public", "t", False),
        ({"tables": ["public.*"]}, "public", "t", True),
        ({"tables": ["pub*.t?"]}, "public", "t1", True),
        ({"tables": ["[ab]"]}, "public", "b", True),
        ({"tables": ["x", "t"]}, "public", "t", True),
        ({"tables": ["my.table"]}, "public", "my.table", False),
        ({"tables": ["*.my.table"]}, "public", "my.table", True),
        ({"exclude": ["t"]}, "public", "t", False),
        ({"exclude": ["public.*"]}, "other", "t", True),
        ({"tables": ["t"], "exclude": ["public.t"]}, "public", "t", False),
        ({"tables": ["t"], "exclude": ["public.t"]}, "other", "t", True),
    ],
)
def test_tables(options: dict[str, Any], schema: str, name: str, passes: bool) -> None:
    relation = table(schema, name)
    for change in (insert(relation, b"1", b"x"), truncate(relation)):
        assert Filter(**options).passes(change) is passes


def test_table_pattern_never_matches_an_unknown_name() -> None:
    unseen = _relations.get(99_999)
    assert not Filter(tables=["*"]).passes(insert(unseen, b"1"))
    assert Filter(exclude=["*"]).passes(insert(unseen, b"1"))


@pytest.mark.parametrize("op", ["insert", "delete", "truncate", "message", "commit_prepared", "rollback_prepared"])
def test_operations(op: str) -> None:
    filter_ = Filter(ops=[op])
    relation = table()
    changes: list[Change] = [
        insert(relation, b"1", b"x"),
        delete(relation, "K", b"1", None),
        truncate(relation),
        MESSAGE,
        ALONE,
    ]
    assert {change.op for change in changes if filter_.passes(change)} == {op} & {change.op for change in changes}
    assert filter_.outcome_passes(OUTCOME) is (op == "commit_prepared")


def test_transactions() -> None:
    change = insert(table(), b"1", b"x")
    assert Filter(xids=[7]).passes(change)
    assert Filter(xids=[6, 7]).passes(MESSAGE)
    assert not Filter(xids=[8]).passes(change)
    assert not Filter(xids=[7]).passes(ALONE)
    assert Filter(xids=[9]).outcome_passes(OUTCOME)
    assert not Filter(xids=[7]).outcome_passes(OUTCOME)


def test_events_without_a_table_pass_no_table_filter_and_no_condition() -> None:
    for filter_ in (Filter(tables=["*"]), Filter(where=["a = 1"])):
        assert not filter_.passes(MESSAGE)
        assert not filter_.outcome_passes(OUTCOME)
    assert Filter(exclude=["*"]).passes(MESSAGE)
    assert Filter(exclude=["*"]).outcome_passes(OUTCOME)


def test_a_filter_knows_whether_it_filters() -> None:
    assert not Filter().active
    assert Filter(where=["a = 1"]).active
    assert Filter(xids=[1]).active


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("a = 10", True),
        ("a=10", True),
        ("a = 10.0", True),
        ("a = 1e1", True),
        ("a = '10'", True),
        ("a IS NOT NULL", True),
        ("b = 'it''s'", True),
        ("b ~ t.s", True),
        ("c = 12.50", True),
        ("c = 1.25e1", True),
        ("c = +12.5", True),
        ("c < 1e300", True),
        ("c > -1e-300", True),
        ("d = true", True),
        ("d = t", True),
        ("d = on", True),
        ("f = 9007199254740993", True),
        ("f = 9007199254740992", False),
        ("nosuch = 1", False),
    ],
)
def test_conditions(where: str, passes: bool) -> None:
    relation = table(types=(INT4, TEXT, NUMERIC, BOOL, TEXT, INT8, TIMESTAMP))
    row = insert(relation, b"10", b"it's", b"12.50", b"t", None, b"9007199254740993", b"2024-01-02 03:04:05")
    filter_ = Filter(where=[where])
    assert filter_.passes(row) is passes
    assert filter_.not_sent == 0
    assert [name for name, _ in filter_.columns_not_seen] == ["nosuch"] * where.startswith("nosuch")


def test_all_conditions_must_hold() -> None:
    row = insert(table(), b"1", b"x")
    assert Filter(where=["a = 1", "b = x"]).passes(row)
    assert not Filter(where=["a = 1", "b = y"]).passes(row)


def test_truncates_pass_no_condition_on_a_column() -> None:
    for where in ("a = 1", "a is null", "not (a = 1)", "a = 1 and op = 'truncate'"):
        assert not Filter(where=[where]).passes(truncate(table()))


def update(relation: Relation, kind: str, old: tuple[Cell, ...] | None, new: tuple[Cell, ...]) -> RowChange:
    return RowChange("update", TRANSACTION, 1, None, relation, kind, old, new)


FULL = table(identity="f")
CHANGES: dict[str, Change] = {
    "insert": insert(table(), b"1", b"x"),
    "update": update(table(), "", None, (b"1", b"x")),
    "toast": update(table(), "", None, (b"1", UNCHANGED)),
    "key": update(table(), "K", (b"1", None), (b"2", b"x")),
    "full": update(FULL, "O", (b"1", b"w"), (b"1", b"x")),
    "same": update(FULL, "O", (b"1", b"x"), (b"1", b"x")),
    "null": update(FULL, "O", (b"1", None), (b"1", b"x")),
    "full toast": update(FULL, "O", (b"1", b"x"), (b"1", UNCHANGED)),
    "delete": delete(table(), "K", b"1", None),
    "full delete": delete(FULL, "O", b"1", b"x"),
    "truncate": truncate(table()),
    "message": MESSAGE,
}


@pytest.mark.parametrize(
    ("where", "passing", "not_sent"),
    [
        ("old.b = 'x'", ["same", "full toast", "full delete"], ["update", "toast", "key", "delete"]),
        ("old.b is null", ["insert", "null"], ["update", "toast", "key", "delete"]),
        ("old.a = 1", ["update", "toast", "key", "full", "same", "null", "full toast", "delete", "full delete"], []),
        ("old.a <> new.a", ["key"], []),
        ("new.a is null", ["delete", "full delete"], []),
        (
            "b = 'x'",
            ["insert", "update", "key", "full", "same", "null", "full toast", "full delete"],
            ["toast", "delete"],
        ),
        ("a = 1", ["insert", "update", "toast", "full", "same", "null", "full toast", "delete", "full delete"], []),
        (
            "b is null or b is not null or b <> 'x'",
            ["insert", "update", "key", "full", "same", "null", "full toast", "full delete"],
            ["toast", "delete"],
        ),
        ("changed(b)", ["full", "null"], ["update", "key"]),
        ("not changed(b)", ["insert", "toast", "same", "full toast", "delete", "full delete"], ["update", "key"]),
        ("changed(a)", ["key"], []),
        ("changed(nosuch) or not changed(nosuch)", [], []),
        ("b is distinct from old.b", ["insert", "full", "null"], ["update", "toast", "key", "delete"]),
        ("op = 'delete'", ["delete", "full delete"], []),
        ("op in (truncate, message)", ["truncate", "message"], []),
        ("table = t and op <> 'update' and schema like 'pub%'", ["insert", "delete", "full delete", "truncate"], []),
        ("table is null", ["message"], []),
        ("xid = 7 and not op ~ 'e'", [], []),
        ("xid between 6 and 7 and op ~ ^ins", ["insert"], []),
        ("xid <> 7 or commit_ts is not null", [], []),
        ("op = 'truncate' or b = 'x' and a = 2", ["key", "truncate"], []),
    ],
)
def test_rows_of_a_change_and_its_properties(where: str, passing: list[str], not_sent: list[str]) -> None:
    found, missing = [], []
    for name, change in CHANGES.items():
        filter_ = Filter(where=[where])
        found += [name] * filter_.passes(change)
        missing += [name] * filter_.not_sent
    assert (found, missing) == (passing, not_sent)


def test_the_time_of_the_commit() -> None:
    relation = table()
    moment = 848_656_800_000_000  # 2026-11-22T10:00:00Z
    change = RowChange("insert", Transaction(7, commit_ts=moment), 1, None, relation, "", None, (b"1", b"x"))
    for where in ("commit_ts = '2026-11-22 10:00Z'", "commit_ts >= 2026-11-22T12:00+02", "commit_ts < 2026-11-23"):
        assert Filter(where=[where]).passes(change)
    for where in ("commit_ts > '2026-11-22 10:00:00'", "commit_ts is null", "commit_ts = 2026-11-22"):
        assert not Filter(where=[where]).passes(change)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("a = five", "--where 'a = five': public.t.a is a number, 'five' is none"),
        ("nosuch = 1 or a in (1, x)", "'a in .1, x.': public.t.a is a number, 'x' is none"),
        ("b = 1 and c = maybe", "c is a boolean, 'maybe' is none"),
        ("d > tomorrow", "d is a timestamp without time zone, 'tomorrow' is none"),
        ("d > '2026-01-01 10:00+02'", "d is a timestamp without time zone, .* is none"),
        ("d > 9999999-01-01", "d is a timestamp without time zone, '9999999-01-01' is none"),
        ("e > 9999999-01-01", "e is a date, '9999999-01-01' is none"),
        ("e = '2026-02-30'", "e is a date, '2026-02-30' is none"),
        ("e = '2026-01-01 10:00'", "e is a date, '2026-01-01 10:00' is none"),
        ("f = 'x'", "f is a uuid, 'x' is none"),
        ("g = 12", "g is a log position, '12' is none"),
        ("xid = x", "xid is a number, 'x' is none"),
        ("commit_ts > x", "commit_ts is a timestamp with time zone, 'x' is none"),
        ("a = new.b", "public.t.a is a number, public.t.b is text"),
        ("b->>'k' = 'x'", "b is text; -> and ->> need json or jsonb"),
    ],
)
def test_what_does_not_fit_a_column(where: str, words: str) -> None:
    relation = table(types=(INT4, TEXT, BOOL, TIMESTAMP, 1082, 2950, 3220))
    filter_ = Filter(where=[where])
    with pytest.raises(OptionError, match=words):
        filter_.passes(insert(relation, b"1", b"x", b"t", None, None, None, None))
    assert [name for name, _ in filter_.columns_not_seen] == ["nosuch"] * where.startswith("nosuch")


@pytest.mark.parametrize("document", [b'{"n": 1', b'{"n": NaN}', b"[Infinity]"])
def test_a_document_that_is_none_cannot_be_tested(document: bytes) -> None:
    filter_ = Filter(where=["a->>'n' is null"])
    assert not filter_.passes(insert(table(types=(3802,)), document))
    assert filter_.not_sent == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("b = '\udcff'", []),
        ("b <> '\udcff'", [1, 2, 3]),
        ("c > '2025-12-31'", [1, 3]),
        ("c < '0001-01-01'", [2]),
        ("c < '0050-01-01 BC'", []),
        ("c > '0050-01-01 BC'", [1, 2, 3]),
        ("c = 'infinity'", [1]),
        ("c < infinity", [2, 3]),
        ("a < 2e0", [1]),
        ("xid = 7 and a = 1", [1]),
        ("xid = 8", []),
    ],
)
def test_conditions_that_the_scanner_tests_or_leaves_to_python(way: Way, where: str, found: list[int]) -> None:
    rows = [("1", "x", "infinity"), ("2", "y", "0044-03-15 12:00:00 BC"), ("3", "z", "2026-01-01 00:00:00")]
    described = encode.relation(columns=[("a", INT4), ("b", TEXT), ("c", TIMESTAMP)])
    messages = [described, encode.begin(), *[encode.insert(*row) for row in rows], encode.commit()]
    shown = render(*messages, way=way, filters={"where": [where]}).objects
    assert [change["new"]["a"] for change in shown] == found


def test_what_an_expectation_counts() -> None:
    """Changes that pass, and which others came; not what is open yet or was rolled back."""
    expectation = Expectation(2, tables=["t"], where=["a = 1"])
    described = [encode.relation(columns=[("a", INT4)]), encode.relation(oid=101, name="u", columns=[("a", INT4)])]
    rows = [encode.insert("1"), encode.insert("2"), encode.insert("1", oid=101), encode.message(b"x")]
    render(*described, encode.begin(), *rows, encode.commit(), filter_=expectation)
    assert (expectation.came, expectation.met) == (1, False)
    assert expectation.instead == {("insert", "public.t"): 1, ("insert", "public.u"): 1, ("message", ""): 1}
    assert len(expectation.last_instead) == 1
    change = insert(table(name="t"), b"1", None)
    change.aborted = True
    assert expectation.passes(change)
    assert expectation.came == 1


@pytest.mark.parametrize(("ops", "came"), [(["commit_prepared"], 1), (["insert"], 0)])
def test_an_expectation_counts_the_end_of_a_prepared_transaction(ops: list[str], came: int) -> None:
    expectation = Expectation(1, ops=ops)
    render(encode.begin_prepare(8, "g"), encode.prepare(8, "g"), encode.commit_prepared(8, "g"), filter_=expectation)
    assert (expectation.came, sum(expectation.instead.values())) == (came, 1 - came)


def test_the_columns_of_an_old_key_that_say_nothing() -> None:
    keyed, full, unknown = table(), table(identity="f"), _relations.get(99_999)
    assert not_in_identity(delete(keyed, "K", b"1", None)) == [1]
    assert not_in_identity(delete(full, "O", b"1", None)) == []
    assert not_in_identity(delete(unknown, "O", None, b"x")) == [0]
    assert not_in_identity(insert(keyed, b"1", None)) == []


def test_the_columns_that_no_table_had() -> None:
    filter_ = Filter(where=["a = 1 or old.x = 2 and changed(y)", 'op = insert or "op" = y'])
    filter_.passes(insert(table(), b"1", b"x"))
    assert [(name, test.shown) for name, test in filter_.columns_not_seen] == [
        ("x", "old.x = 2"),
        ("y", "changed(y)"),
        ("op", '"op" = y'),
    ]


def test_a_row_that_is_too_short_has_no_value() -> None:
    filter_ = Filter(where=["b = x"])
    assert not filter_.passes(insert(table(), b"1"))
    assert filter_.not_sent == 1


def test_invalid_number_in_the_data_does_not_match() -> None:
    filter_ = Filter(where=["a = 5"])
    assert not filter_.passes(insert(table(), b"five", b"x"))
    assert not filter_.passes(insert(table(), Binary(b"12345"), b"x"))


def test_an_order_or_a_zone_that_is_not_what_people_expect_is_noted() -> None:
    columns = (RelationColumn(0, "span", 1186, -1), RelationColumn(0, "at", 1184, -1), RelationColumn(0, "v", TEXT, -1))
    relation = _relations.see(RelationMessage(None, 78, "public", "t", "d", columns))[1]

    def notes(where: str) -> list[str]:
        filter_ = Filter(where=[where])
        filter_.bound(relation, "insert")
        return list(filter_.notes)

    with zone("Europe/Berlin"):
        assert notes("span between '1 day' and '2 days'") == [
            "public.t.span is interval, which --where orders by its text, unlike PostgreSQL"
        ]
        assert notes("v > 5") == ["public.t.v is text, which --where orders by its text, not as a number"]
        assert notes("at = '2026-11-26' or commit_ts < '2026-11-26 10:00+01'") == [
            "--where at = '2026-11-26': a time without a zone is UTC there"
        ]
        assert notes("span = '1 day' and v > '5' and v = 5 and at ~ '2026' and at < infinity and at is not null") == []
    with zone("UTC"):
        assert notes("at = '2026-11-26'") == []


@pytest.mark.parametrize("where", ["", "a", "= 5", "a is nul", "a b = 5", '"" = 5', "a ~ ("])
def test_invalid_conditions_are_refused(where: str) -> None:
    with pytest.raises(OptionError, match="--where"):
        condition_of(where)


def test_a_property_that_has_the_name_of_a_column() -> None:
    columns = (RelationColumn(1, "op", INT4, -1), RelationColumn(0, "xid", TEXT, -1))
    relation = _relations.see(RelationMessage(None, 77, "public", "t", "d", columns))[1]
    filter_ = Filter(where=["op = insert", '"op" = 1', "old.xid is null"])
    assert filter_.passes(insert(relation, b"1", b"x"))
    assert filter_.shadowed == {"op": "public.t"}
    assert filter_.columns_not_seen == []
