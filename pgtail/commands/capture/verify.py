"""`pgtail capture verify`: compares every checksum of a capture, and finds what is missing in it."""

from __future__ import annotations

import hashlib
import shlex

from pgtail.capture.format import SegmentName
from pgtail.capture.reader import segments
from pgtail.capture.segment import SegmentBytes
from pgtail.capture.state import FILE
from pgtail.capture.verify import CaptureVerifier
from pgtail.commands.console.progress import progress
from pgtail.commands.options.capture import CaptureVerifyOptions
from pgtail.commands.output.file_sink import put
from pgtail.errors import COMMAND, InputError, Interrupted
from pgtail.files.stopping import begin, status_after
from pgtail.humanize import counted, size_text
from pgtail.storage import Location, Reader, locate
from pgtail.terminal.escape import escape


def run(place: str, options: CaptureVerifyOptions) -> bool:
    """Verify a capture; returns whether something is damaged or missing. Raises PgtailError and ClosedPipe."""
    verify = _Verify(locate(place, options.storage), options.first)
    begin()
    try:
        verify.measure()
        # Standard output has nothing until the end.
        with progress(verify, "", lambda: verify.segments, "segments", quiet=options.verbosity.quiet):
            verify.run()
    except KeyboardInterrupt as stopped:
        raise Interrupted(f"interrupted{verify.rest()}", status_after(stopped), source=verify.name) from None
    except InputError as error:
        error.reason += verify.rest()
        raise
    put(verify.summary())
    return verify.verifier.problems > 0


class _Verify:
    """One pass over a capture, from the segment `first` on; `consumed` are bytes of the `size` that it had before."""

    def __init__(self, capture: Location, first: SegmentName | None) -> None:
        self.name = str(capture)
        self.size = self.consumed = self.segments = 0
        self.verifier = CaptureVerifier()
        self._capture = capture
        self._first = first
        self._at = ""
        """The name of the segment that is being read."""

    def measure(self) -> None:
        """Find out how much there is. Raises InputError."""
        files = segments(self._capture)
        self.size = sum(one.size for one in files if self._first is None or one.name >= self._first)

    def run(self) -> None:
        """Read everything. Raises InputError if something cannot be read."""
        for segment in self.verifier.capture(self._capture, first=self._first):
            self._at = segment.name.partition(".")[0]
            self._read(segment)
            self.segments += 1

    def _read(self, segment: Location) -> None:
        before, verifier = self.consumed, self.verifier
        with segment.open() as opened:
            file = _Digesting(opened)
            raw = SegmentBytes(file)
            for piece in raw:
                verifier.check.feed(piece, verifier.check.size)
                self.consumed = before + file.size
            if verifier.may_lack_end and raw.damaged_inside():
                verifier.report(f"{raw.damage}; whole members follow", segment)
        listed = None if verifier.part is None else verifier.part.listed
        if listed is not None and raw.damage is None and file.hexdigest() != listed.sha256:
            verifier.report(f"its SHA-256 is not the one in {FILE}", segment)
        verifier.conclude(None if raw.damage is None else InputError(raw.damage), reported=False)

    def rest(self) -> str:
        """The text about an interrupted pass, with the command that continues it."""
        if not self._at:
            return ""
        problems = self.verifier.problems
        found = f"{counted(problems, 'problem') if problems else 'no problem'} before it"
        command = f"pgtail capture verify {shlex.quote(self.name)} --from {self._at}"
        return f", in segment {self._at}; {found}. To go on:{COMMAND}{command}"

    def summary(self) -> str:
        """The result in one line."""
        problems, notes = self.verifier.problems, self.verifier.notes
        found = counted(problems, "problem") if problems else "whole"
        found += f", {counted(notes, 'note')}" if notes else ""
        return escape(f"{self.name}: {counted(self.segments, 'segment')}, {size_text(self.consumed)}: {found}")


class _Digesting:
    """A file with the SHA-256 of the bytes read from it; bytes read again count once."""

    def __init__(self, file: Reader) -> None:
        self.size = 0
        self._file = file
        self._position = 0
        self._digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._digest.update(data[max(self.size - self._position, 0) :])
        self._position += len(data)
        self.size = max(self.size, self._position)
        return data

    def seek(self, offset: int, /) -> int:
        self._position = offset
        return self._file.seek(offset)

    def hexdigest(self) -> str:
        """The SHA-256, as 64 hexadecimal digits."""
        return self._digest.hexdigest()
