"""Floor 4, the file that pg_recvlogical writes: each message, then one newline.

Messages hold newlines themselves, so it cannot be split at them (src/bin/pg_basebackup/pg_recvlogical.c).
"""

from __future__ import annotations

import re

from pgtail.errors import Malformed
from pgtail.inputs.probe import MESSAGE_START
from pgtail.inputs.unframed import Unframed
from pgtail.wire.decoder import AnyFrame


class Recvlogical(Unframed):
    """Messages with a newline behind each; the last one may lack it."""

    name = "recvlogical"
    separator = b"\n"
    _follows = b"\n"
    _start = re.compile(rb"(?:\n|\A)(?=" + MESSAGE_START.pattern + rb")", re.DOTALL)

    def _not_followed(self, message: AnyFrame, value: int, offset: int) -> Malformed:
        reason = f"byte 0x{value:02x} where the newline behind the message should stand"
        return Malformed(reason, offset=offset, message=type(message).__name__)
