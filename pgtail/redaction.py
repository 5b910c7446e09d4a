"""Floor 3, which columns are masked, and what stands in their place: values never get past here; knows no output.

Where it is in doubt it masks: a row whose table was never described, or that does not fit its table, is masked whole,
and a masked column stays masked when it or its table is renamed in the stream.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from pgtail.errors import OptionError
from pgtail.relations import Column, Relation
from pgtail.transaction import Event, RowChange, SchemaChange
from pgtail.values import UNKNOWN, Codec, Undecoded
from pgtail.values.oids import BUILTIN
from pgtail.wire.cells import UNCHANGED, Binary, Cell, TupleData

MASK: Final = "(redacted)"
"""What stands in place of a value."""
HASHED: Final = "hmac:"
"""What stands before the digits of a keyed hash."""
SHORTEST_KEY: Final = 16
"""Bytes of a key, below which it could be guessed."""

_DIGEST: Final = 16
"""Bytes of a hash that are shown: 128 bits, so that two values never share one."""
_TEXT_OID: Final = next(oid for oid, builtin in BUILTIN.items() if builtin.name == "text")
_PART = r'\s*(?:"((?:[^"]|"")+)"|([^".,\s]+))\s*'
_RULE: Final = re.compile(rf"{_PART}(?:\.{_PART})?(?:\.{_PART})?(?:,|$)")
_QUOTED: Final = re.compile(
    r"""^(?:'.*'|".*"|byte\ 0x\w\w)(?=\ where\ |\ is\ no\ |\ does\ not\ begin\ )|(?<=starts\ with\ )byte\ 0x\w\w
        |-?\b\d+(?=\ (?:more\ )?bytes?\b|\ columns|\ relations)""",
    re.VERBOSE | re.DOTALL,
)


class _Rule(NamedTuple):
    """One column, or all that a glob matches; `table` and `schema` None match any."""

    text: str
    schema: re.Pattern[str] | None
    table: re.Pattern[str] | None
    column: re.Pattern[str]

    def matches(self, relation: Relation, column: str) -> bool:
        parts = ((self.schema, relation.schema), (self.table, relation.name), (self.column, column))
        return all(pattern is None or pattern.fullmatch(name) for pattern, name in parts)


def _rules(text: str) -> list[_Rule]:
    """`COLUMN,TABLE.COLUMN,SCHEMA.TABLE.COLUMN`. Raises OptionError."""
    found, pos = [], 0
    while pos < len(text):
        match = _RULE.match(text, pos)
        if match is None:
            raise OptionError(
                f"--redact {text}: expected COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN, several with commas;"
                ' a name with a dot, a comma or a blank stands in double quotes: users."e-mail, old"'
            )
        quoted, plain = match.groups()[0::2], match.groups()[1::2]
        parts = [_pattern(*part) for part in zip(quoted, plain, strict=True) if part != (None, None)]
        table, schema = [*reversed(parts[:-1]), None, None][:2]
        found.append(_Rule(match[0].strip(" ,"), schema, table, parts[-1]))
        pos = match.end()
    return found


def _pattern(quoted: str | None, plain: str | None) -> re.Pattern[str]:
    """A name as it is, or a glob; upper and lower case are one, for to mask too much is the lesser evil."""
    glob = re.escape(quoted.replace('""', '"')) if quoted is not None else fnmatch.translate(plain or "")
    return re.compile(glob, re.IGNORECASE | re.DOTALL)


class _Mask(bytes):
    """Stands in place of a value, and is equal to itself alone: outputs ask which values an update changed."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = bytes.__hash__


