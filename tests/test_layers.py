"""The one-way imports of the tower, read from the source: a file may import from its own floor or below.

Imports inside functions count as well, and so do psycopg, click, rich, pyspark and pyarrow outside their folders.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pgtail"

FLOORS = {
    "__init__": 0,
    "errors": 0,
    "unhurried": 0,
    "compiled": 0,
    "wire": 1,
    "values": 2,
    "relations": 3,
    "transaction": 3,
    "changes": 3,
    "streambuffer": 3,
    "keptrows": 3,
    "streams": 3,
    "uncommitted": 3,
    "assembler": 3,
    "filters": 3,
    "redaction": 3,
    "expectation": 3,
    "stats": 4,
    "inputs": 4,
    "captures": 4,
    "outputs": 4,
    "server": 5,
    "shortway": 6,
    "pipeline": 6,
    "spark": 7,
    "cli": 7,
    "entry": 7,
    "__main__": 7,
}
"""The floor of each folder and file directly below the package."""

PRIVILEGES = {
    "click": {"cli"},
    "psycopg": {"server"},
    "rich": {"outputs", "cli"},
    "pyspark": {"spark"},
    "pyarrow": {"spark"},
    "dpkt": {"inputs"},
    "orjson": {"unhurried"},
}
"""The libraries that belong to some parts of the tower, and to which."""

MOST_LINES = 400


def part(file: Path, package: Path) -> str:
    """The folder or file directly below the package that a file belongs to."""
    return file.relative_to(package).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of all that is imported anywhere in a file, also by importlib.import_module("name")."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield node.lineno, name.name
            case ast.ImportFrom(module=module, names=names, level=level):
                for name in names:
                    yield node.lineno, "." * level + (f"{module}.{name.name}" if module else name.name)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                yield node.lineno, target


def violations(package: Path) -> list[str]:
    """Every import that the tower forbids, and every file without a floor."""
    found = []
    for file in sorted(package.rglob("*.py")):
        own = part(file, package)
        if own not in FLOORS:
            found.append(f"{file}: {own} has no floor in FLOORS")
            continue
        for line, name in imported(ast.parse(file.read_bytes(), file)):
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if top == "":
                found.append(f"{file}:{line}: a relative import, whose floor nobody sees")
            elif top == "pgtail" and other in FLOORS and FLOORS[other] > FLOORS[own]:
                found.append(f"{file}:{line}: {own} (floor {FLOORS[own]}) imports {other} (floor {FLOORS[other]})")
            elif own not in PRIVILEGES.get(top, {own}):
                found.append(f"{file}:{line}: {top} belongs to {' and '.join(sorted(PRIVILEGES[top]))}, not to {own}")
    return found


def test_every_import_stays_on_its_floor_or_goes_down() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("wire/low.py", "from pgtail.values import loaders", "wire (floor 1) imports values (floor 2)"),
        ("wire/low.py", "from pgtail import pipeline", "wire (floor 1) imports pipeline (floor 6)"),
        ("errors.py", "import pgtail.wire.cells", "errors (floor 0) imports wire (floor 1)"),
        ("inputs/x.py", "def f():\n    if f:\n        import pgtail.server.session", "imports server (floor 5)"),
        ("inputs/x.py", "import importlib\nimportlib.import_module('pgtail.cli')", "imports cli (floor 7)"),
        ("inputs/x.py", "from .. import cli", "a relative import"),
        ("inputs/x.py", "from psycopg.pq import PGconn", "psycopg belongs to server, not to inputs"),
        ("server/x.py", "import click", "click belongs to cli, not to server"),
        (
            "pipeline.py",
            "def f():\n    from rich.table import Table",
            "rich belongs to cli and outputs, not to pipeline",
        ),
        ("cli/x.py", "import pyspark.sql", "pyspark belongs to spark, not to cli"),
        ("elsewhere.py", "", "elsewhere has no floor"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(source)
    [found] = violations(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("wire/x.py", "import struct\nfrom pgtail.errors import Malformed\nfrom pgtail.wire import cells"),
        ("outputs/x.py", "from rich.table import Table\nfrom pgtail.inputs import sniff"),
        ("server/x.py", "import psycopg\nfrom pgtail import __version__"),
        ("cli/x.py", "import click, rich\nfrom pgtail.pipeline import Pipeline"),
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, file: str, source: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(source)
    assert violations(tmp_path) == []


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_says_its_floor_and_stays_small(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    floor = FLOORS[part(file, PACKAGE)]
    if floor:
        assert re.match(rf"Floor {floor}\b", docstring), f"the first line does not begin with 'Floor {floor}'"
    else:
        assert docstring
    lines = source.count("\n")
    assert lines <= MOST_LINES, f"{lines} lines: time to split it"
