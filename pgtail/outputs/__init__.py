"""Floor 4, events -> text: one file per format and one line in OUTPUTS; no input and no server in this folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pgtail.outputs.base import Output, OutputOptions, Sink

OUTPUTS: Final = {
    "table": ("pgtail.outputs.table", "Table"),
    "json": ("pgtail.outputs.ndjson", "Json"),
    "json-tx": ("pgtail.outputs.json_tx", "JsonTx"),
    "wal2json": ("pgtail.outputs.wal2json", "Wal2Json"),
    "wal2json-v1": ("pgtail.outputs.wal2json_v1", "Wal2JsonV1"),
    "debezium": ("pgtail.outputs.debezium", "Debezium"),
    "sql": ("pgtail.outputs.sql", "open_sql"),
    "csv": ("pgtail.outputs.csv", "Csv"),
}
"""Name -> (module, class): a module is loaded when it is used, for the table brings rich with it."""


def open_output(name: str, sink: Sink, options: OutputOptions) -> Output:
    """The output of that name. Raises KeyError for a name that is not in OUTPUTS."""
    module, class_ = OUTPUTS[name]
    output: Output = getattr(import_module(module), class_)(sink, options)
    return output
