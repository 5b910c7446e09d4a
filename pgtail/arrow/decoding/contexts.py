"""The context of changes (--context) where a segment begins inside a transaction: it may be in an earlier segment."""

from __future__ import annotations

from typing import NamedTuple

from pgtail.arrow.segments.survey import folder_of
from pgtail.capture.contents import read_contents
from pgtail.capture.format import CLOSED, PREDECESSOR, SEGMENT
from pgtail.capture.segment import Head, SegmentFrames, read_head
from pgtail.changes.context import Context
from pgtail.errors import InputError
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE, Decoder
from pgtail.pgoutput.kinds import TAGS, Role, tags
from pgtail.pgoutput.transaction import Message
from pgtail.storage import Location, StorageOptions, locate

_BEGINS, _MESSAGE = tags(Role.BEGIN), TAGS[Message]


class Contexts(NamedTuple):
    """The prefix of the logical messages that give a context, and the directory of the segments."""

    prefix: str
    folder: Location

    def before(self, head: Head) -> Context | None:
        """The context with which the transaction goes on in which the segment with this head begins, if any.

        Of the earlier segments only those with logical messages are read. Raises InputError if one is missing.
        """
        while head.transaction is not None and head.transaction[1]:
            name = head.parameters.get(PREDECESSOR, "")
            place = self.folder / f"{name}{CLOSED}"
            if name >= head.parameters.get(SEGMENT, "") or place.head() is None:
                raise InputError(
                    f"it begins inside of a transaction, whose context may be in the segment before it: {name} is not"
                    " there; without the context it can be read"
                )
            contents = read_contents(place)
            if contents is None or contents.messages:
                is_known, context = self._last(place)
                if is_known:
                    return context
            head = read_head(place)
        return None

    def _last(self, segment: Location) -> tuple[bool, Context | None]:
        """The context at the end of a closed segment, and whether the segment alone shows it. Raises InputError."""
        is_known, content = False, None
        with segment.open() as file:
            frames = SegmentFrames(file, str(segment), closed=True)
            try:
                decoder = Decoder(encoding=frames.read_head().encoding)
                for start, stop in frames:
                    tag = frames.buf[start + XLOG_HEADER_SIZE] if frames.head.own else None
                    if tag in _BEGINS:
                        is_known, content = True, None
                    elif tag == _MESSAGE:
                        message, _, _ = decoder.frame(frames.buf, start, stop)
                        assert isinstance(message, Message)
                        if message.transactional and message.prefix == self.prefix:
                            is_known, content = True, message.content
            except InputError as error:
                raise frames.located(error) from None
        return is_known, None if content is None else Context(content, content)


def contexts_of(prefix: str | None, segment: str, storage: StorageOptions) -> Contexts | None:
    """Where a segment at this path finds contexts of this prefix; None if none are asked for."""
    return None if prefix is None else Contexts(prefix, locate(folder_of(segment), storage))
