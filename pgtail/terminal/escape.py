"""Escape text from a server or a file before it is shown.

Control characters, characters that reorder a line and invisible characters are written as escapes. All others are kept.
"""

from __future__ import annotations

import codecs
import functools
import re
import shlex
from typing import Final

from pgtail.files.sink import Sink
from pgtail.log import log_outcome

# Unicode's general categories Cc, Cf, Cs, Zl and Zp, and the other characters with Default_Ignorable_Code_Point
# (DerivedCoreProperties.txt). Joiners and variation selectors are included: terminals disagree about the width of such
# an emoji, and two values that differ only in one of them must not look the same.
_HIDDEN: Final = (
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
_QUOTED: Final = r"""(?s)(E?)'((?:[^']|'')*)'|"((?:[^"]|"")*)\""""
"""A string literal of SQL (its E and the text between its quotes), or a quoted identifier."""

_SPECIAL: Final = frozenset('"$`\\!')
"""Characters that mean something to a shell also between double quotes."""


@functools.cache
def _hidden() -> re.Pattern[str]:
    """_HIDDEN, compiled when the first text needs it."""
    return re.compile(_HIDDEN)


def escape(text: str) -> str:
    r"""The text with hidden characters as \n, \r, \t, \xNN (ASCII), \uNNNN or \UNNNNNNNN.

    Backslashes are kept: a caller whose reader must tell the two apart doubles them first.
    """
    if text.isascii() and text.isprintable():
        return text
    return _hidden().sub(_spelled, text)


def escape_lines(text: str) -> str:
    """A message of several lines, each escaped. Tabs before a line and blanks after it are left out: libpq has them."""
    return "\n".join([escape(line.rstrip().lstrip("\t")) for line in text.split("\n")])


def escape_json(text: str) -> str:
    r"""A line of JSON with hidden characters as \uNNNN: the same value, safe on a terminal.

    Tabs are kept, as they only stand between values.
    """
    return _hidden().sub(_in_units, text)


def json_line(value: object) -> str:
    """A value as a line of JSON, safe on a terminal."""
    from pgtail._orjson import orjson  # most commands need none

    return escape_json(orjson.dumps(value).decode()) + "\n"


def hides(text: str) -> bool:
    """Whether escape() would change the text."""
    return not (text.isascii() and text.isprintable()) and _hidden().search(text) is not None


def quoted(text: str) -> str:
    r"""A string literal of SQL: 'it''s', or E'...\n' with doubled backslashes if it has hidden characters."""
    hidden = hides(text)
    return f"{'E' if hidden else ''}'{inside_quotes(text, hidden=hidden)}'"


def inside_quotes(text: str, *, hidden: bool) -> str:
    """The text between the quotes of a literal; `hidden` says that it is an E'' literal."""
    text = text.replace("'", "''")
    return escape(_doubled(text)) if hidden else text


def sql_identifier(name: str) -> str:
    """A quoted identifier of SQL, U&"..." if it has hidden characters: a statement of one line, safe to paste."""
    return _identifier(name.replace('"', '""'))


def escape_sql(text: str) -> str:
    r"""A line of SQL in which names are U&"..." and strings E'...\n' where they have hidden characters.

    It names what it did before. Elsewhere, as in comments, hidden characters are escaped.
    """
    if not hides(text):
        return text
    return escape(re.sub(_QUOTED, _requoted, text))


def shell_word(text: str) -> str:
    r"""A word for a shell, in quotes where it needs them; $'...\n' if it has hidden characters."""
    if not hides(text):
        return f'"{text}"' if "'" in text and not _SPECIAL.intersection(text) else shlex.quote(text)
    return "$'{}'".format(escape(_doubled(text).replace("'", "\\'")))


def _requoted(match: re.Match[str]) -> str:
    if match[3] is not None:
        return _identifier(match[3])
    mark, inside = match[1], match[2]
    return f"E'{inside if mark else _doubled(inside)}'" if hides(inside) else match[0]


def _identifier(inside: str) -> str:
    """A quoted identifier, of the text between its quotes."""
    if not hides(inside):
        return f'"{inside}"'
    return 'U&"{}"'.format("".join([_unicode(char) if hides(char) else char for char in _doubled(inside)]))


def _doubled(text: str) -> str:
    return text.replace("\\", "\\\\")


def _unicode(char: str) -> str:
    return f"\\{ord(char):04X}" if ord(char) <= 0xFFFF else f"\\+{ord(char):06X}"


def _spelled(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if code < 0x80:
        return _SHORT.get(char) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _in_units(match: re.Match[str]) -> str:
    """The character's UTF-16 code units: one, or a surrogate pair."""
    code = ord(match[0])
    if code == 0x09:
        return match[0]
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}"


class EscapingSink:
    """Escapes hidden characters: by JSON's own escapes, else by escape(), which says so once."""

    def __init__(self, sink: Sink, *, json: bool) -> None:
        self._sink = sink
        self._spell = escape_json if json else self._spelled
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._noted = False

    def write(self, data: bytes) -> None:
        """Escape and write bytes; a character may be split between two calls."""
        lines = self._decoder.decode(data).split("\n")
        self._sink.write("\n".join([self._spell(line) for line in lines]).encode())

    def _spelled(self, line: str) -> str:
        shown = "\t".join([escape(part) for part in line.split("\t")])
        if shown != line and not self._noted:
            self._noted = True
            log_outcome(
                "hidden characters are escaped on this terminal; a file (-f) or a pipe gets the unchanged bytes"
            )
        return shown
