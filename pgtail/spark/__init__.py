"""Floor 7, the distributed roof: captures -> tables on Spark, as functions of a session and their captures.

    from pgtail.spark import changes, history, relations, state, stored, table, transactions

They work in any Spark session, of a notebook or of spark-submit; pgtail.spark.session has one of pgtail's own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pgtail.spark.dataframes import changes, relations, transactions
    from pgtail.spark.reading import history, state
    from pgtail.spark.typedtables import table
    from pgtail.spark.update import stored

__all__ = ["changes", "history", "relations", "state", "stored", "table", "transactions"]

_WHERE: Final = {
    "changes": "pgtail.spark.dataframes",
    "history": "pgtail.spark.reading",
    "relations": "pgtail.spark.dataframes",
    "state": "pgtail.spark.reading",
    "stored": "pgtail.spark.update",
    "table": "pgtail.spark.typedtables",
    "transactions": "pgtail.spark.dataframes",
}
"""Where each function is. No module of this folder has the name of a function here: it would hide it."""


def __getattr__(name: str) -> Any:
    """Nothing is imported before it is used: what is not installed is told by check_installed(), not by ImportError."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
