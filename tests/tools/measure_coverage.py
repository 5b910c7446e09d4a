"""`make coverage`: what the tests reach of the code that reads bytes: branches in Python, lines of the compiled code.

Runs the tests of that code in a copy of the checkout, whose scanner is built for gcov. What no test reaches is listed.
Ends with status 1 if a part has a smaller share than LEAST.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

CHECKOUT: Final = Path(__file__).parents[2]
LEAST: Final = 98.0
"""Percent."""
PARTS: Final = {
    "protocol": "pgtail/pgoutput/",
    "values": "pgtail/values/",
    "inputs": "pgtail/inputs/",
    "assembler and filters": "pgtail/changes/",
}
"""Folders of Python code by name."""
TESTS: Final = (
    *("pgoutput", "values", "inputs", "changes", "native", "files", "hexview", "outputs", "pipeline", "commands"),
    *("cli/test_decode.py", "cli/test_inspect.py", "cli/test_column_check.py", "stats/test_stats.py"),
    *("capture/test_captures.py", "capture/test_contents.py", "capture/test_dumps.py", "capture/test_segments.py"),
    *("end_to_end/test_cases.py", "end_to_end/test_corpus.py", "end_to_end/test_damage.py"),
    *("end_to_end/test_flipped_bits.py", "end_to_end/test_hostile_data.py"),
)
_LEFT_OUT: Final = (".*", "build", "dist", "node_modules", "__pycache__", "*.so", "_scanner.c", "*.egg-info")
_CONFIG: Final = f"""
[run]
branch = True
parallel = True
patch = subprocess, fork, _exit
source_pkgs = {", ".join(folder.rstrip("/").replace("/", ".") for folder in PARTS.values())}
[report]
skip_covered = True
show_missing = True
"""


def instrument(checkout: Path) -> None:
    """Build the scanner of this checkout so that it counts its lines; gcov attributes them to the Cython source."""
    native = checkout / "pgtail/native"
    cython = [sys.executable, "-m", "cython", "--line-directives", "_scanner.pyx"]
    subprocess.run(cython, cwd=native, check=True)
    library = f"_scanner{sysconfig.get_config_var('EXT_SUFFIX')}"
    options = ["-O0", "-fPIC", "-shared", "--coverage", "-fprofile-update=atomic", "-w"]
    include = sysconfig.get_path("include")
    subprocess.run(["gcc", *options, f"-I{include}", "_scanner.c", "-o", library], cwd=native, check=True)


def scanner_lines(checkout: Path) -> dict[str, dict[int, bool]]:
    """The lines of each Cython file that have code, and whether a test reached them."""
    native = checkout / "pgtail/native"
    found: dict[str, dict[int, bool]] = {}
    counts = [path.name for path in native.glob("*.gcda")]
    told = subprocess.run(
        ["gcov", "--json-format", "--stdout", *counts], cwd=native, capture_output=True, text=True, check=True
    ).stdout
    for file in (file for line in told.splitlines() for file in json.loads(line)["files"]):
        if file["file"].endswith((".pyx", ".pxi")):
            lines = found.setdefault(Path(file["file"]).name, {})
            for line in file["lines"]:
                lines[line["line_number"]] = lines.get(line["line_number"], False) or line["count"] > 0
    return found


def branches(report: dict[str, Any], folder: str) -> tuple[int, int]:
    """How many branches of the files in this folder there are in coverage's report, and how many were taken."""
    summaries = [file["summary"] for name, file in report["files"].items() if name.startswith(folder)]
    return sum(one["num_branches"] for one in summaries), sum(one["covered_branches"] for one in summaries)


def ranges(numbers: Iterable[int]) -> Iterator[str]:
    """Ascending numbers in few words: 3, 5-8."""
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        _, *rest = ordered = [number for _, number in group]
        yield f"{ordered[0]}-{ordered[-1]}" if rest else str(ordered[0])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgtail-coverage-") as folder:
        checkout = Path(folder, "checkout")
        shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        instrument(checkout)
        config, report = Path(folder, "coverage.ini"), Path(folder, "report.json")
        config.write_text(_CONFIG)

        def coverage(*words: str) -> None:
            subprocess.run([sys.executable, "-m", "coverage", *words], cwd=checkout, check=True)

        rc = f"--rcfile={config}"
        chosen = sys.argv[1:] or [f"tests/{name}" for name in TESTS]
        coverage("run", rc, "-m", "pytest", "-q", "-p", "no:xdist", "--timeout", "0", *chosen)
        coverage("combine", "-q", rc)
        coverage("report", rc)
        coverage("json", "-q", rc, "-o", str(report))
        found = {name: branches(json.loads(report.read_text()), folder) for name, folder in PARTS.items()}
        lines = scanner_lines(checkout)
    for name, reached in sorted(lines.items()):
        missed = sorted(number for number, whether in reached.items() if not whether)
        print(f"{name}: {len(reached)} lines, not reached: {', '.join(ranges(missed)) or 'none'}")
    every = [whether for reached in lines.values() for whether in reached.values()]
    found["lines of the compiled scanner"] = len(every), sum(every)
    print(f"\n{'branches of':30} {'there':>6} {'reached':>8} {'share':>7}")
    for name, (there, taken) in found.items():
        print(f"{name:30} {there:6} {taken:8} {100 * taken / there:5.1f} %")
    sys.exit(1 if any(100 * taken < LEAST * there for there, taken in found.values()) else 0)


if __name__ == "__main__":
    main()
