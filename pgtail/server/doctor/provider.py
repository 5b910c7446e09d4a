"""Floor 5, whose server it is, where it shows, and what cures are called there; nothing is asked of the provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pgtail.server.connection import Connection


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of servers: recognised by a role that its servers have; `hints` are by check.

    `settings` is where settings are changed that ALTER SYSTEM changes elsewhere.
    """

    name: str
    role: str
    settings: str
    hints: dict[str, str] = field(default_factory=dict)

    def hint(self, check: str, cure: tuple[str, ...]) -> str | None:
        """What a check's cure is called there, None where it is what it is everywhere."""
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
            "replication_right": "roles made in the console, with the CLI or the API have it.",
            "replication_connection": "use the direct connection: the host's name without -pooler.",
            "pooler": "use the direct connection: the host's name without -pooler.",
        },
    ),
)


def recognise(connection: Connection) -> Provider | None:
    """The provider whose roles the server has, or None."""
    query = "SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s)"
    found = {role for (role,) in connection.execute(query, ([one.role for one in PROVIDERS],)).fetchall()}
    return next((one for one in PROVIDERS if one.role in found), None)
