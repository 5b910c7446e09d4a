"""The content of a cell as `pgtail inspect` shows it: what content() of the views in hexview/ says, for ASCII text."""

cdef enum:
    COLUMN_GAP = 2          # cells; GAP of terminal/layout.py


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
