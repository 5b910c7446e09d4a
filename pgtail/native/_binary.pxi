"""Binary cells to PostgreSQL's text, for the built-in types that compiled code knows; a value in doubt is declined."""

cdef enum:
    MOST_DIGITS = 64        # of a numeric before its point, in groups of four
    MOST_SCALE = 1000

cdef enum BinaryType:
    BINARY_UNKNOWN
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

cdef dict BINARY_TYPES = {
    "bool": BINARY_BOOL, "int2": BINARY_INT2, "int4": BINARY_INT4, "int8": BINARY_INT8,
    "oid": BINARY_OID, "float4": BINARY_FLOAT4, "float8": BINARY_FLOAT8, "numeric": BINARY_NUMERIC,
    "text": BINARY_TEXT, "bytea": BINARY_BYTEA,
    "uuid": BINARY_UUID, "date": BINARY_DATE, "timestamp": BINARY_TIMESTAMP, "timestamptz": BINARY_TIMESTAMPTZ,
    "json": BINARY_JSON, "jsonb": BINARY_JSONB,
}


cdef int put_binary(Out *out, BinaryType type, const uint8_t *p, Py_ssize_t size) except -2:
    """The text of a binary cell; DECLINED if its type is unknown or its value is not an ordinary one."""
    if type == BINARY_INT4 and size == 4:
        return put_integer(out, <int32_t>u32(p))
    if type == BINARY_INT8 and size == 8:
        return put_integer(out, <int64_t>u64(p))
    if type == BINARY_TEXT or type == BINARY_JSON:
        return put_text(out, p, size)
    if type == BINARY_BOOL and size == 1 and p[0] <= 1:
        reserve(out, 1)
        put_char(out, c"t" if p[0] else c"f")
        return 0
    if type == BINARY_INT2 and size == 2:
        return put_integer(out, <int16_t>u16(p))
    if type == BINARY_OID and size == 4:
        return put_integer(out, u32(p))
    if type == BINARY_FLOAT4 and size == 4:
        return put_float4(out, u32(p))
    if type == BINARY_FLOAT8 and size == 8:
        return put_float8(out, u64(p))
    if type == BINARY_NUMERIC:
        return put_numeric(out, p, size)
    if type == BINARY_BYTEA:
        return put_bytea(out, p, size)
    if type == BINARY_UUID and size == 16:
        return put_uuid(out, p)
    if type == BINARY_DATE and size == 4:
        return put_day(out, <int32_t>u32(p))
    if (type == BINARY_TIMESTAMP or type == BINARY_TIMESTAMPTZ) and size == 8:
        return put_timestamp(out, <int64_t>u64(p), type == BINARY_TIMESTAMPTZ)
    if type == BINARY_JSONB and size and p[0] == 1:
        return put_text(out, p + 1, size - 1)
    return DECLINED


cdef int put_integer(Out *out, int64_t value) except -2:
    reserve(out, 24)
    put_signed(out, value)
    return 0


cdef int put_text(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    if memchr(p, 0, size) != NULL:
        return DECLINED
    reserve(out, size)
    put(out, p, size)
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
    places = 5
    while True:     # it ends: all float4 were tried, and nine digits suffice
        text = PyOS_double_to_string(value, c"e", places, 0, NULL)
        try:
            nearest = PyOS_string_to_double(text, NULL, None)
            if low < nearest < high:
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
        places += 1


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


cdef int put_numeric(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
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
    return 0


cdef void put_hex_bytes(Out *out, const uint8_t *p, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        put_char(out, HEX[p[i] >> 4])
        put_char(out, HEX[p[i] & 15])


cdef int put_bytea(Out *out, const uint8_t *p, Py_ssize_t size) except -2:
    reserve(out, 2 * size + 2)
    put(out, <const char *>b"\\x", 2)
    put_hex_bytes(out, p, size)
    return 0


cdef int put_uuid(Out *out, const uint8_t *p) except -2:
    reserve(out, 38)
    put_hex_bytes(out, p, 4)
    put_char(out, c"-")
    put_hex_bytes(out, p + 4, 2)
    put_char(out, c"-")
    put_hex_bytes(out, p + 6, 2)
    put_char(out, c"-")
    put_hex_bytes(out, p + 8, 2)
    put_char(out, c"-")
    put_hex_bytes(out, p + 10, 6)
    return 0


cdef int put_day(Out *out, int32_t days) except -2:
    if not -2451545 <= days < 2147483494 - 2451545:
        return DECLINED
    reserve(out, 24)
    if put_date(out, days):
        put(out, <const char *>b" BC", 3)
    return 0


cdef int put_timestamp(Out *out, int64_t micros, bint zone) except -2:
    if not EARLIEST_TIMESTAMP <= micros < TIMESTAMPS_END:
        return DECLINED
    reserve(out, 48)
    put_moment(out, micros, zone)
    return 0


cdef void put_moment(Out *out, int64_t micros, bint zone) noexcept:
    """The text of a timestamp, with +00 if `zone`."""
    cdef int64_t rest = floor_remainder(micros, DAY)
    cdef uint32_t fraction = <uint32_t>(rest % 1000000)
    cdef bint before_christ = put_date(out, floor_divided(micros, DAY))
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
