"""Show one value to people: quoted, escaped and cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from pgtail.changes.ddl import Ddl
from pgtail.changes.relations import Relation
from pgtail.pgoutput.cells import UNCHANGED, Binary, Cell
from pgtail.terminal.escape import escape, hides, inside_quotes, quoted
from pgtail.terminal.layout import SPACE, Item, SizedItem, middle_cut, sized, width_of
from pgtail.terminal.style import Fragment
from pgtail.values import UNKNOWN, Codec, Undecoded, ValueKind
from pgtail.values.oids import BUILTIN
from pgtail.values.render import hex_pieces

_STRINGS: Final = frozenset(("text", "varchar", "bpchar", "char", "name", "xml", "refcursor", "pg_node_tree"))
BARE: Final = frozenset([oid for oid, builtin in BUILTIN.items() if builtin.name not in _STRINGS])
"""The types whose values need no quotes: dates, UUIDs, addresses, ranges, ..."""

NULL: Final[Fragment] = ("NULL", "null")
UNCHANGED_MARK: Final[Fragment] = ("(unchanged)", "note")
UNDECODED: Final[Item] = (SPACE, ("(undecoded)", "note"))
MORE: Final[Fragment] = ("…", "dim")
SEEN_ARROW: Final = "⇢"
"""In place of an arrow after an old value that the server did not send: the input had shown it before."""

_BOOLEANS: Final = {"t": "true", "f": "false"}
_E_QUOTED: Final = {"'": "''", "\\": "\\\\"}
_SHORTEST: Final = 8
"""The smallest limit: E'', an escape and the ellipsis."""

_LEAST: Final = 16
"""The smallest limit of a value beside another one: E'', the longest escape and two ellipses; 4 less without quotes."""

_NAME_LIMIT: Final = 256
"""The maximum width of a name in cells: PostgreSQL's have at most 63 bytes, escaped up to four cells each."""

_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_$]*")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_UNNAMED: Final = re.compile(r"\?[0-9]+")

_CHUNK: Final = 16 * 1024
"""Characters of a text that are escaped at a time."""

_LARGE: Final = 64 * 1024
"""Bytes of a text above which only the beginning is decoded, if no more of it is shown."""


def name(text: str) -> str:
    """A prefix, gid or the like, escaped; an empty one as ''."""
    return middle_cut(escape(_bounded(text)), _NAME_LIMIT) or "''"


def identifier(text: str) -> str:
    """The name of a table or column, escaped, and in double quotes where SQL needs them."""
    if _PLAIN_NAME.fullmatch(text):
        return text
    text = _bounded(text)
    if not text.isascii() and _PLAIN_NAME.fullmatch(_BEYOND_ASCII.sub("_", text)) and not hides(text):
        return middle_cut(text, _NAME_LIMIT)
    return middle_cut('"{}"'.format(escape(text.replace('"', '""'))), _NAME_LIMIT)


def table_name(relation: Relation) -> str:
    """schema.table, as identifier() shows names."""
    return f"{identifier(relation.schema)}.{identifier(relation.name)}" if relation.seen else name(relation.qualified)


def ddl_name(ddl: Ddl) -> str:
    """The table of a schema change, as table_name()."""
    return f"{identifier(ddl.schema or '')}.{identifier(ddl.name)}" if ddl.name is not None else "(no table)"


def column_name(text: str) -> str:
    """The name of a column; those of columns that the table does not have are not quoted."""
    return text if _UNNAMED.fullmatch(text) else identifier(text)


def _bounded(text: str) -> str:
    """The start and end of a very long text."""
    return text if len(text) <= 2 * _NAME_LIMIT else text[:_NAME_LIMIT] + text[-_NAME_LIMIT:]


Show: TypeAlias = Callable[[Cell], SizedItem]
"""Shows a cell of a column."""


