"""Fixtures for commands that several processes carry out."""

from __future__ import annotations

import pytest

from pgtail.commands.jobs import Jobs, _Process
from pgtail.native import compiled
from pgtail.pipeline.parts import Part
from tests.support.render import need_compiled


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The parts that were given to processes; their output is a few hundred bytes, so that some of it is spooled."""
    if compiled() is None:
        need_compiled()
    given: list[Part] = []
    give = Jobs._give

    def counted(self: Jobs, process: _Process, part: Part) -> None:
        given.append(part)
        give(self, process, part)

    monkeypatch.setattr(Jobs, "_give", counted)
    monkeypatch.setattr("pgtail.commands.turn.IN_MEMORY", 1000)
    return given
