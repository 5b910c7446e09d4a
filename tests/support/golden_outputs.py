"""Expected tables of captures. `python -m tests.support.golden_outputs` rewrites them; check them before a commit."""

from __future__ import annotations

from pathlib import Path

from pgtail.outputs import OutputOptions
from tests.support.corpus import capture
from tests.support.render_text import capture_table

FOLDER = Path(__file__).parent / "golden"

GOLDEN = {
    "Z_small-p1": OutputOptions(width=80),
    "A_dml-p1": OutputOptions(width=80, max_rows=4),
    "A_types-p1_bin": OutputOptions(width=120),
    "A_names-p1": OutputOptions(width=100),
    "A_msgs-p1_msg": OutputOptions(width=80),
    "A_ddl-p1": OutputOptions(width=80, max_rows=5, schema_changes=True),
    "A_part-p1_leaf": OutputOptions(width=80),
    "C_stream-p2_stream_msg": OutputOptions(width=40, max_rows=3),
    "D_twophase-p3_2pc": OutputOptions(width=100, max_rows=3),
    "F_origin-p4_any": OutputOptions(width=80, colored=True),
    "H_sqlascii-p1": OutputOptions(width=200),
}
"""Capture of PostgreSQL 16 -> options of the table."""


def render(golden: str) -> str:
    """A capture as the current code shows it."""
    scenario, _, name = golden.partition("-")
    return capture_table(capture(scenario, name), GOLDEN[golden])


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for golden in GOLDEN:
        (FOLDER / f"{golden}.txt").write_text(render(golden), encoding="utf-8")


if __name__ == "__main__":
    main()
