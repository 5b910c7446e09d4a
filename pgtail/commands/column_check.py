"""Checks the columns that --where and --redact name against the published tables, before a stream starts."""

from __future__ import annotations

import shlex

from pgtail.changes.bound_condition import names_in
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.commands.options import FilterOptions
from pgtail.commands.selection import filter_arguments, unknown_columns
from pgtail.errors import OptionError
from pgtail.postgres.connection import Connection
from pgtail.postgres.published_columns import published_tables
from pgtail.replication.plan import Plan


def check_columns(connection: Connection, plan: Plan, options: FilterOptions, filter_: Filter) -> list[str]:
    """Check the columns of a filter that was made from these options. Raises OptionError and ServerError.

    If a table was altered since the slot's position, the slot may still have changes with other columns: then what is
    wrong now is returned as warnings.
    """
    redaction = filter_.redaction
    if not options.where and redaction is None:
        return []
    slot = plan.fork or plan.slot
    tables = published_tables(connection, [one.name for one in plan.publications], None if slot is None else slot.name)
    relations = [table.relation for table in tables]
    wrong = [] if redaction is None else _not_masked(redaction, relations)
    tried = Filter(**filter_arguments(options, redaction))
    where = "no selected table has a column {}" if options.tables or options.exclude else "no column {} is published"
    wrong += _not_testable(tried, relations) or dict.fromkeys(
        [f"--where: {where.format(column)}{meant}" for column, _, meant in unknown_columns(tried)]
    )
    filter_.seen |= tried.seen
    altered = [table.relation.qualified for table in tables if table.altered]
    if wrong and not altered:
        raise OptionError("\n".join(wrong))
    return [*wrong, f"going on, as {altered[0]} was altered since the slot's position"] if wrong else []


def _not_masked(redaction: Redaction, relations: list[Relation]) -> list[str]:
    """Names to mask that no table has."""
    rules = [rule for rule in redaction.publish(relations) if rule.text in redaction.names]
    return [f"--redact: no column {rule.text} is published{rule.meant(relations)}" for rule in rules]


def _not_testable(filter_: Filter, relations: list[Relation]) -> list[str]:
    """The first error of the conditions of an unused filter, with a table that they fit; nothing if there is none."""
    wrong, cures = [], []
    for relation in filter(filter_.table_passes, relations):
        try:
            for op in ("insert", "update", "delete"):
                filter_.bound(relation, op)
        except OptionError as error:
            wrong.append(str(error))
        else:
            if names_in(filter_.condition, relation)[0]:
                table = shlex.quote(f"{relation.schema}.{relation.name}")
                cures.append(f"Select the tables that it is about: -t {table}")
    return ["\n".join(wrong[:1] + cures[:1])] if wrong else []
