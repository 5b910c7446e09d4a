"""What Spark raises -> the sentences of pgtail's errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pgtail.errors import InputError, OptionError, OutputError

_OURS = re.compile(r"^pgtail(?:\.storage)?\.errors\.(\w+): (.+)$", re.MULTILINE)
_KINDS = {"OptionError": OptionError, "OutputError": OutputError, "UnavailableOutput": OutputError}
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Permission denied|Read-only file system")


@contextlib.contextmanager
def translate_spark_errors() -> Iterator[None]:
    """What pgtail raised within Spark is raised here again; other failures of Spark in one sentence."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        text = str(error)
        ours = _OURS.search(text)
        if ours is not None:
            raise _KINDS.get(ours[1], InputError)(ours[2]) from None
        trouble = _FULL.search(text)
        if trouble is not None:
            raise OutputError(f"Spark could not write: {trouble[0]}") from error
        lines = [*filter(None, map(str.strip, text.splitlines())), type(error).__name__]
        raise InputError(f"Spark failed: {lines[0]}") from error
