"""Floor 4, dumps of any form -> a capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pgtail.captures.framing import DUMPS
from pgtail.captures.recorder import Recorder, Rotation
from pgtail.captures.rewrite import Rewriter
from pgtail.errors import InputError
from pgtail.inputs import Source, open_input
from pgtail.wire.cursor import Cursor
from pgtail.wire.decoder import AnyMessage, Assume, Decoder


class RawDecoder(Decoder):
    """A decoder that keeps the bytes of the last message: `raw`."""

    raw = b""

    def _read(self, cur: Cursor) -> AnyMessage:
        start = cur.pos
        message = super()._read(cur)
        self.raw = bytes(cur.buf[start : cur.pos])
        return message


def record_dumps(
    files: Sequence[str],
    directory: Path,
    *,
    format: str | None,  # noqa: A002 - the option's name
    assume: Assume,
    encoding: str,
    rotation: Rotation,
    compress: bool,
    tell: Callable[[str], None],
) -> bool:
    """Record files, one after another, as one stream; returns whether something of them is not in the capture.

    Raises InputError where one is damaged: what is whole before it is in the capture; OutputError.
    """
    decoder = RawDecoder(assume=assume, encoding=encoding)
    head = {"client_encoding": encoding, DUMPS: "dumps, streamed transactions as whole ones"}
    rewriter = Rewriter(Recorder(directory, head, rotation=rotation, compress=compress), tell)
    left = list(files)
    try:
        while left:
            with Source(left[0]) as source:
                _record(source, decoder, rewriter, format)
            del left[0]
    finally:
        rewriter.finish()
        if left[1:]:
            tell(f"not in the capture: {', '.join(left[1:])}, behind {left[0]}")
    return rewriter.left_out > 0


def _record(source: Source, decoder: RawDecoder, rewriter: Rewriter, form: str | None) -> None:
    try:
        for message, lsn, _, clock in open_input(source, decoder, format=form).messages():
            rewriter.feed(message, decoder.raw, lsn, clock)
            decoder.raw = b""
    except InputError as error:
        if error.source is None:
            error.source = source.name
        raise
