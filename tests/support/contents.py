"""Almost empty streams of messages, to write in every form."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.corpus import Raw
from tests.support.encode import (
    STREAM_STOP,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    frame,
    insert,
    message,
    origin,
    prepare,
    relation,
    rollback_prepared,
    stream_abort,
    stream_commit,
    stream_start,
    truncate,
    type_,
)

LSN = 0x90
KEEPALIVE = b"k" + struct.pack(">QqB", LSN, 5, 0)


@dataclass(frozen=True)
class Content:
    """Messages and keepalives; `lines` is the number of JSON lines for them."""

    items: tuple[bytes, ...]
    lines: int = 0

    def frames(self) -> Iterator[bytes]:
        """As Capture.frames()."""
        for item in self.items:
            yield item if item == KEEPALIVE else frame(item, LSN)

    def messages(self) -> Iterator[Raw]:
        """As Capture.messages()."""
        for item in self.items:
            if item != KEEPALIVE:
                yield Raw(item, False, LSN)


ALONE = message(b"hi", transactional=False)
CONTENTS: dict[str, Content] = {
    "nothing": Content(()),
    "a Begin": Content((begin(),)),
    "a Commit": Content((commit(),)),
    "an Insert": Content((insert("1", "x"),), 1),
    "a Truncate": Content((truncate(100),), 1),
    "an empty transaction": Content((begin(), commit())),
    "empty transactions": Content((begin(), commit()) * 20),
    "a transaction of an Origin": Content((begin(), origin("node"), commit())),
    "a keepalive": Content((KEEPALIVE,)),
    "keepalives": Content((KEEPALIVE,) * 20),
    "a Relation": Content((relation(),)),
    "Relations": Content((relation(),) * 20),
    "a Type": Content((type_(20000, "mood"),)),
    "Types": Content((type_(20000, "mood"),) * 20),
    "an Origin": Content((origin("node"),)),
    "a Message that is not transactional": Content((ALONE,), 1),
    "Messages that are not transactional": Content((ALONE,) * 20, 20),
    "a Message of any bytes": Content((message(bytes(range(256)), transactional=False),), 1),
    "an empty streamed transaction": Content((stream_start(), STREAM_STOP, stream_commit())),
    "a Stream Start": Content((stream_start(),)),
    "a Stream Commit": Content((stream_commit(),)),
    "a Stream Abort": Content((stream_abort(7, 7),)),
    "an empty prepared transaction": Content((begin_prepare(), prepare(), commit_prepared()), 1),
    "a Commit Prepared": Content((commit_prepared(),), 1),
    "a Rollback Prepared": Content((rollback_prepared(),), 1),
}
