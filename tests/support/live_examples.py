"""The examples of pgtail-follow(3), and the services of libpq that they connect to."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from tests.support.servers import Database
from tests.tools.make_man import PARTS

EXAMPLES = dict(
    re.findall(
        r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```$",
        (PARTS / "pgtail-follow.3.md").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
)
"""By their titles."""
OUTBOX = EXAMPLES["An outbox into another database, exactly once"]


def service_file(file: Path, **databases: Database) -> str:
    """Write a service file (PGSERVICEFILE) in which these databases have these names; returns its name."""
    parts = []
    for name, database in databases.items():
        found = psycopg.conninfo.conninfo_to_dict(database.conninfo())
        parts += [f"[{name}]", *[f"{key}={value}" for key, value in found.items()]]
    file.write_text("\n".join(parts) + "\n")
    return str(file)
