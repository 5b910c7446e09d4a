"""Floor 5, checks of who connects and how: rights, replication connections (pg_hba.conf), poolers, what is hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import psycopg

from pgtail.errors import ServerError
from pgtail.server.connection import is_direct
from pgtail.server.doctor.base import Check, Finding, Patient, ok, problem, warning
from pgtail.server.options import identifier

_RIGHT: Final = """
SELECT rolsuper, rolreplication,
    EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication' AND pg_has_role(r.oid, g.oid, 'MEMBER'))
FROM pg_roles r WHERE rolname = current_user
"""
_SEES: Final = """
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
    pg_has_role(current_user, 'pg_read_all_settings', 'USAGE')
"""
_NO_RIGHT: Final = re.compile("to start WAL sender|to start walsender|superuser or replication role")


def replication_right(patient: Patient) -> Iterator[Finding]:
    """Whether the role may open replication connections and use slots."""
    role = patient.server.role
    [(superuser, replication, rds)] = patient.rows(_RIGHT)
    if superuser or replication or rds:
        how = "is a superuser" if superuser else "has the REPLICATION right"
        yield ok("replication_right", f"role {role} {how}")
    else:
        text = f"role {role} has not the REPLICATION right: it can neither read slots nor create any"
        yield problem("replication_right", text, f"As a superuser: ALTER ROLE {identifier(role)} REPLICATION;")


def replication_connection(patient: Patient) -> Iterator[Finding]:
    """Whether a replication connection comes about: pg_hba.conf, walsenders, poolers. Probed, not guessed."""
    name = "replication_connection"
    try:
        with patient.connector.without_asking().replication() as connection:
            connection.execute("IDENTIFY_SYSTEM")
    except psycopg.errors.SyntaxError:
        text = "a replication connection comes out as an ordinary one: a pooler stands between"
        yield problem(name, text, "Connect to the server itself, or through pgbouncer 1.23 or later.")
    except ServerError as error:
        if _NO_RIGHT.search(error.reason):
            yield ok(name, "pg_hba.conf lets a replication connection in")
        else:
            yield problem(name, f"a replication connection fails: {error.reason}", *(error.cure or "").splitlines())
    else:
        yield ok(name, "a replication connection comes about, pg_hba.conf lets it in")


def pooler(patient: Patient) -> Iterator[Finding]:
    """Whether somebody stands between: poolers make up the process id that they give at the start."""
    if is_direct(patient.connection):
        yield ok("pooler", "nothing stands between pgtail and the server")
    else:
        text = (
            "a pooler stands between: pgbouncer passes replication connections from 1.23 on, others do not; and"
            " settings of one client's session may stay for the next one"
        )
        yield warning("pooler", text, "Connect to the server itself.")


def visibility(patient: Patient) -> Iterator[Finding]:
    """What the server hides from the role, so that nobody takes silence for health."""
    role = patient.server.role
    [(stats, settings)] = patient.rows(_SEES)
    hidden = [
        *([] if stats else ["where others connect from and what they run"]),
        *([] if settings else ["some settings"]),
    ]
    if hidden:
        text = f"role {role} may not see {' and '.join(hidden)}: what depends on that is not found here"
        yield warning("visibility", text, f"GRANT pg_monitor TO {identifier(role)};")
    else:
        yield ok("visibility", f"role {role} sees all statistics and settings")


CHECKS: Final[dict[str, Check]] = {
    "replication_right": replication_right,
    "replication_connection": replication_connection,
    "pooler": pooler,
    "visibility": visibility,
}
