"""Completion in the shells: commands, their options, and the values of options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-c", "from pgtail.cli import main; main(prog_name='pgtail')"]


def completed(shell: str, *words: str, **variables: str) -> set[str]:
    """The completions of the last word."""
    asked = {
        "_PGTAIL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(["pgtail", *words]),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
    }
    environment = {**os.environ, **asked, **variables}
    ran = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    return set(lines[1::3]) if shell == "zsh" else {line.split(",")[1].split("\t")[0] for line in lines}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_options_and_their_values(shell: str, tmp_path: Path) -> None:
    assert completed(shell, "con") == {"config"}
    assert completed(shell, "decode", "--red") == {"--redact", "--redact-hash", "--redact-key-file"}
    # A wrong config file is an error when a command runs, not here.
    wrong = tmp_path / "config.toml"
    wrong.write_text("[")
    assert completed(shell, "stream", "--show-", PGTAIL_CONFIG=str(wrong)) == {"--show-aborted", "--show-uncommitted"}
    assert completed(shell, "decode", "--color", "") == {"auto", "always", "never"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell: str) -> None:
    ran = subprocess.run([*PROGRAM, "completion", shell], capture_output=True, text=True, check=True)
    assert "_PGTAIL_COMPLETE" in ran.stdout
