"""An emulator of S3, moto, whose conditional puts are atomic, as those of S3 are."""

from __future__ import annotations

import sys
import threading
from unittest.mock import patch

from moto.core.common_types import TYPE_RESPONSE
from moto.s3.responses import S3Response
from moto.server import main

_put_object = S3Response.put_object
_turn = threading.Lock()


def _one_at_a_time(response: S3Response) -> TYPE_RESPONSE:
    """moto compares the version, and stores the object some steps later: of two writers both may have success."""
    with _turn:
        return _put_object(response)


if __name__ == "__main__":
    with patch.object(S3Response, "put_object", _one_at_a_time):
        main(sys.argv[1:])
