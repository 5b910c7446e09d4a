"""Small files are read whole, and no others: wherever a user or a capture names one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pgtail.files.small import MOST, read_small
from tests.support.run import here


def test_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * MOST)
    assert len(read_small(file)) == MOST
    file.write_bytes(b"x" * (MOST + 1))
    with pytest.raises(OSError, match="too large") as found:
        read_small(file)
    assert found.value.errno == errno.EFBIG


@pytest.mark.parametrize("command", [["decode"], ["stats"], ["record", "--from", "/dev/null", "-D"]])
def test_a_device_in_place_of_the_state_of_a_capture(command: list[str], tmp_path: Path) -> None:
    state = tmp_path / "capture.json"
    state.symlink_to("/dev/zero")
    result = here(*command, tmp_path)
    assert (result.status, result.stdout) == (1, b"")
    assert result.stderr == f"pgtail: error: {state}: cannot be read: File too large\n"


def test_a_device_in_place_of_a_key() -> None:
    result = here("decode", "--redact", "v", "--redact-hash", "--redact-key-file", "/dev/zero", "/dev/null")
    assert (result.status, result.stderr) == (2, "pgtail: error: --redact-key-file /dev/zero: File too large\n")


def test_a_device_in_place_of_the_configuration() -> None:
    result = here("decode", "/dev/null", PGTAIL_CONFIG="/dev/zero")
    assert (result.status, result.stderr) == (2, "pgtail: error: /dev/zero: File too large\n")
