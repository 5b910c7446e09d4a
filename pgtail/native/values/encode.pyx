"""Encoders: PostgreSQL's text of a value -> its text in a format. They are selected by name (plan.Form).

An encoder returns 0, or DECLINED if its result is not certain to be right; what it wrote is then dropped.
"""

# ==== SQL literals: what quoted() in terminal/escape.py writes for text without hidden characters ==================

cdef inline bint is_shown(const uint8_t *p) noexcept:
    """Whether the valid character beyond ASCII that starts here is certainly not hidden (terminal/escape.py).

    True for most characters of living scripts. Blocks with hidden characters are left to Python, whole or in part.
    """
    cdef uint8_t first = p[0], second = p[1]
    if first == 0xC2:
        return second >= 0xA0 and second != 0xAD        # U+00A0 to U+00BF without the soft hyphen
    if first == 0xD8:
        return second >= 0xA0                           # Arabic letters from U+0620
    if first <= 0xDF:
        return first != 0xCD and first != 0xDB and first != 0xDC
    if first == 0xE0:
        return second >= 0xA4                           # from U+0900
    if first == 0xE1:
        return second >= 0xA1                           # from U+1840
    if first == 0xE2:                                   # dashes and quotation marks, and from U+2080
        return second >= 0x82 or (second == 0x80 and 0x90 <= p[2] <= 0xA7)
    if first == 0xE3:
        return second != 0x85                           # without U+3140 to U+317F
    if first <= 0xED:
        return True                                     # U+4000 to U+D7FF
    return first == 0xF0 and second >= 0x9F             # U+1F000 to U+3FFFF


cdef int put_shown(Out *out, const uint8_t *p, Py_ssize_t size, uint8_t quote, bint escaped=False) except -2:
    """Text with each `quote` doubled; DECLINED if it is not valid UTF-8, has a NUL, or a character may be hidden.

    Returns 1 for control characters unless `escaped`: these then have a backslash, and backslashes are doubled.
    """
    cdef Py_ssize_t plain
    reserve(out, 4 * size + 3)
    while size > 0:
        plain = copy_plain(out.data + out.size, p, size, quote, c"\\" if escaped else 0x7F, 0x7F)
        out.size += plain
        p += plain
        size -= plain
        if size and p[0] < 0x80:
            if p[0] >= 0x20 and p[0] != 0x7F:
                put_char(out, p[0])
                put_char(out, p[0])
            elif not p[0]:
                return DECLINED     # PostgreSQL has no such text, and SQL no literal for it
            elif not escaped:
                return 1
            else:
                put_control(out, p[0])
            p += 1
            size -= 1
        if not put_characters(out, &p, &size, True):
            return DECLINED
    return 0


cdef inline void put_control(Out *out, uint8_t value) noexcept:
    """A control character as escape() in terminal/escape.py writes it."""
    put_char(out, c"\\")
    if value == c"\n":
        put_char(out, c"n")
    elif value == c"\r":
        put_char(out, c"r")
    elif value == c"\t":
        put_char(out, c"t")
    else:
        put_char(out, c"x")
        put_char(out, HEX[value >> 4])
        put_char(out, HEX[value & 15])


