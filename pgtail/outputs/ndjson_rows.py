"""Floor 4, the short way of `-o json` in plain Python: runs of ordinary row messages from bytes to lines.

It takes what is ordinary and declines everything else before a byte of it is written: that is decoded and rendered as
all others (ndjson.py), and both ways give the same bytes. pgtail._rows does the same, compiled, and takes more of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pgtail.compiled import compiled
from pgtail.outputs.base import Parts, RowRun
from pgtail.outputs.ndjson import Json, RelationJson, place_parts, xid_part
from pgtail.relations import Relation
from pgtail.unhurried import orjson
from pgtail.values import Undecoded
from pgtail.values.codec import LONG, Codec
from pgtail.wire.cursor import Buffer
from pgtail.wire.decoder import XLOG_DATA, XLOG_HEADER_SIZE

_FRAME_HEADS: Final = {4: struct.Struct(">0sIBQ16xB").unpack_from, 5: struct.Struct(">1sIBQ16xB").unpack_from}
"""By framing: the message type if there is one, the length, the frame's tag and log position, the message's tag."""
_COPY_DATA: Final = {4: b"", 5: b"d"}
_HEAD: Final = struct.Struct(">cIcH").pack
_HEAD_SIZE: Final = 8
"""The tag, the relation, the kind of tuple and the number of columns."""
_XID_SIZE: Final = 4
_SIZE: Final = struct.Struct(">I").unpack_from
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")

_ROWS: Final = frozenset(b"IUD")
_BEGINS, _COMMITS = b"BC"
_NEWLINE: Final = ord("\n")

_Taker: TypeAlias = Callable[[Buffer, int, int, bytes, int, bytes, bytes], tuple[int, bytes]]
"""(buf, place of the first cell, LSN or 0, xid, seq, commit, behind) -> (where the message ends, its line).

