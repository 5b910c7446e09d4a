"""Statistics that several processes count: what each sends, and how that is joined in the order of the stream."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from pgtail.changes.relations import Named
from pgtail.records import NamedTuple
from pgtail.stats.collect import Statistics
from pgtail.stats.hot_keys import HotKeys, size_of_last
from pgtail.stats.key_tables import KeyContent, with_prefix
from pgtail.stats.rate import Rate
from pgtail.stats.transactions import PartTransactions
from pgtail.values import Types

MOST: Final = 1 << 18
"""Keys that a process keeps."""
_MOST_BYTES: Final = 16 << 20
"""Bytes of different keys."""


class _KeySequence(HotKeys):
    """Keys in their order: how HotKeys count them depends on all keys before. `full` is called when there are many."""

    def __init__(self, full: Callable[[], None]) -> None:
        super().__init__()
        self.numbers: dict[bytes, int] = defaultdict(count().__next__)
        self.sequence = array("I")
        """The numbers of all keys."""
        self._full = full

    def add(self, key: bytes) -> None:
        self.add_all((key,))

    def add_all(self, keys: Sequence[bytes]) -> None:
        before = len(self.numbers)
        self.sequence.extend(map(self.numbers.__getitem__, keys))
        self.size += size_of_last(self.numbers, len(self.numbers) - before)
        if self.size >= _MOST_BYTES or len(self.sequence) >= MOST:
            self._full()


class Counted(NamedTuple):
    """What a process has counted since it last sent that."""

    tables: list[tuple[Named, dict[str, Any]]]
    transactions: PartTransactions
    rate: Rate
    keys: list[bytes]
    """Different keys."""
    sequence: array[int]
    """All keys, by their places there."""
    key_tables: Mapping[bytes, KeyContent]
    """The tables of the keys, by prefix."""
    types: Mapping[int, tuple[str, str]]
    """Types.declared."""
    messages: int
    message_bytes: int
    snapshots: int
    schema_changes: list[tuple[Named, list[str]]]
    more_schema_changes: int


class PartStatistics:
    """Makes `stats` count parts of a stream, and takes from it what was counted. `full` is called before it is much.

    `types` are those of the stream.
    """

    def __init__(self, stats: Statistics, types: Types, full: Callable[[], None]) -> None:
        self._stats, self._types, self._full = stats, types, full
        self._restart()

    def take(self) -> Counted:
        """What was counted since the last call."""
        stats, keys, transactions = self._stats, self._keys, self._transactions
        transactions.full = None
        counted = Counted(
            tables=[(table.relation.named, table.take()) for table in stats.tables.values() if table.any],
            transactions=transactions,
            rate=stats.rate,
            keys=[*keys.numbers],
            sequence=keys.sequence,
            key_tables=stats.key_tables.used_by(keys.numbers),
            types=self._types.declared,
            messages=stats.messages,
            message_bytes=stats.message_bytes,
            snapshots=stats.snapshots,
            schema_changes=[(relation.named, found) for relation, found in stats.schema_changes],
            more_schema_changes=stats.more_schema_changes,
        )
        self._restart()
        return counted

    def _restart(self) -> None:
        """Count from 0."""
        stats = self._stats
        stats.hot_keys = self._keys = _KeySequence(self._full)
        stats.transactions = self._transactions = PartTransactions(self._full)
        stats.rate, stats.schema_changes = Rate(), []
        stats.messages = stats.message_bytes = stats.snapshots = stats.more_schema_changes = 0


def join(stats: Statistics, counted: Counted, types: Types) -> None:
    """Add what a process has counted of the next part of the stream; `types` are those of the stream."""
    for named, counts in counted.tables:
        table = stats.table(named.relation)
        table.relation = named.relation
        table.join(counts)
    stats.transactions.join(counted.transactions)
    stats.rate.join(counted.rate)
    _join_keys(stats, counted, types)
    stats.messages += counted.messages
    stats.message_bytes += counted.message_bytes
    stats.snapshots += counted.snapshots
    stats.more_schema_changes += counted.more_schema_changes
    for named, found in counted.schema_changes:
        stats.add_schema_change(named.relation, found)


def _join_keys(stats: Statistics, counted: Counted, types: Types) -> None:
    for oid, (namespace, name) in counted.types.items():
        types.declare(oid, namespace, name)
    prefixes = {prefix: stats.key_tables.adopt(one, types) for prefix, one in counted.key_tables.items()}
    keys = counted.keys
    if any(theirs != ours for theirs, ours in prefixes.items()):
        keys = [with_prefix(key, prefixes) for key in keys]
    stats.hot_keys.add_all([keys[number] for number in counted.sequence])
