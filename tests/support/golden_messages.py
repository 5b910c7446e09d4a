"""Messages and frames as PostgreSQL 16 sent them, and their contents: read by hand from the hexadecimal digits, field
by field, with the manual's "Logical Replication Message Formats" beside them. Transaction ids, names and times were
compared with each scenario's sql.log and state.json.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pgtail.pgoutput.cells import UNCHANGED, Binary
from pgtail.pgoutput.decoder import AnyFrame, AnyMessage
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation, RelationColumn, Type
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.pgoutput.walsender import Keepalive


class Case(NamedTuple):
    """One message: the capture that holds it, whether it was inside a stream segment, its bytes, its contents."""

    source: str
    in_stream: bool
    hex: str
    message: AnyMessage

    @property
    def data(self) -> bytes:
        return bytes.fromhex(self.hex)

    def __str__(self) -> str:
        return f"{type(self.message).__name__}-{len(self.data)}-{self.source.replace('/', '-')}"


class FrameCase(NamedTuple):
    """One CopyData payload, what it holds, and the log position and server clock before the message."""

    source: str
    hex: str
    frame: AnyFrame
    lsn: int | None
    clock: int

    @property
    def data(self) -> bytes:
        return bytes.fromhex(self.hex)


def key(name: str, type_oid: int, typmod: int = -1) -> RelationColumn:
    """A column of the replica identity."""
    return RelationColumn(1, name, type_oid, typmod)


def plain(name: str, type_oid: int, typmod: int = -1) -> RelationColumn:
    """Any other column."""
    return RelationColumn(0, name, type_oid, typmod)


INT4, TEXT = 23, 25

GOLDEN: Final = [
    Case(
        "A_dml/p1_bin",
        False,
        "42 0000000001996908 000303bb38a35d65 0000033d",
        Begin(final_lsn=0x1996908, commit_time=848527574130021, xid=829),
    ),
    Case(
        "A_dml/p1_bin",
        False,
        "43 00 0000000001996908 0000000001996938 000303bb38a35d65",
        Commit(flags=0, commit_lsn=0x1996908, end_lsn=0x1996938, commit_time=848527574130021),
    ),
    Case(
        "A_msgs/p1", False, "4f 000000ab00cd1234 6f72675f315f313600", Origin(origin_lsn=0xAB_00CD1234, name="org_1_16")
    ),
    Case("F_origin/p4_any", True, "4f 0000000000000000 70675f313738373500", Origin(0, "pg_17875")),
    Case(
        "A_dml/p1",
        False,
        "52 00004040 7075626c696300 745f656d70747900 64 0000",
        Relation(None, 16448, "public", "t_empty", "d", ()),
    ),
    Case(
        "A_dml/p1",
        False,
        "52 00004044 7075626c696300 745f6964656e7400 64 0002 01 696400 00000017 ffffffff 00 7600 00000019 ffffffff",
        Relation(None, 16452, "public", "t_ident", "d", (key("id", INT4), plain("v", TEXT))),
    ),
    Case(
        "C_stream/p2_stream_msg",
        True,
        "52 000004c3 00004521 7075626c696300 73745f64646c00 64 0003"
        "01 696400 00000017 ffffffff 00 7600 00000019 ffffffff 00 657874726100 00000017 ffffffff",
        Relation(1219, 17697, "public", "st_ddl", "d", (key("id", INT4), plain("v", TEXT), plain("extra", INT4))),
    ),
    Case("A_types/p1", False, "59 000042be 00 696e743400", Type(None, 17086, "", "int4")),
    Case("D_twophase/p1_no2pc", False, "59 0000454b 7075626c696300 6d6f6f6400", Type(None, 17739, "public", "mood")),
    Case(
        "C_stream/p2_stream",
        True,
        "59 000004bd 00004514 7075626c696300 6d6f6f6400",
        Type(1213, 17684, "public", "mood"),
    ),
    Case("A_dml/p1", False, "49 00004040 4e 0000", Insert(None, 16448, ())),
    Case(
        "C_stream/p2_stream",
        True,
        "49 000004cd 0000452f 4e 0002 74 00000001 33 74 0000000b 61667465722061626f7274",
        Insert(1229, 17711, (b"3", b"after abort")),
    ),
    Case(
        "C_stream/p2_stream_bin",
        True,
        "49 000004cd 0000452f 4e 0002 62 00000004 00000003 62 0000000b 61667465722061626f7274",
        Insert(1229, 17711, (Binary(b"\0\0\0\3"), Binary(b"after abort"))),
    ),
    Case("A_filter/p1_rows", False, "55 000044bd 4e 0001 74 00000001 32", Update(None, 17597, "", None, (b"2",))),
    Case(
        "Z_small/p1",
        False,
        "55 000045f3 4b 0002 74 00000001 32 6e 4e 0002 74 00000001 33 6e",
        Update(None, 17907, "K", (b"2", None), (b"3", None)),
    ),
    Case(
        "A_dml/p1",
        False,
        "55 00004009 4f 0004 74 00000001 32 6e 6e 6e 4e 0004 74 00000001 33 6e 6e 6e",
        Update(None, 16393, "O", (b"2", None, None, None), (b"3", None, None, None)),
    ),
    Case(
        "A_big/p1_bin",
        False,
        "55 00004622 4b 0003 62 00000004 00000001 6e 6e 4e 0003 62 00000004 00000002 75 75",
        Update(None, 17954, "K", (Binary(b"\0\0\0\1"), None, None), (Binary(b"\0\0\0\2"), UNCHANGED, UNCHANGED)),
    ),
    Case(
        "C_stream/p2_stream",
        True,
        "55 000004c7 0000453b 4e 0003 74 00000001 31 74 00000001 78 75",
        Update(1223, 17723, "", None, (b"1", b"x", UNCHANGED)),
    ),
    Case(
        "C_stream/p2_stream",
        True,
        "55 000004c7 00004519 4b 0004 74 00000004 33303030 6e 6e 6e 4e 0004 74 00000005 3133303030 74 00000002 7332"
        "74 00000005 73686f7274 74 00000001 62",
        Update(1223, 17689, "K", (b"3000", None, None, None), (b"13000", b"s2", b"short", b"b")),
    ),
    Case("A_filter/p1_rows", False, "44 000044bd 4b 0001 74 00000001 32", Delete(None, 17597, "K", (b"2",))),
    Case(
        "A_types/p1",
        False,
        "44 000042f4 4f 000a 74 00000002 3939 6e6e6e6e6e6e6e6e6e",
        Delete(None, 17140, "O", (b"99", *(None,) * 9)),
    ),
    Case(
        "F_origin/p4_any",
        True,
        "44 00000522 000045ca 4b 0003 74 00000004 31303131 6e 6e",
        Delete(1314, 17866, "K", (b"1011", None, None)),
    ),
    Case("A_ddl/p1_pub2", False, "54 00000001 00 0000435d", Truncate(None, 0, (17245,))),
    Case("A_dml/p1", False, "54 00000002 03 00004054 0000405d", Truncate(None, 3, (16468, 16477))),
    Case("C_stream/p2_stream", True, "54 000004c3 00000001 02 00004528", Truncate(1219, 2, (17704,))),
    Case(
        "A_msgs/p1_msg_bin",
        False,
        "4d 01 00000000034eca50 747800 00000008 68656c6c6f207478",
        Message(None, 1, 0x34ECA50, "tx", b"hello tx"),
    ),
    Case(
        "A_msgs/p1_msg_bin",
        False,
        "4d 00 00000000034ecb38 62696e206e6f6e747800 00000004 000a000a",
        Message(None, 0, 0x34ECB38, "bin nontx", b"\0\n\0\n"),
    ),
    Case("A_msgs/p1_msg", False, "4d 01 00000000034ecb70 00 00000000", Message(None, 1, 0x34ECB70, "", b"")),
    Case(
        "C_stream/p2_stream_msg",
        True,
        "4d 000004bd 01 00000000039852b0 696e2073747265616d00 00000003 000a01",
        Message(1213, 1, 0x39852B0, "in stream", b"\0\n\1"),
    ),
    Case("C_stream/p2_stream", False, "53 000004bd 01", StreamStart(1213, 1)),
    Case("C_stream/p2_stream_msg", False, "53 000004be 00", StreamStart(1214, 0)),
    Case("C_stream/p2_stream", False, "45", StreamStop()),
    Case(
        "C_stream/p2_stream",
        False,
        "63 000004be 00 00000000039b7a08 00000000039b7a48 000303bb39500f2d",
        StreamCommit(1214, 0, 0x39B7A08, 0x39B7A48, 848527585447725),
    ),
    Case("C_stream/p2_stream", False, "41 000004bd 000004c0", StreamAbort(1213, 1216, None, None)),
    Case(
        "D_twophase/p4_2pc_parallel",
        False,
        "41 000004e7 000004e9 0000000003e548d8 000303bb39b7dfd2",
        StreamAbort(1255, 1257, 0x3E548D8, 848527592251346),
    ),
    Case(
        "D_twophase/p3_2pc",
        False,
        "62 0000000003e36f38 0000000003e37130 000303bb39b6c115 000004e5 64646c00",
        BeginPrepare(0x3E36F38, 0x3E37130, 848527592177941, 1253, "ddl"),
    ),
    Case(
        "D_twophase/p3_2pc",
        False,
        "50 00 0000000003e36f38 0000000003e37130 000303bb39b6c115 000004e5 64646c00",
        Prepare(0, 0x3E36F38, 0x3E37130, 848527592177941, 1253, "ddl"),
    ),
    Case(
        "D_twophase/p3_2pc",
        False,
        "4b 00 0000000003e37210 0000000003e372a0 000303bb39b6e105 000004e5 64646c00",
        CommitPrepared(0, 0x3E37210, 0x3E372A0, 848527592186117, 1253, "ddl"),
    ),
    Case(
        "D_twophase/p3_2pc",
        False,
        "72 00 0000000003e6e6f8 0000000003e6e7e0 000303bb39b8beda 000303bb39b92d18 000004eb 6269672d3200",
        RollbackPrepared(0, 0x3E6E6F8, 0x3E6E7E0, 848527592308442, 848527592336664, 1259, "big-2"),
    ),
    Case(
        "D_twophase/p3_2pc_stream",
        False,
        "70 00 0000000003e5c0c0 0000000003e5c1c0 000303bb39b80622 000004e7 6269672d3100",
        StreamPrepare(0, 0x3E5C0C0, 0x3E5C1C0, 848527592261154, 1255, "big-1"),
    ),
]

GOLDEN_FRAMES: Final = [
    FrameCase(
        "Z_small/p1",
        "6b 0000000005ce2d98 000303bb3a7e3d22 00",
        Keepalive(0x5CE2D98, 848527605251362, 0),
        0x5CE2D98,
        848527605251362,
    ),
    FrameCase(
        "Z_small/p1",
        "77 0000000005ce2dd0 0000000005ce2dd0 000303bb3a7efbea42 0000000005ce2f30 000303bb3a7efa42 00000544",
        Begin(0x5CE2F30, 848527605299778, 1348),
        0x5CE2DD0,
        848527605300202,
    ),
    FrameCase(
        "Z_small/p1",
        "77 0000000000000000 0000000000000000 000303bb3a7efc3a"
        "52 000045f3 7075626c696300 7400 64 0002 01 696400 00000017 ffffffff 00 7600 00000019 ffffffff",
        Relation(None, 17907, "public", "t", "d", (key("id", INT4), plain("v", TEXT))),
        None,
        848527605300282,
    ),
]
