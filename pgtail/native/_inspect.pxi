"""The emitter of `pgtail inspect`: ordinary messages field by field, by the templates of hexview/rows.py."""

cdef enum:
    MOST_FIELDS = 16        # before the cells of a tuple
    MOST_INSPECTED = 64 * 1024      # bytes; longer messages are left to Python

cdef tuple HEAD_NAMES = ("number", "offset", "size", "lsn")
cdef dict FIELD_KINDS = {
    "Int64 (XLogRecPtr)": LSN_ARGUMENT,
    "Int64 (TimestampTz)": TIME_ARGUMENT,
    "Int32 (TransactionId)": NUMBER_ARGUMENT,
}

cdef struct FieldPlace:
    Py_ssize_t start, end   # in the bytes before the cells of a tuple
    bint varies             # whether the format has its bytes and value
    ArgumentKind kind       # of the value


@cython.final
cdef class FieldsBefore:
    """The fields before the cells of a tuple: `places` has the (start, end, type or "") of each, "" if it never varies."""

    cdef Format format
    cdef Py_ssize_t size
    cdef int count
    cdef FieldPlace[MOST_FIELDS] places

    def __cinit__(self, str template, Py_ssize_t size, list places):
        cdef int i
        self.format, self.size, self.count = Format(template), size, len(places)
        if self.count > MOST_FIELDS:
            raise ValueError("too many fields")
        for i in range(self.count):
            self.places[i].start, self.places[i].end, type_ = places[i]
            self.places[i].varies = type_ != ""
            self.places[i].kind = <ArgumentKind><int>FIELD_KINDS.get(type_, NUMBER_ARGUMENT)

    cdef int put(self, Out *out, uint64_t at, const uint8_t *data, bint spaced) except -2:
        cdef Argument[3 * MOST_FIELDS] arguments
        cdef FieldPlace *place
        cdef int i, count = 0
        cdef Py_ssize_t size
        for i in range(self.count):
            place = &self.places[i]
            arguments[count] = number_argument(NUMBER_ARGUMENT, at + place.start)
            count += 1
            if place.varies:
                size = place.end - place.start
                arguments[count] = bytes_argument(
                    SPACED_ARGUMENT if spaced else HEX_ARGUMENT, data + place.start, size
                )
                arguments[count + 1] = number_argument(
                    place.kind, u64(data + place.start) if size == 8 else u32(data + place.start)
                )
                count += 2
        return self.format.put(out, arguments)


@cython.final
cdef class ShownCell:
    """One kind of cell of a column: the format of its kind and length, and its content if it has one."""

    cdef Format head
    cdef Content content

    def __cinit__(self, str head, Content content):
        self.head, self.content = Format(head), content


@cython.final
cdef class MessageFormat:
    """How to show the messages of one shape: `cells` has those of each tuple, by column and kind (t, b, n, u).

    `room` is the most cells that the arguments of `head` may take together; negative for any number.
    """

    cdef Format head
    cdef int room
    cdef list before, cells

    def __cinit__(self, str head, room, list before, list cells):
        self.head, self.room = Format(head, HEAD_NAMES), -1 if room is None else room
        self.before, self.cells = before, cells


@cython.final
cdef class InspectedTable:
    """A table, with the formats of its messages by their keys."""

    cdef int columns
    cdef dict formats

    def __cinit__(self, relation, dict formats):
        self.columns, self.formats = len(relation.columns), formats


