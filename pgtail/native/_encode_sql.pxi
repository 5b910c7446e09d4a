"""The encoder of SQL literals: what quoted() in terminal/escape.py writes for text without hidden characters."""

cdef extern from *:
    """
    /* Whether any of eight bytes may be a control character, an apostrophe or not ASCII. */
    #define PGTAIL_NOT_LITERAL(word) ((((word) - PGTAIL_SPREAD(0x20)) & PGTAIL_SPREAD(0x80)) \\
        | ((word) & PGTAIL_SPREAD(0x80)) \\
        | PGTAIL_ZERO_BYTES((word) ^ PGTAIL_SPREAD(0x27)) | PGTAIL_ZERO_BYTES((word) ^ PGTAIL_SPREAD(0x7f)))
    """
    bint NOT_LITERAL "PGTAIL_NOT_LITERAL"(uint64_t word) nogil


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


cdef int encode_sql(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A string literal; DECLINED if it is not valid UTF-8 or a character may be hidden. No parameter."""
    cdef const uint8_t *end = p + size
    cdef uint64_t word
    cdef Py_ssize_t length
    reserve(out, 2 * size + 2)
    put_char(out, c"'")
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not NOT_LITERAL(word):
                memcpy(out.data + out.size, &word, 8)
                out.size += 8
                p += 8
                continue
        if p[0] == c"'":
            put(out, <const char *>b"''", 2)
            p += 1
        elif 0x20 <= p[0] < 0x7F:
            put_char(out, p[0])
            p += 1
        elif p[0] >= 0x80:
            length = utf8_length(p, end - p)
            if not length or not is_shown(p):
                return DECLINED
            put(out, p, length)
            p += length
        else:
            return DECLINED
    put_char(out, c"'")
    return 0


cdef int encode_sql_date(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """As encode_sql; declined unless it begins as a date of DateStyle ISO with four digits of the year does."""
    cdef Py_ssize_t i
    if size < 10:
        return DECLINED
    for i in range(8):
        if not (p[i] == c"-" if i == 4 or i == 7 else is_digit(p[i])):
            return DECLINED
    return encode_sql(out, p, size, parameter)
