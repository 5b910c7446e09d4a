"""Write events as text. A format is one module or folder, and one entry in OUTPUTS."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from pgtail.files.sink import Sink
    from pgtail.outputs.base import Output, OutputOptions


class Format(NamedTuple):
    """The implementation of an output format, and how it writes hidden characters."""

    module: str
    """Loaded on use only: the table loads rich."""
    factory: str
    """The class, or a function with the same parameters: (sink, options)."""
    hidden: Literal["as they are", "as they are in JSON", "spelled out"] = "as they are"
    """How control and invisible characters are written. All but "spelled out" need an EscapingSink on a terminal."""
    buffers_prepared: bool = False
    """Whether a prepared transaction is written on its commit only (outputs/prepared.py)."""


OUTPUTS: Final = {
    "table": Format("pgtail.outputs.table.table", "Table", "spelled out"),
    "line": Format("pgtail.outputs.line", "Line", "spelled out"),
    "json": Format("pgtail.outputs.ndjson", "Json", "as they are in JSON"),
    "json-tx": Format("pgtail.outputs.ndjson_tx", "JsonTx", "as they are in JSON"),
    "wal2json": Format("pgtail.outputs.wal2json.v2", "Wal2Json", "as they are in JSON", buffers_prepared=True),
    "wal2json-v1": Format("pgtail.outputs.wal2json.v1", "Wal2JsonV1", "as they are in JSON", buffers_prepared=True),
    "debezium": Format("pgtail.outputs.debezium.events", "Debezium", "as they are in JSON", buffers_prepared=True),
    "sql": Format("pgtail.outputs.sql.forward", "open_sql", "spelled out"),
    "csv": Format("pgtail.outputs.csv", "Csv", buffers_prepared=True),
}


def open_output(name: str, sink: Sink, options: OutputOptions) -> Output:
    """The output of that name. Raises KeyError for a name that is not in OUTPUTS."""
    format_ = OUTPUTS[name]
    output: Output = getattr(import_module(format_.module), format_.factory)(sink, options)
    return output
