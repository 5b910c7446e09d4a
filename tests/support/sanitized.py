"""A build of the scanner with AddressSanitizer and UndefinedBehaviorSanitizer, for programs that run with it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

import pytest

from pgtail import native

_NAME: Final = "pgtail.native._scanner"
_OPTIONS: Final = (
    *("-O0", "-g1", "-w", "-fPIC", "-shared", "-fsanitize=address"),
    "-fsanitize=bounds,alignment,shift,signed-integer-overflow",
    "-DPGTAIL_EXACT=1",
)


def build(folder: Path, *more: str) -> Path:
    """Build it in this folder, with `more` options, in some seconds. Skips the test where that is not possible."""
    c = Path(native.__file__).parent / "_scanner.c"
    if shutil.which("gcc") is None or _library("libasan.so") is None:
        pytest.skip("there is no gcc with AddressSanitizer")
    if not c.exists():
        pytest.skip(
            "pgtail/native/_scanner.c was not generated: pgtail was installed without a C compiler, or not from here"
        )
    sources = [source for end in ("pyx", "pxd", "pxi") for source in c.parent.rglob(f"*.{end}")]
    assert all(c.stat().st_mtime >= source.stat().st_mtime for source in sources), f"{c} is stale: make install"
    built = folder / "_scanner.so"
    include = sysconfig.get_path("include")
    subprocess.run(["gcc", *_OPTIONS, *more, f"-I{include}", str(c), "-o", str(built)], check=True)
    return built


def environment() -> dict[str, str]:
    """The environment of a program that loads the build.

    Python's own allocator is off, so that a buffer ends where its bytes end.
    """
    found = {
        **os.environ,
        "LD_PRELOAD": _library("libasan.so") or "",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    found.pop("PGTAIL_PURE", None)
    return found


def run_sanitized(*words: str) -> str:
    """Run a program of the tests, a module and its arguments, with the build; returns its last line.

    Raises AssertionError if it failed or complained.
    """
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, env=environment(), cwd=root, check=False
    )
    assert (run.returncode, run.stderr) == (0, ""), f"{run.stderr}\n{run.stdout}"
    return run.stdout.rstrip().rpartition("\n")[2]


def load(path: str) -> Any:
    """Load the build under the name that the source has."""
    loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    loader.exec_module(module)
    return module


def _library(name: str) -> str | None:
    """A run-time library of the C compiler."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    return path if Path(path).is_absolute() else None
