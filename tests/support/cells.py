"""Binary cells of every type for tests without a server, from the final tables of the PostgreSQL 16 captures."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgtail.values import Types
from pgtail.values.format_type import builtin_type_name
from pgtail.values.oids import BUILTIN
from tests.support.corpus import Scenario

DOMAINS = {"posint": ("", "int4"), "email": ("", "text"), "tags": ("", "_text"), "pair_d": ("public", "pair")}
"""The base types of the domains in A_types, as Type messages name them."""

UNDECODABLE = ("reg", "float8_r", "float8_mr")
"""Prefixes of the names of types whose binary form cannot be decoded."""


@dataclass(frozen=True)
class Truth:
    """One value: its type's OID and name, its text, and its send function's bytes, if its type has one."""

    type_name: str
    oid: int
    text: str
    binary: bytes | None


@functools.cache
def named_oids() -> dict[str, int]:
    """The OIDs of the built-in types, as format_type() spells them."""
    return {builtin_type_name(oid).replace('"bit"', "bit").replace("bpchar", "character"): oid for oid in BUILTIN}


class TypesScenario:
    """The scenario A_types of one version."""

    def __init__(self, version: str) -> None:
        self.state: Any = Scenario(version, "A_types").state
        self._oids = {row["name"]: int(oid) for oid, row in self.state["types"].items()}

    def types(self) -> Types:
        """The user-defined types, declared as the stream would; the enum by its name."""
        types = Types(enums=["mood"])
        for name, oid in self._oids.items():
            types.declare(oid, *DOMAINS.get(name, ("public", name)))
        return types

    def values(self) -> Iterator[Truth]:
        """Every value that is not NULL in the final tables."""
        for name, table in self.state["tables"].items():
            published = self.state["published"]["pub"][name]
            for row, cells in zip(published["rows"], published["rows_binary_hex"], strict=True):
                for column, text, cell in zip(table["columns"], row, cells, strict=True):
                    if text is not None:
                        binary = None if cell is None else bytes.fromhex(cell)
                        yield Truth(column["type"], self._oid(column["type"]), text, binary)

    def _oid(self, type_name: str) -> int:
        plain = re.sub(r"\(.*?\)", "", type_name).replace("interval year to month", "interval")
        if plain in named_oids():
            return named_oids()[plain]
        return self._oids[f"_{plain[:-2]}" if plain.endswith("[]") else plain]


@functools.cache
def binary_cells() -> list[tuple[int, bytes]]:
    """Type OID and binary cell of the values of PostgreSQL 16."""
    return [(truth.oid, truth.binary) for truth in TypesScenario("pg16").values() if truth.binary is not None]


def array(element_oid: int, *cells: bytes) -> bytes:
    """A binary array of one dimension."""
    header = b"".join(number.to_bytes(4) for number in (1, 0, element_oid, len(cells), 1))
    return header + b"".join(len(cell).to_bytes(4) + cell for cell in cells)


def record(*fields: tuple[int, bytes]) -> bytes:
    """A binary composite value: the OID and the cell of each field."""
    return len(fields).to_bytes(4) + b"".join(oid.to_bytes(4) + len(cell).to_bytes(4) + cell for oid, cell in fields)
