"""Rules that name columns: COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN, each a glob or a name in double quotes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from pgtail.changes.relations import Relation
from pgtail.errors import OptionError
from pgtail.humanize import did_you_mean

_PART = r'\s*(?:"((?:[^"]|"")+)"|([^".,\s]+))\s*'
_RULE: Final = re.compile(rf"{_PART}(?:\.{_PART})?(?:\.{_PART})?(?:,|$)")


class ColumnRule(NamedTuple):
    """The columns that a glob matches; None for `table` or `schema` matches any. Case is ignored."""

    text: str
    schema: re.Pattern[str] | None
    table: re.Pattern[str] | None
    column: re.Pattern[str]
    name: str
    """The part for the column."""
    is_name: bool
    """Whether no part has wildcards."""

    def matches(self, relation: Relation, column: str) -> bool:
        return self.matches_table(relation) and self.column.fullmatch(column) is not None

    def matches_table(self, relation: Relation) -> bool:
        """Whether the rule is about columns of this table."""
        parts = ((self.schema, relation.schema), (self.table, relation.name))
        return all(pattern is None or pattern.fullmatch(name) for pattern, name in parts)

    def meant(self, relations: Iterable[Relation]) -> str:
        """`; did you mean NAME?` with the most similar column: of the tables that it names, or else of any."""
        tables = [one for one in relations if self.matches_table(one)]
        if tables:
            return did_you_mean(self.name, [as_written(column.name) for one in tables for column in one.columns])
        parts = 2 + (self.schema is not None)
        columns = ((one.schema, one.name, column.name) for one in relations for column in one.columns)
        return did_you_mean(self.text, [".".join(map(as_written, names[-parts:])) for names in columns])


def as_written(name: str) -> str:
    """A name as rules and conditions take it: in double quotes, if it is not plain."""
    return name if re.fullmatch(r"\w+", name) else '"' + name.replace('"', '""') + '"'


def unmatched(rules: Iterable[ColumnRule], relations: Collection[Relation]) -> list[ColumnRule]:
    """The rules that match no column of these tables, each text once; none if there is no table."""
    by_text = {
        rule.text: rule
        for rule in rules
        if relations and not any(rule.matches(one, column.name) for one in relations for column in one.columns)
    }
    return [*by_text.values()]


def column_rules(option: str, text: str) -> list[ColumnRule]:
    """The rules in the value of an option, separated by commas. Raises OptionError."""
    rules, pos = [], 0
    while pos < len(text):
        match = _RULE.match(text, pos)
        if match is None:
            raise OptionError(
                f"{option} {text}: expected COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN, several with commas;"
                ' put a name with a dot, a comma or a blank in double quotes: users."e-mail, old"'
            )
        quoted, plain = match.groups()[0::2], match.groups()[1::2]
        parts = [_pattern(*part) for part in zip(quoted, plain, strict=True) if part != (None, None)]
        table, schema = [*reversed(parts[:-1]), None, None][:2]
        name = [one or other for one, other in zip(quoted, plain, strict=True) if one or other][-1]
        is_name = not any(set("*?[") & set(part or "") for part in plain)
        rules.append(ColumnRule(match[0].strip(" ,"), schema, table, parts[-1], name, is_name))
        pos = match.end()
    return rules


def _pattern(quoted: str | None, plain: str | None) -> re.Pattern[str]:
    """A quoted name, or a glob."""
    glob = re.escape(quoted.replace('""', '"')) if quoted is not None else fnmatch.translate(plain or "")
    return re.compile(glob, re.IGNORECASE | re.DOTALL)
