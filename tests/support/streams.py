"""Random streams: plain, streamed, prepared and aborted transactions as a server sends them, and snapshots."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pgtail.values.oids import BUILTIN, OIDS
from tests.support import encode
from tests.support.samples import SAMPLES
from tests.support.typed_rows import BINARY

TYPES: Final = [
    *[OIDS[name] for name in ("int4", "int4", "text", "text", "numeric", "bool", "timestamptz", "jsonb", "int8")],
    *[OIDS[name] for name in ("date", "float8", "bpchar", "bytea", "uuid", "_text", "_int4", "json", "interval")],
]
ENUM: Final = 16_400
"""The OID of a type of a user."""
NAMES: Final = ("id", "a", "b", "c", "v", "é", 'q"x', "a b")
_SHORT: Final = 200
"""Characters; longer samples are left out."""


@dataclass
class Table:
    """A table as the server has it; `version` changes with its columns."""

    oid: int
    schema: str
    name: str
    columns: list[tuple[str, int]]
    key: tuple[int, ...]
    identity: str
    version: int = 0


@dataclass
class Open:
    """A streamed transaction whose end was not sent yet."""

    xid: int
    described: dict[int, int] = field(default_factory=dict)
    subxids: list[int] = field(default_factory=list)
    segments: int = 0


class Stream:
    """Makes the messages of one stream; `xids`, `lsns` and `tables` are what is in it."""

    def __init__(self, choose: Random) -> None:
        self._choose = choose
        self.messages: list[tuple[int, bytes]] = []
        self.lsn = choose.choice((0x1000, 0xFFFF_FF00, 0x7_0000_0000))
        self._time = choose.choice((800_000_000_000_000, 800_000_000_000_000, 0, -(10**12), 9_223_000_000_000_000_000))
        self._last_xid = choose.choice((7, 700, 0xFFFF_0000))
        self.xids: list[int] = []
        self.lsns: list[int] = []
        self.tables = [self._table(oid) for oid in range(100, 100 + choose.choice((1, 1, 2, 3)))]
        self._described: dict[int, int] = {}
        self._open: list[Open] = []
        self._prepared: list[tuple[int, str, int]] = []
        steps = choose.choice((1, 3, 6, 12, 20))
        kinds: list[Callable[[], None]] = [
            *(self._plain, self._plain, self._streamed, self._prepare, self._outcome, self._snapshot)
        ]
        kinds = choose.sample(kinds, choose.randrange(1, len(kinds) + 1)) if choose.random() < 0.5 else kinds
        for _ in range(steps):
            choose.choice(kinds)()
            if choose.random() < 0.05:
                self._alter(choose.choice(self.tables))
            if choose.random() < 0.1:
                self._send(encode.message(b"between", transactional=False, lsn=self.lsn))
        while self._open and choose.random() < 0.9:
            self._end_streamed(self._open[0])
        while self._prepared and choose.random() < 0.8:
            self._outcome()

    def framed(self) -> tuple[str, bytes]:
        """The stream in one of the binary forms, which is named."""
        form = self._choose.choice(("lengths", "lengths", "copydata", "recvlogical"))
        if form == "recvlogical":
            return form, encode.recvlogical(*[data for _, data in self.messages])
        frames = [encode.frame(data, lsn) for lsn, data in self.messages]
        if form == "lengths":
            return form, b"".join([struct.pack(">i", len(one)) + one for one in frames])
        return form, b"".join([b"d" + struct.pack(">i", 4 + len(one)) + one for one in frames])

    # -- tables --------------------------------------------------------------------------------------------------

    def _table(self, oid: int) -> Table:
        choose = self._choose
        names = choose.sample(NAMES, choose.randrange(1, len(NAMES)))
        columns = [(name, choose.choice((*TYPES, ENUM))) for name in names]
        key = tuple(sorted(choose.sample(range(len(columns)), choose.choice((0, 1, 1, 1, min(2, len(columns)))))))
        return Table(
            *(oid, choose.choice(("public", "public", "s")), choose.choice(("t", f"t{oid}", 'T"x')), columns, key),
            choose.choice("dddfin"),
        )

    def _alter(self, table: Table) -> None:
        choose = self._choose
        table.version += 1
        if choose.random() < 0.5 or len(table.columns) < 2:
            unused = [name for name in NAMES if name not in dict(table.columns)]
            table.columns += [(name, choose.choice(TYPES)) for name in unused[:1]]
        else:
            place = choose.randrange(len(table.columns))
            table.columns[place] = (table.columns[place][0], choose.choice(TYPES))

    def _describe(self, table: Table, described: dict[int, int], xid: int | None) -> None:
        if described.get(table.oid) == table.version and self._choose.random() < 0.97:
            return
        described[table.oid] = table.version
        if any(oid == ENUM for _, oid in table.columns):
            self._send(encode.type_(ENUM, "mood", xid=xid), lsn=0)
        key = range(len(table.columns)) if table.identity == "f" else table.key
        self._send(
            encode.relation(
                *(table.oid, table.name, table.columns),
                schema=table.schema,
                identity=table.identity,
                key=[*key],
                xid=xid,
            ),
            lsn=0,
        )

    # -- messages ------------------------------------------------------------------------------------------------

    def _send(self, data: bytes, lsn: int | None = None) -> None:
        self.lsn += self._choose.choice((0, 8, 56, 200))
        self.messages.append((self.lsn if lsn is None else lsn, data))

    def _next_xid(self) -> int:
        self._last_xid += self._choose.choice((1, 1, 5))
        self.xids.append(self._last_xid)
        return self._last_xid

    def _commits(self) -> tuple[int, int, int]:
        """LSN, end LSN and time of a commit."""
        self.lsn += 64
        self._time += self._choose.choice((0, 1, 1_000_000, 3_600_000_000))
        self.lsns.append(self.lsn)
        return self.lsn, self.lsn + 48, self._time

    def _cell(self, oid: int) -> encode.Cell:
        choose = self._choose
        chance = choose.random()
        if chance < 0.1:
            return None
        if chance < 0.12:
            return choose.choice(("no number", "", "\x01\x7f", "x" * 5000, b"\0\1\2\3"))
        if oid == ENUM:
            return choose.choice(("sad", "o'k", "ha\npy"))
        if chance < 0.2 and BINARY.get(oid):
            return choose.choice(BINARY[oid])
        texts = [text for text in SAMPLES.get(BUILTIN[oid].name, ["x"]) if len(text) <= _SHORT]
        return choose.choice(texts)

    def _row(self, table: Table, xid: int | None) -> bytes:
        choose, oid = self._choose, table.oid
        new = [self._cell(kind) for _, kind in table.columns]
        old = [
            self._cell(kind) if choose.random() < 0.3 else cell
            for cell, (_, kind) in zip(new, table.columns, strict=True)
        ]
        key: list[encode.Cell] = [cell if index in table.key else None for index, cell in enumerate(old)]
        whole = table.identity == "f"
        op = choose.choice("IIUUUD")
        if op == "I":
            return encode.insert(*new, oid=oid, xid=xid)
        if op == "D":
            return encode.delete(*(old if whole else key), kind="O" if whole else "K", oid=oid, xid=xid)
        sent = [
            encode.UNCHANGED if index not in table.key and choose.random() < 0.15 else cell
            for index, cell in enumerate(new)
        ]
        if whole:
            return encode.update(sent, old, "O", oid=oid, xid=xid)
        return encode.update(sent, key if table.key and choose.random() < 0.4 else None, "K", oid=oid, xid=xid)

    def _items(self, described: dict[int, int], xid: int | None = None) -> None:
        """Rows and what else is in a transaction; in a segment of a streamed one with an xid."""
        choose = self._choose
        for _ in range(choose.choice((0, 1, 1, 2, 3, 5, 40))):
            table, chance = choose.choice(self.tables), choose.random()
            if chance < 0.88:
                self._describe(table, described, xid)
                for _ in range(choose.choice((1, 1, 2, 4))):
                    self._send(self._row(table, xid))
            elif chance < 0.93:
                self._describe(table, described, xid)
                self._send(encode.truncate(table.oid, options=choose.randrange(4), xid=xid))
            elif chance < 0.98:
                self._send(encode.message(choose.choice((b"", b"m\n\0\xff")), 'p"', lsn=self.lsn, xid=xid))
            else:
                self._send(encode.message(b"now", transactional=False, lsn=self.lsn, xid=xid))

    # -- transactions --------------------------------------------------------------------------------------------

    def _origin(self) -> None:
        if self._choose.random() < 0.15:
            self._send(encode.origin('node "é"', 77))

    def _plain(self) -> None:
        xid, (lsn, end, time) = self._next_xid(), self._commits()
        self._send(encode.begin(xid, lsn, time))
        self._origin()
        self._items(self._described)
        self._send(encode.commit(lsn, end, time))

    def _snapshot(self) -> None:
        """The rows of some tables; sometimes with a message that no snapshot has."""
        choose, (lsn, _, time) = self._choose, self._commits()
        for table in choose.sample(self.tables, choose.randrange(1, len(self.tables) + 1)):
            before = choose.random() < 0.5  # as in a segment of a capture
            if before:
                self._describe(table, {}, None)
            self._send(encode.begin(0, lsn, time), lsn)
            if not before:
                self._describe(table, {}, None)
            self._described[table.oid] = table.version
            for _ in range(choose.choice((0, 1, 2, 5, 40))):
                row = encode.insert(*[self._cell(kind) for _, kind in table.columns], oid=table.oid)
                self._send(self._row(table, None) if choose.random() < 0.01 else row, lsn)
            if choose.random() < 0.95:
                self._send(encode.commit(lsn, lsn + 1, time), lsn)

    def _prepare(self) -> None:
        xid, (lsn, end, time) = self._next_xid(), self._commits()
        gid = f"g'{xid}é"
        self._send(encode.begin_prepare(xid, gid, lsn, end, time))
        self._origin()
        self._items(self._described)
        self._send(encode.prepare(xid, gid, lsn, end, time))
        self._prepared.append((xid, gid, end))

    def _outcome(self) -> None:
        if not self._prepared:
            return
        xid, gid, prepared_end = self._prepared.pop(self._choose.randrange(len(self._prepared)))
        lsn, end, time = self._commits()
        if self._choose.random() < 0.6:
            self._send(encode.commit_prepared(xid, gid, lsn, end, time))
        else:
            self._send(encode.rollback_prepared(xid, gid, prepared_end, end, time, time))

    def _streamed(self) -> None:
        """A segment of a new streamed transaction, or of an open one; or the end of one."""
        choose = self._choose
        if self._open and choose.random() < 0.3:
            self._end_streamed(choose.choice(self._open))
            return
        if not self._open or choose.random() < 0.5:
            self._open.append(Open(self._next_xid()))
        one = choose.choice(self._open)
        self._send(encode.stream_start(one.xid, int(one.segments == 0)))
        if one.segments == 0:
            self._origin()
        one.segments += 1
        xid = one.xid
        if choose.random() < 0.4:
            one.subxids.append(self._next_xid())
            xid = one.subxids[-1]
        self._items(one.described, xid)
        if xid != one.xid and choose.random() < 0.5:
            self._items(one.described, one.xid)
        self._send(encode.STREAM_STOP)
        if one.subxids and choose.random() < 0.3:
            self._abort(one.xid, one.subxids.pop(choose.randrange(len(one.subxids))))

    def _abort(self, xid: int, subxid: int) -> None:
        tail = struct.pack(">Qq", self.lsn, self._time) if self._choose.random() < 0.3 else b""
        self._send(encode.stream_abort(xid, subxid) + tail)

    def _end_streamed(self, one: Open) -> None:
        self._open.remove(one)
        lsn, end, time = self._commits()
        chance = self._choose.random()
        if chance < 0.2:
            self._abort(one.xid, one.xid)
            return
        if chance < 0.4:
            gid = f"s'{one.xid}"
            self._send(encode.prepare(one.xid, gid, lsn, end, time, b"p"))
            self._prepared.append((one.xid, gid, end))
        else:
            self._send(encode.stream_commit(one.xid, lsn, end, time))
        self._described |= one.described


def damaged(choose: Random, data: bytes) -> bytes:
    """The stream cut at any place, or with some other bytes in it."""
    if choose.random() < 0.5:
        return data[: choose.randrange(len(data))]
    found = bytearray(data)
    for _ in range(choose.randrange(1, 4)):
        found[choose.randrange(len(found))] = choose.choice((0, 0xFF, choose.randrange(256)))
    return bytes(found)


def arguments(choose: Random, stream: Stream) -> Iterator[str]:
    """Random options of `pgtail decode`, except for -f."""
    yield from choose.choice(_FORMATS)(choose)
    columns = sorted({name for table in stream.tables for name, _ in table.columns})
    names = sorted({table.name for table in stream.tables})
    for _ in range(choose.choice((0, 0, 1, 1, 1, 2, 3))):
        yield from choose.choice(_SELECTIONS)(choose, stream, columns, names)
    for flag in ("--strict", "--resync", "--quiet"):
        if choose.random() < 0.1:
            yield flag


def _some(choose: Random, chance: float, *options: str) -> list[str]:
    return [option for option in options if choose.random() < chance]


def _shown(choose: Random) -> list[str]:
    """Options of the formats that show columns."""
    return [
        *_some(choose, 0.2, "--changed", "--fill-unchanged"),
        *(["--columns", choose.choice(("a,b", "*.id", "t.v,*é*", "[!b]*"))] if choose.random() < 0.2 else []),
    ]


def _seen(choose: Random) -> list[str]:
    limit = ["--old-values-limit", choose.choice(("0", "2kB", "10kB"))] if choose.random() < 0.2 else []
    return ["--old-values", "seen", *limit] if choose.random() < 0.4 else []


def _unsettled(choose: Random) -> list[str]:
    return _some(choose, 0.15, "--show-aborted", "--show-uncommitted", "--schema-changes")


def _color(choose: Random) -> list[str]:
    color = ["--color", choose.choice(("always", "never"))]
    return [*color, *(["--highlight", choose.choice(("a", "[0-9]+"))] if choose.random() < 0.2 else [])]


def _wal2json(choose: Random) -> list[str]:
    names = ("include-transaction=off", "include-xids", "include-timestamp", "include-lsn", "include-schemas=off")
    others = ("include-types=off", "include-type-oids", "numeric-data-types-as-string")
    return [part for name in _some(choose, 0.3, *names, *others) for part in ("--wal2json", name)]


_TEMPLATES: Final = (r"%o\t%t\t%k\t%v\t%O\t%x %q %l %c %d %r %g %a %m %{id} %{v} %[v]", "%o %t %a %{a}", "%x %g%a")
_FORMATS: Final[tuple[Callable[[Random], list[str]], ...]] = (
    lambda choose: [
        "-o",
        "json",
        *_shown(choose),
        *_seen(choose),
        *_unsettled(choose),
        *_some(choose, 0.3, "--transactions"),
    ],
    lambda choose: ["-o", "json-tx", *_shown(choose), *_seen(choose), *_unsettled(choose), *_numbers(choose)],
    lambda choose: ["-o", "csv", *_shown(choose), *_seen(choose)],
    lambda choose: ["-o", "sql", *_some(choose, 0.2, "--schema-changes")],
    lambda choose: ["-o", "sql", "--undo", *_seen(choose), *_some(choose, 0.2, "--schema-changes")],
    lambda choose: ["-o", "wal2json", *_wal2json(choose), *_some(choose, 0.2, "--fill-unchanged")],
    lambda choose: ["-o", "wal2json-v1", *_wal2json(choose), *_some(choose, 0.2, "--fill-unchanged")],
    lambda choose: ["-o", "debezium", *_some(choose, 0.6, "--transactions"), *_seen(choose), *_numbers(choose)],
    lambda choose: ["-o", "debezium", "--keys", *_some(choose, 0.5, "--schema"), *_numbers(choose)],
    lambda choose: ["-o", "line", *_shown(choose), *_seen(choose), *_unsettled(choose), *_color(choose)],
    lambda choose: [
        "-o",
        "table",
        "--max-rows",
        choose.choice("0125"),
        *_some(choose, 0.3, "--all-columns"),
        *_shown(choose),
        *_seen(choose),
        *_unsettled(choose),
    ],
    lambda choose: ["--format-string", choose.choice(_TEMPLATES), *_some(choose, 0.1, "--show-aborted")],
)


def _numbers(choose: Random) -> list[str]:
    return ["--numbers", "string"] if choose.random() < 0.2 else []


_VALUES: Final = ("1", "-0.50", "t", "'a'", "'2024-01-01'", "'%a_'", "x", "null")
_TESTS: Final = (
    *("is null", "is not null", "~ '[0-9]'", "!~* a", "is true", "->>'a' = '1'", "->'a'->>'b' is null", "->>1 > 0"),
    *[f"{op} {value}" for op in ("=", "<>", "<", ">=", "like", "ilike", "is distinct from") for value in _VALUES],
    *("in (1, 2, 7)", "in ('a', 'x')", "between 1 and 9"),
)


def _test(choose: Random, stream: Stream, columns: list[str]) -> str:
    name = '"{}"'.format(choose.choice((*columns, *columns, "nosuch")).replace('"', '""'))
    if choose.random() < 0.15:
        return choose.choice((f"changed({name})", f"old.{name} is distinct from new.{name}", "op = 'update'"))
    if choose.random() < 0.1:
        return choose.choice(("commit_ts > '2025-01-01'", f"xid >= {choose.choice(stream.xids or [1])}", "table = t"))
    return f"{choose.choice(('', '', 'old.', 'new.'))}{name} {choose.choice(_TESTS)}"


def _where(choose: Random, stream: Stream, columns: list[str], names: list[str]) -> list[str]:
    text = _test(choose, stream, columns)
    while choose.random() < 0.4:
        word, second = choose.choice(("and", "or", "and not", "or not")), _test(choose, stream, columns)
        text = f"{choose.choice(('not ', '', ''))}({text}) {word} ({second})"
    return ["--where", text]


def _lsn(choose: Random, stream: Stream) -> str:
    lsn = choose.choice(stream.lsns or [1]) + choose.choice((-1, 0, 0, 1, 48))
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


_Selection = Callable[[Random, Stream, list[str], list[str]], list[str]]
_SELECTIONS: Final[tuple[_Selection, ...]] = (
    _where,
    _where,
    _where,
    lambda choose, stream, columns, names: [
        "--op",
        choose.choice(("insert", "update", "delete,insert", "message", "snapshot")),
    ],
    lambda choose, stream, columns, names: ["--op", choose.choice(("truncate", "commit_prepared,update"))],
    lambda choose, stream, columns, names: ["--xid", str(choose.choice([*stream.xids, *stream.xids, 99]))],
    lambda choose, stream, columns, names: ["-t", choose.choice((*names, "s.*", "nosuch"))],
    lambda choose, stream, columns, names: ["--exclude", choose.choice((*names, "s.*"))],
    lambda choose, stream, columns, names: ["--since", _lsn(choose, stream)],
    lambda choose, stream, columns, names: ["--since", "2025-05-08T07:00"],
    lambda choose, stream, columns, names: ["--until", _lsn(choose, stream)],
    lambda choose, stream, columns, names: ["--limit", choose.choice("123")],
    lambda choose, stream, columns, names: ["--redact", choose.choice((*columns, "*", "t*.a"))],
)
