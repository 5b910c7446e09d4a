"""Floor 5, the doctor: a shelf of checks, one file per family; looks at a server's setup and changes nothing.

A new check is a function in its family's file and its name in the family's CHECKS; a new family is a line in FAMILIES.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import psycopg

from pgtail.server import facts
from pgtail.server.connection import Connector, set_if_direct
from pgtail.server.cures import server_error
from pgtail.server.doctor import access, publications, server, slots, tables
from pgtail.server.doctor.base import Check, Finding, Patient, Severity, warning
from pgtail.server.doctor.provider import Provider, recognise
from pgtail.server.facts import ServerFacts

FAMILIES: Final[dict[str, dict[str, Check]]] = {
    "server": server.CHECKS,
    "access": access.CHECKS,
    "publications": publications.CHECKS,
    "tables": tables.CHECKS,
    "slots": slots.CHECKS,
}
"""Family -> name of a check -> the check, in the order in which they are made."""

_PATIENCE: Final = {"lock_timeout": "2s", "statement_timeout": "30s"}
"""A busy server must not wait for us, nor we for a lock."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, by family. `provider` is None where the server does not show whose it is."""

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
    """Make all checks. Raises ServerError where the server cannot be reached, or goes away."""
    with connector.ordinary() as connection:
        for name, value in _PATIENCE.items():
            set_if_direct(connection, name, value)
        provider = recognise(connection)
        settings = dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())
        patient = Patient(connection, connector, facts.server_facts(connection), settings)
        findings = {
            family: [
                _hinted(finding, provider) for name, check in checks.items() for finding in _made(name, check, patient)
            ]
            for family, checks in FAMILIES.items()
        }
        return Report(patient.server, provider, findings)


def _made(name: str, check: Check, patient: Patient) -> list[Finding]:
    """What a check finds, or why it could not look."""
    try:
        return list(check(patient))
    except psycopg.Error as error:
        if patient.connection.broken:
            raise
        reason = error.diag.message_primary or str(error).strip()
        cure = server_error(error.sqlstate, reason, role=patient.server.role).cure
        return [warning(name, f"could not be looked at: {reason}", *(cure or "").splitlines())]


def _hinted(finding: Finding, provider: Provider | None) -> Finding:
    """The finding with what its cure is called at the provider."""
    if provider is None or finding.severity is Severity.OK:
        return finding
    hint = provider.hint(finding.check, finding.cure)
    return finding if hint is None else replace(finding, cure=(*finding.cure, f"On {provider.name}: {hint}"))


__all__ = ["FAMILIES", "Finding", "Report", "Severity", "examine"]
