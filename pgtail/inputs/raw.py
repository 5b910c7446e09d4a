"""Floor 4, messages one after another with nothing between them."""

from __future__ import annotations

import re

from pgtail.errors import Malformed
from pgtail.inputs.probe import MESSAGE_START
from pgtail.inputs.unframed import Unframed
from pgtail.wire.decoder import MESSAGES, AnyFrame


class Raw(Unframed):
    """Messages and nothing else."""

    name = "raw"
    separator = b""
    _follows = frozenset(MESSAGES)
    _start = re.compile(rb"(?=" + MESSAGE_START.pattern + rb")", re.DOTALL)

    def _not_followed(self, message: AnyFrame, value: int, offset: int) -> Malformed:
        return Malformed(f"no message starts with byte 0x{value:02x}", offset=offset)
