"""Plans a copy of the published tables from the catalogs under a snapshot.

The walsender's own rules: src/backend/replication/pgoutput/pgoutput.c, get_rel_sync_entry() and the functions that it
calls. Plain SELECTs on catalogs have the snapshot; pg_get_publication_tables() has the catalogs of now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from pgtail.errors import ServerError
from pgtail.pgoutput.schema import Relation, RelationColumn, Type
from pgtail.postgres import rows
from pgtail.postgres.catalog import BASE_TYPES
from pgtail.postgres.rows import Row
from pgtail.postgres.snapshot import SnapshotSession

_PART_BYTES: Final = 1 << 30
"""The size of a part where one session copies."""
_SHARED_PART_BYTES: Final = 64 << 20
"""The size of a part where several sessions copy: a large table then keeps all of them busy to the end."""
_TUPLE_HEADER: Final = 24
_PAGE_HEADER: Final = 24
_ITEM: Final = 4
_ROWS_PER_BYTE: Final = 8
"""More rows than any table that is not a heap has in a byte, compressed."""

_FIRST_GENBKI_OID: Final = 10000
"""FirstGenbkiObjectId, src/include/access/transam.h: types from here on have a Type message (since 10.9 and 11.4)."""

_PUBLICATIONS: Final = """
SELECT oid, pubname, puballtables, {via_root} AS via_root, {generated} AS generated FROM pg_publication
"""
_LISTED: Final = """
SELECT prpubid, prrelid, {columns} AS columns, {filter} AS filter,
    coalesce(to_jsonb(r) ->> 'prexcept', 'f')::bool AS excepted
FROM pg_publication_rel r
"""
"""prexcept: the tables of FOR ALL TABLES EXCEPT, since 19."""
_SCHEMAS: Final = "SELECT pnpubid, pnnspid FROM pg_publication_namespace"
_TABLES: Final = """
SELECT c.oid, c.relnamespace, n.nspname, c.relname, c.relkind, c.relpersistence, c.relreplident, c.relfilenode,
    i.inhparent, {heap} AS is_heap
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_inherits i ON c.relispartition AND i.inhrelid = c.oid AND {attached}
WHERE c.relkind IN ('r', 'p') AND c.oid >= 16384
ORDER BY c.oid
"""
"""Tables below FirstNormalObjectId (src/include/access/transam.h) are never published."""
_COLUMNS: Final = """
WITH RECURSIVE {base_types}
SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, {generated} AS generated,
    y.oid AS base_type, y.typname, CASE WHEN m.nspname = 'pg_catalog' THEN '' ELSE m.nspname END AS type_schema,
    t.typsend <> 0 AS has_send
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    JOIN base ON base.oid = a.atttypid JOIN pg_type y ON y.oid = base.type JOIN pg_namespace m ON m.oid = y.typnamespace
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_IDENTITIES: Final = """
SELECT i.indrelid, i.indkey::text AS columns, {key_columns} AS key_columns
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE i.indrelid = ANY(%s::oid[]) AND i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indislive
    AND (i.indisvalid OR (i.indisprimary AND c.relkind = 'p' AND {invalid_keys}))
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
"""
_SIZES: Final = """
SELECT oid, pg_relation_size(oid::oid) AS bytes, current_setting('block_size')::int AS block_size
FROM unnest(%s::oid[]) AS oid
"""


class _Table(Struct, frozen=True):
    """A row of pg_class; `partition_of` is the OID of its parent."""

    oid: int
    namespace: int
    schema: str
    name: str
    partitioned: bool
    permanent: bool
    identity: str
    relfilenode: int
    """The value in the snapshot: a different one now means that the table was truncated or rewritten since."""
    partition_of: int | None
    is_heap: bool


class CopySource(_Table, frozen=True):
    """A table to read: the published table or one of its partitions, without tables that inherit from it."""

    attnums: tuple[int, ...]
    """The numbers of the published columns, in the order of the published table."""
    size: int
    """Bytes of its main fork, when the plan was made."""


class Part(Struct, frozen=True):
    """The source of one COPY: a range of pages of a table, with a block of numbers for its rows.

    The numbers before + 1 to before + ordinals are the part's own; it has fewer rows.
    """

    number: int
    """From 0 on, unique in the table."""
    source: CopySource | None
    """None for a partitioned table without partitions: there is nothing to read."""
    first_page: int
    end_page: int | None
    """None for the last part of a source: up to the end of the table."""
    before: int
    ordinals: int
    size: int
    """Bytes, when the plan was made."""


class CopiedColumn(Struct, frozen=True):
    """A published column."""

    description: RelationColumn
    base_type: int
    """The OID of its type, or of the type that its domain is over."""
    has_send: bool
    """Whether its type has a binary form."""
    generated: bool


