"""The parser of --where: conditions, and where their errors are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.changes.filters import condition_of
from pgtail.changes.redaction import Redaction
from pgtail.changes.where_parser import parse
from pgtail.errors import OptionError
from tests.support.run import command

SMALL = Path(__file__).parents[1] / "captures/pg16/Z_small/p1.walsender.bin"


@pytest.mark.parametrize(
    ("where", "place", "words"),
    [
        ("b = 'x' or a = 1", "or", "the quoted value ends before this; --where takes one condition, without OR"),
        ("b='x'or a=1", "or", "the quoted value ends before this"),
        ("b = 'x' AND a = 1", "AND", "ends before this; if both must be true, give each its own --where"),
        ("b ~ 'x' y", "y", "the quoted value ends before this"),
        ("b != ''x", "x", "the quoted value ends before this"),
        ("b = 'x'::text", "::text", "the quoted value ends before this"),
        ("b = 'it's'", "s'", "double a quote inside a quoted value"),
        ("b = 'it''s", "'it", "this quote is not closed"),
        ("b = '", "'", "this quote is not closed"),
        ("b is null and a = 1", "and", "the condition ends before this"),
        ("b IS NOT  NULL or a = 1", "or", "the condition ends before this"),
        ('"a or b" is null;', ";", "the condition ends before this"),
        ("b = x or a = 1", "or", "'or' begins a second condition; if it is part of the value: b = 'x or a = 1'"),
        ("b ~ it's and a>1", "and", "if it is part of the value: b ~ 'it''s and a>1'"),
        ("a = 1 AND b is not null", "AND", "give each its own --where"),
        ("a <= 1 or(b = 2)", "or(", "'or' begins"),
        ("(a = 1) or (a = 2)", "or", "'or' begins"),
        ("a = 1 and not (b = 2)", "and", "'and' begins"),
        ('a = 1 or "b c" = 2', "or", "'or' begins"),
        ("a = 1 or 'b c' = b", "or", "'or' begins"),
        ("a = 1 or coalesce(b, c) = 2", "or", "'or' begins"),
        ("a = 1 or b like 'x%'", "or", "'or' begins"),
        ("a = 1 or b not in (1)", "or", "'or' begins"),
        ("a = 1 or b between 1 and 2", "or", "'or' begins"),
        ("a = 1 or b @> '{}'", "or", "'or' begins"),
        ("a = or b = 1", "or", "'or' begins"),
        ("a = x and y or b = 1", "or", "'or' begins"),
        ("a == 1", "==", "there is no operator ==, only = != <> < <= > >= ~ !~"),
        ("a => 1", "=>", "there is no operator =>"),
        ("b ~~ 'x%'", "~~", "there is no operator ~~"),
        ("b !~* x", "!~*", "there is no operator !~*"),
    ],
)
def test_text_after_a_condition_is_an_error(where: str, place: str, words: str) -> None:
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
    ran = command("decode", "--where", "v = 'one' or id = 1", SMALL)
    assert (ran.status, ran.stdout) == (2, b"")
    assert ran.stderr.endswith("\n        v = 'one' or id = 1\n                  ^\n")


@pytest.mark.parametrize("where", ["b = 'x' \n or a = 1", "b = 'x'\u3000or a = 1", "b = 'x'\x1b[2J"])
def test_unprintable_condition_has_no_caret(where: str) -> None:
    with pytest.raises(OptionError, match=r"^--where, character \d+: the quoted value ends before this[^\n\x1b]*$"):
        condition_of(where)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("b = rock and roll", "rock and roll"),
        ("b = sand = or", "sand = or"),
        ("b = x or", "x or"),
        ("b = to be or not to be", "to be or not to be"),
        ("b = 5 o'clock and 'twas", "5 o'clock and 'twas"),
        ("b = x-and y=1", "x-and y=1"),
        ("b ~ (this|that) and (more|less)", "(this|that) and (more|less)"),
        ("b = salt and pepper in soup", "salt and pepper in soup"),
        ("b = 'x or a = 1'", "x or a = 1"),
        ("b = ' x '  ", " x "),
        ("b =  x y  ", "x y"),
        ('b = "x"', '"x"'),
        ("b = = x", "= x"),
        ("b = ''", ""),
        ("b =", ""),
        ("b = ''''", "'"),
        ("a =-1", "-1"),
        ("b ~^x", "^x"),
    ],
)
def test_value_ends_at_its_quote_or_at_the_end(where: str, value: str) -> None:
    assert parse(where).value == value


def test_wrong_condition_is_not_quoted_if_columns_are_masked() -> None:
    redaction = Redaction(["secret"])
    for where in ("b = 1 or secret = 5", "b = '1' or secret = 5", "secret 5", "secret = '5"):
        with pytest.raises(OptionError) as raised:
            condition_of(where, redaction)
        assert "secret" not in str(raised.value)
        assert "5" not in str(raised.value)
