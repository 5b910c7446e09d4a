"""The encoders of wal2json: what outputs/wal2json/values.py writes for numbers and bytea."""


cdef int encode_wal2json_number(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A number; NaN and the infinities as null. No parameter."""
    cdef Py_ssize_t start = out.size
    if put_number(out, p, size, False) < 0:
        return DECLINED
    if out.data[start] == c'"':     # put_number quotes what JSON has no number for
        out.size = start
        put(out, <const char *>b"null", 4)
    return 0


cdef int encode_wal2json_bytea(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """The digits of a bytea as a JSON string. No parameter."""
    if size < 2 or p[0] != c"\\" or p[1] != c"x":
        return DECLINED
    return put_string(out, p + 2, size - 2)
