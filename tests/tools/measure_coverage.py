"""`make coverage`: what the tests reach of the code that reads bytes: branches in Python, lines of the compiled code.

Runs the tests of that code in a copy of the checkout, whose scanner is built for gcov. What no test reaches is listed.
Ends with status 1 if a part has a smaller share than LEAST.
"""

from __future__ import annotations

import json
import re
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
    *("cli/test_decode.py", "cli/test_inspect.py", "cli/test_column_check.py"),
    *("stats/test_stats.py", "stats/test_counting.py", "stats/test_scanned.py"),
    *("capture/test_captures.py", "capture/test_contents.py", "capture/test_dumps.py", "capture/test_segments.py"),
    *("capture/test_runs.py", "postgres/test_copy_rows.py", "postgres/test_copy_reader.py"),
    *("spark/test_decode.py", "spark/test_ranges.py"),
    *("end_to_end/test_cases.py", "end_to_end/test_corpus.py", "end_to_end/test_damage.py"),
    *("end_to_end/test_flipped_bits.py", "end_to_end/test_hostile_data.py"),
    "torture/test_samples.py::test_random_streams_outputs_and_options",
)
_MARK: Final = re.compile(r'#line (?P<line>\d+) "(?P<file>.+)"')
"""Where Cython's C code says of which line it is."""
_NO_MEMORY: Final = re.compile("MemoryError|# no memory$")
"""Lines of Cython that run only if there is no memory, which no test makes happen: they do not count."""
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
    """Build the scanner of this checkout so that it counts the lines of its C code."""
    native = checkout / "pgtail/native"
    cython = [sys.executable, "-m", "cython", "--line-directives", "_scanner.pyx"]
    subprocess.run(cython, cwd=native, check=True)
    source = native / "_scanner.c"
    # gcov would give lines without a mark to the next line of Cython, and loses lines to which a block comes back.
    source.write_text(_MARK.sub(r"/* \g<0> */", source.read_text()))
    library = f"_scanner{sysconfig.get_config_var('EXT_SUFFIX')}"
    options = ["-O0", "-fPIC", "-shared", "--coverage", "-fprofile-update=atomic", "-w"]
    include = sysconfig.get_path("include")
    subprocess.run(["gcc", *options, f"-I{include}", "_scanner.c", "-o", library], cwd=native, check=True)


def scanner_lines(checkout: Path) -> tuple[dict[str, dict[int, bool]], int]:
    """The lines of each Cython file that have code, and whether a test reached them. The number of those that do not
    count (_NO_MEMORY)."""
    native = checkout / "pgtail/native"
    counts = _c_lines(native)
    found: dict[str, dict[int, bool]] = {}
    name, line = "", 0
    for number, text in enumerate((native / "_scanner.c").read_text().splitlines(), 1):
        if mark := _MARK.search(text):
            name, line = mark["file"], int(mark["line"])
        elif "Code section:" in text:  # what follows is Cython's own
            name = ""
        elif number in counts and name.endswith(".pyx"):
            lines = found.setdefault(name, {})
            lines[line] = lines.get(line, False) or counts[number] > 0
    left_out = 0
    for name, lines in found.items():
        source = (native / name).read_text().splitlines()
        for line in [line for line in lines if _NO_MEMORY.search(source[line - 1])]:
            del lines[line]
            left_out += 1
    return found, left_out


def _c_lines(native: Path) -> dict[int, int]:
    """How often each line of the C code ran that has any."""
    counts = [path.name for path in native.glob("*.gcda")]
    gcov = ["gcov", "--json-format", "--stdout", *counts]
    told = subprocess.run(gcov, cwd=native, capture_output=True, text=True, check=True).stdout
    found: dict[int, int] = {}
    for file in (file for line in told.splitlines() for file in json.loads(line)["files"]):
        if file["file"] == "_scanner.c":
            for line in file["lines"]:
                found[line["line_number"]] = max(found.get(line["line_number"], 0), line["count"])
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
        lines, left_out = scanner_lines(checkout)
    for name, reached in sorted(lines.items()):
        missed = sorted(number for number, whether in reached.items() if not whether)
        print(f"{name}: {len(reached)} lines, not reached: {', '.join(ranges(missed)) or 'none'}")
    print(f"{left_out} lines that run only without memory do not count")
    every = [whether for reached in lines.values() for whether in reached.values()]
    found["lines of the compiled scanner"] = len(every), sum(every)
    print(f"\n{'branches of':30} {'there':>6} {'reached':>8} {'share':>7}")
    for name, (there, taken) in found.items():
        print(f"{name:30} {there:6} {taken:8} {100 * taken / there:5.1f} %")
    sys.exit(1 if any(100 * taken < LEAST * there for there, taken in found.values()) else 0)


if __name__ == "__main__":
    main()
