"""A proxy on loopback that delays, throttles, stalls and cuts connections, in the middle of a message too."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time

_PIECE = 4096


class FaultyProxy:
    """Forwards connections to a server. Set its attributes while it runs.

    `delay`: seconds before each piece of data is forwarded; `rate`: bytes a second, 0 for no limit; `stalled`: nothing
    is forwarded; `refusing`: new connections are closed at once.
    """

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self.rate = 0
        self.stalled = False
        self.refusing = False
        self._left: int | None = None
        """How many bytes of the server are forwarded until all connections are closed; None for no limit."""
        self._server = ("127.0.0.1", port)
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close everything."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def move_to(self, port: int) -> None:
        """Forward new connections to another server, and close all others."""
        self._server = ("127.0.0.1", port)
        self.cut()

    def heal(self) -> None:
        """Forward as a wire does."""
        self.delay, self.rate, self.stalled, self.refusing, self._left = 0.0, 0, False, False, None

    def cut(self) -> None:
        """Close all connections."""
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def cut_after(self, size: int) -> None:
        """Close all connections when so many more bytes of the server were forwarded."""
        self._left = size

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=[client], daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if self.refusing:
                return
            with socket.create_connection(self._server) as server:
                with self._lock:
                    self._sockets |= {client, server}
                back = threading.Thread(target=self._forward, args=[client, server, False], daemon=True)
                back.start()
                self._forward(server, client, True)
                back.join()
                with self._lock:
                    self._sockets -= {client, server}

    def _forward(self, source: socket.socket, target: socket.socket, of_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                while self.stalled:
                    time.sleep(0.02)
                time.sleep(self.delay + (len(data) / self.rate if self.rate else 0))
                left = self._left
                if of_server and left is not None and left <= len(data):
                    self._left = None
                    target.sendall(data[:left])
                    self.cut()
                    return
                if of_server and left is not None:
                    self._left = left - len(data)
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def some_bytes(choose: random.Random) -> int:
    """After how many bytes to cut: most are inside of a message."""
    return choose.choice((choose.randrange(1, 60), choose.randrange(1, 3000), choose.randrange(1, 100_000)))
