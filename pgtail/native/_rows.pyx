# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# distutils: language = c
"""The compiled fast path: runs of ordinary row messages from bytes to JSON lines, Arrow buffers or statistics.

Rows does what outputs/ndjson_rows.py does; the tests compare the two byte by byte. A message that is not ordinary is
declined before any of it is written, and goes through the decoder, which handles every message and reports errors.
Every length is checked against the end of the buffer before it is used.

The name of a column's type (Codec.native) selects how a cell is converted. A type without a case here, or a value that
its case declines, is converted by the codec's Python function.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.math cimport fabs, frexp, ldexp
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef object Binary = None       # from pgtail.pgoutput.cells, imported on first use
cdef object UNCHANGED = None
cdef object Undecoded = None    # from pgtail.values, imported on first use: keeps `pgtail --version` fast

cdef extern from "Python.h":
    char *PyOS_double_to_string(double value, char code, int precision, int flags, int *type) except NULL
    double PyOS_string_to_double(const char *text, char **end, object overflow) except? -1.0

cdef extern from *:
    """
    #define PGTAIL_SPREAD(byte) (0x0101010101010101ULL * (byte))
    #define PGTAIL_ZERO_BYTES(word) (((word) - PGTAIL_SPREAD(0x01)) & ~(word) & PGTAIL_SPREAD(0x80))
    /* Whether any of eight bytes may be a control character, a quotation mark, a backslash or not ASCII. */
    #define PGTAIL_UNUSUAL(word) ((((word) - PGTAIL_SPREAD(0x20)) & PGTAIL_SPREAD(0x80)) \\
        | ((word) & PGTAIL_SPREAD(0x80)) \\
        | PGTAIL_ZERO_BYTES((word) ^ PGTAIL_SPREAD(0x22)) | PGTAIL_ZERO_BYTES((word) ^ PGTAIL_SPREAD(0x5c)))
    """
    bint UNUSUAL "PGTAIL_UNUSUAL"(uint64_t word) nogil

cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    #define PGTAIL_KEEP_MEMORY() (mallopt(M_MMAP_THRESHOLD, 8 << 20), mallopt(M_TRIM_THRESHOLD, 16 << 20))
    #else
    #define PGTAIL_KEEP_MEMORY() 0
    #endif
    """
    int KEEP_MEMORY "PGTAIL_KEEP_MEMORY"()

# Typed constants: Cython turns a literal above 32 bits into a Python object, which makes the expression slow.
cdef int64_t DAY = 86400000000              # microseconds
cdef int64_t EARLIEST_TIMESTAMP = -211813488000000000
cdef int64_t TIMESTAMPS_END = 9223371331200000000

cdef enum:
    DECLINED = -1
    FULL = 1 << 20          # bytes of lines that are written at once
    LARGE = 1 << 20         # bytes; larger messages are declined, as the decoder needs less memory for them
    HEADER = 25             # of XLogData: 'w', start, end, clock
    MOST_DIGITS = 64        # of a numeric before its point, in groups of four
    MOST_SCALE = 1000
    MOST_COLUMNS = 1600     # of any table
    DEPTH = 200             # nesting of JSON that is checked here

cdef enum Text:
    TEXT_CALL
    TEXT_STRING
    TEXT_NUMBER
    TEXT_BOOLEAN
    TEXT_JSON
    TEXT_STRINGS            # an array of them
    TEXT_NUMBERS
    TEXT_BOOLEANS

cdef enum Form:
    BINARY_CALL
    BINARY_BOOL
    BINARY_INT2
    BINARY_INT4
    BINARY_INT8
    BINARY_OID
    BINARY_FLOAT4
    BINARY_FLOAT8
    BINARY_NUMERIC
    BINARY_TEXT
    BINARY_BYTEA
    BINARY_UUID
    BINARY_DATE
    BINARY_TIMESTAMP
    BINARY_TIMESTAMPTZ
    BINARY_JSON
    BINARY_JSONB

cdef dict TEXT_FORMS = {
    "string": TEXT_STRING, "number": TEXT_NUMBER, "boolean": TEXT_BOOLEAN, "json": TEXT_JSON,
    "strings": TEXT_STRINGS, "numbers": TEXT_NUMBERS, "booleans": TEXT_BOOLEANS,
}
cdef dict BINARY_FORMS = {
    "bool": BINARY_BOOL, "int2": BINARY_INT2, "int4": BINARY_INT4, "int8": BINARY_INT8,
    "oid": BINARY_OID, "xid": BINARY_OID, "float4": BINARY_FLOAT4, "float8": BINARY_FLOAT8, "numeric": BINARY_NUMERIC,
    "text": BINARY_TEXT, "varchar": BINARY_TEXT, "bpchar": BINARY_TEXT, "name": BINARY_TEXT, "bytea": BINARY_BYTEA,
    "uuid": BINARY_UUID, "date": BINARY_DATE, "timestamp": BINARY_TIMESTAMP, "timestamptz": BINARY_TIMESTAMPTZ,
    "json": BINARY_JSON, "jsonb": BINARY_JSONB,
}

cdef const char *HEX = b"0123456789abcdef"
cdef const char *UPPER = b"0123456789ABCDEF"


def keep_memory():
    """Make the allocator of this process keep freed buffers of up to 8 MB.

    By default glibc returns each to the kernel, which clears the pages again for the next one: 20 % of the time to
    read a file.
    """
    KEEP_MEMORY()


# -- bytes in ------------------------------------------------------------------------------------------------------

cdef inline uint16_t u16(const uint8_t *p) noexcept:
    return <uint16_t>((p[0] << 8) | p[1])


