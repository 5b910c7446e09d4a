"""The captures under tests/captures, as bytes and as the truth recorded beside them; decodes no message.

The only framing read here is `NAME.walsender.bin`: an int32 length before each CopyData payload.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parents[1] / "captures"

STREAM_START, STREAM_STOP, XLOG_DATA = ord("S"), ord("E"), ord("w")
XLOG_HEADER = 25
"""Bytes of a w frame before its message."""


def read(path: Path) -> bytes:
    """A file's bytes, uncompressed where it is gzipped."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


@dataclass(frozen=True)
class Raw:
    """One message as the server sent it; `in_stream` is counted from the Stream Start and Stop before it."""

    data: bytes
    in_stream: bool
    lsn: int


@dataclass(frozen=True)
class Scenario:
    """One database's workload, with the output of other plugins and of SQL."""

    version: str
    name: str

    def __str__(self) -> str:
        return f"{self.version}-{self.name}"

    @property
    def folder(self) -> Path:
        return CAPTURES / self.version / self.name

    def json(self, name: str) -> Any:
        return json.loads(self._text(name))

    def lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in self._text(name).split("\n") if line]

    def has(self, name: str) -> bool:
        return any((self.folder / (name + end)).exists() for end in ("", ".gz"))

    def _text(self, name: str) -> str:
        path = self.folder / name
        return read(path if path.exists() else path.with_name(name + ".gz")).decode("utf-8", "surrogateescape")

    @cached_property
    def meta(self) -> Any:
        return self.json("meta.json")

    @cached_property
    def state(self) -> Any:
        return self.json("state.json")

    @cached_property
    def truth(self) -> list[Any]:
        return self.lines("truth.jsonl")

    @property
    def captures(self) -> list[Capture]:
        return [Capture(self, name) for name in self.meta["captures"]]


@dataclass(frozen=True)
class Capture:
    """One slot's output, in several forms."""

    scenario: Scenario
    name: str

    def __str__(self) -> str:
        return f"{self.scenario}-{self.name}"

    @property
    def meta(self) -> Any:
        return self.scenario.meta["captures"][self.name]

    @property
    def options(self) -> dict[str, str]:
        return dict(self.meta["options"])

    @property
    def encoding(self) -> str:
        return str(self.meta["wire_encoding"])

    @property
    def binary(self) -> bool:
        return self.options.get("binary") == "true"

    @cached_property
    def forms(self) -> dict[str, Path]:
        """Form (`recv.bin`, `peek.csv`, ...) -> file."""
        found = {}
        for path in sorted(self.scenario.folder.iterdir()):
            name, _, form = path.name.removesuffix(".gz").partition(".")
            if name == self.name and form != "counts.json" and not form.startswith("recv.part"):
                found[form] = path
        return found

    def frames(self) -> Iterator[bytes]:
        """Every CopyData payload of the live walsender."""
        data, position = read(self.forms["walsender.bin"]), 0
        while position < len(data):
            (length,) = struct.unpack_from(">i", data, position)
            yield data[position + 4 : position + 4 + length]
            position += 4 + length

    def messages(self) -> Iterator[Raw]:
        """Every pgoutput message of the live walsender."""
        inside = False
        for frame in self.frames():
            if frame[0] == XLOG_DATA:
                message = frame[XLOG_HEADER:]
                inside = inside and message[0] != STREAM_STOP
                yield Raw(message, inside, int.from_bytes(frame[1:9]))
                inside = inside or message[0] == STREAM_START


@cache
def scenarios() -> list[Scenario]:
    """Every scenario of every version."""
    return [Scenario(file.parent.parent.name, file.parent.name) for file in sorted(CAPTURES.glob("pg*/*/meta.json"))]


@cache
def captures() -> list[Capture]:
    """Every capture of every version."""
    return [capture for scenario in scenarios() for capture in scenario.captures]


def capture(scenario: str, name: str, version: str = "pg16") -> Capture:
    """One capture by name."""
    return Capture(Scenario(version, scenario), name)
