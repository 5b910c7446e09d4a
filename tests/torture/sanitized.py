"""The scanner reads nothing outside its buffers and nothing that was freed, under AddressSanitizer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.every import ALL, every, new_seed
from tests.support.sanitized import build, environment
from tests.torture.streams import sanitized

SECONDS = 60 if ALL else 10


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build, for all tests of this file."""
    return build(tmp_path_factory.mktemp("sanitized"))


@pytest.mark.in_one_run_of(6)
def test_no_read_outside_of_the_buffer(built: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.torture.damaged_runs", str(built)],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert int(run.stdout) > 100_000


@pytest.mark.in_one_run_of(6)
def test_no_read_of_freed_memory(built: Path) -> None:
    """A sample of what `make torture` does for an hour."""
    run = sanitized(new_seed(), SECONDS, built)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert re.search(r"^[1-9]\d* cases, 0 wrong$", run.stdout, re.MULTILINE)


@pytest.mark.in_one_run_of(6)
@pytest.mark.parametrize(
    ("file", "options"),
    [("debezium-end-20.bin", ["-o", "debezium", "--transactions"]), ("gid-uaf.bin", ["-o", "json"])],
)
def test_texts_that_python_returned(built: Path, file: str, options: list[str]) -> None:
    case = Path(__file__).parents[1] / "cases" / file
    program = [sys.executable, "-c", _COMMAND, str(built), "decode", *options, str(case)]
    run = subprocess.run(program, capture_output=True, text=True, env=environment(), check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.in_one_run_of(6)
def test_blocks_of_text_on_other_processors(built: Path, tmp_path: Path) -> None:
    """They are compared by SSE2, by words of little-endian processors, or byte by byte."""
    builds = [built, *[build(_folder(tmp_path / level), f"-DPGTAIL_PORTABLE={level}") for level in "21"[:: every(2)]]]
    found = {
        subprocess.check_output([sys.executable, "-c", _ENCODED, one], text=True, env=environment()) for one in builds
    }
    assert len(found) == 1


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


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
