"""Standard error: messages, exit statuses, and a thread that writes lines and a status line while a stream runs.

The thread is needed because a stopped terminal (Ctrl-S) blocks writes, while the main loop must keep answering the
server.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pgtail.commands.console.pager import errors_paged
from pgtail.errors import COMMAND, ClosedPipe, InputError, PgtailError
from pgtail.files.stopping import after_echo
from pgtail.terminal.escape import escape, escape_lines

_QUEUE_LIMIT: Final = 10_000
"""Lines that wait at most; then the oldest are dropped."""
_ERASE: Final = "\r\x1b[K"
_NAME: Final = "pgtail: "
"""How a message starts; its other lines are indented by as much."""
_NARROW: Final = 40
"""Cells of a terminal below which they are indented less."""

_PASSWORDS: Final = re.compile(
    r"""(://[^\s/:@'"]*):[^\s'"]*@|\b(password|sslpassword)(\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'";&]+)"""
)
"""The password of a URI or of a connection string: an error quotes what was given in a wrong place."""

_OF_SERVER: Final = re.compile(rf"{COMMAND}pgtail (?:stream|slot) [^\n]*")
"""A command in a message that reads a server."""

quiet_mode = False
"""Whether notes, details and progress are left out (-q), in the whole process."""
connection_words = ""
"""What the commands in messages need to reach the server that this process was told to read, quoted for a shell."""
json_log = False
"""Whether messages are JSON objects (--log-format json), in the whole process."""


