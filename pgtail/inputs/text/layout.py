"""Finds the layout of rows: tries several on sample lines, and takes the one that yields most messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from pgtail.errors import DecodeError, Truncated
from pgtail.inputs.binary.detect import MESSAGE_START
from pgtail.inputs.text.bytea import BadText, Base64, Codec, codec_of
from pgtail.pgoutput.decoder import Decoder, Unknown
from pgtail.pgoutput.streaming import StreamStop

RowPattern: TypeAlias = re.Pattern[bytes]

LSN: Final = re.compile(rb"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_BARS: Final = (b"|", "│".encode())
_BAR: Final = rb"(?:\||\xe2\x94\x82)"
"""psql's column border, in ASCII and in Unicode."""

_PERHAPS: Final = _BAR + rb"?"
"""A border that a row has only at its beginning, or only at its end in another line."""

_EDGE: Final = b" |\xe2\x94\x82"
"""Blanks and borders around the value of a field."""

WRAP_MARKS: Final = (b".", "…".encode())
"""psql's marks at the end of a cell that its wrapped format continues in the next line."""

_PREFIX: Final = rb"(?:\\{1,2}x|0x)?"
_MARKS: Final = (b"+", "↵".encode())
"""psql's mark at the end of a line whose value continues in the next (aligned format)."""

_AFTER_LSN: Final = re.compile(rb"(?<![\w/])" + LSN.pattern + rb"\b([^\w\\]*+)")
_BEFORE_LSN: Final = re.compile(rb"([^\w\\]++)" + LSN.pattern + rb"\b")
_AFTER_XID: Final = re.compile(rb"\A[^\w\\]*+\d{1,10}([^\w\\]++)(?=\S)")
_BEFORE_XID: Final = re.compile(rb"\w([^\w\\]++)\d{1,10}[^\w\\]*+\Z")
_FIELD: Final = re.compile(_BAR + rb"? *+(?P<name>[A-Za-z_?][\w?]*+)(?P<separator>[^\w\\]++)(?P<value>.*+)", re.DOTALL)
_NEAR: Final = 400
"""Bytes at both ends of a line in which to look for columns."""

_MAX_BEFORE: Final = 3
_MAX_AFTER: Final = 2


class TextForm(Struct, frozen=True):
    """The layouts that a text form may have.

    `separators`: possible column separators (one byte each), None for any. `quoted`: cells may be in double quotes.
    `bordered`: lines may begin and end with a border. `fields`: a row may have a line for each column.
    """

    codecs: Mapping[str, Codec]
    separators: bytes | None = b""
    quoted: bool = False
    bordered: bool = False
    fields: bool = False


class RowLayout(Struct, frozen=True):
    """`row` matches a whole line, with groups lsn (if there is one) and data; `start` matches what precedes the data.

    `lone`: the data is the only column. `padded`: spaces after the data belong to it or fill the column. `quoted`: a
    quote after the data does not belong to it.
    """

    row: RowPattern
    start: RowPattern
    codec: Codec
    lone: bool
    padded: bool
    quoted: bool

    @property
    def has_lsn(self) -> bool:
        """Whether rows have an LSN."""
        return "lsn" in self.row.groupindex

    def bare(self, text: bytes) -> bytes:
        """A cell without trailing quote and spaces; in the escape format spaces may belong to the value."""
        if self.quoted:
            text = text.removesuffix(b'"')
        return text if self.codec.name == "escape" else text.rstrip(b" ")


def find_layout(lines: list[bytes], form: TextForm, decoder: Decoder, *, cut: bool = False) -> RowLayout | None:
    """The layout in which most lines are messages, with `cut` beginnings of messages; None if no line is one."""
    border = None
    if cut:
        border = _PERHAPS if form.bordered and any(line.startswith(_BARS) for line in lines) else b""
    best: tuple[int, RowLayout] | None = None
    for shape in _shapes(lines, form, border):
        found = _tried(shape, lines, form, decoder, cut=cut)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
            if 2 * found[0] > len(lines):
                break
    return None if best is None else best[1]


