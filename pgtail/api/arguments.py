"""Keyword arguments of the library to the records of options that commands declare."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, cast

from msgspec import Struct

from pgtail.api.records import EPOCH, Lsn
from pgtail.api.values import Form
from pgtail.errors import OptionError
from pgtail.humanize import did_you_mean
from pgtail.options import Option, from_parameters, options_of
from pgtail.pgoutput.scalars import Point
from pgtail.storage.options import StorageOptions

S = TypeVar("S", bound=Struct)

FIELDS: Final = {"op": "ops", "xid": "xids", "publication": "publications", "startpos": "start"}
"""The arguments that have another name than the field of their option."""


class SelectArguments(TypedDict, total=False):
    """Which changes. As the options of these names; `tables` as --table, an iterable for several."""

    tables: str | Iterable[str]
    exclude: str | Iterable[str]
    op: str | Iterable[str]
    xid: int | Iterable[int]
    where: str | Iterable[str]
    since: str | Lsn | datetime | None
    until: str | Lsn | datetime | None
    limit: int | None
    context: str | None


class FilterArguments(SelectArguments, total=False):
    """What of them, too."""

    columns: str | Iterable[str]
    redact: str | Iterable[str]
    redact_hash: bool
    redact_key_file: str | os.PathLike[str] | None
    old_values: Literal["sent", "seen"] | None
    old_values_limit: int | str
    fill_unchanged: bool
    values: Form


class FileArguments(TypedDict, total=False):
    """How files are read."""

    input_format: str | None
    encoding: str
    types: str | Iterable[str]
    storage: Mapping[str, str]
    verify: bool
    strict: bool
    resync: bool


class ReadArguments(FilterArguments, FileArguments, total=False):
    """The arguments of read()."""


class ReadArrowArguments(SelectArguments, FileArguments, total=False):
    """The arguments of read_arrow()."""


class TableAtArguments(TypedDict, total=False):
    """As the options of `pgtail show` of these names."""

    at: str | Lsn | datetime | None
    before: str | Lsn | datetime | None
    history: bool
    ddl: bool
    where: str | Iterable[str]
    storage: Mapping[str, str]


class FollowArguments(FilterArguments, total=False):
    """What is followed, and from where to where."""

    host: str | None
    port: int | str | None
    username: str | None
    dbname: str | None
    slot: str | None
    fork: str | None
    create_slot: bool
    publication: str | Iterable[str]
    allow_missing_publication: bool
    startpos: str | Lsn | None
    snapshot: bool
    reconnect: bool | None
    spill_limit: int | str
    encoding: str | None
    proto_version: int | None
    binary: bool
    messages: bool | None
    origin: Literal["any", "none"]
    streaming: Literal["off", "on", "parallel"] | None
    two_phase: bool


_HINTS: Final = {**FollowArguments.__annotations__, **ReadArguments.__annotations__, **TableAtArguments.__annotations__}


@contextlib.contextmanager
def keywords() -> Iterator[None]:
    """An OptionError of the body, or of the function that this decorates, names arguments in place of options."""
    try:
        yield
    except OptionError as error:
        error.args = (in_keywords(str(error)),)
        raise


def in_keywords(text: str) -> str:
    """A message with the names of arguments in place of those of options, but in commands."""
    return re.sub(r"pgtail [^;.()\n]*|--([a-z-]+)", _keyword, text)


def _keyword(option: re.Match[str]) -> str:
    name = (option[1] or "").replace("-", "_")
    return next((argument for argument in (name, f"{name}s") if argument in _HINTS), option[0])


def form_of(arguments: Mapping[str, Any]) -> Form:
    """What values become. Raises OptionError."""
    form = arguments.get("values", "python")
    if form not in ("python", "text"):
        raise OptionError(f"values: {form!r} is neither 'python' nor 'text'")
    return cast(Form, form)


def record_of(cls: type[S], arguments: Mapping[str, Any]) -> S:
    """The record of options that these arguments ask for. Raises OptionError, and TypeError for a wrong type."""
    options = dict(options_of(cls))
    return from_parameters(
        cls,
        {
            field: _value(name, options[field], value)
            for name, value in arguments.items()
            if (field := FIELDS.get(name, name)) in options
        },
    )


def check_names(function: str, arguments: Iterable[str], allowed: type) -> None:
    """Raises TypeError for an argument that the TypedDict `allowed` does not have; it names the most similar."""
    names = sorted(allowed.__annotations__)
    for name in arguments:
        if name not in names:
            raise TypeError(f"{function}() has no argument {name!r}{did_you_mean(name, names)}")


def _value(name: str, option: Option, value: Any) -> Any:
    """The value of an option, from an argument."""
    try:
        return _converted(option, value)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None
    except TypeError:
        hint = getattr(_HINTS[name], "__forward_arg__", _HINTS[name])
        raise TypeError(f"{name}: {value!r} is not of type {hint}") from None


def _converted(option: Option, value: Any) -> Any:
    """Raises ValueError for a value that the option does not have, TypeError for one of another type."""
    if value is None:
        return option()
    if isinstance(option.default, bool) or "/" in option.names[0]:
        return _typed(bool, value)
    if isinstance(value, Mapping) and option.metavar == "KEY=VALUE":
        return StorageOptions.of({_typed(str, key): _typed(str, text) for key, text in value.items()})
    if isinstance(value, datetime) and option.metavar == "TIME|LSN":
        if value.tzinfo is None:
            value = value.astimezone()  # local time, as in texts
        return Point(time=(value - EPOCH) // timedelta(microseconds=1))
    if option.default == ():
        if isinstance(value, Mapping):
            raise TypeError
        texts = (value,) if isinstance(value, str | int) else tuple(value)
        texts = tuple([_typed(int if option.kind == "number" else str, text) for text in texts])
        return texts if option.convert is None else option.convert(texts)
    if option.kind in ("number", "positive number"):
        if _typed(int, value) < 1:
            raise ValueError(f"{value} is not a positive number")
        return value
    number = isinstance(value, Lsn) or (isinstance(value, int) and option.metavar in ("SIZE", "PORT"))
    text = str(value) if number else _typed(str, os.fspath(value))
    if isinstance(option.kind, tuple) and text not in option.kind:
        raise ValueError(f"{text!r} is none of {', '.join(option.kind)}{did_you_mean(text, option.kind)}")
    return text if option.convert is None else option.convert(text)


def _typed(type_: type, value: Any) -> Any:
    """The value itself. Raises TypeError if it is of another type."""
    if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
        raise TypeError
    return value
