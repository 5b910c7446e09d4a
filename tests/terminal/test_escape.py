"""escape(): control, reordering and invisible characters are escaped, visible ones are kept."""

from __future__ import annotations

import json
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.terminal.escape import escape, escape_json, hides, shell_word

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Every code point, lone surrogates too."""

HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("Ada Lovelace", "Ada Lovelace"),
        ("日本語 ok, événements, ⅷ ½", "日本語 ok, événements, ⅷ ½"),
        ("[bold red]not markup[/]", "[bold red]not markup[/]"),
        ("e\u0301", "e\u0301"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\u009b31m"),
        ("\x00\x07\x08\x7f", r"\x00\x07\x08\x7f"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("\u2066a\u2069\u061c\u200e", r"\u2066a\u2069\u061c\u200e"),
        ("admin\u200b", r"admin\u200b"),
        ("one\u2028two\u2029", r"one\u2028two\u2029"),
        ("\ufeffname", r"\ufeffname"),
        ("❤\ufe0f", r"❤\ufe0f"),
        ("\U000e0041", r"\U000e0041"),
        ("\ufffe\ufdd0", r"\ufffe\ufdd0"),
        ("\udc80", r"\udc80"),
        (r"C:\new", r"C:\new"),
    ],
)
def test_hidden_characters_are_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown
    assert hides(text) is (text != shown)


def test_every_code_point_of_a_hidden_category_is_spelled() -> None:
    hidden = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in HIDDEN_CATEGORIES]
    assert len(hidden) > 2000
    assert [char for char in hidden if not escape(char).startswith("\\")] == []


def test_letters_numbers_and_symbols_except_fillers_are_kept() -> None:
    fillers = {"\u115f", "\u1160", "\u3164", "\uffa0"}
    kept = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code))[0] in "LNPS"]
    assert {char for char in kept if escape(char) != char} == fillers


@given(ANY_TEXT)
def test_nothing_hidden_gets_through(text: str) -> None:
    shown = escape(text)
    assert not {unicodedata.category(char) for char in shown} & HIDDEN_CATEGORIES
    assert escape(shown) == shown
    shown.encode()


HIDDEN = st.sampled_from([chr(code) for code in range(0x110000) if hides(chr(code))])
JSON_TEXT = st.text(st.one_of(HIDDEN, st.characters(exclude_categories=())))


@given(st.recursive(JSON_TEXT, lambda inner: st.lists(inner) | st.dictionaries(JSON_TEXT, inner), max_leaves=5))
def test_escaped_json_has_the_same_value_and_nothing_hidden(value: object) -> None:
    given_ = json.dumps(value, ensure_ascii=False)
    shown = escape_json(given_)
    assert not hides(shown)
    # JSON does not distinguish a surrogate pair from its character.
    assert json.loads(shown) == json.loads(given_.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


def test_a_tab_between_values_of_json_is_kept() -> None:
    assert escape_json('{"a":\t[1]}\t{"b":"\\t"}') == '{"a":\t[1]}\t{"b":"\\t"}'


@pytest.mark.parametrize(
    ("char", "shown"),
    [("\x7f", r"\u007f"), ("\u202e", r"\u202e"), ("\U000e0041", r"\udb40\udc41"), ("\udc80", r"\udc80")],
)
def test_a_hidden_character_in_json_is_spelled_in_utf_16(char: str, shown: str) -> None:
    assert escape_json(f'"a{char}\u00e4"') == f'"a{shown}\u00e4"'


@pytest.mark.parametrize(
    ("text", "word"),
    [("id=1", "id=1"), ("a b", "'a b'"), ("a = 'b'", "\"a = 'b'\""), ("'$a'", "''\"'\"'$a'\"'\"''")],
)
def test_a_word_for_a_shell_can_be_read(text: str, word: str) -> None:
    assert shell_word(text) == word
    assert subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout.decode() == text
