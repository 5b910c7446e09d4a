"""Masks the values of columns: outputs get tables with codecs that mask (values/codec.py), and convert values by these.

If in doubt it masks: a row whose table was not described, or that does not fit its table, is masked completely. A
masked column stays masked when it or its table is renamed in the stream.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import replace

from pgtail.changes.column_rules import ColumnRule, column_rules, unmatched
from pgtail.changes.condition import CONTEXT
from pgtail.changes.ddl import PREFIX, DdlMessage
from pgtail.changes.events import Event, LogicalMessage, RowChange, SchemaChange
from pgtail.changes.relations import Relation
from pgtail.errors import OptionError
from pgtail.pgoutput.cells import Binary
from pgtail.values import UNKNOWN, Codec, Undecoded, ValueKind
from pgtail.values.codec import Native
from pgtail.values.oids import OIDS

MASK: Final = "(redacted)"
"""Shown instead of a value."""
HASHED: Final = "hmac:"
"""The prefix of a keyed hash."""
SHORTEST_KEY: Final = 16
"""The minimum length of a key in bytes; a shorter one could be guessed."""

_DIGEST: Final = 16
"""The bytes of a hash that are shown: with 128 bits, no two values share one."""
_QUOTED: Final = re.compile(
    r"""^(?:'.*'|".*"|byte\ 0x\w\w)(?=\ where\ |\ is\ no\ |\ does\ not\ begin\ )|(?<=starts\ with\ )byte\ 0x\w\w
        |-?\b\d+(?=\ (?:more\ )?bytes?\b|\ columns|\ relations)""",
    re.VERBOSE | re.DOTALL,
)


class Redaction:
    """Masks the columns of one stream; with a `key`, by a keyed hash of their text (HMAC-SHA-256).

    The same text has the same hash in every table, in text and binary form, so joins still work. NULL and unchanged
    TOAST values are not masked. `configured` are the rules of a configuration, which serves many databases. `context`
    is the prefix of the messages that give the context: this is masked as a row of a table named context. Raises
    OptionError if a rule is invalid or the key is too short.
    """

    def __init__(
        self,
        columns: Iterable[str],
        key: bytes | None = None,
        configured: Iterable[str] = (),
        context: str | None = None,
    ) -> None:
        self._rules = [rule for text in columns for rule in column_rules("--redact", text)]
        self.names = frozenset([rule.text for rule in self._rules if rule.is_name])
        """The rules in `columns` without wildcards: a table must have them."""
        self._rules += [rule for text in configured for rule in column_rules("--redact", text)]
        if not self._rules:
            raise OptionError("--redact names no column")
        if key is not None and len(key) < SHORTEST_KEY:
            raise OptionError(f"the key of --redact-key-file has {len(key)} bytes, fewer than {SHORTEST_KEY}")
        self._key = key
        self._context = context
        self._used: set[ColumnRule] = set()
        """The rules that masked a context, or a member of one."""
        self._masked: dict[int, frozenset[int]] = {}
        self._lost: set[int] = set()
        """The versions of tables that have lost a masked column, in this version or an earlier one."""
        self._shown: dict[tuple[int, bool], Relation] = {}
        """shown() of each version."""
        self._described: dict[int, Relation] = {}
        """The versions of tables that were seen."""
        self._published: Collection[Relation] = ()

    def publish(self, tables: Collection[Relation]) -> list[ColumnRule]:
        """Take note of the published tables; returns the rules that match no column of them, none without tables.

        Rules for the context are left out: its members are not known yet.
        """
        self._published = tables
        of_context = [] if self._context is None else self._context_rules
        return [rule for rule in unmatched(self._rules, tables) if rule not in of_context]

    @property
    def tables(self) -> list[Relation]:
        """The tables that were described or are published."""
        return [*self._described.values(), *self._published]

    @property
    def unused(self) -> list[ColumnRule]:
        """The rules that match no column of these tables and no context; none if no table was described."""
        left = unmatched(self._rules, self.tables) if self._described else []
        return [rule for rule in left if rule not in self._used]

    def may_hide(self, column: str) -> bool:
        """Whether a column of this name is masked in any table."""
        return any(rule.column.fullmatch(column) for rule in self._rules)

    def learn(self, before: Relation | None, now: Relation) -> None:
        """Learn a new description of a table: masked columns stay masked under a new name.

        If a masked column disappears, any column added then or later may be the same column renamed: a publication's
        column list may have omitted it in between. All of them are masked.
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
        """The indexes of a table's masked columns."""
        masked = self._masked.get(relation.version)
        if masked is None:
            self._described[relation.version] = relation
            rules, columns = self._rules, enumerate(relation.columns)
            hidden = [index for index, one in columns if any(rule.matches(relation, one.name) for rule in rules)]
            masked = self._masked[relation.version] = frozenset(hidden)
        return masked

    def hides(self, relation: Relation, index: int, cells: int) -> bool:
        """Whether the cell at `index` of a row with this many cells is masked."""
        return not relation.seen or cells != len(relation.columns) or index in self.columns(relation)

    def masking(self, codec: Codec) -> Codec:
        """A codec that shows the mask, or the hash of a value of `codec`."""

        def text(cell: bytes) -> str:
            return MASK if self._key is None else _hashed(self._key, codec, cell)

        def binary(cell: bytes) -> str:
            return text(Binary(cell))

        def json_text(cell: bytes) -> bytes:
            return b'"%b"' % text(cell).encode()

        def json_binary(cell: bytes) -> bytes:
            return json_text(Binary(cell))

        native = Native("string", quoted=False, constant=MASK.encode()) if self._key is None else None
        return Codec(ValueKind.TEXT, json_text, json_binary, text, binary, native=native, masks=True)

    def shown(self, relation: Relation, *, fits: bool = True) -> Relation:
        """A table as outputs get it: its masked columns are text with a codec that masks.

        The names of their types stay. All columns are masked of rows that do not fit the table.
        """
        if fits and relation.seen and not self.columns(relation):
            return relation
        shown = self._shown.get((relation.version, fits))
        if shown is None:
            cells = len(relation.columns) if fits else -1
            hidden = [index for index in range(len(relation.columns)) if self.hides(relation, index, cells)]
            shown = replace(self.hiding(relation, hidden), beyond=self.masking(relation.beyond))
            self._shown[relation.version, fits] = shown
        return shown

    def hiding(self, relation: Relation, hidden: Collection[int]) -> Relation:
        """A table whose columns at these indexes are masked."""
        columns = [*relation.columns]
        for index in hidden:
            codec = self.masking(columns[index].codec)
            columns[index] = replace(columns[index], type_oid=OIDS["text"], typmod=-1, codec=codec)
        return replace(relation, columns=tuple(columns))

    def event(self, event: Event) -> Event:
        """The event as outputs get it."""
        if isinstance(event, RowChange):
            relation, rows = event.relation, (event.old, event.new)
            fits = all(row is None or len(row) == len(relation.columns) for row in rows)
            shown = self.shown(relation, fits=fits)
            return event if shown is relation else replace(event, relation=shown)
        if isinstance(event, SchemaChange):
            self.learn(event.before, event.now)
        elif isinstance(event, DdlMessage):
            return event.masked(MASK)
        elif isinstance(event, LogicalMessage) and event.prefix == PREFIX:
            return replace(event, content=MASK.encode())  # of another form
        elif isinstance(event, LogicalMessage) and event.transactional and event.prefix == self._context:
            return replace(event, content=self.masked_context(event.content))
        return event

    # -- the context -------------------------------------------------------------------------------------------

    @property
    def _context_rules(self) -> list[ColumnRule]:
        """The rules that name the context: as a column, or as a table, with a member."""
        return [
            rule
            for rule in self._rules
            if (rule.column.fullmatch(CONTEXT) if rule.table is None else rule.matches_table(_CONTEXT))
        ]

    def _hides_member(self, name: str) -> bool:
        rules = [rule for rule in self._rules if rule.matches(_CONTEXT, name)]
        self._used.update(rules)
        return bool(rules)

    def masked_context(self, content: bytes) -> bytes:
        """A context as outputs show it: without the values of the members that a rule matches.

        All of it is masked if a rule names it, or a member of it although it is no JSON object.
        """
        from pgtail.changes.context import masked  # it loads json

        def mask(text: bytes) -> str:
            return MASK if self._key is None else _hashed(self._key, UNKNOWN, text)

        rules = self._context_rules
        shown = masked(content, self._hides_member, mask)
        if shown is not None and not any(rule.table is None for rule in rules):
            return shown
        self._used.update(rules)
        return mask(content).encode() if rules else content


def _hashed(key: bytes, codec: Codec, cell: bytes) -> str:
    """The keyed hash of a cell's text or, if it has none, of its bytes after a NUL, which no text contains."""
    import hmac  # slow to import and rarely used

    try:
        hashed = codec.text(cell).encode()
    except (Undecoded, UnicodeEncodeError):
        hashed = b"\0" + cell
    return HASHED + hmac.digest(key, hashed, "sha256")[:_DIGEST].hex()


_CONTEXT: Final = Relation(0, "", CONTEXT, "", ())
"""The table in rules for members of the context."""

WITHHELD: Final = "a value could not be processed; the server's message may quote it and is not shown (--redact)"
"""Shown instead of a server's error about a value."""


def without_quotes(reason: str) -> str:
    """An error message without its quotes from the input, which may be part of a value."""
    return _QUOTED.sub(MASK, reason)
