"""`-o csv`: COPY reads the same rows back; one table, or a directory with a file for each."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from pgtail.commands.output.directory_sink import DirectorySink
from pgtail.errors import OptionError, OutputError
from pgtail.outputs import OutputOptions
from pgtail.outputs.csv import Csv
from tests.support.corpus import capture
from tests.support.encode import UNCHANGED, begin, commit, delete, insert, lengths, message, relation, truncate, update
from tests.support.render import render
from tests.support.run import decode
from tests.support.servers import Database

TABLE = relation(columns=(("id", 23), ("v", 25), ('é "x"', 25)))
HEADER = '_op,_xid,_commit_lsn,_commit_ts,_seq,_not_sent,_undecoded,id,v,"é ""x"""'


def test_each_change_is_a_line() -> None:
    changes = (
        *(insert("1", "", None), insert("2", 'a,"b"\nc\\', " x"), update(("2", UNCHANGED, "y"))),
        *(update(("3", "z", None), ("2", None, None)), delete("3", None, None), truncate(100)),
    )
    found = render(TABLE, begin(), *changes, commit(), output="csv").written.decode()
    at = "7,0/100,2000-01-01 00:00:00+00"
    assert found == "\n".join(
        [
            HEADER,
            f'insert,{at},1,,,1,"",',
            f'insert,{at},2,,,2,"a,""b""\nc\\"," x"',
            f"update,{at},3,{{v}},,2,,y",
            f'before,{at},4,"{{v,""é \\""x\\""""}}",,2,,',
            f"update,{at},4,,,3,z,",
            f'delete,{at},5,"{{v,""é \\""x\\""""}}",,3,,',
            f"truncate,{at},6,,,,,",
            "",
        ]
    )


def test_copy_reads_it_and_finds_the_same_rows(newest_database: Database) -> None:
    """All kinds of text, through COPY ... (FORMAT csv, HEADER)."""
    texts = [
        "",
        " ",
        "NULL",
        "\\N",
        "\\.",
        'quo"te',
        "com,ma",
        "line\nfeed",
        "cr\r\n",
        "\t",
        "é😀",
        "\\",
        "{}",
        None,
        "0",
    ]
    rows = [insert(str(number), text, None) for number, text in enumerate(texts)]
    written = render(TABLE, begin(), *rows, commit(), output="csv").written
    with newest_database.connect() as session:
        columns = 'id int, v text, "é ""x""" text'
        own = "_op text, _xid xid8, _commit_lsn pg_lsn, _commit_ts timestamptz, _seq int"
        own += ", _not_sent text[], _undecoded text[]"
        session.execute(f"CREATE TABLE t ({own}, {columns})".encode())
        with session.cursor().copy("COPY t FROM STDIN (FORMAT csv, HEADER)") as copy:
            copy.write(written)
        assert session.execute('SELECT v FROM t WHERE "é ""x""" IS NULL ORDER BY id').fetchall() == [
            (t,) for t in texts
        ]


def test_two_tables_or_other_columns_need_a_directory() -> None:
    with pytest.raises(
        OptionError, match=r"not both public.t and public.u: -t selects one, pgtail decode -f DIR/ writes all"
    ):
        render(TABLE, relation(101, "u"), begin(), insert("1", "a", "b"), insert("1", "a", oid=101), output="csv")
    with pytest.raises(OptionError, match=r"the columns of public.t changed here; -f DIR/"):
        render(TABLE, begin(), insert("1", "a", "b"), relation(), insert("1", "a"), output="csv")


def test_undecoded_columns_are_named_and_messages_are_reported() -> None:
    reported: list[str] = []
    bad = (relation(columns=(("id", 23), ("b", 17))), begin(), insert("1", b"\0\1"), insert(b"\0", "x"), message(b"m"))
    found = render(*bad, commit(), output="csv", report=reported.append).lines
    assert found[1:] == [
        'insert,7,0/100,2000-01-01 00:00:00+00,1,,,1,"\\x0001"',
        'insert,7,0/100,2000-01-01 00:00:00+00,2,,{id},"\\x00",x',
    ]
    assert reported == ["left out 1 logical message: they have no table"]


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def test_a_directory_gets_a_file_for_each_version_of_each_table(tmp_path: Path) -> None:
    messages = (
        *(TABLE, relation(101, "../a.b%", schema=".s"), begin(), insert("1", "a", "b"), insert("2", "c", oid=101)),
        *(relation(), insert("3", "d"), TABLE, insert("4", "e", "f"), relation(102, "T"), insert("5", "g", oid=102)),
        commit(),
    )
    found = decode("-o", "csv", "-f", f"{tmp_path}/out/", input=lengths(*messages))
    assert (found.status, found.stderr) == (0, "")
    shown = files(tmp_path / "out")
    assert sorted(shown) == sorted(["%2Es.%2E%2E%2Fa%2Eb%25.csv", "public.t.csv", "public.t.2.csv", "public.T.3.csv"])
    assert [row[7:] for row in csv.reader(io.StringIO(shown["public.t.csv"]))][1:] == [["1", "a", "b"], ["4", "e", "f"]]
    again = decode("-o", "csv", "-f", f"{tmp_path}/out/", input=lengths(*messages))
    assert again.status == 4
    assert "pgtail decode writes to an empty directory" in again.stderr


def test_a_capture_in_a_directory_has_every_change(tmp_path: Path) -> None:
    file = capture("A_dml", "p1").forms["walsender.bin"]
    assert decode("-o", "csv", "-f", f"{tmp_path}/", file).status == 0
    rows = [row for text in files(tmp_path).values() for row in csv.DictReader(io.StringIO(text))]
    wanted = decode("--op", "insert,update,delete,truncate", file).objects
    found = [(row["_commit_lsn"], int(row["_seq"]), row["_op"]) for row in rows if row["_op"] != "before"]
    assert sorted(found) == sorted((one["commit_lsn"], one["seq"], one["op"]) for one in wanted)


def test_write_errors_are_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="file/: "):
        DirectorySink(f"{tmp_path}/file/")
    sink = DirectorySink(f"{tmp_path}/")
    output = Csv(sink, OutputOptions(open_file=sink.open))
    output.finish()
    (tmp_path / "x.csv").mkdir()
    sink.open(("x",), b"a\n")
    with pytest.raises(OutputError, match="Is a directory"):
        sink.flush()


def test_names_too_long_for_a_file_stay_distinct(tmp_path: Path) -> None:
    """Each escaped name is longer than 255 bytes, and they differ only in the part that is cut off."""
    names = [f"{letter * size}{end}" for letter, size in ((".", 63), ("é", 127), ("%", 85)) for end in ("a", "b")]
    messages = [relation(100 + i, name, schema=name) for i, name in enumerate(names)]
    rows = [insert("1", name, oid=100 + i) for i, name in enumerate(names)]
    changed = relation(100, names[0], [("id", 23)], schema=names[0])
    data = lengths(*messages, begin(), *rows, changed, insert("2", oid=100), insert("1", "x", oid=101), commit())
    result = decode("-o", "csv", "-f", f"{tmp_path}/", input=data)
    assert (result.status, result.stderr) == (0, "")
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(files) == len(names) + 1
    assert all(240 < len(name.encode()) <= 255 for name in files)
    for name in names:
        assert sum([f",{name}\n" in text for text in files.values()]) == 1
    again = decode("-o", "csv", "-f", f"{tmp_path}/other/", input=data)
    assert again.status == 0
    assert {path.name: path.read_text() for path in (tmp_path / "other").iterdir()} == files
