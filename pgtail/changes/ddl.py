"""Schema changes in logical messages, as `pgtail ddl install` makes a server send them (man page pgtail-ddl(1)).

A message describes a table after a command. Columns have numbers that are used again only if what used them was rolled
back, so two messages about a table show what was added, dropped, renamed and retyped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta, Struct, json
from msgspec.structs import asdict, replace

from pgtail.changes.events import LogicalMessage
from pgtail.values.format_type import quote_ident

PREFIX: Final = "pgtail.ddl"
"""The prefix of the messages."""
VERSION: Final = 1
"""The version of their form."""
AS_BEFORE: Final = "columns as before"
"""The text of a change of something else, such as a constraint."""
_MOST_COLUMNS: Final = 1600
"""Columns that a server's tables can have."""
_MOST_TABLES: Final = 100_000
"""Tables whose last message is kept."""

Attnum: TypeAlias = Annotated[int, Meta(ge=1, le=_MOST_COLUMNS)]
Oid: TypeAlias = Annotated[int, Meta(ge=1, lt=1 << 32)]


class DdlColumn(Struct, frozen=True, omit_defaults=True):
    """A column as pg_attribute has it. `missing` is its value in rows that are older than the column.

    `has_default`: it has a default, or its type has. Where that was evaluated for each older row, nothing is `missing`.
    """

    attnum: Attnum
    name: str
    type: str
    not_null: bool = False
    key: bool = False
    generated: str | None = None
    has_default: bool = False
    missing: str | None = None
    default: str | None = None

    @property
    def text(self) -> str:
        """The column for people."""
        parts = {
            " not null": self.not_null,
            " key": self.key,
            f" generated {self.generated}": self.generated is not None,
            f" default {self.default}": self.default is not None,
            f" (older rows: {self.missing})": self.missing is not None,
        }
        return f"{quote_ident(self.name)} {self.type}{''.join([part for part, given in parts.items() if given])}"


class Ddl(Struct, frozen=True, omit_defaults=True):
    """The content of a message: a table after a command, or only the `error` of the trigger. `tag` is the command's."""

    version: Annotated[int, Meta(ge=1, lt=1 << 32)]
    tag: str
    oid: Oid | None = None
    schema: str | None = None
    name: str | None = None
    dropped: bool = False
    partitioned: bool = False
    identity: str | None = None
    columns: tuple[DdlColumn, ...] = ()
    statement: str | None = None
    error: str | None = None

    @property
    def qualified(self) -> str:
        """The table with its schema, as SQL writes it; empty if the trigger failed."""
        return "" if self.name is None else f"{quote_ident(self.schema or '')}.{quote_ident(self.name)}"

    def masked(self, mask: str) -> Ddl:
        """The same with `mask` in place of everything that may contain a value."""

        def hidden(value: str | None) -> str | None:
            return None if value is None else mask

        columns = [replace(one, missing=hidden(one.missing), default=hidden(one.default)) for one in self.columns]
        return replace(self, columns=tuple(columns), statement=hidden(self.statement), error=hidden(self.error))


class DdlMessage(LogicalMessage, kw_only=True):
    """A logical message about a schema change. `before` is the last message about the table, if one was read."""

    ddl: Ddl
    before: Ddl | None = None

    op: ClassVar[str] = "ddl"

    @property
    def texts(self) -> list[str]:
        """What the command did, for people: the differences to `before`, or a description of the table."""
        return list(_texts(self.before, self.ddl))

    @property
    def alters(self) -> bool:
        """Whether the table is known to have changed."""
        return self.before is not None and self.texts != [AS_BEFORE]

    def masked(self, mask: str) -> DdlMessage:
        """The same with masked values, and without its content."""
        now, before = self.ddl.masked(mask), self.before and self.before.masked(mask)
        return replace(self, ddl=now, before=before, content=mask.encode())


class DdlReader:
    """Reads the messages of one stream, in its order."""

    def __init__(self) -> None:
        self._known: dict[int | None, Ddl] = {}
        """The last message about each table."""

    def read(self, message: LogicalMessage) -> DdlMessage:
        """The schema change in a message. Raises ValueError, which quotes nothing of it, if it has another form."""
        if not message.transactional:
            raise ValueError("it is not transactional")
        ddl, known = parse(message.content), self._known
        before = known.get(ddl.oid)
        if not message.aborted and ddl.error is None:
            known.pop(ddl.oid, None)
            if not ddl.dropped:
                known[ddl.oid] = ddl
            if len(known) > _MOST_TABLES:
                del known[next(iter(known))]
        return DdlMessage(**asdict(message), ddl=ddl, before=before)


def parse(content: bytes) -> Ddl:
    """The schema change in the content of a message. Raises ValueError, which quotes nothing of it."""
    try:
        ddl = json.decode(content, type=Ddl)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its content is not readable: {error}") from None
    if ddl.version != VERSION:
        raise ValueError(f"its form has version {ddl.version}; this pgtail knows version {VERSION}")
    named = None not in (ddl.oid, ddl.schema, ddl.name)
    if not (ddl.error is not None or (named and (ddl.dropped or ddl.identity is not None))):
        raise ValueError("its content names no table")
    if len(ddl.columns) > _MOST_COLUMNS:
        raise ValueError(f"it has {len(ddl.columns)} columns, and no table has more than {_MOST_COLUMNS}")
    return ddl


def _texts(before: Ddl | None, now: Ddl) -> Iterator[str]:
    if now.error is not None:
        yield f"the trigger failed: {now.error}"
    elif now.dropped:
        if now.tag != "DROP TABLE":  # but DROP SCHEMA, say
            yield "the table was dropped"
    elif before is None:
        yield from [column.text for column in now.columns]
        yield f"identity {now.identity}"
    else:
        yield from list(_differences(before, now)) or [AS_BEFORE]


def _differences(before: Ddl, now: Ddl) -> Iterator[str]:
    if before.qualified != now.qualified:
        yield f"renamed from {before.qualified}"
    old = {column.attnum: column for column in before.columns}
    new = {column.attnum: column for column in now.columns}
    for number, column in old.items():
        if number not in new:
            yield f"- {quote_ident(column.name)}"
        else:
            yield from _alterations(column, new[number])
    yield from [f"+ {column.text}" for number, column in new.items() if number not in old]
    if before.identity != now.identity:
        yield f"identity {before.identity} → {now.identity}"


def _alterations(before: DdlColumn, now: DdlColumn) -> Iterator[str]:
    name = quote_ident(now.name)
    if before.name != now.name:
        yield f"{quote_ident(before.name)} renamed to {name}"
    if before.type != now.type:
        yield f"{name} {before.type} → {now.type}"
    if before.not_null != now.not_null:
        yield f"{name} {'not null' if now.not_null else 'nullable'}"
    if before.key != now.key:
        yield f"{name} {'joined' if now.key else 'left'} the key"
    if before.generated != now.generated:
        yield f"{name} {f'generated {now.generated}' if now.generated else 'no longer generated'}"
    if before.default != now.default:
        yield f"{name} {f'default {now.default}' if now.default else 'without default'}"
    elif before.has_default != now.has_default:
        yield f"{name} {'with' if now.has_default else 'without'} default"