Raises IndexError, struct.error or Undecoded for what it does not take.
"""


def row_run(output: Json, find: Callable[[int], Relation | None], shows: Callable[[Relation, str], bool]) -> RowRun:
    """The short way to this output, compiled where it can be.

    `find` has the tables in force by OID, `shows` says which operations on which tables are shown.
    """

    def table(oid: int) -> RelationJson | None:
        relation = find(oid)
        return None if relation is None or not relation.seen else output.table(relation)

    fast = compiled()
    run: RowRun = (Rows if fast is None else fast.Rows)(table, shows, output.write, output.options.fill_unchanged)
    return run


class Rows:
    """A RowRun: see outputs/base.py."""

    def __init__(
        self,
        find: Callable[[int], RelationJson | None],
        shows: Callable[[Relation, str], bool],
        write: Callable[[bytes], object],
        fill_unchanged: bool,
    ) -> None:
        self._find = find
        self._shows = shows
        self._write = write
        self._takers: dict[bytes, _Taker | None] = {}
        self._parts: Parts = (b"", b"", b"")
        self._begun_at = 0
        self._counted = 0
        self.transaction: tuple[int, int, int] = (0, 0, 0)
        self.most: int | None = None
        self.until: int | None = None
        self.inside = self.passed = self.began = False
        self.seq = self.rows = self.shown = self.end_lsn = 0

    def forget(self) -> None:
        """Tables may be other ones now."""
        self._takers.clear()

    def enter(self, parts: Parts, commit_lsn: int | None, commit_ts: int | None, seq: int, passed: bool) -> None:
        """The next run begins inside this transaction; `parts` is what it contributes to its lines."""
        self._parts = parts
        self.transaction = (0, commit_lsn or 0, commit_ts or 0)
        self.inside, self.seq, self.passed = True, seq, passed

    def leave(self) -> None:
        """The next run begins outside of a transaction."""
        self.inside = False

    def take(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        """Take messages from buf[pos:end] on; returns where the first one starts that is to be decoded."""
        self.rows = self.shown = self.end_lsn = 0
        self.began = False
        self._counted = 0
        lines: list[bytes] = []
        try:
            pos = self._run(buf, pos, end, framing, lines, _XID_SIZE if in_stream else 0)
        finally:
            if lines:
                self._write(b"".join(lines))
        if self.began and not self.seq:
            # Nothing of this transaction was taken: what follows may belong to its beginning.
            self.inside = self.began = False
            return self._begun_at
        return pos

    def _run(self, buf: Buffer, pos: int, end: int, framing: int, lines: list[bytes], xid_size: int) -> int:
        """One loop with what it needs in local names, because it is run through for every message."""
        frame_head, copy_data = _FRAME_HEADS.get(framing), _COPY_DATA.get(framing)
        uncounted = 4 if framing == 4 else 1
        start = framing + XLOG_HEADER_SIZE if framing else 0
        takers, inside, add = self._takers, self.inside, lines.append
        seq, (xid, commit, behind) = self.seq, self._parts
        lsn, stop = 0, None
        try:
            while pos < end:
                at = pos + start
                if frame_head is None:
                    tag = buf[at]
                else:
                    kind, size, frame, lsn, tag = frame_head(buf, pos)
                    stop = pos + uncounted + size
                    if frame != XLOG_DATA or kind != copy_data or stop > end or size > LONG:
                        break
                if tag in _ROWS and inside:
                    cells = at + xid_size + _HEAD_SIZE
                    head = buf[at : at + 1] + buf[at + 1 + xid_size : cells] if xid_size else buf[at:cells]
                    taker = takers[head] if head in takers else self._prepare(head)
                    if taker is None:
                        break
                    after, line = taker(buf, cells, lsn, xid, seq + 1, commit, behind)
                    if after != stop and (stop is not None or not _separated(buf, at, after, end)):
                        break
                    seq += 1
                    if line:
                        add(line)
                else:
                    self._count(seq, lines)
                    after = 0 if xid_size else self._border(tag, buf, pos, at, end, stop)
                    if not after:
                        return pos
                    inside, seq, (xid, commit, behind) = self.inside, self.seq, self._parts
                pos = after + (stop is None)
        except (IndexError, struct.error, Undecoded):
            pass
        self._count(seq, lines)
        return pos

    def _count(self, seq: int, lines: list[bytes]) -> None:
        """Rows were taken, up to this number; some of them made lines."""
        self.rows += seq - self.seq
        self.seq = seq
        self.passed = self.passed or len(lines) > self._counted
        self._counted = len(lines)

    def _border(self, tag: int, buf: Buffer, pos: int, at: int, end: int, stop: int | None) -> int:
        """Take a Begin or a Commit; returns where it ends, or 0."""
        if tag == _BEGINS:
            return self._begin(buf, pos, at, end, stop)
        return self._commit(buf, at, end, stop) if tag == _COMMITS else 0

    def _begin(self, buf: Buffer, pos: int, at: int, end: int, stop: int | None) -> int:
        """Take a Begin; returns where it ends, or 0."""
        after = at + 1 + _BEGIN.size
        if self.inside or not (after == stop or (stop is None and _separated(buf, at, after, end))):
            return 0
        commit_lsn, commit_ts, xid = _BEGIN.unpack_from(buf, at + 1)
        if self.until is not None and commit_lsn > self.until:
            return 0
        self.transaction = (xid, commit_lsn, commit_ts)
        self._parts = (xid_part(xid), place_parts("commit", commit_lsn, commit_ts), b"")
        self._begun_at = pos
        self.inside = self.began = True
        self.passed, self.seq = False, 0
        return after

    def _commit(self, buf: Buffer, at: int, end: int, stop: int | None) -> int:
        """Take the Commit that belongs to the transaction; returns where it ends, or 0."""
        after = at + 1 + _COMMIT.size
        if not self.inside or not (after == stop or (stop is None and _separated(buf, at, after, end))):
            return 0
        flags, commit_lsn, end_lsn, commit_ts = _COMMIT.unpack_from(buf, at + 1)
        if flags or (commit_lsn, commit_ts) != self.transaction[1:]:
            return 0
        shows = self.passed and self.seq > 0
        last = shows and self.most is not None and self.shown + 1 >= self.most
        if last or (self.until is not None and end_lsn >= self.until):
            return 0
        self.end_lsn = end_lsn
        self.shown += shows
        self.inside = self.began = False
        return after

    def _prepare(self, head: bytes) -> _Taker | None:
        """What takes the messages that begin like this; None where they are decoded."""
        self._takers[head] = None
        tag, kind = head[:1], head[5:6]
        table = self._find(_SIZE(head, 1)[0])
        op = {b"IN": "insert", b"UN": "update", b"DK": "delete"}.get(tag + kind)
        if table is not None and op is not None:
            count = len(table.relation.columns)
            if head == _HEAD(tag, table.relation.oid, kind, count):
                shown = self._shows(table.relation, op)
                self._takers[head] = _taker(table, op) if shown else _passing_over(count)
        return self._takers[head]


def _separated(buf: Buffer, at: int, after: int, end: int) -> bool:
    """Whether a message that no frame measures ends with its separator, and is not too long."""
    return after < end and buf[after] == _NEWLINE and after - at <= LONG


def _passing_over(count: int) -> _Taker:
    """For messages that are not shown: their lengths must be right all the same."""

    def take(buf: Buffer, pos: int, lsn: int, xid: bytes, seq: int, commit: bytes, behind: bytes) -> tuple[int, bytes]:
        for _ in range(count):
            kind = buf[pos]
            if kind in b"tb":
                pos += 5 + _SIZE(buf, pos + 1)[0]
            elif kind in b"nu":
                pos += 1
            else:
                raise Undecoded("")
        return pos, b""

    return take


def _taker(table: RelationJson, op: str) -> _Taker:
    """A function for one operation on one table, its loop over the columns unrolled: no other way is as fast."""
    names: dict[str, Any] = {"size_of": _SIZE, "Undecoded": Undecoded, "dumps": orjson.dumps}
    body: list[str] = []
    shown: list[tuple[str, bytes]] = []
    for index, column in enumerate(table.relation.columns):
        if op == "delete" and not column.key:
            # In a key tuple the columns outside of the identity are NULL, and not shown.
            body += ["    if buf[pos] != 110: raise Undecoded('')", "    pos += 1"]
            continue
        names[f"json{index}"] = table.codecs[index].json_text
        body += _cell(f"cell{index}", f"json{index}", table.codecs[index])
        shown.append((f"cell{index}", table.columns[index][0]))
    row = b",".join([_literal(name) + b"%b" for _, name in shown])
    tuple_name = b'"old":{' if op == "delete" else b'"new":{'
    rest = (b"" if op == "insert" else _literal(table.identity)) + tuple_name + row + b"}}\n"
    start = _literal(table.heads[op]) + b'%b"seq":%d,%b'
    names["line"] = start + b'"lsn":"%X/%X",%b' + rest
    names["line_without_lsn"] = start + b"%b" + rest
    cells = "".join([f", {cell}" for cell, _ in shown])
    source = [
        "def take(buf, pos, lsn, xid, seq, commit, behind):",
        *body,
        f"    if lsn: return pos, line % (xid, seq, commit, lsn >> 32, lsn & 0xFFFFFFFF, behind{cells})",
        f"    return pos, line_without_lsn % (xid, seq, commit, behind{cells})",
    ]
    exec("\n".join(source), names)
    taker: _Taker = names["take"]
    return taker


def _cell(cell: str, json: str, codec: Codec) -> list[str]:
    """Lines of Python that make the JSON of the cell at `pos` and go behind it; what is not text or NULL is declined.

    The usual digits and strings are taken on the spot, as `json`, the codec's function, would.
    """
    take = [f"        {cell} = {json}(buf[start:pos])"]
    if codec.native is not None and codec.native.json == "number" and not codec.native.quoted:
        take = [
            f"        {cell} = buf[start:pos]",
            f"        if not {cell}.isdigit() or {cell}[0] == 48: {cell} = {json}({cell})",
        ]
    elif codec.native is not None and codec.native.json == "string":
        take = [
            f"        try: {cell} = dumps(buf[start:pos].decode())",
            "        except ValueError: raise Undecoded('') from None",
        ]
    return [
        "    kind = buf[pos]",
        "    if kind == 116:",
        "        start = pos + 5",
        "        pos = start + size_of(buf, pos + 1)[0]",
        *take,
        "    elif kind == 110:",
        "        pos += 1",
        f"        {cell} = b'null'",
        "    else: raise Undecoded('')",
    ]


def _literal(text: bytes) -> bytes:
    """Text that stands for itself in a format."""
    return text.replace(b"%", b"%%")
