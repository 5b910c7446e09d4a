"""A server's text and binary form of values, with the session settings that pgtail pins."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import psycopg
from psycopg.pq import ExecStatus

PINNED = """
SET DateStyle = ISO; SET IntervalStyle = postgres; SET extra_float_digits = 3; SET TimeZone = 'UTC';
SET bytea_output = hex; SET search_path = ''; SET lc_monetary = 'C'; SET quote_all_identifiers = off
"""

Connection = psycopg.Connection[tuple[object, ...]]


def pin(connection: Connection) -> None:
    for statement in PINNED.split(";"):
        connection.execute(statement.strip().encode())


def both_forms(
    connection: Connection, query: str, *parameters: str | None, encoding: str = "utf-8"
) -> list[tuple[bytes, bytes]]:
    """Each row's only column as a text cell and as a binary cell; rows that are NULL are left out."""
    forms = [_column(connection, query.encode(encoding), parameters, result_format) for result_format in (0, 1)]
    return [(text, binary) for text, binary in zip(*forms, strict=True) if text is not None and binary is not None]


def cast(connection: Connection, type_name: str, values: Sequence[str | None]) -> list[tuple[bytes, bytes]]:
    """Values, given as text, of one type: as text cells and as binary cells."""
    cells = []
    for start in range(0, len(values), 1000):
        part = list(values[start : start + 1000])
        rows = ", ".join(f"(${number})" for number in range(1, len(part) + 1))
        query = f"SELECT v::{type_name} FROM (VALUES {rows}) AS given(v)"
        cells += both_forms(connection, query, *part)
    return cells


def texts_of(connection: Connection, type_name: str, element_oid: int, cells: Sequence[bytes]) -> list[str]:
    """The text of each binary cell, as the server's output function gives it. No text may hold a line break."""
    array = struct.pack(">iiIii", 1, 0, element_oid, len(cells), 1)
    array += b"".join([struct.pack(">i", len(cell)) + cell for cell in cells])
    result = connection.pgconn.exec_params(
        f"SELECT array_to_string($1::{type_name}[], E'\\n')".encode(), [array], param_formats=[1]
    )
    assert result.status == ExecStatus.TUPLES_OK, result.error_message.decode()
    text = result.get_value(0, 0)
    assert text is not None
    return text.decode().split("\n")


def _column(
    connection: Connection, query: bytes, parameters: Sequence[str | None], result_format: int
) -> list[bytes | None]:
    encoded = [None if parameter is None else parameter.encode() for parameter in parameters]
    result = connection.pgconn.exec_params(query, encoded, result_format=result_format)
    assert result.status == ExecStatus.TUPLES_OK, result.error_message.decode()
    return [result.get_value(row, 0) for row in range(result.ntuples)]


def unpadded(text: bytes) -> bytes:
    """LSNs as pgtail prints them from their binary form, and servers before 19: without leading zeros."""
    return re.sub(rb"/0+(?=[0-9A-F])", b"/", text)
