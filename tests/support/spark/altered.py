"""Random histories of a table that is altered in every way that pgtail's event triggers describe exactly."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

VALUES = {
    "integer": ("1", "-7", "NULL"),
    "text": ("'a'", "''", "'it''s'", "NULL"),
    "numeric(10,2)": ("1.50", "'NaN'", "NULL"),
    "date": ("'2024-02-29'", "'infinity'", "NULL"),
    "integer[]": ("'{1,NULL}'", "'{}'", "NULL"),
}
CREATE = "CREATE TABLE altered (id int PRIMARY KEY, a integer, b integer, c text)"


class Altered:
    """The table, and statements that change it."""

    def __init__(self, choose: Random) -> None:
        self._choose = choose
        self._columns = {"a": "integer", "b": "integer", "c": "text"}
        self._id = self._number = 0

    def transactions(self, count: int) -> Iterator[list[str]]:
        """Some are rolled back in part. The last one ends with a row: the stream does not have what comes after it."""
        for number in range(count):
            statements = list(self._statements(self._choose.randrange(1, 4), first=True))
            if self._choose.random() < 0.2:
                before = dict(self._columns)
                lost = [*self._statements(2)]
                self._columns = before
                statements += ["SAVEPOINT a", *lost, "ROLLBACK TO a", *self._statements(1)]
            if self._choose.random() < 0.2:
                statements += ["SAVEPOINT b", self._alter(), "RELEASE b", *self._rows(1)]
            if number == count - 1:
                statements.append(self._insert())
            yield ["BEGIN", *statements, "COMMIT"]

    def _statements(self, count: int, *, first: bool = False) -> Iterator[str]:
        for _ in range(count):
            if self._choose.random() < 0.4:
                yield self._drop_and_add() if first and self._choose.random() < 0.3 else self._alter()
            else:
                yield from self._rows(self._choose.randrange(1, 3))
            first = False

    def _rows(self, count: int) -> Iterator[str]:
        for _ in range(count):
            kind = self._choose.random()
            if kind < 0.5 or not self._id:
                yield self._insert()
            elif kind < 0.9 and self._columns:
                name = self._choose.choice([*self._columns])
                value = self._value(self._columns[name])
                yield f"UPDATE altered SET {name} = {value} WHERE id = {self._choose.randint(1, self._id)}"
            else:
                yield f"DELETE FROM altered WHERE id = {self._choose.randint(1, self._id)}"

    def _insert(self) -> str:
        self._id += 1
        values = ", ".join([str(self._id), *map(self._value, self._columns.values())])
        return f"INSERT INTO altered ({', '.join(['id', *self._columns])}) VALUES ({values})"

    def _value(self, kind: str) -> str:
        return self._choose.choice(VALUES[kind])

    def _new_name(self) -> str:
        self._number += 1
        names = ["a", "b", "c", "d", f"n{self._number}"]
        return self._choose.choice([name for name in names if name not in self._columns])

    def _alter(self) -> str:
        kind, columns = self._choose.random(), self._columns
        if columns and kind < 0.3:
            old, new = self._choose.choice([*columns]), self._new_name()
            self._columns = {new if name == old else name: kind_ for name, kind_ in columns.items()}
            return f"ALTER TABLE altered RENAME {old} TO {new}"
        if columns and kind < 0.5:
            name = self._choose.choice([*columns])
            del columns[name]
            return f"ALTER TABLE altered DROP {name}"
        if kind < 0.6:
            return f"ALTER TABLE altered REPLICA IDENTITY {self._choose.choice(('FULL', 'DEFAULT'))}"
        name, kind_ = self._new_name(), self._choose.choice([*VALUES])
        columns[name] = kind_
        return f"ALTER TABLE altered ADD {name} {self._definition(kind_)}"

    def _drop_and_add(self) -> str:
        """A column in the place of another one, whose name and type it has."""
        if not self._columns:
            return self._alter()
        name = self._choose.choice([*self._columns])
        kind = self._columns[name] = self._columns.pop(name)
        return f"ALTER TABLE altered DROP {name}, ADD {name} {self._definition(kind)}"

    def _definition(self, kind: str) -> str:
        value = self._value(kind)
        return kind if value == "NULL" else f"{kind} DEFAULT {value}"
