"""Texts that are not read are refused by their names, and no others are."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.inputs.test_psql import Printed
from tests.support.corpus import capture, read
from tests.support.forms import read_bytes
from tests.support.refused import create_slot
from tests.support.run import decode
from tests.support.servers import Database

SQL = b"CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$\nBEGIN\n  RETURN 1;\nEND $$;\nCOMMIT\n"


@pytest.mark.parametrize("name", ["html", "asciidoc", "latex", "latex-longtable", "troff-ms"])
@pytest.mark.parametrize("options", [[], ["-x"], ["-t"], ["-P", "border=2"]], ids=" ".join)
def test_formats_of_psql(printed: Printed, name: str, options: list[str]) -> None:
    text = printed.psql("-P", f"format={name}", *options, "-c", "SELECT lsn, xid, data FROM peeked ORDER BY n")
    reading = read_bytes(text)
    shown = "latex or latex-longtable" if name.startswith("latex") else name
    assert f"this is psql's format {shown}, which is not read" in str(reading.error)
    assert reading.messages == []


@pytest.mark.parametrize("form", ["wal2json", "wal2json-v1"])
def test_text_of_wal2json(form: str) -> None:
    text = decode("-o", form, input=capture("Z_small", "p1").forms["recv.bin"].read_bytes()).stdout
    assert "this is text of the output plugin wal2json" in str(read_bytes(text).error)


@pytest.mark.parametrize("layout", [[], ["-At"], ["-x"], ["--csv"], ["-P", "border=2"]], ids=" ".join)
@pytest.mark.parametrize("what", ["lsn, xid, data", "data"])
def test_text_of_test_decoding(decoded: Printed, what: str, layout: list[str]) -> None:
    for options in ("", ", 'include-timestamp', '1'"):
        query = f"SELECT {what} FROM pg_logical_slot_peek_changes('s', NULL, NULL{options})"
        text = decoded.psql(*layout, "-c", query)
        assert b'table public."a b": INSERT:' in text.replace(b'""', b'"')
        assert "this is text of the output plugin test_decoding" in str(read_bytes(text).error)
        only_ends = b"".join(re.findall(rb".*(?:BEGIN|COMMIT).*\n", text))
        assert "this is text of the output plugin test_decoding" in str(read_bytes(only_ends).error)
    without_xids = decoded.psql("-At", "-c", query.replace("NULL, NULL", "NULL, NULL, 'include-xids', '0'"))
    only_ends = b"".join(re.findall(rb".*(?:BEGIN|COMMIT).*\n", without_xids))
    assert not re.search(rb"(?:BEGIN|COMMIT) \d", only_ends)
    assert "this is text of the output plugin test_decoding" in str(read_bytes(only_ends).error)


@pytest.fixture
def decoded(database: Database) -> Printed:
    printed = Printed(database)
    create_slot(database, "s", "test_decoding")
    database.execute('CREATE TABLE "a b" (id int)', 'INSERT INTO "a b" VALUES (1)')
    return printed


def test_sql_is_no_text_of_a_plugin() -> None:
    assert "none of the known forms" in str(read_bytes(SQL).error)
    assert "none of the known forms" in str(read_bytes(b"BEGIN\n" + SQL).error)


def test_a_file_that_is_compressed_in_another_way() -> None:
    dump, zipped = capture("Z_small", "p1").forms["recv.bin"].read_bytes(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("dump.bin", dump)
    zstd, lz4 = "28b52ffd045831000068656c6c6f0a5388bd91", "04224d186440a70600008068656c6c6f0a00000000f95b6b94"
    for command, data in (
        ("xz -dc", lzma.compress(dump)),
        ("gzip -dc", gzip.compress(gzip.compress(dump))),
        ("bzip2 -dc", bz2.compress(dump)),
        ("unzip -p", zipped.getvalue()),
        ("zstd -dc", bytes.fromhex(zstd)),
        ("lz4 -dc", bytes.fromhex(lz4)),
    ):
        words = f"this is compressed, and not with gzip alone: decompress it first ({command})"
        assert words in str(read_bytes(data).error)


@pytest.mark.parametrize("form", ["recv.bin", "walsender.bin"])
def test_dumps_of_bytes_that_are_not_read(form: str, tmp_path: Path) -> None:
    dump, compressed = tmp_path / "dump", tmp_path / "dump.gz"
    dump.write_bytes(read(capture("Z_small", "p1").forms[form]))
    compressed.write_bytes(gzip.compress(dump.read_bytes()))
    made = "xxd, hexdump -C and od -v -An -tx1 make dumps that are"
    od = f"this is a dump by od with offsets, which is not read: {made}"
    hexdump = f"this is a dump by hexdump without -C, which is not read: {made}"
    for words, *lines in (
        (od, "od -A x -t x1", "od", "od -t x1", "od -v -A d -t x1z"),
        (hexdump, "hexdump", "hexdump -v"),
        ("this is base64 of a binary file: decode it first (base64 -d)", "base64", "base64 -w0", "base64 -w 50"),
    ):
        for line in lines:
            program, *options = line.split()
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
            for file in (dump, compressed):
                text = subprocess.run([program, *options, file], capture_output=True, check=True).stdout
                assert words in str(read_bytes(text).error), line


def test_words_are_no_base64() -> None:
    for text in (b"x" * 60, b"abc\n" * 30, b"0000000 a\n0 rows\n"):
        assert "none of the known forms" in str(read_bytes(text).error)