cdef inline uint32_t u32(const uint8_t *p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | <uint32_t>p[3]


cdef inline uint64_t u64(const uint8_t *p) noexcept:
    return (<uint64_t>u32(p) << 32) | <uint64_t>u32(p + 4)


# -- bytes out -----------------------------------------------------------------------------------------------------

cdef struct Out:
    char *data
    Py_ssize_t size
    Py_ssize_t room


cdef int grow(Out *out, Py_ssize_t more) except -2:
    cdef Py_ssize_t room = 2 * (out.size + more)
    cdef char *data = <char *>PyMem_Realloc(out.data, room)
    if data == NULL:
        raise MemoryError
    out.data = data
    out.room = room
    return 0


cdef inline int reserve(Out *out, Py_ssize_t more) except -2:
    """Make room for `more` bytes. The put functions do not check for room."""
    if out.room - out.size < more:
        grow(out, more)
    return 0


cdef inline void put(Out *out, const void *data, Py_ssize_t size) noexcept:
    memcpy(out.data + out.size, data, size)
    out.size += size


cdef inline void put_char(Out *out, char value) noexcept:
    out.data[out.size] = value
    out.size += 1


cdef inline void put_digits(Out *out, uint32_t value, int digits) noexcept:
    """The number with leading zeros, `digits` wide."""
    cdef int i
    for i in range(digits - 1, -1, -1):
        out.data[out.size + i] = <char>(48 + value % 10)
        value //= 10
    out.size += digits


cdef inline void put_unsigned(Out *out, uint64_t value) noexcept:
    cdef char digits[20]
    cdef int start = 20
    while True:
        start -= 1
        digits[start] = <char>(48 + value % 10)
        value //= 10
        if value == 0:
            break
    put(out, digits + start, 20 - start)


cdef inline void put_signed(Out *out, int64_t value) noexcept:
    if value < 0:
        put_char(out, c"-")
        put_unsigned(out, 0 - <uint64_t>value)
    else:
        put_unsigned(out, <uint64_t>value)


cdef inline void put_hex(Out *out, uint32_t value) noexcept:
    """The same as %X."""
    cdef int shift = 28
    while shift and not value >> shift:
        shift -= 4
    while shift >= 0:
        put_char(out, UPPER[(value >> shift) & 15])
        shift -= 4


cdef inline void put_lsn(Out *out, uint64_t lsn) noexcept:
    put_hex(out, <uint32_t>(lsn >> 32))
    put_char(out, c"/")
    put_hex(out, <uint32_t>lsn)


cdef inline int64_t floor_divided(int64_t value, int64_t by) noexcept:
    return value // by - (value % by < 0)


cdef inline int64_t floor_remainder(int64_t value, int64_t by) noexcept:
    return value % by + (by if value % by < 0 else 0)


cdef bint put_date(Out *out, int64_t days) noexcept:
    """YYYY-MM-DD of a day number; returns whether it is BC. The same as days_text() in pgoutput/scalars.py."""
    cdef int64_t era, day_of_era, year_of_era, day_of_year, month_index, year
    cdef int month, day
    days += 730425
    era = floor_divided(days, 146097)
    day_of_era = days - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    day = <int>(day_of_year - (153 * month_index + 2) // 5 + 1)
    month = <int>(month_index + 3 if month_index < 10 else month_index - 9)
    year = year_of_era + era * 400 + (month <= 2)
    cdef bint before_christ = year <= 0
    if before_christ:
        year = 1 - year
    if year < 10000:
        put_digits(out, <uint32_t>year, 4)
    else:
        put_unsigned(out, <uint64_t>year)
    put_char(out, c"-")
    put_digits(out, month, 2)
    put_char(out, c"-")
    put_digits(out, day, 2)
    return before_christ


cdef void put_clock(Out *out, int64_t micros) noexcept:
    """HH:MM:SS of microseconds since midnight, without the fraction."""
    cdef uint32_t seconds = <uint32_t>(micros // 1000000)
    put_digits(out, seconds // 3600, 2)
    put_char(out, c":")
    put_digits(out, seconds // 60 % 60, 2)
    put_char(out, c":")
    put_digits(out, seconds % 60, 2)


cdef void put_time(Out *out, int64_t time) noexcept:
    """The same as time_text() in pgoutput/scalars.py."""
    cdef int64_t days = floor_divided(time, DAY)
    cdef int64_t rest = floor_remainder(time, DAY)
    cdef bint before_christ = put_date(out, days)
    put_char(out, c"T")
    put_clock(out, rest)
    put_char(out, c".")
    put_digits(out, <uint32_t>(rest % 1000000), 6)
    put_char(out, c"Z")
    if before_christ:
        put(out, <const char *>b" BC", 3)


# -- JSON ----------------------------------------------------------------------------------------------------------

cdef inline Py_ssize_t utf8_length(const uint8_t *p, Py_ssize_t left) noexcept:
    """The length of the character that starts with a byte above 0x7F; 0 if it is not valid (RFC 3629)."""
    cdef uint8_t first = p[0]
    if 0xC2 <= first <= 0xDF:
        return 2 if left >= 2 and (p[1] & 0xC0) == 0x80 else 0
    if 0xE0 <= first <= 0xEF:
        if left < 3 or (p[1] & 0xC0) != 0x80 or (p[2] & 0xC0) != 0x80:
            return 0
        if (first == 0xE0 and p[1] < 0xA0) or (first == 0xED and p[1] > 0x9F):
            return 0
        return 3
    if 0xF0 <= first <= 0xF4:
        if left < 4 or (p[1] & 0xC0) != 0x80 or (p[2] & 0xC0) != 0x80 or (p[3] & 0xC0) != 0x80:
            return 0
        if (first == 0xF0 and p[1] < 0x90) or (first == 0xF4 and p[1] > 0x8F):
            return 0
        return 4
    return 0


cdef inline void put_escaped(Out *out, uint8_t value) noexcept:
    """A character that JSON requires escaped, in the form that orjson writes."""
    put_char(out, c"\\")
    if value == c'"' or value == c"\\":
        put_char(out, value)
    elif value == 8:
        put_char(out, c"b")
    elif value == 9:
        put_char(out, c"t")
    elif value == 10:
        put_char(out, c"n")
    elif value == 12:
        put_char(out, c"f")
    elif value == 13:
        put_char(out, c"r")
    else:
        put(out, <const char *>b"u00", 3)
        put_char(out, HEX[value >> 4])
        put_char(out, HEX[value & 15])


cdef int put_string(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    """UTF-8 as a JSON string; DECLINED if it is not valid UTF-8."""
    cdef const uint8_t *end = p + size
    cdef uint64_t word
    cdef Py_ssize_t length
    reserve(out, 6 * size + 2)
    put_char(out, c'"')
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not UNUSUAL(word):
                memcpy(out.data + out.size, &word, 8)
                out.size += 8
                p += 8
                continue
        if p[0] < 0x20 or p[0] == c'"' or p[0] == c"\\":
            put_escaped(out, p[0])
            p += 1
        elif p[0] < 0x80:
            put_char(out, p[0])
            p += 1
        else:
            length = utf8_length(p, end - p)
            if not length:
                return DECLINED
            put(out, p, length)
            p += length
    put_char(out, c'"')
    return 0


cdef inline bint is_digit(uint8_t value) noexcept:
    return 48 <= value <= 57


cdef Py_ssize_t number_end(const uint8_t *p, Py_ssize_t size) noexcept:
    """The length of the JSON number that starts here; 0 if there is none."""
    cdef Py_ssize_t i = 0, digits
    if i < size and p[i] == c"-":
        i += 1
    if i >= size or not is_digit(p[i]):
        return 0
    if p[i] == c"0":
        i += 1
    else:
        while i < size and is_digit(p[i]):
            i += 1
    if i + 1 < size and p[i] == c"." and is_digit(p[i + 1]):
        i += 2
        while i < size and is_digit(p[i]):
            i += 1
    if i < size and (p[i] == c"e" or p[i] == c"E"):
        digits = i + 1
        if digits < size and (p[digits] == c"+" or p[digits] == c"-"):
            digits += 1
        if digits < size and is_digit(p[digits]):
            i = digits + 1
            while i < size and is_digit(p[i]):
                i += 1
    return i


cdef int put_number(Out *out, const uint8_t *p, Py_ssize_t size, bint quoted) except -2:
    """PostgreSQL's text of a number, as a JSON number or quoted; NaN and the infinities are always quoted."""
    if size == 0 or number_end(p, size) != size:
        if not ((size == 3 and memcmp(p, <const char *>b"NaN", 3) == 0)
                or (size == 8 and memcmp(p, <const char *>b"Infinity", 8) == 0)
                or (size == 9 and memcmp(p, <const char *>b"-Infinity", 9) == 0)):
            return DECLINED
        quoted = True
    reserve(out, size + 2)
    if quoted:
        put_char(out, c'"')
    put(out, p, size)
    if quoted:
        put_char(out, c'"')
    return 0


cdef int put_boolean(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    if size != 1 or (p[0] != c"t" and p[0] != c"f"):
        return DECLINED
    reserve(out, 5)
    if p[0] == c"t":
        put(out, <const char *>b"true", 4)
    else:
        put(out, <const char *>b"false", 5)
    return 0


cdef Py_ssize_t string_end(const uint8_t *p, Py_ssize_t size) noexcept:
    """The length of the JSON string that starts with this quotation mark; 0 if it is not valid."""
    cdef Py_ssize_t i = 1, length, k
    cdef uint64_t word
    while i < size:
        if size - i >= 8:
            memcpy(&word, p + i, 8)
            if not UNUSUAL(word):
                i += 8
                continue
        if p[i] == c'"':
            return i + 1
        if p[i] == c"\\":
            if i + 1 >= size:
                return 0
            if p[i + 1] == c"u":
                if i + 6 > size:
                    return 0
                for k in range(i + 2, i + 6):
                    if not (is_digit(p[k]) or 65 <= p[k] <= 70 or 97 <= p[k] <= 102):
                        return 0
                i += 6
            elif memchr(<const char *>b'"\\/bfnrt', p[i + 1], 8) != NULL:
                i += 2
            else:
                return 0
        elif p[i] < 0x20:
            return 0
        elif p[i] < 0x80:
            i += 1
        else:
            length = utf8_length(p + i, size - i)
            if not length:
                return 0
            i += length
    return 0


cdef inline Py_ssize_t literal_end(const uint8_t *p, Py_ssize_t size) noexcept:
    if size >= 4 and (memcmp(p, <const char *>b"true", 4) == 0 or memcmp(p, <const char *>b"null", 4) == 0):
        return 4
    return 5 if size >= 5 and memcmp(p, <const char *>b"false", 5) == 0 else 0


cdef bint is_json(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether this is one JSON document (RFC 8259), nested at most DEPTH levels deep. False if in doubt."""
    cdef uint8_t closing[DEPTH]
    cdef int depth = 0
    cdef Py_ssize_t i = 0, length
    cdef bint value = True      # a value is expected, otherwise a comma or a closing bracket
    cdef bint key = False       # a key is expected
    cdef bint may_close = False
    while True:
        while i < size and (p[i] == c" " or p[i] == c"\n" or p[i] == c"\t" or p[i] == c"\r"):
            i += 1
        if i >= size:
            return depth == 0 and not value and not key
        if may_close and p[i] == closing[depth - 1]:
            depth -= 1
            i += 1
            value = key = False
            may_close = depth > 0
        elif key:
            length = string_end(p + i, size - i) if p[i] == c'"' else 0
            if not length:
                return False
            i += length
            while i < size and (p[i] == c" " or p[i] == c"\n" or p[i] == c"\t" or p[i] == c"\r"):
                i += 1
            if i >= size or p[i] != c":":
                return False
            i += 1
            key = may_close = False
            value = True
        elif value:
            if p[i] == c"{" or p[i] == c"[":
                if depth == DEPTH:
                    return False
                closing[depth] = c"}" if p[i] == c"{" else c"]"
                depth += 1
                key = p[i] == c"{"
                value = not key
                may_close = True
                i += 1
                continue
            if p[i] == c'"':
                length = string_end(p + i, size - i)
            elif p[i] == c"-" or is_digit(p[i]):
                length = number_end(p + i, size - i)
            else:
                length = literal_end(p + i, size - i)
            if not length:
                return False
            i += length
            value = False
            may_close = depth > 0
        elif depth and p[i] == c",":
            key = closing[depth - 1] == c"}"
            value = not key
            may_close = False
            i += 1
        else:
            return False


cdef int put_json(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    """A document unchanged, on one line."""
    cdef Py_ssize_t i
    if not is_json(p, size):
        return DECLINED
    reserve(out, size)
    put(out, p, size)
    if memchr(p, c"\n", size) != NULL or memchr(p, c"\r", size) != NULL:
        for i in range(out.size - size, out.size):  # JSON strings contain no line breaks
            if out.data[i] == c"\n" or out.data[i] == c"\r":
                out.data[i] = c" "
    return 0


cdef inline bint is_special(uint8_t value) noexcept:
    """Whether array_out quotes an element with this character."""
    return (value == c"{" or value == c"}" or value == c'"' or value == c"\\" or value == c","
            or value == c" " or 9 <= value <= 13)


cdef int put_element(Out *out, const uint8_t *p, Py_ssize_t size, Text form) except -2:
    if form == TEXT_STRINGS:
        return put_string(out, p, size)
    if form == TEXT_NUMBERS:
        return put_number(out, p, size, False)
    return put_boolean(out, p, size)


cdef int put_quoted_element(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    """A quoted element, without the backslashes that escape quotation marks and backslashes."""
    cdef Py_ssize_t i = 0, start = out.size, from_, length
    reserve(out, 6 * size + 2)
    put_char(out, c'"')
    while i < size:
        if p[i] == c"\\":
            i += 1  # the next character is literal; the caller checked that there is one
        from_ = i
        if p[i] < 0x20 or p[i] == c'"' or p[i] == c"\\":
            put_escaped(out, p[i])
            i += 1
        elif p[i] < 0x80:
            put_char(out, p[i])
            i += 1
        else:
            length = utf8_length(p + i, size - i)
            if not length:
                return DECLINED
            put(out, p + from_, length)
            i += length
    put_char(out, c'"')
    return 0


cdef int put_array(Out *out, const uint8_t *p, Py_ssize_t size, Text form) except -2:
    """The text of an array with one dimension and lower bound 1; others are declined."""
    cdef Py_ssize_t i = 1, start
    if size < 2 or p[0] != c"{" or p[size - 1] != c"}":
        return DECLINED
    reserve(out, 2)
    put_char(out, c"[")
    if size > 2:
        while True:
            start = i
            if p[i] == c'"':
                if form != TEXT_STRINGS:
                    return DECLINED
                i += 1
                while i < size and p[i] != c'"':
                    i += 2 if p[i] == c"\\" else 1
                if i >= size - 1 or put_quoted_element(out, p + start + 1, i - start - 1) < 0:
                    return DECLINED
                i += 1
            else:
                while i < size and not is_special(p[i]):
                    i += 1
                if i == start:
                    return DECLINED
                if i - start == 4 and memcmp(p + start, <const char *>b"NULL", 4) == 0:
                    reserve(out, 4)
                    put(out, <const char *>b"null", 4)
                elif put_element(out, p + start, i - start, form) < 0:
                    return DECLINED
            if i == size - 1:
                break
            if i >= size or p[i] != c",":
                return DECLINED
            i += 1
            reserve(out, 1)
            put_char(out, c",")
    reserve(out, 1)
    put_char(out, c"]")
    return 0


# -- binary cells --------------------------------------------------------------------------------------------------

cdef int put_number_text(Out *out, bint quoted, const char *text, Py_ssize_t size) except -2:
    return put_number(out, <const uint8_t *>text, size, quoted)


cdef int put_integer(Out *out, int64_t value, bint quoted) except -2:
    reserve(out, 24)
    if quoted:
        put_char(out, c'"')
    put_signed(out, value)
    if quoted:
        put_char(out, c'"')
    return 0


cdef int put_float8(Out *out, uint64_t bits) except -2:
    """Handles values whose shortest digits are the same in Python and PostgreSQL, in plain notation (values/floats.py)."""
    cdef double value
    cdef char *text
    cdef Py_ssize_t size = 0
    memcpy(&value, &bits, 8)
    if not 1e-4 <= fabs(value) < 1e15:
        return DECLINED
    text = PyOS_double_to_string(value, c"r", 0, 0, NULL)
    while text[size]:
        size += 1
    reserve(out, size)
    put(out, text, size)
    PyMem_Free(text)
    return 0


cdef int put_float4(Out *out, uint32_t bits) except -2:
    """The fewest digits strictly inside the rounding interval, if six or more places suffice (values/floats.py)."""
    cdef float single
    cdef double value, half, low, high, nearest
    cdef int exponent, places, point
    cdef char *text
    cdef Py_ssize_t size
    memcpy(&single, &bits, 4)
    value = fabs(<double>single)
    if not 1e-4 <= value < 1e6 or not bits & 0x7FFFFF:  # a power of two: the interval is narrower on one side
        return DECLINED
    frexp(value, &exponent)
    half = ldexp(1.0, exponent - 25)
    low, high = value - half, value + half
    for places in range(5, 9):
        text = PyOS_double_to_string(value, c"e", places, 0, NULL)
        try:
            nearest = PyOS_string_to_double(text, NULL, None)
            if nearest == low or nearest == high:
                return DECLINED
            if not low < nearest < high:
                continue
            size = places + 2
            while text[size - 1] == c"0":
                size -= 1
            point = exponent_of(text + places + 2)
            reserve(out, 32)
            if single < 0:
                put_char(out, c"-")
            put_plain(out, text, size, point)
            return 0
        finally:
            PyMem_Free(text)
    return DECLINED


cdef int exponent_of(const char *text) noexcept:
    """The number in e+05 or e-05: 5 or -5."""
    cdef int value = (text[2] - 48) * 10 + (text[3] - 48)
    return -value if text[1] == c"-" else value


cdef void put_plain(Out *out, const char *text, Py_ssize_t size, int exponent) noexcept:
    """d.ddd with a decimal exponent from -4 to 5 in plain notation."""
    cdef Py_ssize_t digits = size - 1
    cdef Py_ssize_t i
    if exponent < 0:
        put(out, <const char *>b"0.", 2)
        for i in range(-exponent - 1):
            put_char(out, c"0")
    for i in range(digits):
        put_char(out, text[i + 1 if i else 0])
        if i == exponent and i < digits - 1:
            put_char(out, c".")
    for i in range(digits, exponent + 1):
        put_char(out, c"0")


cdef int put_numeric(Out *out, const uint8_t *p, Py_ssize_t size, bint quoted) except -2:
    """Base-10000 digits (values/numeric.py); long, special and not normalized values are declined."""
    cdef int count, weight, sign, scale, i, place, group, last
    cdef int power[4]
    power[0], power[1], power[2], power[3] = 1000, 100, 10, 1
    if size < 8:
        return DECLINED
    count, weight, sign, scale = u16(p), <int16_t>u16(p + 2), u16(p + 4), u16(p + 6)
    if size != 8 + 2 * count or weight >= MOST_DIGITS or weight < -MOST_SCALE or scale > MOST_SCALE:
        return DECLINED
    if (sign != 0 and sign != 0x4000) or (count == 0 and sign) or (count and u16(p + 8) == 0):
        return DECLINED
    for i in range(count):
        if u16(p + 8 + 2 * i) > 9999:
            return DECLINED
    # Every non-zero digit is within the scale.
    last = scale + 4 * (weight + 1)
    for i in range(count):
        group = u16(p + 8 + 2 * i)
        for place in range(4):
            if 4 * i + place >= last and group // power[place] % 10:
                return DECLINED
    reserve(out, 4 * MOST_DIGITS + MOST_SCALE + 8)
    if quoted:
        put_char(out, c'"')
    if sign:
        put_char(out, c"-")
    if weight < 0 or count == 0:
        put_char(out, c"0")
    else:
        put_unsigned(out, u16(p + 8))
        for i in range(1, weight + 1):
            put_digits(out, u16(p + 8 + 2 * i) if i < count else 0, 4)
    if scale:
        put_char(out, c".")
        for place in range(scale):
            i = place // 4 + weight + 1
            group = u16(p + 8 + 2 * i) if 0 <= i < count else 0
            put_char(out, <char>(48 + group // power[place % 4] % 10))
    if quoted:
        put_char(out, c'"')
    return 0


cdef int put_text(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    if memchr(p, 0, size) != NULL:
        return DECLINED
    return put_string(out, p, size)


cdef void put_hex_bytes(Out *out, const uint8_t *p, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        put_char(out, HEX[p[i] >> 4])
        put_char(out, HEX[p[i] & 15])


cdef int put_bytea(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    reserve(out, 2 * size + 5)
    put(out, <const char *>b'"\\\\x', 4)
    put_hex_bytes(out, p, size)
    put_char(out, c'"')
    return 0


cdef int put_uuid(Out *out, const uint8_t *p) except -2:
    reserve(out, 38)
    put_char(out, c'"')
    put_hex_bytes(out, p, 4)
    put_char(out, c"-")
    put_hex_bytes(out, p + 4, 2)
    put_char(out, c"-")
    put_hex_bytes(out, p + 6, 2)
    put_char(out, c"-")
    put_hex_bytes(out, p + 8, 2)
    put_char(out, c"-")
    put_hex_bytes(out, p + 10, 6)
    put_char(out, c'"')
    return 0


cdef int put_day(Out *out, int32_t days) except -2:
    if not -2451545 <= days < 2147483494 - 2451545:
        return DECLINED
    reserve(out, 24)
    put_char(out, c'"')
    if put_date(out, days):
        put(out, <const char *>b" BC", 3)
    put_char(out, c'"')
    return 0


cdef int put_timestamp(Out *out, int64_t micros, bint zone) except -2:
    cdef int64_t days, rest
    cdef uint32_t fraction
    cdef bint before_christ
    if not EARLIEST_TIMESTAMP <= micros < TIMESTAMPS_END:
        return DECLINED
    days = floor_divided(micros, DAY)
    rest = floor_remainder(micros, DAY)
    fraction = <uint32_t>(rest % 1000000)
    reserve(out, 48)
    put_char(out, c'"')
    before_christ = put_date(out, days)
    put_char(out, c" ")
    put_clock(out, rest)
    if fraction:
        put_char(out, c".")
        put_digits(out, fraction, 6)
        while out.data[out.size - 1] == c"0":
            out.size -= 1
    if zone:
        put(out, <const char *>b"+00", 3)
    if before_christ:
        put(out, <const char *>b" BC", 3)
    put_char(out, c'"')
    return 0


cdef int put_jsonb(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    """The text after the version byte."""
    if size == 0 or p[0] != 1:
        return DECLINED
    return put_json(out, p + 1, size - 1)


# -- tables --------------------------------------------------------------------------------------------------------

cdef struct Column:
    const char *name        # quoted, with its colon
    Py_ssize_t name_size
    Text text
    Form binary
    bint quoted
    bint key


@cython.final
cdef class Table:
    """One version of a table: the constant parts of its JSON lines, and how to read its cells."""

    cdef Column *columns
    cdef int count
    cdef list names, of_text, of_binary
    cdef tuple heads
    cdef bytes identity
    cdef bint shown[3]

    def __cinit__(self, table, shows):
        """`table` is a RelationJson (outputs/ndjson.py); `shows(relation, op)` says whether its changes pass the filter."""
        cdef Column *column
        cdef int i
        relation = table.relation
        self.count = len(relation.columns)
        self.columns = <Column *>PyMem_Calloc(self.count + 1, sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        self.identity = table.identity
        ops = ("insert", "update", "delete")
        self.heads = tuple([table.heads[op] for op in ops])
        for i in range(3):
            self.shown[i] = shows(relation, ops[i])
        self.names = [name for name, _, _ in table.columns]
        self.of_text = [codec.json_text for codec in table.codecs]
        self.of_binary = [codec.json_binary for codec in table.codecs]
        for i in range(self.count):
            column, codec = &self.columns[i], table.codecs[i]
            column.name = PyBytes_AS_STRING(self.names[i])
            column.name_size = PyBytes_GET_SIZE(self.names[i])
            column.key = relation.columns[i].key
            if codec.native is not None:
                column.text = TEXT_FORMS.get(codec.native.json, TEXT_CALL)
                column.binary = BINARY_FORMS.get(codec.native.type, BINARY_CALL)
                column.quoted = codec.native.quoted

    def __dealloc__(self):
        PyMem_Free(self.columns)


cdef int put_text_cell(Out *out, Table table, int index, const uint8_t *p, Py_ssize_t size) except -2:
    cdef Column *column = &table.columns[index]
    cdef Py_ssize_t start = out.size
    cdef int done = DECLINED
    if column.text == TEXT_STRING:
        done = put_string(out, p, size)
    elif column.text == TEXT_NUMBER:
        done = put_number(out, p, size, column.quoted)
    elif column.text == TEXT_BOOLEAN:
        done = put_boolean(out, p, size)
    elif column.text == TEXT_JSON:
        done = put_json(out, p, size)
    elif column.text != TEXT_CALL:
        done = put_array(out, p, size, column.text)
    if done == 0:
        return 0
    out.size = start
    return put_call(out, table.of_text[index], p, size)


cdef int put_binary_cell(Out *out, Table table, int index, const uint8_t *p, Py_ssize_t size) except -2:
    cdef Column *column = &table.columns[index]
    cdef Py_ssize_t start = out.size
    cdef int done = DECLINED
    cdef Form form = column.binary
    if form == BINARY_CALL:
        pass
    elif form == BINARY_BOOL:
        if size == 1 and p[0] <= 1:
            done = put_boolean(out, <const uint8_t *>(b"t" if p[0] else b"f"), 1)
    elif form == BINARY_INT2:
        if size == 2:
            done = put_integer(out, <int16_t>u16(p), column.quoted)
    elif form == BINARY_INT4:
        if size == 4:
            done = put_integer(out, <int32_t>u32(p), column.quoted)
    elif form == BINARY_INT8:
        if size == 8:
            done = put_integer(out, <int64_t>u64(p), column.quoted)
    elif form == BINARY_OID:
        if size == 4:
            done = put_integer(out, u32(p), column.quoted)
    elif form == BINARY_FLOAT4:
        if size == 4:
            done = put_float4(out, u32(p))
    elif form == BINARY_FLOAT8:
        if size == 8:
            done = put_float8(out, u64(p))
    elif form == BINARY_NUMERIC:
        done = put_numeric(out, p, size, column.quoted)
    elif form == BINARY_TEXT:
        done = put_text(out, p, size)
    elif form == BINARY_BYTEA:
        done = put_bytea(out, p, size)
    elif form == BINARY_UUID:
        if size == 16:
            done = put_uuid(out, p)
    elif form == BINARY_DATE:
        if size == 4:
            done = put_day(out, <int32_t>u32(p))
    elif form == BINARY_TIMESTAMP or form == BINARY_TIMESTAMPTZ:
        if size == 8:
            done = put_timestamp(out, <int64_t>u64(p), form == BINARY_TIMESTAMPTZ)
    elif form == BINARY_JSON:
        done = put_json(out, p, size)
    elif form == BINARY_JSONB:
        done = put_jsonb(out, p, size)
    if done == 0:
        return 0
    out.size = start
    return put_call(out, table.of_binary[index], p, size)


cdef int put_call(Out *out, object render, const uint8_t *p, Py_ssize_t size) except -2:
    """A cell, converted by its codec's Python function."""
    cdef bytes token
    try:
        token = render(PyBytes_FromStringAndSize(<const char *>p, size))
    except Undecoded:
        return DECLINED
    reserve(out, PyBytes_GET_SIZE(token))
    put(out, PyBytes_AS_STRING(token), PyBytes_GET_SIZE(token))
    return 0


cdef Py_ssize_t skip_tuple(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int expected) noexcept:
    """Where a tuple ends; DECLINED if it is incomplete or does not have `columns` columns (-1: any number)."""
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


# -- runs ----------------------------------------------------------------------------------------------------------

cdef class Rows:
    """Writes JSON lines. The methods are described in RowProcessor (native/__init__.py)."""

    cdef Out out
    cdef object find, shows, write
    cdef bint fill_unchanged
    cdef dict tables
    cdef uint32_t last_oid
    cdef Table last
    # The current transaction's part of each line; `parts` or the own_ arrays hold the bytes.
    cdef tuple parts
    cdef char own_xid[32]
    cdef char own_commit[160]
    cdef const char *xid
    cdef const char *commit
    cdef const char *origin
    cdef Py_ssize_t xid_size, commit_size, origin_size
    cdef uint64_t commit_lsn
    cdef int64_t commit_ts
    cdef uint32_t number
    cdef readonly bint inside, passed, began
    cdef readonly Py_ssize_t seq, rows, messages, shown
    cdef readonly uint64_t end_lsn
    cdef public object most, until

    def __cinit__(self, find, shows, write, bint fill_unchanged):
        global Undecoded
        if Undecoded is None:
            from pgtail.values import Undecoded
        self.find, self.shows, self.write = find, shows, write
        self.fill_unchanged = fill_unchanged
        self.tables = {}
        grow(&self.out, FULL)

    def __dealloc__(self):
        PyMem_Free(self.out.data)

    def forget(self):
        """Drop cached tables: they may have changed."""
        self.tables = {}
        self.last = None

    @property
    def transaction(self):
        """(xid, commit LSN, commit time) of the transaction that began in this run."""
        return self.number, self.commit_lsn, self.commit_ts

    def enter(self, parts, commit_lsn, commit_ts, seq, passed):
        """The next run starts inside this transaction; `parts` is its part of each line."""
        self.parts = parts
        xid, commit, origin = parts
        self.xid, self.xid_size = PyBytes_AS_STRING(xid), PyBytes_GET_SIZE(xid)
        self.commit, self.commit_size = PyBytes_AS_STRING(commit), PyBytes_GET_SIZE(commit)
        self.origin, self.origin_size = PyBytes_AS_STRING(origin), PyBytes_GET_SIZE(origin)
        self.commit_lsn = commit_lsn or 0
        self.commit_ts = commit_ts or 0
        self.inside, self.seq, self.passed = True, seq, passed

    def leave(self):
        """The next run starts outside a transaction."""
        self.inside = False

    def take(self, buf, Py_ssize_t pos, Py_ssize_t end, int framing, bint in_stream=False):
        """Process messages of buf[pos:end]; returns where the first declined message starts."""
        cdef Py_buffer view
        self.rows, self.messages, self.shown, self.end_lsn, self.began = 0, 0, 0, 0, False
        PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= pos <= end <= view.len:
                raise ValueError("not a part of the buffer")
            return self.run(<const uint8_t *>view.buf, pos, end, framing, in_stream)
        finally:
            PyBuffer_Release(&view)
            self.flush()

    cdef int flush(self) except -2:
        cdef bytes lines
        if self.out.size:
            lines = PyBytes_FromStringAndSize(self.out.data, self.out.size)
            self.out.size = 0
            self.write(lines)
        return 0

    cdef Py_ssize_t run(
        self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int framing, bint in_stream
    ) except -2:
        cdef Py_ssize_t at, stop, after, mark, begin = -1
        cdef uint64_t lsn
        cdef uint8_t tag
        cdef bint framed = framing > 0
        cdef uint64_t until = 0xFFFFFFFFFFFFFFFF if self.until is None else self.until
        cdef Py_ssize_t most = -1 if self.most is None else self.most
        while pos < end:
            if framed:
                stop = frame_end(buf, pos, end, framing)
                if stop < 0:
                    break
                at = pos + framing + HEADER
                lsn = u64(buf + pos + framing + 1)
            else:
                at, stop, lsn = pos, end, 0
            tag = buf[at]
            if tag == c"I" or tag == c"U" or tag == c"D":
                if not self.inside:
                    break
                mark = self.out.size
                after = self.row(buf, at, stop, lsn, 4 if in_stream else 0)
                if after < 0 or (after != stop if framed else (after >= stop or buf[after] != c"\n" or after - at > LARGE)):
                    self.out.size = mark
                    break
                self.seq += 1
                self.rows += 1
                begin = -1
                if self.out.size > FULL:
                    self.flush()
            elif in_stream:
                break
            elif tag == c"B":
                after = at + 21
                if self.inside or not ends_here(buf, after, stop, framed):
                    break
                if u64(buf + at + 1) > until:
                    break
                begin = pos
                self.start(u64(buf + at + 1), <int64_t>u64(buf + at + 9), u32(buf + at + 17))
            elif tag == c"C":
                after = at + 26
                if not self.inside or not ends_here(buf, after, stop, framed) or buf[at + 1]:
                    break
                if u64(buf + at + 2) != self.commit_lsn or <int64_t>u64(buf + at + 18) != self.commit_ts:
                    break
                if u64(buf + at + 10) >= until or (most >= 0 and self.passed and self.seq and self.shown + 1 >= most):
                    break
                self.end_lsn = u64(buf + at + 10)
                self.shown += self.passed and self.seq > 0
                self.ended()
                self.inside = self.began = False
                begin = -1
            else:
                break
            self.messages += 1
            pos = after + (not framed)
        if begin >= 0:
            # Only Begin of this transaction was read: undo it, as an Origin may follow, which the decoder handles.
            self.messages -= 1
            self.inside = self.began = False
            return begin
        return pos

    cdef int ended(self) except -2:
        """Called at Commit; `began` says that the transaction also started in this run."""
        return 0

    cdef int start(self, uint64_t lsn, int64_t time, uint32_t xid) except -2:
        cdef Out out
        self.commit_lsn, self.commit_ts, self.number = lsn, time, xid
        out.data, out.size, out.room = self.own_xid, 0, sizeof(self.own_xid)
        put(&out, <const char *>b'"xid":', 6)
        put_unsigned(&out, xid)
        put_char(&out, c",")
        self.xid, self.xid_size = self.own_xid, out.size
        out.data, out.size, out.room = self.own_commit, 0, sizeof(self.own_commit)
        put(&out, <const char *>b'"commit_lsn":"', 14)
        put_lsn(&out, lsn)
        put(&out, <const char *>b'","commit_ts":"', 15)
        put_time(&out, time)
        put(&out, <const char *>b'",', 2)
        self.commit, self.commit_size = self.own_commit, out.size
        self.origin, self.origin_size = NULL, 0
        self.inside = self.began = True
        self.passed = False
        self.seq = 0
        return 0

    cdef Table table(self, uint32_t oid):
        """The current version of the table; None if it was not described."""
        if self.last is not None and oid == self.last_oid:
            return self.last
        found = self.tables.get(oid)
        if found is None:
            described = self.find(oid)
            if described is None:
                return None
            found = self.tables[oid] = Table(described, self.shows)
        self.last, self.last_oid = found, oid
        return self.last

    cdef Py_ssize_t row(
        self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint64_t lsn, int xid_size
    ) except -2:
        """Write one message as a line; returns where the message ends, or DECLINED."""
        cdef Out *out = &self.out
        cdef int op = 0 if buf[pos] == c"I" else 1 if buf[pos] == c"U" else 2
        cdef uint8_t kind
        cdef Table table
        cdef bytes head
        cdef Py_ssize_t start
        cdef int unchanged = 0
        if end - pos < 8 + xid_size:
            return DECLINED
        pos += xid_size
        table = self.table(u32(buf + pos + 1))
        if table is None:
            return DECLINED
        kind = buf[pos + 5]
        pos += 6
        if not (kind == c"N" if op == 0 else kind == c"K" or kind == c"O" or (op == 1 and kind == c"N")):
            return DECLINED
        if not table.shown[op]:
            if kind != c"N":
                pos = skip_tuple(buf, pos, end, table.count)
                if pos < 0 or op == 2:
                    return pos
                if pos >= end or buf[pos] != c"N":
                    return DECLINED
                pos += 1
            return skip_tuple(buf, pos, end, table.count)
        head = <bytes>table.heads[op]
        reserve(out, PyBytes_GET_SIZE(head) + self.xid_size + self.commit_size + self.origin_size
                + PyBytes_GET_SIZE(table.identity) + 128)
        put(out, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
        put(out, self.xid, self.xid_size)
        put(out, <const char *>b'"seq":', 6)
        put_unsigned(out, self.seq + 1)
        put_char(out, c",")
        put(out, self.commit, self.commit_size)
        if lsn:
            put(out, <const char *>b'"lsn":"', 7)
            put_lsn(out, lsn)
            put(out, <const char *>b'",', 2)
        if self.origin_size:
            put(out, self.origin, self.origin_size)
        if op:
            put(out, PyBytes_AS_STRING(table.identity), PyBytes_GET_SIZE(table.identity))
        if kind != c"N":
            put(out, <const char *>b'"old":', 6)
            pos = self.cells(table, buf, pos, end, kind, &unchanged)
            if pos < 0:
                return DECLINED
            if op == 1:
                if pos >= end or buf[pos] != c"N":
                    return DECLINED
                pos += 1
                reserve(out, 1)
                put_char(out, c",")
        if op != 2:
            reserve(out, 8)
            put(out, <const char *>b'"new":', 6)
            start = pos
            pos = self.cells(table, buf, pos, end, c"N", &unchanged)
            if pos < 0 or (unchanged and self.fill_unchanged and kind != c"N"):
                return DECLINED
            if unchanged:
                put_unchanged(out, table, buf, start)
        reserve(out, 2)
        put(out, <const char *>b"}\n", 2)
        self.passed = True
        return pos

    cdef Py_ssize_t cells(
        self, Table table, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint8_t kind, int *unchanged
    ) except -2:
        """Write a tuple as an object; returns where it ends, or DECLINED. `unchanged` counts unchanged TOAST values."""
        cdef Out *out = &self.out
        cdef Column *column
        cdef uint32_t size
        cdef uint8_t cell
        cdef int i
        cdef int done
        cdef bint first = True
        if end - pos < 2 or u16(buf + pos) != table.count:
            return DECLINED
        pos += 2
        reserve(out, 2)
        put_char(out, c"{")
        for i in range(table.count):
            if pos >= end:
                return DECLINED
            column = &table.columns[i]
            cell = buf[pos]
            if cell == c"u" and kind == c"N":
                unchanged[0] += 1
                pos += 1
                continue
            if cell == c"n" and kind == c"K" and not column.key:
                pos += 1
                continue
            reserve(out, column.name_size + 6)
            if not first:
                put_char(out, c",")
            first = False
            put(out, column.name, column.name_size)
            if cell == c"n":
                put(out, <const char *>b"null", 4)
                pos += 1
                continue
            if (cell != c"t" and cell != c"b") or end - pos < 5:
                return DECLINED
            size = u32(buf + pos + 1)
            pos += 5
            if size > end - pos or size > LARGE:
                return DECLINED
            if cell == c"t":
                done = put_text_cell(out, table, i, buf + pos, size)
            else:
                done = put_binary_cell(out, table, i, buf + pos, size)
            if done < 0:
                return DECLINED
            pos += size
        reserve(out, 1)
        put_char(out, c"}")
        return pos


def rows_of_one(buf, Py_ssize_t pos, Py_ssize_t end, int framing, Py_ssize_t limit):
    """Row messages of one (sub)transaction in a stream segment: see changes/kept_rows.py."""
    cdef Py_buffer view
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= pos <= end <= view.len:
            raise ValueError("not a part of the buffer")
        return kept_rows(<const uint8_t *>view.buf, pos, end, framing, limit)
    finally:
        PyBuffer_Release(&view)


cdef tuple kept_rows(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int framing, Py_ssize_t limit):
    cdef Py_ssize_t start = pos, at, stop
    cdef uint32_t subxid = 0, oid, last = 0
    cdef bint first = True
    cdef set oids = set()
    cdef Out out
    out.data, out.size, out.room = NULL, 0, 0
    try:
        while pos < end and pos - start < limit:
            if framing:
                stop = frame_end(buf, pos, end, framing)
                if stop < 0:
                    break
                at = pos + framing + HEADER
                if kept_row_end(buf, at, stop) != stop:
                    break
            else:
                at, stop = pos, kept_row_end(buf, pos, end)
                if stop < 0 or stop >= end or buf[stop] != c"\n" or stop - at > LARGE:
                    break
            if first:
                subxid = u32(buf + at + 1)
            elif subxid != u32(buf + at + 1):
                break
            oid = u32(buf + at + 5)
            if first or oid != last:
                oids.add(oid)
            first, last = False, oid
            if framing != 4:
                put_frame(&out, buf, pos + framing if framing else at, stop, framing > 0)
            pos = stop + (framing == 0)
        if framing == 4:
            return pos, PyBytes_FromStringAndSize(<const char *>buf + start, pos - start), subxid, tuple(oids)
        return pos, PyBytes_FromStringAndSize(out.data, out.size), subxid, tuple(oids)
    finally:
        PyMem_Free(out.data)


cdef int put_frame(Out *out, const uint8_t *buf, Py_ssize_t start, Py_ssize_t stop, bint framed) except -2:
    """A frame after its length. A bare message gets an XLogData header without positions."""
    cdef Py_ssize_t size = stop - start + (0 if framed else HEADER)
    cdef int i
    reserve(out, 4 + size)
    for i in range(4):
        put_char(out, <char>(size >> (24 - 8 * i)))
    if not framed:
        put_char(out, c"w")
        for i in range(HEADER - 1):
            put_char(out, 0)
    put(out, buf + start, stop - start)
    return 0


cdef Py_ssize_t kept_row_end(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end) noexcept:
    """Where a row message with an xid ends; DECLINED if it is another message or incomplete."""
    cdef uint8_t tag, kind
    if end - pos < 12:
        return DECLINED
    tag, kind = buf[pos], buf[pos + 9]
    pos += 10
    if tag == c"I":
        return skip_tuple(buf, pos, end, -1) if kind == c"N" else DECLINED
    if (tag != c"U" and tag != c"D") or (kind != c"K" and kind != c"O" and not (kind == c"N" and tag == c"U")):
        return DECLINED
    if kind != c"N":
        pos = skip_tuple(buf, pos, end, -1)
        if pos < 0 or tag == c"D":
            return pos
        if pos >= end or buf[pos] != c"N":
            return DECLINED
        pos += 1
    return skip_tuple(buf, pos, end, -1)


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


cdef int put_unchanged(Out *out, Table table, const uint8_t *buf, Py_ssize_t pos) except -2:
    """The names of columns with unchanged TOAST values. The tuple must be checked."""
    cdef int i
    cdef bint first = True
    reserve(out, 16)
    put(out, <const char *>b',"unchanged":[', 14)
    pos += 2
    for i in range(table.count):
        if buf[pos] == c"u":
            reserve(out, table.columns[i].name_size + 2)
            if not first:
                put_char(out, c",")
            first = False
            put(out, table.columns[i].name, table.columns[i].name_size - 1)
        pos += 1 if buf[pos] == c"u" or buf[pos] == c"n" else 5 + u32(buf + pos + 1)
    put_char(out, c"]")
    return 0


# -- columns for Arrow ---------------------------------------------------------------------------------------------

cdef enum:
    # For each row: native integers of the width at the end of the name, or one byte (validity, operation).
    OP_8
    TABLE_32
    XID_64
    SEQ_64
    POSITION_64
    TIME_64
    DATE_32
    LSN_64
    LSN_VALID
    SIZE_64
    ORDINAL_64
    # Strings: offsets and bytes.
    COMMIT_ENDS
    COMMIT_TEXT
    LSN_ENDS
    LSN_TEXT
    # Lists and maps: one validity byte and one offset for each row, then the strings.
    UNCHANGED_VALID
    UNCHANGED_ENDS
    UNCHANGED_NAME_ENDS
    UNCHANGED_NAME_TEXT
    OLD_VALID
    OLD_ENDS
    OLD_NAME_ENDS
    OLD_NAME_TEXT
    OLD_VALUE_VALID
    OLD_VALUE_ENDS
    OLD_VALUE_TEXT
    NEW_VALID
    NEW_ENDS
    NEW_NAME_ENDS
    NEW_NAME_TEXT
    NEW_VALUE_VALID
    NEW_VALUE_ENDS
    NEW_VALUE_TEXT
    BUFFERS

BUFFER_NAMES = (
    "op", "table", "xid", "seq", "position", "time", "date", "lsn_number", "lsn_valid", "bytes", "ordinal",
    "commit_ends", "commit_text", "lsn_ends", "lsn_text",
    "unchanged_valid", "unchanged_ends", "unchanged_name_ends", "unchanged_name_text",
    "old_valid", "old_ends", "old_name_ends", "old_name_text", "old_value_valid", "old_value_ends", "old_value_text",
    "new_valid", "new_ends", "new_name_ends", "new_name_text", "new_value_valid", "new_value_ends", "new_value_text",
)
cdef int[5] BITS = [LSN_VALID, UNCHANGED_VALID, OLD_VALID, OLD_VALUE_VALID, NEW_VALUE_VALID]
cdef int[7] STARTS = [
    COMMIT_ENDS, LSN_ENDS, UNCHANGED_ENDS, UNCHANGED_NAME_ENDS, OLD_ENDS, OLD_NAME_ENDS, OLD_VALUE_ENDS
]

cdef enum:
    MOST_ROWS = 64 * 1024
    MOST_TEXT = 16 << 20

cdef int64_t EPOCH = 946684800000000        # microseconds between the Unix epoch and PostgreSQL's
cdef int64_t LATEST = 0x7FFFFFFFFFFFFFFF - 946684800000000


cdef inline int add_32(Out *out, int32_t value) except -2:
    reserve(out, 4)
    put(out, &value, 4)
    return 0


cdef inline int add_64(Out *out, int64_t value) except -2:
    reserve(out, 8)
    put(out, &value, 8)
    return 0


cdef inline int add_8(Out *out, uint8_t value) except -2:
    reserve(out, 1)
    put_char(out, <char>value)
    return 0


cdef inline int add_string(Out *ends, const void *p, Py_ssize_t size) except -2:
    """Append a string to the offsets at `ends` and the bytes in the buffer after it."""
    cdef Out *text = ends + 1
    if size:
        reserve(text, size)
        put(text, p, size)
    return add_32(ends, <int32_t>text.size)


cdef int add_lsn(Out *ends, uint64_t lsn) except -2:
    cdef Out *text = ends + 1
    reserve(text, 20)
    put_lsn(text, lsn)
    return add_32(ends, <int32_t>text.size)


cdef bint is_utf8(const uint8_t *p, Py_ssize_t size) noexcept:
    cdef const uint8_t *end = p + size
    cdef uint64_t word
    cdef Py_ssize_t length
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not word & 0x8080808080808080ULL:
                p += 8
                continue
        if p[0] < 0x80:
            p += 1
        else:
            length = utf8_length(p, end - p)
            if not length:
                return False
            p += length
    return True


@cython.final
cdef class ColumnTable:
    """One version of a table: its number and the names of its columns."""

    cdef Column *columns
    cdef int count, number
    cdef bint shown
    cdef list names

    def __cinit__(self, int number, list names, list keys, bint shown):
        cdef int i
        self.number, self.shown = number, shown
        self.names = [name.encode() for name in names]
        self.count = len(names)
        self.columns = <Column *>PyMem_Calloc(self.count + 1, sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        for i in range(self.count):
            self.columns[i].name = PyBytes_AS_STRING(self.names[i])
            self.columns[i].name_size = PyBytes_GET_SIZE(self.names[i])
            self.columns[i].key = keys[i]

    def __dealloc__(self):
        PyMem_Free(self.columns)


@cython.final
cdef class Columns:
    """Writes ordinary rows, with their Begin and Commit, to the buffers of Arrow arrays.

    `find(oid)` returns (number, column names, which are keys, whether rows are shown) for the current version of the
    table, or None. Only for walsender frames in UTF-8 without streamed transactions.
    """

    cdef Out[BUFFERS] out
    cdef object find
    cdef dict tables
    cdef uint32_t last_oid
    cdef ColumnTable last
    cdef readonly bint inside, began
    cdef bint alone
    cdef readonly Py_ssize_t seq, ordinal, rows
    cdef uint32_t xid
    cdef uint64_t commit_lsn
    cdef int64_t commit_ts

    def __cinit__(self, find):
        self.find = find
        self.tables = {}
        self.clear()

    def __dealloc__(self):
        cdef int i
        for i in range(BUFFERS):
            PyMem_Free(self.out[i].data)

    cdef int clear(self) except -2:
        cdef int i
        for i in range(BUFFERS):
            self.out[i].size = 0
        for i in range(7):
            add_32(&self.out[STARTS[i]], 0)
        for i in (NEW_ENDS, NEW_NAME_ENDS, NEW_VALUE_ENDS):
            add_32(&self.out[i], 0)
        self.rows = 0
        return 0

    def forget(self):
        """Drop cached tables: they may have changed."""
        self.tables = {}
        self.last = None

    @property
    def transaction(self):
        """(xid, commit LSN, commit time) of the transaction that began in this run."""
        return self.xid, self.commit_lsn, self.commit_ts

    @property
    def full(self):
        """Whether the buffers are large enough to take()."""
        return self.is_full()

    cdef bint is_full(self) noexcept:
        cdef Py_ssize_t size = self.out[NEW_VALUE_TEXT].size + self.out[OLD_VALUE_TEXT].size
        size += self.out[NEW_NAME_TEXT].size + self.out[OLD_NAME_TEXT].size
        return self.rows >= MOST_ROWS or size >= MOST_TEXT

    def enter(self, xid, commit_lsn, commit_ts, seq, ordinal, alone):
        """The next run starts inside this transaction; if `alone`, it does not continue after the Commit."""
        self.alone = alone
        self.xid, self.commit_lsn, self.commit_ts = xid, commit_lsn, commit_ts
        self.inside, self.seq, self.ordinal = True, seq, ordinal

    def leave(self):
        """The next run starts outside a transaction."""
        self.inside = False

    def take(self):
        """The buffers by name (BUFFER_NAMES), validity as bits; removes all rows."""
        cdef int i
        cdef dict found = {}
        for i in range(5):
            pack_bits(&self.out[BITS[i]])
        pack_bits(&self.out[NEW_VALID])
        for i in range(BUFFERS):
            found[BUFFER_NAMES[i]] = PyBytes_FromStringAndSize(self.out[i].data, self.out[i].size)
        self.clear()
        return found

    def run(self, buf, Py_ssize_t pos, Py_ssize_t end, int framing):
        """Process messages of buf[pos:end]; returns where the first declined message starts."""
        cdef Py_buffer view
        self.began = False
        PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= pos <= end <= view.len:
                raise ValueError("not a part of the buffer")
            return self.messages(<const uint8_t *>view.buf, pos, end, framing)
        finally:
            PyBuffer_Release(&view)

    cdef Py_ssize_t messages(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int framing) except -2:
        cdef Py_ssize_t at, stop, after, begin = -1
        cdef Py_ssize_t[BUFFERS] mark
        cdef uint64_t lsn
        cdef uint8_t tag
        cdef int i
        while pos < end and not self.is_full():
            stop = frame_end(buf, pos, end, framing)
            if stop < 0:
                break
            at = pos + framing + HEADER
            lsn = u64(buf + pos + framing + 1)
            tag = buf[at]
            if tag == c"I" or tag == c"U" or tag == c"D":
                if not self.inside or lsn >> 63:
                    break
                for i in range(BUFFERS):
                    mark[i] = self.out[i].size
                after = self.row(buf, at, stop, lsn)
                if after != stop:
                    for i in range(BUFFERS):
                        self.out[i].size = mark[i]
                    break
                self.seq += 1
                self.ordinal += 1
                self.rows += self.out[OP_8].size > mark[OP_8]
                begin = -1
            elif tag == c"B":
                if self.inside or stop != at + 21 or u64(buf + at + 1) >> 63 or <int64_t>u64(buf + at + 9) > LATEST:
                    break
                begin = pos
                self.commit_lsn, self.commit_ts = u64(buf + at + 1), <int64_t>u64(buf + at + 9)
                self.xid = u32(buf + at + 17)
                self.inside = self.began = True
                self.alone = False
                self.seq = self.ordinal = 0
            elif tag == c"C":
                if not self.inside or self.alone or stop != at + 26 or buf[at + 1]:
                    break
                if u64(buf + at + 2) != self.commit_lsn or <int64_t>u64(buf + at + 18) != self.commit_ts:
                    break
                self.inside = self.began = False
                begin = -1
            else:
                break
            pos = stop
        if begin >= 0:
            # Only Begin of this transaction was read: undo it, as an Origin may follow, which the decoder handles.
            self.inside = self.began = False
            return begin
        return pos

    cdef ColumnTable table(self, uint32_t oid):
        """The current version of the table; None if it was not described."""
        if self.last is not None and oid == self.last_oid:
            return self.last
        found = self.tables.get(oid)
        if found is None:
            described = self.find(oid)
            if described is None:
                return None
            found = self.tables[oid] = ColumnTable(*described)
        self.last, self.last_oid = found, oid
        return self.last

    cdef Py_ssize_t row(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint64_t lsn) except -2:
        """Add one row; returns where its message ends, or DECLINED."""
        cdef int op = 0 if buf[pos] == c"I" else 1 if buf[pos] == c"U" else 2
        cdef Py_ssize_t size = end - pos
        cdef uint8_t kind
        cdef ColumnTable table
        cdef int before = <int>self.out[UNCHANGED_NAME_ENDS].size
        if size < 8:
            return DECLINED
        table = self.table(u32(buf + pos + 1))
        if table is None:
            return DECLINED
        kind = buf[pos + 5]
        pos += 6
        if not (kind == c"N" if op == 0 else kind == c"K" or kind == c"O" or (op == 1 and kind == c"N")):
            return DECLINED
        if kind != c"N":
            pos = self.cells(table, buf, pos, end, kind, OLD_NAME_ENDS)
            if pos < 0:
                return DECLINED
            if op == 1:
                if pos >= end or buf[pos] != c"N":
                    return DECLINED
                pos += 1
        if op != 2:
            pos = self.cells(table, buf, pos, end, c"N", NEW_NAME_ENDS)
        if pos < 0 or not table.shown:
            return pos
        self.map(OLD_VALID, kind != c"N", OLD_NAME_ENDS)
        self.map(NEW_VALID, op != 2, NEW_NAME_ENDS)
        self.map(UNCHANGED_VALID, self.out[UNCHANGED_NAME_ENDS].size > before, UNCHANGED_NAME_ENDS)
        add_8(&self.out[OP_8], op)
        add_32(&self.out[TABLE_32], 2 * table.number + (op == 0))
        add_64(&self.out[SEQ_64], self.seq + 1)
        add_64(&self.out[ORDINAL_64], self.ordinal + 1)
        add_64(&self.out[SIZE_64], size)
        add_64(&self.out[LSN_64], <int64_t>lsn)
        add_8(&self.out[LSN_VALID], lsn != 0)
        if lsn:
            add_lsn(&self.out[LSN_ENDS], lsn)
        else:
            add_string(&self.out[LSN_ENDS], NULL, 0)
        self.transaction_columns()
        return pos

    cdef int transaction_columns(self) except -2:
        add_64(&self.out[XID_64], self.xid)
        add_64(&self.out[POSITION_64], <int64_t>self.commit_lsn)
        add_64(&self.out[TIME_64], self.commit_ts + EPOCH)
        add_32(&self.out[DATE_32], <int32_t>floor_divided(self.commit_ts + EPOCH, DAY))
        return add_lsn(&self.out[COMMIT_ENDS], self.commit_lsn)

    cdef int map(self, int valid, bint value, int name_ends) except -2:
        """End a row's map or list: append the number of strings so far."""
        add_8(&self.out[valid], value)
        return add_32(&self.out[valid + 1], <int32_t>(self.out[name_ends].size // 4 - 1))

    cdef Py_ssize_t cells(
        self, ColumnTable table, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint8_t kind, int names
    ) except -2:
        """Add the cells of a tuple; returns where it ends, or DECLINED."""
        cdef Out *out = &self.out[names]
        cdef Column *column
        cdef uint32_t size
        cdef uint8_t cell
        cdef int i
        if not table.shown:
            return skip_tuple(buf, pos, end, table.count)
        if end - pos < 2 or u16(buf + pos) != table.count:
            return DECLINED
        pos += 2
        for i in range(table.count):
            if pos >= end:
                return DECLINED
            column = &table.columns[i]
            cell = buf[pos]
            if cell == c"t":
                if end - pos < 5:
                    return DECLINED
                size = u32(buf + pos + 1)
                if size > end - pos - 5 or not is_utf8(buf + pos + 5, size):
                    return DECLINED
                if out[3].size + size > MOST_TEXT * 8:
                    return DECLINED
                add_string(out, column.name, column.name_size)
                add_8(out + 2, 1)
                add_string(out + 3, buf + pos + 5, size)
                pos += 5 + size
            elif cell == c"n":
                pos += 1
                if kind == c"K" and not column.key:
                    continue
                add_string(out, column.name, column.name_size)
                add_8(out + 2, 0)
                add_string(out + 3, NULL, 0)
            elif cell == c"u" and kind == c"N":
                pos += 1
                add_string(&self.out[UNCHANGED_NAME_ENDS], column.name, column.name_size)
            else:
                return DECLINED
        return pos


cdef void pack_bits(Out *out) noexcept:
    """Turn one byte per value into one bit per value, lowest bit first, in place."""
    cdef Py_ssize_t i, count = out.size
    cdef uint8_t *data = <uint8_t *>out.data
    cdef uint8_t bits = 0
    for i in range(count):
        bits |= (data[i] != 0) << (i & 7)
        if i & 7 == 7:
            data[i >> 3] = bits
            bits = 0
    if count & 7:
        data[count >> 3] = bits
    out.size = (count + 7) // 8


# -- statistics ---------------------------------------------------------------------------------------------------

@cython.final
cdef class CountedTable:
    """One version of a table, and its counts since they were last added to its TableCount."""

    cdef object relation, counts
    cdef tuple places       # indexes of the key columns
    cdef int columns
    cdef bint shown[3]
    cdef bint touched
    cdef Py_ssize_t ops[3]
    cdef Py_ssize_t size, compared, same, moved, unsent
    cdef Py_ssize_t *unsent_columns

    def __cinit__(self, relation, shows):
        self.relation = relation
        self.columns = len(relation.columns)
        self.unsent_columns = <Py_ssize_t *>PyMem_Calloc(self.columns + 1, sizeof(Py_ssize_t))
        if self.unsent_columns == NULL:
            raise MemoryError
        for i, op in enumerate(("insert", "update", "delete")):
            self.shown[i] = shows(relation, op)

    def __dealloc__(self):
        PyMem_Free(self.unsent_columns)

    cdef int publish(self) except -2:
        """Add the counts to the TableCount and reset them."""
        cdef int i
        counts = self.counts
        counts.inserts += self.ops[0]
        counts.updates += self.ops[1]
        counts.deletes += self.ops[2]
        counts.bytes += self.size
        counts.compared += self.compared
        counts.same += self.same
        counts.moved += self.moved
        counts.unsent += self.unsent
        if self.unsent:
            for i in range(self.columns):
                if self.unsent_columns[i]:
                    counts.unsent_columns[counts.relation.columns[i].name] += self.unsent_columns[i]
                    self.unsent_columns[i] = 0
        self.ops[0] = self.ops[1] = self.ops[2] = 0
        self.size = self.compared = self.same = self.moved = self.unsent = 0
        self.touched = False
        return 0


@cython.final
cdef class StatsRows(Rows):
    """Counts for a pgtail.stats.collect.Statistics, which is passed as `write`; counts the same as its methods.

    Between two runs the Statistics holds the state of the current transaction. `fill_unchanged` says that there is a
    filter.
    """

    cdef int framing
    cdef Py_ssize_t now_rows, now_bytes
    cdef uint64_t first_lsn
    cdef bint anything
    cdef CountedTable counted

    def __init__(self, *_):
        global Binary, UNCHANGED
        from pgtail.pgoutput.cells import UNCHANGED, Binary

    def forget(self):
        """Drop cached tables: they may have changed."""
        self.tables = {}
        self.counted = None

    def enter(self, parts, commit_lsn, commit_ts, seq, passed):
        """The next run starts inside this transaction."""
        Rows.enter(self, parts, commit_lsn, commit_ts, seq, passed)
        if not passed:
            self.write.begin()

    def take(self, buf, Py_ssize_t pos, Py_ssize_t end, int framing, bint in_stream=False):
        """Count messages of buf[pos:end]; returns where the first declined message starts."""
        cdef CountedTable table
        stats = self.write
        self.framing = framing
        self.now_rows, self.now_bytes, self.anything = stats.now_rows, stats.now_bytes, stats.anything
        self.first_lsn = stats.first_lsn or 0
        try:
            return Rows.take(self, buf, pos, end, framing, in_stream)
        finally:
            stats.now_rows, stats.now_bytes, stats.anything = self.now_rows, self.now_bytes, self.anything
            stats.first_lsn = self.first_lsn or None
            for table in self.tables.values():
                if table.touched:
                    table.publish()

    cdef int start(self, uint64_t lsn, int64_t time, uint32_t xid) except -2:
        self.commit_lsn, self.commit_ts, self.number = lsn, time, xid
        self.inside = self.began = True
        self.passed = self.anything = False
        self.seq = self.now_rows = self.now_bytes = self.first_lsn = 0
        return 0

    cdef int ended(self) except -2:
        if not self.passed and self.fill_unchanged:
            return 0
        stats = self.write
        stats.now_rows, stats.now_bytes, stats.anything = self.now_rows, self.now_bytes, self.anything
        stats.first_lsn = self.first_lsn or None
        stats.committed(self.number if self.began else None, self.commit_lsn, self.commit_ts)
        return 0

    cdef CountedTable find_counted(self, uint32_t oid):
        """The current version of the table; None if it was not described."""
        if self.counted is not None and oid == self.last_oid:
            return self.counted
        found = self.tables.get(oid)
        if found is None:
            relation = self.find(oid)
            if relation is None:
                return None
            found = self.tables[oid] = CountedTable(relation, self.shows)
        self.counted, self.last_oid = found, oid
        return self.counted

    cdef Py_ssize_t row(
        self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint64_t lsn, int xid_size
    ) except -2:
        """Count one message; returns where it ends, or DECLINED."""
        cdef int op = 0 if buf[pos] == c"I" else 1 if buf[pos] == c"U" else 2
        cdef Py_ssize_t start = pos, old = DECLINED, new = DECLINED
        cdef CountedTable table
        cdef uint8_t kind
        if end - pos < 8 + xid_size:
            return DECLINED
        pos += xid_size
        table = self.find_counted(u32(buf + pos + 1))
        if table is None:
            return DECLINED
        kind = buf[pos + 5]
        pos += 6
        if not (kind == c"N" if op == 0 else kind == c"K" or kind == c"O" or (op == 1 and kind == c"N")):
            return DECLINED
        if kind != c"N":
            old = pos
            pos = skip_tuple(buf, pos, end, table.columns)
            if pos < 0 or (op == 1 and (pos >= end or buf[pos] != c"N")):
                return DECLINED
            pos += op == 1
        if op != 2:
            new = pos
            pos = skip_tuple(buf, pos, end, table.columns)
            if pos < 0:
                return DECLINED
        if not ends_here(buf, pos, end, self.framing > 0) or pos - start > LARGE:
            return DECLINED
        if table.shown[op]:
            self.count(table, op, kind, buf, old, new)
            table.size += pos - start - xid_size
            self.now_bytes += pos - start - xid_size
            self.now_rows += 1
            self.passed = self.anything = True
            if not self.first_lsn:
                self.first_lsn = lsn
        return pos

    cdef int count(
        self, CountedTable table, int op, uint8_t kind, const uint8_t *buf, Py_ssize_t old, Py_ssize_t new
    ) except -2:
        cdef Py_ssize_t key
        if table.counts is None:
            table.counts, places = self.write.known(table.relation)
            table.places = tuple(places)
        table.touched = True
        table.ops[op] += 1
        if op == 1:
            if kind == c"O":
                table.compared += 1
                table.same += same_rows(buf, old, new, table.columns, False)
            elif kind == c"K":
                table.moved += not same_rows(buf, old, new, table.columns, True)
            table.unsent += count_unsent(buf, new, table.columns, table.unsent_columns)
        if op and table.places:
            key = old if kind == c"K" else new
            if key >= 0:
                self.write.hot_keys.add((table.relation.version, key_of(buf, key, table.places)))
        return 0


cdef inline Py_ssize_t cell_end(const uint8_t *buf, Py_ssize_t pos) noexcept:
    """Where a cell of a checked tuple ends."""
    return pos + 1 if buf[pos] == c"n" or buf[pos] == c"u" else pos + 5 + u32(buf + pos + 1)


cdef bint same_rows(const uint8_t *buf, Py_ssize_t old, Py_ssize_t new, int columns, bint key) noexcept:
    """Whether two checked tuples are equal. Unchanged TOAST values count as equal; with `key`, NULLs of the old one too."""
    cdef Py_ssize_t old_end, new_end
    cdef int i
    old, new = old + 2, new + 2
    for i in range(columns):
        old_end, new_end = cell_end(buf, old), cell_end(buf, new)
        if buf[new] != c"u" and not (key and buf[old] == c"n"):
            if old_end - old != new_end - new:
                return False
            if new_end - new == 1:
                if buf[old] != buf[new]:
                    return False
            elif memcmp(buf + old + 1, buf + new + 1, new_end - new - 1):
                return False
        old, new = old_end, new_end
    return True


cdef bint count_unsent(const uint8_t *buf, Py_ssize_t pos, int columns, Py_ssize_t *counts) noexcept:
    """Whether a checked tuple has unchanged TOAST values; counts them by column."""
    cdef bint found = False
    cdef int i
    pos += 2
    for i in range(columns):
        if buf[pos] == c"u":
            counts[i] += 1
            found = True
        pos = cell_end(buf, pos)
    return found


cdef tuple key_of(const uint8_t *buf, Py_ssize_t pos, tuple places):
    """The cells of a checked tuple at these indexes, which are in ascending order."""
    cdef int i, at = 0
    cdef Py_ssize_t end
    cdef bytes value
    cells = []
    pos += 2
    for place in places:
        for i in range(<int>place - at):
            pos = cell_end(buf, pos)
        at = <int>place + 1
        end = cell_end(buf, pos)
        if buf[pos] == c"n":
            cells.append(None)
        elif buf[pos] == c"u":
            cells.append(UNCHANGED)
        else:
            value = PyBytes_FromStringAndSize(<const char *>buf + pos + 5, end - pos - 5)
            cells.append(value if buf[pos] == c"t" else Binary(value))
        pos = end
    return tuple(cells)
