"""The Arrow emitter: the rows of `changes` as the buffers of Arrow arrays (arrow/decoding), and texts from their parts.
"""

cdef enum:
    # For each row: native integers of the width at the end of the name, or one byte (validity, operation).
    OP_8
    TABLE_32
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

cdef dict BUFFER_NAMES = {
    OP_8: "op", TABLE_32: "table", XID_64: "xid", SEQ_64: "seq", POSITION_64: "position", TIME_64: "commit_ts",
    LSN_64: "lsn_number", LSN_VALID: "lsn_valid", SIZE_64: "bytes", ORDINAL_64: "ordinal",
    COMMIT_ENDS: "commit_lsn_ends", COMMIT_TEXT: "commit_lsn_text", LSN_ENDS: "lsn_ends", LSN_TEXT: "lsn_text",
    UNCHANGED_VALID: "unchanged_valid", UNCHANGED_ENDS: "unchanged_ends",
    UNCHANGED_NAME_ENDS: "unchanged_name_ends", UNCHANGED_NAME_TEXT: "unchanged_name_text", OLD_VALID: "old_valid",
    OLD_ENDS: "old_ends", OLD_NAME_ENDS: "old_name_ends", OLD_NAME_TEXT: "old_name_text",
    OLD_VALUE_VALID: "old_value_valid", OLD_VALUE_ENDS: "old_value_ends", OLD_VALUE_TEXT: "old_value_text",
    NEW_VALID: "new_valid", NEW_ENDS: "new_ends", NEW_NAME_ENDS: "new_name_ends", NEW_NAME_TEXT: "new_name_text",
    NEW_VALUE_VALID: "new_value_valid", NEW_VALUE_ENDS: "new_value_ends", NEW_VALUE_TEXT: "new_value_text",
}
cdef int[5] BITS = [LSN_VALID, UNCHANGED_VALID, OLD_VALID, OLD_VALUE_VALID, NEW_VALUE_VALID]
cdef int[7] STARTS = [
    COMMIT_ENDS, LSN_ENDS, UNCHANGED_ENDS, UNCHANGED_NAME_ENDS, OLD_ENDS, OLD_NAME_ENDS, OLD_VALUE_ENDS
]

cdef enum:
    MOST_ROWS = 64 * 1024
    MOST_TEXT = 16 << 20


cdef inline int add_32(Out *out, int32_t value) except -2:
    reserve(out, 4)
    put(out, &value, 4)
    return 0


cdef inline int add_64(Out *out, int64_t value) except -2:
    reserve(out, 8)
    put(out, &value, 8)
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
cdef class ColumnTable(Table):
    """A table with its number and the UTF-8 names of its columns."""

    cdef list names
    cdef list keys
    cdef int number


