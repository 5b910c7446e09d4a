"""The parser of --where: conditions, and where their errors are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.changes import condition
from pgtail.changes.condition import And, Condition, Not, Operand, Or
from pgtail.changes.filters import condition_of
from pgtail.changes.redaction import Redaction
from pgtail.errors import OptionError
from tests.support.run import command

SMALL = Path(__file__).parents[1] / "captures/pg16/Z_small/p1.walsender.bin"


def written(found: Condition | Operand) -> str:
    """A condition with all its brackets."""
    match found:
        case Operand():
            kind = "property " if found.is_property else ""
            return f"{kind}{found.row}{'.' * bool(found.row)}{found.name}" + "".join(
                f"->{step!r}" for step in found.path
            )
        case Not(part):
            return f"not({written(part)})"
        case And(parts):
            return f"and({', '.join(map(written, parts))})"
        case Or(parts):
            return f"or({', '.join(map(written, parts))})"
        case _:
            right = [*map(repr, found.values), *([] if found.other is None else [written(found.other)])]
            return " ".join([written(found.operand), found.op, *right])


@pytest.mark.parametrize(
    ("where", "meaning"),
    [
        ("a = 1 or b = 2 and c = 3", "or(a = '1', and(b = '2', c = '3'))"),
        ("(a = 1 or b = 2) and c = 3", "and(or(a = '1', b = '2'), c = '3')"),
        ("not a = 1 and b = 2", "and(not(a = '1'), b = '2')"),
        ("not (a = 1 and b = 2)", "not(and(a = '1', b = '2'))"),
        ("a=1 OR b=2 oR c=3", "or(a = '1', b = '2', c = '3')"),
        ("a <= 1 or(b = 2)", "or(a <= '1', b = '2')"),
        ("b='x'or a=1", "or(b = 'x', a = '1')"),
        ("customer = Bob or id = 1", "or(customer = 'Bob', id = '1')"),
        ("a = one and b like o%", "and(a = 'one', b like 'o%')"),
        (
            "a = one or b not ilike O_e and c between'1'and'2'",
            "or(a = 'one', and(not(b ilike 'O_e'), and(c >= '1', c <= '2')))",
        ),
        ("(status = paid)", "status = 'paid'"),
        ("not status = paid", "not(status = 'paid')"),
        ("a between 1 and 2 and b = 3", "and(and(a >= '1', a <= '2'), b = '3')"),
        ("a not between 1 and '2'", "not(and(a >= '1', a <= '2'))"),
        ("a in (1, 'b', c)", "a in '1' 'b' 'c'"),
        ("a not in('x')", "not(a in 'x')"),
        ("a like 'x%' and b not ilike '%y'", "and(a like 'x%', not(b ilike '%y'))"),
        ("a ~ '^x' and b !~* y", "and(a ~ '^x', not(b ~* 'y'))"),
        ("a is null or b is not null", "or(a is null, not(b is null))"),
        ("a is true and b is not false", "and(not(a distinct 'true'), b distinct 'false')"),
        ("a is not unknown", "not(a is null)"),
        ("a is distinct from 'x' and b is not distinct from old.b", "and(a distinct 'x', not(b distinct old.b))"),
        ("old.status = 'new' and new.status <> old.status", "and(old.status = 'new', new.status <> old.status)"),
        ('old."my col" = 1', "old.my col = '1'"),
        ('changed( status ) and CHANGED("a b")', "and(new.status changed old.status, new.a b changed old.a b)"),
        ("doc->>'kind' = 'x'", "doc->'kind' = 'x'"),
        ("old.doc -> 'it''s' -> 0 ->> -1 is null", 'old.doc->"it\'s"->0->-1 is null'),
        ("op = 'delete' and \"op\" = x", "and(property op = 'delete', op = 'x')"),
        (
            "xid in (7, 8) and commit_ts > '2026-11-22T10:00'",
            "and(property xid in '7' '8', property commit_ts > '2026-11-22T10:00')",
        ),
        ("schema = public and table = orders", "and(property schema = 'public', property table = 'orders')"),
        ("not = 5", "not = '5'"),
        ("my.col != x", "my.col <> 'x'"),
        ("a = 'x' \n\tand b = 2", "and(a = 'x', b = '2')"),
        ("op = INSERT or op in (Update, 'DELETE')", "or(property op = 'insert', property op in 'update' 'delete')"),
    ],
)
def test_the_language(where: str, meaning: str) -> None:
    assert written(condition_of(where)) == meaning


@pytest.mark.parametrize(
    ("where", "place", "words"),
    [
        ("b ~ 'x' y", "y", "the quoted value ends before this"),
        ("b != ''x", "x", "the quoted value ends before this"),
        ("b = 'x'::text", "::text", "the quoted value ends before this"),
        ("b = 'it's'", "s'", "double a quote inside a quoted value"),
        ("b = 'it''s", "'it", "this quote is not closed"),
        ("b = '", "'", "this quote is not closed"),
        ('"a or b" is null;', ";", "the condition ends before this"),
        ("(a = 1", "(", "this bracket is not closed"),
        ("(a = 1))", ")", "the condition ends before this: no bracket is open"),
        ("a = 'x' and", "", "expected the name of a column, NOT, changed(COLUMN) or a bracket"),
        ("a is null or ", "", "expected the name of a column"),
        ("a = x && b like o%", "&&", "write AND, not &&"),
        (
            "a = 1 and op = insrt",
            "op",
            "op is one of insert, update, delete, snapshot, truncate, message, ddl; a column of",
        ),
        ("op in (insert, 'commit_prepared')", "op", "op is one of insert"),
        ("a = or b = 1", "or", "expected a value"),
        (
            "b = hello world",
            "world",
            "ends before this; a value of several words stands in single quotes",
        ),
        ("b ~ (this|that)", "(", "expected a value; one with blanks, commas or brackets stands in single quotes"),
        ("b = this and that", "", "expected an operator"),
        ("b = x)", ")", "no bracket is open"),
        ("a = 1 or 'b c' = b", "'b c'", "expected the name of a column"),
        ("a = 1 or coalesce(b, c) = 2", "coalesce", "there is no function of this name, only changed(COLUMN)"),
        ("changed(a, b)", "(a", "expected changed(COLUMN)"),
        ("changed(old.a)", "(old", "expected changed(COLUMN)"),
        ("a = 1 or b @> '{}'", "@>", "expected an operator"),
        ("a == 1", "==", "there is no operator ==, only = != <> < <= > >= ~ !~"),
        ("a => 1", "=>", "there is no operator =>"),
        ("b ~~ 'x%'", "~~", "there is no operator ~~"),
        ("active", "", "expected an operator"),
        ("active and a = 1", "and", "expected an operator"),
        ("a not 5", "5", "expected LIKE, ILIKE, IN or BETWEEN after NOT"),
        ("a is nul", "nul", "expected [NOT] NULL, TRUE, FALSE"),
        ("a in ()", ")", "expected a value"),
        ("a in (1 2)", "(1", "expected a comma or the closing bracket"),
        ("a between 1", "", "expected AND and the upper bound"),
        ("a like 'x\\'", "'x", "the pattern ends with a backslash that escapes nothing"),
        ("a ~ '('", "'('", "regular expression"),
        ("a = null", "null", "nothing equals NULL; use IS NULL, or 'null' for this text"),
        ("a in (1, NULL)", "NULL", "nothing equals NULL"),
        ('a = "b"', '"b"', "a value stands in single quotes; a column after an operator is old.NAME or new.NAME"),
        ("doc->'a' = 1", "=", "the last arrow must be ->>"),
        ("doc->>'a'->'b' = 1", "->'b'", "only the last arrow is ->>"),
        ("doc->>a = 1", "a", "expected a key in single quotes or an index"),
        ("op->>'a' = 1", "op", 'op is no column here; the column of this name is "op"'),
        ("(" * 101 + "a = 1", "(", "more than 100 levels"),
        # Where a second condition was meant.
        ("customer = Edsger && id = 4", "&&", "the condition ends before this; write AND, not &&"),
        ("customer=Edsger&&id=4", "&&", "write AND, not &&; put a value with && in single quotes"),
        ("customer = Edsger || not (id = 4)", "||", "write OR, not ||"),
        ("total > 5&& id = 3", "&&", "write AND, not &&"),
        ("a between 1 and 5||b = 2", "||", "write OR, not ||"),
        ("a in (1, 2) && b = 3", "&&", "the condition ends before this; write AND, not &&"),
        ("changed(a) || b = 3", "||", "the condition ends before this; write OR, not ||"),
        ("a = 'x' && b = 3", "&&", "the quoted value ends before this; write AND, not &&"),
        ("note ~ ^a && b = 3", "&&", "write AND, not &&"),
        ("a = x==y", "==", "write =, not ==; put a value with == in single quotes"),
        ("a = x b = 1", "b = 1", "the condition ends before this"),
        ("a = x-and=1", "=1", "put a value with = in single quotes"),
        ("a = 4>3", ">", "put a value with > in single quotes"),
        ("b ~ a=1", "=1", "put a value with = in single quotes"),
        ("a = = x", "= x", "put a value with = in single quotes"),
        ("a > =5", "=5", "put a value with = in single quotes"),
        ("a = 4 or", "", "expected the name of a column"),
        ("b =", "", "no text is ''"),
    ],
)
def test_error_points_at_its_place(where: str, place: str, words: str) -> None:
    with pytest.raises(OptionError) as raised:
        condition_of(where)
    said, shown, caret = str(raised.value).split("\n")
    assert said.startswith("--where: ")
    assert words in said
    assert shown == where
    assert where[len(caret) - 1 :].startswith(place)
    assert caret.strip() == "^"


def test_caret_is_correct_below_wide_characters() -> None:
    with pytest.raises(OptionError) as raised:
        condition_of("名 = '値e\u0301' x")
    assert str(raised.value).split("\n")[2] == "           ^"


def test_command_shows_the_caret_below_the_error() -> None:
    ran = command("decode", "--where", "v = 'one' or id == 1", SMALL)
    assert (ran.status, ran.stdout) == (2, b"")
    assert ran.stderr.endswith("\n        v = 'one' or id == 1\n                        ^\n")


@pytest.mark.parametrize("where", ["b = 'x' \n oder a = 1", "b = 'x'\u3000oder a = 1", "b = 'x'\x1b[2J"])
def test_unprintable_condition_has_no_caret(where: str) -> None:
    with pytest.raises(OptionError, match=r"^--where, character \d+: the quoted value ends before this[^\n\x1b]*$"):
        condition_of(where)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("b = 'x or'", "x or"),
        ("b = ~/x", "~/x"),
        ("b = '&& a = 1'", "&& a = 1"),
        ("b ~ ^a|b$", "^a|b$"),
        ("b = 'rock and roll like that'", "rock and roll like that"),
        ("b = new.example.com", "new.example.com"),
        ("b = 'x or a = 1'", "x or a = 1"),
        ("b = ' x '  ", " x "),
        ("b = ''", ""),
        ("b = ''''", "'"),
        ("a =-1", "-1"),
        ("b ~^x", "^x"),
    ],
)
def test_value_ends_at_its_quote_or_blank(where: str, value: str) -> None:
    found = condition_of(where)
    assert isinstance(found, condition.Test)
    assert found.values == (value,)


def test_wrong_condition_is_not_quoted_if_columns_are_masked() -> None:
    redaction = Redaction(["secret"])
    for where in ("b = x y or secret = 5", "b = '1' x secret = 5", "secret 5", "secret = '5", "secret ~ '5('"):
        with pytest.raises(OptionError) as raised:
            condition_of(where, redaction)
        assert "secret" not in str(raised.value)
        assert "5" not in str(raised.value)


def test_messages_quote_no_value_of_a_masked_column() -> None:
    shown = [
        test.shown
        for test in condition.tests_of(condition_of("a = 1 and (secret = 5 or b is null)", Redaction(["secret"])))
    ]
    assert shown == ["a = 1", "secret = ...", "b is null"]
