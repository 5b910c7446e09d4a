"""A folder of datasets that grow batch by batch, and the manifest that says which batches count; no session.

    OUT/changes/batch=3/commit_date=2026-11-20/part-....parquet     likewise transactions/ and relations/
    OUT/_pgtail/manifest.json                                       what is in it, replaced in one step

A batch is written aside and moved to its place whole, so that also those who read the folder without looking at the
manifest see whole batches. What the manifest does not name is removed when the next writer starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pgtail.errors import InputError, OptionError, OutputError
from pgtail.files.atomic import rename_synced, replace_file
from pgtail.spark.segments.ranges import Part, Place

FORMAT: Final = 1
KINDS: Final = ("changes", "transactions", "relations")

_OWN: Final = "_pgtail"
"""Spark passes over names that begin so."""
_STAGING: Final = "staging-"


@dataclass(slots=True)
class Manifest:
    """What counts. `number` is the last batch's; `batches` has those that count, for each dataset."""

    stored_as: str
    tables: list[str]
    number: int = 0
    server: str = ""
    batches: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    streams: list[str] = field(default_factory=list)
    segments: dict[str, list[Any]] = field(default_factory=dict)
    """Each segment that was applied: its stream's index, and the numbers of the parts that were taken from it."""

    chain: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Of each segment the name of the one that should stand before it, and whether it ends inside a transaction."""

    def covered(self) -> list[tuple[Part, str]]:
        """The parts that are in it, with their streams."""
        return [
            (Part(Place(*part[:2]), Place(*part[2:])), self.streams[stream])
            for stream, *parts in self.segments.values()
            for part in parts
        ]

    def apply(self, path: str, stream: str, parts: tuple[Part, ...], before: str = "", *, open_: bool = False) -> None:
        """Note that these parts of a segment are in it."""
        if stream not in self.streams:
            self.streams.append(stream)
        self.chain[path] = before, open_
        self.segments[path] = [self.streams.index(stream), *[[*part.first, *part.last] for part in parts]]


class Output:
    """The folder, held by one writer alone (writing()); readers need no lock. Raises OptionError where it cannot be."""

    def __init__(self, out: str) -> None:
        parts = urlsplit(out)
        if parts.scheme not in ("", "file"):
            raise OptionError(
                f"{out}: a manifest cannot be kept on {parts.scheme}. Write to a local or mounted directory, or call "
                "pgtail.spark.changes() and write the DataFrame where it is to go"
            )
        self.folder = Path(parts.path if parts.scheme else out).absolute()
        self._own = self.folder / _OWN
        self._manifest = self._own / "manifest.json"
        # Another name each time: the JVM of a killed process may go on for a moment.
        self._staging = f"{_STAGING}{uuid.uuid4().hex}"

    def read(self) -> Manifest | None:
        """The manifest; None where there is none. Raises InputError where it is damaged or of another version."""
        try:
            found = json.loads(self._manifest.read_bytes())
            version = found.pop("format")
            if version != FORMAT:
                raise InputError(f"is of format {version}; this pgtail knows {FORMAT}", source=str(self._manifest))
            return Manifest(**found)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", source=str(self._manifest)) from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"is damaged: {error}", source=str(self._manifest)) from None

    def batch(self, kind: str, number: int) -> str:
        """Where a batch lies."""
        return str(self.folder / kind / f"batch={number:06d}")

    def staged(self, kind: str) -> str:
        """Where it is written."""
        return str(self._own / self._staging / kind)

    def attempts(self) -> str:
        """Where tasks write in folders of their own, below; take() stages what counts of it."""
        return str(self._own / self._staging / "attempts")

    def take(self, kind: str, paths: Iterable[str]) -> None:
        """Stage these files, which tasks wrote: ATTEMPT/DATASET/... Raises OutputError where one is not there."""
        attempts, staged = Path(self.attempts()), Path(self.staged(kind))
        try:
            for path in paths:
                target = staged / path.split("/", 2)[2]
                target.parent.mkdir(parents=True, exist_ok=True)
                (attempts / path).rename(target)
        except FileNotFoundError:
            raise OutputError(
                f"what Spark's workers wrote to {self.folder} is not there: it must be one directory on all machines, "
                "mounted under the same path"
            ) from None
        except OSError as error:
            raise OutputError(f"cannot write to {self.folder}: {error.strerror}") from error

    def checkpoint(self, name: str) -> str:
        """Where Structured Streaming keeps what it has seen."""
        return str(self._own / f"checkpoint-{name}")

    @contextlib.contextmanager
    def writing(self, stored_as: str, tables: list[str]) -> Iterator[Manifest]:
        """Hold the folder, made where there is none, and what is in it.

        Raises OptionError where another process holds it, or where it was begun in another way.
        """
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OutputError(f"cannot write to {self.folder}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OptionError(f"another process writes to {self.folder}") from None
            yield self._begun(stored_as, tables)
        finally:
            os.close(lock)

    def _begun(self, stored_as: str, tables: list[str]) -> Manifest:
        manifest = self.read()
        if manifest is None:
            if any((self.folder / kind).exists() for kind in KINDS):
                raise OptionError(f"{self.folder} holds changes, transactions or relations that pgtail did not write")
            manifest = Manifest(stored_as, tables)
            self._replace(manifest)
        if manifest.stored_as != stored_as:
            raise OptionError(f"{self.folder} is kept as {manifest.stored_as}, not {stored_as}: name another one")
        if manifest.tables != tables:
            held = ", ".join(manifest.tables) or "all tables"
            raise OptionError(f"{self.folder} is of {held} (--table): name another one for others")
        self._sweep(manifest)
        return manifest

    def commit(self, manifest: Manifest) -> None:
        """Move what is staged to its place as batch `manifest.number`, and let the manifest count."""
        try:
            for kind in KINDS:
                staged = Path(self.staged(kind))
                if staged.exists():
                    target = Path(self.batch(kind, manifest.number))
                    target.parent.mkdir(exist_ok=True)
                    rename_synced(staged, target)
        except OSError as error:
            raise OutputError(f"cannot write to {self.folder}: {error.strerror}") from error
        self._replace(manifest)
        self._sweep(manifest)

    def _replace(self, manifest: Manifest) -> None:
        text = json.dumps({"format": FORMAT, **asdict(manifest)})
        try:
            replace_file(self._manifest, text.encode())
        except OSError as error:
            raise OutputError(f"cannot write to {self._manifest}: {error.strerror}") from error

    def _sweep(self, manifest: Manifest) -> None:
        """Remove what does not count."""
        for staging in self._own.glob(f"{_STAGING}*"):
            shutil.rmtree(staging, ignore_errors=True)
        for kind in KINDS:
            counting = {Path(self.batch(kind, number)) for number in manifest.batches[kind]}
            for path in (self.folder / kind).glob("batch=*"):
                if path not in counting:
                    shutil.rmtree(path, ignore_errors=True)
