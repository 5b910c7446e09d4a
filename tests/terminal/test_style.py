"""Palettes and highlighting: the bytes that a terminal gets."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from rich.color_triplet import ColorTriplet

from pgtail.errors import OptionError
from pgtail.terminal.style import COLORED, PLAIN, Fragment, Painter, Palette, palette
from tests.support.corpus import capture
from tests.support.run import command, decode

XTERM_BLUE = 4
XTERM = {12: (0x5C, 0x5C, 0xFF)}
"""Colours of xterm's palette (XTerm-col.ad) by their numbers."""
CAPTURE = capture("A_dml", "p1").forms["walsender.bin"]
LINE: list[Fragment] = [("INSERT", "insert"), ("  ", "plain"), ("id=", "plain"), ("10", "value"), (" 'a b'", "value")]


def painted(colors: str, *highlight: str) -> str:
    return Painter(palette(color=True, colors=colors), highlight).line(LINE).replace("\x1b", "^")


def test_default_palette() -> None:
    assert palette(color=True) == COLORED
    assert palette(color=False) == palette(color=False, colors="insert=red") == PLAIN


@pytest.mark.parametrize(
    ("style", "code"),
    [
        ("bold red", "1;31"),
        ("01;31", "1;31"),
        ("#ff8700", "38;2;255;135;0"),
        ("color(208)", "38;5;208"),
        ("4;38;5;208", "4;38;5;208"),
    ],
)
def test_styles_are_words_or_numbers(style: str, code: str) -> None:
    assert painted(f"insert={style}").startswith(f"^[{code}mINSERT^[0m")
    assert painted(f"update=red:insert={style}:").startswith(f"^[{code}mINSERT^[0m")


def test_an_empty_style_is_none() -> None:
    assert painted("insert=").startswith("INSERT  id=")


@pytest.mark.parametrize(
    ("colors", "words"),
    [
        ("inserts=red", "expected THING=STYLE, not inserts=red; the things are plain, value"),
        ("red", "expected THING=STYLE, not red"),
        ("insert=blurple", "insert=blurple is not a style"),
    ],
)
def test_invalid_colours_are_rejected(colors: str, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        palette(color=True, colors=colors)


def test_every_style_can_be_changed() -> None:
    for field in fields(Palette):
        palette(color=True, colors=f"{field.name}=red")


def test_matches_are_marked_even_across_fragments() -> None:
    assert painted("match=7", "d=1").endswith("  i^[7md=^[0m^[7m1^[0m0 'a b'")
    assert painted("match=7", "NS", "S").startswith("^[32mI^[0m^[7mN^[0m^[7mS^[0m^[32mERT^[0m")
    assert painted("match=7", "x*") == painted("")
    with pytest.raises(OptionError, match="--highlight"):
        painted("", "(")


def test_marking_changes_nothing_but_colours() -> None:
    plain = decode("-o", "table", CAPTURE).stdout
    for options in (("--highlight", "id|."), ("--highlight", "t_[a-z]+", "--highlight", "(?i)NULL")):
        coloured = decode("-o", "table", "--color", "always", *options, CAPTURE).stdout
        assert b"\x1b[1;7m" in coloured
        assert _without_ages(re.sub(rb"\x1b\[[0-9;]*m", b"", coloured)) == _without_ages(plain)
        assert decode("-o", "table", *options, CAPTURE).stdout.count(b"\x1b") == 0


def _without_ages(text: bytes) -> bytes:
    return re.sub(rb" +\d+ \w+ ago", b"", text)


def test_the_variable_and_no_color(tmp_path: Path) -> None:
    colours = {"PGTAIL_COLORS": "insert=35", "TERM": "xterm"}
    shown = command("decode", "-o", "table", "--color", "always", CAPTURE, environment=colours)
    assert b"\x1b[35mINSERT\x1b[0m" in shown.stdout
    shown = command("decode", "-o", "table", CAPTURE, environment={**colours, "NO_COLOR": "1"})
    assert b"\x1b" not in shown.stdout
    shown = command("inspect", "--kind", "insert", "-n", "1", "--color", "always", CAPTURE, environment=colours)
    assert b"\x1b[35mInsert\x1b[0m" in shown.stdout
    wrong = command("decode", "-o", "table", CAPTURE, environment={"PGTAIL_COLORS": "nothing"})
    assert (wrong.status, wrong.stdout) == (2, b"")


def _luminance(triplet: ColorTriplet) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in triplet.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_no_style_is_blue_and_positions_have_contrast_on_dark_and_light() -> None:
    styles = {field.name: getattr(COLORED, field.name) for field in fields(COLORED)}
    blue = [name for name, style in styles.items() if style.color is not None and style.color.number == XTERM_BLUE]
    assert blue == []
    for name in ("dot", "lsn"):
        luminance = _luminance(ColorTriplet(*XTERM[styles[name].color.number]))
        assert min((luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05)) > 4
    assert styles["cure"].color is None, "the terminal's own"
