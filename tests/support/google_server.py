"""Google Cloud Storage's XML protocol on loopback: `python -m tests.support.google_server PORT`.

No emulator has that protocol, which obstore, deltalake and Polars use: most have the JSON one alone. It is the S3
protocol, which moto has, with generations in place of ETags where a write has a condition; they are added here.
https://cloud.google.com/storage/docs/xml-api/reference-headers
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

_FAILED = b"<?xml version='1.0'?><Error><Code>PreconditionFailed</Code><Message>Another generation.</Message></Error>"

_OWNER = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"
"""Whoever asks: Google's tokens are none of moto's credentials."""


class GoogleServer:
    """A WSGI application."""

    def __init__(self) -> None:
        self._s3 = DomainDispatcherApplication(create_backend_app)
        self._numbers = itertools.count(1)
        self._generations: dict[str, int] = {}
        self._writing = threading.RLock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ["HTTP_AUTHORIZATION"] = _OWNER
        expected = environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None)
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._pass_on(environ, start)
        with self._writing:
            if expected is not None and int(expected) != self._generations.get(environ["PATH_INFO"], 0):
                start("412 Precondition Failed", [("Content-Type", "application/xml")])
                return [_FAILED]
            return self._pass_on(environ, start)

    def _pass_on(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, name = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)

        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            if status.startswith("2"):
                if (method == "PUT" and "partNumber" not in query) or (method == "POST" and "uploadId" in query):
                    self._generations[name] = next(self._numbers)
                elif method == "DELETE" and "uploadId" not in query:
                    self._generations.pop(name, None)
                headers = [*headers, ("x-goog-generation", str(self._generations.get(name, 0)))]
            return start(status, headers, *more)

        found: Iterable[bytes] = self._s3(environ, started)
        return found


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), GoogleServer(), threaded=True)