cdef int encode_sql(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A string literal, E'' if it has control characters; DECLINED as put_shown() says. No parameter."""
    cdef Py_ssize_t start = out.size
    cdef int found
    reserve(out, 2)
    put_char(out, c"'")
    found = put_shown(out, p, size, c"'")
    if found > 0:
        out.size = start
        put_char(out, c"E")
        put_char(out, c"'")
        found = put_shown(out, p, size, c"'", True)
    put_char(out, c"'")     # put_shown made room for it
    return found


cdef int encode_sql_date(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """As encode_sql; declined unless it begins as a date of DateStyle ISO with four digits of the year does."""
    cdef Py_ssize_t i
    if size < 10:
        return DECLINED
    for i in range(8):
        if not (p[i] == c"-" if i == 4 or i == 7 else is_digit(p[i])):
            return DECLINED
    return encode_sql(out, p, size, parameter)


# ==== values without quotes: what escape() in terminal/escape.py writes for such text ==============================

cdef int encode_bare(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """The text itself; DECLINED if it is not valid UTF-8 or a character may be hidden.

    An empty text is DECLINED unless there is a parameter: as a value in a row it is ''.
    """
    if size == 0:
        return 0 if parameter else DECLINED
    return DECLINED if put_shown(out, p, size, 0x7F) else 0


# ==== JSON of numbers and bytea without quotes and marks ===========================================================

cdef int encode_number_or_null(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A number; NaN and the infinities as null. No parameter."""
    cdef Py_ssize_t start = out.size
    if put_number(out, p, size, 0) < 0:
        return DECLINED
    if out.data[start] == c'"':     # put_number quotes what JSON has no number for
        out.size = start
        put(out, <const char *>b"null", 4)
    return 0


cdef int encode_hex(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """The digits of a bytea as a JSON string. No parameter."""
    if size < 2 or p[0] != c"\\" or p[1] != c"x":
        return DECLINED
    return put_string(out, p + 2, size - 2, 0)


# ==== CSV ==========================================================================================================

cdef inline bint is_blank(uint8_t value) noexcept:
    """Whether Python's re counts this ASCII character as \\s."""
    return value == c" " or 9 <= value <= 13 or 28 <= value <= 31


cdef inline int put_csv(Out *out, const uint8_t *p, Py_ssize_t size, bint quoted) except -2:
    """The characters of a field, if `quoted` with quotation marks doubled. DECLINED if it is not valid UTF-8.

    Returns 1 for a field that must be quoted, and is not.
    """
    cdef Py_ssize_t plain
    while True:
        plain = copy_plain(out.data + out.size, p, size, c'"', c'"' if quoted else c",", c'"' if quoted else c"\\")
        out.size += plain
        p += plain
        size -= plain
        if size == 0:
            return 0
        if p[0] >= 0x80:
            if not put_characters(out, &p, &size, False):
                return DECLINED
            continue
        if not quoted and (p[0] >= 0x20 or p[0] == c"\r" or p[0] == c"\n"):
            return 1
        if p[0] == c'"':
            put_char(out, c'"')
        put_char(out, p[0])
        p += 1
        size -= 1


cdef int encode_csv(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A field of CSV, quoted where it has to be. Declined if it starts or ends with a character beyond ASCII."""
    cdef Py_ssize_t start = out.size
    cdef int found = 1
    if size and (p[0] >= 0x80 or p[size - 1] >= 0x80):
        return DECLINED
    reserve(out, 2 * size + 2)
    if size and not is_blank(p[0]) and not is_blank(p[size - 1]):
        found = put_csv(out, p, size, False)
    if found > 0:
        out.size = start
        put_char(out, c'"')
        found = put_csv(out, p, size, True)
        put_char(out, c'"')
    return found


# ==== ordinary values, copied inline ===============================================================================

cdef inline char *copy_usual_text(
    char *to, const char *limit, const uint8_t *p, Py_ssize_t size, uint8_t quote, uint8_t special
) noexcept:
    """Printable ASCII without `quote` and `special`, between quotes unless `quote` is 0; returns where it ends.

    NULL if it is empty or another value or, up to `limit`, has no room.
    """
    if size == 0 or limit - to < size + 2:
        return NULL
    to[0] = quote
    to += quote != 0
    if copy_plain(to, p, size, quote, special, special) < size:
        return NULL
    to += size
    to[0] = quote
    return to + (quote != 0)


# ==== all encoders by name =========================================================================================

cdef dict ENCODERS = {      # their addresses
    "string": <size_t><Encoder>put_string,
    "number": <size_t><Encoder>put_number,
    "boolean": <size_t><Encoder>put_boolean,
    "json": <size_t><Encoder>put_json,
    "strings": <size_t><Encoder>put_strings,
    "numbers": <size_t><Encoder>put_numbers,
    "booleans": <size_t><Encoder>put_booleans,
    "csv": <size_t><Encoder>encode_csv,
    "sql": <size_t><Encoder>encode_sql,
    "sql_date": <size_t><Encoder>encode_sql_date,
    "bare": <size_t><Encoder>encode_bare,
    "number_or_null": <size_t><Encoder>encode_number_or_null,
    "hex": <size_t><Encoder>encode_hex,
}


cdef Encoder encoder_of(str name) except NULL:
    return <Encoder><size_t>ENCODERS[name]


def encode(str name, int64_t parameter, text):
    """A text, in any buffer, by the form of that name; None if it is declined. For tests."""
    cdef Encoder encoder = encoder_of(name)
    cdef Py_buffer view
    cdef Buffer to = Buffer()
    PyObject_GetBuffer(text, &view, PyBUF_SIMPLE)
    try:
        reserve(&to.out, 1)
        return None if encoder(&to.out, <const uint8_t *>view.buf, view.len, parameter) < 0 else finished(&to.out)
    finally:
        PyBuffer_Release(&view)
