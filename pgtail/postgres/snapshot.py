"""Sessions that read the database under the exported snapshot of a slot: its rows at the slot's consistent point."""

from __future__ import annotations

from typing import Final, Self

from pgtail.errors import ServerError
from pgtail.postgres import catalog
from pgtail.postgres.connection import Connection, Connector
from pgtail.postgres.rows import Row

_PASSTHROUGH: Final = "surrogateescape"


class SnapshotSession:
    """A session in a read-only transaction with an imported snapshot; a context that closes it.

    It keeps the snapshot after the session that exported it has ended, and loses it with its connection. `encoding` is
    that of the names and texts which the server sends. One thread at a time may use it.
    """

    def __init__(self, connection: Connection, encoding: str) -> None:
        self.connection = connection
        self.encoding = encoding

    @classmethod
    def open(
        cls, connector: Connector, snapshot: str, *, encoding: str | None = None, connect_timeout: int | None = None
    ) -> Self:
        """Import an exported snapshot. Raises ServerError.

        `encoding` is the stream's (--encoding): with it the server sends text as it stores it, and UTF8 otherwise.
        """
        passthrough = encoding is not None
        connection = connector.importing(snapshot, passthrough=passthrough, connect_timeout=connect_timeout)
        return cls(connection, encoding or "utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The server's server_version_num."""
        return self.connection.pgconn.server_version

    def clock(self) -> int:
        """The server's clock now, in microseconds since 2000-01-01 UTC. Raises ServerError."""
        return catalog.clock(self.connection)

    def name(self, row: Row, column: str) -> str:
        """A name in the catalog. Bytes that are not valid in the encoding become lone surrogates."""
        return row.raw(column).decode(self.encoding, _PASSTHROUGH)

    def encoded(self, text: str) -> bytes:
        """A statement with such names as the server reads it. Raises ServerError."""
        try:
            return text.encode(self.encoding, _PASSTHROUGH)
        except UnicodeEncodeError as error:
            wrong = text[error.start : error.end]
            raise ServerError(f"{self.encoding} cannot encode {wrong!r}, which is part of a name") from None

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
