"""The scanner reads nothing that was freed where it once did, and compares texts alike on all processors."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.sanitized import build, environment
from tests.torture.bench import Bench

CASES = {
    "debezium-end-20.bin": ["-o", "debezium", "--transactions"],
    "gid-uaf.bin": ["-o", "json"],
}
"""Dumps of tests/cases, and how they are decoded."""
_ENCODED = """
import sys
from tests.torture.damaged_runs import encoded
from tests.support.sanitized import load
print(encoded(load(sys.argv[1])))
"""
_COMMAND = """
import sys
from tests.support.sanitized import load
load(sys.argv.pop(1))
from pgtail.cli import main
main(prog_name="pgtail")
"""


def trial(bench: Bench, _: random.Random) -> str:
    """Texts that Python returned; then blocks of text, compared by SSE2, by words of bytes, or byte by byte."""
    for file, options in CASES.items():
        case = Path(__file__).parents[1] / "cases" / file
        program = [sys.executable, "-c", _COMMAND, str(bench.sanitized), "decode", *options, str(case)]
        run = subprocess.run(program, capture_output=True, text=True, env=environment(), check=False)
        assert (run.returncode, run.stderr) == (0, ""), file
    sums = [_checksum(bench.sanitized)]
    for level in "21":
        with tempfile.TemporaryDirectory() as folder:
            sums.append(_checksum(build(Path(folder), f"-DPGTAIL_PORTABLE={level}")))
    assert len({*sums}) == 1, sums
    return f"{len(CASES)} cases, {len(sums)} builds"


def _checksum(built: Path) -> str:
    return subprocess.check_output([sys.executable, "-c", _ENCODED, str(built)], text=True, env=environment())
