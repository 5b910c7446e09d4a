"""What the tests of encoders share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from pgtail.native import compiled
from tests.support.render import need_compiled

Encode: TypeAlias = Callable[[str, int, bytes], bytes | None]


@pytest.fixture(scope="session")
def encode() -> Encode:
    """The encoder of a form: its name, its parameter and a text -> what it writes; None if it declines."""
    module = compiled("pgtail.native._scanner")
    if module is None:
        need_compiled()
    assert module is not None
    found: Encode = module.encode
    return found
