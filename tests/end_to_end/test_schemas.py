"""The JSON Schemas in man/schema: current, printed by `pgtail help`, and true of what the captures give.

tests/support/run.py compares every output of the test suite with them, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pgtail.cli.help import SCHEMAS as NAMES
from tests.support.corpus import Scenario, captures, scenarios
from tests.support.run import decode, here
from tests.support.schemas import OF_CHANGES, check, check_output, strict, validator
from tests.tools import make_schemas

WAL2JSON = [
    word
    for name in ("include-xids", "include-timestamp", "include-lsn", "include-type-oids")
    for word in ("--wal2json", name)
]
OPTIONS: dict[str, Sequence[str]] = {
    "json": ("--schema-changes", "--transactions", "--show-aborted", "--show-uncommitted", "--context", "pfx"),
    "json-tx": ("--schema-changes", "--show-aborted", "--old-values", "seen"),
    "wal2json": WAL2JSON,
    "wal2json-v1": WAL2JSON,
    "debezium": ("--transactions", "--schema"),
}
CHANGE = b'{"op":"insert","schema":"s","table":"t","xid":7,"seq":1,"commit_lsn":"0/100","new":{"id":1}}'


@pytest.mark.parametrize("name", make_schemas.MADE)
def test_the_files_are_current_and_valid(name: str) -> None:
    assert {file.name for file in make_schemas.SCHEMAS.iterdir()} == {*make_schemas.texts()}, "run `make man`"
    text = (make_schemas.SCHEMAS / f"{name}.json").read_text(encoding="utf-8")
    assert text == make_schemas.texts()[f"{name}.json"], "run `make man`"
    Draft202012Validator.check_schema(json.loads(text))
    Draft202012Validator.check_schema(strict(json.loads(text)))


@pytest.mark.parametrize("name", NAMES)
def test_help_prints_them(name: str) -> None:
    printed = here("help", "--schema", name)
    assert (printed.status, printed.stderr) == (0, "")
    assert json.loads(printed.stdout) == make_schemas.schemas()[NAMES[name]]


def test_every_schema_is_printed() -> None:
    assert {*OPTIONS} == OF_CHANGES
    assert {*NAMES.values()} == {*make_schemas.MADE}
    assert here("help", "--schema", "nosuch").status == 2


@pytest.mark.parametrize("scenario", scenarios(), ids=str)
def test_what_the_captures_give_is_valid(scenario: Scenario) -> None:
    """Every output of one capture of each scenario; those of the others are compared where other tests read them."""
    first = next(one for one in captures() if one.scenario == scenario)
    form, encoding = first.forms["walsender.bin"], ("--encoding", first.encoding)
    for output, options in OPTIONS.items():
        written = decode(*encoding, "-o", output, *options, form).stdout
        assert written
        for line in written.splitlines():
            check(output, line)
    check("stats", here("stats", "-o", "json", *encoding, form).stdout)


@pytest.mark.parametrize(
    "change",
    [
        {"nosuch": 1},
        {"op": "nosuch"},
        {"xid": "7"},
        {"commit_lsn": "0/xyz"},
        {"new": None},
        {"prefix": "of a message"},
        {"state": "nosuch"},
    ],
    ids=str,
)
def test_what_is_not_described_is_an_error_here(change: dict[str, Any]) -> None:
    document = json.loads(CHANGE)
    assert validator("json").is_valid(document)
    assert not validator("json").is_valid(document | change)


def test_an_output_that_is_not_described_is_an_error_here() -> None:
    with pytest.raises(AssertionError, match=r"json\.json: \$.*'nosuch' was unexpected"):
        check_output(["decode"], CHANGE.replace(b'"xid"', b'"nosuch"') + b"\n")
    with pytest.raises(AssertionError, match=r"log\.json: \$"):
        check_output(["stream", "--log-format", "json"], b"", '{"event":"message","message":"","level":"info"}')


@pytest.mark.parametrize("name", make_schemas.MADE)
def test_readers_accept_keys_and_values_to_come(name: str) -> None:
    """The published schemas allow what a later version may add, and nothing that it may not change."""
    allows = Draft202012Validator(make_schemas.schemas()[name]).is_valid
    if name == "json":
        document = json.loads(CHANGE)
        assert allows(document | {"nosuch": 1})
        assert allows({"op": "nosuch", "anything": 1})
        assert not allows(document | {"xid": "7"})
        assert not allows({key: value for key, value in document.items() if key != "new"})
    assert '"additionalProperties": false' not in json.dumps(make_schemas.schemas()[name])