@cython.final
cdef class ColumnScanner(Scanner):
    """Writes ordinary rows to the buffers of Arrow arrays.

    `find(oid)` returns (relation, number, whether rows are shown) for the current version of the table, or None. Only
    for walsender frames in UTF-8 without streamed transactions; text tuples only.
    """

    cdef Out[BUFFERS] out
    cdef bint alone
    cdef readonly Py_ssize_t buffered   # rows in the buffers
    cdef Py_ssize_t before          # ordinal of the run's first row less its seq

    def __cinit__(self, *_):
        self.clear()

    def __dealloc__(self):
        cdef int i
        for i in range(BUFFERS):
            PyMem_Free(self.out[i].data)

    cdef int clear(self) except -2:
        cdef int i
        for i in range(BUFFERS):
            self.out[i].size = 0
        for i in range(7):
            add_32(&self.out[STARTS[i]], 0)
        for i in (NEW_ENDS, NEW_NAME_ENDS, NEW_VALUE_ENDS):
            add_32(&self.out[i], 0)
        self.buffered = 0
        return 0

    @property
    def full(self):
        """Whether the buffers are large enough to take()."""
        return self.is_full()

    @property
    def ordinal(self):
        """The number of the current transaction's last row, counted in this segment."""
        return self.seq + self.before

    def enter_at(self, transaction, ordinal, alone):
        """The next run starts inside this transaction; if `alone`, it does not continue after the Commit."""
        self.enter(transaction, True)
        self.commit_lsn, self.commit_ts = transaction.lsn or 0, transaction.time or 0
        self.alone, self.before = alone, ordinal - transaction.changes

    def take_buffers(self):
        """The buffers by name (BUFFER_NAMES), validity as bits; removes all rows."""
        cdef int i
        cdef dict found = {}
        for i in range(5):
            pack_bits(&self.out[BITS[i]])
        pack_bits(&self.out[NEW_VALID])
        for i in range(BUFFERS):
            found[BUFFER_NAMES[i]] = PyBytes_FromStringAndSize(self.out[i].data, self.out[i].size)
        self.clear()
        return found

    cdef bint is_full(self) noexcept:
        cdef Py_ssize_t size = self.out[NEW_VALUE_TEXT].size + self.out[OLD_VALUE_TEXT].size
        size += self.out[NEW_NAME_TEXT].size + self.out[OLD_NAME_TEXT].size
        return self.buffered >= MOST_ROWS or size >= MOST_TEXT

    cdef bint may_commit(self) noexcept:
        return not self.alone

    cdef int start(self) except -2:
        if self.commit_lsn >> 63 or self.commit_ts > LATEST_UNIX:
            return DECLINED
        self.alone, self.before = False, 0
        return 0

    cdef Table describe(self, found):
        relation, number, shown = found
        cdef ColumnTable table = ColumnTable(relation)
        table.number = number
        table.names = [column.name.encode() for column in relation.columns]
        table.keys = [column.key for column in relation.columns]
        table.show(shown)
        return table

    cdef int emit(self, Table described, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        cdef ColumnTable table = <ColumnTable>described
        cdef Py_ssize_t[BUFFERS] mark
        cdef int i
        if lsn >> 63:
            return DECLINED
        for i in range(BUFFERS):
            mark[i] = self.out[i].size
        if self.add(table, op, kind, lsn, size) < 0:
            for i in range(BUFFERS):
                self.out[i].size = mark[i]
            return DECLINED
        self.buffered += 1
        return 0

    cdef int add(self, ColumnTable table, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        if kind != c"N" and self.cells(table, self.old, kind == c"K", OLD_NAME_ENDS) < 0:
            return DECLINED
        if op != OP_DELETE and self.cells(table, self.new, False, NEW_NAME_ENDS) < 0:
            return DECLINED
        self.map(OLD_VALID, kind != c"N", OLD_NAME_ENDS)
        self.map(NEW_VALID, op != OP_DELETE, NEW_NAME_ENDS)
        self.map(UNCHANGED_VALID, op != OP_DELETE and self.unchanged > 0, UNCHANGED_NAME_ENDS)
        add_8(&self.out[OP_8], op)
        add_32(&self.out[TABLE_32], 2 * table.number + (op == OP_INSERT or op == OP_SNAPSHOT))
        add_64(&self.out[SEQ_64], self.seq + 1)
        add_64(&self.out[ORDINAL_64], self.seq + self.before + 1)
        add_64(&self.out[SIZE_64], size)
        add_64(&self.out[LSN_64], <int64_t>lsn)
        add_8(&self.out[LSN_VALID], lsn != 0)
        if lsn:
            add_lsn(&self.out[LSN_ENDS], lsn)
        else:
            add_string(&self.out[LSN_ENDS], NULL, 0)
        add_64(&self.out[XID_64], self.xid)
        add_64(&self.out[POSITION_64], <int64_t>self.commit_lsn)
        add_64(&self.out[TIME_64], self.commit_ts + EPOCH)
        return add_lsn(&self.out[COMMIT_ENDS], self.commit_lsn)

    cdef int map(self, int valid, bint value, int name_ends) except -2:
        """End a row's map or list: append the number of strings so far."""
        add_8(&self.out[valid], value)
        return add_32(&self.out[valid + 1], <int32_t>(self.out[name_ends].size // 4 - 1))

    cdef int cells(self, ColumnTable table, const Cell *cells, bint key_only, int names) except -2:
        """Add the cells of a tuple; DECLINED if one is binary or no text."""
        cdef Out *out = &self.out[names]
        cdef const Cell *cell
        cdef bytes name
        cdef int i
        for i in range(table.columns):
            cell, name = &cells[i], <bytes>table.names[i]
            if cell.kind == c"t":
                if not is_utf8(cell.data, cell.size) or out[3].size + cell.size > MOST_TEXT * 8:
                    return DECLINED
                add_string(out, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
                add_8(out + 2, 1)
                add_string(out + 3, cell.data, cell.size)
            elif cell.kind == c"n":
                if key_only and not table.keys[i]:
                    continue
                add_string(out, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
                add_8(out + 2, 0)
                add_string(out + 3, NULL, 0)
            elif cell.kind == c"u":
                add_string(&self.out[UNCHANGED_NAME_ENDS], PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            else:
                return DECLINED
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
        self.valid = self.ends = self.text = no_bytes()
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
