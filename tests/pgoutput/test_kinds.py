"""The table of message kinds."""

from __future__ import annotations

from pgtail.pgoutput.kinds import HAVE_STREAM_XID, IN_STREAM, KINDS, Role, messages, tags
from pgtail.pgoutput.rows import Delete, Insert, Update


def test_roles() -> None:
    assert tags(Role.ROW) == set(b"IUD")
    assert tags(Role.BEGIN, Role.END) == set(b"BbCP")
    assert messages(Role.ROW) == {Insert, Update, Delete}
    assert tags(*Role) == set(KINDS)


def test_only_origin_has_no_xid_in_a_stream_segment() -> None:
    assert set(b"RYIUDTM") == HAVE_STREAM_XID
    assert set(b"O") == IN_STREAM - HAVE_STREAM_XID
