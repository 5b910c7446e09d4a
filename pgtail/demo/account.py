"""The user that an embedded server runs as: PostgreSQL refuses to run as root, so root uses `nobody`."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from pgtail.errors import ServerError

_SUBSTITUTE = "nobody"
_LONGEST_DIRECTORY = 103 - len("/.s.PGSQL.65535.lock")
"""Bytes: sun_path has 104 with the NUL on macOS and 108 on Linux."""


class Account(Struct, frozen=True):
    """A user of this system; `uid` and `gid` are None for the current user."""

    name: str
    uid: int | None = None
    gid: int | None = None

    @classmethod
    def for_server(cls) -> Account:
        """The current user, or `nobody` for root. Raises ServerError if there is no such user."""
        if os.geteuid() != 0:
            return cls("this user")
        try:
            entry = pwd.getpwnam(_SUBSTITUTE)
        except KeyError:
            raise ServerError(
                f"PostgreSQL does not run as root, and there is no user {_SUBSTITUTE} to run it as.",
                cure="Run pgtail as an ordinary user.",
            ) from None
        return cls(_SUBSTITUTE, entry.pw_uid, entry.pw_gid)

    def popen(
        self,
        command: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a program as this user, in a session of its own and with a minimal environment.

        Ctrl-C does not reach it, and it inherits no locale, time zone or PG* variables. Its stderr is its stdout.
        Raises ServerError if it cannot be started.
        """
        try:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
                pass_fds=pass_fds,
                user=self.uid,
                group=self.gid,
                extra_groups=None if self.uid is None else [],
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"{command[0]} cannot be run as {self.name}: {error}") from error

    def may(self, test: str, path: Path) -> bool:
        """Whether a test of sh's `[`, such as -x, succeeds for this user on a path."""
        with self.popen(["/bin/sh", "-c", f'[ {test} "$0" ]', str(path)]) as process:
            return process.wait() == 0

    def give(self, directory: Path) -> None:
        """Make this user the owner of a directory and all in it."""
        if self.uid is not None and self.gid is not None:
            for path in (directory, *directory.rglob("*")):
                os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def private_directory(self, parent: Path | None = None) -> Path:
        """Create a temporary directory for this user only, with a path short enough for a Unix socket in it.

        It is in `parent` if that will do, otherwise in one of the system's directories for temporary files. Raises
        ServerError if there is no place for it: `nobody` cannot enter one below a directory of mode 0700.
        """
        for place in dict.fromkeys((parent or tempfile.gettempdir(), tempfile.gettempdir(), "/tmp", "/var/tmp")):
            directory = Path(tempfile.mkdtemp(prefix="pgtail-", dir=place)) if os.access(place, os.W_OK) else None
            if directory is None:
                continue
            self.give(directory)
            if len(os.fsencode(directory)) <= _LONGEST_DIRECTORY and self.may("-w", directory):
                return directory
            directory.rmdir()
        raise ServerError(
            f"No directory was found for temporary files that {self.name} may write to and that has a short name.",
            cure="Set TMPDIR to one.",
        )
