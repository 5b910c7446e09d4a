"""A proxy before an object store that refuses, delays, loses and tears requests, as stores and networks do."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

FAULTS: Final = ("503", "429", "500", "503 after", "lost", "cut", "torn", "silent", "slow")
"""What happens to a request. "503 after" and "lost": it is carried out, and the answer is another one, or none."""
SILENCE: Final = 0.8
"""Seconds: give clients a shorter timeout."""
_BODY: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class FaultyStore:
    """Passes on requests to the server at `url`; each fails with this `chance`, in one of the ways that FAULTS has.

    Listings are those of a moment before while `stale`. `tried` counts the faults.
    """

    def __init__(self, url: str, choose: random.Random, *, chance: float) -> None:
        self.chance = chance
        self.stale = False
        self.tried: Counter[str] = Counter()
        self._listings: dict[str, tuple[int, bytes, list[tuple[str, str]]]] = {}
        self._choose = choose
        self._address = url.rpartition("/")[2]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # the client has not waited
                    self.close_connection = True

        def carry(handler: BaseHTTPRequestHandler) -> None:
            self._request(handler)

        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", carry)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    def _request(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        fault = self._choose.choice(FAULTS) if self._choose.random() < self.chance else ""
        self.tried[fault or "none"] += 1
        if fault in ("503", "429", "500"):
            self._answer(handler, int(fault), _BODY, [])
            return
        if fault == "cut":
            handler.close_connection = True
            return
        if fault == "slow":
            time.sleep(0.2)
        status, data, headers = self._forward(handler, body)
        if fault == "silent":
            time.sleep(SILENCE)
        if fault in ("lost", "silent"):
            handler.close_connection = True
            return
        if fault == "503 after":
            status, data, headers = 503, _BODY, []
        self._answer(handler, status, data, headers, torn=fault == "torn")

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes, list[tuple[str, str]]]:
        listing = handler.command == "GET" and "list-type=2" in handler.path
        if listing and self.stale and handler.path in self._listings:
            return self._listings[handler.path]
        server = http.client.HTTPConnection(self._address, timeout=30)
        try:
            server.request(handler.command, handler.path, body, dict(handler.headers))
            answer = server.getresponse()
            headers = [one for one in answer.getheaders() if one[0].lower() not in ("transfer-encoding", "connection")]
            found = answer.status, answer.read(), headers
        finally:
            server.close()
        if listing:
            self._listings[handler.path] = found
        return found

    @staticmethod
    def _answer(
        handler: BaseHTTPRequestHandler, status: int, data: bytes, headers: list[tuple[str, str]], *, torn: bool = False
    ) -> None:
        handler.send_response_only(status)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            handler.send_header(name, value)
        if "content-length" not in names:
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        handler.wfile.write(data[: len(data) // 2] if torn else data)
        handler.close_connection = handler.close_connection or torn


class HoldingStore(FaultyStore):
    """Passes everything on, but holds the first request for which `holds` (method, path) returns True.

    That is what the store sees of a recorder that was stopped right before the request.
    """

    def __init__(self, url: str, holds: Callable[[str, str], bool]) -> None:
        self._holds = holds
        self._wanted = True
        self.held = threading.Event()
        self.done = threading.Event()
        """Whether the store has answered the request, or never gets it."""
        self._over = threading.Event()
        super().__init__(url, random.Random(0), chance=0)

    def release(self) -> None:
        """The request arrives now."""
        self._over.set()
        assert self.done.wait(30)

    def drop(self) -> None:
        """The request never arrives."""
        self._wanted = False
        self.release()

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes, list[tuple[str, str]]]:
        if self.held.is_set() or not self._holds(handler.command, handler.path):
            return super()._forward(handler, body)
        self.held.set()
        self._over.wait()
        try:
            return super()._forward(handler, body) if self._wanted else (503, _BODY, [])
        finally:
            self.done.set()
