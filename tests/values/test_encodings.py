"""Names of encodings: PostgreSQL's and Python's are both known."""

from __future__ import annotations

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.values.encodings import of_postgresql
from tests.support.servers import fresh_database

NOT_IN_PYTHON = {"EUC_TW", "MULE_INTERNAL", ""}
"""PostgreSQL 19 has no MULE_INTERNAL, and no name for its number."""


def test_the_server_encodings_are_known_by_their_names(newest_server: EmbeddedServer) -> None:
    """The first 35 are the server encodings: clients have some more (src/include/mb/pg_wchar.h)."""
    with fresh_database(newest_server) as database:
        names = {name for (name,) in database.query("SELECT pg_encoding_to_char(n) FROM generate_series(0, 34) n")}
    assert {"UTF8", "KOI8U"} <= names
    for name in names - NOT_IN_PYTHON:
        assert of_postgresql(name) == of_postgresql(name.lower())


@pytest.mark.parametrize("name", ["WIN1252", "cp1252", "windows-1252"])
def test_names_of_one_encoding(name: str) -> None:
    assert of_postgresql(name) == "cp1252"


@pytest.mark.parametrize(
    "name", ["klingon", "utf-16", "utf-7", "utf-8-sig", "base64", "raw_unicode_escape", "EUC_TW", "\0"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(LookupError):
        of_postgresql(name)
