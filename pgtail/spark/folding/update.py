"""OUT/state and OUT/history: brought up to what OUT/changes has, segment by segment in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pgtail.errors import InputError
from pgtail.spark.datasets.manifest import Manifest, Output
from pgtail.spark.datasets.update import stored
from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.folding.apply import Applied, apply
from pgtail.spark.folding.manifest import Piece
from pgtail.spark.folding.settings import Settings
from pgtail.spark.segments.listing import name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pieces_of(manifest: Manifest) -> list[Piece]:
    """The parts of the stream that `changes` holds, as the segments that they came from say it."""
    found = []
    for path, (_, *parts) in manifest.segments.items():
        before, open_ = manifest.chain.get(path, ("", False))
        for position, ordinal, last_position, last_ordinal in parts:
            first, behind = (position, ordinal), (last_position, last_ordinal + 1)
            found.append(Piece(first, behind, name_of(path), before, open_))
    return found


def update_state(
    spark: SparkSession, out: str, settings: Settings, tell: Callable[[str], None] = lambda text: None
) -> Applied:
    """Apply to OUT/state (OUT/history, where `settings` want history) what OUT/changes has and it has not.

    Raises MissingSegment and other InputErrors, OptionError, OutputError.
    """
    output = Output(out)
    found = output.read()
    if found is None:
        raise InputError("holds no changes yet", source=out)
    kind = "history" if settings.history else "state"
    tell(f"bringing {kind} up to date")
    # One process at a time, also for what is made of the changes.
    with output.writing(found.stored_as, found.tables) as manifest, translate_spark_errors():
        changes, relations = stored(spark, out, "changes"), stored(spark, out, "relations")
        known = [name_of(path) for path in manifest.segments]
        root = str(output.folder / kind)
        return apply(spark, root, changes, relations, pieces_of(manifest), settings, known=known)
