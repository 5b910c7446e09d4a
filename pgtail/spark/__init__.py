"""Captures to tables on Spark: functions of a session and of captures.

    from pgtail.spark import changes, read, relations, transactions

    changes(spark, "captures/shop").show()

They work in any Spark session, of a notebook or of spark-submit; pgtail.spark.session has one of pgtail's own. The data
source "pgtail" needs none of them: Spark finds it by its name, in the module pyspark_pgtail (by_name/).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pgtail.spark.data_source import DataSource
    from pgtail.spark.decoding.dataframes import changes, relations, transactions
    from pgtail.spark.lake.read import read

__all__ = ["DataSource", "changes", "read", "relations", "transactions"]

_WHERE: Final = {
    "DataSource": "pgtail.spark.data_source",
    "changes": "pgtail.spark.decoding.dataframes",
    "read": "pgtail.spark.lake.read",
    "relations": "pgtail.spark.decoding.dataframes",
    "transactions": "pgtail.spark.decoding.dataframes",
}
"""Where each function is. No module of this folder has the name of a function here: it would hide it."""


def __getattr__(name: str) -> Any:
    """Import a module when it is used: check_installed() reports what is not installed, not an ImportError."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
