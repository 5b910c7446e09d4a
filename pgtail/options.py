"""Options as fields of records: declared once; pgtail.cli makes click's options from them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from pgtail.humanize import parse_seconds

OptionKind: TypeAlias = tuple[str, ...] | Literal["text", "number", "positive number", "file", "folder"]
"""What is given on the command line: one of several words, or a text of this kind."""
SettingKind: TypeAlias = Literal["text", "list", "one by one", "flag", "number"]
"""How the config file has it. In a variable, commas separate items of a "list"; "one by one" is a single item."""

_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

MOST_DIGITS: Final = 18
"""Digits that a number may have: Python raises ValueError for thousands of them."""

S = TypeVar("S", bound=Struct)
Changes: TypeAlias = Mapping[str, Mapping[str, Any] | None]
"""Field -> parts of its Option that are replaced, or those of an object's; None leaves out the field."""
NO_CHANGES: Final[Changes] = {}
GIVEN: Final = frozenset(("dsn", "settings", "always_redacted"))
"""Fields that pgtail.cli fills, and that are no options."""


class Option(Struct, frozen=True):
    """How a field is given on the command line.

    `default` is as it would be written there; False makes a flag, () an option that may be repeated. `convert` makes
    the value from the text, or from all texts of an option that may be repeated; raises ValueError and OptionError.
    """

    names: tuple[str, ...]
    help: str
    default: Any = None
    kind: OptionKind = "text"
    convert: Callable[[Any], Any] | None = None
    group: str = "other"
    """A key of pgtail.cli.command.GROUPS."""
    metavar: str | None = None
    shown_default: str | None = None
    """The text that --help shows as the default where `default` is None."""
    completion: str | None = None
    """The function in pgtail.cli.complete that completes the value."""
    setting: SettingKind | None = None
    """Set if the config file and a variable may give the default, under the long name."""
    instead_of: str | None = None
    """The field whose setting does not count if this is given."""
    formats: tuple[str, ...] = ()
    """The output formats that it belongs to; all, if empty."""
    aliases: tuple[str, ...] = ()
    """Older names that still work, which --help does not list."""
    required: bool = False
    counted: bool = False
    """Whether the value is how often it is given."""

    @property
    def long_name(self) -> str:
        """Such as --schema of --schema/--no-schema."""
        return max([name.partition("/")[0] for name in self.names], key=len)

    def __call__(self) -> Any:
        """The value of the field if the option is not given."""
        default = 0 if self.counted else self.default
        return default if self.convert is None or default is None else self.convert(default)


class _Family(Struct, frozen=True):
    """A field with an object of another class, and changes to its options."""

    cls: type[Any]
    changes: Changes

    def __call__(self) -> Any:
        """An object with the defaults of all fields."""
        return self.cls()


def option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002 -- as click calls it
    """A field that is set by an option; `more` are fields of Option."""
    return field(default_factory=Option(names, help, **more))


def family(cls: type[Any], **changes: Mapping[str, Any] | None) -> Any:
    """A field with an object of another such class. `changes` replaces parts of its options; None leaves one out."""
    return field(default_factory=_Family(cls, changes))


def declared_options(cls: type[Struct]) -> Iterator[tuple[str, Option | _Family | None]]:
    """The fields of a class, and what is declared about them: an option, or a family of options, or neither."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__  # those of the last fields
    for name, default in zip(names, (*[None] * (len(names) - len(defaults)), *defaults), strict=True):
        declared = getattr(default, "factory", None)
        yield name, declared if isinstance(declared, Option | _Family) else None


def options_of(cls: type[Any], changes: Changes = NO_CHANGES) -> Iterator[tuple[str, Option]]:
    """The options of a class and of the objects in it, with the names of their fields; `changes` as for family()."""
    for name, declared in declared_options(cls):
        change = changes.get(name, {})
        if change is None or declared is None:
            continue
        if isinstance(declared, _Family):
            yield from options_of(declared.cls, {**declared.changes, **change})
        else:
            yield name, replace(declared, **change) if change else declared


def from_parameters(cls: type[S], parameters: Mapping[str, Any], changes: Changes = NO_CHANGES) -> S:
    """An object of such a class: each field, also of objects inside it, has the parameter of its name.

    A field without one keeps its default, also a field that is no option unless it is in GIVEN.
    """
    values = {}
    for name, declared in declared_options(cls):
        change = changes.get(name, {})
        if change is None:
            continue
        if isinstance(declared, _Family):
            values[name] = from_parameters(declared.cls, parameters, {**declared.changes, **change})
        elif name in parameters and (declared is not None or name in GIVEN):
            values[name] = parameters[name]
    return cls(**values)


def items(values: tuple[str, ...]) -> tuple[str, ...]:
    """The items of values that commas separate."""
    return tuple([item.strip() for value in values for item in value.split(",") if item.strip()])


def limit(text: str) -> int:
    """A number; 0 stands for no limit. Raises ValueError."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise ValueError(f"{text!r} is not a number; 0 means no limit")
    return int(text)


def size_or_no_limit(text: str) -> int | None:
    """A number; None, for no limit, if it is 0. Raises ValueError."""
    return limit(text) or None


def size(text: str) -> int:
    """A number of bytes, with or without a unit: 500MB, 1GB. Raises ValueError."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", text, re.IGNORECASE)
    found = -1 if match is None or len(match[1]) > MOST_DIGITS else int(match[1]) * _SIZES[match[2].lower()]
    if not 0 <= found <= sys.maxsize:
        raise ValueError(f"{text!r} is not a size such as 500MB or 1GB")
    return found


def positive_duration(text: str) -> float:
    """Seconds, with or without a unit: 30s, 500ms, 2m. Raises ValueError, also for 0."""
    seconds = parse_seconds(text)
    if not seconds:
        raise ValueError(f"{text} is not more than 0")
    return seconds
