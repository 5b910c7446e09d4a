"""Random and damaged bytes for whatever reads bytes; each may raise its documented errors alone.

With atheris (python -m pip install atheris) libFuzzer looks for bytes that reach new code; without it they are damaged
at random; a failure is kept in a file.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pgtail.capture.format import SegmentName, SnapshotPart
from pgtail.capture.segment import SegmentFrames
from pgtail.capture.state import parse_state, state_json
from pgtail.changes.column_rules import column_rules
from pgtail.changes.commit_range import point_of
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Column, Relation
from pgtail.changes.where_parser import Parser
from pgtail.errors import InputError, Malformed, OptionError, Truncated
from pgtail.files.gunzip import Gunzip
from pgtail.humanize import parse_seconds
from pgtail.inputs import INPUTS
from pgtail.native.plan import ROW_OPS
from pgtail.outputs import OUTPUTS, OutputOptions
from pgtail.outputs.template import Template
from pgtail.pgoutput.cursor import TracedCursor
from pgtail.pgoutput.decoder import Decoder
from pgtail.postgres.connection import parameters
from pgtail.storage.options import parse_options
from pgtail.terminal.escape import escape, escape_sql, hides, quoted, shell_word, sql_identifier
from pgtail.values import Types, Undecoded
from pgtail.values.oids import BUILTIN
from tests.end_to_end.test_hostile_data import DUMP, HOSTILE, NAME
from tests.support.corpus import capture
from tests.support.encode import TEXT, begin, commit, frame, insert, relation, update
from tests.support.forms import FORMS, messages_of, read_bytes
from tests.support.golden_messages import GOLDEN, GOLDEN_FRAMES
from tests.support.render import WAYS, Sink, render
from tests.torture.bench import Bench

_SEGMENT: Final = b"".join(
    [
        b"S\0\0\0\x16pgtail.format\x001\0",
        *[b"d" + (len(one) + 4).to_bytes(4) + one for one in map(frame, (begin(), relation(), commit()))],
    ]
)
_STATE: Final = {
    "position": "0/10",
    "last": str(SegmentName(16, 0)),
    "messages": 3,
    "head": {"pgtail.format": "1", "server_version": "18"},
    "gap": [str(SegmentName(16, 0)), "0/5", "0/6"],
}
_CONDITIONS: Final = (
    "total >= 100.5 and customer like 'Ada%' escape '!'",
    "id in (1, 2, '3') or not (op = 'insert' and commit_ts > '2026-01-01')",
    "old.v is distinct from new.v and changed(v) and doc->'a'->>'b' ~* '^x.*$'",
    'xid between 1 and 7 and "na""me" is not null and table <> \'t\' and b is not true',
)
_COLUMNS: Final = [("id", 23), ("total", 1700), ("customer", TEXT), ("v", TEXT), ("doc", 3802), ("b", 16), ("xid", 20)]
_ROW: Final = ("1", "2.50", "Ada", None, '{"a": {"b": "x"}}', "t", "7")
_MESSAGES: Final = (
    begin(),
    relation(columns=_COLUMNS),
    insert(*_ROW),
    update(_ROW, ("1", "NaN", "it's", "", "[]", "f", None), "O"),
    commit(),
)
_SMALL: Final = capture("Z_small", "p1")
_BINARY: Final = [
    [message for _, message in messages_of(capture(*names))]
    for names in (("I_gucs", "p1_bin"), ("A_filter", "p1_rows_bin"))
]
_BETWEEN: Final = b"\n~\n"
"""Between messages; no message has it."""
_NOW: Final = re.compile(rb'"ts_[mun]s":[0-9]+')
"""When an event of Debezium was made."""
_TABLE: Final = Relation(
    *(100, "public", "t", "default"),
    tuple(Column(name, oid, -1, name == "id", "", Types().codec(oid)) for name, oid in _COLUMNS),
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape").replace("\0", "")


def _protocol(data: bytes) -> None:
    """As a message, as a frame, and as one of several messages between newlines; traced, the outcome is the same."""
    for in_stream in (False, True):
        for read in (Decoder.message, Decoder.frame, partial(Decoder.next_message, final=len(data) % 2 == 0)):
            outcomes: list[object] = []
            for decoder in (Decoder(), Decoder(cursor=TracedCursor())):
                decoder.in_stream = in_stream
                decoder.separator = b"\n"
                try:
                    outcomes.append(read(decoder, data, 0, len(data)))
                except (Truncated, Malformed) as error:
                    assert 0 <= error.offset <= len(data)
                    outcomes.append((type(error), str(error), error.field, error.message))
            assert outcomes[0] == outcomes[1]


def _values(data: bytes) -> None:
    oids = sorted(BUILTIN)
    codec = Types(enums=["mood"]).codec(oids[data[0] % len(oids)] if data else TEXT)
    for read in (codec.json_text, codec.json_binary, codec.text_text, codec.text_binary):
        try:
            shown = read(data[1:])
        except Undecoded:
            continue
        if read in (codec.json_text, codec.json_binary):
            json.loads(shown, parse_int=str, parse_float=str)


def _inputs(data: bytes) -> None:
    """Read as the form that the first byte chooses: to recognise one takes several times as long."""
    form = (None, *INPUTS)[data[0] % (1 + len(INPUTS))] if data else None
    read_bytes(data[1:], format=form, resync=True)  # keeps an InputError


def _segment(data: bytes) -> None:
    try:
        frames = SegmentFrames(io.BytesIO(data), "segment")
        for start, stop in frames:
            assert 0 <= start <= stop <= len(frames.buf)
    except InputError:
        pass


def _gunzip(data: bytes) -> None:
    for checked in (None, b"", b"S\0"):
        file = io.BytesIO(data)
        gunzip = Gunzip(file.read, file.seek, checked=checked)
        size = 0
        while size < 1 << 24 and (found := gunzip.read(1 << 16)):
            size += len(found)
        gunzip.close()


def _state(data: bytes) -> None:
    try:
        state_json(parse_state(data, "capture.json"))
    except InputError:
        pass


def _where(data: bytes) -> None:
    text = _text(data)
    try:
        Parser(text, None, context=False).parse()
        filter_ = Filter(where=[text])
        for op in ROW_OPS:
            filter_.bound(_TABLE, op)
    except OptionError:
        return
    assert all(map(json.loads, render(*_MESSAGES, filter_=filter_).lines))


def _words(data: bytes) -> None:
    """What is written on a command line."""
    text = _text(data)
    readers: list[Callable[[], object]] = [
        lambda: column_rules("--redact", text),
        lambda: point_of(text, 1),
        lambda: parse_seconds(text),
        lambda: Template(Sink(), OutputOptions(format_string=text)),
        lambda: parameters(text),
        lambda: parse_options([text]),
        lambda: SegmentName.parse(text),
        lambda: SnapshotPart.parse(text),
    ]
    for read in readers:
        try:
            read()
        except (OptionError, ValueError):
            pass
    for spell in (escape, escape_sql, quoted, sql_identifier, shell_word):
        assert not hides(spell(text))


def _outputs(data: bytes) -> None:
    """What is made of a stream by the scanner and by the decoder, in the format that the first byte chooses."""
    output = (*OUTPUTS,)[data[0] % len(OUTPUTS)] if data else "sql"
    written = set()
    for way in WAYS:
        sink, error = Sink(), ""
        try:
            render(*data[1:].split(_BETWEEN), output=output, sink=sink, way=way)
        except (InputError, OptionError) as found:
            error = str(found)
        written.add((_NOW.sub(b"", b"".join(sink.parts)), error))
    assert len(written) == 1, output


def _for_each(chosen: Collection[object], *seeds: bytes) -> list[bytes]:
    """Seeds with a first byte that chooses each of these."""
    return [bytes((number,)) + one for number in range(len(chosen)) for one in seeds]


Target = tuple[Callable[[bytes], None], Sequence[bytes]]
_CELLS: Final = (b'{1,NULL,"x"}', bytes(11) + b"\x17", b"[1,2)", b"12.50", b"2024-01-01 BC", b"'a':1A", b'{"a":[1]}')
_ZIPPED: Final = gzip.compress(_SEGMENT[:40]) + gzip.compress(_SEGMENT[40:])
_OTHER_STATES: Final = (
    {"messages": float("inf")},
    {"format": 3, "parameters": _STATE["head"], "snapshots": [], **_STATE},
    {**_STATE, "uploaded": "../x"},
    {**_STATE, "last": "../x"},
)
TARGETS: Final[dict[str, Target]] = {
    "protocol": (
        _protocol,
        [*HOSTILE, *map(bytes.fromhex, [*[one.hex for one in GOLDEN], *[one.hex for one in GOLDEN_FRAMES]])],
    ),
    "values": (_values, [bytes((number,)) + one for number, one in enumerate(_CELLS)]),
    "inputs": (
        _inputs,
        [
            *_for_each((None,), gzip.compress(DUMP), b"lsn|xid|data\n0/1|7|\\x42\n"),
            *[bytes((1 + number,)) + FORMS[name](_SMALL) for number, name in enumerate(INPUTS)],
        ],
    ),
    "segment": (_segment, [_SEGMENT, gzip.compress(_SEGMENT), _ZIPPED]),
    "gunzip": (_gunzip, [gzip.compress(b"S\0" + bytes(3000)), gzip.compress(DUMP) * 3, gzip.compress(b"")]),
    "outputs": (_outputs, _for_each(OUTPUTS, *map(_BETWEEN.join, (HOSTILE, _MESSAGES, *_BINARY)))),
    "capture.json": (_state, [json.dumps(one).encode() for one in (_STATE, *_OTHER_STATES)]),
    "where": (_where, [one.encode() for one in _CONDITIONS]),
    "words": (_words, [b"%o %t %{a} %[b]\\n", b'"T".*,x', b"2026-11-22T10:00+02", b"10m", b"port=1", NAME.encode()]),
}


def damaged(data: bytes, others: Sequence[bytes], choose: random.Random) -> bytes:
    """Bytes that were damaged in one to eight ways, with parts of the other inputs."""
    found = bytearray(data)
    for _ in range(choose.randrange(1, 9)):
        at, other = choose.randrange(len(found) + 1), choose.choice(others)
        match choose.randrange(7):
            case 0 if at < len(found):
                found[at] ^= 1 << choose.randrange(8)
            case 1:
                found[at:at] = choose.randbytes(choose.randrange(1, 5))
            case 2:
                del found[at : at + choose.randrange(1, 9)]
            case 3:
                found[at : at + 4] = choose.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 65535)).to_bytes(4)
            case 4:
                found[at : at + 1] = choose.choice(
                    (b"'", b'"', b"\\", b"(", b")", b"%", b"\xff", b"\xe2\x80\xae", b"9" * 40)
                )
            case 5:
                start = choose.randrange(len(other) + 1)
                found[at:at] = other[start : start + choose.randrange(1, 40)]
            case _:
                part = found[at : at + choose.randrange(1, 30)]
                found[at:at] = part * choose.choice((1, 2, 50))
    return bytes(found[: 1 << 16])


def trial(bench: Bench, choose: random.Random) -> str:
    """One of the targets; half of the time guided, where atheris is installed."""
    name, seconds = bench.turn([*TARGETS]), bench.size(300.0, 4.0)
    guided = importlib.util.find_spec("atheris") is not None
    tried = fuzz(name, choose, seconds / 2 if guided else seconds)
    if guided:
        _guide(name, seconds / 2)
    return f"{name}: {tried} damaged inputs{', then guided' if guided else ''}"


def fuzz(name: str, choose: random.Random, seconds: float) -> int:
    """Try a target for some seconds; returns how often. Raises AssertionError with the first error that it raises."""
    target, seeds = TARGETS[name]
    end, tried = time.monotonic() + seconds, 0
    corpus = list(seeds)
    while tried < len(corpus) or time.monotonic() < end:
        data = corpus[tried] if tried < len(corpus) else damaged(choose.choice(corpus), corpus, choose)
        tried += 1
        try:
            target(data)
        except Exception as error:
            kept = Path(tempfile.gettempdir(), f"pgtail-fuzz-{name}")
            kept.write_bytes(data)
            raise AssertionError(f"{name}: {type(error).__name__}: {error}: {data[:200]!r}, kept in {kept}") from error
    return tried


def _guide(name: str, seconds: float) -> None:
    """Run a target under libFuzzer."""
    code = (
        "import atheris, sys\n"
        "with atheris.instrument_imports(include=['pgtail']):\n"
        "    from tests.torture.fuzz import TARGETS\n"
        f"atheris.Setup(sys.argv, TARGETS[{name!r}][0])\natheris.Fuzz()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(TARGETS[name][1]):
            Path(folder, str(number)).write_bytes(data)
        limits = [f"-max_total_time={seconds:.0f}", "-max_len=65536", "-rss_limit_mb=2048", "-timeout=20"]
        kept = f"-artifact_prefix={tempfile.gettempdir()}/pgtail-fuzz-{name}-"
        subprocess.run([sys.executable, "-c", code, *limits, kept, folder], check=True)
