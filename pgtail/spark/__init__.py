"""Captures to tables on Spark: functions of a session and of captures.

    from pgtail.spark import changes, history, relations, state, stored, table, transactions

They work in any Spark session, of a notebook or of spark-submit; pgtail.spark.session has one of pgtail's own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pgtail.spark.datasets.tables import table
    from pgtail.spark.datasets.update import stored
    from pgtail.spark.decoding.dataframes import changes, relations, transactions
    from pgtail.spark.folding.read import history, state

__all__ = ["changes", "history", "relations", "state", "stored", "table", "transactions"]

_WHERE: Final = {
    "changes": "pgtail.spark.decoding.dataframes",
    "history": "pgtail.spark.folding.read",
    "relations": "pgtail.spark.decoding.dataframes",
    "state": "pgtail.spark.folding.read",
    "stored": "pgtail.spark.datasets.update",
    "table": "pgtail.spark.datasets.tables",
    "transactions": "pgtail.spark.decoding.dataframes",
}
"""Where each function is. No module of this folder has the name of a function here: it would hide it."""


def __getattr__(name: str) -> Any:
    """Nothing is imported before it is used: what is not installed is told by check_installed(), not by ImportError."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
