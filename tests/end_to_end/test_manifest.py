"""Every data output of every recorded capture is byte for byte as in tests/captures/manifest.json."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.support.corpus import CAPTURES
from tests.tools.make_manifest import MANIFEST, hashes, sources

KNOWN = orjson.loads(MANIFEST.read_bytes())


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(CAPTURES))) for path in sources(CAPTURES)])
def test_outputs_match_the_manifest(path: Path) -> None:
    assert hashes(path) == KNOWN[str(path.relative_to(CAPTURES))]


def test_the_manifest_names_every_capture() -> None:
    assert set(KNOWN) == {str(path.relative_to(CAPTURES)) for path in sources(CAPTURES)}
