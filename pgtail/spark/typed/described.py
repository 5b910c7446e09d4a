"""Rows of one version of a table as rows of the next one, and rows as they are stored as rows of their version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.typed.arrays import lists_in, maps_in, one_chunk, replaced
from pgtail.spark.typed.arrow_types import STRING, TEXTS
from pgtail.spark.typed.casts import RESCUED, TableColumn, cast, sparse, typed
from pgtail.spark.typed.columns import columns_of
from pgtail.spark.typed.texts import narrow, texts_of, widen
from pgtail.spark.typed.versions import Version, kept


def described(rows: pa.Table, before: Version, now: Version) -> pa.Table:
    """Rows of a version (with the columns of columns_of()) as the next version makes them.

    What that leaves unknown is named in `_unknown`. Rows whose new key is unknown are gone.
    """
    was = {column.name: column for column in columns_of([before])}
    came_from = {new: old for old, new in kept(before, now).items()}
    rescued, undecoded, unknown = (
        maps_in(rows, "_rescued"),
        lists_in(rows, "_undecoded"),
        lists_in(rows, "_unknown"),
    )
    found: dict[str, pa.Array] = {}
    left: dict[int, list[tuple[str, str]]] = {}
    broken: dict[int, list[str]] = {}
    never: dict[int, list[str]] = {}
    new = []
    for column in columns_of([now]):
        old = came_from.get(column.name)
        if old is None:
            new.append(column.name)
            found[column.stored] = pa.nulls(len(rows), column.kind)
            continue
        array = widen(one_chunk(rows[was[old].stored]), column.kind, was[old].delimiter)
        again: dict[int, pa.Array] = {}
        for place, texts in rescued.items():
            if old not in texts:
                continue
            value = cast(pa.array([texts[old]]), column.kind, column.delimiter)
            if value.null_count or old in undecoded.get(place, ()):
                left.setdefault(place, []).append((column.name, texts[old]))
            else:
                again[place] = value
        found[column.stored] = replaced(array, again)
        for notes, those in ((broken, undecoded), (never, unknown)):
            for place, names in those.items():
                if old in names:
                    notes.setdefault(place, []).append(column.name)
    for name in ("_position", "_seq", "_commit_ts"):
        found[name] = one_chunk(rows[name])
    found["_unknown"] = _with(never, new, len(rows))
    found["_rescued"] = sparse(left, len(rows), RESCUED)
    found["_undecoded"] = sparse(broken, len(rows), TEXTS)
    found["_relation"] = pa.repeat(pa.scalar(now.relation), len(rows))
    lost = [True] * len(rows) if set(now.key) & set(new) else []
    keyless = {place for place, names in never.items() if set(names) & set(now.key)}
    there = np.ones(len(rows), bool)
    there[list(range(len(lost))) or list(keyless)] = False
    return pa.table(found).filter(pa.array(there))


def _with(notes: Mapping[int, list[str]], names: list[str], rows: int) -> pa.Array:
    """Lists of names, with these in each."""
    if not names:
        return sparse(notes, rows, TEXTS)
    return pa.array([[*notes.get(place, ()), *names] for place in range(rows)], TEXTS)


def as_version(rows: pa.Table, version: Version, stored: Sequence[TableColumn]) -> pa.Table:
    """Rows of a version, as they are stored with columns `stored`, with the columns of columns_of()."""
    by_name = {column.name: column for column in stored}
    columns = columns_of([version])
    undecoded = one_chunk(rows["_undecoded"])
    others = {name for name in rows.column_names if name not in {column.stored for column in stored}}
    own = {column.stored: one_chunk(rows[by_name[column.name].stored]) for column in columns}
    found, lost = _narrowed(own, columns, by_name, undecoded)
    kept_ = {name: one_chunk(rows[name]) for name in others}
    kept_["_rescued"] = _merged(rows, "_rescued", lost)
    if "_old" in others:
        whole = one_chunk(rows["_old"])
        sent = {column.stored: pc.struct_field(whole, by_name[column.name].stored) for column in columns}
        before, lost = _narrowed(sent, columns, by_name, undecoded)
        fields = [pa.field(name, array.type) for name, array in before.items()]
        kept_["_old"] = pa.StructArray.from_arrays(list(before.values()), fields=fields, mask=whole.is_null())
        kept_["_old_rescued"] = _merged(rows, "_old_rescued", lost)
    return pa.table(found | kept_)


def _narrowed(
    arrays: Mapping[str, pa.Array],
    columns: Sequence[TableColumn],
    stored: Mapping[str, TableColumn],
    undecoded: pa.ListArray,
) -> tuple[dict[str, pa.Array], list[pa.MapArray]]:
    """Columns as their own types, and what has no place in these, as the wider ones had one for it."""
    found, lost = {}, []
    for column in columns:
        array, wide = arrays[column.stored], stored[column.name]
        if array.type == column.kind:
            found[column.stored] = array
        elif wide.kind in (STRING, TEXTS):
            [found[column.stored]], rescued = typed([texts_of(array, wide.delimiter)], [column], undecoded)
            lost.append(rescued)
        else:
            found[column.stored] = narrow(array, column.kind, column.delimiter)
    return found, lost


def _merged(rows: pa.Table, name: str, others: Sequence[pa.MapArray]) -> pa.Array:
    """A column of maps with further pairs."""
    if all(one.null_count == len(one) for one in others):
        return one_chunk(rows[name])
    found = {place: list(texts.items()) for place, texts in maps_in(rows, name).items()}
    for one in others:
        for place, texts in maps_in(pa.table({name: one}), name).items():
            found.setdefault(place, []).extend(texts.items())
    return sparse(found, len(rows), RESCUED)


def as_stored(rows: pa.Table, version: Version, stored: Sequence[TableColumn]) -> pa.Table:
    """The inverse of as_version()."""
    by_name = {column.name: column for column in stored}
    columns = columns_of([version])
    undecoded = lists_in(rows, "_undecoded")
    own = {column.stored for column in columns}
    found = {name: one_chunk(rows[name]) for name in rows.column_names if name not in own}
    values = {column.name: one_chunk(rows[column.stored]) for column in columns}
    arrays, found["_rescued"] = _widened(values, columns, by_name, maps_in(rows, "_rescued"), undecoded, len(rows))
    if "_old" in found:
        whole = found["_old"]
        values = {column.name: pc.struct_field(whole, column.stored) for column in columns}
        before, found["_old_rescued"] = _widened(
            values, columns, by_name, maps_in(rows, "_old_rescued"), undecoded, len(rows)
        )
        fields = [pa.field(name, array.type) for name, array in before.items()]
        found["_old"] = pa.StructArray.from_arrays(list(before.values()), fields=fields, mask=whole.is_null())
    return pa.table(arrays | found)


def _widened(
    arrays: Mapping[str, pa.Array],
    columns: Sequence[TableColumn],
    stored: Mapping[str, TableColumn],
    rescued: Mapping[int, dict[str, str]],
    undecoded: Mapping[int, Sequence[str]],
    rows: int,
) -> tuple[dict[str, pa.Array], pa.Array]:
    """Columns as their stored types, with the rescued values that have a place in these; and the other rescued ones."""
    found = {}
    for column in columns:
        wide = stored[column.name]
        array = widen(arrays[column.name], wide.kind, column.delimiter)
        again: dict[int, pa.Array] = {}
        for place, texts in rescued.items() if wide.kind != column.kind else ():
            if column.name in texts and column.name not in undecoded.get(place, ()):
                value = cast(pa.array([texts[column.name]]), wide.kind, wide.delimiter)
                if value.null_count == 0:
                    again[place] = value
                    del texts[column.name]
        found[wide.stored] = replaced(array, again)
    left = {place: list(texts.items()) for place, texts in rescued.items() if texts}
    return found, sparse(left, rows, RESCUED)
