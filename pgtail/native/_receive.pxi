"""Frames from a connection, each after its length: receive them from libpq, and read the positions in them."""


def receive(reader, get_copy_data, list parts not None):
    """What _receive() in postgres/copy_reader.py does."""
    cdef Out out
    cdef Py_buffer frame
    cdef Py_ssize_t length
    cdef int tag = 0
    out.data, out.size, out.room = NULL, 0, 0
    try:
        while True:
            length, data = get_copy_data(1)
            if length <= 0 or reader.stopped:
                return out.size, tag, length
            PyObject_GetBuffer(data, &frame, PyBUF_SIMPLE)
            try:
                reserve(&out, frame.len + 4)
                put_length(&out, frame.len)
                put(&out, frame.buf, frame.len)
                tag = (<const uint8_t *>frame.buf)[HEADER] if frame.len > HEADER else 0
            finally:
                PyBuffer_Release(&frame)
    finally:
        try:
            parts.append(PyBytes_FromStringAndSize(out.data, out.size))
        finally:
            PyMem_Free(out.data)


def positions(bytes frames):
    """What _positions() in replication/feedback.py returns."""
    cdef const uint8_t *buf = <const uint8_t *>PyBytes_AS_STRING(frames)
    cdef Py_ssize_t pos = 0, end = PyBytes_GET_SIZE(frames)
    cdef uint32_t size
    cdef uint8_t tag
    cdef uint64_t lsn, highest = 0
    cdef bint has_data = False, asks = False
    while end - pos >= 13:
        size, tag, lsn = u32(buf + pos), buf[pos + 4], u64(buf + pos + 5)
        pos += 4 + <Py_ssize_t>size
        if tag == c"w" and size >= HEADER:
            has_data = True
        elif tag == c"k" and size >= KEEPALIVE and pos <= end:
            asks = asks or buf[pos - size + KEEPALIVE - 1] != 0
        else:
            continue
        highest = max(highest, lsn)
    return highest, has_data, asks
