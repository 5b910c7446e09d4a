"""The tables as they are at each point of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.schema import Type as TypeMessage
from pgtail.records import NamedTuple, Record
from pgtail.values import UNKNOWN, Codec, Types

IDENTITIES = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
"""REPLICA IDENTITY in words, by pg_class.relreplident."""


def unnamed(index: int) -> str:
    """The name shown for a column that the table does not have: ?1 for index 0."""
    return f"?{index + 1}"


class Column(Record, uncompared=("codec",)):
    """One column; `key` marks the columns of the replica identity."""

    name: str
    type_oid: int
    typmod: int
    key: bool
    type_name: str
    codec: Codec


class Named(NamedTuple):
    """A Relation without columns."""

    oid: int
    schema: str
    name: str
    identity: str
    seen: bool

    @property
    def relation(self) -> Relation:
        return Relation(self.oid, self.schema, self.name, self.identity, (), self.seen)


class Relation(Record, uncompared=("version", "beyond")):
    """One version of a table. `seen` is False if only its OID is known."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]
    seen: bool = True
    version: int = 0
    beyond: Codec = UNKNOWN
    """The codec for cells without a column."""

    @property
    def key_indexes(self) -> list[int]:
        """The indexes of the replica identity's columns; none with FULL, where the server flags every column."""
        return [] if self.identity == "full" else [index for index, column in enumerate(self.columns) if column.key]

    @property
    def key(self) -> list[str]:
        """The names of these columns."""
        return [self.columns[index].name for index in self.key_indexes]

    def column_name(self, index: int) -> str:
        """The name of the column at `index`, counted from 0; ?n if this table has no such column."""
        return self.columns[index].name if index < len(self.columns) else unnamed(index)

    @property
    def qualified(self) -> str:
        """schema.table without quotes, for people."""
        return f"{self.schema}.{self.name}" if self.seen else f"relation {self.oid}"

    @property
    def name_or_oid(self) -> str:
        """The name alone, or "relation OID" if it was not described."""
        return self.name if self.seen else self.qualified

    @property
    def named(self) -> Named:
        """What other processes may know of it: its codecs stay in this one."""
        return Named(self.oid, self.schema, self.name, self.identity, self.seen)


class Relations:
    """The current version of every table, for the session and for each open streamed transaction.

    A Relation sent inside a stream segment applies to its transaction at once, and to all after its commit: the server
    does not always send it again (src/backend/replication/logical/worker.c, apply_handle_stream_commit).
    """

    def __init__(self, types: Types) -> None:
        self._types = types
        self.current: dict[int, Relation] = {}
        """The current tables outside stream segments."""
        self._open: dict[int, dict[int, tuple[int, Relation]]] = {}
        self._described: dict[int, int] = {}
        self.messages = 0
        """How many Relation messages were seen."""
        self.changes = 0
        """How often `current` changed."""
        self.incomplete = False
        """Whether any of them was not described."""
        self.versions: list[Relation] = []
        """Every distinct version; `Relation.version` is the index."""

    def see_type(self, message: TypeMessage) -> None:
        self._types.declare(message.oid, message.namespace, message.name)

    def see(self, message: RelationMessage, stream: int | None = None) -> tuple[Relation | None, Relation]:
        """A Relation message, inside a segment of transaction `stream` or outside: (version before, version now)."""
        before = self._find(message.oid, stream)
        now = self._describe(message)
        if now == before:
            now = before
        else:
            self.versions.append(now)
        self.messages += 1
        if stream is None:
            self._set_current(self.messages, now)
        else:
            self._open.setdefault(stream, {})[message.oid] = (self.messages, now)
        return before, now

    def get(self, oid: int, stream: int | None = None) -> Relation:
        """The current version of a table; one with `seen` False if it was not described."""
        relation = self._find(oid, stream)
        if relation is None:
            version, beyond = len(self.versions), self._types.unknown()
            relation = Relation(oid, "", "", "", (), seen=False, version=version, beyond=beyond)
            self.versions.append(relation)
            self.incomplete = True
            self.current[oid] = relation
            self.changes += 1
        return relation

    def keep(self, stream: int) -> None:
        """The streamed transaction was committed or prepared: its tables now apply to all.

        Except for tables described again since then: the server sent that description later.
        """
        for count, relation in self._open.pop(stream, {}).values():
            if count > self._described.get(relation.oid, 0):
                self._set_current(count, relation)

    def drop(self, stream: int) -> None:
        """The streamed transaction was rolled back: the server will send its tables again."""
        self._open.pop(stream, None)

    def _set_current(self, count: int, relation: Relation) -> None:
        self._described[relation.oid] = count
        self.current[relation.oid] = relation
        self.changes += 1

    def _find(self, oid: int, stream: int | None) -> Relation | None:
        if stream is not None:
            found = self._open.get(stream, {}).get(oid)
            if found is not None:
                return found[1]
        return self.current.get(oid)

    def _describe(self, message: RelationMessage) -> Relation:
        columns = tuple(
            [
                Column(
                    column.name,
                    column.type_oid,
                    column.typmod,
                    column.is_key,
                    self._types.type_name(column.type_oid, column.typmod),
                    self._types.codec(column.type_oid, column.typmod),
                )
                for column in message.columns
            ]
        )
        return Relation(
            message.oid,
            message.namespace or "pg_catalog",
            message.name,
            IDENTITIES[message.identity],
            columns,
            version=len(self.versions),
            beyond=self._types.unknown(),
        )


def differences(before: Relation, now: Relation) -> list[str]:
    """The differences between two versions of a table, for people.

    A column at the same index with another name and the same type counts as renamed: Relation has no column numbers.
    """
    found = []
    if (before.schema, before.name) != (now.schema, now.name):
        found.append(f"renamed from {before.qualified}")
    if before.identity != now.identity:
        found.append(f"replica identity {before.identity} -> {now.identity}")
    return found + _column_differences(before.columns, now.columns)


def _column_differences(before: Sequence[Column], now: Sequence[Column]) -> list[str]:
    old, new = {column.name: column for column in before}, {column.name: column for column in now}
    pairs = zip(before, now, strict=True) if len(before) == len(now) else ()
    renamed = {
        one.name: other.name
        for one, other in pairs
        if one.name not in new and other.name not in old and one.type_oid == other.type_oid
    }
    found = [f"column {name} renamed to {renamed[name]}" for name in renamed]
    found += [f"column {name} dropped" for name in old if name not in new and name not in renamed]
    found += [f"column {name} added" for name in new if name not in old and name not in renamed.values()]
    return found + [text for name in new if name in old for text in _alterations(old[name], new[name])]


def _alterations(before: Column, now: Column) -> Iterator[str]:
    """The differences between two columns of the same name."""
    if (before.type_oid, before.typmod) != (now.type_oid, now.typmod):
        types = f" from {before.type_name} to {now.type_name}" if before.type_name != now.type_name else ""
        yield f"column {now.name} retyped{types}"
    elif before.type_name != now.type_name:
        yield f"column {now.name}: its type {before.type_name} is called {now.type_name} now"
    if before.key != now.key:
        yield f"column {now.name} {'joined' if now.key else 'left'} the replica identity"