class ValueStyle:
    """Shows values; `limit` is the maximum width of a value in terminal cells, None for no limit.

    With `ends`, value() shows the start and the end of a longer one that is ASCII; else the start.
    """

    def __init__(self, limit: int | None, *, ends: bool = False) -> None:
        self._limit = self.limit = None if limit is None else max(limit, _SHORTEST)
        self._ends = ends
        self._short = _CHUNK if self._limit is None else min(self._limit, _CHUNK)

    def of_column(self, codec: Codec, label: Item, style: str = "value", *, bare: bool) -> Show:
        """What cell() shows for the cells of one column, after a label and with the width."""

        def show(cell: Cell) -> SizedItem:
            return sized(label + self.cell(codec, cell, style, bare=bare))

        if codec.kind is ValueKind.BOOL:
            known = {cell: show(cell) for cell in (b"t", b"f")}
            return lambda cell: known[cell] if cell.__class__ is bytes and cell in known else show(cell)
        return show

    def cell(
        self, codec: Codec, cell: Cell, style: str = "value", *, bare: bool = False, mark: Item = UNDECODED
    ) -> Item:
        """One cell; `bare` says that its type needs no quotes, `mark` follows a value that cannot be decoded."""
        if cell is None:
            return (NULL,)
        if cell is UNCHANGED:
            return (UNCHANGED_MARK,)
        try:
            return self.value(codec, cell, style, bare=bare)
        except Undecoded as undecoded:
            return (*self.undecoded(undecoded, style), *mark)

    def changed(self, codec: Codec, old: Cell, new: Cell, *, bare: bool = False) -> tuple[Item, Item]:
        """Two different cells; as texts() if one is too long."""
        items = self.cell(codec, old, "old", bare=bare), self.cell(codec, new, "new", bare=bare)
        if MORE not in items[0] and MORE not in items[1]:
            return items
        if not isinstance(old, bytes) or not isinstance(new, bytes):
            return items
        texts, marks = zip(*[_text_of(codec, cell) for cell in (old, new)], strict=True)
        before, now = self.texts(*texts, bare=bare or any(marks) or codec.kind is not ValueKind.TEXT)
        return before + marks[0], now + marks[1]

    def texts(self, old: str, new: str, *, bare: bool) -> tuple[Item, Item]:
        """Two texts; if one is too long, both from a little before their first difference to a little after the last.

        Both begin at the same place. What differs first is shown.
        """
        items = self._shown(old, "old", bare=bare), self._shown(new, "new", bare=bare)
        if self._limit is None or old == new or (MORE not in items[0] and MORE not in items[1]):
            return items
        least = _LEAST - 4 * bare
        limit = max(self._limit, least)
        room = min(limit // 6, limit - least)
        start = _common(old, new)
        end = room - _common(old[start:][::-1], new[start:][::-1])
        begin = max(start - room, 0)
        while begin < start and (
            width_of(inside_quotes(old[begin:start], hidden=True)) > room or not width_of(old[begin])
        ):
            begin += 1

        def part(text: str, style: str) -> Item:
            stop = min(len(text) + end, len(text))
            style_ = ValueStyle(limit - (begin > 0) - (stop < len(text)))
            shown = style_._shown(text[begin:stop], style, bare=bare)
            shown = ((MORE[0], style), *shown) if begin else shown  # of one style: no line ends between them
            return shown if stop == len(text) or shown[-1] == MORE else (*shown, MORE)

        return part(old, "old"), part(new, "new")

    def _shown(self, text: str, style: str, *, bare: bool) -> Item:
        return self.bare(text, style) if bare and text else self.string(text, style)

    def value(self, codec: Codec, cell: bytes, style: str = "value", *, bare: bool = False) -> Item:
        """A cell that is neither NULL nor unchanged. Raises Undecoded."""
        if codec.masks:
            return self.value(UNKNOWN, codec.text(cell).encode(), style, bare=bare)
        kind = codec.kind
        bare = bare or kind is not ValueKind.TEXT
        if cell.__class__ is bytes and 0 < len(cell) <= self._short and kind is not ValueKind.BOOL:
            text = codec.text_text(cell)
            if text.isascii() and text.isprintable() and (bare or ("'" not in text and len(text) + 2 <= self._short)):
                return ((text if bare else f"'{text}'", style),)
        if self._limit is None and len(cell) > _LARGE and _is_text(codec, cell):
            return self._whole(_decoded(codec, cell), style, quotes=not bare)
        text = self._text(codec, cell)
        if kind is ValueKind.BOOL:
            text = _BOOLEANS.get(text, text)
        return self._shown(text, style, bare=bare)

    def undecoded(self, undecoded: Undecoded, style: str = "value") -> Item:
        """What is shown for a value that cannot be decoded, or its beginning if only that is shown."""
        if self._limit is None or undecoded.raw is None:
            return self.bare(undecoded.text, style)
        return self.bare(Undecoded(undecoded.raw[: self._limit]).text, style)

    def _text(self, codec: Codec, cell: bytes) -> str:
        """The text of a cell, or its beginning if only that is shown. Raises Undecoded."""
        if not _is_text(codec, cell):
            cut = self._limit is not None and codec.long_binary is hex_pieces
            return codec.text_binary(cell[: self._limit] if cut else cell)
        if self._limit is not None and len(cell) > _LARGE:
            try:
                return codec.text_text(cell[: _boundary(cell, 4 * self._limit + 4)])
            except Undecoded:
                pass  # its encoding may not be UTF-8, so that the cut split a character
        return codec.text_text(cell)

    def string(self, text: str, style: str = "value") -> Item:
        """Text in quotes."""
        limit = self._limit
        if limit is None and len(text) > _CHUNK:
            return self._whole(_chunks(text), style, quotes=True)
        if limit is None or len(text) <= limit:
            shown = quoted(text)
            if limit is None or width_of(shown) <= limit:
                return ((shown, style),)
        if self._ends and text.isascii() and text.isprintable() and "'" not in text:
            start, end = _halves(text, limit - 5)
            return (f"'{start}'", style), MORE, (f"'{end}'", style)
        begin = text[:limit]
        if begin.isascii() and begin.isprintable() and "'" not in begin:
            return (f"'{begin[: limit - 3]}'", style), MORE
        if hides(begin):
            return self._cut("E'", [escape(_E_QUOTED.get(char, char)) for char in begin], "'", style)
        return self._cut("'", ["''" if char == "'" else char for char in begin], "'", style)

    def bare(self, text: str, style: str = "value") -> Item:
        """Text without quotes."""
        limit = self._limit
        if limit is None and len(text) > _CHUNK:
            return self._whole(_chunks(text), style, quotes=False)
        if limit is None or len(text) <= limit:
            shown = escape(text)
            if limit is None or width_of(shown) <= limit:
                return ((shown, style),)
        if self._ends and text.isascii() and text.isprintable():
            start, end = _halves(text, limit - 1)
            return (start, style), MORE, (end, style)
        begin = text[:limit]
        if begin.isascii() and begin.isprintable():
            return (begin[: limit - 1], style), MORE
        return self._cut("", [escape(char) for char in begin], "", style)

    def _whole(self, pieces: list[str], style: str, *, quotes: bool) -> Item:
        """A long text in pieces, so that one wide character does not widen the whole string in memory."""
        if not quotes:
            return tuple([(escape(piece), style) for piece in pieces])
        hidden = any(map(hides, pieces))
        inside = [(inside_quotes(piece, hidden=hidden), style) for piece in pieces]
        return ("E'" if hidden else "'", style), *inside, ("'", style)

    def _cut(self, before: str, chars: list[str], after: str, style: str) -> Item:
        """As many characters as fit, and an ellipsis after the closing quote."""
        assert self._limit is not None
        left = self._limit - len(before) - len(after) - 1
        count = 0
        for char in chars:
            left -= width_of(char)
            if left < 0:
                break
            count += 1
        return (f"{before}{''.join(chars[:count])}{after}", style), MORE


def _text_of(codec: Codec, cell: bytes) -> tuple[str, Item]:
    """The text of a cell, or what is shown if it cannot be decoded, and its mark."""
    try:
        return codec.text(cell), ()
    except Undecoded as undecoded:
        return undecoded.text, UNDECODED


def _common(old: str, new: str) -> int:
    """How much two texts have in common at their start."""
    low, most = 0, min(len(old), len(new))
    while low < most:
        middle = (low + most + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            most = middle - 1
    return low


def _halves(text: str, size: int) -> tuple[str, str]:
    """The start and the end of a text, of `size` characters together."""
    return text[: size - size // 2], text[-(size // 2) :]


def _is_text(codec: Codec, cell: bytes) -> bool:
    """Whether the bytes are the text itself, also in binary form."""
    return not isinstance(cell, Binary) or (codec.binary_is_text and 0 not in cell)


def _chunks(text: str) -> list[str]:
    """A long text in pieces."""
    return [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]


def _decoded(codec: Codec, cell: bytes) -> list[str]:
    """A long text cell in pieces. Raises Undecoded."""
    pieces, start = [], 0
    try:
        while start < len(cell):
            end = _boundary(cell, start + _CHUNK)
            pieces.append(codec.text_text(cell[start:end]))
            start = end
    except Undecoded:
        return _chunks(codec.text_text(cell))  # invalid, or its encoding is not UTF-8 and the cut split a character
    return pieces


def _boundary(cell: bytes, at: int) -> int:
    """`at`, or the start of the UTF-8 character that `at` is inside of."""
    for end in range(at, at - 4, -1):
        if end >= len(cell) or cell[end] & 0xC0 != 0x80:
            return end
    return at
