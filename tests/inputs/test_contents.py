"""Almost empty sources of every form: recognised, described correctly, no error."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from tests.support.contents import CONTENTS, Content
from tests.support.corpus import Raw
from tests.support.encode import STREAM_STOP, insert, lengths, relation, stream_commit, stream_start
from tests.support.forms import FORMS, FRAMED, bare_lengths
from tests.support.run import here

Writer: TypeAlias = Callable[[Content], bytes]


def _rows(line: Callable[[int, Raw], str], head: str = "", foot: str = "") -> Callable[[Content], bytes]:
    def write(content: Content) -> bytes:
        rows = [line(number, raw) for number, raw in enumerate(content.messages(), 1)]
        return (head + "".join(rows) + foot.format(len(rows))).encode()

    return write


def _expanded(content: Content) -> bytes:
    line = "-[ RECORD {} ]\nlsn  | 0/90\nxid  | 7\ndata | \\x{}\n"
    return _rows(lambda number, raw: line.format(number, raw.data.hex()))(content) or b"(0 rows)\n"


HEAD, FOOT = " lsn | xid | data\n-----+-----+------\n", "({} rows)\n\n"
WRITERS: dict[str, tuple[str, Writer]] = {
    **{form: (form, cast("Writer", write)) for form, write in FORMS.items()},  # a Content is enough of a Capture
    "lengths of bare messages": ("lengths", cast("Writer", bare_lengths)),
    "psql, aligned": ("psql", _rows(lambda _, raw: f" 0/90 |   7 | \\x{raw.data.hex()}\n", HEAD, FOOT)),
    "psql, tuples only": ("psql", _rows(lambda _, raw: f" 0/90 |   7 | \\x{raw.data.hex()}\n", foot="\n")),
    "psql, expanded": ("psql", _expanded),
    "psql, base64": (
        "psql",
        _rows(lambda _, raw: f" 0/90 | 7 | {base64.b64encode(raw.data[:50]).decode()}\n", HEAD, FOOT),
    ),
    "csv without a header": ("csv", _rows(lambda _, raw: f"0/90,7,\\x{raw.data.hex()}\n")),
    "hex with a prefix": ("hex", _rows(lambda _, raw: f" \\x{raw.data.hex()}\n")),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_almost_empty_sources(writer: str, content: str, tmp_path: Path) -> None:
    form, write = WRITERS[writer]
    held = CONTENTS[content]
    if "base64" in writer and any(len(raw.data) > 50 for raw in held.messages()):
        pytest.skip("base64 of so much is broken into lines")
    path = tmp_path / "input"
    path.write_bytes(write(held))
    items = held.items if form in FRAMED and "bare" not in writer else [raw.data for raw in held.messages()]
    counted = f"{len(items)} message{'s'[: len(items) != 1]}"
    if not path.stat().st_size:
        notes = [f"pgtail: note: {path}: it is empty"]
    elif not items:
        notes = [f"pgtail: note: {path}: it holds no message, read as {form}"]
    else:
        notes = [] if held.lines else [f"pgtail: note: {path}: it holds {counted}, but no change, read as {form}"]
    decoded, counts, shown = (here(name, "-o", "json", path) for name in ("decode", "stats", "inspect"))
    for result in (decoded, counts):
        assert result.status == 0, result.stderr
        assert [line for line in result.stderr.splitlines() if f"{path}: it " in line] == notes
    assert len(decoded.lines) == held.lines
    assert shown.status == 0
    assert len(shown.lines) == len(items)
    assert shown.stderr.splitlines() == ([] if items else notes)
    if path.stat().st_size:
        assert here("decode", "-v", path).stderr.splitlines()[0] == f"pgtail: {path}: {form}"


@pytest.mark.parametrize("form", ["recvlogical", "raw", "hex"])
def test_lone_stream_stop_is_ambiguous(form: str, tmp_path: Path) -> None:
    """`E` and a newline, or the number 45: read if --input-format is given, else an error that suggests it."""
    path = tmp_path / "input"
    path.write_bytes(WRITERS[form][1](Content((STREAM_STOP,))))
    unknown = here("decode", path)
    assert (unknown.status, unknown.stdout) == (1, b"")
    assert "--input-format FORM forces one" in unknown.stderr
    assert len(here("inspect", "-o", "json", "--input-format", form, path).lines) == 1


def test_rows_that_wait_for_their_commit_are_changes(tmp_path: Path) -> None:
    """The first of two files has nothing to show, and the second has no row."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(lengths(stream_start(), relation(xid=7), insert("1", "x", xid=7), STREAM_STOP))
    second.write_bytes(lengths(stream_commit()))
    result = here("decode", "-o", "json", first, second)
    assert (result.status, result.stderr, len(result.lines)) == (0, "", 1)
