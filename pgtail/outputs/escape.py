"""Floor 4, escape(): the one place where a peer's bytes meet a terminal; knows no output and no style.

What drives a terminal, what reorders a line and what cannot be seen is shown as text. What can be seen stays as it is.
"""

from __future__ import annotations

import re
from typing import Final

# Unicode's general categories Cc, Cf, Cs, Zl and Zp, and what is Default_Ignorable_Code_Point beside them (variation
# selectors, fillers): DerivedCoreProperties.txt. Joiners and variation selectors are among them: terminals do not agree
# how wide they make an emoji, and two values that differ in one of them must not look the same.
_HIDDEN: Final = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f\xad"  # C0, DEL, C1, soft hyphen
    "\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, marks, separators, embeddings, overrides, isolates
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"  # tags and more variation selectors
    "\ufdd0-\ufdef\ufffe\uffff"  # noncharacters
    "]"
)
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escape(text: str) -> str:
    r"""Make text from a peer safe to show: hidden characters as \n, \r, \t, \xNN (ASCII), \uNNNN or \UNNNNNNNN.

    A backslash stays as it is: where it matters which of the two it was, the caller doubles them first.
    """
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(_spelled, text)


def in_json(text: str) -> str:
    r"""JSON on one line with hidden characters as \uNNNN: the same to who reads it, and harmless on a terminal."""
    return _HIDDEN.sub(_in_units, text)


def hides(text: str) -> bool:
    """Whether escape() would change the text."""
    return not (text.isascii() and text.isprintable()) and _HIDDEN.search(text) is not None


def quoted(text: str) -> str:
    r"""A string as PostgreSQL writes it: 'it''s', and E'...\n' with doubled backslashes where something is hidden."""
    hidden = hides(text)
    return f"{'E' if hidden else ''}'{inside_quotes(text, hidden=hidden)}'"


def inside_quotes(text: str, *, hidden: bool) -> str:
    """What stands between the quotes."""
    text = text.replace("'", "''")
    return escape(text.replace("\\", "\\\\")) if hidden else text


def _spelled(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if code < 0x80:
        return _SHORT.get(char) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _in_units(match: re.Match[str]) -> str:
    """The character's UTF-16 units: one, or two surrogates."""
    code = ord(match[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}"