class PublishedTable(Struct, frozen=True):
    """A table as the stream describes it, and the parts to read for its rows, at least one."""

    relation: Relation
    types: tuple[Type, ...]
    columns: tuple[CopiedColumn, ...]
    row_filter: str | None
    """An SQL expression; a row for which it is not true is not published."""
    parts: tuple[Part, ...]

    @property
    def oid(self) -> int:
        return self.relation.oid

    @property
    def schema(self) -> str:
        return self.relation.namespace or "pg_catalog"

    @property
    def name(self) -> str:
        return self.relation.name

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which the stream identifies a row; none if it sends all of them, or cannot identify one."""
        keyed = self.relation.identity in ("d", "i")
        return tuple([column.name for column in self.relation.columns if keyed and column.is_key])

    @property
    def size(self) -> int:
        """Bytes of its sources, when the plan was made."""
        return sum(part.size for part in self.parts)

    def descriptions(self, encoding: str) -> list[bytes]:
        """The Type messages and the Relation message, as the walsender sends them before the first row."""
        return [*[one.encode(encoding) for one in self.types], self.relation.encode(encoding)]


class _Publication(Struct, frozen=True):
    oid: int
    all_tables: bool
    via_root: bool
    generated: bool


class _Listed(Struct, frozen=True):
    """A row of pg_publication_rel."""

    columns: frozenset[int] | None
    row_filter: str | None


class _Published(Struct, frozen=True):
    """The publications through which a table is published, with its name in the stream, and the tables to read."""

    publications: list[_Publication]
    sources: list[_Table]


def snapshot_plan(
    session: SnapshotSession, publications: Sequence[str], *, part_bytes: int | None = None, sessions: int = 1
) -> list[PublishedTable]:
    """The tables of these publications, by OID, for so many sessions to copy. Raises ServerError.

    A publication that does not exist under the snapshot has none. The order of the parts' numbers is that of the list.
    """
    part_bytes = part_bytes or (_PART_BYTES if sessions == 1 else _SHARED_PART_BYTES)
    catalog = _Catalog(session)
    published = catalog.published(publications)
    by_oid = catalog.columns({*published, *(source.oid for entry in published.values() for source in entry.sources)})
    identities = catalog.identities(published)
    sizes, block_size = catalog.sizes([source.oid for entry in published.values() for source in entry.sources])
    parts = _Parts(part_bytes, block_size, sessions, split=session.version >= 140_000)
    tables = []
    for oid, entry in sorted(published.items()):
        table = catalog.tables[oid]
        columns = catalog.sent_columns(table, entry.publications, by_oid.get(oid, []), identities.get(oid, frozenset()))
        names = [column.description.name for column in columns]
        sources = [
            CopySource(
                **asdict(source),
                attnums=_numbers(by_oid.get(source.oid, []), names, session),
                size=sizes.get(source.oid, 0),
            )
            for source in entry.sources
        ]
        schema = "" if table.schema == "pg_catalog" else table.schema
        described = tuple([one.description for one in columns])
        tables.append(
            PublishedTable(
                relation=Relation(None, oid, schema, table.name, table.identity, described),
                types=catalog.types(by_oid.get(oid, []), names),
                columns=columns,
                row_filter=catalog.row_filter(table, entry.publications),
                parts=parts.of_table(sources),
            )
        )
    return tables


class _Catalog:
    """The catalogs under the snapshot."""

    def __init__(self, session: SnapshotSession) -> None:
        self._session = session
        self._version = session.version
        since = self._since
        self._listed: dict[int, dict[int, _Listed]] = defaultdict(dict)
        """By publication and table."""
        self._excepted: dict[int, set[int]] = defaultdict(set)
        for row in self._rows(
            "the published tables",
            _LISTED.format(
                columns=since(15, "prattrs::text", "NULL"),
                filter=since(15, "pg_get_expr(prqual, prrelid)", "NULL"),
            ),
        ):
            publication, table = row.integer("prpubid"), row.integer("prrelid")
            if row.boolean("excepted"):
                self._excepted[publication].add(table)
                continue
            columns = row.optional_text("columns")
            numbers = None if columns is None else frozenset(map(int, columns.split()))
            row_filter = None if row.any("filter") is None else session.name(row, "filter")
            self._listed[publication][table] = _Listed(numbers, row_filter)
        self._schemas: dict[int, set[int]] = defaultdict(set)
        if self._version >= 150_000:
            for row in self._rows("the published schemas", _SCHEMAS):
                self._schemas[row.integer("pnpubid")].add(row.integer("pnnspid"))
        self.tables = {
            row.integer("oid"): _Table(
                oid=row.integer("oid"),
                namespace=row.integer("relnamespace"),
                schema=session.name(row, "nspname"),
                name=session.name(row, "relname"),
                partitioned=row.text("relkind") == "p",
                permanent=row.text("relpersistence") == "p",
                identity=row.text("relreplident"),
                relfilenode=row.integer("relfilenode"),
                partition_of=row.optional_integer("inhparent"),
                is_heap=row.boolean("is_heap"),
            )
            for row in self._rows(
                "the tables",
                _TABLES.format(
                    heap=since(
                        12,
                        "coalesce((SELECT amhandler = 'heap_tableam_handler'::regproc FROM pg_am WHERE oid = c.relam),"
                        " false)",
                        "true",
                    ),
                    attached=since(14, "NOT i.inhdetachpending", "true"),
                ),
            )
        }

    def published(self, names: Sequence[str]) -> dict[int, _Published]:
        """Every published table, by the OID with which it is in the stream."""
        publications = self._publications(names)
        by_oid: dict[int, _Published] = {}
        for table in self.tables.values():
            if not table.permanent:
                continue
            oid, through = self._published_as(table, publications)
            if through:
                published = by_oid.setdefault(oid, _Published(through, []))
                if not table.partitioned:
                    published.sources.append(table)
        return by_oid

    def _publications(self, names: Sequence[str]) -> list[_Publication]:
        query = _PUBLICATIONS.format(
            via_root=self._since(13, "pubviaroot", "false"), generated=self._since(18, "pubgencols = 's'", "false")
        )
        by_name = {
            self._session.name(row, "pubname"): _Publication(
                row.integer("oid"), row.boolean("puballtables"), row.boolean("via_root"), row.boolean("generated")
            )
            for row in self._rows("the publications", query)
        }
        return [by_name[name] for name in dict.fromkeys(names) if name in by_name]

    def _published_as(self, table: _Table, publications: Iterable[_Publication]) -> tuple[int, list[_Publication]]:
        """The OID under which a table's changes are sent, and through which publications; none if they are not."""
        ancestors = list(self._ancestors(table))
        sent_as, highest = table.oid, 0
        through: list[_Publication] = []
        for publication in publications:
            level = self._level(publication, table, ancestors)
            if level is None or (table.partitioned and not publication.via_root) or level < highest:
                continue
            if level > highest:
                sent_as, highest, through = ancestors[level - 1].oid, level, []
            through.append(publication)
        return sent_as, through

    def _level(self, publication: _Publication, table: _Table, ancestors: Sequence[_Table]) -> int | None:
        """Through which ancestor a publication sends a table: 0 is the table, 1 its parent. None: not at all."""
        if publication.all_tables:
            top = ancestors[-1] if ancestors else table
            if top.oid in self._excepted[publication.oid]:
                return None
            return len(ancestors) if publication.via_root else 0
        levels = [level for level, one in enumerate([table, *ancestors]) if self._names(publication, one)]
        if not levels:
            return None
        return levels[-1] if publication.via_root else 0

    def _names(self, publication: _Publication, table: _Table) -> bool:
        """Whether a publication lists a table, or its schema."""
        return table.oid in self._listed[publication.oid] or table.namespace in self._schemas[publication.oid]

    def _ancestors(self, table: _Table) -> Iterator[_Table]:
        """The partitioned tables that a table is a partition of, its parent first."""
        while table.partition_of is not None and table.partition_of in self.tables:
            table = self.tables[table.partition_of]
            yield table

    def columns(self, tables: Iterable[int]) -> dict[int, list[Row]]:
        generated = self._since(12, "a.attgenerated::text", "''")
        query = _COLUMNS.format(base_types=BASE_TYPES, generated=generated)
        found = self._rows("the columns of the tables", query, list(tables))
        return {oid: list(group) for oid, group in groupby(found, lambda row: row.integer("attrelid"))}

    def identities(self, tables: Iterable[int]) -> dict[int, frozenset[int]]:
        """The columns of each table's replica identity, unless that is FULL or NOTHING."""
        query = _IDENTITIES.format(
            key_columns=self._since(11, "i.indnkeyatts", "i.indnatts"), invalid_keys=self._since(18, "true", "false")
        )
        return {
            row.integer("indrelid"): frozenset(map(int, row.text("columns").split()[: row.integer("key_columns")]))
            for row in self._rows("the replica identities", query, list(tables))
        }

    def sizes(self, tables: Sequence[int]) -> tuple[dict[int, int], int]:
        """The bytes of tables, without those that are gone, and the size of a page."""
        found = self._rows("the sizes of the tables", _SIZES, list(tables))
        sizes = {row.integer("oid"): row.optional_integer("bytes") or 0 for row in found}
        return sizes, found[0].integer("block_size") if found else 1

    def sent_columns(
        self, table: _Table, publications: Sequence[_Publication], columns: Sequence[Row], key: frozenset[int]
    ) -> tuple[CopiedColumn, ...]:
        """The columns that the stream has of a table. Raises ServerError if two publications differ."""
        lists = {self._sent_numbers(table, publication, columns) for publication in publications}
        if len(lists) > 1:
            raise ServerError(
                f"cannot use different column lists for table {table.schema}.{table.name} in different publications",
                cure="Two of the publications have different columns of this table: -P names those to read.",
            )
        [numbers] = lists
        sent = []
        for row in columns:
            number = row.integer("attnum")
            if number in numbers:
                is_key, name = int(table.identity == "f" or number in key), self._session.name(row, "attname")
                described = RelationColumn(is_key, name, row.integer("atttypid"), row.integer("atttypmod"))
                generated = row.text("generated") != ""
                sent.append(CopiedColumn(described, row.integer("base_type"), row.boolean("has_send"), generated))
        return tuple(sent)

    def _sent_numbers(self, table: _Table, publication: _Publication, columns: Sequence[Row]) -> frozenset[int]:
        listed = None if publication.all_tables else self._listed[publication.oid].get(table.oid)
        if listed is not None and listed.columns is not None:
            return listed.columns
        kinds = ("", "s") if publication.generated else ("",)
        return frozenset([row.integer("attnum") for row in columns if row.text("generated") in kinds])

    def types(self, columns: Sequence[Row], names: Sequence[str]) -> tuple[Type, ...]:
        """The Type messages for these columns: one for each whose type is not built in."""
        name = self._session.name
        return tuple(
            Type(None, row.integer("atttypid"), name(row, "type_schema"), name(row, "typname"))
            for row in columns
            if name(row, "attname") in names and row.integer("atttypid") >= _FIRST_GENBKI_OID
        )

    def row_filter(self, table: _Table, publications: Sequence[_Publication]) -> str | None:
        """The row filters of the publications, joined by OR; None if one of them has none."""
        filters = []
        for publication in publications:
            in_schema = table.namespace in self._schemas[publication.oid]
            listed = None if publication.all_tables or in_schema else self._listed[publication.oid].get(table.oid)
            if listed is None or listed.row_filter is None:
                return None
            filters.append(listed.row_filter)
        return " OR ".join([f"({one})" for one in dict.fromkeys(filters)])

    def _since(self, major: int, sql: str, otherwise: str) -> str:
        return sql if self._version >= major * 10_000 else otherwise

    def _rows(self, purpose: str, query: str, *values: object) -> list[Row]:
        return rows.rows(self._session.connection, purpose, query, *values)


