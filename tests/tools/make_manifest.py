"""Hashes of every data output of every recorded capture: `python -m tests.tools.make_manifest [FOLDER]`.

Without a folder it writes tests/captures/manifest.json, which only an intended change of a format may change. With the
folder of other captures (FOLDER/pgNN/SCENARIO) it prints their manifest.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import orjson
import pytest

from tests.support.corpus import CAPTURES
from tests.support.run import here

MANIFEST = CAPTURES / "manifest.json"
OUTPUTS = {
    "json": ["-o", "json"],
    "json transactions": ["-o", "json", "--transactions", "--schema-changes"],
    "json filled": ["-o", "json", "--fill-unchanged", "--numbers", "string"],
    "json-tx": ["-o", "json-tx"],
    "table": ["-o", "table", "--max-width", "0", "--max-rows", "0"],
    "line": ["-o", "line"],
    "json changed": ["-o", "json", "--changed"],
    "wal2json": ["-o", "wal2json"],
    "wal2json-v1": ["-o", "wal2json-v1"],
    "debezium": ["-o", "debezium"],
    "sql": ["-o", "sql"],
    "sql --undo": ["-o", "sql", "--undo"],
    "csv": ["-o", "csv"],
}
"""The outputs that are compared, and the options that ask for them."""
_NOW = 1_900_000_000
"""The present time while they are made, in seconds since 1970."""


def sources(folder: Path) -> list[Path]:
    """The walsender's frames of every capture; other tests show that all other forms of a capture give the same."""
    return sorted(folder.glob("pg*/*/*.walsender.bin*"))


def hashes(path: Path) -> dict[str, str]:
    """The outputs of one capture: the exit status, and the first half of the SHA-256 of the bytes."""
    found = {}
    for name, options in OUTPUTS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("time.time", lambda: float(_NOW))
            patch.setattr("time.time_ns", lambda: _NOW * 1_000_000_000)
            run = here("decode", "--color", "never", *options, path, COLUMNS="120")
        found[name] = f"{run.status} {hashlib.sha256(run.stdout).hexdigest()[:32]}"
    return found


def manifest(folder: Path) -> bytes:
    """All hashes, by the captures' paths below the folder."""
    found = {str(path.relative_to(folder)): hashes(path) for path in sources(folder)}
    return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.buffer.write(manifest(Path(sys.argv[1])))
    else:
        MANIFEST.write_bytes(manifest(CAPTURES))
