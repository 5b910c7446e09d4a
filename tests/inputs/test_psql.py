"""Real output of psql and COPY, in every layout and encoding, yields the original messages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from pgtail.inputs.source.base import CHUNK
from tests.support import encode
from tests.support.corpus import capture
from tests.support.forms import messages_of, read_bytes
from tests.support.servers import Database, run_program

DATA = {
    "hex": "data",
    "escape": "data",
    "bare": "encode(data, 'hex') AS data",
    "base64": "encode(data, 'base64') AS data",
}
"""SQL expressions for the data; hex and escape are values of bytea_output."""

LAYOUTS = {
    "aligned": [],
    "border 0": ["-P", "border=0"],
    "border 2": ["-P", "border=2"],
    "border 2 of lines": ["-P", "border=2", "-P", "linestyle=unicode"],
    "lines": ["-P", "linestyle=unicode"],
    "no header": ["-t"],
    "no header, border 0": ["-t", "-P", "border=0"],
    "no header, border 2": ["-t", "-P", "border=2"],
    "no footer": ["-P", "footer=off"],
    "unaligned": ["-A"],
    "unaligned, no header": ["-At"],
    "tabs": ["-At", "-F", "\t"],
    "semicolons": ["-A", "-F", ";"],
    "spaces": ["-At", "-F", " "],
    "zero bytes": ["-At", "-z"],
    "a long separator": ["-A", "-F", " ~:~ "],
    "expanded": ["-x"],
    "expanded, border 0": ["-x", "-P", "border=0"],
    "expanded, border 2": ["-x", "-P", "border=2"],
    "expanded, lines": ["-x", "-P", "linestyle=unicode"],
    "expanded, border 2 of lines": ["-x", "-P", "border=2", "-P", "linestyle=unicode"],
    "expanded, no header": ["-xt"],
    "expanded, no header, border 0": ["-xt", "-P", "border=0"],
    "expanded, no header, border 2": ["-xt", "-P", "border=2"],
    "expanded, unaligned": ["-xA"],
    "expanded, unaligned, no header": ["-xAt"],
    "csv": ["--csv"],
    "csv, no header": ["--csv", "-t"],
    "csv with semicolons": ["--csv", "-P", "csv_fieldsep=;"],
    "csv, expanded": ["--csv", "-x"],
    "csv with bars": ["--csv", "-P", "csv_fieldsep=|"],
    "csv with tabs": ["--csv", "-t", "-P", "csv_fieldsep=\t"],
    "csv with bars, expanded": ["--csv", "-x", "-P", "csv_fieldsep=|"],
    "csv with semicolons, expanded": ["--csv", "-xt", "-P", "csv_fieldsep=;"],
}

COLUMNS = {
    "lsn, xid, data": "lsn, xid, {}",
    "lsn, data": "lsn, {}",
    "xid, data": "xid, {}",
    "data": "{}",
    "xid, lsn, data": "xid, lsn, {}",
}

COPIES = {
    "text": "",
    "bar": "DELIMITER '|'",
    "csv": "FORMAT csv",
    "csv, header": "FORMAT csv, HEADER",
    "csv, quotes": "FORMAT csv, FORCE_QUOTE *",
    "csv, semicolons": "FORMAT csv, DELIMITER ';'",
    "csv, bars": "FORMAT csv, DELIMITER '|'",
    "csv, tabs": "FORMAT csv, HEADER, DELIMITER E'\\t'",
    "binary": "FORMAT binary",
}

ROWS = [
    *messages_of(capture("Z_small", "p1")),
    *messages_of(capture("A_names", "p1"))[:60],
    (0x1_0000_00AB, encode.message(b'a | b "c"  d, e; f\tg\\h\\000 +\n|  . x   ', prefix='p"f|')),
    (0, encode.message(b"+" * 92 + b"  ", prefix="p")),
    (3, encode.message(b"Hello.")),
    (4, encode.message("Hello…".encode())),
    (5, encode.message(b"+" * (114 - 16), prefix="p")),
]
"""Messages of all lengths; some end in spaces or as lines that psql wraps, some fill whole lines of base64."""


class Printed:
    """A database with the messages in a table, as the SQL functions return them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.connect() as session:
            session.execute("CREATE TABLE peeked (n serial, lsn pg_lsn, xid xid, data bytea)")
            for number, (lsn, message) in enumerate(ROWS):
                values = (f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}", str(40 + number), message)
                session.execute("INSERT INTO peeked (lsn, xid, data) VALUES (%s::pg_lsn, %s::text::xid, %b)", values)

    def psql(self, *arguments: str, output: str = "hex") -> bytes:
        environment = {**os.environ, "PGOPTIONS": f"-c bytea_output={output}", "LC_ALL": "C.UTF-8"}
        return run_program(self._database, "psql", "-X", *arguments, env=environment).stdout

    def each(self, queries: Sequence[str], *arguments: str, output: str = "hex") -> list[bytes]:
        """What psql prints for each of several queries, in one session."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, str(number)) for number in range(len(queries))]
            words = [("-c", rf"\o {file}", "-c", query) for file, query in zip(files, queries, strict=True)]
            assert self.psql(*arguments, *[word for pair in words for word in pair], output=output) == b""
            return [file.read_bytes() for file in files]


def output_of(encoding: str) -> str:
    return encoding if encoding in ("hex", "escape") else "hex"


@cache
def plain() -> list[object]:
    """The messages, read from plain hex."""
    return list(read_bytes(b"".join(message.hex().encode() + b"\n" for _, message in ROWS), format="hex").messages)


def check(text: bytes, *, lsns: bool, note: str, format: str | None = None) -> None:  # noqa: A002
    reading = read_bytes(text, format=format)
    assert reading.error is None, (note, reading.form, reading.error)
    assert reading.messages == plain(), (note, reading.form)
    assert [lsn for _, lsn, *_ in reading.decoded] == [(lsn or None) if lsns else None for lsn, _ in ROWS], note


@pytest.mark.parametrize("encoding", DATA)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(printed: Printed, layout: str, encoding: str) -> None:
    queries = [f"SELECT {columns.format(DATA[encoding])} FROM peeked ORDER BY n" for columns in COLUMNS.values()]
    texts = printed.each(queries, *LAYOUTS[layout], output=output_of(encoding))
    for columns, query, text in zip(COLUMNS, queries, texts, strict=True):
        named = layout == "csv with bars, expanded" or (layout, encoding) == ("semicolons", "escape")
        check(text, lsns="lsn" in columns, note=query, format=NAMED[layout] if named else None)


NAMED = {"semicolons": "psql", "csv with bars, expanded": "csv"}
"""The form that the user has to name: the first lines have no quotes, or look like CSV."""


@pytest.mark.parametrize("encoding", ["hex", "escape"])
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "zero" not in name])
def test_outputs_one_after_another(printed: Printed, layout: str, encoding: str) -> None:
    """As `>>` makes them: the columns of each are as wide as its values."""
    bounds = [(0, 3), (3, 4), (4, 4), (4, 30), (30, len(ROWS))]
    queries = [f"SELECT lsn, xid, data FROM peeked WHERE n > {low} AND n <= {high} ORDER BY n" for low, high in bounds]
    text = b"".join(printed.each(queries, *LAYOUTS[layout], output=encoding))
    check(text, lsns=True, note=layout, format=NAMED.get(layout))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "expanded" in name])
def test_an_lsn_that_follows_the_data_is_not_given_to_the_next_row(printed: Printed, layout: str) -> None:
    query = "SELECT data, lsn FROM peeked ORDER BY n"
    check(printed.psql(*LAYOUTS[layout], "-c", query), lsns=False, note=query)


@pytest.mark.parametrize("encoding", DATA)
@pytest.mark.parametrize("options", COPIES)
def test_copies(printed: Printed, options: str, encoding: str) -> None:
    if options == "binary" and encoding in ("bare", "base64"):
        pytest.skip("text in a binary COPY is no bytea")
    with_options = f" WITH ({COPIES[options]})" if COPIES[options] else ""
    queries = [
        f"COPY (SELECT {columns.format(DATA[encoding])} FROM peeked ORDER BY n) TO STDOUT{with_options}"
        for columns in COLUMNS.values()
    ]
    texts = printed.each(queries, output=output_of(encoding))
    for columns, query, text in zip(COLUMNS, queries, texts, strict=True):
        check(text, lsns="lsn" in columns, note=query)


FOLDED_AT = (40, 79, 80, 81, 132, 200)

NAMES = ("aligned", "border 0", "border 2", "border 2 of lines", "lines", "no header")
EXPANDED = ("expanded", "expanded, border 0", "expanded, border 2")
WRAPPED = {
    **{name: LAYOUTS[name] for name in (*NAMES, *EXPANDED)},
    "old lines": ["-P", "linestyle=old-ascii"],
}


def check_refused(text: bytes) -> None:
    """Only whole rows are shown, and the error says what to do."""
    reading = read_bytes(text, format="psql")
    assert "psql -At" in str(reading.error) or "is not an LSN" in str(reading.error)
    assert reading.messages == plain()[: len(reading.messages)]
    past = read_bytes(text, format="psql", resync=True).messages
    assert [message for message in past if message not in plain()] == []


@pytest.mark.parametrize("encoding", ["hex", "escape"])
@pytest.mark.parametrize("layout", WRAPPED)
def test_wrapped_format_is_refused(printed: Printed, layout: str, encoding: str) -> None:
    query = "SELECT lsn, xid, data FROM peeked ORDER BY n"
    for width in FOLDED_AT[::3]:
        options = ["-P", "format=wrapped", "-P", f"columns={width}", *WRAPPED[layout]]
        check_refused(printed.psql(*options, "-c", query, output=encoding))


WRAPPED_ROWS = rb"""    lsn     | xid |                  data
------------+-----+-----------------------------------------
 0/05CE2DD0 |  40 | B\000\000\000\000\005\316/0\000\003\003.
            |     |.\273:~\372B\000\000\005D
 0/00000000 |  41 | R\000\000E\363public\000t\000d\000\002\.
            |     |.001id\000\000\000\000\027\377\377\377\3.
            |     |.77\000v\000\000\000\000\031\377\377\377.
            |     |.\377
 0/05CE2DD0 |  42 | I\000\000E\363N\000\002t\000\000\000\00.
            |     |.11t\000\000\000\003one
 0/05CE2EB0 |  43 | I\000\000E\363N\000\002t\000\000\000\00.
            |     |.12n
 0/05CE2F60 |  44 | C\000\000\000\000\000\005\316/0\000\000.
            |     |.\000\000\005\316/`\000\003\003\273:~\37.
            |     |.2B
 0/05CE2F60 |  45 | B\000\000\000\000\005\316/\260\000\003\.
            |     |.003\273:~\375\253\000\000\005E
 0/05CE2F60 |  46 | U\000\000E\363N\000\002t\000\000\000\00.
            |     |.11t\000\000\000\003uno
 0/05CE2FE0 |  47 | C\000\000\000\000\000\005\316/\260\000\.
            |     |.000\000\000\005\316/\340\000\003\003\27.
            |     |.3:~\375\253
"""


def test_a_mark_is_no_value() -> None:
    """Without the last line of the second row, its mark would be the last byte that the message needs."""
    lines = WRAPPED_ROWS.splitlines(keepends=True)
    for rows in (lines, lines[:7] + lines[8:]):
        assert "psql -At" in str(read_bytes(b"".join(rows)).error)


BORDERED_ROW = rb"""+-----+------------------------------------------+
| xid |                   data                   |
+-----+------------------------------------------+
|   7 | M\001\000\000\000\000\000\000\000\220p\0.|
|     |.00\000\000\000Cxxxxxxxxxxxxxxxxxxxxxxxxx.|
|     |.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.|
|     |.xx                                       |
+-----+------------------------------------------+
(1 row)
"""


def test_a_border_is_no_value() -> None:
    """Without the third line of the row, the blanks and the border would be what the message lacks."""
    lines = BORDERED_ROW.splitlines(keepends=True)
    reading = read_bytes(b"".join([*lines[:5], *lines[6:]]), format="psql")
    assert reading.messages == []
    assert reading.error is not None


def folded(text: bytes, width: int) -> bytes:
    """Lines as a terminal of this width shows them."""
    lines = text.decode().split("\n")
    broken = [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
    return "\n".join(broken).encode()


@pytest.mark.parametrize("columns", ["lsn, xid, data", "data"])
@pytest.mark.parametrize("encoding", ["hex", "escape"])
@pytest.mark.parametrize("layout", ["aligned", "border 0", "border 2", "unaligned", "expanded"])
def test_rows_broken_by_a_terminal_are_refused(printed: Printed, layout: str, encoding: str, columns: str) -> None:
    text = printed.psql(*LAYOUTS[layout], "-c", f"SELECT {columns} FROM peeked ORDER BY n", output=encoding)
    for width in FOLDED_AT[::3]:
        check_refused(folded(text, width))


DAMAGED = [
    encode.message(b"one....."),
    encode.message(b"two....."),
    encode.message(b"damaged."),
    encode.message(b"and next"),
]
_SIZE = (len(DAMAGED[3]) + 8).to_bytes(4, "big")
DAMAGED[2] = DAMAGED[2][:-12] + _SIZE + DAMAGED[2][-8:]
"""The length in the third message is too large by the size of the fourth."""


@pytest.mark.parametrize("encoding", ["hex", "escape", "bare"])
@pytest.mark.parametrize("layout", ["aligned", "unaligned, no header", "border 2", "csv", "expanded"])
@pytest.mark.parametrize("columns", ["{}", "xid, {}", "lsn, {}"])
def test_a_damaged_row_is_not_joined_with_the_next(printed: Printed, columns: str, layout: str, encoding: str) -> None:
    values = ", ".join(f"({n}, '0/{n}'::pg_lsn, '7'::xid, '\\x{data.hex()}'::bytea)" for n, data in enumerate(DAMAGED))
    names = columns.format(DATA[encoding])
    query = f"SELECT {names} FROM (VALUES {values}) AS rows (n, lsn, xid, data) ORDER BY n"
    text = printed.psql(*LAYOUTS[layout], "-c", query, output=output_of(encoding))
    whole = read_bytes(b"".join(data.hex().encode() + b"\n" for data in (*DAMAGED[:2], DAMAGED[3]))).messages
    for resync in (False, True):
        reading = read_bytes(text, resync=resync, format="csv" if layout == "csv" else "psql")
        assert f"{len(DAMAGED[3])} more bytes needed" in str(reading.error)
        assert reading.messages == (whole if resync else whole[:2])


@pytest.mark.parametrize("layout", ["expanded", "expanded, lines", "expanded, border 2", "expanded, no header"])
def test_a_damaged_row_is_not_joined_with_the_line_between_records(printed: Printed, layout: str) -> None:
    line = ""
    for _ in range(4):  # the length that is damaged is in the text as well, and changes its width
        length = (8 + len(line.encode())).to_bytes(4, "big")
        rows = (DAMAGED[0][:-12] + length + DAMAGED[0][-8:], encode.message(b"next"))
        values = ", ".join(f"({n}, '\\x{data.hex()}'::bytea)" for n, data in enumerate(rows))
        query = f"SELECT data FROM (VALUES {values}) AS rows (n, data) ORDER BY n"
        text = printed.psql(*LAYOUTS[layout], "-c", query, output="escape")
        between = next(n for n, row in enumerate(text.decode().splitlines()) if "one..." in row) + 1
        line, before = text.decode().splitlines()[between], line
    assert line == before
    reading = read_bytes(text, format="psql", resync=True)
    assert f"{len(line.encode())} more bytes needed" in str(reading.error)
    assert len(reading.messages) == 1


def test_the_row_after_a_damaged_one_begins_a_block_of_the_source(printed: Printed) -> None:
    rows = printed.psql("-At", "-c", "SELECT lsn, xid, data FROM peeked ORDER BY n").splitlines(keepends=True)
    cut = rows[-1][:-3] + b"\n"
    before = cut.rjust(CHUNK - sum(map(len, rows)), b"\n")
    reading = read_bytes(b"".join([*rows, before, *rows[:5]]), format="psql", resync=True)
    assert (reading.resyncs, reading.skipped) == (1, len(cut))
    assert len(reading.messages) == len(rows) + 5
