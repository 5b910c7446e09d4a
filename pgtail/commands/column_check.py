"""Checks the columns that --where and --redact name against the published tables, before a stream starts."""

from __future__ import annotations

from pgtail.changes.bound_condition import names_in
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.commands.options import FilterOptions
from pgtail.commands.selection import filter_arguments, unknown_columns
from pgtail.errors import OptionError
from pgtail.native.plan import ROW_OPS
from pgtail.postgres.connection import Connection
from pgtail.postgres.published_columns import checked_tables
from pgtail.replication.plan import Plan
from pgtail.terminal.escape import escape, shell_word


def check_columns(connection: Connection, plan: Plan, options: FilterOptions, filter_: Filter) -> list[str]:
    """Check the columns of a filter that was made from these options. Raises OptionError and ServerError.

    A slot may still have changes from before its tables were altered: what is wrong only now is returned as warnings.
    So is a column in a condition that no table has, unless one has a similar name: the slot may have changes of tables
    that are not published any more. With --encoding, names are compared in the stream only.
    """
    redaction = filter_.redaction
    if (not options.where and redaction is None) or plan.encoding is not None:
        return []
    slot = plan.fork or plan.slot
    tables = checked_tables(connection, [one.name for one in plan.publications], None if slot is None else slot.name)
    relations = [table.relation for table in tables]
    tried = Filter(**filter_arguments(options, redaction))
    altered = [table.relation for table in tables if table.altered and tried.table_passes(table.relation)]
    refused, warned = ([], []) if redaction is None else _not_masked(redaction, relations, altered, slot is not None)
    where = "no selected table has a column {}" if options.tables or options.exclude else "no column {} is published"
    misfits = _not_testable(tried, relations)
    (warned if altered else refused).extend(misfits)
    for column, _, meant in () if misfits else unknown_columns(tried):
        found = warned if altered or (slot is not None and not meant) else refused
        if (text := f"--where: {escape(where.format(column) + meant)}") not in found:
            found.append(text)
    filter_.seen |= tried.seen
    if refused:
        raise OptionError("\n".join(refused + warned))
    reason = f"{escape(altered[0].qualified)} was altered" if altered else "other tables may have been published"
    return [*warned, f"going on, as {reason} since the slot's position"] if warned else []


def _not_masked(
    redaction: Redaction, relations: list[Relation], altered: list[Relation], has_slot: bool
) -> tuple[list[str], list[str]]:
    """Names to mask that no table has: errors, and warnings of those that an altered table may have had."""
    refused, warned = list[str](), list[str]()
    for rule in redaction.publish(relations):
        if rule.text in redaction.names:
            meant = rule.meant(relations)
            text = f"--redact: no column {escape(rule.text)} is published{escape(meant)}"
            if any(map(rule.matches_table, altered)):
                warned.append(text)
            elif has_slot and not meant and rule.text.isidentifier():
                pattern = f"{rule.text[:-1]}[{rule.text[-1]}]"
                refused.append(f"{text}\nIf a table had it that is no longer published, use a pattern: '{pattern}'")
            else:
                refused.append(text)
    return refused, warned


def _not_testable(filter_: Filter, relations: list[Relation]) -> list[str]:
    """The first error of the conditions of an unused filter, with a table that they fit; nothing if there is none."""
    wrong, cures = [], []
    for relation in filter(filter_.table_passes, relations):
        try:
            for op in ROW_OPS:
                filter_.bound(relation, op)
        except OptionError as error:
            wrong.append(str(error))
        else:
            if names_in(filter_.condition, relation)[0]:
                table = shell_word(f"{relation.schema}.{relation.name}")
                cures.append(f"Select the tables that it is about: -t {table}")
    return ["\n".join(wrong[:1] + cures[:1])] if wrong else []
