"""Floor 4, events -> text: one file per format and one line in OUTPUTS; no input and no server in this folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from pgtail.outputs.base import Output, OutputOptions, Sink


class Format(NamedTuple):
    """Where an output is made, and what it writes of characters that a terminal would act on or hide."""

    module: str
    """It is loaded when it is used, for the table brings rich with it."""
    made_by: str
    """The class, or a function that takes the same."""
    hidden: Literal["as they are", "as they are in JSON", "spelled out"] = "as they are"
    """Before a terminal all that is not spelled out is spelled by pgtail.outputs.harmless."""


OUTPUTS: Final = {
    "table": Format("pgtail.outputs.table", "Table", "spelled out"),
    "json": Format("pgtail.outputs.ndjson", "Json", "as they are in JSON"),
    "json-tx": Format("pgtail.outputs.json_tx", "JsonTx", "as they are in JSON"),
    "wal2json": Format("pgtail.outputs.wal2json", "Wal2Json", "as they are in JSON"),
    "wal2json-v1": Format("pgtail.outputs.wal2json_v1", "Wal2JsonV1", "as they are in JSON"),
    "debezium": Format("pgtail.outputs.debezium", "Debezium", "as they are in JSON"),
    "sql": Format("pgtail.outputs.sql", "open_sql", "spelled out"),
    "csv": Format("pgtail.outputs.csv", "Csv"),
}


def open_output(name: str, sink: Sink, options: OutputOptions) -> Output:
    """The output of that name. Raises KeyError for a name that is not in OUTPUTS."""
    format_ = OUTPUTS[name]
    output: Output = getattr(import_module(format_.module), format_.made_by)(sink, options)
    return output
