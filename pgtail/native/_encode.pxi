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
    cdef Py_ssize_t plain, length
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
        while size and p[0] >= 0x80:
            length = utf8_length(p, size)
            if not length or not is_shown(p):
                return DECLINED
            put(out, p, length)
            p += length
            size -= length
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


# ==== wal2json: what outputs/wal2json/values.py writes for numbers and bytea =======================================

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


# ==== debezium: the same as the functions of outputs/debezium/values.py and times.py ===============================
# They decline what is rare: BC, years beyond 9999, infinity, NaN, numerics of more than 18 digits.

cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef bytes _HEX_VALUES = bytes([int(chr(i), 16) if chr(i) in "0123456789ABCDEFabcdef" else 16 for i in range(256)])
cdef const uint8_t *HEX_VALUES = <const uint8_t *>PyBytes_AS_STRING(_HEX_VALUES)    # 16: no hexadecimal digit

# Typed constants: Cython turns a literal above 32 bits into a Python object, which makes the expression slow.
cdef int64_t LARGEST_BEFORE_DIGIT = 99999999999999999   # with one more digit it has 18
cdef int64_t YEAR_1 = -62135596800000000                # microseconds since 1970
cdef int64_t YEAR_10000 = 253402300800000000

cdef enum:
    DAYS_TO_2000 = 10957    # from 1970-01-01


# -- numbers -------------------------------------------------------------------------------------------------------

cdef inline bint consists_of(const uint8_t *p, Py_ssize_t size, const char *others, int count) noexcept:
    """Whether all characters are digits or among the `count` others."""
    cdef Py_ssize_t i
    for i in range(size):
        if not is_digit(p[i]) and memchr(others, p[i], count) == NULL:
            return False
    return True