@cython.final
cdef class InspectScanner:
    """Shows messages that are like others before them; see hexview/rows.py.

    `find(OID)` returns a relation or None, `formats(relation or None)` the formats of its messages by their keys.
    `separator` is what is between two fields, `end` what follows the last one; `spaced`: bytes have blanks between them.
    """

    cdef object find, formats, write
    cdef bytes separator, end
    cdef bint spaced
    cdef dict tables, others
    cdef InspectedTable table       # of the current message
    cdef Cell *cells[2]     # of its tuples
    cdef int tuples
    cdef Out out, scratch, key
    cdef readonly Py_ssize_t messages
    """How many messages the last run showed."""

    def __cinit__(self, find, formats, write, str separator, str end, bint spaced):
        cdef int i
        self.find, self.formats, self.write = find, formats, write
        self.separator, self.end, self.spaced = separator.encode(), end.encode(), spaced
        self.forget()
        for i in range(2):
            self.cells[i] = <Cell *>PyMem_Malloc(MOST_COLUMNS * sizeof(Cell))
            if self.cells[i] == NULL:
                raise MemoryError
        grow(&self.out, FULL)
        grow(&self.scratch, 1024)
        grow(&self.key, 4 + 2 * MOST_COLUMNS)

    def __dealloc__(self):
        PyMem_Free(self.cells[0])
        PyMem_Free(self.cells[1])
        PyMem_Free(self.out.data)
        PyMem_Free(self.scratch.data)
        PyMem_Free(self.key.data)

    def forget(self):
        """Drop cached tables: they or the formats may have changed."""
        self.tables, self.others = {}, self.formats(None)

    def scan(self, buf, Py_ssize_t pos, Py_ssize_t end, int framing, bint in_stream, int64_t base, int64_t number,
             Py_ssize_t most):
        """Show messages of buf[pos:end], at most `most`; returns where the first one starts that is left.

        `base` is the offset of the buffer in its source, `number` that of the message before.
        """
        cdef Py_buffer view
        cdef Py_ssize_t at, after, stop, mark, begin = -1, before_begin = 0
        cdef const uint8_t *data
        self.messages = self.out.size = 0
        PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= pos <= end <= view.len:
                raise ValueError("not a part of the buffer")
            data = <const uint8_t *>view.buf
            while pos < end and self.messages < most:
                at, stop = pos, end
                if framing:
                    stop = frame_end(data, pos, end, framing)
                    if stop < 0:
                        break
                    at = pos + framing + HEADER
                mark = self.out.size
                after = self.message(data, pos + framing, at, stop, framing > 0, in_stream, base, number + 1)
                if after < 0:
                    self.out.size = mark
                    break
                begin, before_begin = pos if data[at] == c"B" else -1, mark
                self.messages += 1
                number += 1
                pos = after + (framing == 0)
                if self.out.size > FULL and begin < 0:
                    self.flush()
            if begin >= 0:
                # A Begin is left with what follows it: at the start of a capture's segment it may be a repeated one.
                self.messages -= 1
                self.out.size, pos = before_begin, begin
        finally:
            PyBuffer_Release(&view)
            self.flush()
        return pos

    cdef int flush(self) except -2:
        cdef bytes text = PyBytes_FromStringAndSize(self.out.data, self.out.size)
        self.out.size = 0
        if text:
            self.write(text)
        return 0

    cdef Py_ssize_t message(
        self, const uint8_t *buf, Py_ssize_t start, Py_ssize_t at, Py_ssize_t stop, bint framed, bint in_stream,
        int64_t base, int64_t number
    ) except -2:
        """Show the message at `at`, whose frame is buf[start:stop]; returns its end, or DECLINED."""
        cdef Py_ssize_t after = DECLINED
        cdef uint64_t lsn = u64(buf + start + 1) if framed else 0
        cdef MessageFormat format
        cdef uint8_t tag = buf[at]
        self.table, self.key.size, self.tuples = None, 0, 0
        put_char(&self.key, tag)
        put_char(&self.key, framed | in_stream << 1 | (lsn != 0) << 2)
        if tag == c"I" or tag == c"U" or tag == c"D":
            after = self.read_row(buf, at, stop, 4 if in_stream else 0)
        elif not in_stream and tag == c"B":
            after = at + 21
        elif not in_stream and tag == c"C" and stop - at > 1 and buf[at + 1] == 0:
            after = at + 26
        if after < 0 or not ends_here(buf, after, stop, framed) or after - start > MOST_INSPECTED:
            return DECLINED
        put_char(&self.key, <char>digits_of(base + after))
        formats = self.others if self.table is None else self.table.formats
        format = formats.get(PyBytes_FromStringAndSize(self.key.data, self.key.size))
        if format is None or self.put_head(format, number, base + start, after - start, lsn) < 0:
            return DECLINED
        self.put_fields(format, buf, start, base)
        return after

    cdef Py_ssize_t read_row(self, const uint8_t *buf, Py_ssize_t at, Py_ssize_t stop, int xid_size) except -2:
        """Read the tuples of a row message and add what they are to the key; returns its end, or DECLINED."""
        cdef uint8_t tag = buf[at], kind
        cdef Py_ssize_t pos = at + 6 + xid_size
        if stop - at < 8 + xid_size:
            return DECLINED
        self.table = self.table_of(u32(buf + pos - 5))
        kind = buf[pos - 1]
        if self.table is None or (kind != c"N" and (tag == c"I" or (kind != c"K" and kind != c"O"))):
            return DECLINED
        if kind == c"N" and tag == c"D":
            return DECLINED
        put_char(&self.key, kind)
        pos = self.read_cells(buf, pos, stop)
        if tag == c"U" and kind != c"N" and pos >= 0:
            if pos >= stop or buf[pos] != c"N":
                return DECLINED
            pos = self.read_cells(buf, pos + 1, stop)
        return pos

    cdef Py_ssize_t read_cells(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t stop) except -2:
        cdef Cell *cells = self.cells[self.tuples]
        cdef int unchanged, i
        self.tuples += 1
        pos = read_tuple(buf, pos, stop, self.table.columns, cells, &unchanged)
        if pos >= 0:
            for i in range(self.table.columns):
                put_char(&self.key, cells[i].kind)
        return pos

    cdef InspectedTable table_of(self, uint32_t oid):
        """The current version of the table; None if it was not described."""
        cdef InspectedTable table = self.tables.get(oid)
        if table is None:
            relation = self.find(oid)
            if relation is not None:
                table = self.tables[oid] = InspectedTable(relation, self.formats(relation))
        return table

    cdef int put_head(
        self, MessageFormat format, uint64_t number, uint64_t offset, Py_ssize_t size, uint64_t lsn
    ) except -2:
        """What precedes the fields. DECLINED if it has no room in one line."""
        cdef Argument[4] arguments
        arguments[0] = number_argument(NUMBER_ARGUMENT, number)
        arguments[1] = number_argument(NUMBER_ARGUMENT, offset)
        arguments[2] = number_argument(NUMBER_ARGUMENT, size)
        arguments[3] = number_argument(LSN_ARGUMENT, lsn)
        if format.room >= 0:
            self.scratch.size = 0
            if lsn:
                put_lsn(&self.scratch, lsn)
            if digits_of(number) + digits_of(offset) + digits_of(size) + self.scratch.size > format.room:
                return DECLINED
        return format.head.put(&self.out, arguments)

    cdef int put_fields(self, MessageFormat format, const uint8_t *buf, Py_ssize_t start, int64_t base) except -2:
        """The fields of the message that starts at `start`."""
        cdef Out *out = &self.out
        cdef FieldsBefore before
        cdef int place
        cdef Py_ssize_t at = start
        for place in range(len(format.before)):
            before = <FieldsBefore>format.before[place]
            if place:
                put_object(out, self.separator)
            before.put(out, base + at, buf + at, self.spaced)
            at += before.size
            if place < self.tuples:
                at = self.put_cells(<list>format.cells[place], self.cells[place], at, base)
        return put_object(out, self.end)

    cdef Py_ssize_t put_cells(self, list columns, const Cell *cells, Py_ssize_t at, int64_t base) except -2:
        """The fields of a tuple, whose cells start at `at`; returns where they end."""
        cdef Out *out = &self.out
        cdef Argument[4] arguments
        cdef const Cell *cell
        cdef ShownCell how
        cdef int i
        for i in range(self.table.columns):
            cell = &cells[i]
            how = <ShownCell>(<dict>columns[i])[cell.kind]
            arguments[0] = number_argument(NUMBER_ARGUMENT, base + at)
            arguments[1] = number_argument(NUMBER_ARGUMENT, base + at + 1)
            put_object(out, self.separator)
            at += 1
            if cell.data != NULL:
                arguments[2] = bytes_argument(
                    SPACED_ARGUMENT if self.spaced else HEX_ARGUMENT, cell.data - 4, 4
                )
                arguments[3] = number_argument(NUMBER_ARGUMENT, cell.size)
            how.head.put(out, arguments)
            if cell.data != NULL:
                put_object(out, self.separator)
                how.content.put(out, &self.scratch, base + at + 4, cell)
                at += 4 + cell.size
        return at
