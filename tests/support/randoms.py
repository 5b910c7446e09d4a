"""Random values of types, as text that a server can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

_ALPHABET = "ab\"'\\{}()[],;: \n\té😀漢NULnul0.-"


def _text(source: Random) -> str:
    return "".join(source.choices(_ALPHABET, k=source.randrange(12)))


def _numeric(source: Random) -> str:
    digits = "".join(source.choices("0123456789", k=source.randint(1, 40)))
    zeros = "0" * source.choice([0, 0, 0, 3, 4, 5, 8, 50])
    number = source.choice(
        [digits + zeros, f"{digits}.{zeros}{source.getrandbits(40)}", f"0.{zeros}{digits}", f"{zeros}.{zeros}5"]
    )
    return source.choice(["", "-"]) + number + source.choice(["", "", "e10", "e-20"])


def _micros(source: Random) -> str:
    return source.choice(["", f".{source.randrange(10**6):06d}", f".{source.randrange(1000)}"])


def _time(source: Random) -> str:
    return f"{source.randrange(24):02d}:{source.randrange(60):02d}:{source.randrange(60):02d}{_micros(source)}"


def _zone(source: Random) -> str:
    return f"{source.choice('+-')}{source.randrange(16):02d}:{source.choice([0, 30, source.randrange(60)]):02d}"


def _date(source: Random) -> str:
    year, era = source.choice(
        [
            (source.randint(1, 4712), " BC"),
            (source.randint(1, 9999), ""),
            (source.randint(1, 290000), ""),
            (source.randint(1990, 2030), ""),
        ]
    )
    return f"{year:04d}-{source.randint(1, 12):02d}-{source.randint(1, 28):02d}{era}"


def _timestamp(source: Random) -> str:
    date, _, era = _date(source).partition(" ")
    return f"{date} {_time(source)} {era}"


def _interval(source: Random) -> str:
    def part(unit: str, most: int) -> str:
        return source.choice(["", f"{source.randint(-most, most)} {unit} "])

    clock = source.choice(
        [
            "",
            f"{source.choice('+-')}{source.randrange(100000)}:{source.randrange(60)}:{source.randrange(60)}{_micros(source)}",
        ]
    )
    return part("years", 3000) + part("mons", 30) + part("days", 3000) + clock or "0"


def _inet(source: Random) -> str:
    if source.random() < 0.4:
        return ".".join(str(source.randrange(256)) for _ in range(4)) + source.choice(["", f"/{source.randrange(33)}"])
    words = [source.choice([0, 0, 0, 1, 0xFFFF, source.getrandbits(16)]) for _ in range(8)]
    return ":".join(f"{word:x}" for word in words) + source.choice(["", f"/{source.randrange(129)}"])


def _bits(source: Random) -> str:
    return "".join(source.choices("01", k=source.randrange(40)))


def _lexeme(source: Random) -> str:
    text = "".join(source.choices("ab'\\ é😀", k=source.randint(1, 5)))
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "''"))


def _tsvector(source: Random) -> str:
    def one() -> str:
        places = ",".join(
            f"{source.randint(1, 16383)}{source.choice(['', 'A', 'B', 'C', 'D'])}" for _ in range(source.randrange(4))
        )
        return f"{_lexeme(source)}:{places}" if places else _lexeme(source)

    return " ".join(one() for _ in range(source.randrange(5)))


def _tsquery(source: Random, depth: int = 0) -> str:
    if depth > 5 or source.random() < 0.3:
        marks = "".join(source.sample("*ABCD", source.randrange(3)))
        return f"{_lexeme(source)}:{marks}" if marks else _lexeme(source)
    if source.random() < 0.2:
        return f"!({_tsquery(source, depth + 1)})"
    sign = source.choice(["&", "|", "<->", f"<{source.randrange(100)}>"])
    return f"({_tsquery(source, depth + 1)} {sign} {_tsquery(source, depth + 1)})"


def _json(source: Random, depth: int = 0) -> object:
    kind = source.randrange(7 if depth < 4 else 5)
    if kind == 5:
        return [_json(source, depth + 1) for _ in range(source.randrange(4))]
    if kind == 6:
        return {_text(source): _json(source, depth + 1) for _ in range(source.randrange(4))}
    return [
        None,
        True,
        source.randint(-(10**20), 10**20),
        source.random() * 10 ** source.randint(-20, 20),
        _text(source),
    ][kind]


def _json_text(source: Random) -> str:
    return json.dumps(_json(source), ensure_ascii=source.random() < 0.5, indent=source.choice([None, None, 1]))


def _number_pair(source: Random) -> str:
    return f"({source.uniform(-1e3, 1e3)},{source.uniform(-1, 1) * 10 ** source.randint(-30, 30)})"


def _range_of(bound: Callable[[Random], str]) -> Callable[[Random], str]:
    def text(source: Random) -> str:
        low = source.choice(["", bound(source)])
        return source.choice([f"[{low},]", f"(,{low}]", f"[{low},{low}]", "empty"] if low else ["(,)"])

    return text


def _snapshot(source: Random) -> str:
    xids = sorted(source.sample(range(10, 100), source.randrange(5)))
    return f"{xids[0] if xids else 10}:{100}:{','.join(map(str, xids))}"


RANDOM: dict[str, Callable[[Random], str]] = {
    "bpchar": _text,
    "bytea": lambda source: "\\x" + source.randbytes(source.randrange(40)).hex(),
    "cidr": lambda source: str(source.randrange(256)) + ".0.0.0/8",
    "date": _date,
    "daterange": _range_of(_date),
    "float4": lambda source: repr(source.uniform(-1, 1) * 10 ** source.randint(-30, 30)),
    "float8": lambda source: repr(source.uniform(-1, 1) * 10 ** source.randint(-300, 300)),
    "inet": _inet,
    "int8": lambda source: str(source.randint(-(2**63), 2**63 - 1)),
    "interval": _interval,
    "json": _json_text,
    "jsonb": _json_text,
    "lseg": lambda source: f"[{_number_pair(source)},{_number_pair(source)}]",
    "money": lambda source: str(source.randint(-(10**15), 10**15) / 100),
    "numeric": _numeric,
    "numrange": _range_of(_numeric),
    "pg_snapshot": _snapshot,
    "polygon": lambda source: f"({','.join(_number_pair(source) for _ in range(source.randint(1, 4)))})",
    "text": _text,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "timetz": lambda source: _time(source) + _zone(source),
    "tsquery": _tsquery,
    "tsrange": _range_of(_timestamp),
    "tsvector": _tsvector,
    "uuid": lambda source: source.randbytes(16).hex(),
    "varbit": _bits,
}
"""A random value of each type."""
