"""Cells to values: the built-in types, and the types of one stream.

Everything goes through PostgreSQL's text: a binary cell is first converted to what the type's output function would
print, and only text becomes JSON. So the text and binary forms of a value give the same output.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable
from importlib import import_module
from typing import Final, Literal, TypeVar

from pgtail.errors import OptionError
from pgtail.values import text
from pgtail.values.arrays import array_named, array_of
from pgtail.values.codec import DAMAGED, BinaryText, Codec, Context, Json, Loader, Native, Undecoded, ValueKind, opaque
from pgtail.values.format_type import builtin_type_name, declared_type_name
from pgtail.values.nested import COMPOSITE
from pgtail.values.oids import BUILTIN, OIDS
from pgtail.values.ranges import multirange_of, range_of
from pgtail.values.render import string_pieces, strings

__all__ = ["UNKNOWN", "Codec", "Types", "Undecoded", "ValueKind"]

MODULES: Final = {
    "arrays": ("int2vector", "oidvector"),
    "bits": ("bool", "bit", "varbit", "bytea", "uuid"),
    "datetime": ("date", "time", "timetz", "timestamp", "timestamptz", "interval"),
    "floats": ("float4", "float8"),
    "geometric": ("point", "lseg", "box", "line", "circle", "path", "polygon"),
    "json": ("json", "jsonb"),
    "network": ("inet", "cidr", "macaddr", "macaddr8"),
    "numbers": ("int2", "int4", "int8", "oid", "xid", "cid", "xid8", "oid8", "money"),
    "numeric": ("numeric",),
    "pg_lsn": ("pg_lsn", "tid", "pg_snapshot", "txid_snapshot"),
    "text": ("bpchar", "name", "pg_node_tree", "refcursor", "text", "varchar", "char", "xml", "jsonpath"),
    "textsearch": ("tsvector", "tsquery"),
}
"""The built-in types by the module of this package that has them in its TYPES; it is imported when one is used.

