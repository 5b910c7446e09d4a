"""Floor 7, the distributed roof: captures -> tables on Spark, as functions of a session and their captures.

    from pgtail.spark import changes, relations, transactions

They work in any Spark session, of a notebook or of spark-submit; pgtail.spark.session has one of pgtail's own.
"""

from __future__ import annotations

from pgtail.spark.changes import changes, relations, transactions

__all__ = ["changes", "relations", "transactions"]
