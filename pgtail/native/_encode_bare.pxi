"""The encoder of values without quotes: what escape() in terminal/escape.py writes for text without hidden characters.

Include it after _encode_sql.pxi, which knows the characters that are not hidden.
"""


cdef int encode_bare(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """The text itself; DECLINED if it is not valid UTF-8 or a character may be hidden.

    An empty text is DECLINED unless there is a parameter: as a value in a row it is ''.
    """
    cdef const uint8_t *end = p + size
    cdef uint64_t word
    cdef Py_ssize_t length
    if size == 0:
        return 0 if parameter else DECLINED
    reserve(out, size)
    put(out, p, size)
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not NOT_LITERAL(word):
                p += 8
                continue
        if 0x20 <= p[0] < 0x7F:
            p += 1
        else:
            length = utf8_length(p, end - p) if p[0] >= 0x80 else 0
            if not length or not is_shown(p):
                return DECLINED
            p += length
    return 0


cdef int encode_short_bare(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """The same, if it has at most as many bytes as the parameter: it then has no more terminal cells."""
    return DECLINED if size > parameter else encode_bare(out, p, size, 0)


cdef int encode_short_sql(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A string literal of at most as many bytes as the parameter."""
    cdef Py_ssize_t start = out.size
    if size > parameter or encode_sql(out, p, size, 0) < 0 or out.size - start > parameter:
        return DECLINED
    return 0
