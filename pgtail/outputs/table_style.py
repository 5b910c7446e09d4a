"""Floor 4, how things look on a terminal: colour is data, two palettes and nothing that asks which one it is.

Only ANSI's named colours and attributes, without black and white: the terminal's own theme makes them readable on dark
and on light. Knows no change and no message.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from rich.color import ColorSystem
from rich.style import Style

Fragment: TypeAlias = tuple[str, str]
"""(text that is safe to show, the name of its style: a field of Palette)."""

_NONE: Final = Style.null()


@dataclass(frozen=True, slots=True)
class Palette:
    """One style for each thing that is shown."""

    plain: Style = _NONE
    value: Style = _NONE
    dot: Style = _NONE
    xid: Style = _NONE
    lsn: Style = _NONE
    origin: Style = _NONE
    prepared: Style = _NONE
    insert: Style = _NONE
    update: Style = _NONE
    delete: Style = _NONE
    truncate: Style = _NONE
    message: Style = _NONE
    table: Style = _NONE
    name: Style = _NONE
    null: Style = _NONE
    old: Style = _NONE
    new: Style = _NONE
    note: Style = _NONE
    dim: Style = _NONE
    good: Style = _NONE
    warning: Style = _NONE
    bad: Style = _NONE


PLAIN: Final = Palette()
COLORED: Final = Palette(
    dot=Style.parse("bold blue"),
    xid=Style.parse("bold"),
    lsn=Style.parse("blue"),
    origin=Style.parse("magenta"),
    prepared=Style.parse("cyan"),
    insert=Style.parse("green"),
    update=Style.parse("yellow"),
    delete=Style.parse("red"),
    truncate=Style.parse("bold magenta"),
    message=Style.parse("cyan"),
    table=Style.parse("bold"),
    name=Style.parse("dim"),
    null=Style.parse("dim italic"),
    old=Style.parse("red"),
    new=Style.parse("green"),
    note=Style.parse("dim italic"),
    dim=Style.parse("dim"),
    good=Style.parse("green"),
    warning=Style.parse("yellow"),
    bad=Style.parse("bold red"),
)


class Painter:
    """Writes fragments in the colours of a palette; the codes are made once, by rich."""

    def __init__(self, palette: Palette) -> None:
        self._codes: dict[str, tuple[str, str]] = {}
        for field in fields(palette):
            style: Style = getattr(palette, field.name)
            before, _, after = style.render("\0", color_system=ColorSystem.STANDARD).partition("\0")
            self._codes[field.name] = (before, after)

    def line(self, fragments: list[Fragment]) -> str:
        """The fragments of one line, without its end."""
        codes, parts = self._codes, []
        for text, style in fragments:
            before, after = codes[style]
            parts.append(f"{before}{text}{after}")
        return "".join(parts)
