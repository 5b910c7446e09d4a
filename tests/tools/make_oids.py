"""Regenerates the table of built-in types in pgtail/values/oids.py from the catalog of the newest server found.

Run as `python -m tests.tools.make_oids` (`make oids`). OIDs below 10000 are the same on every server of every version.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from pgtail.demo.server import EmbeddedServer
from pgtail.values import oids
from pgtail.values.oids import BuiltinType
from tests.support.servers import installations

QUERY = """
SELECT t.oid::int8, t.typname, t.typtype::text, coalesce(e.oid, 0)::int8, t.typdelim::text,
       coalesce(r.rngsubtype, m.rngsubtype, 0)::int8, CASE WHEN t.typarray < 10000 THEN t.typarray::int8 ELSE 0 END
FROM pg_type t
LEFT JOIN pg_type e ON e.typarray = t.oid
LEFT JOIN pg_range r ON r.rngtypid = t.oid
LEFT JOIN pg_range m ON m.rngmultitypid = t.oid
WHERE t.oid < 10000 AND t.typtype <> 'p' AND coalesce(e.typtype, '') <> 'p'
ORDER BY t.oid
"""


def row(oid: int, builtin: BuiltinType) -> str:
    """One line of the table, without fields that have their usual value."""
    usual = BuiltinType("")
    parts = [f'"{builtin.name}"']
    parts += [
        f'{field}="{value}"' if isinstance(value, str) else f"{field}={value}"
        for field, value in builtin._asdict().items()
        if field != "name" and value != getattr(usual, field)
    ]
    return f"    {oid}: BuiltinType({', '.join(parts)}),"


def table(connection: psycopg.Connection[tuple[int, str, str, int, str, int, int]]) -> dict[int, BuiltinType]:
    """The built-in types of a server."""
    return {row[0]: BuiltinType(*row[1:]) for row in connection.execute(QUERY).fetchall()}


def rewritten(source: str, types: dict[int, BuiltinType]) -> str:
    """The source with another table between its marks."""
    before, rest = source.split("    # generated: start\n")
    _, after = rest.split("    # generated: end\n")
    rows = "".join(f"{row(oid, builtin)}\n" for oid, builtin in types.items() if not builtin.element)
    return f"{before}    # generated: start\n{rows}    # generated: end\n{after}"


def main() -> None:
    newest = list(installations().values())[-1]
    with EmbeddedServer(newest) as server, psycopg.connect(server.conninfo("postgres")) as connection:
        types = table(connection)
    path = Path(oids.__file__)
    path.write_text(rewritten(path.read_text(), types))
    print(f"{path}: {len(types)} types of PostgreSQL {newest.major}")


if __name__ == "__main__":
    main()
