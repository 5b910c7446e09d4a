"""Frames and tuples: where they start and end. Every length is checked against the end of the buffer before use."""

cdef struct Cell:
    const uint8_t *data
    uint32_t size
    uint8_t kind            # as in the message: n, u, t or b


cdef inline Py_ssize_t frame_end(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int framing) noexcept:
    """Where the XLogData frame at `pos` ends, for the framings of pgoutput/frames.py.

    DECLINED if it is another frame, incomplete, or large.
    """
    cdef uint32_t size
    if end - pos < framing + HEADER + 1 or (framing == 5 and buf[pos] != c"d"):
        return DECLINED
    size = u32(buf + pos + framing - 4)
    if framing == 5:
        size -= 4
    pos += framing
    if size > end - pos or size < HEADER + 1 or size > LARGE or buf[pos] != c"w":
        return DECLINED
    return pos + size


cdef inline bint ends_here(const uint8_t *buf, Py_ssize_t after, Py_ssize_t stop, bint framed) noexcept:
    """Whether a message of known size ends where its frame does, or with a newline."""
    return after == stop if framed else after < stop and buf[after] == c"\n"


cdef Py_ssize_t skip_tuple(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int expected) noexcept:
    """Where a tuple ends; DECLINED if it is incomplete or does not have `expected` columns (-1: any number)."""
    cdef int left
    cdef uint32_t size
    if end - pos < 2:
        return DECLINED
    left = u16(buf + pos)
    if left != expected and (expected >= 0 or left > MOST_COLUMNS):
        return DECLINED
    pos += 2
    while left:
        left -= 1
        if pos >= end:
            return DECLINED
        if buf[pos] == c"n" or buf[pos] == c"u":
            pos += 1
        elif buf[pos] == c"t" or buf[pos] == c"b":
            if end - pos < 5:
                return DECLINED
            size = u32(buf + pos + 1)
            if size > end - pos - 5:
                return DECLINED
            pos += 5 + size
        else:
            return DECLINED
    return pos


cdef Py_ssize_t read_tuple(
    const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int expected, Cell *cells, int *unchanged
) noexcept:
    """Where a tuple ends, with its cells; DECLINED as for skip_tuple(). `unchanged` gets the number of unchanged cells."""
    cdef int i
    cdef uint32_t size
    cdef uint8_t kind
    unchanged[0] = 0
    if end - pos < 2 or u16(buf + pos) != expected:
        return DECLINED
    pos += 2
    for i in range(expected):
        if pos >= end:
            return DECLINED
        kind = buf[pos]
        cells[i].kind = kind
        if kind == c"t" or kind == c"b":
            if end - pos < 5:
                return DECLINED
            size = u32(buf + pos + 1)
            pos += 5
            if size > end - pos:
                return DECLINED
            cells[i].data, cells[i].size = buf + pos, size
            pos += size
        elif kind == c"n" or kind == c"u":
            cells[i].data, cells[i].size = NULL, 0
            unchanged[0] += kind == c"u"
            pos += 1
        else:
            return DECLINED
    return pos


cdef inline bint same_cell(const Cell *one, const Cell *other) noexcept:
    """Whether two cells have the same value, or both none of the same kind."""
    if one.data == NULL or other.data == NULL:
        return one.kind == other.kind
    return one.size == other.size and memcmp(one.data, other.data, one.size) == 0


cdef object cell_value(const Cell *cell):
    """A cell as the decoder returns it."""
    cdef bytes value
    if cell.data == NULL:
        return None if cell.kind == c"n" else UNCHANGED
    value = PyBytes_FromStringAndSize(<const char *>cell.data, cell.size)
    return value if cell.kind == c"t" else BinaryCell(value)
