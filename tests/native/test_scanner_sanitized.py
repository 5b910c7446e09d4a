"""The scanner reads nothing outside its buffer: damaged input under AddressSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pgtail import native


def library(name: str) -> str | None:
    """A run-time library of the C compiler."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    return path if Path(path).is_absolute() else None


def test_no_read_outside_of_the_buffer(tmp_path: Path) -> None:
    c = Path(native.__file__).parent / "_scanner.c"
    if shutil.which("gcc") is None or (asan := library("libasan.so")) is None:
        pytest.skip("there is no gcc with AddressSanitizer")
    if not c.exists():
        pytest.skip(
            "pgtail/native/_scanner.c was not generated: pgtail was installed without a C compiler, or not from here"
        )
    sources = [c.with_suffix(".pyx"), *c.parent.glob("*.pxi")]
    assert all(c.stat().st_mtime >= source.stat().st_mtime for source in sources), f"{c} is stale: make install"
    built = tmp_path / "_scanner.so"
    include = sysconfig.get_path("include")
    options = [
        "-O1",
        "-g",
        "-fPIC",
        "-shared",
        "-fsanitize=address",
        "-fsanitize=bounds,alignment,shift,signed-integer-overflow",
    ]
    subprocess.run(["gcc", *options, f"-I{include}", str(c), "-o", str(built)], check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": asan,
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    environment.pop("PGTAIL_PURE", None)
    program = [sys.executable, "-m", "tests.native.damaged_runs", str(built)]
    run = subprocess.run(
        program,
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert int(run.stdout) > 100_000
