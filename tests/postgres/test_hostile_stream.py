"""A hostile walsender: streams with wrong lengths, counts and order, and without an end.

Each ends with a documented status and a message, in bounded memory, and without a traceback.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from pgtail.demo.server import EmbeddedServer
from tests.postgres.test_hostile_server import ProxiedDatabase, check
from tests.support import forked
from tests.support.encode import (
    STREAM_STOP,
    begin,
    begin_prepare,
    commit,
    frame,
    insert,
    message,
    origin,
    prepare,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
    truncate,
    type_,
)
from tests.support.hostile_server import Last, Reply, failure
from tests.support.hostile_server import message as wire
from tests.support.servers import fresh_database

MANY = 2_000
MEMORY = 200 << 20
"""Bytes that a run may take, in addition to those of the process that it is forked from."""
_LARGEST = (1 << 63) - 1


def _each(make: Callable[[int], bytes], count: int = MANY) -> list[bytes]:
    return [make(number) for number in range(1, count + 1)]


def _keepalive(position: int, clock: int) -> bytes:
    return wire(b"d", b"k" + struct.pack(">QqB", position, clock, 1))


def _at(clock: int) -> bytes:
    return wire(b"d", b"w" + struct.pack(">QQq", 2**64 - 1, 0, clock) + begin(1))


STREAMS: dict[str, list[bytes]] = {
    "tables without end": [begin(), *_each(lambda n: relation(16384 + n, f"t{n}")), commit()],
    "wide tables": [begin(), *_each(lambda n: relation(n, columns=[(f"c{i}", 25) for i in range(1600)]), 50)],
    "one table that changes": [begin(), *_each(lambda n: relation(1, f"t{n}")), insert("1", "x", oid=1), commit()],
    "too many columns": [begin(), relation(1, columns=[("c", 25)] * 65535)],
    "types without end": [begin(), *_each(lambda n: type_(20000 + n, f"t{n}")), commit()],
    "transactions that are never committed": _each(begin),
    "streamed transactions without end": [
        *(stream_start(1), relation(xid=1), STREAM_STOP),
        *[part for n in range(2, MANY) for part in (stream_start(n), insert("1", "x", xid=n), STREAM_STOP)],
    ],
    "savepoints without end": [
        *(stream_start(1), relation(xid=1), *_each(lambda n: insert("1", "x", xid=n)), STREAM_STOP),
        *_each(lambda n: stream_abort(1, n + 1)),
        stream_commit(1),
    ],
    "aborts of nothing": _each(lambda n: stream_abort(n, n)),
    "prepared transactions without end": [
        part for n in range(1, MANY) for part in (begin_prepare(n, f"g{n}"), prepare(n, f"g{n}"))
    ],
    "rows outside of transactions": [relation(), *_each(lambda n: insert("1", "x"))],
    "rows of unknown tables": [begin(), *_each(lambda n: insert("1", "x", oid=n)), commit()],
    "a stream inside a transaction": [begin(), stream_start(), begin(), STREAM_STOP, STREAM_STOP, stream_commit()],
    "origins without end": [begin(), *_each(lambda n: origin(f"o{n}")), commit()],
    "long names": [
        *(begin(), origin("o" * 2_000_000), type_(20000, "t" * 2_000_000), message(b"x", "p" * 2_000_000)),
        *(relation(1, "t" * 2_000_000, [("c" * 2_000_000, 25)]), insert("x", oid=1), commit()),
    ],
    "a truncate of everything": [begin(), relation(), b"T\xff\xff\xff\xff\0" + bytes(4000)],
    "the same table truncated": [begin(), relation(), truncate(*[100] * MANY), commit()],
    "a cell of two gigabytes": [begin(), relation(), b"I\0\0\0dN\0\2t\x7f\xff\xff\xff" + bytes(1000)],
    "a negative length": [begin(), relation(), b"I\0\0\0dN\0\2t\xff\xff\xff\xff" + bytes(1000)],
    "unknown messages": [b"Z" * 10] * MANY,
    "empty messages": [b""] * MANY,
}
FRAMES: dict[str, bytes] = {
    "keepalives at the end of time": b"".join([_keepalive(2**64 - 1, _LARGEST), _keepalive(0, -_LARGEST)] * MANY),
    "frames at the end of time": b"".join([_at(_LARGEST), _at(-_LARGEST - 1)] * MANY),
    "frames of unknown kinds": wire(b"d", b"s" + bytes(24)) * MANY,
    "notices without end": (b"N" + failure(b"look \x1b[31m", b"01000", b"WARNING")[1:]) * MANY,
    "settings without end": wire(b"S", b"TimeZone\0\x1b[31m\0") * MANY,
    "a frame of two gigabytes": b"d\x7f\xff\xff\xffw" + bytes(100_000),
    "a frame of negative length": b"d\xff\xff\xff\xf0w" + bytes(100_000),
    "an error of a megabyte": failure(b"x\x1b[31m\n    curl evil " * 50_000),
}


@pytest.fixture(scope="module")
def proxied(newest_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedDatabase]:
    with fresh_database(newest_server) as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
        made = ProxiedDatabase(database, tmp_path_factory.mktemp("hostile"))
        yield made
        made.server.close()


def attack(proxied: ProxiedDatabase, command: str, data: bytes) -> forked.Ran:
    """Run a command; what the server streams is replaced by this, after which it refuses all connections."""
    sent = False

    def change(reply: Reply) -> bytes | None:
        nonlocal sent
        if sent and reply.query is None:
            return failure(b"that was all", b"28000", b"FATAL") if reply.kind == b"R" else None
        if not sent and reply.kind == b"W":
            sent = True
            return Last(reply.whole + data)
        return reply.whole

    return proxied.run(command, change)


ATTACKS = [*STREAMS, *FRAMES]


@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=ATTACKS.__getitem__)
def test_only_documented_errors_in_bounded_memory(proxied: ProxiedDatabase, number: int) -> None:
    """A stream that is possible may reach the end that was asked for. The commands take turns."""
    name = ATTACKS[number]
    data = FRAMES.get(name) or b"".join([wire(b"d", frame(one, 0x1000)) for one in STREAMS[name]])
    command = ("stream", "record")[number % 2]
    ran = attack(proxied, command, data)
    check(ran, f"{command}: {name}", 0, 1, 3, 75)
    assert (b"pgtail: error: " in ran.err) == bool(ran.status)
    assert len(ran.err) < 8_000_000
    assert ran.more < MEMORY, f"{command}: {name}: {ran.more >> 20} MB"
