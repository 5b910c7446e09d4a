"""The versions of a table and what a row becomes from one to the next; knows no Spark and no Arrow array.

pgoutput sends a table's columns, not what ALTER TABLE did with its rows. What that leaves open is unknown, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pgtail.spark.typed.arrow_types import STRING, Declared, arrow_type, widest
from pgtail.values.oids import BUILTIN


class Column(NamedTuple):
    """A column of one version of a table."""

    name: str
    declared: Declared


@dataclass(frozen=True, slots=True)
class Version:
    """A table as a Relation message described it. `key` is empty for identity full, and if there is none."""

    relation: str
    schema: str
    table: str
    identity: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def full(self) -> bool:
        """Whether the server sends the whole old row."""
        return self.identity == "full"

    @property
    def identified(self) -> bool:
        """Whether updates and deletes say which row they are about."""
        return self.full or bool(self.key)

    @property
    def identifying(self) -> tuple[str, ...]:
        """The columns that say it: the key, or all of them."""
        return tuple(column.name for column in self.columns) if self.full else self.key

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Version:
        """From a row of `relations`."""
        columns = tuple(
            Column(one["name"], Declared(one["type_oid"], one["typmod"], one["type"])) for one in row["columns"]
        )
        flagged = tuple(one["name"] for one in row["columns"] if one["key"])
        key = flagged if row["identity"] in ("default", "index") else ()
        return cls(row["relation"], row["schema"], row["table"], row["identity"], key, columns)


def kept(before: Version, now: Version) -> dict[str, str]:
    """The columns whose values stay known from one version to the next: name before -> name now.

    A column at the same place with another name and the same type counts as renamed, as long as the number of columns
    is the same: the protocol has no column numbers. Nor does it send a USING expression of ALTER TABLE. If rows are
    found by a column's text, the text must stay exactly the same.
    """
    old, new = dict(before.columns), dict(now.columns)
    found = {}
    for name, declared in old.items():
        stays = same_text if now.full or name in now.key else same_value
        if name in new and stays(declared, new[name]):
            found[name] = name
    if len(before.columns) == len(now.columns):
        for was, becomes in zip(before.columns, now.columns, strict=True):
            if was.name not in new and becomes.name not in old and was.declared == becomes.declared:
                found[was.name] = becomes.name
    return found


_INTEGERS: Final = frozenset({"int2", "int4", "int8"})
_EXACT: Final = _INTEGERS | {"numeric"}
_TEXTS: Final = frozenset({"text", "varchar"})
_SAME_AS_TEXT: Final = frozenset({"text", "varchar", "int2", "int4", "int8", "oid", "numeric", "uuid", "json", "name"})
"""The types whose cast to text gives their output, whatever the session's settings were."""


def same_text(before: Declared, now: Declared) -> bool:
    """Whether ALTER TABLE ... TYPE, without USING, leaves PostgreSQL's text of every value as it was."""
    if (before.oid, before.typmod) == (now.oid, now.typmod):
        return True
    if before.oid not in BUILTIN or now.oid not in BUILTIN:
        return False
    was, becomes = BUILTIN[before.oid].name, BUILTIN[now.oid].name
    if becomes in _TEXTS and was in _SAME_AS_TEXT:
        return now.typmod < 0 or (was == becomes and 0 <= before.typmod <= now.typmod)
    if was == becomes and was in ("timestamp", "timestamptz"):
        return now.typmod in (-1, 6)
    if becomes == "numeric" and now.typmod < 0:
        return was in _EXACT
    return was in _INTEGERS and becomes in _INTEGERS and _holds(before, now)


def same_value(before: Declared, now: Declared) -> bool:
    """Whether ALTER TABLE ... TYPE, without USING, leaves every value as it was; decimals may get other zeros."""
    if same_text(before, now):
        return True
    numbers = all(one.oid in BUILTIN and BUILTIN[one.oid].name in _EXACT for one in (before, now))
    return numbers and arrow_type(now) != STRING and _holds(before, now)


def _holds(before: Declared, now: Declared) -> bool:
    return bool(widest((arrow_type(before), arrow_type(now))) == arrow_type(now))
