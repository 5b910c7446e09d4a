"""Floats against real servers: all powers of two and their neighbours, and random bit patterns of each width."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterator

import pytest

from pgtail.values.floats import float4_text, float8_text
from tests.support.truth import texts_of
from tests.values.conftest import World

TEXT: dict[str, tuple[int, Callable[[bytes], str]]] = {"float4": (700, float4_text), "float8": (701, float8_text)}


COUNT = 10_000
"""Random integers of each kind."""


def double(value: float) -> bytes:
    return struct.pack(">d", value)


def single(value: float) -> bytes:
    return struct.pack(">f", value)


def neighbours(cell: bytes) -> Iterator[bytes]:
    """The cell, the floats before and after it, and the same below zero."""
    bits = int.from_bytes(cell)
    for step in (-1, 0, 1):
        near = (bits + step).to_bytes(len(cell))
        yield near
        yield bytes([near[0] | 0x80]) + near[1:]


def check(world: World, type_name: str, cells: list[bytes]) -> None:
    if world.version < 12:
        pytest.skip("PostgreSQL before 12 writes floating point numbers with 17 digits, also where fewer suffice")
    oid, text = TEXT[type_name]
    said = texts_of(world.connection, type_name, oid, cells)
    assert len(said) == len(cells)
    wrong = [(cell.hex(), server) for cell, server in zip(cells, said, strict=True) if text(cell) != server]
    assert not wrong[:20]


def test_powers_of_two(world: World) -> None:
    check(world, "float8", [near for power in range(-1074, 1024) for near in neighbours(double(math.ldexp(1, power)))])
    check(world, "float4", [near for power in range(-149, 128) for near in neighbours(single(math.ldexp(1, power)))])


def test_few_digits(world: World) -> None:
    """Where a short decimal may be on the edge of the interval, and where exponent notation starts."""
    digits = [1, 2, 3, 5, 7, 9, 11, 123, 999, 99999, 12345]
    check(world, "float8", [double(float(f"{d}e{power}")) for d in digits for power in range(-328, 304)])
    check(world, "float4", [single(float(f"{d}e{power}")) for d in digits for power in range(-49, 34)])


def test_integers(world: World) -> None:
    """Integers from 2**53 on include all doubles for which repr() and PostgreSQL choose different decimals."""
    source = random.Random("integers")
    numbers = [source.getrandbits(source.randint(1, 140)) * source.choice([1, -1]) for _ in range(COUNT)]
    numbers += [source.randrange(10 ** source.randint(1, 6)) * 10 ** source.randint(12, 25) for _ in range(COUNT)]
    check(world, "float8", [double(number) for number in numbers])
    check(world, "float4", [single(number) for number in numbers if abs(number) < 2**127])


@pytest.mark.parametrize("type_name", TEXT)
def test_random_bits(world: World, type_name: str) -> None:
    source = random.Random(f"bits {world.version}")
    size = 4 if type_name == "float4" else 8
    check(world, type_name, [source.randbytes(size) for _ in range(100_000)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e23, "9.999999999999999e+22"),
        (0.1, "0.1"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (123456789012345.6, "123456789012345.6"),
        (1234567890123456.7, "1.2345678901234568e+15"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-0.0, "-0"),
        (5e-324, "5e-324"),
        (2.0**53, "9.007199254740992e+15"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        # Of single precision.
        (single(0.1), "0.1"),
        (single(1.0), "1"),
        (single(999999.0), "999999"),
        (single(1e6), "1e+06"),
        (single(1234567.0), "1.234567e+06"),
        (single(1e-45), "1e-45"),
        (single(3.4028234663852886e38), "3.4028235e+38"),
        (single(16777216.0), "1.6777216e+07"),
        (single(-0.0), "-0"),
        (single(math.inf), "Infinity"),
    ],
)
def test_text(value: float | bytes, text: str) -> None:
    assert (float4_text(value) if isinstance(value, bytes) else float8_text(double(value))) == text
