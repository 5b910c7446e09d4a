"""Checks of access: rights, replication connections (pg_hba.conf), poolers, hidden information."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pgtail.doctor.base import Check, Context, Finding, comment, ok, problem, warning
from pgtail.errors import ServerError
from pgtail.postgres import rows
from pgtail.postgres.connection import is_direct
from pgtail.postgres.errors import SyntaxRefused
from pgtail.postgres.pgoutput_options import identifier

_RIGHT: Final = """
SELECT rolsuper, rolreplication,
    EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication' AND pg_has_role(r.oid, g.oid, 'MEMBER')) AS rds
FROM pg_roles r WHERE rolname = current_user
"""
_SEES: Final = """
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS stats,
    pg_has_role(current_user, 'pg_read_all_settings', 'USAGE') AS settings
"""
_NO_RIGHT: Final = re.compile("to start WAL sender|to start walsender|superuser or replication role")


def replication_right(context: Context) -> Iterator[Finding]:
    """Whether the role may open replication connections and use slots."""
    role = context.server.role
    row = context.only("the role's rights", _RIGHT)
    superuser, replication, rds = map(row.boolean, ("rolsuper", "rolreplication", "rds"))
    if superuser or replication or rds:
        how = "is a superuser" if superuser else "has the REPLICATION right"
        yield ok("replication_right", f"role {role} {how}")
    else:
        text = f"role {role} does not have the REPLICATION right: it can neither read nor create slots"
        yield problem(
            "replication_right", text, comment("As a superuser:"), f"ALTER ROLE {identifier(role)} REPLICATION;"
        )


def replication_connection(context: Context) -> Iterator[Finding]:
    """Whether a replication connection works: pg_hba.conf, walsenders, poolers. Tries one."""
    name = "replication_connection"
    try:
        with context.connector.without_asking().replication() as connection:
            rows.run(connection, "the server's identity", "IDENTIFY_SYSTEM")
    except SyntaxRefused:
        text = "a replication connection arrives as an ordinary one: there is a pooler in between"
        yield problem(name, text, comment("Connect to the server itself, or through pgbouncer 1.23 or later."))
    except ServerError as error:
        if _NO_RIGHT.search(error.reason):
            yield ok(name, "pg_hba.conf allows replication connections")
        else:
            cure = map(comment, (error.cure or "").splitlines())
            yield problem(name, f"a replication connection fails: {error.reason}", *cure)
    else:
        yield ok(name, "a replication connection works, pg_hba.conf allows it")


def pooler(context: Context) -> Iterator[Finding]:
    """Whether there is a pooler in between: the process id that poolers send at startup is not the server's."""
    if is_direct(context.connection):
        yield ok("pooler", "there is no pooler between pgtail and the server")
    else:
        text = (
            "there is a pooler between pgtail and the server: only pgbouncer 1.23 or later passes replication"
            " connections, and settings of one client's session may persist for the next client"
        )
        yield warning("pooler", text, comment("Connect to the server itself."))


def visibility(context: Context) -> Iterator[Finding]:
    """What the server hides from the role: a check that cannot see a problem reports none."""
    role = context.server.role
    row = context.only("what the role sees", _SEES)
    stats, settings = row.boolean("stats"), row.boolean("settings")
    hidden = [
        *([] if stats else ["where other sessions connect from and what they run"]),
        *([] if settings else ["some settings"]),
    ]
    if hidden:
        text = f"role {role} may not see {' and '.join(hidden)}: some problems may not be found"
        yield warning("visibility", text, comment("As a superuser:"), f"GRANT pg_monitor TO {identifier(role)};")
    else:
        yield ok("visibility", f"role {role} sees all statistics and settings")


CHECKS: Final[dict[str, Check]] = {
    "replication_right": replication_right,
    "replication_connection": replication_connection,
    "pooler": pooler,
    "visibility": visibility,
}