Arrays, ranges and composites are derived from oids.BUILTIN. Decoding the binary form of the others (reg*, aclitem)
needs the server's catalog.
"""
_MODULE_OF: Final = {name: module for module, names in MODULES.items() for name in names}

T = TypeVar("T")

_OPAQUE: Final = Loader(ValueKind.TEXT, strings, opaque)


def _builtin(oid: int) -> Loader:
    """The loader of a built-in type."""
    builtin = BUILTIN[oid]
    if builtin.name in _MODULE_OF:
        loader: Loader = import_module(f"{__name__}.{_MODULE_OF[builtin.name]}").TYPES[builtin.name]
        return loader
    if builtin.element:
        return array_of(builtin.element, _builtin(builtin.element), BUILTIN[builtin.element].delimiter)
    if builtin.typtype in ("r", "m"):
        return (range_of if builtin.typtype == "r" else multirange_of)(builtin.subtype)
    return COMPOSITE if builtin.typtype == "c" else _OPAQUE


class Types:
    """The types of one stream.

    `encoding` is Python's name for the encoding of text cells; `numbers="string"` makes int8 and numeric JSON strings;
    `enums` are the names of enum types (mood or schema.mood); `own_session`: the stream comes from a session of pgtail,
    whose settings are pinned. Raises OptionError for an unknown encoding.
    """

    def __init__(
        self,
        *,
        encoding: str = "utf-8",
        numbers: Literal["exact", "string"] = "exact",
        enums: Collection[str] = (),
        own_session: bool = False,
    ) -> None:
        self._own_session = own_session
        self._enum_names = frozenset(enums)
        self._enum_oids: set[int] = set()
        self.declared: dict[int, tuple[str, str]] = {}
        """The types that were declared: namespace and name by OID."""
        self._codecs: dict[int, Codec] = {}
        self._readers: dict[int, BinaryText] = {}
        encoding, decode = _decoder(encoding)
        self._context = Context(decode, encoding, numbers, self._binary, self._json, self._is_known)
        self._unknown = self._make_codec(_OPAQUE, opaque(self._context))

    def declare(self, oid: int, namespace: str, name: str) -> None:
        """A Type message: `namespace` is '' for pg_catalog; a domain has the name of its base type."""
        if self.declared.get(oid) != (namespace, name):
            self.declared[oid] = (namespace, name)
            self._forget(oid)

    def declare_enums(self, oids: Iterable[int]) -> None:
        """Types that are enums, or domains over enums, according to the server's catalog."""
        for oid in oids:
            self._enum_oids.add(oid)
            self._forget(oid)

    def codec(self, type_oid: int) -> Codec:
        """The codec of a column. declare() of the same OID may change it."""
        codec = self._codecs.get(type_oid)
        if codec is None:
            codec = self._codecs[type_oid] = self._make_codec(self._loader(type_oid), self._binary(type_oid))
        return codec

    def unknown(self) -> Codec:
        """The codec of a column of unknown type: text is a string, binary form cannot be decoded."""
        return self._unknown

    def type_name(self, oid: int, typmod: int = -1) -> str:
        """The type as format_type() names it, as far as the stream describes it; a domain has its base type's name."""
        if oid in BUILTIN:
            return builtin_type_name(oid, typmod)
        if oid not in self.declared:
            return f"type {oid}"
        namespace, name = self.declared[oid]
        if not namespace and name in OIDS:
            return builtin_type_name(OIDS[name], typmod)
        return declared_type_name(namespace, name)

    def _forget(self, oid: int) -> None:
        self._codecs.pop(oid, None)
        self._readers.pop(oid, None)

    def _is_known(self, oid: int) -> bool:
        return oid in BUILTIN or oid in self.declared or oid in self._enum_oids

    def _loader(self, oid: int) -> Loader:
        if oid in BUILTIN:
            return _builtin(oid)
        if oid in self._enum_oids:
            return text.ENUM
        namespace, name = self.declared.get(oid, ("", ""))
        if not namespace and name in OIDS:
            return _builtin(OIDS[name])
        own = self._named(namespace, name)
        if own is None and name.startswith("_"):
            from pgtail.values.extensions import DELIMITERS

            element = name[1:]
            delimiter = DELIMITERS.get(element, ",")
            return array_named(self._named(namespace, element) or COMPOSITE, COMPOSITE, delimiter)
        return own or COMPOSITE

    def _named(self, namespace: str, name: str) -> Loader | None:
        """The loader of a user's type that is recognized by its name."""
        if name in self._enum_names or f"{namespace}.{name}" in self._enum_names:
            return text.ENUM
        from pgtail.values.extensions import TYPES

        return TYPES.get(name)

    def _binary(self, oid: int) -> BinaryText:
        reader = self._readers.get(oid)
        if reader is None:
            reader = self._readers[oid] = self._loader(oid).binary(self._context)
        return reader

    def _json(self, oid: int) -> Json:
        return self._loader(oid).json(self._context)

    def _make_codec(self, loader: Loader, binary: BinaryText) -> Codec:
        json = loader.json(self._context)

        def text_binary(cell: bytes) -> str:
            try:
                return binary(cell)
            except DAMAGED:
                raise Undecoded(cell) from None

        def json_of_binary(cell: bytes) -> bytes:
            return json.of_text(text_binary(cell))

        json_binary: Callable[[bytes], bytes] = json_of_binary
        encoding = self._context.encoding
        long = (lambda cell: string_pieces(cell, encoding)) if loader.json is strings else None
        long_binary = loader.long_binary
        is_text = loader.binary is text.encoded
        if is_text:
            # A long cell is not converted to str, which may take four bytes per character.
            json_binary, long_binary = _without_nul(json.of_cell), long and _without_nul(long)
        native = Native(json.native, json.quoted) if encoding == "utf-8" else None
        functions = json.of_cell, json_binary, self._context.text, text_binary, long, long_binary
        return Codec(loader.kind, *functions, is_text, native, self._own_session)


def _without_nul(function: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """For text in binary form, which never contains a NUL."""

    def checked(cell: bytes) -> T:
        if 0 in cell:
            raise Undecoded(cell)
        return function(cell)

    return checked


def _decoder(encoding: str) -> tuple[str, Callable[[bytes], str]]:
    """Python's canonical name of an encoding, and its decode function."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)
    except LookupError:
        raise OptionError(f"{encoding!r} is not an encoding that Python knows, such as latin1 or euc_jp") from None
    if name == "utf-8":
        return name, bytes.decode
    return name, lambda cell: cell.decode(name)


UNKNOWN: Final = Types().unknown()
"""Types.unknown() of a stream in UTF-8."""
