"""Managed providers: how to recognize their servers, and how things are fixed there."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from pgtail.postgres import rows
from pgtail.postgres.connection import Connection


class Provider(Struct, frozen=True):
    """A provider, recognized by a role that its servers have. `hints` maps a check to the fix there.

    `settings` says where to change the settings that ALTER SYSTEM changes elsewhere.
    """

    name: str
    role: str
    settings: str
    hints: dict[str, str] = field(default_factory=dict)

    def hint(self, check: str, cure: tuple[str, ...]) -> str | None:
        """How to do this cure there; None if it is the same as everywhere."""
        if check in self.hints:
            return self.hints[check]
        return self.settings if any("ALTER SYSTEM" in line for line in cure) else None


PROVIDERS: Final = (
    Provider(
        "Amazon RDS or Aurora",
        "rds_superuser",
        "settings are those of the instance's or cluster's parameter group.",
        {
            "wal_level": "set rds.logical_replication = 1 in the parameter group and reboot.",
            "replication_right": "GRANT rds_replication TO the role.",
            "pooler": "RDS Proxy passes no replication connections: use the instance's own endpoint.",
        },
    ),
    Provider(
        "Google Cloud SQL",
        "cloudsqlsuperuser",
        "settings are the instance's database flags.",
        {
            "wal_level": "set the flag cloudsql.logical_decoding = on; the instance restarts.",
            "replication_right": "ALTER USER the_role WITH REPLICATION; as a member of cloudsqlsuperuser.",
        },
    ),
    Provider(
        "Azure Database for PostgreSQL",
        "azure_pg_admin",
        "settings are server parameters in the portal.",
        {
            "wal_level": "set the server parameter wal_level to LOGICAL and restart.",
            "replication_right": "ALTER ROLE the_role WITH REPLICATION; as the server's administrator.",
            "pooler": "port 6432 is the built-in pgbouncer: use 5432.",
        },
    ),
    Provider(
        "Supabase",
        "supabase_admin",
        "settings are changed with the Supabase CLI (postgres-config) or by their support.",
        {
            "replication_connection": "use the direct connection, not the pooler's address.",
            "pooler": "use the direct connection, not the pooler's address.",
        },
    ),
    Provider(
        "Neon",
        "neon_superuser",
        "settings are those of the project, in Neon's console.",
        {
            "wal_level": "turn logical replication on in the project's settings; it stays on.",
            "replication_right": "roles created in the console, with the CLI or the API have it.",
            "replication_connection": "use the direct connection: the host name without -pooler.",
            "pooler": "use the direct connection: the host name without -pooler.",
        },
    ),
)


def detect(connection: Connection) -> Provider | None:
    """The provider whose roles the server has, or None."""
    query = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)"
    there = rows.rows(connection, "the providers' roles", query, [one.role for one in PROVIDERS])
    found = {row.text("rolname") for row in there}
    return next((one for one in PROVIDERS if one.role in found), None)
