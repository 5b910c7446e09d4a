"""Rows of `changes` as the buffers of Arrow arrays (arrow/decoding), and texts from their parts."""

cdef enum:
    # For each row: native integers of the width at the end of the name, or one byte (validity, operation).
    OP_8
    TABLE_32
    SPECIAL_32
    XID_64
    SEQ_64
    POSITION_64
    TIME_64
    LSN_64
    LSN_VALID
    SIZE_64
    ORDINAL_64
    # Strings: offsets and bytes.
    COMMIT_ENDS
    COMMIT_TEXT
    LSN_ENDS
    LSN_TEXT
    # Lists and maps: one validity byte and one offset for each row, then the strings.
    UNCHANGED_VALID
    UNCHANGED_ENDS
    UNCHANGED_NAME_ENDS
    UNCHANGED_NAME_TEXT
    OLD_VALID
    OLD_ENDS
    OLD_NAME_ENDS
    OLD_NAME_TEXT
    OLD_VALUE_VALID
    OLD_VALUE_ENDS
    OLD_VALUE_TEXT
    NEW_VALID
    NEW_ENDS
    NEW_NAME_ENDS
    NEW_NAME_TEXT
    NEW_VALUE_VALID
    NEW_VALUE_ENDS
    NEW_VALUE_TEXT
    BUFFERS

cdef tuple BUFFER_NAMES = (     # in the same order
    "op", "table", "special", "xid", "seq", "position", "commit_ts", "lsn_number", "lsn_valid", "bytes", "ordinal",
    "commit_lsn_ends", "commit_lsn_text", "lsn_ends", "lsn_text",
    "unchanged_valid", "unchanged_ends", "unchanged_name_ends", "unchanged_name_text",
    "old_valid", "old_ends", "old_name_ends", "old_name_text", "old_value_valid", "old_value_ends", "old_value_text",
    "new_valid", "new_ends", "new_name_ends", "new_name_text", "new_value_valid", "new_value_ends", "new_value_text",
)

cdef enum:
    ENOUGH_ROWS = 32 * 1024
    ENOUGH_TEXT = 16 << 20
    MOST_TEXT = 64 << 20    # with the names of columns; no ordinary slice comes near


cdef inline void put_32(Out *out, int32_t value) noexcept:
    memcpy(out.data + out.size, &value, 4)
    out.size += 4


cdef inline int add_32(Out *out, int32_t value) except -2:
    reserve(out, 4)
    put_32(out, value)
    return 0


cdef inline int add_64(Out *out, int64_t value) except -2:
    reserve(out, 8)
    memcpy(out.data + out.size, &value, 8)
    out.size += 8
    return 0


cdef inline int add_8(Out *out, uint8_t value) except -2:
    reserve(out, 1)
    put_char(out, <char>value)
    return 0


cdef inline int add_string(Out *ends, const void *p, Py_ssize_t size) except -2:
    """Append a string to the offsets at `ends` and the bytes in the buffer after it."""
    cdef Out *text = ends + 1
    if size:
        reserve(text, size)
        put(text, p, size)
    return add_32(ends, <int32_t>text.size)


cdef int add_lsn(Out *ends, uint64_t lsn) except -2:
    cdef Out *text = ends + 1
    reserve(text, 20)
    put_lsn(text, lsn)
    return add_32(ends, <int32_t>text.size)


@cython.final
cdef class ColumnTable:
    """A version of a table with the UTF-8 names of its columns; `number` is its place in `relations` of the builder."""

    cdef object relation
    cdef list names
    cdef list keys
    cdef Py_ssize_t number, names_size

    def __cinit__(self, relation):
        self.relation, self.number = relation, NOWHERE
        self.names = [column.name.encode() for column in relation.columns]
        self.keys = [column.key for column in relation.columns]
        self.names_size = sum(map(len, self.names))


