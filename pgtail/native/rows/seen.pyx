"""Keys of rows, and the rows that a stream has shown: SeenRows (changes/seen_rows.py) for slices."""

cdef enum:
    SEEN_ROW_SIZE = 240     # that of plan.py


@cython.final
cdef class RowKey:
    """The columns of a key, and what the keys of a table begin with."""

    cdef bytes prefix
    cdef Py_ssize_t count
    cdef int *columns
    cdef list kept          # has the memory of these

    def __cinit__(self, bytes prefix, tuple columns):
        cdef Py_ssize_t i
        self.prefix, self.count, self.kept = prefix, len(columns), []
        self.columns = <int *>zeroed(self.kept, self.count, sizeof(int))
        for i in range(self.count):
            self.columns[i] = columns[i]

    cdef bytes of(self, const Cell *cells, Buffer buffer):
        """The key of a row, as SeenTable.key() and RowKey.of() make it; None if a part of it is missing."""
        cdef Out *scratch = &buffer.out
        cdef Py_ssize_t i
        scratch.size = 0
        put_object(scratch, self.prefix)
        for i in range(self.count):
            if cells[self.columns[i]].data == NULL:
                return None
            put_cell(scratch, &cells[self.columns[i]])
        return PyBytes_FromStringAndSize(scratch.data, scratch.size)


@cython.final
cdef class SeenKey:
    """A version of a table (SeenTable)."""

    cdef object table
    cdef RowKey key         # None if its rows are not remembered
    cdef bint hides, has_others     # whether not all of a row is, and whether there is more than the key

    def __cinit__(self, table):
        self.table = table
        if table.keys:
            self.key = RowKey(table.prefix, table.keys)
        self.hides, self.has_others = bool(table.hidden), bool(table.others)


cdef inline Py_ssize_t seen_size(bytes key, bytes row) noexcept:
    """What a remembered row counts for."""
    return 0 if row is None else SEEN_ROW_SIZE + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(row)


@cython.final
cdef class SeenFiller:
    """Fills in the old rows of slices from SeenRows, and remembers their new ones."""

    cdef object seen
    cdef object rows        # of `seen`
    cdef dict tables        # by OID
    cdef Py_ssize_t size, limit
    cdef Cell[MOST_COLUMNS] before      # the cells of a row that was seen
    cdef Buffer scratch

    def __cinit__(self, seen):
        self.seen, self.rows, self.tables, self.scratch = seen, seen.rows, {}, Buffer()

    def fill(self, Slice rows):
        """Process the rows of a slice. It ends before the first row or transaction that only SeenRows can judge."""
        self.size, self.limit = self.seen.size, self.seen.limit
        try:
            self.fill_slice(rows)
        finally:
            self.seen.size = self.size

    cdef int fill_slice(self, Slice rows) except -1:
        cdef const TransactionEntry *entry
        cdef Py_ssize_t place, row
        cdef list tables = [None] * len(rows.relations)
        for place in range(rows.first_transaction, rows.end_transaction):
            entry = &rows.batch.transaction_entries[place]
            last_lsn = self.seen.last_lsn
            if rows.begins(entry):
                if entry.final_lsn <= last_lsn:
                    return rows.cut(place, entry.first_row, entry.begin, False)
                self.seen.last_lsn = entry.final_lsn
            for row in range(rows.first_row_of(entry), rows.end_row_of(entry)):
                if not self.fill_row(rows, row, tables):
                    if row == entry.first_row:      # the decoder gets its Begin
                        self.seen.last_lsn = last_lsn
                    return rows.cut_inside(place, row)
        return 0

    cdef SeenKey table(self, relation):
        """The table now, which forgets the rows of another version."""
        table = self.seen.table(relation)
        cdef SeenKey known = <SeenKey>self.tables.get(relation.oid)
        if known is None or known.table is not table:
            known = self.tables[relation.oid] = SeenKey(table)
        return known

    cdef bint fill_row(self, Slice rows, Py_ssize_t place, list tables) except -1:
        """Fill in the old row of a change and remember the new one; False if the slice must end before it."""
        cdef RowEntry *row = &rows.batch.row_entries[place]
        cdef const Cell *old = rows.batch.cell_entries + row.cells
        cdef const Cell *new = old + row.old_width
        cdef int op = row.shape // OLD_KINDS, old_kind = row.shape % OLD_KINDS
        cdef int columns = rows.tables[row.table].columns
        cdef SeenKey table = <SeenKey>tables[row.table]
        cdef bytes key, new_key, seen = None, now = None
        if table is None:
            table = tables[row.table] = self.table(rows.relations[row.table])
        if table.key is None:
            return True
        if table.hides or old_kind == OLD_FULL:
            return False
        key = table.key.of(new if old_kind == OLD_NONE else old, self.scratch)
        new_key = table.key.of(new, self.scratch) if op == OP_UPDATE and old_kind == OLD_KEY else key
        if key is None or new_key is None:
            return False
        if op == OP_UPDATE or op == OP_DELETE:
            seen = self.rows.get(key)
        if seen is not None and read_packed(
            <const uint8_t *>PyBytes_AS_STRING(seen), PyBytes_GET_SIZE(seen), columns, self.before
        ) < 0:
            return False
        if op != OP_DELETE:
            now = self.packed(new, columns, seen is not None)
            if self.size + seen_size(new_key, now) - seen_size(new_key, self.rows.get(new_key)) > self.limit:
                if place > rows.first_row:
                    return False        # rows are dropped after the ones before this were written
        if seen is not None and (op == OP_DELETE or new_key != key):
            self.drop(key)
        if op != OP_DELETE:
            self.drop(new_key)
            self.rows[new_key] = now
            self.size += seen_size(new_key, now)
            if self.size > self.limit:
                self.seen.size = self.size
                self.seen.make_room()
                self.size = self.seen.size
        if seen is not None and table.has_others:
            rows.batch.set_old(row, self.before, columns, seen)
            row.shape = <uint8_t>(OLD_KINDS * op + OLD_SEEN)
        return True

    cdef bytes packed(self, const Cell *new, int columns, bint known):
        """A new row with the values that were not sent, as far as they are `known` from the row before."""
        cdef Out *scratch = &self.scratch.out
        cdef int i
        scratch.size = 0
        for i in range(columns):
            put_cell(scratch, &self.before[i] if known and new[i].kind == c"u" else &new[i])
        return PyBytes_FromStringAndSize(scratch.data, scratch.size)

    cdef int drop(self, bytes key) except -2:
        self.size -= seen_size(key, self.rows.pop(key, None))
        return 0
