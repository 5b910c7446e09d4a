"""Processes that decode the parts of one input, each in memory, and write their output one after another.

The parent forks them with everything built, gives them parts, and says what they print on standard error. The process
of the first part that is not finished has the turn: it writes what waits, and then as it decodes.
"""

from __future__ import annotations

# What socket and pickle are made of: to import these two takes 6 ms more, and the first line of a capture waits for it.
import _pickle as pickle
import _socket
import contextlib
import gc
import os
import select
import signal
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, NoReturn, Self

from pgtail.commands.reading import BROKEN_OFF, interrupted
from pgtail.commands.turn import Counts, Task
from pgtail.errors import ClosedPipe, InputError, Interrupted, PgtailError
from pgtail.files.stopping import SIGNALS, after_echo, postponed, request_stop, status_after
from pgtail.pipeline.parts import Part
from pgtail.records import Record

_STOP: Final = signal.SIGUSR1
"""Asks the process that has the turn to complete its output."""
_SIZE: Final = struct.Struct("=I")


class Failure(Record):
    """An exception in a process: that of pgtail, or the text of another one."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    values: dict[str, Any]

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        if isinstance(error, PgtailError | ClosedPipe):
            return cls(type(error), error.args, vars(error))
        import traceback

        return cls(RuntimeError, (traceback.format_exc(),), {})

    def error(self) -> BaseException:
        """The exception; its class may need other arguments than these."""
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        vars(error).update(self.values)
        return error


class _Channel:
    """Objects over a socket."""

    def __init__(self, end: _socket.socket) -> None:
        self._end = end
        self._got = bytearray()

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, kind: str, value: object = None) -> None:
        """Raises OSError if the other process has ended."""
        data = pickle.dumps((kind, value))
        with postponed():  # else the other process would wait for the rest
            self._end.sendall(_SIZE.pack(len(data)) + data)

    def receive(self) -> tuple[str, Any]:
        """The next object. Raises EOFError if the other process has ended."""
        (size,) = _SIZE.unpack(self._take(_SIZE.size))
        found: tuple[str, Any] = pickle.loads(self._take(size))
        return found

    def ready(self, timeout: float | None = 0) -> bool:
        """Whether there is something to receive, within so many seconds (None: at any time)."""
        return bool(self._got) or bool(select.select([self._end], [], [], timeout)[0])

    def _take(self, size: int) -> bytes:
        while len(self._got) < size:
            try:
                data = self._end.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._got += data
        found = bytes(self._got[:size])
        del self._got[:size]
        return found

    def close(self) -> None:
        self._end.close()


class Link:
    """A process's connection to the parent."""

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self._before: Counts | None = None
        """What the parts before this one have in common; None until this process has the turn."""

    def has_turn(self) -> bool:
        """Whether this process writes now."""
        while self._before is None and self._channel.ready():
            self._receive_turn()
        return self._before is not None

    def wait_for_turn(self) -> Counts:
        """Wait until this process writes; returns what the parts before have in common."""
        while self._before is None:
            self._receive_turn()
        return self._before

    def _receive_turn(self) -> None:
        self._channel.ready(None)  # a request to stop interrupts this; what is received is not lost then
        with postponed():
            kind, value = self._channel.receive()
            assert kind == "turn"
            self._before = value

    def task(self) -> Task:
        """The next part to decode; one that continues the last one with the turn has its counts already."""
        self._channel.ready(None)
        with postponed():
            kind, value = self._channel.receive()
        assert kind == "part"
        found: Task = value
        return found

    def done(self, counts: Counts) -> None:
        """The part was decoded and written."""
        self._before = None
        self._channel.send("done", counts)

    def counted(self, value: object) -> None:
        """Send what was counted; only with the turn."""
        self._channel.send("counted", value)

    def failed(self, failure: Failure) -> None:
        self._channel.send("failed", failure)

    # -- as standard error -------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        self._channel.send("said", text)

    def flush(self) -> None:
        """Does nothing: the parent does."""

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """The parent's: its terminal is as wide."""
        return 2


