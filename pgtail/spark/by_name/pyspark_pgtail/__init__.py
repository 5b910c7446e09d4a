"""The data source "pgtail" for Spark, which finds it by this module's name: pgtail.spark.data_source.

Importing it never fails: Spark imports every module pyspark_*, and one that fails breaks all data sources in Python.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

try:
    from pyspark.sql import datasource
except ImportError:
    pass  # a Python without Spark, or with one that has no such sources
else:

    class DefaultSource(datasource.DataSource):
        """Makes the data source when Spark uses it, or raises OptionError, which says what is not installed."""

        @classmethod
        def name(cls) -> str:
            return "pgtail"

        def schema(self) -> StructType | str:
            return self._source.schema()

        def reader(self, schema: StructType) -> datasource.DataSourceReader:
            return self._source.reader(schema)

        def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 -- Spark's name
            return self._source.streamReader(schema)

        @functools.cached_property
        def _source(self) -> datasource.DataSource:
            from pgtail.spark.session import check_installed

            check_installed()
            from pgtail.spark.data_source import DataSource

            return DataSource(self.options)
