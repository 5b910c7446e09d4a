"""The lines of `-o json` for changes of one made-up table, in every way that pgtail has to write them."""

from __future__ import annotations

from typing import Any

from tests.support.encode import begin, commit, relation
from tests.support.render import all_ways

AT = '"commit_lsn":"0/100","commit_ts":"2000-01-01T00:00:00.000000Z"'
PREPARED_AT = '"prepare_lsn":"0/100","prepare_ts":"2000-01-01T00:00:00.000000Z"'


def lines(*messages: bytes, **options: Any) -> list[str]:
    """The lines of changes of the table t(id, v) in a transaction."""
    return all_ways(relation(), begin(), *messages, commit(), **options).lines
