"""Writes the frames of a capture in every form; reads bytes through the inputs, at once or in pieces."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from pgtail.errors import InputError
from pgtail.inputs.base import Input
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import Source
from pgtail.pgoutput.decoder import AnyFrame, Decoded, Decoder
from tests.support.corpus import Capture
from tests.support.pcaps import pcapng, segments


def messages_of(capture: Capture) -> list[tuple[int, bytes]]:
    """(LSN, bytes) of each message of a capture, as the live walsender sent them."""
    return [(raw.lsn, raw.data) for raw in capture.messages()]


def recvlogical(capture: Capture) -> bytes:
    return b"".join(message + b"\n" for _, message in messages_of(capture))


def raw(capture: Capture) -> bytes:
    return b"".join(message for _, message in messages_of(capture))


def copydata(capture: Capture) -> bytes:
    """A server's side of a connection: parameters, the switch to COPY, frames, and the end."""
    start = server_message("S", b"server_version\x0016.14\0") + server_message("W", b"\0\0\0")
    frames = b"".join(server_message("d", frame) for frame in capture.frames())
    return start + frames + server_message("c", b"") + server_message("C", b"COPY 0\0")


def server_message(tag: str, body: bytes) -> bytes:
    return tag.encode() + struct.pack(">i", len(body) + 4) + body


def lengths(capture: Capture) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in capture.frames())


def bare_lengths(capture: Capture) -> bytes:
    return b"".join(struct.pack(">i", len(message)) + message for _, message in messages_of(capture))


def pgcopy(capture: Capture) -> bytes:
    rows = b"".join(struct.pack(">hiQi", 2, 8, lsn, len(message)) + message for lsn, message in messages_of(capture))
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows + b"\xff\xff"


def hex_lines(capture: Capture) -> bytes:
    return b"".join(message.hex().encode() + b"\n" for _, message in messages_of(capture))


def unaligned(capture: Capture) -> bytes:
    rows = [f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}|7|\\x{message.hex()}\n" for lsn, message in messages_of(capture)]
    return "".join(rows).encode()


def csv(capture: Capture) -> bytes:
    rows = [f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X},7,\\x{message.hex()}\n" for lsn, message in messages_of(capture)]
    return ("lsn,xid,data\n" + "".join(rows)).encode()


def copytext(capture: Capture) -> bytes:
    return csv(capture).partition(b"\n")[2].replace(b",", b"\t").replace(b"\\", b"\\\\")


def pgcap(capture: Capture) -> bytes:
    """A segment: its parameters, the frames, its end."""
    start = server_message("S", b"pgtail.format\x001\0") + server_message("S", b"pgtail.start\0\0")
    data = start + b"".join(server_message("d", frame) for frame in capture.frames())
    end = f"pgtail.end\0{len(messages_of(capture))} {len(data)} {sha256(data).hexdigest()}\0"
    return data + server_message("S", end.encode())


def pcap(capture: Capture) -> bytes:
    return pcapng(segments(copydata(capture)))


def hexdump(data: bytes) -> bytes:
    """As `hexdump -C` writes it, without replacing repeated lines by *."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        halves = "  ".join(f"{row[half : half + 8].hex(' '):23}" for half in (0, 8))
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:08x}  {halves}  |{shown}|\n")
    return "".join([*lines, f"{len(data):08x}\n"]).encode() if data else b""


def dumped(capture: Capture) -> bytes:
    return hexdump(recvlogical(capture))


FORMS: dict[str, Callable[[Capture], bytes]] = {
    "recvlogical": recvlogical,
    "raw": raw,
    "copydata": copydata,
    "pgcap": pgcap,
    "lengths": lengths,
    "pgcopy": pgcopy,
    "hexdump": dumped,
    "hex": hex_lines,
    "psql": unaligned,
    "csv": csv,
    "copytext": copytext,
    "pcap": pcap,
}
"""One writer for each form, by the name of the form."""

HEADS = {"recvlogical": 0, "raw": 0, "copydata": 5, "pgcap": 5, "lengths": 4, "pgcopy": 18}
"""Of the binary forms: how many bytes come before each message or walsender frame."""
FRAMED = ("copydata", "pgcap", "lengths", "pcap")
"""The forms with walsender frames, which have keepalives and the server's clock."""


@dataclass
class Reading:
    """The messages read from one source, and how it ended."""

    form: str = ""
    decoded: list[Decoded] = field(default_factory=list)
    error: InputError | None = None
    skipped: int = 0
    resyncs: int = 0

    @property
    def messages(self) -> list[AnyFrame]:
        return [message for message, *_ in self.decoded]


def read_path(
    path: str,
    *,
    format: str | None = None,  # noqa: A002
    resync: bool = False,
    decoder: Decoder | None = None,
) -> Reading:
    """Read a source to its end or first error; with `resync` past all errors."""
    reading = Reading()
    with Source(path) as source:
        try:
            input_ = open_input(source, decoder or Decoder(), format=format)
        except InputError as error:
            reading.error = error
            return reading
        reading.form = input_.name
        with contextlib.closing(input_):
            while True:
                try:
                    for decoded in input_.messages():
                        reading.decoded.append(decoded)
                    return reading
                except InputError as error:
                    reading.error = reading.error or error
                    if not resync or not _resync(reading, input_):
                        return reading


def _resync(reading: Reading, input_: Input) -> bool:
    before = input_.position
    found = input_.resync()
    least = 0 if input_.name == "hexdump" else 1  # nothing need be between two dumps in one file
    assert found is None or found == input_.skipped == input_.position - before >= least
    reading.skipped += input_.skipped
    reading.resyncs += 1
    return found is not None


def read_bytes(data: bytes, **options: object) -> Reading:
    """As read_path(), from a file with these bytes."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return read_path(file.name, **options)  # type: ignore[arg-type]


def read_pipe(data: bytes, piece: int = 65536, **options: object) -> Reading:
    """As read_path(), through a pipe that is written in pieces."""
    with piped(data, piece) as path:
        return read_path(path, **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def piped(data: bytes, piece: int) -> Iterator[str]:
    """The path of a pipe that a thread writes to."""
    reader, writer = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb", buffering=0) as file:
            for start in range(0, len(data), piece):
                file.write(data[start : start + piece])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)
        thread.join()


def gzipped(data: bytes, members: int = 1) -> bytes:
    """Compressed as this many gzip members."""
    size = -(-len(data) // members)
    return b"".join(gzip.compress(data[start : start + size], mtime=0) for start in range(0, len(data), size))
