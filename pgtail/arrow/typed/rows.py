"""Makes typed rows: from rows of `changes`, from version to version of a table, and as they are stored.

Each function takes rows of one version of a table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.typed.alterations import Origins
from pgtail.arrow.typed.arrays import flags, lists_of, maps_of, one_chunk, texts_by_name, without
from pgtail.arrow.typed.casts import TableColumn, cast, retyped, texts_of, typed
from pgtail.arrow.typed.columns import META, OWN, columns_of, former_columns, own_columns, schema_of
from pgtail.arrow.typed.versions import Version, kept

Pairs = Sequence[tuple[TableColumn, TableColumn]]
"""Columns before and after a conversion."""


def typed_rows(rows: pa.Table, columns: Sequence[TableColumn], *, old: bool = True) -> pa.Table:
    """Inserts, updates, deletes and truncates as rows of a table with these columns.

    The columns have the new row, for a delete the old one; `_old` has the old row, if `old` asks for it. A column that
    was not sent is NULL. `_rescued` and `_old_rescued` have the text of values that their type cannot represent, by the
    columns' names in PostgreSQL.
    """
    rows = rows.combine_chunks()
    names = [column.name for column in columns]
    after = texts_by_name(one_chunk(rows["new"]), names)
    undecoded = one_chunk(rows["undecoded"])
    deleted = pc.equal(one_chunk(rows["op"]), "delete")
    any_deleted = pc.any(deleted).as_py()
    before = texts_by_name(one_chunk(rows["old"]), names) if old or any_deleted else []
    if any_deleted:
        # A delete has no new row: where no old one has the column, either, it is NULL already.
        both = zip(before, after, strict=True)
        after = [new if sent.null_count == len(sent) else pc.if_else(deleted, sent, new) for sent, new in both]
    arrays, rescued = typed(after, columns, undecoded)
    stored = [*arrays, *[one_chunk(rows[field.name[1:]]) for field in META[:-1]], rescued]
    if columns and old:
        sent, lost = typed(before, columns, undecoded)
        fields = [pa.field(c.stored, c.kind) for c in columns]
        stored += [pa.StructArray.from_arrays(sent, fields=fields, mask=one_chunk(rows["old"]).is_null()), lost]
    return pa.Table.from_arrays(stored, names=schema_of(columns, META, old=old).names)


def described(
    rows: pa.Table, before: Version, now: Version, former: Sequence[TableColumn] = (), origins: Origins | None = None
) -> pa.Table:
    """Rows of a version (with the columns of columns_of()), converted to the next version.

    `origins` says where their values come from; without it that is concluded as in kept(). `_unknown` names the columns
    whose values are unknown. Rows whose new key is unknown are left out. `former` are the former_columns() now, which
    have the values that rows had under these names.
    """
    was = {column.name: column for column in columns_of([before])}
    stays = kept(before, now) if origins is None else origins.kept
    came_from = {new: was[old] for old, new in stays.items()}
    columns = columns_of([now])
    pairs = [(came_from[column.name], column) for column in columns if column.name in came_from]
    rows, carried = _with_former(rows, former)
    pairs += [(was.get(column.name, column), new) for column, new in zip(carried, former, strict=True)]
    arrays = _with_columns(rows, pairs)
    lists = {name: one_chunk(rows[name]) for name in ("_undecoded", "_unknown")}
    undecoded = {column.name: flags(lists["_undecoded"], old.name) for old, column in pairs}
    unknown = {column.name: flags(lists["_unknown"], old.name) for old, column in pairs}
    added = {} if origins is None else origins.added
    if added:
        new = [column for column in columns if column.name in added]
        values, rescued = typed([pa.repeat(pa.scalar(added[one.name], pa.string()), len(rows)) for one in new], new)
        arrays |= dict(zip([column.stored for column in new], values, strict=True))
        texts: dict[str, pa.Array] = {}
        for maps, some in ((arrays["_rescued"], [column for _, column in pairs]), (rescued, new)):
            names = [column.name for column in some]
            texts |= zip(names, texts_by_name(maps, names), strict=True)
        arrays["_rescued"] = maps_of(texts, len(rows))
        unknown |= {column.name: np.zeros(len(rows), bool) for column in new}
    for column in columns:
        if column.name not in came_from and column.name not in added:
            arrays[column.stored] = pa.nulls(len(rows), column.kind)
            unknown[column.name] = np.ones(len(rows), bool)
    arrays["_undecoded"], arrays["_unknown"] = lists_of(undecoded, len(rows)), lists_of(unknown, len(rows))
    keyless = np.zeros(len(rows), bool)
    for name in now.key:
        keyless |= unknown[name]
    return pa.table(arrays).filter(~keyless)


def as_version(rows: pa.Table, version: Version, stored: Sequence[TableColumn]) -> pa.Table:
    """Rows of a version, as they are stored with columns `stored`, with the columns of columns_of().

    Those of a history also have the former_columns().
    """
    return _converted(rows, *_pairs(rows, version, stored))


def as_stored(rows: pa.Table, version: Version, stored: Sequence[TableColumn]) -> pa.Table:
    """The inverse of as_version()."""
    own, former = ([(now, there) for there, now in pairs] for pairs in _pairs(rows, version, stored))
    return _converted(rows, own, former)


def _pairs(rows: pa.Table, version: Version, stored: Sequence[TableColumn]) -> tuple[Pairs, Pairs]:
    """The columns as they are stored, and as rows of a version have them: its own, and the former ones of a history."""
    own = [*zip(own_columns(version, stored), columns_of([version]), strict=True)]
    former = [] if "_old" in rows.column_names else former_columns(version, stored)
    by_name = {column.name: column for column in stored}
    return own, [(by_name[column.name], column) for column in former]


def _converted(rows: pa.Table, own: Pairs, former: Pairs) -> pa.Table:
    rows, there = _with_former(rows, [before for before, _ in former])
    return pa.table(_with_columns(rows, [*own, *zip(there, [now for _, now in former], strict=True)]))


def _with_former(rows: pa.Table, former: Sequence[TableColumn]) -> tuple[pa.Table, list[TableColumn]]:
    """Rows with these columns, NULL where they lack one, and the columns with their types in the rows."""
    for column in former:
        if column.stored not in rows.column_names:
            rows = rows.append_column(column.stored, pa.nulls(len(rows), column.kind))
    return rows, [column._replace(kind=rows.schema.field(column.stored).type) for column in former]


def _with_columns(rows: pa.Table, pairs: Pairs) -> dict[str, pa.Array]:
    """The converted columns of rows, and pgtail's own."""
    own = {name: one_chunk(rows[name]) for name in rows.column_names if name in OWN}
    undecoded = own["_undecoded"]
    arrays = [one_chunk(rows[old.stored]) for old, _ in pairs]
    converted, own["_rescued"] = _convert_columns(arrays, own["_rescued"], undecoded, pairs)
    if "_old" in own:
        old_rows = own["_old"]
        arrays = [pc.struct_field(old_rows, old.stored) for old, _ in pairs]
        before, own["_old_rescued"] = _convert_columns(arrays, own["_old_rescued"], undecoded, pairs)
        fields = [pa.field(name, array.type) for name, array in before.items()]
        own["_old"] = pa.StructArray.from_arrays(list(before.values()), fields=fields, mask=old_rows.is_null())
    return converted | own


def _convert_columns(
    arrays: Sequence[pa.Array], rescued: pa.MapArray, undecoded: pa.ListArray, pairs: Pairs
) -> tuple[dict[str, pa.Array], pa.MapArray]:
    """Convert columns, and their rescued values: one that the new type can represent is no longer rescued."""
    converted, lost = {}, {}
    texts = texts_by_name(rescued, [old.name for old, _ in pairs])
    for (old, new), values, kept_texts in zip(pairs, arrays, texts, strict=True):
        array, left = values, kept_texts
        if old.kind != new.kind:
            array = retyped(values, new.kind, (old.delimiter, new.delimiter))
            if array.null_count > values.null_count:
                left = pc.coalesce(left, without(texts_of(values, old.delimiter), pc.is_valid(array)))
            if left.null_count < len(left):
                again = cast(without(left, flags(undecoded, old.name)), new.kind, new.delimiter)
                array, left = pc.coalesce(array, again), without(left, pc.is_valid(again))
        converted[new.stored], lost[new.name] = array, left
    return converted, maps_of(lost, len(rescued))