class Redaction:
    """Masks the columns of one stream; with a `key` by a keyed hash of their text (HMAC with SHA-256).

    The same text has the same hash in every table, in text and in binary form: what could be joined still can be.
    NULL and unchanged TOAST stay what they are. Raises OptionError for text that names no column, or a short key.
    """

    def __init__(self, columns: Iterable[str], key: bytes | None = None) -> None:
        self._rules = [rule for text in columns for rule in _rules(text)]
        if not self._rules:
            raise OptionError("--redact names no column")
        if key is not None and len(key) < SHORTEST_KEY:
            raise OptionError(f"the key of --redact-key-file has {len(key)} bytes, fewer than {SHORTEST_KEY}")
        self._key = key
        self._masked: dict[int, frozenset[int]] = {}
        self._lost: set[int] = set()
        """The versions of tables from which a masked column has gone, now or before."""
        self._shown: dict[tuple[int, bool], Relation] = {}
        self._used: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """What was to be masked, and was in no table that came; none where none came."""
        return [rule.text for rule in self._rules if rule.text not in self._used] if self._masked else []

    def may_hide(self, column: str) -> bool:
        """Whether a column of this name is masked in any table."""
        return any(rule.column.fullmatch(column) for rule in self._rules)

    def learn(self, before: Relation | None, now: Relation) -> None:
        """A table is described anew: what was masked stays so under another name.

        Where a masked column has gone, any that comes, then or later, may be that column renamed: it may have been away
        because a publication's column list left it out.
        """
        masked = set(self.columns(now))
        if before is not None and before.seen:
            hidden = {before.columns[index].name for index in self.columns(before)}
            names, known = {column.name for column in now.columns}, {column.name for column in before.columns}
            if before.version in self._lost or hidden - names:
                self._lost.add(now.version)
            for index, column in enumerate(now.columns):
                if column.name in hidden or (now.version in self._lost and column.name not in known):
                    masked.add(index)
        self._masked[now.version] = frozenset(masked)

    def columns(self, relation: Relation) -> frozenset[int]:
        """The places of a table's masked columns."""
        masked = self._masked.get(relation.version)
        if masked is None:
            masked = self._masked[relation.version] = frozenset(
                [index for index, column in enumerate(relation.columns) if self._ruled(relation, column)]
            )
        return masked

    def hides(self, relation: Relation, index: int, cells: int) -> bool:
        """Whether one of the cells of a row is masked; one that does not fit its table is masked whole."""
        return not relation.seen or cells != len(relation.columns) or index in self.columns(relation)

    def cell(self, codec: Codec, cell: Cell) -> Cell:
        """What stands in place of a cell: text."""
        if cell is None or cell is UNCHANGED:
            return cell
        if self._key is None:
            return _Mask(MASK.encode())
        import hmac  # it takes a while, and few ask for it

        digest = hmac.digest(self._key, _hashed(codec, cell), "sha256")
        return (HASHED + digest[:_DIGEST].hex()).encode()

    def event(self, event: Event) -> Event:
        """The event as it may be shown."""
        if isinstance(event, RowChange):
            return self._change(event)
        if isinstance(event, SchemaChange):
            self.learn(event.before, event.now)
        return event

    def _ruled(self, relation: Relation, column: Column) -> bool:
        rules = [rule.text for rule in self._rules if rule.matches(relation, column.name)]
        self._used.update(rules)
        return bool(rules)

    def _change(self, change: RowChange) -> RowChange:
        relation, columns = change.relation, len(change.relation.columns)
        rows = [row for row in (change.old, change.new) if row is not None]
        whole = not relation.seen or any(len(row) != columns for row in rows)
        if not whole and not self.columns(relation):
            return change
        old, new = [None if row is None else self._row(relation, row, whole) for row in (change.old, change.new)]
        if old is not None and new is not None:
            same = [before == now for before, now in zip(change.old or (), change.new or (), strict=False)]
            known = [before if one else now for one, before, now in zip(same, old, new, strict=False)]
            new = (*known, *new[len(same) :])
        return replace(change, relation=self._as_shown(relation, whole), old=old, new=new)

    def _row(self, relation: Relation, row: TupleData, whole: bool) -> TupleData:
        codecs = [column.codec for column in relation.columns]
        codecs += [relation.beyond] * (len(row) - len(codecs))
        masked = range(len(row)) if whole else self.columns(relation)
        return tuple([self.cell(codecs[i], cell) if i in masked else cell for i, cell in enumerate(row)])

    def _as_shown(self, relation: Relation, whole: bool) -> Relation:
        """The table with text where values are masked; its types keep their names."""
        shown = self._shown.get((relation.version, whole))
        if shown is None:
            masked = range(len(relation.columns)) if whole else self.columns(relation)
            columns = [
                replace(column, type_oid=_TEXT_OID, typmod=-1, codec=UNKNOWN) if index in masked else column
                for index, column in enumerate(relation.columns)
            ]
            shown = replace(relation, columns=tuple(columns), beyond=UNKNOWN)
            self._shown[relation.version, whole] = shown
        return shown


def _hashed(codec: Codec, cell: bytes) -> bytes:
    """What a cell's hash is made of: its text; where it has none its bytes, with a NUL that no text has."""
    try:
        return (codec.text_binary(cell) if isinstance(cell, Binary) else codec.text_text(cell)).encode()
    except (Undecoded, UnicodeEncodeError):
        return b"\0" + cell


WITHHELD: Final = "a value could not be processed; the server's words may quote it, and are not shown (--redact)"
"""In place of a server's error about a value."""


def without_quotes(reason: str) -> str:
    """An error's words without what they quote from the input, which may be a part of a value."""
    return _QUOTED.sub(MASK, reason)
