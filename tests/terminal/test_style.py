"""Palettes and highlighting: the bytes that a terminal gets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.color import Color
from rich.style import Style

from pgtail.errors import OptionError
from pgtail.terminal.style import COLORED, PLAIN, Fragment, Painter, Palette, palette
from tests.support.corpus import capture
from tests.support.run import command, decode

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
    for thing in Palette.__struct_fields__:
        palette(color=True, colors=f"{thing}=red")


def test_matches_are_marked_even_across_fragments() -> None:
    assert painted("match=7", "d=1").endswith("  i^[7md=^[0m^[7m1^[0m0 'a b'")
    assert painted("match=7", "NS", "S").startswith(
        "^[38;5;16;48;5;77mI^[0m^[7mN^[0m^[7mS^[0m^[38;5;16;48;5;77mERT^[0m"
    )
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


# -- contrast ----------------------------------------------------------------------------------------------------------


class Terminal(NamedTuple):
    """A terminal's sixteen colours, and those of its text and background."""

    colors: str
    text: str
    background: str


_SOLARIZED = "073642dc322f859900b58900268bd2d336822aa198eee8d5002b36cb4b16586e75657b838394966c71c493a1a1fdf6e3"
_XTERM = "000000cd000000cd00cdcd000000eecd00cd00cdcde5e5e57f7f7fff000000ff00ffff005c5cffff00ff00ffffffffff"
_LINUX = "000000aa000000aa00aa55000000aaaa00aa00aaaaaaaaaa555555ff555555ff55ffff555555ffff55ff55ffffffffff"
_GITHUB_DARK = "484f58ff7b723fb950d2992258a6ffbc8cff39c5cfb1bac46e7681ffa19856d364e3b34179c0ffd2a8ff56d4ddffffff"
_GITHUB_LIGHT = "24292fcf222e1163294d2d000969da8250df1b7c836e778157606aa40e261a7f37633c01218bffa475f93192aa8c959f"
TERMINALS = {
    "xterm, dark": Terminal(_XTERM, "e5e5e5", "000000"),
    "xterm, light": Terminal(_XTERM, "000000", "ffffff"),
    "Linux console": Terminal(_LINUX, "aaaaaa", "000000"),
    "Solarized, dark": Terminal(_SOLARIZED, "839496", "002b36"),
    "Solarized, light": Terminal(_SOLARIZED, "657b83", "fdf6e3"),
    "GitHub, dark": Terminal(_GITHUB_DARK, "c9d1d9", "0d1117"),
    "GitHub, light": Terminal(_GITHUB_LIGHT, "24292f", "ffffff"),
}
"""XTerm-col.ad; drivers/tty/vt/vt.c; ethanschoonover.com/solarized; primer/github-vscode-theme."""

ENOUGH = 4.5
"""WCAG 2.2, contrast (minimum)."""


def _rgb(digits: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


def _rendered(color: Color | None, name: str, *, background: bool) -> tuple[int, int, int]:
    """What a terminal makes of a colour."""
    terminal = TERMINALS[name]
    if color is None:
        return _rgb(terminal.background if background else terminal.text)
    number = color.number
    assert number is not None
    if number >= 16:
        red, green, blue = color.get_truecolor()
        if name != "Linux console":
            return red, green, blue
        number = _of_linux(red, green, blue, background=background)
    return _rgb(terminal.colors[6 * number : 6 * number + 6])


def _of_linux(red: int, green: int, blue: int, *, background: bool) -> int:
    """The colour that the Linux console takes instead: rgb_foreground() and rgb_background() in vt.c."""
    if background:
        return (red >= 0x80) | (green >= 0x80) << 1 | (blue >= 0x80) << 2
    most = max(red, green, blue)
    hue = (red > most / 2) | (green > most / 2) << 1 | (blue > most / 2) << 2
    if hue == 7 and most <= 0x55:
        return 8
    return hue | (8 if most > 0xAA else 0)


def _luminance(rgb: tuple[int, int, int]) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [part / 255 for part in rgb]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def _contrast(style: Style, terminal: str) -> float:
    over = _luminance(_rendered(style.color, terminal, background=False)) + 0.05
    under = _luminance(_rendered(style.bgcolor, terminal, background=True)) + 0.05
    return max(over, under) / min(over, under)


@pytest.mark.parametrize("terminal", TERMINALS)
def test_every_style_can_be_read_on_every_background(terminal: str) -> None:
    own = _contrast(Style.null(), terminal)
    assert own > 4.1, "that is the theme's choice: Solarized's own text has 4.1 on light"
    for thing in Palette.__struct_fields__:
        style = Style.parse(getattr(COLORED, thing))
        assert not style.dim, f"{thing}: the Linux console shows faint as grey, with 2.8"
        if style.color is None and style.bgcolor is None:
            continue  # the terminal's own colours, perhaps reversed
        assert _contrast(style, terminal) > ENOUGH, thing


@pytest.mark.parametrize(
    ("style", "terminal"),
    [
        ("blue", "xterm, dark"),
        ("green", "xterm, light"),
        ("color(250)", "Solarized, light"),
        ("color(16) on color(221)", "Linux console"),
    ],
)
def test_colours_that_would_not_do(style: str, terminal: str) -> None:
    """The check fails for colours that depend on the background or the theme."""
    assert _contrast(Style.parse(style), terminal) < ENOUGH
