"""The peer: PyPI's pypgoutput, its decoders fed with the same messages, json.dumps of each change.

Run as `python pypgoutput_peer.py FILE` by a Python that has the package. Its pydantic models, which it wants a server
for and which cost it more, are left out: values stay the server's text.
"""

from __future__ import annotations

import json
import sys
from typing import Any, BinaryIO

HEADER = 25


def main(source: BinaryIO, write: Any) -> None:
    from pypgoutput import decoders  # type: ignore[import-not-found]  # it has an environment of its own

    tables: dict[int, tuple[str, str, list[str]]] = {}
    begun: Any = None
    seq = 0

    def row(names: list[str], data: Any) -> dict[str, Any]:
        return {name: column.col_data for name, column in zip(names, data.column_data, strict=True)}

    while head := source.read(4):
        frame = source.read(int.from_bytes(head, "big"))
        if frame[:1] != b"w":
            continue
        payload = frame[HEADER:]
        kind = payload[:1]
        if kind == b"R":
            described = decoders.Relation(payload)
            names = [column.name for column in described.columns]
            tables[described.relation_id] = (described.namespace, described.relation_name, names)
        elif kind == b"B":
            begun, seq = decoders.Begin(payload), 0
        elif kind in b"IUD":
            message = {b"I": decoders.Insert, b"U": decoders.Update, b"D": decoders.Delete}[kind](payload)
            schema, table, names = tables[message.relation_id]
            seq += 1
            change = {
                "op": {b"I": "insert", b"U": "update", b"D": "delete"}[kind],
                "schema": schema,
                "table": table,
                "xid": begun.tx_xid,
                "seq": seq,
                "commit_lsn": begun.lsn,
                "commit_ts": str(begun.commit_ts),
                "lsn": int.from_bytes(frame[1:9], "big"),
            }
            if kind != b"I" and message.old_tuple:
                change["old"] = row(names, message.old_tuple)
            if kind != b"D":
                change["new"] = row(names, message.new_tuple)
            write(json.dumps(change) + "\n")


if __name__ == "__main__":
    with open(sys.argv[1], "rb", buffering=1 << 20) as file:
        main(file, sys.stdout.write)