class _Process:
    """One process, as the parent knows it."""

    def __init__(self, pid: int, channel: _Channel, part: Part | None) -> None:
        self.pid = pid
        self.channel = channel
        self.part = part
        """The last one that it got, or that the parent had decoded before."""
        self.said: list[str] = []
        """What it printed before its turn."""
        self.result: tuple[str, Any] | None = None

    def send(self, kind: str, value: object) -> None:
        """If it has ended, receive() tells."""
        with contextlib.suppress(OSError):
            self.channel.send(kind, value)

    def tell(self) -> None:
        """Print what it printed."""
        for text in self.said:
            _print(text)
        self.said.clear()

    def kill(self) -> int:
        """End it at once; returns its status."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        self.channel.close()
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, 0)[1]
        return 0


class Jobs:
    """A context in which `count` processes decode `parts`.

    `work` runs in each of them until it is killed: it takes tasks from its Link. `task_of` makes the task for a part
    from what the process knows: the part of its last task, or `before`, which the parent has decoded, with these
    `counts`. `advanced` is called with the counts after each part.
    """

    def __init__(
        self,
        count: int,
        parts: Iterator[Part | None],
        work: Callable[[Link], None],
        *,
        task_of: Callable[[Part, Part | None], Task],
        advanced: Callable[[Part, Counts], None],
        counted: Callable[[Any], None] | None = None,
        before: Part | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._count = count
        self._parts = parts
        self._work = work
        self._task_of = task_of
        self._advanced = advanced
        self._counted = counted
        self._before = before
        self._alive, self._lifeline = os.pipe()
        """A process ends when this pipe does: the parent alone has its other end."""
        self._processes: list[_Process] = []
        self._idle: list[_Process] = []
        self._busy: deque[_Process] = deque()
        """In the order of their parts: the first one has the turn."""
        self._counts = counts or Counts()

    def __enter__(self) -> Self:
        """Start the processes; that comes before any thread."""
        gc.freeze()  # else its marks would copy the memory that is shared
        self._idle = [self._fork() for _ in range(self._count)]
        gc.unfreeze()
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
        os.close(self._alive)
        os.close(self._lifeline)

    def run(self) -> Counts:
        """Decode all parts. Raises PgtailError and ClosedPipe, also those of the processes."""
        try:
            return self._run()
        except KeyboardInterrupt as stopped:
            self._stop(stopped)

    def _run(self) -> Counts:
        ahead = deque[Part]()  # a part for each process: several may need one at the same time
        more = True
        while not self._counts.ended:
            if more and len(ahead) < self._count:
                try:
                    part = next(self._parts)
                except StopIteration:
                    more = False
                else:
                    ahead.extend(() if part is None else (part,))
            if ahead and self._idle:
                self._give(self._idle.pop(), ahead.popleft())
                continue
            if not self._busy:
                if not more:
                    break
                continue
            self._receive(wait=not more or len(ahead) == self._count)
            if not self._counts.settled and not self._counts.ended:
                more = False
                ahead.clear()
        return self._counts

    def _give(self, process: _Process, part: Part) -> None:
        with postponed():  # the first one of those that are busy knows that it has the turn
            process.send("part", self._task_of(part, process.part))
            process.part = part
            self._busy.append(process)
            if len(self._busy) == 1:
                process.send("turn", self._counts)

    def _receive(self, *, wait: bool) -> None:
        """Take what the processes have sent."""
        working = [process for process in self._busy if process.result is None]
        found = select.select([process.channel for process in working], [], [], None if wait else 0)[0]
        for process in [one for one in working if one.channel in found]:
            # All that has come: select() does not see what was read together with the first message.
            while process.result is None and process.channel.ready():
                with postponed():
                    self._take(process)
        with postponed():
            while self._busy:
                first = self._busy[0]
                first.tell()
                if first.result is None or not self._finished(first):
                    return

    def _take(self, process: _Process) -> None:
        """Take one message of a process."""
        try:
            kind, value = process.channel.receive()
        except EOFError:
            kind, value = "killed", process.wait()
        if kind == "said":
            process.said.append(value)
        elif kind == "counted":
            assert self._counted is not None
            self._counted(value)
        else:
            process.result = kind, value

    def _finished(self, process: _Process) -> bool:
        """The process with the turn has sent its result; returns whether the next one has the turn now."""
        assert process.result is not None
        (kind, value), process.result = process.result, None
        assert process.part is not None
        if kind == "killed":
            self._processes.remove(process)
            raise _killed(value)
        if kind == "failed":
            raise value.error()
        self._counts = value
        self._advanced(process.part, value)
        if value.ended:
            return False
        if not value.settled:
            self._go_on_alone(process)
            return False
        self._busy.popleft()
        self._idle.append(process)
        if self._busy:
            self._busy[0].send("turn", value)
        return bool(self._busy)

    def _go_on_alone(self, process: _Process) -> None:
        """What follows depends on what this process has decoded: it decodes all the rest."""
        for other in [one for one in self._processes if one is not process]:
            self._processes.remove(other)
            other.kill()
        self._busy, self._idle = deque(), []
        assert process.part is not None
        self._give(process, process.part.rest())

    def _stop(self, stopped: KeyboardInterrupt) -> NoReturn:
        """End the processes; the one with the turn first completes its output. Raises Interrupted."""
        error: BaseException = interrupted(stopped)
        if self._busy:
            first = self._busy[0]
            for other in [one for one in self._processes if one is not first]:
                self._processes.remove(other)
                other.kill()
            self._busy = deque([first])
            try:
                os.kill(first.pid, _STOP)
                while first.result is None or first.result[0] == "done":
                    self._take(first)
                    first.tell()
                if first.result[0] == "failed":
                    error = first.result[1].error()
            except KeyboardInterrupt:
                error = Interrupted(BROKEN_OFF, 0)
        if isinstance(error, Interrupted):
            error.exit_status = status_after(stopped)
        raise error from None

    def _fork(self) -> _Process:
        ours, theirs = map(_Channel, _socket.socketpair())
        pid = os.fork()
        if pid:
            theirs.close()
            process = _Process(pid, ours, self._before)
            self._processes.append(process)
            return process
        try:
            os.close(self._lifeline)
            for other in self._processes:
                other.channel.close()
            ours.close()
            self._child(Link(theirs))
        finally:
            os._exit(1)

    def _child(self, link: Link) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(_STOP, _interrupt)
        threading.Thread(target=_end_with, args=(self._alive,), daemon=True).start()
        sys.stderr = link
        try:
            self._work(link)
        except EOFError:
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 -- the parent raises it
            link.failed(Failure.of(error))
            _wait_for_end()


def _wait_for_end() -> NoReturn:
    """The parent kills this process."""
    while True:
        signal.pause()


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(_STOP, signal.SIG_IGN)
    request_stop(signal.SIGINT)


def _end_with(alive: int) -> None:
    """End this process when the parent ends, however that does."""
    os.read(alive, 1)
    os._exit(1)


def _print(text: str) -> None:
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(after_echo(sys.stderr.isatty()) + text)
            sys.stderr.flush()


def _killed(status: int) -> InputError:
    number = os.waitstatus_to_exitcode(status)
    how = f"was ended by {signal.Signals(-number).name}" if number < 0 else f"ended with status {number}"
    return InputError(f"a process that decodes (--jobs) {how}: its part of the input is not shown")
