"""Encoders: PostgreSQL's text of a value -> its text in a format. They are selected by name (plan.Form).

An encoder returns 0, or DECLINED if its result is not certain to be right; what it wrote is then dropped.
"""

ctypedef int (*Encoder)(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2

cdef enum:
    MOST_ENCODERS = 64

cdef Encoder[MOST_ENCODERS] ENCODERS
cdef dict FORMS = {}        # the name of each encoder -> its place in ENCODERS


cdef Encoder encoder_of(str name) except NULL:
    return ENCODERS[<int>FORMS[name]]


def encode(str name, int64_t parameter, bytes text):
    """A text by the form of that name; None if it is declined. For tests."""
    cdef Encoder encoder = encoder_of(name)
    cdef Out out
    out.data, out.size, out.room = NULL, 0, 0
    try:
        reserve(&out, 1)
        if encoder(&out, <const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), parameter) < 0:
            return None
        return PyBytes_FromStringAndSize(out.data, out.size)
    finally:
        PyMem_Free(out.data)


cdef int encode_string(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_string(out, p, size)


cdef int encode_number(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_number(out, p, size, parameter != 0)


cdef int encode_boolean(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_boolean(out, p, size)


cdef int encode_json(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_json(out, p, size)


cdef int encode_strings(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_array(out, p, size, ITEM_STRING)


cdef int encode_numbers(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_array(out, p, size, ITEM_NUMBER)


cdef int encode_booleans(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_array(out, p, size, ITEM_BOOLEAN)


cdef inline bint is_blank(uint8_t value) noexcept:
    """Whether Python's re counts this ASCII character as \\s."""
    return value == c" " or 9 <= value <= 13 or 28 <= value <= 31


cdef int encode_csv(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A field, quoted where outputs/csv.py does. Declined if it starts or ends with a character beyond ASCII."""
    cdef bint quoted = size == 0
    cdef Py_ssize_t i
    if not quoted:
        if p[0] >= 0x80 or p[size - 1] >= 0x80 or not is_utf8(p, size):
            return DECLINED
        quoted = is_blank(p[0]) or is_blank(p[size - 1])
        for i in range(size):
            if p[i] == c'"' or p[i] == c"," or p[i] == c"\r" or p[i] == c"\n" or p[i] == c"\\":
                quoted = True
                break
    if not quoted:
        reserve(out, size)
        put(out, p, size)
        return 0
    reserve(out, 2 * size + 2)
    put_char(out, c'"')
    for i in range(size):
        if p[i] == c'"':
            put_char(out, c'"')
        put_char(out, p[i])
    put_char(out, c'"')
    return 0


cdef int register(str name, Encoder encoder) except -2:
    ENCODERS[len(FORMS)] = encoder
    FORMS[name] = len(FORMS)
    return 0


register("string", encode_string)
register("number", encode_number)
register("boolean", encode_boolean)
register("json", encode_json)
register("strings", encode_strings)
register("numbers", encode_numbers)
register("booleans", encode_booleans)
register("csv", encode_csv)
register("sql", encode_sql)
register("sql_date", encode_sql_date)
register("bare", encode_bare)
register("short_bare", encode_short_bare)
register("short_sql", encode_short_sql)
register("wal2json_number", encode_wal2json_number)
register("wal2json_bytea", encode_wal2json_bytea)
register("debezium_integer", encode_debezium_integer)
register("debezium_integers", encode_debezium_integers)
register("debezium_decimal", encode_debezium_decimal)
register("debezium_variable_decimal", encode_debezium_variable_decimal)
register("debezium_decimal_text", encode_debezium_decimal_text)
register("debezium_bytes", encode_debezium_bytes)
register("debezium_date", encode_debezium_date)
register("debezium_time", encode_debezium_time)
register("debezium_timestamp", encode_debezium_timestamp)
register("debezium_timestamptz", encode_debezium_timestamptz)
