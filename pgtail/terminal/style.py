"""Palettes, and the painter that writes text in their colours.

pgtail does not know the background of the terminal, so coloured text has one of its own. Both are fixed colours of the
256-colour palette, which themes do not change. All other text is in the colours of the terminal: bold, italic,
underlined, reversed or struck through, but never faint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pgtail.errors import OptionError

if TYPE_CHECKING:
    from rich.style import Style

Fragment: TypeAlias = tuple[str, str]
"""(escaped text, the name of its style: a field of Palette)."""

_TEXT: Final = itemgetter(0)
_NEWLINE: Final[Fragment] = ("\n", "")


class Palette(Struct, frozen=True):
    """The style of each kind of text: one of rich's, the numbers of an SGR sequence, or empty for none.

    They are texts, so that only colours need rich, which takes long to import.
    """

    plain: str = ""
    value: str = ""
    dot: str = ""
    time: str = ""
    xid: str = ""
    lsn: str = ""
    origin: str = ""
    prepared: str = ""
    insert: str = ""
    update: str = ""
    delete: str = ""
    truncate: str = ""
    snapshot: str = ""
    message: str = ""
    table: str = ""
    key: str = ""
    name: str = ""
    null: str = ""
    old: str = ""
    new: str = ""
    note: str = ""
    dim: str = ""
    good: str = ""
    warning: str = ""
    bad: str = ""
    cure: str = ""
    aborted: str = ""
    match: str = ""


THINGS: Final = [*Palette.__struct_fields__]
PLAIN: Final = Palette()
_GREEN, _CYAN, _RED = "color(16) on color(77)", "color(16) on color(81)", "color(231) on color(124)"
_MAGENTA, _GREY, _BLUE = "color(231) on color(90)", "color(16) on color(250)", "color(231) on color(25)"
COLORED: Final = Palette(
    dot="bold",
    xid="bold",
    origin=_GREY,
    prepared=_GREY,
    insert=_GREEN,
    update=_CYAN,
    delete=_RED,
    truncate=_MAGENTA,
    snapshot=_BLUE,
    message=_GREY,
    table="bold",
    key="bold underline",
    name="italic",
    null="italic",
    old="color(16) on color(217)",
    new="color(16) on color(157)",
    note="italic",
    good=_GREEN,
    warning="color(16) on color(229)",
    bad=_RED,
    cure="bold",
    aborted="strike",
    match="bold reverse",
)
SGR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
"""Select Graphic Rendition: a change of style."""
RESET: Final = "\x1b[0m"
_NUMBERS: Final = re.compile(r"[0-9;]+")


def palette(*, color: bool, colors: str | None = None) -> Palette:
    """No colours, or pgtail's palette with the changes in `colors`: THING=STYLE:THING=STYLE...

    A style is one of rich's ("bold red", "color(208) on grey11", "#ff8700"), the numbers of an SGR sequence as in
    GREP_COLORS ("01;31"), or empty for none. Raises OptionError.
    """
    changes = {}
    for item in filter(None, (colors or "").split(":")):
        thing, equals, style = item.partition("=")
        if not equals or thing not in THINGS:
            raise OptionError(f"colours: expected THING=STYLE, not {item}; the things are {', '.join(THINGS)}")
        _style(thing, style)
        changes[thing] = style
    return replace(COLORED, **changes) if color else PLAIN


def _style(thing: str, text: str) -> Style:
    """The style of a thing. Raises OptionError."""
    from rich.ansi import AnsiDecoder
    from rich.errors import StyleSyntaxError
    from rich.style import Style

    if _NUMBERS.fullmatch(text):
        spans = AnsiDecoder().decode_line(f"\x1b[{text}mx").spans
        return spans[0].style if spans and isinstance(spans[0].style, Style) else Style.null()
    try:
        return Style.parse(text) if text else Style.null()
    except StyleSyntaxError:
        raise OptionError(f"colours: {thing}={text} is not a style such as bold red, color(208) or 01;31") from None


def _codes(thing: str, text: str) -> tuple[str, str]:
    """What precedes and follows text of a style. Raises OptionError."""
    if not text:
        return "", ""
    from rich.color import ColorSystem

    before, _, after = _style(thing, text).render("\0", color_system=ColorSystem.TRUECOLOR).partition("\0")
    return before, after


class Painter:
    """Writes fragments in the colours of a palette.

    Text that matches a regular expression of `highlight` is marked. Raises OptionError for an invalid one.
    """

    def __init__(self, palette: Palette, highlight: Iterable[str] = ()) -> None:
        try:
            self._patterns = [re.compile(text) for text in highlight]
        except re.error as error:
            raise OptionError(f"--highlight {error.pattern!r}: {error}") from None
        self.codes: dict[str, tuple[str, str]] = {thing: _codes(thing, getattr(palette, thing)) for thing in THINGS}
        """What precedes and follows text of each style."""
        self._colors = {style: codes if any(codes) else None for style, codes in self.codes.items()} | {"": None}
        plain = not any(self._colors.values())
        self._painted: Callable[[Sequence[Fragment]], Iterable[str]] = partial(map, _TEXT) if plain else self._colored

    def line(self, fragments: Sequence[Fragment]) -> str:
        """The fragments of one line as text, without a newline."""
        return "".join(self._painted(fragments))

    def lines(self, lines: Iterable[Sequence[Fragment]]) -> str:
        """Lines as text, each with a newline."""
        if self._patterns:
            return "".join([f"{self.line(fragments)}\n" for fragments in lines])
        found: list[Fragment] = []
        for fragments in lines:
            found += fragments
            found.append(_NEWLINE)
        return self.line(found)

    def marked_line(self, painted: str) -> str:
        """The same line, already in colours, with its matches marked."""
        fragments, active = list[Fragment](), ""
        for number, part in enumerate(SGR.split(painted)):
            if number % 2 == 0:
                fragments.append((part, active))
            else:
                active = "" if part == RESET else active + part
        found = []
        for text, style in self._marked(fragments):
            before, after = self.codes["match"] if style == "match" else (style, RESET if style else "")
            found.append(f"{before}{text}{after}" if text else "")
        return "".join(found)

    def _colored(self, fragments: Sequence[Fragment]) -> Iterable[str]:
        colors = self._colors
        marked = self._marked(fragments) if self._patterns else fragments
        return [text if (codes := colors[style]) is None else f"{codes[0]}{text}{codes[1]}" for text, style in marked]

    def _marked(self, fragments: Sequence[Fragment]) -> Iterator[Fragment]:
        """The same fragments, split where a match begins or ends; a match may span several."""
        line = "".join([text for text, _ in fragments])
        matches = [range(*match.span()) for pattern in self._patterns for match in pattern.finditer(line) if match[0]]
        cuts = sorted({place for match in matches for place in (match.start, match.stop)})
        at = 0
        for text, style in fragments:
            end = at + len(text)
            places = [at, *[cut for cut in cuts if at < cut < end], end]
            for start, stop in pairwise(places):
                yield line[start:stop], "match" if any(start in match for match in matches) else style
            at = end
