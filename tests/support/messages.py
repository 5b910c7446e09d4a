"""What pgtail says where a test calls its functions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from pgtail.commands.console.messages import WORDS, handled_by


class _Calling(logging.Handler):
    def __init__(self, call: Callable[[str], None]) -> None:
        super().__init__()
        self._call = call

    def emit(self, record: logging.LogRecord) -> None:
        self._call(WORDS.get(record.levelno, "") + record.getMessage())


@contextlib.contextmanager
def messages_to(call: Callable[[str], None]) -> Iterator[None]:
    """Call this with each message while the body runs: `note: ...`, as on standard error."""
    with handled_by(_Calling(call), logging.DEBUG):
        yield


@contextlib.contextmanager
def messages_said() -> Iterator[list[str]]:
    """The messages while the body runs."""
    texts = list[str]()
    with messages_to(texts.append):
        yield texts
