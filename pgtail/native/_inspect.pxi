"""The emitter of `pgtail inspect`: ordinary messages field by field, by the templates of hexview/rows.py."""

# ==== %-formats of Python with arguments that are written from bytes ===============================================

from re import compile as compiled_pattern

cdef object CONVERSION = compiled_pattern(r"%(?:%|(?:\((\w+)\))?(\.0)?(\d*)[ds])")

cdef enum:
    MOST_ARGUMENTS = 64     # of a format

cdef enum ArgumentKind:
    NUMBER_ARGUMENT
    LSN_ARGUMENT
    TIME_ARGUMENT
    HEX_ARGUMENT            # bytes in hexadecimal digits
    SPACED_ARGUMENT         # the same, with blanks between the bytes
    TEXT_ARGUMENT

cdef struct Argument:
    ArgumentKind kind
    uint64_t number         # also of an LSN or a time
    const uint8_t *data
    Py_ssize_t size

cdef struct FormatPart:
    Bytes text              # what precedes the argument
    int argument            # DECLINED: none follows
    int width               # numbers are right-aligned
    bint left_out


cdef inline Argument number_argument(ArgumentKind kind, uint64_t number) noexcept:
    cdef Argument argument
    argument.kind, argument.number, argument.data, argument.size = kind, number, NULL, 0
    return argument


cdef inline Argument bytes_argument(ArgumentKind kind, const uint8_t *data, Py_ssize_t size) noexcept:
    cdef Argument argument
    argument.kind, argument.number, argument.data, argument.size = kind, 0, data, size
    return argument


@cython.final
cdef class Format:
    """A %-format with %d, %5d, %s, %.0s and %%. `names` are those of its arguments if it names them: %(size)d."""

    cdef FormatPart *parts
    cdef int count
    cdef list texts

    def __cinit__(self, str template, tuple names=()):
        cdef FormatPart *part
        cdef int i
        cdef Py_ssize_t at = 0
        cdef str text = ""
        cdef list found = []
        for match in CONVERSION.finditer(template):
            text += template[at:match.start()]
            at = match.end()
            if match[0] == "%%":
                text += "%"
            else:
                found.append((text.encode(), names.index(match[1]) if match[1] else len(found), match[3], match[2]))
                text = ""
        found.append(((text + template[at:]).encode(), DECLINED, "", ""))
        if len(found) > MOST_ARGUMENTS:
            raise ValueError("too many arguments")
        self.texts = [one[0] for one in found]
        self.count = len(found)
        self.parts = <FormatPart *>PyMem_Calloc(self.count, sizeof(FormatPart))
        if self.parts == NULL:
            raise MemoryError
        for i in range(self.count):
            part = &self.parts[i]
            part.text, part.argument = view_of(self.texts[i]), found[i][1]
            part.width, part.left_out = int(found[i][2] or 0), bool(found[i][3])

    def __dealloc__(self):
        PyMem_Free(self.parts)

    cdef int put(self, Out *out, const Argument *arguments) except -2:
        cdef FormatPart *part
        cdef int i
        for i in range(self.count):
            part = &self.parts[i]
            reserve(out, part.text.size)
            put(out, part.text.data, part.text.size)
            if part.argument >= 0 and not part.left_out:
                put_argument(out, &arguments[part.argument], part.width)
        return 0


cdef int put_argument(Out *out, const Argument *argument, int width) except -2:
    cdef ArgumentKind kind = argument.kind
    if kind == HEX_ARGUMENT:
        reserve(out, 2 * argument.size)
        put_hex_bytes(out, argument.data, argument.size)
        return 0
    if kind == SPACED_ARGUMENT:
        return put_spaced_bytes(out, argument.data, argument.size)
    if kind == TEXT_ARGUMENT:
        reserve(out, argument.size)
        put(out, argument.data, argument.size)
        return 0
    reserve(out, FIELD_SIZE + width)
    if kind == NUMBER_ARGUMENT:
        put_blanks(out, width - digits_of(argument.number))
        put_unsigned(out, argument.number)
    elif kind == LSN_ARGUMENT:
        put_lsn(out, argument.number)
    else:
        put_time(out, <int64_t>argument.number, c" ")
    return 0


