"""Encoders: PostgreSQL's text of a value -> its text in a format. Forms are selected by name (plan.Form)."""

cdef enum Form:
    FORM_CALL               # no encoder here: Python converts the value
    FORM_STRING
    FORM_NUMBER
    FORM_BOOLEAN
    FORM_JSON
    FORM_STRINGS
    FORM_NUMBERS
    FORM_BOOLEANS
    FORM_CSV
    FORM_SQL
    FORM_BARE
    FORM_WAL2JSON_NUMBER
    FORM_WAL2JSON_BYTEA
    FORM_DEBEZIUM_INTEGER
    FORM_DEBEZIUM_INTEGERS
    FORM_DEBEZIUM_DECIMAL
    FORM_DEBEZIUM_VARIABLE_DECIMAL
    FORM_DEBEZIUM_DECIMAL_TEXT
    FORM_DEBEZIUM_BYTES
    FORM_DEBEZIUM_DATE
    FORM_DEBEZIUM_TIME
    FORM_DEBEZIUM_TIMESTAMP
    FORM_DEBEZIUM_TIMESTAMPTZ

cdef dict FORMS = {
    "string": FORM_STRING, "number": FORM_NUMBER, "boolean": FORM_BOOLEAN, "json": FORM_JSON,
    "strings": FORM_STRINGS, "numbers": FORM_NUMBERS, "booleans": FORM_BOOLEANS,
    "csv": FORM_CSV, "sql": FORM_SQL, "bare": FORM_BARE,
    "wal2json_number": FORM_WAL2JSON_NUMBER, "wal2json_bytea": FORM_WAL2JSON_BYTEA,
    "debezium_integer": FORM_DEBEZIUM_INTEGER,
    "debezium_integers": FORM_DEBEZIUM_INTEGERS,
    "debezium_decimal": FORM_DEBEZIUM_DECIMAL,
    "debezium_variable_decimal": FORM_DEBEZIUM_VARIABLE_DECIMAL,
    "debezium_decimal_text": FORM_DEBEZIUM_DECIMAL_TEXT,
    "debezium_bytes": FORM_DEBEZIUM_BYTES,
    "debezium_date": FORM_DEBEZIUM_DATE,
    "debezium_time": FORM_DEBEZIUM_TIME,
    "debezium_timestamp": FORM_DEBEZIUM_TIMESTAMP,
    "debezium_timestamptz": FORM_DEBEZIUM_TIMESTAMPTZ,
}


cdef inline int encode_as(Out *out, Form form, int64_t parameter, const uint8_t *p, Py_ssize_t size) except -2:
    """Write a text by a form; DECLINED if that is not certain to be right. What was written is then to be dropped."""
    if form == FORM_STRING:
        return put_string(out, p, size)
    elif form == FORM_NUMBER:
        return put_number(out, p, size, parameter != 0)
    elif form == FORM_BOOLEAN:
        return put_boolean(out, p, size)
    elif form == FORM_JSON:
        return put_json(out, p, size)
    elif form == FORM_STRINGS:
        return put_array(out, p, size, ITEM_STRING)
    elif form == FORM_NUMBERS:
        return put_array(out, p, size, ITEM_NUMBER)
    elif form == FORM_BOOLEANS:
        return put_array(out, p, size, ITEM_BOOLEAN)
    elif form == FORM_CSV:
        return put_csv(out, p, size)
    elif form == FORM_SQL:
        return encode_sql(out, p, size, parameter)
    elif form == FORM_BARE:
        return encode_bare(out, p, size, parameter)
    elif form == FORM_WAL2JSON_NUMBER:
        return encode_wal2json_number(out, p, size, parameter)
    elif form == FORM_WAL2JSON_BYTEA:
        return encode_wal2json_bytea(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_INTEGER:
        return encode_debezium_integer(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_INTEGERS:
        return encode_debezium_integers(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_DECIMAL:
        return encode_debezium_decimal(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_VARIABLE_DECIMAL:
        return encode_debezium_variable_decimal(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_DECIMAL_TEXT:
        return encode_debezium_decimal_text(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_BYTES:
        return encode_debezium_bytes(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_DATE:
        return encode_debezium_date(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_TIME:
        return encode_debezium_time(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_TIMESTAMP:
        return encode_debezium_timestamp(out, p, size, parameter)
    elif form == FORM_DEBEZIUM_TIMESTAMPTZ:
        return encode_debezium_timestamptz(out, p, size, parameter)
    return DECLINED


def encode(str name, int64_t parameter, bytes text):
    """A text by the form of that name; None if it is declined. For tests."""
    cdef Out out
    out.data, out.size, out.room = NULL, 0, 0
    try:
        reserve(&out, 1)
        if encode_as(&out, FORMS[name], parameter, <const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)) < 0:
            return None
        return PyBytes_FromStringAndSize(out.data, out.size)
    finally:
        PyMem_Free(out.data)


cdef inline bint is_blank(uint8_t value) noexcept:
    """Whether Python's re counts this ASCII character as \\s."""
    return value == c" " or 9 <= value <= 13 or 28 <= value <= 31


cdef int put_csv(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
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
