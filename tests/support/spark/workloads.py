"""Random histories of tables, as SQL for a server: what replication has to be right about; knows nothing of pgtail.

Every table has a history of its own, and all of them lie between each other in one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random


def text(source: Random) -> str:
    """A literal. Half of them are long enough to be stored apart (TOAST)."""
    if source.random() < 0.5:
        return f"repeat(md5('{source.randrange(10**9)}'), 80)"
    return source.choice(["NULL", "''", "'NULL'", "'it''s'", "'é漢😀'", f"'{source.randrange(100)}'"])


def number(source: Random) -> str:
    return source.choice(["NULL", "'NaN'", f"{source.randrange(-(10**6), 10**6)}.{source.randrange(100):02d}", "0.00"])


def when(source: Random) -> str:
    return source.choice(
        ["NULL", "'infinity'", "'0044-03-15 12:00 BC'", f"'{source.randrange(1900, 2100)}-02-03 04:05:06.789+01'"]
    )


@dataclass
class Keyed:
    """A table with a key of one or two columns, and all that can happen to a row."""

    name: str
    source: Random
    pair: bool = False
    by_index: bool = False
    keys: set[int] = field(default_factory=set)
    value: str = "n"

    @property
    def create(self) -> list[str]:
        key = "PRIMARY KEY (a, b)" if self.pair else "UNIQUE (b)" if self.by_index else "PRIMARY KEY (a)"
        columns = (
            "a int, b text NOT NULL, n int, total numeric(10,2), at timestamptz, body text, tags text[], blob bytea"
        )
        found = [
            f"CREATE TABLE {self.name} ({columns}, {key})",
            f"ALTER TABLE {self.name} ALTER body SET STORAGE EXTERNAL",
        ]
        if self.by_index:
            found.append(f"ALTER TABLE {self.name} REPLICA IDENTITY USING INDEX {self.name}_b_key")
        return found

    def step(self) -> list[str]:
        steps: list[Callable[[], list[str]]] = [self.insert] * 4
        if self.keys:
            steps += [self.update] * 6 + [self.move] * 3 + [self.delete] * 2 + [self.reinsert, self.twice]
        if len(self.keys) > 1:
            steps += [self.swap] * 2
        if self.source.random() < 0.04:
            steps = [self.truncate]
        return self.source.choice(steps)()

    def where(self, key: int) -> str:
        return f"a = {key} AND b = 'k{key}'" if self.pair else f"b = 'k{key}'" if self.by_index else f"a = {key}"

    def key(self, key: int) -> str:
        return f"a = {key}, b = 'k{key}'"

    def free(self) -> int:
        return self.source.choice([n for n in range(1, 60) if n not in self.keys])

    def some(self) -> int:
        return self.source.choice(sorted(self.keys))

    def insert(self) -> list[str]:
        key = self.free()
        self.keys.add(key)
        values = f"{key}, 'k{key}', {self.source.randrange(100)}, {number(self.source)}, {when(self.source)}"
        tags = self.source.choice(["NULL", "'{}'", "'{a,NULL,\"b c\"}'", "'{{1},{2}}'"])
        blob = self.source.choice(["NULL", "''", f"'\\x{self.source.randbytes(4).hex()}'"])
        columns = f"a, b, {self.value}, total, at, body, tags, blob"
        return [f"INSERT INTO {self.name} ({columns}) VALUES ({values}, {text(self.source)}, {tags}, {blob})"]

    def update(self) -> list[str]:
        what = self.source.choice(
            [
                f"{self.value} = {self.source.randrange(100)}",
                f"total = {number(self.source)}",
                f"body = {text(self.source)}",
                "body = NULL",
                "b = b",
            ]
        )
        return [f"UPDATE {self.name} SET {what} WHERE {self.where(self.some())}"]

    def twice(self) -> list[str]:
        return [*self.update(), *self.update()]

    def move(self) -> list[str]:
        key, free = self.some(), self.free()
        self.keys ^= {key, free}
        more = self.source.choice(["", f", body = {text(self.source)}", f", {self.value} = 5"])
        return [f"UPDATE {self.name} SET {self.key(free)}{more} WHERE {self.where(key)}"]

    def swap(self) -> list[str]:
        """Some keys, around; one row waits under another key meanwhile."""
        keys = self.source.sample(sorted(self.keys), self.source.randint(2, min(4, len(self.keys))))
        found = [f"UPDATE {self.name} SET {self.key(1000)} WHERE {self.where(keys[0])}"]
        for to, key in pairwise(keys):
            found.append(f"UPDATE {self.name} SET {self.key(to)} WHERE {self.where(key)}")
        return [*found, f"UPDATE {self.name} SET {self.key(keys[-1])} WHERE {self.where(1000)}"]

    def delete(self) -> list[str]:
        key = self.some()
        self.keys.remove(key)
        return [f"DELETE FROM {self.name} WHERE {self.where(key)}"]

    def reinsert(self) -> list[str]:
        found = self.delete()
        return found + self.insert()

    def truncate(self) -> list[str]:
        self.keys.clear()
        return [f"TRUNCATE {self.name}"]


@dataclass
class Bag:
    """A table without a key, of few different rows: under identity full, or one into which rows are only put."""

    name: str
    source: Random
    full: bool = True

    @property
    def create(self) -> list[str]:
        found = [f"CREATE TABLE {self.name} (a int, b text, body text)"]
        found.append(f"ALTER TABLE {self.name} ALTER body SET STORAGE EXTERNAL")
        return found + ([f"ALTER TABLE {self.name} REPLICA IDENTITY FULL"] if self.full else [])

    def step(self) -> list[str]:
        row = f"{self.source.randrange(3)}, {self.source.choice(['NULL', chr(39) * 2, chr(39) + 'x' + chr(39)])}"
        body = self.source.choice(["NULL", "repeat(md5('1'), 80)", "repeat(md5('2'), 80)"])
        insert = f"INSERT INTO {self.name} VALUES ({row}, {body})"
        if self.source.random() < 0.04:
            return [f"TRUNCATE {self.name}"]
        if not self.full or self.source.random() < 0.5:
            return [insert] * self.source.randint(1, 2)
        one = f"ctid = (SELECT min(ctid) FROM {self.name} WHERE a = {self.source.randrange(3)})"
        return [
            self.source.choice(
                [
                    f"UPDATE {self.name} SET a = {self.source.randrange(3)} WHERE {one}",
                    f"UPDATE {self.name} SET b = 'y' WHERE {one}",
                    f"DELETE FROM {self.name} WHERE {one}",
                ]
            )
        ]


Table = Keyed | Bag


def tables(source: Random, count: int = 20) -> list[Table]:
    """Tables of every sort."""
    found: list[Table] = []
    for index in range(count):
        own = Random(source.random())
        name = f"t{index}"
        match index % 5:
            case 0 | 1:
                found.append(Keyed(name, own))
            case 2:
                found.append(Keyed(name, own, pair=True))
            case 3:
                found.append(Keyed(name, own, by_index=True))
            case _:
                found.append(Bag(name, own, full=index % 10 == 4))
    return found


def workload(source: Random, over: list[Table], transactions: int) -> Iterator[list[str]]:
    """Transactions, each to be run as it stands; some are rolled back in part, some are prepared and end later."""
    waiting: list[tuple[Table, str, int]] = []
    for index in range(transactions):
        for table, outcome, at in list(waiting):
            if at <= index:
                waiting.remove((table, outcome, at))
                yield [outcome]
        busy = [table for table, _, _ in waiting]
        chosen = [table for table in source.sample(over, source.randint(1, 3)) if table not in busy]
        if len(chosen) == 1 and source.random() < 0.4:
            outcome = source.choice(["COMMIT", "COMMIT", "ROLLBACK"])
            before = set(chosen[0].keys) if isinstance(chosen[0], Keyed) else set()
            yield ["BEGIN", *_steps(source, chosen), f"PREPARE TRANSACTION 'p{index}'"]
            if isinstance(chosen[0], Keyed) and outcome == "ROLLBACK":
                chosen[0].keys = before
            waiting.append((chosen[0], f"{outcome} PREPARED 'p{index}'", index + source.randint(1, 12)))
        elif chosen:
            yield ["BEGIN", *_steps(source, chosen), "COMMIT"]
    for _, outcome, _ in waiting:
        yield [outcome]


def _steps(source: Random, chosen: list[Table]) -> list[str]:
    steps = [step for table in chosen for _ in range(source.randint(1, 3)) for step in table.step()]
    if source.random() < 0.15:
        lost = f"INSERT INTO {chosen[0].name} (a, b) VALUES (-1, 'lost')"
        steps += ["SAVEPOINT s", lost, "ROLLBACK TO s"]
    return steps


def alterations(number: int) -> list[list[str]]:
    """Tables that are altered in the midst of their changes, as transactions one after another."""
    one, two, three, four = (f"alt{number}_{name}" for name in ("columns", "types", "identity", "full"))
    keyed = "(id int PRIMARY KEY, v int, w text)"
    three_rows = "VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')"
    found = [f"CREATE TABLE {name} {keyed}" for name in (one, two, three)]
    found += [f"INSERT INTO {name} {three_rows}" for name in (one, two, three)]
    found += [
        f"ALTER TABLE {one} ADD _half int DEFAULT 7",
        f"UPDATE {one} SET v = 5 WHERE id = 2",
        f"ALTER TABLE {one} RENAME v TO y",
        f"INSERT INTO {one} VALUES (4, 4, 'd', 4)",
        f"ALTER TABLE {one} DROP w",
        f"UPDATE {one} SET id = 9 WHERE id = 3",
        f"ALTER TABLE {one} RENAME TO {one}_now",
        f"DELETE FROM {one}_now WHERE id = 1",
        f"ALTER TABLE {two} ALTER v TYPE bigint",
        f"UPDATE {two} SET v = 3000000000 WHERE id = 1",
        f"ALTER TABLE {two} ALTER v TYPE numeric(20,2)",
        f"UPDATE {two} SET v = 0.25 WHERE id = 2",
        f"ALTER TABLE {two} ALTER v TYPE int USING v % 1000",
        f"UPDATE {two} SET w = 'z' WHERE id = 2",
        f"ALTER TABLE {three} REPLICA IDENTITY FULL",
        f"UPDATE {three} SET id = 8 WHERE id = 1",
        f"ALTER TABLE {three} REPLICA IDENTITY DEFAULT",
        f"UPDATE {three} SET id = 1, v = 7 WHERE id = 8",
        f"CREATE TABLE {four} (a int, b int)",
        f"ALTER TABLE {four} REPLICA IDENTITY FULL",
        f"INSERT INTO {four} VALUES (1, 1), (1, 1), (2, 2)",
        f"ALTER TABLE {four} ADD c int DEFAULT 3",
        f"DELETE FROM {four} WHERE ctid = (SELECT min(ctid) FROM {four})",
        f"UPDATE {four} SET b = 9 WHERE a = 2",
    ]
    return [[statement] for statement in found]


ORDERS = (
    "CREATE TABLE orders (id int PRIMARY KEY, total numeric(10,2), note text)",
    "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
    "INSERT INTO orders VALUES (1, 1.00, repeat(md5('1'), 80)), (2, 2.00, NULL), (3, 3.00, 'x'), (4, 4.00, 'y')",
    "UPDATE orders SET note = repeat(md5('2'), 80) WHERE id < 3",
    "UPDATE orders SET total = total + 1",
    "UPDATE orders SET id = 9, note = 'moved' WHERE id = 1",
    "UPDATE orders SET id = 1 WHERE id = 3",
    "UPDATE orders SET note = NULL WHERE id = 9",
    "DELETE FROM orders WHERE id = 4",
    "INSERT INTO orders VALUES (4, NULL, repeat(md5('4'), 80)), (5, 5.00, 'z')",
    "UPDATE orders SET total = 0.10 WHERE id = 4",
    "DELETE FROM orders WHERE id = 5",
)
"""The life of the table that the recipes of the manual use."""

ALTERED = ("columns_now", "types", "identity", "full")
"""The last names of these tables, behind alt0_."""


def interleaved(source: Random, *streams: Iterable[list[str]]) -> Iterator[list[str]]:
    """Transactions of several streams, each stream in its order; the first is so long that it lies between all."""
    first, *others = map(list, streams)
    places = sorted((source.random(), index) for index, stream in enumerate(others, 1) for _ in stream)
    places += [((number + 0.5) / len(first), 0) for number in range(len(first))]
    waiting = [iter(stream) for stream in (first, *others)]
    for _, index in sorted(places):
        yield next(waiting[index])
