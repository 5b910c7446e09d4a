"""Every form is recognised by its content and yields the same messages: at once, in pieces, and gzipped."""

from __future__ import annotations

from collections import Counter

import pytest

from pgtail.errors import OptionError
from pgtail.inputs import INPUTS
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import Source
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.streaming import StreamAbort
from pgtail.pgoutput.walsender import Keepalive
from tests.support.corpus import Capture, capture, captures
from tests.support.forms import (
    FORMS,
    FRAMED,
    HEADS,
    bare_lengths,
    gzipped,
    messages_of,
    read_bytes,
    read_path,
    read_pipe,
)

SOME = [
    capture("Z_small", "p1"),
    capture("A_names", "p1"),
    capture("A_msgs", "p1_msg_bin"),
    capture("E_parallel", "p4_on"),
    capture("E_parallel", "p4_parallel"),
    capture("D_twophase", "p3_2pc_stream"),
]
NAMES = {
    "recv.bin": "recvlogical",
    "walsender.bin": "lengths",
    "copy.bin": "pgcopy",
    "copy_csv.csv": "csv",
    "copy_text.txt": "copytext",
    "peek.csv": "csv",
    "peek_dataonly.hex": "hex",
}
"""The form of each recorded file; all others are psql."""

THE_FILES_OWN = [form for form in FORMS if form not in ("pcap", "hexdump")]
"""The forms with offsets of the file; those of a packet capture and of a hex dump are others'."""


def expected(capture: Capture) -> list[AnyFrame]:
    """The messages as the decoder reads them, without an input."""
    decoder = Decoder()
    return [decoder.message(message, 0, len(message)) for _, message in messages_of(capture)]


def rows(messages: list[AnyFrame]) -> list[AnyFrame]:
    return [message for message in messages if not isinstance(message, Keepalive)]


