"""Typed rows as a change data feed has them: an update is two rows, and each row has all of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.schemas import fields
from pgtail.arrow.typed.arrays import Flags, flags, one_chunk, texts_by_name
from pgtail.arrow.typed.casts import TableColumn, typed
from pgtail.arrow.typed.versions import Version
from pgtail.errors import InputError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import escape

FEED: Final = fields("_change_type text, _commit_version bigint, _commit_timestamp time")
"""The columns of a change data feed, as Delta Lake and Spark name them."""

_TABLES: Final = "pgtail spark tables, or state, keeps it"
_FULL: Final = f"REPLICA IDENTITY FULL has it sent from then on; {_TABLES}"


def feed_rows(rows: pa.Table, version: Version, columns: Sequence[TableColumn]) -> pa.Table:
    """Changes of one version of a table as rows with these columns, followed by FEED.

    Raises InputError at a change that such rows cannot have: of which a value was not sent, or has no place in its
    type, a TRUNCATE, and one of a prepared transaction.
    """
    rows = rows.combine_chunks()
    op, count = one_chunk(rows["op"]), len(rows)
    updated, deleted = (pc.equal(op, name).to_numpy(zero_copy_only=False) for name in ("update", "delete"))
    truncated = pc.equal(op, "truncate").to_numpy(zero_copy_only=False)
    _refuse(rows, truncated, version, "the rows that a TRUNCATE removes are not sent", _TABLES)
    prepared = one_chunk(rows["state"]).is_valid().to_numpy(zero_copy_only=False)
    _refuse(rows, prepared, version, "a prepared transaction may still be rolled back", _TABLES)
    names = [column.name for column in columns]
    before, after = (texts_by_name(one_chunk(rows[side]), names) for side in ("old", "new"))
    sent_before, sent_after = (_names_of(one_chunk(rows[side])) for side in ("old", "new"))
    own = {column.name for column in version.columns}
    for place, name in enumerate(names):
        if name in own:
            old = flags(sent_before, name)
            unchanged = ~deleted & ~flags(sent_after, name)
            _refuse(rows, unchanged & ~old, version, f"the unchanged value of column {name} was not sent", _FULL)
            _refuse(rows, (updated | deleted) & ~old, version, f"the old value of column {name} was not sent", _FULL)
            after[place] = pc.if_else(pa.array(unchanged), before[place], after[place])
    taken = np.repeat(np.arange(count), np.where(updated, 2, 1))
    second = np.append(False, taken[1:] == taken[:-1])
    of_old, types = (updated | deleted)[taken] & ~second, op.take(pa.array(taken))
    texts = [
        pc.if_else(pa.array(of_old), old.take(taken), new.take(taken)) for old, new in zip(before, after, strict=True)
    ]
    rows = rows.take(pa.array(taken))
    arrays, rescued = typed(texts, columns, one_chunk(rows["undecoded"]))
    lost = rescued.is_valid().to_numpy(zero_copy_only=False)
    name = rescued[int(lost.argmax())].as_py()[0][0] if lost.any() else ""
    _refuse(rows, lost, version, f"a value of column {name} has no place in its type", "without shape _rescued has it")
    types = pc.if_else(pc.equal(types, "snapshot"), "insert", types)
    images = pc.if_else(pa.array(second), "update_postimage", "update_preimage")
    types = pc.if_else(pc.equal(types, "update"), images, types)
    feed = [types, rows["position"], rows["commit_ts"]]
    return pa.Table.from_arrays([*arrays, *feed], names=[*(c.stored for c in columns), *(f.name for f in FEED)])


def _names_of(maps: pa.MapArray) -> pa.ListArray:
    """The names in each row's map."""
    return pa.ListArray.from_arrays(maps.offsets, maps.keys)


def _refuse(rows: pa.Table, refused: Flags, version: Version, why: str, cure: str) -> None:
    """Raise InputError for the first of these rows."""
    if refused.any():
        row = rows.select(["op", "position", "seq"]).slice(int(refused.argmax()), 1).to_pylist()[0]
        where = (
            f"{version.schema}.{version.table}, {row['op']} {row['seq']} of the commit at {lsn_text(row['position'])}"
        )
        raise InputError(escape(f"{where}: {why}, so shape cdf ends here: {cure}"))