cdef inline int digits_of(uint64_t value) noexcept:
    cdef int digits = 1
    while value >= 10:
        value //= 10
        digits += 1
    return digits


cdef int put_spaced_bytes(Out *out, const uint8_t *data, Py_ssize_t size) except -2:
    cdef Py_ssize_t i
    reserve(out, 3 * size)
    for i in range(size):
        if i:
            put_char(out, c" ")
        put_hex_bytes(out, data + i, 1)
    return 0


# ==== the content of a cell: what content() of the views in hexview/ says, for ASCII text ==========================

cdef class Content:
    """Shows the contents of a column. `show`: how, if that is a ShownColumn; `python`(offset, cell) shows all others."""

    cdef ShownColumn show
    cdef object python

    cdef int put(self, Out *out, Out *scratch, uint64_t at, const Cell *cell) except -2:
        cdef Py_ssize_t shown = DECLINED
        if self.show is not None and cell.kind == c"t":
            shown = self.show.shown(cell.data, cell.size)
        if shown >= 0:
            return self.put_ascii(out, scratch, at, cell, shown)
        return put_object(out, self.python(at, cell_value(cell)).encode())

    cdef int put_ascii(self, Out *out, Out *scratch, uint64_t at, const Cell *cell, Py_ssize_t shown) except -2:
        """Show a text; only its first characters if `shown` is less than its size."""
        return DECLINED


@cython.final
cdef class JsonContent(Content):
    """A field in JSON. The format's arguments are offset, bytes and value."""

    cdef Format format

    def __cinit__(self, str template, show, python):
        self.format, self.python = Format(template), python
        self.show = show if isinstance(show, ShownColumn) else None

    cdef int put_ascii(self, Out *out, Out *scratch, uint64_t at, const Cell *cell, Py_ssize_t shown) except -2:
        cdef Argument[3] arguments
        cdef Py_ssize_t i
        scratch.size = 0
        reserve(scratch, 2 * shown + 2)
        if self.show.quoted:
            put_char(scratch, c"'")
        for i in range(shown):
            if cell.data[i] == c'"' or cell.data[i] == c"\\":
                put_char(scratch, c"\\")
            put_char(scratch, cell.data[i])
        if self.show.quoted:
            put_char(scratch, c"'")
        arguments[0] = number_argument(NUMBER_ARGUMENT, at)
        arguments[1] = bytes_argument(HEX_ARGUMENT, cell.data, cell.size)
        arguments[2] = bytes_argument(TEXT_ARGUMENT, <const uint8_t *>scratch.data, scratch.size)
        return self.format.put(out, arguments)