cdef int encode_debezium_integer(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """An integer as a JSON number."""
    return put_number(out, p, size, False) if consists_of(p, size, b"-", 1) else DECLINED


cdef int encode_debezium_integers(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """An array of integers as a JSON array."""
    return put_array(out, p, size, ITEM_NUMBER) if consists_of(p, size, b"-,{}NUL", 7) else DECLINED


cdef int encode_debezium_decimal_text(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A numeric as a JSON string."""
    return put_number(out, p, size, True) if consists_of(p, size, b"-.", 2) else DECLINED


cdef int encode_debezium_decimal(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A numeric with `parameter` fractional digits, as the base64 of its unscaled value."""
    cdef int64_t value
    if not read_unscaled(p, size, parameter, &value):
        return DECLINED
    reserve(out, 16)
    put_unscaled(out, value)
    return 0


cdef int encode_debezium_variable_decimal(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A numeric as its scale without trailing zeros and its unscaled value."""
    cdef int64_t value
    cdef const uint8_t *point = <const uint8_t *>memchr(p, c".", size)
    cdef Py_ssize_t scale = 0
    if point != NULL:
        scale = p + size - point - 1
        while scale and point[scale] == c"0":
            scale -= 1
    if not read_unscaled(p, size, scale, &value):
        return DECLINED
    reserve(out, 64)
    put(out, <const char *>b'{"scale":', 9)
    put_unsigned(out, <uint64_t>scale)
    put(out, <const char *>b',"value":', 9)
    put_unscaled(out, value)
    put_char(out, c"}")
    return 0


cdef bint read_unscaled(const uint8_t *p, Py_ssize_t size, int64_t scale, int64_t *value) noexcept:
    """The value of -?digits(.digits)? times 10**scale. False for other texts, and if it is no integer of 18 digits."""
    cdef Py_ssize_t i = 0
    cdef int64_t found = 0, left = scale
    cdef bint negative = size > 0 and p[0] == c"-", fraction = False
    if negative:
        i = 1
    if i >= size or not is_digit(p[i]) or not is_digit(p[size - 1]):
        return False
    while i < size:
        if p[i] == c"." and not fraction:
            fraction = True
        elif not is_digit(p[i]):
            return False
        elif fraction and left == 0:
            if p[i] != c"0":
                return False
        else:
            if found > LARGEST_BEFORE_DIGIT:
                return False
            found = 10 * found + (p[i] - 48)
            left -= fraction
        i += 1
    while left:
        if found > LARGEST_BEFORE_DIGIT:
            return False
        found *= 10
        left -= 1
    value[0] = -found if negative else found
    return True


cdef void put_unscaled(Out *out, int64_t value) noexcept:
    """The bytes of Java's BigInteger.toByteArray() as a base64 string; at most 14 bytes."""
    cdef uint8_t digits[8]
    cdef int size = 1, i
    while size < 8 and not -(<int64_t>1 << 8 * size - 1) <= value < <int64_t>1 << 8 * size - 1:
        size += 1
    for i in range(size):
        digits[i] = <uint8_t>(<uint64_t>value >> 8 * (size - 1 - i))
    put_char(out, c'"')
    for i in range(0, size, 3):
        put_base64(out, digits + i, min(size - i, 3))
    put_char(out, c'"')


# -- bytes ---------------------------------------------------------------------------------------------------------

cdef inline void put_base64(Out *out, const uint8_t *p, int size) noexcept:
    """One to three bytes as four characters."""
    cdef uint32_t group = <uint32_t>p[0] << 16
    cdef char *to = out.data + out.size
    if size > 1:
        group |= <uint32_t>p[1] << 8
    if size > 2:
        group |= p[2]
    to[0] = BASE64[group >> 18]
    to[1] = BASE64[(group >> 12) & 63]
    to[2] = BASE64[(group >> 6) & 63] if size > 1 else c"="
    to[3] = BASE64[group & 63] if size > 2 else c"="
    out.size += 4


cdef int encode_debezium_bytes(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A bytea in hex format as base64."""
    cdef uint8_t group[3]
    cdef int count, k, high, low
    cdef Py_ssize_t i
    if size < 2 or size % 2 or p[0] != c"\\" or p[1] != c"x":
        return DECLINED
    reserve(out, (size - 2 + 5) // 6 * 4 + 2)
    put_char(out, c'"')
    for i in range(2, size, 6):
        count = <int>min(size - i, 6) // 2
        for k in range(count):
            high, low = HEX_VALUES[p[i + 2 * k]], HEX_VALUES[p[i + 2 * k + 1]]
            if (high | low) > 15:
                return DECLINED
            group[k] = <uint8_t>(high << 4 | low)
        put_base64(out, group, count)
    put_char(out, c'"')
    return 0


# -- dates and times -----------------------------------------------------------------------------------------------

cdef inline int two_digits(const uint8_t *p) noexcept:
    """The number of two digits; -1 for other characters."""
    return 10 * (p[0] - 48) + p[1] - 48 if is_digit(p[0]) and is_digit(p[1]) else -1


cdef bint read_date(const uint8_t *p, int64_t *days) noexcept:
    """YYYY-MM-DD of the years 1 to 9999, as days since 1970-01-01. Reads ten bytes."""
    cdef int century = two_digits(p), rest = two_digits(p + 2), month = two_digits(p + 5), day = two_digits(p + 8)
    cdef int year = 100 * century + rest
    if century < 0 or rest < 0 or year < 1 or p[4] != c"-" or not 1 <= month <= 12 or p[7] != c"-" or day < 0:
        return False
    year -= month <= 2
    days[0] = (year // 400 * 146097 + year % 400 * 365 + year % 400 // 4 - year % 400 // 100
               + (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1 - 719468)
    return True


cdef Py_ssize_t read_clock(const uint8_t *p, Py_ssize_t size, int64_t *micros) noexcept:
    """HH:MM:SS with at most six fractional digits, as microseconds; returns its length, 0 if there is none."""
    cdef int hours, minutes, seconds, digits = 0
    cdef int64_t fraction = 0
    cdef Py_ssize_t length = 8
    if size < 8 or p[2] != c":" or p[5] != c":":
        return 0
    hours, minutes, seconds = two_digits(p), two_digits(p + 3), two_digits(p + 6)
    if hours < 0 or minutes < 0 or seconds < 0:
        return 0
    if size > 9 and p[8] == c"." and is_digit(p[9]):
        length = 9
        while digits < 6:
            fraction *= 10
            digits += 1
            if length < size and is_digit(p[length]):
                fraction += p[length] - 48
                length += 1
    micros[0] = <int64_t>((hours * 60 + minutes) * 60 + seconds) * 1000000 + fraction
    return length


cdef bint read_zone(const uint8_t *p, Py_ssize_t size, int64_t *micros) noexcept:
    """+HH, +HH:MM or +HH:MM:SS, or the same with a minus, as microseconds."""
    cdef int64_t found = 0, unit = 3600000000
    cdef Py_ssize_t i
    cdef int part
    if size != 3 and size != 6 and size != 9:
        return False
    for i in range(0, size, 3):
        part = two_digits(p + i + 1)
        if part < 0 or (i and p[i] != c":"):
            return False
        found += part * unit
        unit //= 60
    if p[0] != c"+" and p[0] != c"-":
        return False
    micros[0] = -found if p[0] == c"-" else found
    return True


cdef int put_signed_number(Out *out, int64_t value) except -2:
    reserve(out, 24)
    put_signed(out, value)
    return 0


cdef int encode_debezium_date(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A date as days since 1970-01-01."""
    cdef int64_t days
    if size != 10 or not read_date(p, &days):
        return DECLINED
    return put_signed_number(out, days)


cdef int encode_debezium_time(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A time in units of `parameter` microseconds."""
    cdef int64_t micros
    if size < 8 or read_clock(p, size, &micros) != size:
        return DECLINED
    return put_signed_number(out, micros // parameter)


cdef int encode_debezium_timestamp(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A timestamp since 1970-01-01 00:00:00 in units of `parameter` microseconds."""
    cdef int64_t days, micros
    if size < 19 or not read_date(p, &days) or p[10] != c" " or read_clock(p + 11, size - 11, &micros) != size - 11:
        return DECLINED
    return put_signed_number(out, floor_divided(days * DAY + micros, parameter))


cdef int encode_debezium_timestamptz(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A timestamptz as Java's ISO text in UTC with `parameter` fractional digits; 0: as many as needed."""
    cdef int64_t days, micros, offset
    cdef uint32_t fraction
    cdef int digits = <int>parameter if parameter < 6 else 6
    cdef Py_ssize_t length
    if size < 22 or not read_date(p, &days) or p[10] != c" ":
        return DECLINED
    length = 11 + read_clock(p + 11, size - 11, &micros)
    if length == 11 or not read_zone(p + length, size - length, &offset):
        return DECLINED
    micros += days * DAY - offset
    if not YEAR_1 <= micros < YEAR_10000:
        return DECLINED
    reserve(out, 32)
    put_char(out, c'"')
    put_date(out, floor_divided(micros, DAY) - DAYS_TO_2000)
    put_char(out, c"T")
    put_clock(out, floor_remainder(micros, DAY))
    fraction = <uint32_t>floor_remainder(micros, 1000000)
    if digits or fraction:
        put_char(out, c".")
        put_digits(out, fraction, 6)
        if digits:
            out.size -= 6 - digits
        else:
            while out.data[out.size - 1] == c"0":
                out.size -= 1
    put(out, <const char *>b'Z"', 2)
    return 0


# ==== all encoders by name =========================================================================================

ctypedef int (*Encoder)(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2

cdef enum:
    MOST_ENCODERS = 64

cdef Encoder[MOST_ENCODERS] ENCODERS
cdef dict FORMS = {}        # the name of each encoder -> its place in ENCODERS


cdef Encoder encoder_of(str name) except NULL:
    return ENCODERS[<int>FORMS[name]]


def encode(str name, int64_t parameter, text):
    """A text, in any buffer, by the form of that name; None if it is declined. For tests."""
    cdef Encoder encoder = encoder_of(name)
    cdef Py_buffer view
    cdef Out out = no_bytes()
    PyObject_GetBuffer(text, &view, PyBUF_SIMPLE)
    try:
        reserve(&out, 1)
        if encoder(&out, <const uint8_t *>view.buf, view.len, parameter) < 0:
            return None
        return PyBytes_FromStringAndSize(out.data, out.size)
    finally:
        PyBuffer_Release(&view)
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


cdef int put_csv(Out *out, const uint8_t *p, Py_ssize_t size, bint quoted) except -2:
    """The characters of a field, if `quoted` with quotation marks doubled. DECLINED if it is not valid UTF-8.

    Returns 1 for a field that must be quoted, and is not.
    """
    cdef Py_ssize_t plain, length
    while size > 0:
        plain = copy_plain(out.data + out.size, p, size, c'"', c'"' if quoted else c",", c'"')
        out.size += plain
        p += plain
        size -= plain
        while size and p[0] >= 0x80:
            length = utf8_length(p, size)
            if not length:
                return DECLINED
            put(out, p, length)
            p += length
            size -= length
        while size and (p[0] < 0x20 or p[0] == c'"' or (p[0] == c"," and not quoted)):
            if not quoted and (p[0] >= 0x20 or p[0] == c"\r" or p[0] == c"\n"):
                return 1
            if p[0] == c'"':
                put_char(out, c'"')
            put_char(out, p[0])
            p += 1
            size -= 1
    return 0


cdef int encode_csv(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    """A field, quoted where outputs/csv.py does. Declined if it starts or ends with a character beyond ASCII."""
    cdef Py_ssize_t start = out.size, plain
    cdef int found = 1
    if size and (p[0] >= 0x80 or p[size - 1] >= 0x80):
        return DECLINED
    reserve(out, 2 * size + 2)
    if size and not is_blank(p[0]) and not is_blank(p[size - 1]):
        plain = copy_plain(out.data + out.size, p, size, c'"', c",", c"\\")
        if plain == size:
            out.size += size
            return 0
        if (p[plain] < 0x20 or p[plain] >= 0x80) and memchr(p, c"\\", size) == NULL:
            found = put_csv(out, p, size, False)
    if found > 0:
        out.size = start
        put_char(out, c'"')
        found = put_csv(out, p, size, True)
        put_char(out, c'"')
    return found


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
