"""The programs that are run side by side, each a command that reads the backlog and writes to its standard output.

A program that cannot be installed here is left out, with the reason.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.workload import HERE, WORK, Backlog

_PYPGOUTPUT = ("pypgoutput", "pydantic<2")
_NODE_PACKAGE, _NODE_VERSION = "pg-logical-replication", "2.5.0"


class Missing(Exception):
    """A program cannot be run here: why."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One program; `writes_changes` says that it writes a line for each change."""

    name: str
    command: list[str | Path]
    writes_changes: bool = True


def contenders(backlog: Backlog) -> tuple[list[Contender], list[str]]:
    """The programs that run here, pgtail first, and a line for each that does not."""
    found, missing = [], []
    for make in (_pgtail, _filtered, _pgtail_recvlogical, _pure, _node, _pypgoutput, _walk, _cat):
        try:
            found.append(make(backlog))
        except Missing as reason:
            missing.append(str(reason))
    return found, missing


def _pgtail(backlog: Backlog) -> Contender:
    return Contender("pgtail decode", [*_decode(), backlog.lengths])


def _filtered(backlog: Backlog) -> Contender:
    """Filters that everything passes, to measure their own cost."""
    filters = ["--table", "public.*", "--exclude", "nothing", "--op", "insert,update,delete"]
    return Contender("pgtail, --table and --op", [*_decode(), *filters, backlog.lengths])


def _pure(backlog: Backlog) -> Contender:
    return Contender("pgtail, PGTAIL_PURE=1", ["env", "PGTAIL_PURE=1", *_decode(), backlog.lengths])


def _pgtail_recvlogical(backlog: Backlog) -> Contender:
    return Contender("pgtail, recvlogical", [*_decode(), backlog.recvlogical])


def _decode() -> list[str | Path]:
    return [Path(sys.executable).with_name("pgtail"), "decode", "-o", "json"]


def _node(backlog: Backlog) -> Contender:
    node = shutil.which("node")
    if node is None:
        raise Missing(f"npm's {_NODE_PACKAGE}: there is no node")
    _install_node_package()
    return Contender(f"npm {_NODE_PACKAGE}", [node, HERE / "node_peer.mjs", WORK, backlog.lengths])


def _install_node_package() -> None:
    if _installed_node_version() == _NODE_VERSION:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise Missing(f"npm's {_NODE_PACKAGE}: there is no npm")
    install: list[str | Path] = [
        npm,
        "install",
        "--prefix",
        WORK,
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    try:
        subprocess.run(
            [*install, f"{_NODE_PACKAGE}@{_NODE_VERSION}"], check=True, capture_output=True, text=True, timeout=300
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["it failed without a word"]
        raise Missing(f"npm's {_NODE_PACKAGE}: npm could not install it: {said[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"npm's {_NODE_PACKAGE}: npm did not install it within 5 minutes") from error


def _installed_node_version() -> str | None:
    try:
        package = json.loads((WORK / "node_modules" / _NODE_PACKAGE / "package.json").read_bytes())
    except (OSError, ValueError):
        return None
    return str(package.get("version"))


def _pypgoutput(backlog: Backlog) -> Contender:
    python = WORK / "pypgoutput" / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run(
                [sys.executable, "-m", "venv", python.parent.parent], check=True, capture_output=True, text=True
            )
        install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", *_PYPGOUTPUT]
        subprocess.run(install, check=True, capture_output=True, text=True, timeout=300)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["it failed without a word"]
        raise Missing(f"PyPI's pypgoutput: it could not be installed: {said[-1]}") from error
    except subprocess.TimeoutExpired as error:
        raise Missing("PyPI's pypgoutput: pip did not install it within 5 minutes") from error
    return Contender("PyPI pypgoutput", [python, HERE / "pypgoutput_peer.py", backlog.lengths])


def _walk(backlog: Backlog) -> Contender:
    walk: list[str | Path] = [sys.executable, "-I", "-S", HERE / "walk.py", backlog.lengths]
    return Contender("framing, in Python", walk, writes_changes=False)


def _cat(backlog: Backlog) -> Contender:
    return Contender("cat", ["cat", backlog.lengths], writes_changes=False)
