"""The doctor: read-only checks of a server's setup, one module per family of checks.

To add a check, write a function in its family's module and name it in the module's CHECKS. To add a family, add its
module to FAMILIES.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtail.doctor import access, partitions, publications, server, slots, tables
from pgtail.doctor.base import COMMENT, Check, Context, Finding, Severity, comment, warning
from pgtail.doctor.provider import Provider, detect
from pgtail.errors import ServerError
from pgtail.postgres import catalog, rows
from pgtail.postgres.catalog import ServerFacts
from pgtail.postgres.connection import Connector, set_if_direct

FAMILIES: Final[dict[str, dict[str, Check]]] = {
    "server": server.CHECKS,
    "access": access.CHECKS,
    "publications": publications.CHECKS,
    "tables": tables.CHECKS | partitions.CHECKS,
    "slots": slots.CHECKS,
}
"""Family -> name of a check -> the check, in the order in which they run."""

_TIMEOUTS: Final = {"lock_timeout": "2s", "statement_timeout": "30s"}
"""The doctor must not block a busy server, nor wait long for a lock."""


class Report(Struct, frozen=True):
    """The findings, by family. `provider` is None if the server does not show who runs it."""

    server: ServerFacts
    provider: Provider | None
    findings: dict[str, list[Finding]]

    def all(self) -> Iterator[tuple[str, Finding]]:
        """Family and finding, in order."""
        for family, findings in self.findings.items():
            for finding in findings:
                yield family, finding

    @property
    def severity(self) -> Severity:
        return max((finding.severity for _, finding in self.all()), default=Severity.OK)


def examine(connector: Connector) -> Report:
    """Run all checks. Raises ServerError if the server cannot be reached or the connection breaks."""
    with connector.ordinary() as connection:
        for name, value in _TIMEOUTS.items():
            set_if_direct(connection, name, value)
        provider = detect(connection)
        found = rows.rows(connection, "the settings", "SELECT name, setting FROM pg_settings WHERE setting IS NOT NULL")
        settings = {row.text("name"): row.text("setting") for row in found}
        context = Context(connection, connector, catalog.server_facts(connection), settings)
        findings = {
            family: [
                _with_hint(finding, provider)
                for name, check in checks.items()
                for finding in _run(name, check, context)
            ]
            for family, checks in FAMILIES.items()
        }
        return Report(context.server, provider, findings)


def _run(name: str, check: Check, context: Context) -> list[Finding]:
    """The findings of a check, or a warning that it failed."""
    try:
        return list(check(context))
    except ServerError as error:
        if context.connection.broken:
            raise
        return [warning(name, f"could not be checked: {error.reason}", *map(comment, (error.cure or "").splitlines()))]


def _with_hint(finding: Finding, provider: Provider | None) -> Finding:
    """The finding, with the provider's own way to fix it."""
    if provider is None or finding.severity is Severity.OK:
        return finding
    hint = provider.hint(finding.check, finding.cure)
    return finding if hint is None else replace(finding, cure=(*finding.cure, comment(f"On {provider.name}: {hint}")))


__all__ = ["COMMENT", "FAMILIES", "Finding", "Report", "Severity", "examine"]
