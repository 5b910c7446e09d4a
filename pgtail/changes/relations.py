"""The tables as they are at each point of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pgtail.pgoutput.decoder import AnyFrame, FromClient, PartitionOf
from pgtail.pgoutput.rows import Delete, Insert, Update
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.schema import Type as TypeMessage
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame
from pgtail.values import UNKNOWN, Codec, Types, ValueKind
from pgtail.values.format_type import quote_ident

IDENTITIES = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
"""REPLICA IDENTITY in words, by pg_class.relreplident."""


def unnamed(index: int) -> str:
    """The name shown for a column that the table does not have: ?1 for index 0."""
    return f"?{index + 1}"


class Column(Struct, frozen=True, eq=False):
    """One column; `key` marks the columns of the replica identity. Equal to another one whatever their codecs are."""

    name: str
    type_oid: int
    typmod: int
    key: bool
    type_name: str
    codec: Codec

    def __repr__(self) -> str:
        return f"<column {self.name!r} {self.type_name}>"

    @property
    def may_have_members(self) -> bool:
        """Whether it is JSON, an array or of a type of users, such as a composite."""
        return self.codec.kind in (ValueKind.JSON, ValueKind.ARRAY) or "." in self.type_name

    @property
    def _compared(self) -> tuple[object, ...]:
        return self.name, self.type_oid, self.typmod, self.key, self.type_name

    def __eq__(self, other: object) -> bool:
        return self._compared == other._compared if isinstance(other, Column) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared)


class Relation(Struct, frozen=True, eq=False):
    """One version of a table, equal to one that describes the same. `seen` is False if only its OID is known.

    `partition` is set if the table's partitions have a common replica identity of fewer columns than its own: it is the
    first of those with the fewest columns, here without columns. `identity` is then theirs, or nothing if they have
    different ones. It is no key of the table: two partitions may have rows with the same values.
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]
    seen: bool = True
    version: int = 0
    beyond: Codec = UNKNOWN
    """The codec for cells without a column."""
    partition: Relation | None = None

    def __repr__(self) -> str:
        return f"<relation {self.oid} {self.schema!r}.{self.name!r} {[*self.columns]}>"

    @property
    def _compared(self) -> tuple[object, ...]:
        return self.oid, self.schema, self.name, self.identity, self.columns, self.seen, self.partition

    def __eq__(self, other: object) -> bool:
        return self._compared == other._compared if isinstance(other, Relation) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def key_indexes(self) -> list[int]:
        """The indexes of the replica identity's columns; none with FULL, where the server flags every column."""
        return [] if self.identity == "full" else [index for index, column in enumerate(self.columns) if column.key]

    @property
    def to_alter(self) -> Relation:
        """The table whose replica identity is to be altered: a partition, if that is why the old row is not sent."""
        return self.partition or self

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
    def quoted(self) -> str:
        """The same as SQL writes it."""
        return f"{quote_ident(self.schema)}.{quote_ident(self.name)}" if self.seen else self.qualified

    @property
    def name_or_oid(self) -> str:
        """The name alone, or "relation OID" if it was not described."""
        return self.name if self.seen else self.qualified


Versions: TypeAlias = tuple[Relation | None, Relation]
"""The version of a table before, None if there was none, and the version now."""
_Identity: TypeAlias = tuple[str, frozenset[str]]
"""A replica identity in words, and its columns."""


_BETWEEN: Final = (RelationMessage, TypeMessage, Keepalive, StandbyStatusUpdate, UnknownFrame, FromClient)
"""Messages that may stand between the Relations of root and partition and the change."""


