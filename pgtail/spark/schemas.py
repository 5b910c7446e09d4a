"""Converts Arrow's schemas to Spark's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's: Delta Lake describes types in Spark's JSON."""
    from deltalake import Schema
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(Schema.from_arrow(schema).to_json()))
