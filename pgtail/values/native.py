"""The types of a stream as compiled code sees them (codec.Native)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from pgtail.values.codec import Context, Json, Kind, Loader, Native
from pgtail.values.json import json
from pgtail.values.render import booleans, large_numbers, numbers, strings

_Form = Literal["", "string", "number", "boolean", "json", "strings", "numbers", "booleans"]

_SINGLE: Final[dict[Callable[[Context], Json], _Form]] = {
    strings: "string",
    numbers: "number",
    large_numbers: "number",
    booleans: "boolean",
    json: "json",
}
_ITEMS: Final[dict[Kind, _Form]] = {Kind.TEXT: "strings", Kind.NUMBER: "numbers", Kind.BOOL: "booleans"}


def native_of(loader: Loader, context: Context, names: Mapping[Any, str]) -> Native | None:
    """The Native of a type; `names` are the names of the built-in types by loader."""
    if context.encoding != "utf-8":
        return None
    quoted = context.numbers == "string"
    form: _Form = _SINGLE.get(loader.json, "")
    if loader.items is not None and not (quoted and loader.items is Kind.NUMBER):
        form = _ITEMS.get(loader.items, "")
    return Native(form, names.get(loader, ""), quoted and loader.json is large_numbers)
