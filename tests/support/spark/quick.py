"""A Spark for small data: half the time to start, and few tasks."""

from __future__ import annotations

from typing import Final

QUICK: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # To compile each query takes longer than to run it on so little.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # So does planning it again after each stage.
    "spark.sql.adaptive.enabled": "false",
}
