"""Tests of all machine-readable formats: on the captures, in text and in binary form, and after damage."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.commands.output.directory_sink import DirectorySink
from pgtail.errors import InputError
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.pipeline import Pipeline
from pgtail.values import Types
from tests.support.corpus import capture, captures
from tests.support.render import Sink

FORMATS: dict[str, dict[str, Any]] = {
    "wal2json": {},
    "wal2json-v1": {},
    "debezium": {"transactions": True},
    "sql": {},
    "undo": {"undo": True},
    "csv": {},
}
LONG = ("A_big", "C_stream", "E_parallel")
SHOWN = [one for one in captures() if one.scenario.version == "pg16" and one.scenario.name not in LONG]


def written(
    format_: str, frames: list[bytes], folder: Path, *, encoding: str = "utf-8", damaged: bool = False
) -> bytes:
    """Frames written in a format; for csv the files of a directory, one after another."""
    sink, directory = Sink(), DirectorySink(str(folder))
    options = OutputOptions(open_file=directory.open, **FORMATS[format_])
    decoder, assembler = Decoder(encoding=encoding), Assembler(Types(encoding=encoding))
    output = open_output("sql" if format_ == "undo" else format_, sink, options)
    pipeline = Pipeline(assembler, output, note=lambda _: None)
    try:
        for frame in frames:
            message, lsn, _ = decoder.frame(frame, 0, len(frame))
            pipeline.feed(message, lsn)
        pipeline.finish()
    except InputError:
        assert damaged
        pipeline.break_off()
    finally:
        assembler.close()
    directory.flush()
    return b"".join(sink.parts) + b"".join([path.read_bytes() for path in sorted(folder.iterdir())])


@pytest.mark.parametrize("format_", FORMATS)
def test_every_capture_is_well_formed(format_: str, tmp_path: Path) -> None:
    for number, one in enumerate(SHOWN):
        (folder := tmp_path / str(number)).mkdir()
        found = written(format_, list(one.frames()), folder, encoding=one.encoding)
        assert found.endswith(b"\n"), one
        assert not any(byte < 0x20 and byte not in b"\n\r\t" for byte in found) or format_ == "csv", one
        well_formed(format_, found)


def well_formed(format_: str, found: bytes) -> None:
    text = found.decode()
    if format_ in ("wal2json", "wal2json-v1", "debezium"):
        for line in text.split("\n")[:-1]:
            json.loads(line, parse_int=Decimal)
    elif format_ in ("sql", "undo"):
        assert text.count("\nBEGIN;\n") == sum(text.count(f"\n{end}") for end in ("COMMIT;", "ROLLBACK;", "PREPARE TR"))


@pytest.mark.parametrize("format_", sorted(set(FORMATS) - {"debezium"}))
@pytest.mark.parametrize("scenario", ["A_dml", "A_filter"])
def test_text_and_binary_form_give_the_same(format_: str, scenario: str, tmp_path: Path) -> None:
    found = []
    for name in ("p1", "p1_bin") if scenario == "A_dml" else ("p1_cols", "p1_cols_bin"):
        (folder := tmp_path / name).mkdir()
        found.append(written(format_, list(capture(scenario, name).frames()), folder))
    assert found[0] == found[1]


@pytest.mark.parametrize("format_", sorted(set(FORMATS) - {"undo"}))
def test_a_prepared_transaction_without_its_beginning_is_shown_whole(format_: str, tmp_path: Path) -> None:
    frames = list(capture("D_twophase", "p3_2pc").frames())
    (place,) = [
        number
        for number, frame in enumerate(frames)
        if frame[0:1] == b"w" and b'"two"' in frame and frame[25:26] == b"b"
    ]
    damaged = bytearray(frames[place])
    damaged[25] = 0
    frames[place] = bytes(damaged)
    found = written(format_, frames, tmp_path, damaged=True)
    well_formed(format_, found)
    assert b"rolled back" in found
