"""Every value that the recorded tables of A_types ended with, on five versions: text, bytes and JSON."""

from __future__ import annotations

import json

import pytest

from pgtail.values import Undecoded
from tests.support.cells import UNDECODABLE, TypesScenario
from tests.support.corpus import CAPTURES

VERSIONS = sorted(folder.name for folder in CAPTURES.glob("pg*") if (folder / "A_types").is_dir())


@pytest.mark.parametrize("version", VERSIONS)
def test_binary_values_decode_to_their_text(version: str) -> None:
    scenario = TypesScenario(version)
    types = scenario.types()
    undecoded = set()
    seen = set()
    for truth in scenario.values():
        codec = types.codec(truth.oid)
        seen.add(truth.type_name)
        token = codec.json_text(truth.text.encode())
        json.loads(token)
        if truth.binary is None:
            assert truth.type_name == "aclitem"
            continue
        try:
            assert codec.text_binary(truth.binary) == truth.text
            assert codec.json_binary(truth.binary) == token
        except Undecoded:
            undecoded.add(truth.type_name)
    assert len(seen) >= 105
    assert undecoded == {name for name in seen if name.startswith(UNDECODABLE)}