@cython.final
cdef class ColumnBuilder:
    """Writes the rows of slices, whose text is in UTF-8, to the buffers of Arrow arrays. See arrow/decoding/slices.py."""

    cdef Out[BUFFERS] out
    cdef readonly Py_ssize_t rows, size, ordinal
    cdef readonly list relations
    cdef dict tables        # ColumnTable by version
    # The slice, what of it comes next, and its ColumnTables.
    cdef Slice slice
    cdef list described
    cdef Py_ssize_t next_transaction, next_row
    # The current transaction: `before` is the ordinal of its first row less its seq.
    cdef int32_t special
    cdef uint32_t xid
    cdef uint64_t position
    cdef int64_t time
    cdef Py_ssize_t before

    def __cinit__(self):
        self.tables, self.relations = {}, []
        self.clear()

    def __dealloc__(self):
        cdef int i
        for i in range(BUFFERS):
            Py_XDECREF(self.out[i].object)

    cdef int clear(self) except -2:
        cdef int i
        for i in range(BUFFERS):
            self.out[i].size = 0
            if BUFFER_NAMES[i].endswith("_ends"):
                add_32(&self.out[i], 0)
        self.rows = 0
        return 0

    def take_buffers(self):
        """The buffers by name (BUFFER_NAMES), validity as bits; removes all rows and `relations`."""
        cdef int i
        cdef dict found = {}
        for i in range(BUFFERS):
            if BUFFER_NAMES[i].endswith("_valid"):
                pack_bits(&self.out[i])
            found[BUFFER_NAMES[i]] = PyBytes_FromStringAndSize(self.out[i].data, self.out[i].size)
        for relation in self.relations:
            (<ColumnTable>self.tables[relation.version]).number = NOWHERE
        self.relations = []
        self.clear()
        return found

    @property
    def full(self):
        """Whether it is time for take_buffers()."""
        return self.rows >= ENOUGH_ROWS or self.text_size() >= ENOUGH_TEXT

    cdef inline Py_ssize_t text_size(self) noexcept:
        cdef Py_ssize_t names = self.out[OLD_NAME_TEXT].size + self.out[NEW_NAME_TEXT].size
        return names + self.out[OLD_VALUE_TEXT].size + self.out[NEW_VALUE_TEXT].size

    def enter(self, Slice rows not None, transaction, int32_t special, Py_ssize_t ordinal):
        """add_rows() adds the rows of this slice next."""
        cdef ColumnTable table
        self.slice, self.described = rows, []
        self.next_transaction, self.next_row, self.ordinal = rows.first_transaction, rows.first_row, ordinal
        for relation in rows.relations:
            table = None if relation is None else self.tables.get(relation.version)
            if relation is not None and (table is None or table.relation is not relation):
                table = self.tables[relation.version] = ColumnTable(relation)
            self.described.append(table)
        if transaction is not None:
            self.special, self.before = special, ordinal - rows.base
            self.xid, self.position, self.time = transaction.xid or 0, transaction.lsn or 0, transaction.time or 0

    def add_rows(self):
        """Add the rest of the slice; returns the place of a row that it cannot add, or None at the end."""
        cdef Slice rows = self.slice
        cdef const TransactionEntry *entry
        cdef const RowEntry *row
        cdef Py_ssize_t end, base
        while self.next_transaction < rows.end_transaction:
            entry = &rows.batch.transaction_entries[self.next_transaction]
            if rows.begins(entry):
                self.special, self.before = 0, 0
                self.xid, self.position, self.time = entry.xid, entry.final_lsn, entry.begin_time
            end = rows.end_row_of(entry)
            base = rows.base_of(entry) - rows.first_row_of(entry)
            while self.next_row < end:
                row = &rows.batch.row_entries[self.next_row]
                self.next_row += 1
                if row.hidden:
                    continue
                self.ordinal, self.size = base + self.next_row + self.before, rows.batch.message_size(row)
                if self.add(<ColumnTable>self.described[row.table], row, base + self.next_row) < 0:
                    return self.next_row - 1
            self.ordinal = base + end + self.before
            self.next_transaction += 1
        self.slice = None
        return None

    cdef int add(self, ColumnTable table, const RowEntry *row, Py_ssize_t seq) except -2:
        """Add a row, or nothing of it if DECLINED."""
        cdef const Cell *old = self.slice.batch.cell_entries + row.cells
        cdef const Cell *new = old + row.old_width
        cdef int op = row.shape // OLD_KINDS, old_kind = row.shape % OLD_KINDS, i
        if self.text_size() >= MOST_TEXT:
            return DECLINED
        for i in range(row.old_width + row.new_width):
            if old[i].kind == c"b" or (old[i].kind == c"t" and not is_utf8(old[i].data, old[i].size)):
                return DECLINED
        if table.number == NOWHERE:
            table.number = len(self.relations)
            self.relations.append(table.relation)
        self.add_cells(table, old, row.old_width, old_kind == OLD_KEY, OLD_NAME_ENDS)
        self.add_cells(table, new, row.new_width, False, NEW_NAME_ENDS)
        self.end_map(OLD_VALID, old_kind != OLD_NONE, OLD_NAME_ENDS)
        self.end_map(NEW_VALID, op != OP_DELETE, NEW_NAME_ENDS)
        self.end_map(UNCHANGED_VALID, row.unchanged > 0, UNCHANGED_NAME_ENDS)
        add_8(&self.out[OP_8], op)
        add_32(&self.out[TABLE_32], <int32_t>(2 * table.number + (op == OP_INSERT or op == OP_SNAPSHOT)))
        add_32(&self.out[SPECIAL_32], self.special)
        add_64(&self.out[SEQ_64], seq)
        add_64(&self.out[ORDINAL_64], self.ordinal)
        add_64(&self.out[SIZE_64], self.size)
        add_64(&self.out[LSN_64], <int64_t>row.lsn)
        add_8(&self.out[LSN_VALID], row.lsn != 0)
        if row.lsn:
            add_lsn(&self.out[LSN_ENDS], row.lsn)
        else:
            add_string(&self.out[LSN_ENDS], NULL, 0)
        add_64(&self.out[XID_64], self.xid)
        add_64(&self.out[POSITION_64], <int64_t>self.position)
        add_64(&self.out[TIME_64], self.time + EPOCH)
        add_lsn(&self.out[COMMIT_ENDS], self.position)
        self.rows += 1
        return 0

    cdef int end_map(self, int valid, bint value, int name_ends) except -2:
        """End a row's map or list: append the number of strings so far."""
        add_8(&self.out[valid], value)
        return add_32(&self.out[valid + 1], <int32_t>(self.out[name_ends].size // 4 - 1))

    cdef int add_cells(self, ColumnTable table, const Cell *cells, int width, bint key_only, int names) except -2:
        """Add the cells of a tuple of the row."""
        cdef Out *out = &self.out[names]
        cdef const Cell *cell
        cdef bytes name
        cdef int i
        reserve(out, 4 * width)
        reserve(out + 1, table.names_size)
        reserve(out + 2, width)
        reserve(out + 3, 4 * width)
        for i in range(width):
            cell, name = &cells[i], <bytes>table.names[i]
            if cell.kind == c"u":
                add_string(&self.out[UNCHANGED_NAME_ENDS], PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            elif cell.kind == c"t" or not key_only or table.keys[i]:
                put(out + 1, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
                put_32(out, <int32_t>out[1].size)
                put_char(out + 2, cell.kind == c"t")
                reserve(out + 4, cell.size)
                put(out + 4, cell.data, cell.size)
                put_32(out + 3, <int32_t>out[4].size)
        return 0


cdef void pack_bits(Out *out) noexcept:
    """Turn one byte per value into one bit per value, lowest bit first, in place."""
    cdef Py_ssize_t i, count = out.size
    cdef uint8_t *data = <uint8_t *>out.data
    cdef uint8_t bits = 0
    for i in range(count):
        bits |= (data[i] != 0) << (i & 7)
        if i & 7 == 7:
            data[i >> 3] = bits
            bits = 0
    if count & 7:
        data[count >> 3] = bits
    out.size = (count + 7) // 8


@cython.final
cdef class Strings:
    """An Arrow array of strings that is being written; `name` and `place` are those of its column."""

    cdef Out valid, ends, text
    cdef bytes name
    cdef Py_ssize_t place, entry

    def __cinit__(self, Py_ssize_t room, str name="", Py_ssize_t place=0):
        self.name, self.place, self.entry = name.encode(), place, -1
        new_object(&self.valid, room // 4)
        new_object(&self.ends, room)
        new_object(&self.text, room)
        add_32(&self.ends, 0)

    def __dealloc__(self):
        Py_XDECREF(self.valid.object)
        Py_XDECREF(self.ends.object)
        Py_XDECREF(self.text.object)

    cdef inline int add(self, const uint8_t *p, Py_ssize_t size) except -2:
        add_8(&self.valid, True)
        return add_string(&self.ends, p, size)

    cdef inline int add_null(self) except -2:
        add_8(&self.valid, False)
        return add_32(&self.ends, <int32_t>self.text.size)

    cdef tuple take_buffers(self):
        pack_bits(&self.valid)
        return finished(&self.valid), finished(&self.ends), finished(&self.text)


cdef const void *data_of(buffer) except? NULL:
    """The data of a buffer that stays as it is, and that the caller keeps; NULL for None."""
    cdef Py_buffer view
    if buffer is None:
        return NULL
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    PyBuffer_Release(&view)
    return view.buf


def split_maps(list names not None, Py_ssize_t rows, offsets, key_ends, key_text, value_ends, value_text, value_valid):
    """For each name the strings of these maps, NULL in a map that lacks it, as the buffers of an Arrow array.

    The others are the buffers of the maps' arrays, but `value_valid`, which has a byte for each value; None for all.
    """
    cdef const int32_t *offset = <const int32_t *>data_of(offsets)
    cdef const int32_t *key_end = <const int32_t *>data_of(key_ends)
    cdef const int32_t *value_end = <const int32_t *>data_of(value_ends)
    cdef const uint8_t *keys = <const uint8_t *>data_of(key_text)
    cdef const uint8_t *values = <const uint8_t *>data_of(value_text)
    cdef const uint8_t *valid = <const uint8_t *>data_of(value_valid)
    cdef list columns = [Strings(4 * rows + 4, name, place) for place, name in enumerate(names)]
    cdef dict named = {(<Strings>column).name: column for column in columns}
    cdef Py_ssize_t row, entry, size, place = 0, width = len(columns)
    cdef const uint8_t *key
    cdef Strings column
    for row in range(rows if width else 0):
        for entry in range(offset[row], offset[row + 1]):
            key, size = keys + key_end[entry], key_end[entry + 1] - key_end[entry]
            column = <Strings>columns[place]    # most maps have the same names in the same order
            if size != PyBytes_GET_SIZE(column.name) or memcmp(key, PyBytes_AS_STRING(column.name), size):
                column = <Strings>named.get(key[:size])
                if column is None:
                    continue
            column.entry = entry
            place = column.place + 1 if column.place + 1 < width else 0
        for column in columns:
            entry = column.entry
            if entry < 0 or (valid != NULL and not valid[entry]):
                column.add_null()
            else:
                column.add(values + value_end[entry], value_end[entry + 1] - value_end[entry])
            column.entry = -1
    return [(<Strings>column).take_buffers() for column in columns]
