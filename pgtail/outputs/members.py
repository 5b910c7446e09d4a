"""The members in which two long values of a column differ, for people: of JSON, arrays, hstores and composites.

A path follows the name of the column: `.key` and `[0]` in JSON and hstore, `[1]` with the subscripts of SQL in arrays,
`.f1` for the first field of a composite, whose names are not known. Values of members are JSON, those of json and jsonb
as they were sent.
"""

from __future__ import annotations

import re
from json import dumps
from typing import Any, Final, NamedTuple

from pgtail.changes.operand import children
from pgtail.changes.relations import Column
from pgtail.pgoutput.cells import Binary, Cell
from pgtail.terminal.escape import escape_json, hides
from pgtail.terminal.layout import SPACE, Item, SizedItem, middle_cut, sized
from pgtail.terminal.style import Fragment
from pgtail.terminal.values import ValueStyle
from pgtail.values import Undecoded, ValueKind
from pgtail.values.arraytext import bounds
from pgtail.values.extensions import TYPES, hstore_pairs

MOST: Final = 5
"""Members of a value that are shown; the others are counted."""
_LONGEST: Final = 64 * 1024
"""Bytes of a value whose members are compared."""
_DEEPEST: Final = 32
"""Levels of nesting; what is deeper is compared as one value."""
_LEAST: Final = 12
"""The smallest limit of a value in cells."""
_ADDED: Final[Fragment] = ("(added)", "note")
_REMOVED: Final[Fragment] = ("(removed)", "note")

_FIELD: Final = r'(?:"[^"\\]*(?:(?:""|\\\\)[^"\\]*)*"|[^"\\(),\s]*)'
_is_composite = re.compile(rf"\({_FIELD}(?:,{_FIELD})*\)").fullmatch
_fields = re.compile(rf"[(,]({_FIELD})").findall
_doubled = re.compile(r'(["\\])\1').sub
_lower_bounds = re.compile(r"\[(-?[0-9]+):").findall


class ChangedMember(NamedTuple):
    """A member that differs: its path, and its values as JSON; None where there is none."""

    path: tuple[str, ...]
    old: str | None
    new: str | None

    def named(self, column: str, cells: int) -> str:
        """The path after the name of the column, cut in the middle if it is wider than `cells`."""
        return middle_cut(column + "".join(self.path), cells)

    def shown(self, style: ValueStyle) -> tuple[Item, Item]:
        """The texts before and after an arrow; empty if it was added or removed."""
        if self.old is None:
            return (), (*style.bare(self.new or "", "new"), SPACE, _ADDED)
        if self.new is None:
            return (*style.bare(self.old, "old"), SPACE, _REMOVED), ()
        return style.texts(self.old, self.new, bare=True)

    def line(self, column: str, arrow: Item, cells: int, style: ValueStyle) -> SizedItem:
        """All of it on a line of `cells` cells; the path, the old and the new value have a third if they need it."""
        room = cells - len(":  → ")
        limit = max((room - min(len(column) + sum(map(len, self.path)), room // 3)) // 2, _LEAST)
        before, now = self.shown(ValueStyle(min(limit, style.limit or limit)))
        size, item = sized((*before, *(arrow if before and now else ()), *now))
        return sized(((self.named(column, cells - len(": ") - size) + ":", "name"), SPACE, *item))


def changed_members(column: Column, old: Cell, new: Cell, style: ValueStyle) -> list[ChangedMember]:
    """The members in which two values of a column differ.

    Empty if `style` has room for both values side by side, or if they cannot be compared by members: other types and
    kinds, masked, very long and invalid values, keys that come twice, and what differs in blanks or the order of keys
    alone.
    """
    if not (isinstance(old, bytes) and isinstance(new, bytes) and len(old) <= _LONGEST >= len(new)):
        return []
    if style.limit is None or column.codec.masks:
        return []
    try:
        if len(column.codec.text(old)) + len(column.codec.text(new)) <= style.limit:
            return []
        (before, first), (now, first_now) = _document(column, old), _document(column, new)
        if not before or not now or before == now or first != first_now or len(before) + len(now) > 4 * _LONGEST:
            return []  # the JSON of a composite is longer than its text
        return [member for member in _compared(before, now, (), first) if member.path]
    except (Undecoded, ValueError, RecursionError):
        return []


def _document(column: Column, cell: bytes) -> tuple[str, tuple[int, ...]]:
    """A value as JSON, empty if it has no members, and the subscripts of the first elements of its outer arrays."""
    codec, first = column.codec, tuple[int, ...]()
    text = codec.text(cell)
    if codec.kind is ValueKind.ARRAY:
        first = (1,) * (len(text) - len(text.lstrip("{")))
        if not isinstance(cell, Binary) and (match := bounds(text)) is not None:
            cell, first = cell[match.end() - 1 :], tuple(map(int, _lower_bounds(match[0])))
    if codec.kind in (ValueKind.ARRAY, ValueKind.JSON):
        json = codec.json_binary(cell) if isinstance(cell, Binary) else codec.json_text(cell)
        return json.decode().strip(), first
    schema, _, name = column.type_name.rpartition(".")
    if schema and name == "hstore":
        return dumps(hstore_pairs(text), ensure_ascii=False), ()
    if schema and name not in TYPES and _is_composite(text):
        fields = [_doubled(r"\1", field[1:-1]) if field[:1] == '"' else field or None for field in _fields(text[:-1])]
        return dumps({f"f{place}": field for place, field in enumerate(fields, 1)}, ensure_ascii=False), ()
    return "", ()


def _compared(old: str, new: str, path: tuple[str, ...], first: tuple[int, ...]) -> list[ChangedMember]:
    """The differences of two values below a path; these values if they do not differ in their members."""
    members = list[ChangedMember]()
    if old[0] == new[0] and old[0] in "[{" and len(path) < _DEEPEST:
        sides: list[list[tuple[Any, str]]] = [[*children(old)], [*children(new)]]
        if old[0] == "[":
            sides = _middles(*sides)
        before, now = map(dict, sides)
        if len(before) == len(sides[0]) and len(now) == len(sides[1]):
            for key in [key for key in now | before if before.get(key) != now.get(key)]:
                step = f"[{key + (first[0] if first else 0)}]" if isinstance(key, int) else _key(key)
                was, value = before.get(key), now.get(key)
                if was is None or value is None:
                    members.append(ChangedMember((*path, step), was, value))
                else:
                    members += _compared(was, value, (*path, step), first[1:])
    return members or [ChangedMember(path, old, new)]


def _middles(*sides: list[tuple[Any, str]]) -> list[list[tuple[Any, str]]]:
    """The elements of two arrays, by their places, without those that both have at their start and end."""
    old, new = sides
    most = min(len(old), len(new))
    start = next((at for at in range(most) if old[at] != new[at]), most)
    end = next((at for at in range(most - start) if old[-1 - at] != new[-1 - at]), most - start)
    return [[(at, side[at][1]) for at in range(start, len(side) - end)] for side in sides]


def _key(key: str) -> str:
    """The step to a key, quoted as in jsonpath unless it is a plain name."""
    plain = key.isidentifier() and not hides(key)
    return "." + (key if plain else escape_json(dumps(key, ensure_ascii=False)))
