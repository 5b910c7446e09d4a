"""A replica made from the JSON alone, to compare with the rows in state.json. Imports nothing of pgtail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

UNKNOWN = object()
"""A value that the stream did not send: of an unchanged column of a row that comes into a row filter."""


class Snapshots:
    """The snapshots that a capture.json lists: from its LSN on, a table has the snapshot's rows and no others."""

    def __init__(self, listed: Iterable[dict[str, Any]]) -> None:
        self._listed = sorted([(_number(one["lsn"]), _name(one)) for one in listed], reverse=True)
        self._rows = {(_number(one["lsn"]), _name(one)): one["rows"] for one in listed}

    def reached(self, lsn: int) -> Iterable[str]:
        """The tables whose snapshots begin before this LSN or end at it, each snapshot once."""
        while self._listed and self._listed[-1][0] <= lsn:
            yield self._listed.pop()[1]

    def count(self, change: dict[str, Any]) -> None:
        """Count a row of a snapshot."""
        self._rows[_number(change["commit_lsn"]) + 1, _name(change)] -= 1

    def check_all_rows_were_there(self) -> None:
        """Raise AssertionError unless the rows are as many as the list says."""
        assert not any(self._rows.values()), self._rows


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _name(one: dict[str, Any]) -> str:
    return f"{one['schema']}.{one['table']}"


class Replica:
    """Tables (schema.table) as lists of rows; changes are applied in order, prepared ones at their outcome."""

    def __init__(self, snapshots: Snapshots | None = None) -> None:
        self.tables: dict[str, list[Row]] = {}
        self._snapshots = snapshots or Snapshots([])
        self._prepared: dict[str, list[dict[str, Any]]] = {}
        self.missed: set[str] = set()
        """Tables with an update or delete that met no row, since their last snapshot."""

    def apply(self, changes: Iterable[dict[str, Any]]) -> None:
        for change in changes:
            match change["op"]:
                case "commit_prepared":
                    self.reach(_number(change["commit_lsn"]))
                    for one in self._prepared.pop(change["gid"], []):
                        self._change(one)
                case "rollback_prepared":
                    self._prepared.pop(change["gid"], None)
                case "insert" | "update" | "delete" | "truncate" if change.get("state") == "prepared":
                    self._prepared.setdefault(change["gid"], []).append(change)
                case "insert" | "update" | "delete" | "truncate" | "snapshot":
                    self._change(change)

    def reach(self, position: int) -> None:
        """Everything before this LSN was applied: snapshots without rows are not among the changes."""
        for name in self._snapshots.reached(position):
            self.tables[name] = []
            self.missed.discard(name)

    def rows(self, name: str) -> list[Row]:
        """The rows of a table (schema.table)."""
        return self.tables.get(name, [])

    def _change(self, change: dict[str, Any]) -> None:
        if change["op"] == "snapshot":
            self._snapshots.count(change)
        self.reach(_number(change["commit_lsn"]) + (change["op"] == "snapshot") if "commit_lsn" in change else 0)
        rows = self.tables.setdefault(_name(change), [])
        if change["op"] in ("insert", "snapshot"):
            rows.append(dict(change["new"]) | dict.fromkeys(change.get("unchanged", []), UNKNOWN))
        elif change["op"] == "truncate":
            rows.clear()
        else:
            self._move(rows, change)

    def _move(self, rows: list[Row], change: dict[str, Any]) -> None:
        wanted = dict(change["old"]) if "old" in change else {name: change["new"][name] for name in change["key"]}
        found = next((row for row in rows if all(row.get(name) == value for name, value in wanted.items())), None)
        if found is None:
            self.missed.add(f"{change['schema']}.{change['table']}")
        elif change["op"] == "delete":
            rows.remove(found)
        else:
            kept = {name: found[name] for name in change.get("unchanged", []) if name in found}
            found.clear()
            found.update(dict(change["new"]) | kept)
