"""Floor 5, checks of the publications of the database: which there are and what they publish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pgtail.server.doctor.base import Check, Finding, Patient, ok, problem, warning
from pgtail.server.options import identifier

_PUBLICATIONS: Final = """
SELECT to_jsonb(p), (SELECT count(*) FROM pg_publication_tables t WHERE t.pubname = p.pubname),
    (SELECT count(*) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND to_jsonb(r) ->> 'prqual' IS NOT NULL),
    (SELECT count(*) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND to_jsonb(r) ->> 'prattrs' IS NOT NULL)
FROM pg_publication p ORDER BY pubname
"""
_OPERATIONS: Final = {
    "pubinsert": "inserts",
    "pubupdate": "updates",
    "pubdelete": "deletes",
    "pubtruncate": "truncates",
}


def publications(patient: Patient) -> Iterator[Finding]:
    """Whether there are any, and what is in them."""
    found = patient.rows(_PUBLICATIONS)
    if not found:
        text = f"database {patient.server.database} has no publication: pgoutput sends nothing without one"
        yield problem("publications", text, "CREATE PUBLICATION some_name FOR TABLE some_table, another_table;")
    for row, tables, filters, lists in found:
        name = identifier(row["pubname"])
        if tables:
            yield ok("publications", _described(row, tables, filters, lists), name)
        else:
            text = f"publication {name} has no tables: nothing is sent of it"
            cure = f"ALTER PUBLICATION {name} ADD TABLE some_table;"
            if row["puballtables"]:  # the server refuses to add to those
                cure = "It is of all tables, and there is none that it could send: any that is created will be in it."
            yield warning("publications", text, cure, subjects=[name])


def _described(row: dict[str, Any], tables: int, filters: int, lists: int) -> str:
    sent = [word for column, word in _OPERATIONS.items() if row.get(column, True)]
    left = [word for column, word in _OPERATIONS.items() if not row.get(column, True)]
    words = [f"publication {identifier(row['pubname'])}: {_counted(tables, 'table')}"]
    if row["puballtables"]:
        words.append("all that there are and will be")
    words.append(f"{' and '.join([', '.join(sent[:-1]), sent[-1]]) if len(sent) > 1 else ''.join(sent) or 'nothing'}")
    if left:
        words.append(f"no {' and no '.join(left)}")
    for number, what in ((filters, "row filter"), (lists, "column list")):
        if number:
            words.append(_counted(number, what))
    return ", ".join(words)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"


CHECKS: Final[dict[str, Check]] = {"publications": publications}