def _tried(
    shape: _Arrangement | _Fields, lines: list[bytes], form: TextForm, decoder: Decoder, *, cut: bool
) -> tuple[int, RowLayout] | None:
    """How many lines are messages in this layout; with `cut`, also those that are the beginning of one."""
    row = shape.row()
    matches = [match for line in lines if (match := row.fullmatch(line))]
    cells = (match["data"] for match in matches)
    names = Counter(name for cell in cells if cell and (name := message_codec(cell, form, decoder, cut=cut)))
    if not names:
        return None
    return names.total(), shape.layout(form.codecs[names.most_common(1)[0][0]], matches)


def default_layout(form: TextForm) -> RowLayout:
    """The layout to try if none was found: only the data, in hex."""
    return _Arrangement(form, b"", b"", 0, 0, b"").layout(form.codecs["hex"], [])


def message_codec(text: bytes, form: TextForm, decoder: Decoder, *, cut: bool = False) -> str | None:
    """The name of the codec in which a cell is a message or its first line; with `cut`, any beginning of one."""
    text, goes_on = unmarked(text.removesuffix(b'"').rstrip(b" ") if form.quoted else text.rstrip(b" "))
    name = codec_of(text)
    codec = form.codecs.get(name)
    if codec is None:
        return None
    try:
        data = codec.decode(text[: codec.safe(text)] if cut else text)
        message = Decoder().message(data, 0, len(data))
    except Truncated:
        return name if (cut or (codec.wrapped and goes_on)) and MESSAGE_START.match(data) else None
    except (BadText, DecodeError):
        return None
    # Stream Stop alone proves nothing: 45 may be any number.
    return None if isinstance(message, Unknown | StreamStop) else name


def unmarked(text: bytes) -> tuple[bytes, bool]:
    """A line of base64 without psql's continuation mark, and whether the value continues: a full line does."""
    for mark in _MARKS:
        if text.endswith(mark):
            bare = text[: -len(mark)].rstrip(b" ")
            if len(bare) % 4 == 0:
                return bare, True
    return text, len(text) == Base64.LINE and not text.endswith(b"=")


# These patterns must be fast on lines of any length and content: at most one repetition backtracks, and it repeats a
# single character; all others are possessive. (Python before 3.11.5 matches possessive groups wrongly, and other groups
# need memory for each repetition.)


class _Arrangement(Struct, frozen=True):
    """Columns side by side: `before` and `after` are how many surround the data."""

    form: TextForm
    separator: bytes
    cell: bytes
    """The pattern of a cell between separators."""

    before: int
    after: int
    border: bytes

    def row(self, lsn: int | None = None) -> RowPattern:
        """The pattern of a row. `lsn` is the index of the column with the LSN."""
        data = _data(self.border, more=bool(self.after))
        if self.form.quoted and self.after:
            data = rb'[^\s",;]*+"?'
        after = [self.separator + self._cell(i, lsn) for i in range(self.before, self.before + self.after)]
        end = self.border + rb" *+"
        return re.compile(self._start(lsn) + rb"(?P<data>" + data + rb")" + b"".join(after) + end)

    def layout(self, codec: Codec, matches: list[re.Match[bytes]]) -> RowLayout:
        columns = self.before + self.after
        found = Counter(i for match in matches for i in range(columns) if LSN.fullmatch(match[f"c{i}"].strip()))
        lsn = found.most_common(1)[0][0] if found else None
        start, padded = re.compile(self._start(lsn)), bool(self.border or self.after)
        return RowLayout(self.row(lsn), start, codec, lone=not columns, padded=padded, quoted=self.form.quoted)

    def _start(self, lsn: int | None) -> bytes:
        before = [self._cell(i, lsn) + self.separator for i in range(self.before)]
        return self.border + rb" *+" + b"".join(before) + rb'"?' * self.form.quoted + _PREFIX

    def _cell(self, i: int, lsn: int | None) -> bytes:
        cell = rb"(?P<" + (b"lsn" if i == lsn else b"c%d" % i) + rb">" + self.cell + rb")"
        return rb'"?' + cell + rb'"?' if self.form.quoted else cell


