"""The compiled parts: built, and of the source that is here."""

from __future__ import annotations

import pytest

from pgtail.compiled import compiled
from tests.rendering import need_compiled
from tests.tools.stamp_compiled import SOURCES, stamp_in, stamp_of

NAMES = [pytest.param(name, id=name.rpartition(".")[2]) for name in SOURCES]


@pytest.mark.parametrize("name", NAMES)
def test_the_source_bears_its_own_hash(name: str) -> None:
    source = SOURCES[name].read_text(encoding="utf-8")
    assert stamp_in(source) == stamp_of(source), f"{SOURCES[name].name} was changed: make compiled"


@pytest.mark.parametrize("name", NAMES)
def test_the_build_is_of_this_source(name: str) -> None:
    module = compiled(name)
    if module is None:
        need_compiled()
    else:
        source = SOURCES[name].read_text(encoding="utf-8")
        assert stamp_in(source) == module.SOURCE, f"{name} is stale: make install"
