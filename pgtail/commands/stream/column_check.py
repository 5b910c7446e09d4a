"""Checks the columns that --where and --redact name against the published tables, before a stream starts."""

from __future__ import annotations

from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.commands.input.selection import filter_arguments, unknown_columns
from pgtail.commands.options.common import FilterOptions
from pgtail.errors import OptionError
from pgtail.native.plan import ROW_OPS
from pgtail.postgres.connection import Connection
from pgtail.postgres.published_columns import checked_tables
from pgtail.replication.plan import Plan
from pgtail.terminal.escape import escape


def check_columns(connection: Connection, plan: Plan, options: FilterOptions, filter_: Filter) -> list[str]:
    """Check the columns of a filter that was made from these options. Raises OptionError and ServerError.

    A slot may still have changes from before its tables were altered: a condition that is wrong only now is returned as
    warnings. So is a column in it that no table has, unless one has a similar name: the slot may have changes of tables
    that are not published any more. A name to mask is refused all the same, as values would be shown that were meant to
    be masked; a pattern is not. With --encoding, names are compared in the stream only.
    """
    redaction = filter_.redaction
    if (not options.where and redaction is None) or plan.encoding is not None:
        return []
    slot = plan.source
    tables = checked_tables(connection, [one.name for one in plan.publications], None if slot is None else slot.name)
    tried = Filter(**filter_arguments(options, redaction))
    altered = [table.relation for table in tables if table.altered and tried.table_passes(table.relation)]
    findings = _Findings([table.relation for table in tables], altered, slot is not None)
    if redaction is not None:
        findings.check_masked(redaction)
    findings.check_tested(tried, all_tables=not (options.tables or options.exclude))
    filter_.seen |= tried.seen
    if findings.refused:
        raise OptionError("\n".join(findings.refused + findings.warned))
    if not findings.warned:
        return []
    reason = f"{escape(altered[0].qualified)} was altered" if altered else "other tables may have been published"
    return [*findings.warned, f"going on, as {reason} since the slot's position"]


class _Findings:
    """The problems: `refused`, or only `warned` of, as the slot's earlier changes may fit.

    `altered` are the tables of which the slot may have changes from before they were altered.
    """

    def __init__(self, relations: list[Relation], altered: list[Relation], has_slot: bool) -> None:
        self._relations = relations
        self._altered = altered
        self._has_slot = has_slot
        self.refused: list[str] = []
        self.warned: list[str] = []

    def check_masked(self, redaction: Redaction) -> None:
        """Check that the tables have the columns to mask."""
        for rule in redaction.publish(self._relations):
            if rule.text not in redaction.names:
                continue
            meant = rule.meant(self._relations)
            text = f"--redact: no column {escape(rule.text)} is published{escape(meant)}"
            if self._has_slot and not meant and rule.text[-1].isalnum():
                pattern = escape(f"{rule.text[:-1]}[{rule.text[-1]}]")
                text += f"\nIf a table had it at the slot's position, use a pattern: '{pattern}'"
            self.refused.append(text)

    def check_tested(self, filter_: Filter, *, all_tables: bool) -> None:
        """Check that the conditions of an unused filter fit a table that it selects."""
        misfit = _misfit(filter_, self._relations)
        if misfit:
            (self.warned if self._altered else self.refused).append(misfit)
            return
        where = "no column {} is published" if all_tables else "no selected table has a column {}"
        for column, _, meant in unknown_columns(filter_):
            found = self.warned if self._altered or (self._has_slot and not meant) else self.refused
            if (text := f"--where: {escape(where.format(column) + meant)}") not in found:
                found.append(text)


def _misfit(filter_: Filter, relations: list[Relation]) -> str:
    """The first error of the conditions of an unused filter; empty if there is none."""
    try:
        for relation in filter(filter_.table_passes, relations):
            for op in ROW_OPS:
                filter_.bound(relation, op)
    except OptionError as error:
        return str(error)
    return ""
