"""A Spark for small data: half the time to start, and few tasks; and `pgtail spark` on it in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any, Final

from pgtail.spark.session import DRIVER_BYTES
from tests.support.run_process import PROGRAM

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
    # Else the driver would do everything: what is so small needs no tasks.
    DRIVER_BYTES: "0",
}
CONF: Final = [f"--conf={name}={value}" for name, value in QUICK.items()]


def start(arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start `pgtail spark` with these arguments, with its JVM in a process group of its own."""
    return subprocess.Popen([*PROGRAM, "spark", *arguments], start_new_session=True, **options)
