"""Almost empty streams of messages, to write in every form."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import encode
from tests.support.corpus import Raw

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
            yield item if item == KEEPALIVE else encode.frame(item, LSN)

    def messages(self) -> Iterator[Raw]:
        """As Capture.messages()."""
        for item in self.items:
            if item != KEEPALIVE:
                yield Raw(item, False, LSN)


ALONE = encode.message(b"hi", transactional=False)
CONTENTS: dict[str, Content] = {
    "nothing": Content(()),
    "a Begin": Content((encode.begin(),)),
    "a Commit": Content((encode.commit(),)),
    "an Insert": Content((encode.insert("1", "x"),), 1),
    "a Truncate": Content((encode.truncate(100),), 1),
    "an empty transaction": Content((encode.begin(), encode.commit())),
    "empty transactions": Content((encode.begin(), encode.commit()) * 20),
    "a transaction of an Origin": Content((encode.begin(), encode.origin("node"), encode.commit())),
    "a keepalive": Content((KEEPALIVE,)),
    "keepalives": Content((KEEPALIVE,) * 20),
    "a Relation": Content((encode.relation(),)),
    "Relations": Content((encode.relation(),) * 20),
    "a Type": Content((encode.type_(20000, "mood"),)),
    "Types": Content((encode.type_(20000, "mood"),) * 20),
    "an Origin": Content((encode.origin("node"),)),
    "a Message that is not transactional": Content((ALONE,), 1),
    "Messages that are not transactional": Content((ALONE,) * 20, 20),
    "a Message of any bytes": Content((encode.message(bytes(range(256)), transactional=False),), 1),
    "an empty streamed transaction": Content((encode.stream_start(), encode.STREAM_STOP, encode.stream_commit())),
    "a Stream Start": Content((encode.stream_start(),)),
    "a Stream Commit": Content((encode.stream_commit(),)),
    "a Stream Abort": Content((encode.stream_abort(7, 7),)),
    "an empty prepared transaction": Content((encode.begin_prepare(), encode.prepare(), encode.commit_prepared()), 1),
    "a Commit Prepared": Content((encode.commit_prepared(),), 1),
    "a Rollback Prepared": Content((encode.rollback_prepared(),), 1),
}