def _numbers(columns: Sequence[Row], names: Sequence[str], session: SnapshotSession) -> tuple[int, ...]:
    found: Mapping[str, int] = {session.name(row, "attname"): row.integer("attnum") for row in columns}
    return tuple([found[name] for name in names])


class _Parts:
    """Splits sources into parts, and gives each part its block of numbers."""

    def __init__(self, part_bytes: int, block_size: int, sessions: int, *, split: bool) -> None:
        self._block_size = block_size
        self._pages = max(1, part_bytes // block_size)
        """Pages of the largest part."""
        self._sessions = sessions
        self._split = split
        """Whether the server reads a range of ctid without the rest of the table: a TID range scan, since 14."""
        self._rows_per_page = max(1, (block_size - _PAGE_HEADER) // (_TUPLE_HEADER + _ITEM))
        """MaxHeapTuplesPerPage, src/include/access/htup_details.h."""
        self._before = 0

    def of_table(self, sources: Sequence[CopySource]) -> tuple[Part, ...]:
        """The parts of a table, which has these sources."""
        found: list[Part] = []
        for source in sources:
            for first, end in self._ranges(source):
                found.append(self._part(len(found), source, first, end))
        return tuple(found) or (self._part(0, None, 0, None),)

    def _ranges(self, source: CopySource) -> Iterator[tuple[int, int | None]]:
        """Parts of one size, equally many for each session, so that all sessions end at the same time."""
        pages = max(source.size // self._block_size, 1)
        count = -(-pages // self._pages) if self._split and source.is_heap else 1
        if count > 1:
            count += -count % self._sessions
        each = -(-pages // count)
        starts = range(0, pages, each)
        for first in starts:
            yield first, first + each if first != starts[-1] else None

    def _part(self, number: int, source: CopySource | None, first: int, end: int | None) -> Part:
        size = 0 if source is None else source.size - first * self._block_size
        if end is not None:
            size = (end - first) * self._block_size
        if source is None or source.is_heap:
            ordinals = max(1, size // self._block_size) * self._rows_per_page
        else:
            ordinals = (size + self._block_size) * _ROWS_PER_BYTE
        before, self._before = self._before, self._before + ordinals
        return Part(number, source, first, end, before, ordinals, size)
