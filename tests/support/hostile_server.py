"""A hostile server: a proxy in front of a real server that can change any message, at any stage of a session.

Messages that it does not change are genuine, so a test can make a single reply wrong.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

_LENGTH: Final = struct.Struct(">I")
_NO_ENCRYPTION: Final = frozenset({80877103, 80877104})
"""The codes of SSLRequest and GSSENCRequest."""
_CANCEL: Final = 80877102


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the real server. `query` is the query that it answers, None before the first one."""

    kind: bytes
    body: bytes
    query: str | None
    replication: bool

    @property
    def whole(self) -> bytes:
        """The bytes on the wire."""
        return message(self.kind, self.body)


Change: TypeAlias = Callable[[Reply], bytes | None]
"""Returns what the client gets in place of a message: any bytes, or None to close the connection."""


class Last(bytes):
    """Bytes after which the connection is closed, whether or not the real server has more to say."""


def unchanged(reply: Reply) -> bytes:
    """Change nothing."""
    return reply.whole


def message(kind: bytes, body: bytes) -> bytes:
    """The bytes of a message on the wire."""
    return kind + _LENGTH.pack(len(body) + 4) + body


def failure(text: bytes, sqlstate: bytes = b"XX000", severity: bytes = b"ERROR") -> bytes:
    """An ErrorResponse."""
    fields = {b"S": severity, b"V": severity, b"C": sqlstate, b"M": text}
    return message(b"E", b"".join([key + value + b"\0" for key, value in fields.items()]) + b"\0")


class HostileServer:
    """Listens on loopback. `change` can be replaced between two connections."""

    def __init__(self, host: str, port: int) -> None:
        self._real = (host, port)
        self.change: Change = unchanged
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=_Relay(client, self._real, self.change).run, daemon=True).start()


class _Relay:
    """A connection of the client and the one to the real server."""

    def __init__(self, client: socket.socket, real: tuple[str, int], change: Change) -> None:
        self._client = client
        self._real = real
        self._change = change
        self._query: str | None = None
        self._replication = False

    def run(self) -> None:
        with self._client, contextlib.suppress(OSError, EOFError):
            startup = self._startup()
            with socket.create_connection(self._real) as server:
                for one in (server, self._client):  # or each message waits for the acknowledgement of the one before
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                server.sendall(startup)
                threading.Thread(target=self._listen, args=(server,), daemon=True).start()
                with contextlib.suppress(EOFError, OSError):
                    for kind, body in _messages(server):
                        reply = self._change(Reply(kind, body, self._query, self._replication))
                        if reply is None:
                            break
                        self._client.sendall(reply)
                        if isinstance(reply, Last):
                            break
                for one in (server, self._client):
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def _startup(self) -> bytes:
        """The startup packet, or a request to cancel; encryption is refused."""
        while True:
            head = _exactly(self._client, 8)
            size, code = struct.unpack(">II", head)
            body = _exactly(self._client, size - 8)
            if code in _NO_ENCRYPTION:
                self._client.sendall(b"N")
                continue
            self._replication = code != _CANCEL and b"replication\0" in body
            return head + body

    def _listen(self, server: socket.socket) -> None:
        """Forward the client's messages."""
        with contextlib.suppress(EOFError, OSError):
            for kind, body in _messages(self._client):
                if kind == b"Q":
                    self._query = body[:-1].decode(errors="replace")
                elif kind == b"P":
                    self._query = body.split(b"\0")[1].decode(errors="replace")
                server.sendall(message(kind, body))
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _messages(source: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of messages until the peer closes, which raises EOFError."""
    while True:
        head = _exactly(source, 5)
        [size] = _LENGTH.unpack_from(head, 1)
        yield head[:1], _exactly(source, size - 4)


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = source.recv(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
