"""Cells of rows, and frames from a connection. Every length is checked against the end of the buffer before use."""

cdef int read_packed(const uint8_t *data, Py_ssize_t size, int expected, Cell *cells) noexcept:
    """The cells of a row that was remembered (changes/seen_rows.py); DECLINED if one is not known."""
    cdef Py_ssize_t pos = 0
    cdef int i
    for i in range(expected):
        if pos >= size or data[pos] == c"u":
            return DECLINED
        cells[i].kind = data[pos]
        if data[pos] == c"n":
            cells[i].data, cells[i].size = NULL, 0
            pos += 1
        else:
            cells[i].data, cells[i].size = data + pos + 5, u32(data + pos + 1)
            pos += 5 + cells[i].size
    return 0 if pos == size else DECLINED


cdef int put_cell(Out *out, const Cell *cell) except -2:
    """Write a cell as it is in a message."""
    reserve(out, 5 + cell.size)
    put_char(out, <char>cell.kind)
    if cell.data != NULL:
        put_length(out, cell.size)
        put(out, cell.data, cell.size)
    return 0


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


# ==== frames from a connection, each after its length ==============================================================

def receive(reader, get_copy_data, list parts not None):
    """What _receive() in postgres/copy_reader.py does."""
    cdef Buffer to = Buffer()
    cdef Out *out = &to.out
    cdef Py_buffer frame
    cdef Py_ssize_t length
    cdef int tag = 0
    try:
        while True:
            length, data = get_copy_data(1)
            if length <= 0 or reader.stopped:
                return out.size, tag, length
            PyObject_GetBuffer(data, &frame, PyBUF_SIMPLE)
            try:
                reserve(out, frame.len + 4)
                put_length(out, frame.len)
                put(out, frame.buf, frame.len)
                tag = (<const uint8_t *>frame.buf)[HEADER] if frame.len > HEADER else 0
            finally:
                PyBuffer_Release(&frame)
    finally:
        parts.append(PyBytes_FromStringAndSize(out.data, out.size))


def headers(bytes frames, since):
    """What _headers() in replication/feedback.py returns."""
    cdef const uint8_t *buf = <const uint8_t *>PyBytes_AS_STRING(frames)
    cdef Py_ssize_t pos = 0, end = PyBytes_GET_SIZE(frames)
    cdef uint32_t size
    cdef uint8_t tag
    cdef uint64_t lsn, highest = 0
    cdef bint has_data = False, asks = False, waits = since is not None
    cdef int64_t sent_after = since if waits else 0
    ended = None
    while end - pos >= 13:
        size, tag, lsn = u32(buf + pos), buf[pos + 4], u64(buf + pos + 5)
        pos += 4 + <Py_ssize_t>size
        if tag == c"w" and size >= HEADER:
            has_data = True
        elif tag == c"k" and size >= KEEPALIVE and pos <= end:
            asks = asks or buf[pos - size + KEEPALIVE - 1] != 0
            if waits and <int64_t>u64(buf + pos - size + 9) > sent_after:
                waits, ended = False, lsn
        else:
            continue
        highest = max(highest, lsn)
    return highest, has_data, asks, ended
