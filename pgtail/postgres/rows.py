"""Results of SQL queries: rows whose values are read by name and checked type.

The values are decoded here, because psycopg's own loaders trust the types that the server names. A value of another
type raises ServerError with the purpose of the query and the value. Errors of psycopg become ServerError here, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.pq.abc import PGresult

from pgtail._orjson import orjson
from pgtail.errors import ServerError
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.postgres.errors import one_line, server_error
from pgtail.terminal.escape import quoted

_Read = TypeVar("_Read")
_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_LONGEST: Final = 80
"""Maximum characters of a value in an error."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_LARGEST: Final = 1 << 63
_STRAY: Final = re.compile("[\udc80-\udcff]")
_CURE: Final = "Connect to the PostgreSQL server itself: this is not one, or something in between changes its answers."
_UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""What psycopg raises, besides its own errors, for a malformed reply."""


class Row:
    """One row or one JSON object: values by name. `purpose` names the result in errors ("the slots").

    Each method raises ServerError if the value has another type. The `optional` ones return None for NULL and for a
    missing name.
    """

    __slots__ = ("_purpose", "_values")

    def __init__(self, purpose: str, values: Mapping[str, Any]) -> None:
        self._purpose = purpose
        self._values = values

    @property
    def names(self) -> list[str]:
        return list(self._values)

    def text(self, name: str) -> str:
        return self._required(name, self.optional_text(name), "text")

    def raw(self, name: str) -> bytes:
        """The bytes of a text as the server sent them."""
        return self._required(name, self._read(name, "text", _raw), "text")

    def integer(self, name: str) -> int:
        return self._required(name, self.optional_integer(name), "a whole number")

    def boolean(self, name: str) -> bool:
        return self._required(name, self.optional_boolean(name), "true or false")

    def lsn(self, name: str) -> int:
        return self._required(name, self.optional_lsn(name), "a log position")

    def optional_text(self, name: str) -> str | None:
        return self._read(name, "text", _text)

    def optional_integer(self, name: str) -> int | None:
        """A signed 64-bit integer."""
        return self._read(name, "a whole number", _integer)

    def optional_boolean(self, name: str) -> bool | None:
        return self._read(name, "true or false", _boolean)

    def optional_lsn(self, name: str) -> int | None:
        return self._read(name, "a log position", lambda value: parse_lsn(_text(value)))

    def optional_seconds(self, name: str) -> float | None:
        return self._read(name, "a number of seconds", _seconds)

    def optional_time(self, name: str) -> datetime | None:
        """A timestamp with time zone, converted to UTC."""
        return self._read(name, "a time", lambda value: datetime.fromisoformat(_text(value)).astimezone(UTC))

    def any(self, name: str) -> Any:
        """A JSON value; None if it is missing."""
        return self._values.get(name)

    def texts(self, name: str) -> list[str]:
        """A JSON list of texts."""
        return self._required(name, self._read(name, "a list of texts", _texts), "a list of texts")

    def object(self, name: str) -> Row:
        """A JSON object; an empty one for NULL."""
        found = self._read(name, "a JSON object", _object)
        return Row(self._purpose, found or {})

    def _read(self, name: str, kind: str, read: Callable[[Any], _Read]) -> _Read | None:
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return read(value)
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise unreadable(self._purpose, f"{name} is {shown(value)}, not {kind}") from None

    def _required(self, name: str, value: _Read | None, kind: str) -> _Read:
        if value is None:
            raise unreadable(self._purpose, f"{name} is missing, it should be {kind}")
        return value


def rows(connection: _Connection, purpose: str, query: str, *values: object) -> list[Row]:
    """All rows of a query; `purpose` names them in errors. Raises ServerError."""
    try:
        # Without values psycopg uses the simple protocol, the only one that a walsender has.
        cursor = connection.execute(query.encode(), values or None)
        result = cursor.pgresult
        if result is None or cursor.description is None:
            return []
        return of_result(purpose, result)
    except psycopg.Error as error:
        if isinstance(error, psycopg.NotSupportedError) and error.sqlstate is None:
            raise unreadable(purpose, shown(str(error))) from None  # an encoding that psycopg does not know
        raise translated(connection, error) from error
    except _UNREADABLE as error:
        raise unreadable(purpose, f"psycopg cannot decode it ({shown(str(error))})") from None


def translated(connection: _Connection, error: psycopg.Error) -> ServerError:
    """The ServerError for an error that psycopg raised on this connection."""
    role = connection.pgconn.user.decode(errors="replace")
    return server_error(error.sqlstate, error.diag.message_primary or one_line(str(error)), role=role)


def of_result(purpose: str, result: PGresult) -> list[Row]:
    """All rows of a result."""
    names = [(result.fname(column) or b"").decode(errors="replace") for column in range(result.nfields)]
    return [
        Row(purpose, {name: _decoded(result.get_value(row, column)) for column, name in enumerate(names)})
        for row in range(result.ntuples)
    ]


def only(connection: _Connection, purpose: str, query: str, *values: object) -> Row:
    """The only row of a query. Raises ServerError, also if there is not exactly one."""
    return single(purpose, rows(connection, purpose, query, *values))


def single(purpose: str, found: list[Row]) -> Row:
    """The only row of these. Raises ServerError if there is not exactly one."""
    if len(found) != 1:
        raise unreadable(purpose, f"it has {len(found)} rows, not one")
    return found[0]


def first(connection: _Connection, purpose: str, query: str, *values: object) -> Row | None:
    """The first row of a query, or None. Raises ServerError."""
    return next(iter(rows(connection, purpose, query, *values)), None)


def run(connection: _Connection, purpose: str, statement: str, *values: object) -> None:
    """Run a statement and ignore its result. Raises ServerError."""
    rows(connection, purpose, statement, *values)


def unreadable(purpose: str, reason: str) -> ServerError:
    """The error for an answer that no PostgreSQL server gives."""
    return ServerError(f"the server's answer about {purpose} cannot be read: {reason}.", cure=_CURE)


def shown(value: object) -> str:
    """A value from the server for an error message: cut and escaped for a terminal."""
    text = _spelled(str(value)[: _LONGEST + 1], "\\")
    return quoted(text[:_LONGEST]) + ("..." if len(text) > _LONGEST else "")


def _decoded(value: bytes | None) -> str | None:
    """The text of a value. Names of other databases and roles may be in any encoding, even inside JSON."""
    return None if value is None else bytes(value).decode("utf-8", "surrogateescape")


def _text(value: object) -> str:
    r"""Text, with bytes that are not UTF-8 as \xNN."""
    if not isinstance(value, str):
        raise TypeError
    return _spelled(value, "\\")


def _raw(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return value.encode("utf-8", "surrogateescape")


def _integer(value: object) -> int:
    """JSON may contain numbers as strings, such as transaction ids."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -_LARGEST <= value < _LARGEST:
        raise TypeError
    return value


def _boolean(value: object) -> bool:
    if value in ("t", "f"):
        return value == "t"
    if not isinstance(value, bool):
        raise TypeError
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return value


def _object(value: object) -> dict[str, Any]:
    found = value if isinstance(value, dict) else _parsed(value)
    if not isinstance(found, dict):
        raise TypeError
    return found


def _texts(value: object) -> list[str]:
    found = value if isinstance(value, list) else _parsed(value)
    if not isinstance(found, list):
        raise TypeError
    return [_text(one) for one in found]


def _parsed(value: object) -> Any:
    """Parsed JSON that can also be written: no numbers beyond 64 bits, lone surrogates or extreme nesting."""
    if not isinstance(value, str):
        raise TypeError
    found = json.loads(_spelled(value, "\\\\"))
    orjson.dumps(found)
    return found


def _spelled(text: str, backslash: str) -> str:
    return _STRAY.sub(lambda found: f"{backslash}x{ord(found[0]) & 0xFF:02x}", text)