class _Fields(Struct, frozen=True):
    """A line for each column: its name and its value."""

    separator: bytes
    data: bytes
    lsn: bytes | None
    others: frozenset[bytes]
    border: bytes
    quoted: bool

    def row(self) -> RowPattern:
        kinds = [self._start() + rb"(?P<data>" + _data(self.border) + rb")" + self.border]
        if self.lsn is not None:
            kinds.append(re.escape(self.lsn) + self.separator + rb"(?P<lsn>[^\s|]*+).*+")
        if self.others:
            kinds.append(rb"(?:" + b"|".join(map(re.escape, sorted(self.others))) + rb")" + self.separator + rb".*+")
        return re.compile(self.border + rb" *+(?:" + b"|".join(kinds) + rb") *+")

    def layout(self, codec: Codec, matches: list[re.Match[bytes]]) -> RowLayout:
        start = re.compile(self.border + rb" *+" + self._start())
        return RowLayout(self.row(), start, codec, lone=False, padded=bool(self.border), quoted=self.quoted)

    def _start(self) -> bytes:
        return re.escape(self.data) + self.separator + rb'"?' * self.quoted + _PREFIX


def _data(border: bytes, *, more: bool = False) -> bytes:
    """The pattern of a cell with a message, before this border or with `more` columns after it."""
    if border == _PERHAPS:
        return rb"(?:\S.*?)?"
    return rb"(?:\S.*)?" if border or more else rb"(?:\S.*+)?"


def _shapes(lines: list[bytes], form: TextForm, border: bytes | None = None) -> Iterator[_Arrangement | _Fields]:
    if border is None:
        bordered = form.bordered and sum(line.lstrip().startswith(_BARS) for line in lines) * 3 > len(lines)
        border = _BAR if bordered else b""
    if form.fields:
        yield from _field_shapes(lines, form, border)
    yield _Arrangement(form, b"", b"", 0, 0, border)
    for separator, cell in _separators(lines, form):
        for before in range(_MAX_BEFORE, -1, -1):
            for after in range(_MAX_AFTER + 1):
                if before + after:
                    yield _Arrangement(form, separator, cell, before, after, border)


def _separators(lines: list[bytes], form: TextForm) -> list[tuple[bytes, bytes]]:
    """Patterns of separators and cells, from what is next to LSNs and transaction ids."""
    if form.separators == b"":
        return []
    counts: Counter[bytes] = Counter()
    for line in lines:
        ends = line if len(line) <= 2 * _NEAR else line[:_NEAR] + b"\n" + line[-_NEAR:]
        for pattern in (_AFTER_LSN, _BEFORE_LSN, _AFTER_XID, _BEFORE_XID):
            counts.update(pattern.findall(ends))
    patterns = [_separator(run, form) for run, _ in counts.most_common(6)]
    return list(dict.fromkeys(pattern for pattern in patterns if pattern is not None))


def _separator(run: bytes, form: TextForm) -> tuple[bytes, bytes] | None:
    """The patterns of a separator and of a cell; None if the form does not have this separator."""
    core = run.strip(b' "\n' if form.quoted else b" \n")
    if form.separators is not None and (len(core) != 1 or core not in form.separators):
        return None
    if form.quoted:
        return re.escape(core), rb'[^",;|\t]*+'
    if core in _BARS:
        return _BAR + rb" *+", rb"[^|\xe2]*+"
    if not core:
        return (rb" ++", rb"[^ ]*+") if run else None
    # A cell takes the spaces that the separator begins with.
    separator = run.lstrip(b" ")
    return re.escape(separator), rb"[^" + re.escape(separator[:1]) + rb"]*+"


def _field_shapes(lines: list[bytes], form: TextForm, border: bytes) -> Iterator[_Fields]:
    """One shape for each column name that may be the data's."""
    values: dict[bytes, list[bytes]] = {}
    runs: Counter[bytes] = Counter()
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is not None and (not border or line.startswith(_BARS)):
            values.setdefault(field["name"], []).append(field["value"])
            runs[field["separator"]] += 1
    positions = [name for name, found in values.items() if all(LSN.fullmatch(value.strip(_EDGE)) for value in found)]
    lsn = positions[0] if positions else None
    for run, _ in runs.most_common(1):
        core = run.strip(b' "' if form.quoted else b" ")
        if form.separators is not None and (len(core) != 1 or core not in form.separators):
            return
        separator = rb" *+" + _BAR + rb" *+" if core in _BARS else re.escape(run) if core else rb" ++"
        names = list(values)
        for at, name in enumerate(names[:8]):
            if name != lsn:
                # Rows are read line by line: an LSN after the data would go to the next row.
                before = lsn if lsn in names[:at] else None
                yield _Fields(separator, name, before, frozenset(values) - {name, before}, border, form.quoted)