@cython.final
cdef class TextContent(Content):
    """Lines for people: offset and bytes at the left; name, type, value and a word at the right.

    `heads` are the lines of name and type with their widths. The value is beside them, from the first one on, or `below`.
    `left` has the offset and the bytes of a line, `more` the number of bytes that are not shown, `one_more` if that is 1.
    `left_width`, `indent` and `room` are the widths of the left half, of what precedes the value in the right half, and
    of the value. `step` bytes are in a line, with blanks between them if `spaced`; at most `most` are shown (negative:
    all). `ellipsis` follows a value that is cut.
    """

    cdef Format left, more
    cdef int left_width, indent, room, step, word_width
    cdef Py_ssize_t most
    cdef bint spaced, below
    cdef list heads
    cdef bytes one_more, gap_and_word, word, ellipsis

    def __cinit__(
        self, show, python, *, str left, str more, str one_more, int left_width, int indent, int room, int step,
        most, bint spaced, list heads, bint below, str gap_and_word, str word, int word_width, str ellipsis
    ):
        self.python = python
        self.show = show if isinstance(show, ShownColumn) else None
        self.left, self.more, self.one_more = Format(left), Format(more), one_more.encode()
        self.left_width, self.indent, self.room, self.step = left_width, indent, room, step
        self.most, self.spaced = -1 if most is None else most, spaced
        self.heads, self.below, self.ellipsis = heads, below, ellipsis.encode()
        self.gap_and_word, self.word, self.word_width = gap_and_word.encode(), word.encode(), word_width

    cdef int put_ascii(self, Out *out, Out *scratch, uint64_t at, const Cell *cell, Py_ssize_t shown) except -2:
        cdef Py_ssize_t end = cell.size if self.most < 0 else min(self.most, <Py_ssize_t>cell.size)
        cdef Py_ssize_t width = shown + 2 * self.show.quoted + (shown < cell.size)
        cdef Py_ssize_t values = (width + self.room - 1) // self.room
        cdef Py_ssize_t lefts = (end + self.step - 1) // self.step
        cdef bint word_below = width - (values - 1) * self.room + COLUMN_GAP + self.word_width > self.room
        cdef Py_ssize_t first = PyList_GET_SIZE(self.heads) if self.below else 0
        cdef Py_ssize_t end_of_values = first + values + (self.word_width and word_below)
        cdef Py_ssize_t rights = max(PyList_GET_SIZE(self.heads), end_of_values)
        cdef Py_ssize_t line, used
        for line in range(max(lefts, rights)):
            used = self.put_left(out, at, cell, line * self.step, end) if line < lefts else 0
            if line < rights:
                put_blanks(out, self.left_width - used)
                used = self.put_head(out, line)
                if first <= line < end_of_values:
                    put_blanks(out, self.indent - used)
                if first <= line < first + values:
                    self.put_value(out, cell, (line - first) * self.room, shown)
                if self.word_width and line == end_of_values - 1:
                    put_object(out, self.word if word_below else self.gap_and_word)
            reserve(out, 1)
            put_char(out, c"\n")
        if end < cell.size:
            self.put_more(out, cell.size - end)
        return 0

    cdef Py_ssize_t put_head(self, Out *out, Py_ssize_t line) except -2:
        """The line of name and type, if there is one; returns the width."""
        if line >= PyList_GET_SIZE(self.heads):
            return 0
        text, width = self.heads[line]
        put_object(out, text)
        return width

    cdef Py_ssize_t put_left(
        self, Out *out, uint64_t at, const Cell *cell, Py_ssize_t start, Py_ssize_t end
    ) except -2:
        """The bytes from `start` on; returns the width."""
        cdef Argument[2] arguments
        cdef Py_ssize_t size = min(self.step, end - start)
        arguments[0] = number_argument(NUMBER_ARGUMENT, at + start)
        arguments[1] = bytes_argument(SPACED_ARGUMENT if self.spaced else HEX_ARGUMENT, cell.data + start, size)
        self.left.put(out, arguments)
        return self.left_width - COLUMN_GAP - (3 if self.spaced else 2) * (self.step - size)

    cdef int put_more(self, Out *out, uint64_t count) except -2:
        """The line with the number of bytes that are not shown."""
        cdef Argument[1] arguments
        arguments[0] = number_argument(NUMBER_ARGUMENT, count)
        if count == 1:
            put_object(out, self.one_more)
        else:
            self.more.put(out, arguments)
        return put_object(out, b"\n")

    cdef int put_value(self, Out *out, const Cell *cell, Py_ssize_t start, Py_ssize_t shown) except -2:
        """The part of the value that is in one line."""
        cdef Py_ssize_t quote = self.show.quoted, i
        reserve(out, self.room)
        for i in range(start - quote, start - quote + self.room):
            if 0 <= i < shown:
                put_char(out, cell.data[i])
            elif quote and (i == -1 or i == shown):
                put_char(out, c"'")
        if shown < cell.size and start - quote <= shown + quote < start - quote + self.room:
            put_object(out, self.ellipsis)
        return 0


# ==== messages =====================================================================================================

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
        cdef Py_ssize_t at, after, stop, whole = 0, begin = -1, before_begin = 0
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
                after = self.message(data, pos + framing, at, stop, framing > 0, in_stream, base, number + 1)
                if after < 0:
                    break
                begin, before_begin = pos if data[at] == c"B" else -1, whole
                self.messages += 1
                number += 1
                pos = after + (framing == 0)
                whole = self.out.size
                if whole > FULL and begin < 0:
                    whole = 0
                    self.flush()
            if begin >= 0:
                # A Begin is left with what follows it: at the start of a capture's segment it may be a repeated one.
                self.messages -= 1
                whole, pos = before_begin, begin
        finally:
            PyBuffer_Release(&view)
            self.out.size = whole   # without a message that an exception broke off
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
        elif not in_stream and tag == c"B" and stop - at > 20 and u32(buf + at + 17):  # 0 begins a snapshot
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
