"""Keyword arguments of the library to the records of options that commands declare."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from inspect import Parameter, cleandoc, signature
from typing import Any, Final, Literal, TypedDict, TypeVar, cast

from msgspec import Struct

from pgtail.api.records import EPOCH, Lsn
from pgtail.api.values import Form
from pgtail.errors import OptionError, PgtailError
from pgtail.humanize import did_you_mean
from pgtail.log import logger
from pgtail.options import Option, from_parameters, options_of
from pgtail.pgoutput.scalars import Point
from pgtail.storage.options import StorageOptions

S = TypeVar("S", bound=Struct)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

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


class MaskArguments(SelectArguments, total=False):
    """Which of their values are masked, too."""

    redact: str | Iterable[str]
    redact_hash: bool
    redact_key_file: str | os.PathLike[str] | None


class FilterArguments(MaskArguments, total=False):
    """What of them, too."""

    columns: str | Iterable[str]
    old_values: Literal["sent", "seen"] | None
    old_values_limit: int | str
    fill_unchanged: bool


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


class ReadArrowArguments(MaskArguments, FileArguments, total=False):
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


def _hints(arguments: type) -> dict[str, str]:
    """The types of arguments, as they are written above."""
    return {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in arguments.__annotations__.items()}


_HAVING: Final = {
    "table_at": _hints(TableAtArguments),
    "follow": _hints(FollowArguments),
    "read": _hints(ReadArguments),
}
_HINTS: Final = {name: hint for hints in _HAVING.values() for name, hint in hints.items()}


def takes(arguments: type, options: type[Struct], command: str) -> Callable[[F], F]:
    """Decorates a function with these keyword arguments, which are options of a command: help() and IDEs list them.

    It raises TypeError for an argument that it does not have, and its errors name arguments, not options.
    """
    hints, declared = _hints(arguments), dict(options_of(options))

    def decorated(function: F) -> F:
        own = signature(function)
        parameters = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        allowed = [*hints, *[one.name for one in parameters if one.kind is not Parameter.VAR_POSITIONAL]]

        @functools.wraps(function)
        def checked(*positional: Any, **given: Any) -> Any:
            for name in given.keys() - {*allowed}:
                having = [f"; {other}() has it" for other, names in _HAVING.items() if name in names]
                meant = having[-1] if having else did_you_mean(name, sorted(allowed))
                raise TypeError(f"{function.__name__}() has no argument {name!r}{meant}")
            with keywords():
                return function(*positional, **given)

        about = f"Arguments, as the options of `{command}`; a repeatable one takes an iterable, too:"
        lines = [cleandoc(function.__doc__ or ""), "", about]
        for name, hint in hints.items():
            option = declared[FIELDS.get(name, name)]
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=option.default, annotation=hint))
            text = re.sub(r"[;.] [^;.]*(config file|exit status)[^;.]*\.", ".", in_keywords(option.help))
            lines += [f"{name}: {hint}", textwrap.indent(textwrap.fill(text, 72), "    ")]
        checked.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        checked.__doc__ = "\n".join(lines)
        return cast(F, checked)

    return decorated


@contextlib.contextmanager
def keywords() -> Iterator[None]:
    """An error of the body names arguments in place of options."""
    try:
        yield
    except PgtailError as error:
        name_arguments(error)
        raise


def named(items: Generator[T]) -> Generator[T]:
    """The items of an iteration whose errors name arguments in place of options."""
    with keywords():
        yield from items


def name_arguments(error: PgtailError) -> None:
    """Let an error name arguments in place of options."""
    error.args = tuple(map(in_keywords, error.args))
    for part in ("reason", "cure"):
        if text := getattr(error, part, None):
            setattr(error, part, in_keywords(text))


def in_keywords(text: str) -> str:
    """A message with the names of arguments in place of those of options, but in commands."""
    return re.sub(r"pgtail [^;.()\n]*|--([a-z-]+)", _keyword, text)


def _keyword(option: re.Match[str]) -> str:
    name = (option[1] or "").replace("-", "_")
    return next((argument for argument in (name, f"{name}s") if argument in _HINTS), option[0])


class _Messages(logging.NullHandler):
    """Comes before the handlers of the program, and lets messages name arguments, too.

    Without any handler, Python writes warnings to standard error.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = in_keywords(record.getMessage()), None
        return True


logger.handlers.insert(0, _Messages())  # the commands, which name options, replace all handlers while they run


def check_form(form: Form) -> Form:
    """What values become. Raises OptionError."""
    if form not in ("python", "text"):
        raise OptionError(f"values: {form!r} is neither 'python' nor 'text'")
    return form


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


def _value(name: str, option: Option, value: Any) -> Any:
    """The value of an option, from an argument."""
    try:
        return _converted(option, value)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None
    except TypeError:
        raise TypeError(f"{name}: {value!r} is not of type {_HINTS[name]}") from None


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
