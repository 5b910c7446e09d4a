"""Values as tables show them: what ValueStyle.of_column() in terminal/values.py says, for ASCII text."""

cdef enum:
    MOST_SHOWN = 64 * 1024  # bytes; larger cells are left to Python


@cython.final
cdef class ShownColumn:
    """Shows the cells of a column whose text is the cell: (width, item), after a label.

    `room` is the number of characters that are shown; longer texts are cut there and get the fragments `more`, one cell
    wide, unless these are empty. `show` is called for all cells that are not text of printable ASCII characters, and for
    text with quotes if it is to be `quoted`.
    """

    cdef tuple label, more
    cdef str style
    cdef object show, null
    cdef Py_ssize_t around, room
    cdef bint quoted

    def __cinit__(self, tuple label, str style, Py_ssize_t width, Py_ssize_t room, bint quoted, tuple more, show):
        self.label, self.style, self.more, self.show, self.quoted = label, style, more, show, quoted
        self.around, self.room = width + 2 * quoted, room - 2 * quoted
        self.null = show(None)

    cdef Py_ssize_t shown(self, const uint8_t *p, Py_ssize_t size) noexcept:
        """How many characters of a text are shown, before `more` if not all; DECLINED if Python must show it."""
        if not 0 < size <= MOST_SHOWN or (size > self.room and not self.more):
            return DECLINED
        if copy_plain(NULL, p, size, 0x7F, c"'" if self.quoted else 0x7F, 0x7F) < size:
            return DECLINED
        return size if size <= self.room else self.room - 1

    def __call__(self, cell):
        cdef const uint8_t *p
        cdef Py_ssize_t shown
        cdef str text
        if cell is None:
            return self.null
        if type(cell) is not bytes:
            return self.show(cell)
        p = <const uint8_t *>PyBytes_AS_STRING(cell)
        shown = self.shown(p, PyBytes_GET_SIZE(cell))
        if shown < 0:
            return self.show(cell)
        text = PyUnicode_DecodeASCII(<const char *>p, shown, NULL)
        if self.quoted:
            text = f"'{text}'"
        if shown < PyBytes_GET_SIZE(cell):
            return self.around + self.room, self.label + ((text, self.style),) + self.more
        return self.around + shown, self.label + ((text, self.style),)
