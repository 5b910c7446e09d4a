"""Fixtures for the values: on each server, one database with user-defined types of every sort, in a pinned session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.values import Types
from tests.support.servers import Database, Servers, fresh_database, some_versions
from tests.support.truth import Connection, pin

USER_TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'with space', 'ha"ppy', 'ünï');
CREATE DOMAIN posint AS int4 CHECK (VALUE > 0);
CREATE DOMAIN my_mood AS mood;
CREATE DOMAIN tags AS text[];
CREATE TYPE pair AS (a int4, b text);
CREATE TYPE nested AS (p pair, arr int4[], m mood, pairs pair[], d posint);
CREATE TYPE _underscore AS (x int4);
"""
COMPOSITE_DOMAIN = "CREATE DOMAIN pair_d AS pair"
"""Since PostgreSQL 11."""
RANGE = "CREATE TYPE float8_r AS RANGE (subtype = float8{})"
"""Since PostgreSQL 14 with the name of its multirange."""

EXTENSIONS = ("hstore", "citext", "ltree", "cube")

TYPES_OF_THE_STREAM = """
SELECT t.oid::int8, n.nspname, b.typname, b.typtype = 'e' FROM pg_catalog.pg_type t
CROSS JOIN LATERAL (
    WITH RECURSIVE under AS (
        SELECT t.oid, t.typname, t.typnamespace, t.typtype, t.typbasetype
        UNION ALL
        SELECT d.oid, d.typname, d.typnamespace, d.typtype, d.typbasetype
        FROM under JOIN pg_catalog.pg_type d ON d.oid = under.typbasetype AND under.typtype = 'd'
    ) SELECT * FROM under WHERE typtype <> 'd'
) b JOIN pg_catalog.pg_namespace n ON n.oid = b.typnamespace
WHERE t.oid >= 10000 AND t.typtype <> 'p'
"""


@pytest.fixture(scope="session", params=some_versions(12))
def server(request: pytest.FixtureRequest, servers: Servers) -> EmbeddedServer:
    """A running server. Older ones show floats with other digits, and lack some types."""
    return servers.get(request.param)


class World:
    """A database on one server, with a session in it and the types as a stream would declare them."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self.database = database
        self.connection = connection
        self.extensions: set[str] = set()
        self.oids: dict[str, int] = {}

    @property
    def version(self) -> int:
        return self.database.version

    @property
    def has_xml(self) -> bool:
        """Whether this server was built with libxml."""
        query = b"SELECT 1 FROM pg_config WHERE name = 'CONFIGURE' AND setting LIKE '%with-libxml%'"
        return self.connection.execute(query).fetchone() is not None

    def types(self) -> Types:
        """Every type declared as its Type message would: a domain by its base type, pg_catalog as ''."""
        types = Types()
        enums = []
        for oid, schema, name, is_enum in self.connection.execute(TYPES_OF_THE_STREAM.encode()).fetchall():
            assert isinstance(oid, int)
            types.declare(oid, "" if schema == "pg_catalog" else str(schema), str(name))
            if is_enum:
                enums.append(oid)
        types.declare_enums(enums)
        return types

    def oid(self, type_name: str) -> int:
        row = self.connection.execute(b"SELECT %s::regtype::oid::int8", [type_name]).fetchone()
        assert row is not None
        assert isinstance(row[0], int)
        return row[0]


@pytest.fixture(scope="module")
def world(server: EmbeddedServer) -> Iterator[World]:
    with fresh_database(server) as database, database.connect() as connection:
        world = World(database, connection)
        connection.execute(USER_TYPES.encode())
        if database.version >= 11:
            connection.execute(COMPOSITE_DOMAIN.encode())
        multirange = ", multirange_type_name = float8_mr" if database.version >= 14 else ""
        connection.execute(RANGE.format(multirange).encode())
        found = (
            connection.execute("SELECT name FROM pg_available_extensions").fetchall() if database.version > 10 else ()
        )
        available = {row[0] for row in found}  # what `make servers` fetches for 10 has the control files of another
        for extension in EXTENSIONS:
            if extension in available:
                connection.execute(f"CREATE EXTENSION {extension}".encode())
                world.extensions.add(extension)
        pin(connection)
        yield world
