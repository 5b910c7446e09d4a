"""A replica made from the JSON alone, to compare with the rows in state.json. Imports nothing of pgtail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


class Replica:
    """Tables (schema.table) as lists of rows; changes are applied in order, prepared ones at their outcome."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {}
        self._prepared: dict[str, list[dict[str, Any]]] = {}
        self.missed: set[str] = set()
        """Tables with an update or delete that met no row."""

    def apply(self, changes: Iterable[dict[str, Any]]) -> None:
        for change in changes:
            match change["op"]:
                case "commit_prepared":
                    for one in self._prepared.pop(change["gid"], []):
                        self._change(one)
                case "rollback_prepared":
                    self._prepared.pop(change["gid"], None)
                case "insert" | "update" | "delete" | "truncate" if change.get("state") == "prepared":
                    self._prepared.setdefault(change["gid"], []).append(change)
                case "insert" | "update" | "delete" | "truncate":
                    self._change(change)

    def _change(self, change: dict[str, Any]) -> None:
        rows = self.tables.setdefault(f"{change['schema']}.{change['table']}", [])
        if change["op"] == "insert":
            rows.append(dict(change["new"]))
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
