"""Members of a segment that are missing, moved or replaced are reported by every reader, each being whole by itself."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pgtail.capture.recorder import Rotation
from pgtail.errors import InputError
from tests.support.captures import SMALL, data_frames, misplaced, record, segments, split
from tests.support.corpus import capture
from tests.support.run import here

OLDER = segments(Path(__file__).parents[1] / "captures/older/format1")
"""Segments of format 1, with SHA-256."""
FORMS = {
    "newest": (False, False),
    "older": (True, True),
    "with older": (False, True),
    "older with newest": (True, False),
}
"""Whether a segment is an older one, and whether one is from which members come into it."""


class Damaged(NamedTuple):
    """A segment alone in a capture, its members, and those of another segment."""

    path: Path
    whole: list[bytes]
    other: list[bytes]

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """What the file has with a member in a wrong place, each with a name."""
        return ((name, b"".join(members)) for name, members in misplaced(self.whole, self.other))


@pytest.fixture(params=FORMS)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Damaged:
    """A segment of this form."""
    record(tmp_path / "newest", data_frames(capture("A_dml", "p1")), Rotation(size=15_000, sync_size=2000))
    newest = segments(tmp_path / "newest")
    first, second = ((OLDER if older else newest)[at] for at, older in enumerate(FORMS[request.param]))
    (tmp_path / "capture").mkdir()
    path = tmp_path / "capture" / first.name
    path.write_bytes(first.read_bytes())
    return Damaged(path, split(first.read_bytes()), split(second.read_bytes()))


@pytest.mark.usefixtures("gzip_library")
def test_a_member_in_a_wrong_place_is_reported(damaged: Damaged) -> None:
    path = damaged.path
    commands = [("decode", "-o", "json", path), ("stats", path), ("capture", "verify", path.parent)]
    assert [here(*command).status for command in commands] == [0, 0, 0]
    for name, content in damaged.contents():
        path.write_bytes(content)
        for command in commands:
            result = here(*command)
            assert (result.status, path.name in result.stderr) == (1, True), (name, command)


def test_inspect_verify_reports_a_member_in_a_wrong_place(damaged: Damaged) -> None:
    """Without --verify it compares no checksum of the whole."""
    assert here("inspect", "--verify", damaged.path).status == 0
    for name, content in damaged.contents():
        damaged.path.write_bytes(content)
        assert here("inspect", "--verify", damaged.path).status == 1, name


def test_spark_reports_a_member_in_a_wrong_place(damaged: Damaged) -> None:
    survey = pytest.importorskip("pgtail.arrow.decoding.decode").survey
    assert survey(io.BytesIO(b"".join(damaged.whole)), "whole").places is not None
    for name, content in damaged.contents():
        try:
            survey(io.BytesIO(content), "the segment")
        except InputError as error:
            assert "the segment" in str(error), name
        else:
            pytest.fail(name)


@pytest.mark.parametrize("compress", [True, False])
def test_a_segment_has_one_beginning_and_other_files_may_have_several(tmp_path: Path, *, compress: bool) -> None:
    """Each gzip member is whole then, and so is each segment."""
    record(tmp_path / "capture", data_frames(capture("A_dml", "p1")), SMALL, compress=compress)
    files = segments(tmp_path / "capture")[:2]
    joined = b"".join(path.read_bytes() for path in files)
    other, one = tmp_path / "joined", tmp_path / files[0].name
    for path in (other, one):
        path.write_bytes(joined)
    for verified in (("decode",), ("inspect",), ("stats",)):
        refused = here(*verified, "--verify", one)
        assert (refused.status, refused.stdout) == (1, b""), verified
        assert refused.stderr.startswith(f"pgtail: error: {one}: it has several segments, one after another"), verified
        assert here(*verified, "--verify", files[0]).status == 0
        assert here(*verified, "--verify", other).status == 0
