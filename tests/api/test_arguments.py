"""The keyword arguments of the library: those of the options, with their meaning."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import pgtail
from pgtail.api.arguments import FIELDS, FollowArguments, ReadArguments, ReadArrowArguments, TableAtArguments
from pgtail.commands.options.common import DecodeOptions
from pgtail.options import options_of
from tests.support.encode import INT4, TEXT, UNCHANGED, begin, commit, delete, insert, lengths, relation, update

SECOND = 1_000_000
STREAM = lengths(
    relation(),
    *[begin(7, 0x100, 10 * SECOND), insert("1", "a"), insert("2", "b"), commit(0x100, time=10 * SECOND)],
    *[begin(8, 0x200, 20 * SECOND), update(["1", "c"]), commit(0x200, time=20 * SECOND)],
    *[begin(9, 0x300, 30 * SECOND), delete("2", None), commit(0x300, time=30 * SECOND)],
)
REGCLASS = 2205
LEFT_OUT = {"output", "format_string", "file", "changed", "wal2json", "source_name", "kafka_schema", "keys", "undo",
            "numbers", "transactions", "schema_changes", "show_aborted", "show_uncommitted", "all_columns", "max_width",
            "max_rows", "color", "colors", "highlight", "utc", "last", "follow", "client", "pager", "jobs", "verbose",
            "quiet"}  # fmt: skip
"""Options of a format, of the console and of the process."""


def selected(**arguments: Any) -> list[tuple[int | None, str]]:
    """The changes: the xid and the operation of each."""
    return [(transaction.xid, change.op) for transaction in pgtail.read(STREAM, **arguments) for change in transaction]


ALL = [(7, "insert"), (7, "insert"), (8, "update"), (9, "delete")]


def test_every_option_is_an_argument_or_left_out_on_purpose() -> None:
    fields = {FIELDS.get(name, name) for name in ReadArguments.__annotations__}
    assert fields | LEFT_OUT == {name for name, _ in options_of(DecodeOptions)}
    assert not fields & LEFT_OUT


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ALL),
        ({"tables": "t"}, ALL),
        ({"tables": ["x", "public.*"]}, ALL),
        ({"exclude": ("t",)}, []),
        ({"op": "insert,delete"}, [ALL[0], ALL[1], ALL[3]]),
        ({"op": {"delete"}}, ALL[3:]),
        ({"xid": 8}, ALL[2:3]),
        ({"xid": [7, 9]}, [*ALL[:2], ALL[3]]),
        ({"where": "v = 'b'"}, ALL[1:2]),
        ({"where": ["id = 1", "op = 'insert'"]}, ALL[:1]),
        ({"since": "0/200"}, ALL[2:]),
        ({"since": datetime(2000, 1, 1, 0, 0, 20, tzinfo=UTC)}, ALL[2:]),
        ({"since": "2000-01-01T00:00:30Z", "until": None}, ALL[3:]),
        ({"until": datetime(2000, 1, 1, 0, 0, 20).astimezone(UTC)}, None),
        ({"until": "2000-01-01T00:00:20Z"}, ALL[:3]),
        ({"limit": 1}, ALL[:2]),
        ({"limit": None, "strict": True, "encoding": "latin1", "input_format": "lengths"}, ALL),
    ],
    ids=str,
)
def test_selection(arguments: dict[str, Any], expected: list[Any] | None) -> None:
    if expected is not None:
        assert selected(**arguments) == expected
    else:  # the same time without a zone is local time
        naive = {name: value.astimezone().replace(tzinfo=None) for name, value in arguments.items()}
        assert selected(**arguments) == selected(**naive)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(pgtail.read, ReadArguments), (pgtail.follow, FollowArguments), (pgtail.expect, FollowArguments),
     (pgtail.read_arrow, ReadArrowArguments), (pgtail.table_at, TableAtArguments)],
)  # fmt: skip
def test_help_and_signatures_list_every_argument(function: Callable[..., object], arguments: type) -> None:
    parameters = inspect.signature(function).parameters
    assert {*arguments.__annotations__} < {*parameters}
    assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())
    where = parameters["where"]
    assert (where.kind, where.annotation, where.default) == (where.KEYWORD_ONLY, "str | Iterable[str]", ())
    text = inspect.getdoc(function)
    assert text is not None
    assert [
        name for name in arguments.__annotations__ if not re.search(f"^{name}: .*\n    \\w", text, re.MULTILINE)
    ] == []
    assert not re.search("--|config file|exit status", text)


def test_the_types_in_help_are_those_of_the_function() -> None:
    hints = [inspect.signature(function).parameters["encoding"].annotation for function in (pgtail.read, pgtail.follow)]
    assert hints == ["str", "str | None"]


def test_an_unknown_argument_names_the_nearest() -> None:
    for name, meant in (("table", "tables"), ("wheer", "where"), ("untill", "until"), ("old_value", "old_values")):
        with pytest.raises(TypeError, match=rf"^read\(\) has no argument '{name}'; did you mean {meant}\?$"):
            pgtail.read(STREAM, **{name: "x"})  # type: ignore[arg-type]
    for name, other in (("pager", ""), ("slot", "; follow() has it"), ("arguments", ""), ("sources", "")):
        with pytest.raises(TypeError, match=rf"^read\(\) has no argument '{name}'{re.escape(other)}$"):
            pgtail.read(STREAM, **{name: True})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^table_at\(\) has no argument 'redact'; read\(\) has it$"):
        pgtail.table_at("capture", "t", redact="v")  # type: ignore[call-arg]


def test_what_reading_raises_and_logs_names_arguments(caplog: pytest.LogCaptureFixture) -> None:
    damaged = STREAM + lengths(b"I" + bytes(4) + b"?")
    for read in (pgtail.read, pgtail.read_arrow):
        with pytest.raises(pgtail.Malformed, match="; resync skips the damage$") as raised:
            list(read(damaged))
        assert raised.value.reason.endswith("; resync skips the damage")
    with pytest.raises(pgtail.AssemblyError, match=r"\(strict stops here\)$"):
        list(pgtail.read(lengths(insert("1", "a")), strict=True))
    with caplog.at_level(logging.INFO, "pgtail"):
        assert list(pgtail.read(STREAM, context="app")) != []
    assert "no transaction sent a message with the prefix app (context)" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"since": "noon"}, "since: 'noon' is neither an LSN such as"),
        ({"limit": 0}, "limit: 0 is not a positive number"),
        ({"op": "upsert"}, "op upsert: expected one of insert, "),
        ({"where": "total >"}, "where"),
        ({"old_values": "sean"}, "old_values: 'sean' is none of sent, seen; did you mean sent?"),
        ({"old_values_limit": "many"}, "old_values_limit: 'many' is not a size such as"),
        ({"encoding": "klingon"}, "klingon"),
        ({"input_format": "xml"}, "input_format: 'xml' is none of "),
        ({"types": "mood"}, "types mood: expected NAME=enum"),
        ({"redact_hash": True}, "redact_hash needs redact, "),
        ({"values": "json"}, "values: 'json' is neither 'python' nor 'text'"),
        ({"since": "0/300", "until": "0/200"}, "since 0/300 is later than until 0/200"),
    ],
    ids=str,
)
def test_wrong_values(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(pgtail.OptionError) as raised:
        pgtail.read(STREAM, **arguments)
    assert words in str(raised.value)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"limit": "1"}, "int | None"), ({"limit": True}, "int | None"), ({"tables": 7}, "str | Iterable[str]"),
     ({"strict": "yes"}, "bool"), ({"xid": "7"}, "int | Iterable[int]"), ({"where": [1]}, "str | Iterable[str]"),
     ({"since": date(2000, 1, 1)}, "str | Lsn | datetime | None"), ({"storage": [("a", "b")]}, "Mapping[str, str]"),
     ({"limit": {"a": "b"}}, "int | None"), ({"types": {"mood": "enum"}}, "str | Iterable[str]")],
    ids=str,
)  # fmt: skip
def test_values_of_another_type(arguments: dict[str, Any], expected: str) -> None:
    [(name, value)] = arguments.items()
    with pytest.raises(TypeError) as raised:
        pgtail.read(STREAM, **arguments)
    assert str(raised.value) == f"{name}: {value!r} is not of type {expected}"


def last_row(*messages: bytes, **arguments: Any) -> pgtail.Change:
    """The last change of a transaction of these messages."""
    [*_, change] = [change for one in pgtail.read(lengths(relation(), begin(), *messages, commit()), **arguments)
                    for change in one]  # fmt: skip
    return change


def test_columns() -> None:
    change = last_row(insert("1", "a"), columns="x")
    assert (change.new, change.key) == ({"id": 1}, {"id": 1})
    assert last_row(insert("1", "a"), columns=["t.v"]).new == {"id": 1, "v": "a"}


def test_masks(tmp_path: Path) -> None:
    change = last_row(insert("1", "secret"), redact=["v"])
    assert change.new == {"id": 1, "v": "(redacted)"}
    assert "secret" not in change.json()
    assert change.relation.columns[1].type_name == "text"
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    hashed = [last_row(insert("1", text), redact="v", redact_hash=True, redact_key_file=key).new for text in "aab"]
    assert hashed[0] == hashed[1] != hashed[2]


def test_values_that_did_not_change() -> None:
    messages = update(["1", UNCHANGED], ["1", "big"], "O")
    change = last_row(messages, fill_unchanged=True)
    assert (change.new, change.unchanged) == ({"id": 1, "v": "big"}, ("v",))
    assert last_row(messages).new == {"id": 1, "v": pgtail.UNCHANGED}


def test_old_values_that_the_input_showed() -> None:
    change = last_row(insert("1", "a"), update(["1", "b"]), old_values="seen", old_values_limit="1MB")
    assert (change.old, change.new) == ({"id": 1, "v": "a"}, {"id": 1, "v": "b"})
    change = last_row(insert("1", "a"), update(["1", UNCHANGED]), delete("1", None), old_values="seen")
    assert change.old == {"id": 1, "v": "a"}
    assert last_row(insert("1", "a"), update(["1", "b"])).old is None


def test_what_is_not_known_of_an_old_row_is_named() -> None:
    """The name of an object may have changed since it was shown; a partition's identity has fewer columns."""
    described = relation(columns=(("id", INT4), ("r", REGCLASS), ("v", TEXT)))
    data = lengths(described, begin(), insert("1", "t", "a"), update(["1", "u", "b"]), commit())
    [_, change] = [change for one in pgtail.read(data, old_values="seen") for change in one]
    assert change.old == {"id": 1, "r": pgtail.NOT_SENT, "v": "a"}
    data = lengths(
        begin(), relation(100, "root", identity="f", key=(0, 1)), relation(101, "leaf", identity="d"),
        delete("1", None, kind="O"), commit(),
    )  # fmt: skip
    [change] = [change for one in pgtail.read(data) for change in one]
    assert (change.table, change.key, change.old) == ("root", {"id": 1}, {"id": 1, "v": pgtail.NOT_SENT})
    assert repr(change.old) == "{'id': 1, 'v': NOT_SENT}"