class Relations:
    """The current version of every table, for the session and for each open streamed transaction.

    A Relation sent inside a stream segment applies to its transaction at once, and to all after its commit: the server
    does not always send it again (src/backend/replication/logical/worker.c, apply_handle_stream_commit).

    With publish_via_partition_root the changes of all partitions have the root's Relation, but an old row has only the
    columns of its partition's own replica identity: the rest is NULL. So a table with known partitions has the columns
    that all their identities share, if its own identity has more.

    A partition is known by its Relation, which servers send right after that of the root and right before a change of
    it (src/backend/replication/pgoutput/pgoutput.c, maybe_send_schema). Captures repeat it between two of the root.
    Call follow() with each message, before see(), and set `adjacent` to None where messages are left out.
    """

    def __init__(self, types: Types) -> None:
        self._types = types
        self.current: dict[int, Relation] = {}
        """The current tables outside stream segments."""
        self._open: dict[int, dict[int, tuple[int, Relation]]] = {}
        self._described: dict[int, int] = {}
        self.messages = 0
        self.changes = 0
        """How often `current` changed."""
        self.incomplete = False
        """Whether any of them was not described."""
        self.versions: list[Relation] = []
        """Every distinct version; `Relation.version` is the index."""
        self.adjacent: tuple[int | None, int] | None = None
        """The OIDs of the last two Relations, the first None if another message is between them; None if one is after
        them. Types do not count."""
        self._own: dict[int, Relation] = {}
        """Tables as the server described them, by the versions that have the identity of partitions."""
        self._partitions: dict[int, dict[_Identity, dict[int, Relation]]] = {}
        """The known partitions of each table by their identities, both by OID, in the order of their descriptions."""

    def see_type(self, message: TypeMessage) -> None:
        self._types.declare(message.oid, message.namespace, message.name)

    def see(self, message: RelationMessage, stream: int | None = None) -> Versions:
        """A Relation message, inside a segment of transaction `stream` or outside."""
        self.messages += 1
        self.adjacent = (None if self.adjacent is None else self.adjacent[1], message.oid)
        return self._replace(self._describe(message), stream, self.messages)

    @property
    def expects_row(self) -> bool:
        """Whether the next message must be decoded, as it may identify a partition."""
        if self.adjacent is None:
            return False
        root, leaf = self.adjacent
        return root is not None or self._is_partition(leaf)

    def partition_of(self, message: AnyFrame) -> PartitionOf | None:
        """The partition that a message shows the table described last to be; None if it shows none."""
        if self.adjacent is None or not isinstance(message, Insert | Update | Delete | RelationMessage):
            return None
        root, leaf = self.adjacent
        oid = message.oid if isinstance(message, RelationMessage) else message.relation
        if oid == leaf:
            own = not isinstance(message, RelationMessage) and self._is_partition(leaf)
            return PartitionOf(leaf, leaf) if own else None
        return PartitionOf(root, leaf) if oid == root else None

    def follow(self, message: AnyFrame, stream: int | None = None) -> list[Versions]:
        """Process the next message, inside a segment of transaction `stream` or outside; return changed versions."""
        partition_of = self.partition_of(message)
        if partition_of is not None or not isinstance(message, _BETWEEN):
            self.adjacent = None
        return [] if partition_of is None else self.set_partition(partition_of, stream)

    def set_partition(self, partition_of: PartitionOf, stream: int | None = None) -> list[Versions]:
        """Mark a table as a partition, or no longer as one; returns the versions that this changes.

        A table with a column that the root lacks is not marked.
        """
        root, leaf = partition_of
        if root == leaf:
            return self._remove_partition(leaf)
        table, partition = self._find(root, stream), self._find(leaf, stream)
        if table is None or partition is None or not _names(partition.columns) <= _names(table.columns):
            return []
        identity = (partition.identity, frozenset(partition.key))
        groups = self._partitions.setdefault(root, {})
        if leaf not in groups.get(identity, ()):
            self._remove(root, leaf)
        groups.setdefault(identity, {})[leaf] = replace(partition, columns=(), partition=None)
        before, now = self._replace(self._own.get(table.version, table), stream, self.messages)
        self.changes += 1
        return [] if now is before else [(before, now)]

    def _is_partition(self, oid: int) -> bool:
        return any(oid in group for groups in self._partitions.values() for group in groups.values())

    def _remove_partition(self, leaf: int) -> list[Versions]:
        changes = []
        for root in [root for root, groups in self._partitions.items() if any(leaf in one for one in groups.values())]:
            self._remove(root, leaf)
            table = self.current.get(root)
            if table is not None:
                changes.append(self._replace(self._own.get(table.version, table), None, self._described[root]))
        return [(before, now) for before, now in changes if now is not before]

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
                self._set_current(count, self._version(self._own.get(relation.version, relation), relation))

    def drop(self, stream: int) -> None:
        """The streamed transaction was rolled back: the server will send its tables again."""
        self._open.pop(stream, None)

    def _replace(self, own: Relation, stream: int | None, count: int) -> Versions:
        """Replace a table by this description, with its partitions' identity: (version before, version now)."""
        before = self._find(own.oid, stream)
        now = self._version(own, before)
        if stream is None:
            self._set_current(count, now)
        else:
            self._open.setdefault(stream, {})[own.oid] = (count, now)
        return before, now

    def _version(self, own: Relation, before: Relation | None) -> Relation:
        """The version of a table that the server described so; `before` if that is the same."""
        now = self._as_partitions(own)
        if now == before:
            return before
        if now is not own:
            self._own[len(self.versions)] = own
        now = replace(now, version=len(self.versions))
        self.versions.append(now)
        return now

    def _as_partitions(self, own: Relation) -> Relation:
        """A table with the identity that its partitions have in common, if its own is more than that."""
        groups = self._partitions.get(own.oid, {}).items()
        if not groups:
            return own
        names = _names(own.columns)
        identity = names if own.identity == "full" else frozenset(own.key)
        partial = [(word, key, next(iter(group.values()))) for (word, key), group in groups if word != "full"]
        if all(identity <= key for _, key, _ in partial):
            return own
        common = names.intersection(*[key for _, key, _ in partial])
        word, _, partition = min(partial, key=lambda one: (identity <= one[1], len(one[1])))
        return replace(
            own,
            identity=word if all(key == common for _, key, _ in partial) else "nothing",
            columns=tuple([replace(column, key=column.name in common) for column in own.columns]),
            partition=partition,
        )

    def _remove(self, root: int, leaf: int) -> None:
        groups = self._partitions.get(root, {})
        for identity, group in list(groups.items()):
            group.pop(leaf, None)
            if not group:
                del groups[identity]

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
        types = self._types
        columns = [
            Column(
                c.name, c.type_oid, c.typmod, c.is_key, types.type_name(c.type_oid, c.typmod), types.codec(c.type_oid)
            )
            for c in message.columns
        ]
        schema, identity = message.namespace or "pg_catalog", IDENTITIES[message.identity]
        return Relation(message.oid, schema, message.name, identity, tuple(columns), beyond=types.unknown())


