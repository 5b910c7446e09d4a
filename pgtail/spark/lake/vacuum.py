"""Files of OUT that no version needs: those that were replaced long ago, and what killed runs left behind."""

from __future__ import annotations

from pgtail.errors import InputError
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.catalog import entries
from pgtail.storage import Location


def vacuum(out: Location, *, delete: bool) -> list[str]:
    """The files below OUT that can go; with `delete` they are removed. Raises InputError if there is nothing.

    A file must be as old as its table keeps replaced ones: somebody may be writing.
    """
    batches = Batches(out)
    if not batches.plan.batch:
        raise InputError("has nothing that pgtail spark wrote", source=str(out))
    batches.finish()
    names = ["changes", "transactions", "relations", "catalog", "_batches", *(one.folder for one in entries(out))]
    found = []
    for name in dict.fromkeys(names):
        table = batches.table(name)
        if table.schema is not None:
            found += [f"{name}/{path}" for path in table.expired(orphans=True, remove=delete)]
    return found