class _Muted:
    now = False


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Say nothing while the body runs: a pass that shows something follows, and says it."""
    _Muted.now = True
    try:
        yield
    finally:
        _Muted.now = False


def say(text: str, /, event: str = "", **fields: object) -> None:
    """Print a message on standard error, with -q no note; the caller has escaped text from elsewhere.

    `event` and `fields` are for --log-format json.
    """
    if sys.stderr is not None and not _left_out(text):
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{_message(text, _descriptor(), event, fields)}\n")
            sys.stderr.flush()


def tell(text: str, /, event: str = "", **fields: object) -> None:
    """As say(), a text from elsewhere: it is escaped."""
    say(escape(text), event, **fields)


def _message(text: str, fd: int, event: str = "", fields: Mapping[str, object] | None = None) -> str:
    """A message as a JSON object, or as text for what shows the descriptor."""
    before = after_echo(fd >= 0 and os.isatty(fd))
    if connection_words:
        text = _OF_SERVER.sub(lambda found: f"{found[0]} {connection_words}", text)
    if not json_log:
        return before + laid_out(text, columns_of(fd))
    from pgtail.commands.console.log import log_line  # not loaded without

    return before + log_line(_PASSWORDS.sub(_masked, text), event, fields or {})


def laid_out(text: str, columns: int | None) -> str:
    """The lines of a message, the text of which has newlines and commands (errors.COMMAND); passwords are masked.

    On a terminal of so many columns they are broken between words, and a command has its own line, which is not broken;
    nor is JSON. Elsewhere (None) a command follows the line before it.
    """
    text = _PASSWORDS.sub(_masked, text)
    if columns is None:
        first, *rest = text.split("\n")
        between = f"\n{' ' * len(_NAME)}"
        return _NAME + first + "".join([f" {line.lstrip()}" if _is_command(line) else between + line for line in rest])
    indent = " " * (len(_NAME) if columns >= _NARROW else 2)
    lines: list[str] = []
    for line in f"{_NAME}{text}".split("\n"):
        before = indent if lines else ""
        whole = _is_command(line) or line.startswith('{"')
        lines += [before + line] if whole else _wrapped(line, columns, before, indent)
    return "\n".join(lines)


def _masked(found: re.Match[str]) -> str:
    return f"{found[1]}:********@" if found[1] else f"{found[2]}{found[3]}********"


def _is_command(line: str) -> bool:
    """Whether a line of a message is a command; what points at a place in the line before it is none."""
    return f"\n{line}".startswith(COMMAND) and not line.removeprefix(COMMAND[1:]).startswith((" ", "^"))


def _wrapped(text: str, columns: int, first: str, rest: str) -> list[str]:
    """A line broken between words; these stay whole. `first` and `rest` precede its first line and the others."""
    words = text.split(" ")
    lines = [first + words[0]]
    for word in words[1:]:
        if _width(f"{lines[-1]} {word}") <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(rest + word)
    return lines


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from pgtail.terminal.layout import width_of  # loads rich

    return width_of(text)


def _descriptor() -> int:
    """The file descriptor of standard error; -1 if it has none."""
    with contextlib.suppress(OSError):
        return -1 if sys.stderr is None else sys.stderr.fileno()
    return -1


def columns_of(fd: int) -> int | None:
    """The width of the terminal that shows what is written to a descriptor, by itself or a pager; None without one."""
    if errors_paged():
        return int(os.environ["COLUMNS"])
    if fd < 0 or not os.isatty(fd):
        return None
    with contextlib.suppress(OSError):
        return os.get_terminal_size(fd).columns or 80
    return 80


def _left_out(text: str) -> bool:
    return _Muted.now or (quiet_mode and text.startswith("note:"))


@contextlib.contextmanager
def exit_statuses() -> Iterator[None]:
    """Turn PgtailError into a message on standard error and its exit status, and ClosedPipe into status 0."""
    try:
        yield
    except ClosedPipe:
        raise SystemExit(0) from None
    except PgtailError as error:
        say(f"error: {_in_words(error)}")
        raise SystemExit(error.exit_status) from None
    finally:
        global connection_words  # noqa: PLW0603 -- of the command that ends here
        connection_words = ""


def _in_words(error: PgtailError) -> str:
    """Its message, escaped. What names the source is of one line: the name of a file may have several."""
    if isinstance(error, InputError):
        return ": ".join([*map(escape, error.where()), escape_lines(error.reason)])
    return escape_lines(str(error))


class StderrThread:
    """Writes messages; from `verbosity` 1 also details, from 2 also the trace. Escapes what it writes."""

    def __init__(self, verbosity: int) -> None:
        # Without sys.stderr the descriptor was closed, and its number may belong to a socket by now.
        self._fd = _descriptor()
        self._on_terminal = terminal = self._fd >= 0 and os.isatty(self._fd)
        self.wants_status = terminal and not quiet_mode and not json_log
        self.wants_trace = verbosity >= 2
        self._wants_more = verbosity >= 1 or json_log
        self._wants_detail = (terminal and not quiet_mode) or self._wants_more
        self._lines: deque[str] = deque()
        self._status: list[str] | None = None
        self._dropped = 0
        self._drawn = False
        self._closed = False
        self._changed = threading.Condition()
        self._terminal = threading.Lock()
        self._thread = threading.Thread(target=self._write_all, name="stderr", daemon=True)
        self._thread.start()

    def tell(self, text: str, /, event: str = "", **fields: object) -> None:
        """Write a message, with -q no note; `event` and `fields` are for --log-format json."""
        if _left_out(text):
            return
        self._put(_message(escape_lines(text), self._fd, event, fields))

    def inform(self, text: str) -> None:
        """Write a message that nobody needs to act on; not with -q."""
        if not quiet_mode:
            self.tell(text)

    def detail(self, text: str) -> None:
        """Write a message on a terminal, or with -v."""
        if self._wants_detail:
            self.tell(text)

    def more(self, text: str, /, event: str = "", **fields: object) -> None:
        """Write a message with -v, or in a log of JSON."""
        if self._wants_more:
            self.tell(text, event, **fields)

    def trace(self, text: str) -> None:
        """Write a line of the trace, with -vv."""
        if self.wants_trace:
            self._put(_message(escape(text), -1, "trace") if json_log else escape(text))

    def status(self, parts: Sequence[str]) -> None:
        """Replace the status line. Parts for which the terminal has no room are left out, the last ones first."""
        with self._changed:
            self._status = [escape(part) for part in parts]
            self._changed.notify()

    def close(self) -> None:
        """Write what is queued, waiting at most a second."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(1)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Write the queued messages, erase the status line, and write nothing while the body uses the terminal."""
        if not self._on_terminal:
            yield
            return
        with self._terminal:
            self._write_queued(with_status=False)
            yield

    def _put(self, line: str) -> None:
        with self._changed:
            if len(self._lines) >= _QUEUE_LIMIT:
                self._lines.popleft()
                self._dropped += 1
            self._lines.append(line)
            self._changed.notify()

    def _write_all(self) -> None:
        closed = False
        while not closed:
            with self._changed:
                while not (self._lines or self._status is not None or self._closed):
                    self._changed.wait()
                closed = self._closed
            with self._terminal:
                self._write_queued(with_status=not closed)

    def _write_queued(self, *, with_status: bool) -> None:
        """Called with the terminal's lock, so that messages are written in the order of the queue."""
        with self._changed:
            lines, dropped = list(self._lines), self._dropped
            status = self._status if with_status else None
            self._lines.clear()
            self._dropped = 0
            if with_status:
                self._status = None
        if dropped:
            lines.insert(0, _message(f"{dropped} lines were dropped here: standard error was blocked", -1))
        self._draw(lines, status)

    def _draw(self, lines: list[str], status: list[str] | None) -> None:
        text = "".join([f"{line}\n" for line in lines])
        if self._drawn:  # also ^C
            after_echo(terminal=False)
            text = _ERASE + text.removeprefix("\n")
        self._drawn = False
        if status is not None:
            text += _joined(status, (columns_of(self._fd) or 80) - 1)
            self._drawn = True
        self._write(text)

    def _write(self, text: str) -> None:
        view = memoryview(text.encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):
            while view:
                view = view[os.write(self._fd, view) :]


def _joined(parts: Sequence[str], room: int) -> str:
    """The first parts, as many as there is room for; the first one is cut if it has to be."""
    text, *others = parts
    for part in others:
        if len(longer := f"{text} · {part}") > room:
            break
        text = longer
    return text[:room]
