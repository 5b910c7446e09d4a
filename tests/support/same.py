"""Decoder and scanner write the same."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pgtail.errors import OptionError
from pgtail.native import compiled
from tests.support.render import ALL_OPTIONS, WAYS, Sink, need_compiled, render

OUTPUTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("json", {}),
    ("json", {"transactions": True, "fill_unchanged": True}),
    ("json", {"changed": True, "fill_unchanged": True}),
    ("json-tx", {}),
    ("json-tx", {"changed": True, "columns": ("*.id,t.?1,e*",)}),
    ("csv", {}),
    ("csv", {"fill_unchanged": True}),
    ("csv", {"changed": True, "columns": ("[!b-z]*",)}),
    ("csv", {"changed": True}),
    ("sql", {}),
    ("sql", {"undo": True}),
    ("wal2json", {}),
    ("wal2json", {"wal2json": ALL_OPTIONS, "fill_unchanged": True}),
    ("wal2json-v1", {"wal2json": ALL_OPTIONS}),
    ("wal2json-v1", {}),
    ("debezium", {}),
    ("debezium", {"kafka_schema": True, "numbers": "string"}),
    ("debezium", {"transactions": True}),
    ("debezium", {"keys": True}),
    ("debezium", {"keys": True, "kafka_schema": True}),
    ("line", {}),
    ("line", {"colored": True, "columns": ("*.id,t.*",)}),
    ("line", {"measure": lambda: 60, "max_width": 10, "colored": True}),
    ("line", {"measure": lambda: 60, "max_width": None}),
    ("line", {"measure": lambda: 130}),
    ("--format-string", {"format_string": r"%o\t%t\t%k\t%v\t%O\t%x %q %l %c %d %r %a %{id} %{v} %[v]"}),
)
"""The outputs that are plans, with their options."""


def same(*messages: bytes, output: str = "json", **options: Any) -> bytes:
    """What decoder and scanner write."""
    if compiled() is None:
        need_compiled()
    decoded, scanned = (outcome(*messages, output=output, way=way, **options) for way in WAYS)
    assert scanned == decoded
    return decoded[0]


def outcome(*messages: bytes, **options: Any) -> tuple[bytes, list[str], str]:
    """The output, the notes, and the error at the end. The clock stands still: Debezium's events have its time."""
    sink = Sink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
        try:
            rendered = render(*messages, sink=sink, **options)
        except OptionError as error:
            return b"".join(sink.parts), [], str(error)
    return rendered.written, rendered.notes, ""