def test_every_form_has_a_writer() -> None:
    assert sorted(FORMS) == sorted(INPUTS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("found", SOME, ids=str)
def test_the_same_messages(found: Capture, form: str) -> None:
    data = FORMS[form](found)
    reading = read_bytes(data)
    assert (reading.form, reading.error) == (form, None)
    assert rows(reading.messages) == expected(found)
    if form not in ("recvlogical", "raw", "hex", "hexdump"):
        lsns = [lsn for message, lsn, *_ in reading.decoded if not isinstance(message, Keepalive)]
        assert lsns == [lsn or None for lsn, _ in messages_of(found)]


@pytest.mark.parametrize("form", THE_FILES_OWN)
def test_offsets_of_messages(form: str) -> None:
    found = capture("D_twophase", "p3_2pc_stream")
    data = FORMS[form](found)
    decoded = [one for one in read_bytes(data).decoded if not isinstance(one[0], Keepalive)]
    for (_, _, offset, clock), (_, message) in zip(decoded, messages_of(found), strict=True):
        if form in HEADS:
            header = 25 if form in FRAMED else 0
            assert data[offset + header : offset + header + len(message)] == message
            assert (clock is not None) == bool(header)
        else:
            assert data[offset : offset + 2 * len(message)] == message.hex().encode()


@pytest.mark.parametrize("found", captures(), ids=str)
def test_recorded_forms(found: Capture) -> None:
    """Each recorded form is recognised, and has the number of messages counted when it was recorded."""
    counted = f"{found.name}.counts.json"
    counts = found.scenario.json(counted)["messages"] if found.scenario.has(counted) else {}
    for form, path in found.forms.items():
        if form == "walsender.idx.json":
            continue
        reading = read_path(str(path))
        assert (reading.form, reading.error) == (NAMES.get(form, "psql"), None), form
        kinds = Counter(type(message).__name__ for message in rows(reading.messages))
        assert dict(kinds) == {kind: n for kind, n in counts.get(form, kinds).items() if kind != "keepalive"}, form


def test_lengths_before_bare_messages() -> None:
    found = capture("E_parallel", "p4_on")
    reading = read_bytes(bare_lengths(found))
    assert (reading.form, reading.error) == ("lengths", None)
    assert reading.messages == expected(found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_pipes_in_pieces(form: str, piece: int) -> None:
    """Any division of the bytes yields the same messages."""
    found = capture("Z_small", "p1") if piece < 4096 else capture("E_parallel", "p4_on")
    data = FORMS[form](found)
    assert read_pipe(data, piece) == read_bytes(data)


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("members", [1, 5])
def test_inside_gzip(form: str, members: int) -> None:
    data = FORMS[form](capture("D_twophase", "p3_2pc_stream"))
    plain = read_bytes(data)
    assert plain.decoded
    assert read_bytes(gzipped(data, members)) == plain
    assert read_pipe(gzipped(data, members), 1000) == plain


@pytest.mark.parametrize("form", THE_FILES_OWN)
def test_a_source_that_starts_in_the_middle(form: str) -> None:
    """Start at each message of a stream with many segments, inside and outside of them."""
    data = FORMS[form](capture("C_stream", "p2_stream_msg"))
    whole = read_bytes(data)
    headless = {"pgcap": "copydata"}.get(form, form)
    for first in range(1, len(whole.decoded), 23):
        offset = whole.decoded[first][2]
        start = offset - HEADS[form] if form in HEADS else data.rfind(b"\n", 0, offset) + 1
        reading = read_bytes(data[start : start + 40_000])
        assert reading.form == headless, first
        assert reading.messages, first
        assert reading.messages == whole.messages[first : first + len(reading.messages)], first


def test_rotated_files_are_one_stream() -> None:
    """A file that pg_recvlogical began after SIGHUP has no Relation: the decoder keeps those of the file before."""
    whole, decoder = capture("G_rotate", "p1"), Decoder()
    parts = sorted(whole.scenario.folder.glob("p1.recv.part*"))
    assert len(parts) == 3
    found = [message for part in parts for message in read_path(str(part), decoder=decoder).messages]
    assert found == read_path(str(whole.forms["recv.bin"])).messages


def test_a_parallel_stream_needs_no_option_in_recvlogical() -> None:
    """The length of a Stream Abort depends on what follows."""
    for name in ("p4_parallel", "p4_on"):
        found = capture("E_parallel", name)
        aborts = [one for one in read_bytes(FORMS["recvlogical"](found)).messages if isinstance(one, StreamAbort)]
        assert aborts
        assert {one.abort_lsn is not None for one in aborts} == {name == "p4_parallel"}


@pytest.mark.parametrize("form", INPUTS)
def test_an_empty_source(form: str) -> None:
    assert read_bytes(b"", format=form).decoded == []
    assert read_bytes(b"").error is None
    assert read_pipe(b"").error is None
    assert read_bytes(gzipped(b" ", 1)[:0]).error is None


@pytest.mark.parametrize(
    "text", [" lsn | xid | data \n-----+-----+------\n(0 rows)\n\n", "lsn|xid|data\n(0 rows)\n", "lsn,xid,data\n"]
)
def test_a_result_without_rows(text: str) -> None:
    reading = read_bytes(text.encode())
    assert (reading.decoded, reading.error) == ([], None)


def test_text_around_the_rows_is_skipped() -> None:
    """A whole psql session: other results, command tags, several headers, Windows line ends, a byte order mark."""
    row = "0/5CE2DD0 | 1348 | \\x420000000005ce2f30000303bb3a7efa4200000544"
    session = f"""Timing is on.
SET
 pg_create_logical_replication_slot
------------------------------------
 (s,0/1949A30)
(1 row)

Time: 3.014 ms
INSERT 0 1
    lsn    | xid  |                     data
-----------+------+----------------------------------------------
 {row}
(1 row)

    lsn    | xid  |                     data
-----------+------+----------------------------------------------
 {row}
(1 Zeile)

"""
    for text in (session, "\ufeff" + session.replace("\n", "\r\n")):
        reading = read_bytes(text.encode())
        assert (reading.form, reading.error) == ("psql", None)
        assert [(type(message).__name__, lsn) for message, lsn, *_ in reading.decoded] == [("Begin", 0x5CE2DD0)] * 2


def test_comments_and_prefixes_in_hex() -> None:
    begin = "420000000005ce2f30000303bb3a7efa4200000544"
    reading = read_bytes(f"# a comment\n\n\\x{begin}\n0x{begin.upper()}\n  {begin}  \n{begin}".encode())
    assert (reading.form, reading.error, len(reading.decoded)) == ("hex", None, 4)


def test_unknown_form_is_refused(tmp_path: pytest.TempPathFactory) -> None:
    with Source("/dev/null") as source, pytest.raises(OptionError, match="no input format xml: choose one of"):
        open_input(source, Decoder(), format="xml")


@pytest.mark.parametrize(
    "data",
    [b"hello\n", b"45\n46\n", b"PGDMP\1\2\3" + bytes(100), "lsn".encode("utf-16"), bytes(100_000), b"\n" * 1000],
    ids=repr,
)
def test_other_files_are_no_dumps(data: bytes) -> None:
    reading = read_bytes(data)
    assert reading.decoded == []
    assert reading.error is not None
    assert "--input-format" in str(reading.error) or "this is" in str(reading.error)