def _names(columns: Sequence[Column]) -> frozenset[str]:
    return frozenset([column.name for column in columns])


def differences(before: Relation, now: Relation) -> list[str]:
    """The differences between two versions of a table, for people.

    A column at the same index with another name and the same type counts as renamed: Relation has no column numbers.
    """
    texts = []
    if (before.schema, before.name) != (now.schema, now.name):
        texts.append(f"renamed from {before.quoted}")
    if (before.identity, before.partition) != (now.identity, now.partition):
        texts.append(f"replica identity {before.identity} -> {now.identity}{_as_of(now)}")
    return texts + _column_differences(before.columns, now.columns)


def _as_of(relation: Relation) -> str:
    """Says whose replica identity a table has, if that is not its own."""
    if relation.partition is None:
        return ""
    name, identity = relation.to_alter.quoted, relation.partition.identity
    if identity != relation.identity:
        return f": its partitions have different ones, {name} {identity}"
    return f", that of its partition {name}"


def _column_differences(before: Sequence[Column], now: Sequence[Column]) -> list[str]:
    old, new = {column.name: column for column in before}, {column.name: column for column in now}
    pairs = zip(before, now, strict=True) if len(before) == len(now) else ()
    renamed = {
        one.name: other.name
        for one, other in pairs
        if one.name not in new and other.name not in old and one.type_oid == other.type_oid
    }
    texts = [f"column {quote_ident(name)} renamed to {quote_ident(renamed[name])}" for name in renamed]
    texts += [f"column {quote_ident(name)} dropped" for name in old if name not in new and name not in renamed]
    texts += [f"column {quote_ident(name)} added" for name in new if name not in old and name not in renamed.values()]
    return texts + [text for name in new if name in old for text in _alterations(old[name], new[name])]


def _alterations(before: Column, now: Column) -> Iterator[str]:
    """The differences between two columns of the same name."""
    column = f"column {quote_ident(now.name)}"
    if (before.type_oid, before.typmod) != (now.type_oid, now.typmod):
        types = f" from {before.type_name} to {now.type_name}" if before.type_name != now.type_name else ""
        yield f"{column} retyped{types}"
    elif before.type_name != now.type_name:
        yield f"{column}: its type {before.type_name} is called {now.type_name} now"
    if before.key != now.key:
        yield f"{column} {'joined' if now.key else 'left'} the replica identity"
