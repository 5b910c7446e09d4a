"""The fast path of `-o json` in plain Python: runs of ordinary row messages from bytes to lines.

It stops at the first message that it does not support, before writing any of its bytes; ndjson.py writes that one from
its events. Both give the same bytes. The compiled code does the same for more messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pgtail._orjson import orjson
from pgtail.changes.relations import Relation
from pgtail.native import Parts, RowProcessor, compiled
from pgtail.outputs.ndjson import Json, RelationJson, position_parts, xid_part
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import XLOG_DATA, XLOG_HEADER_SIZE
from pgtail.pgoutput.kinds import Role, tags
from pgtail.values import Undecoded
from pgtail.values.codec import LONG, Codec

_FRAME_HEADS: Final = {4: struct.Struct(">0sIBQ16xB").unpack_from, 5: struct.Struct(">1sIBQ16xB").unpack_from}
"""By framing: the message type if any, the length, the tag and LSN of the frame, the tag of the message."""
_COPY_DATA: Final = {4: b"", 5: b"d"}
_HEAD: Final = struct.Struct(">cIcH").pack
_HEAD_SIZE: Final = 8
"""The size of the tag, the relation, the kind of tuple and the number of columns."""
_XID_SIZE: Final = 4
_SIZE: Final = struct.Struct(">I").unpack_from
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")

_ROWS: Final = tags(Role.ROW)
_BEGINS, _COMMITS = b"BC"
_NEWLINE: Final = ord("\n")

_RowWriter: TypeAlias = Callable[[Buffer, int, int, bytes, int, bytes, bytes], tuple[int, bytes]]
"""(buf, start of the first cell, LSN or 0, xid, seq, commit, rest) -> (end of the message, its line).

