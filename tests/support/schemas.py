"""Checks what programs read against strict forms of the JSON Schemas: an unknown key or value is an error.

Only one line of each shape (its keys, and the types of its values) is validated: a run may have a million lines.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
from collections.abc import Sequence
from typing import Any, Final

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.tools.make_schemas import schemas

MOST: Final = 200
"""Lines of a run that are looked at."""
OF_CHANGES: Final = frozenset(("json", "json-tx", "wal2json", "wal2json-v1", "debezium"))
_MOST_SHAPES: Final = 2_000
_seen: dict[str, set[object]] = {}


def strict(schema: Any) -> Any:
    """A schema that allows no keys that it does not name, and no values but its examples."""
    if not isinstance(schema, dict):
        return schema
    found = {key: _strict_part(key, value) for key, value in schema.items()}
    if "examples" in found:
        found["enum"] = found.pop("examples")
    if "properties" in found and "additionalProperties" not in found:
        found["additionalProperties"] = False
    for rules in [rule["if"]["properties"] for rule in schema.get("allOf", ())][:1]:
        [key] = rules
        values = [value for rule in schema["allOf"] for value in rule["if"]["properties"][key]["enum"]]
        found["allOf"] = [*found["allOf"], {"properties": {key: {"enum": values}}}]
    return found


def _strict_part(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: strict(one) for name, one in value.items()}
    if key == "allOf":
        return [{**rule, "then": strict(rule["then"])} for rule in value]
    if key == "anyOf":
        return [strict(one) for one in value]
    return strict(value) if key in ("items", "then", "else", "additionalProperties") else value


@functools.cache
def validator(name: str) -> Draft202012Validator:
    schema = strict(schemas()[name])
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check(name: str, line: bytes | str) -> None:
    """Check a line against the schema of this name."""
    document = json.loads(line)
    shapes = _seen.setdefault(name, set())
    shape = _shape(document)
    if shape in shapes or len(shapes) > _MOST_SHAPES:
        return
    shapes.add(shape)
    for error in itertools.islice(validator(name).iter_errors(document), 3):
        raise AssertionError(f"{name}.json: {error.json_path}: {error.message[:300]}\n{line[:2000]!r}")


def _shape(value: Any) -> object:
    if isinstance(value, dict):
        return tuple([(key, value[key] if key in _KINDS else _shape(value[key])) for key in value])
    if isinstance(value, list):
        return (list, *dict.fromkeys([_shape(one) for one in value]))
    return type(value)


_KINDS: Final = ("op", "action", "kind", "event", "severity")


def schema_of(arguments: Sequence[str]) -> str | None:
    """The schema of what a command writes to standard output; None without one."""
    words = [*arguments]
    command = words[0] if words else ""
    given = [words[index + 1] for index, word in enumerate(words[:-1]) if word in ("-o", "--output")]
    if command in ("slot", "capture"):
        command = "-".join(words[:2])
    if command in ("stats", "doctor", "slot-list", "capture-list"):
        return command if given[-1:] == ["json"] else None
    if command not in ("decode", "stream", "expect") or "--format-string" in words or "-h" in words:
        return None
    output = given[-1] if given else "json"
    return output if output in OF_CHANGES and "--keys" not in words else None


def check_output(arguments: Sequence[str], written: bytes, errors: str = "") -> None:
    """Check what a run has written, as far as lines are complete."""
    name = schema_of(arguments)
    if name is not None:
        check_lines(name, written)
    if "--log-format" in arguments:
        for text in errors.splitlines():
            if text.startswith("{"):
                check("log", text)


def check_lines(name: str, written: bytes) -> None:
    """Check the first lines of an output."""
    for line in itertools.islice(io.BytesIO(written), MOST):
        if line.startswith(b"{") and line.endswith(b"}\n"):
            check(name, line)
