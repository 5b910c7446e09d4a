"""The captures: table descriptions are the catalog's, and a replica has the published rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.corpus import Capture, capture, captures
from tests.support.decoded import UNDECODABLE, described, own_type_name, parsed
from tests.support.pgtext import Digits, expected
from tests.support.replay import Replica, Row

DDL = "ALTER TABLE is not replicated: rows written before it differ from the final table"
NOT_REPLAYED: dict[str, dict[str, str]] = {
    "A_ddl": {"*": DDL},
    "A_names": {"public.allcols": DDL},
    "C_stream": {"public.st_ddl": DDL},
    "E_parallel": {"public.st_ddl": DDL},
    "D_twophase": {"public.pt_ddl": DDL},
}
ORIGIN_NONE = "local changes meet rows whose insert, from elsewhere, was filtered out by origin=none"


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_table_descriptions_match_the_catalog(capture: Capture) -> None:
    """The last description of each table, unless it was dropped since; DDL after the last change was never sent."""
    state, last = capture.scenario.state, dict[int, dict[str, Any]]()
    for line in parsed(capture):
        if line["op"] == "relation":
            last[int(line["relid"])] = line
    assert last
    compared = 0
    for oid, line in last.items():
        name = f"{line['schema']}.{line['table']}"
        table = state["tables"].get(name)
        if table is None or table["oid"] != oid or capture.scenario.name == "A_ddl":
            continue
        columns = {column["name"]: column for column in table["columns"]}
        identities = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
        assert line["identity"] == identities[table["replica_identity"]]
        for described_ in line["columns"]:
            column = columns[described_["name"]]
            wanted = DOMAIN_BASES.get(column["type"], column["type"])
            assert own_type_name(described_["type"]) == wanted.replace('"', "")
            assert int(described_["typmod"]) == column["typmod"]
            if line["identity"] != "nothing":
                assert described_["key"] == column["key"], (name, column)
            compared += 1
    assert compared or capture.scenario.name == "A_ddl"


DOMAIN_BASES = {"posint": "integer", "posint[]": "posint[]", "tags": "text[]", "email": "text", "pair_d": "pair"}
"""The wire names a domain's base type; for an array over a domain the domain itself."""


def replayed() -> list[Capture]:
    return [c for c in captures() if c.scenario.name != "A_ddl" and str(c) != "pg16-I_gucs-p1_bin"]


@pytest.mark.parametrize("capture", replayed(), ids=str)
def test_a_replica_has_the_published_rows(capture: Capture) -> None:
    lines = list(parsed(capture))
    replica = Replica()
    replica.apply(lines)
    if capture.options.get("origin") == "none":
        assert replica.missed, ORIGIN_NONE
        return
    assert not replica.missed
    excepted = NOT_REPLAYED.get(capture.scenario.name, {})
    types = {f"{schema}.{table}": columns for (schema, table), columns in described(capture).items()}
    for name, table in published(capture).items():
        if name in excepted:
            continue
        rows = replica.tables.get(name, [])
        raw_rows = table["rows_binary_hex"] if capture.binary else [[None] * len(table["columns"])] * len(table["rows"])
        wanted = [
            {
                column: stored(own_type_name(types[name][column]), text, raw)
                for column, text, raw in zip(table["columns"], texts, raws, strict=True)
            }
            for texts, raws in zip(table["rows"], raw_rows, strict=True)
        ]
        assert as_set(rows) == as_set(wanted), name


def as_set(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def stored(type_name: str, text: str | None, raw: str | None) -> Any:
    """The JSON value of a stored value; `raw` is its bytes in hex, from a binary capture."""
    if text is None:
        return None
    if raw is not None and UNDECODABLE.search(type_name):
        return "\\x" + raw
    encoded = text.encode(errors="surrogateescape")
    if encoded != text.encode(errors="replace"):
        return "\\x" + encoded.hex()
    return expected(type_name, text)


def published(capture: Capture) -> dict[str, Any]:
    """What a replica of the capture's publications must hold; the first publication wins."""
    found: dict[str, Any] = {}
    for publication in capture.meta["publications"]:
        for name, table in capture.scenario.state["published"][publication].items():
            found.setdefault(name, table)
    return found


def test_binary_form_does_not_depend_on_settings() -> None:
    """I_gucs: the text captures have German dates and the like; binary values are shown in ISO form."""
    rows = [line["new"] for line in parsed(capture("I_gucs", "p1_bin")) if "new" in line]
    assert rows == [
        {
            "id": Digits("1"),
            "d": "2024-02-29",
            "ts": "2024-02-29 12:34:56.789",
            "tz": "2024-02-29 12:34:56+00",
            "iv": "1 year 2 days 03:04:05",
            "b": "\\x00ff5c27",
            "f": Digits("0.30000000000000004"),
            "m": "$12.50",
        },
        {
            "id": Digits("1"),
            "d": "infinity",
            "ts": "2024-02-29 12:34:56.789",
            "tz": "0044-03-15 00:00:00+00 BC",
            "iv": "1 year 2 days 03:04:05",
            "b": "\\x00ff5c27",
            "f": "NaN",
            "m": "$12.50",
        },
    ]