Raises IndexError, struct.error or Undecoded for a message that it does not support.
"""


def row_run(
    output: Json, find: Callable[[int], Relation | None], shows: Callable[[Relation, str], bool]
) -> RowProcessor:
    """The fast path to this output, compiled if available.

    `find` returns the current table of an OID, `shows` whether an operation on a table is shown.
    """

    def table(oid: int) -> RelationJson | None:
        relation = find(oid)
        return None if relation is None or not relation.seen else output.table(relation)

    fast = compiled()
    run: RowProcessor = (Rows if fast is None else fast.Rows)(table, shows, output.write, output.options.fill_unchanged)
    return run


class Rows:
    """A RowRun (pgtail.native) in Python."""

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
        self._writers: dict[bytes, _RowWriter | None] = {}
        self._parts: Parts = (b"", b"", b"")
        self._begun_at = 0
        self._counted = 0
        self.transaction: tuple[int, int, int] = (0, 0, 0)
        self.most: int | None = None
        self.until: int | None = None
        self.inside = self.passed = self.began = False
        self.seq = self.rows = self.messages = self.shown = self.end_lsn = 0

    def forget(self) -> None:
        """Forget the tables, because they may have changed."""
        self._writers.clear()

    def enter(self, parts: Parts, commit_lsn: int | None, commit_ts: int | None, seq: int, passed: bool) -> None:
        """The next run begins inside this transaction; `parts` are its parts of lines."""
        self._parts = parts
        self.transaction = (0, commit_lsn or 0, commit_ts or 0)
        self.inside, self.seq, self.passed = True, seq, passed

    def leave(self) -> None:
        """The next run begins outside a transaction."""
        self.inside = False

    def take(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        """Write the messages in buf[pos:end]; returns the start of the first one that must be decoded."""
        self.rows = self.messages = self.shown = self.end_lsn = 0
        self.began = False
        self._counted = 0
        lines: list[bytes] = []
        try:
            pos = self._run(buf, pos, end, framing, lines, _XID_SIZE if in_stream else 0)
        finally:
            if lines:
                self._write(b"".join(lines))
        if self.began and not self.seq:
            # No change of this transaction was written: decode it from its Begin on.
            self.inside = self.began = False
            self.messages -= 1
            return self._begun_at
        return pos

    def _run(self, buf: Buffer, pos: int, end: int, framing: int, lines: list[bytes], xid_size: int) -> int:
        """The loop over the messages; it uses local names for speed."""
        frame_head, copy_data = _FRAME_HEADS.get(framing), _COPY_DATA.get(framing)
        uncounted = 4 if framing == 4 else 1
        start = framing + XLOG_HEADER_SIZE if framing else 0
        writers, inside, add = self._writers, self.inside, lines.append
        seq, (xid, commit, suffix) = self.seq, self._parts
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
                    writer = writers[head] if head in writers else self._prepare(head)
                    if writer is None:
                        break
                    after, line = writer(buf, cells, lsn, xid, seq + 1, commit, suffix)
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
                    self.messages += 1
                    inside, seq, (xid, commit, suffix) = self.inside, self.seq, self._parts
                pos = after + (stop is None)
        except (IndexError, struct.error, Undecoded):
            pass
        self._count(seq, lines)
        return pos

    def _count(self, seq: int, lines: list[bytes]) -> None:
        """Count the rows up to `seq`, some of which gave lines."""
        self.rows += seq - self.seq
        self.messages += seq - self.seq
        self.seq = seq
        self.passed = self.passed or len(lines) > self._counted
        self._counted = len(lines)

    def _border(self, tag: int, buf: Buffer, pos: int, at: int, end: int, stop: int | None) -> int:
        """Handle a Begin or Commit; returns its end, or 0 if it must be decoded."""
        if tag == _BEGINS:
            return self._begin(buf, pos, at, end, stop)
        return self._commit(buf, at, end, stop) if tag == _COMMITS else 0

    def _begin(self, buf: Buffer, pos: int, at: int, end: int, stop: int | None) -> int:
        """Handle a Begin; returns its end, or 0 if it must be decoded."""
        after = at + 1 + _BEGIN.size
        if self.inside or not (after == stop or (stop is None and _separated(buf, at, after, end))):
            return 0
        commit_lsn, commit_ts, xid = _BEGIN.unpack_from(buf, at + 1)
        if self.until is not None and commit_lsn > self.until:
            return 0
        self.transaction = (xid, commit_lsn, commit_ts)
        self._parts = (xid_part(xid), position_parts("commit", commit_lsn, commit_ts), b"")
        self._begun_at = pos
        self.inside = self.began = True
        self.passed, self.seq = False, 0
        return after

    def _commit(self, buf: Buffer, at: int, end: int, stop: int | None) -> int:
        """Handle the Commit of the transaction; returns its end, or 0 if it must be decoded."""
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

    def _prepare(self, head: bytes) -> _RowWriter | None:
        """The writer of messages that begin with `head`; None if they must be decoded."""
        self._writers[head] = None
        tag, kind = head[:1], head[5:6]
        table = self._find(_SIZE(head, 1)[0])
        op = {b"IN": "insert", b"UN": "update", b"DK": "delete"}.get(tag + kind)
        if table is not None and op is not None:
            count = len(table.relation.columns)
            if head == _HEAD(tag, table.relation.oid, kind, count):
                shown = self._shows(table.relation, op)
                self._writers[head] = _row_writer(table, op) if shown else _skip_writer(count)
        return self._writers[head]


def _separated(buf: Buffer, at: int, after: int, end: int) -> bool:
    """Whether an unframed message is followed by its separator, and is not too long."""
    return after < end and buf[after] == _NEWLINE and after - at <= LONG


def _skip_writer(count: int) -> _RowWriter:
    """A writer of messages that are not shown, which checks their lengths only."""

    def take(buf: Buffer, pos: int, lsn: int, xid: bytes, seq: int, commit: bytes, suffix: bytes) -> tuple[int, bytes]:
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


def _row_writer(table: RelationJson, op: str) -> _RowWriter:
    """A function for one operation on one table, with an unrolled loop over its columns, for speed."""
    names: dict[str, Any] = {"size_of": _SIZE, "Undecoded": Undecoded, "dumps": orjson.dumps}
    body: list[str] = []
    shown: list[tuple[str, bytes]] = []
    for index, column in enumerate(table.relation.columns):
        if op == "delete" and not column.key:
            # Columns outside the replica identity are NULL in a key tuple, and not shown.
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
        "def take(buf, pos, lsn, xid, seq, commit, suffix):",
        *body,
        f"    if lsn: return pos, line % (xid, seq, commit, lsn >> 32, lsn & 0xFFFFFFFF, suffix{cells})",
        f"    return pos, line_without_lsn % (xid, seq, commit, suffix{cells})",
    ]
    exec("\n".join(source), names)
    writer: _RowWriter = names["take"]
    return writer


def _cell(cell: str, json: str, codec: Codec) -> list[str]:
    """Python source that converts the cell at `pos` to JSON and advances `pos`; it supports text and NULL only.

    Common numbers and strings are converted inline, like the codec's function `json` does.
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
    """Text escaped for %-formatting."""
    return text.replace(b"%", b"%%")
