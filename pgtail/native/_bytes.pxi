"""Bytes in and bytes out: integers, a growing buffer, numbers, log positions and times as text."""

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
cdef int64_t EPOCH = 946684800000000        # microseconds between the Unix epoch and PostgreSQL's
cdef int64_t LATEST_UNIX = 0x7FFFFFFFFFFFFFFF - 946684800000000    # the last time that has a Unix time
cdef int64_t EARLIEST_TIMESTAMP = -211813488000000000
cdef int64_t TIMESTAMPS_END = 9223371331200000000

cdef enum:
    DECLINED = -1
    FULL = 1 << 20          # bytes of text that are written at once
    LARGE = 1 << 20         # bytes; larger messages are declined, as the decoder needs less memory for them
    HEADER = 25             # of XLogData: 'w', start, end, clock
    KEEPALIVE = 18          # 'k', end, clock, whether to answer at once
    MOST_COLUMNS = 1600     # of any table

cdef const char *HEX = b"0123456789abcdef"
cdef const char *UPPER = b"0123456789ABCDEF"


def keep_memory():
    """Make the allocator of this process keep freed buffers of up to 8 MB.

    By default glibc returns each to the kernel, which clears the pages again for the next one: 20 % of the time to
    read a file.
    """
    KEEP_MEMORY()


cdef inline uint16_t u16(const uint8_t *p) noexcept:
    return <uint16_t>((p[0] << 8) | p[1])


cdef inline uint32_t u32(const uint8_t *p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | <uint32_t>p[3]


cdef inline uint64_t u64(const uint8_t *p) noexcept:
    return (<uint64_t>u32(p) << 32) | <uint64_t>u32(p + 4)


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
    """Append bytes. Most are short: these are copied in at most two moves that overlap, without a call."""
    cdef char *to = out.data + out.size
    cdef const char *start = <const char *>data
    if 8 <= size <= 16:
        memcpy(to, start, 8)
        memcpy(to + size - 8, start + size - 8, 8)
    elif 16 < size <= 32:
        memcpy(to, start, 16)
        memcpy(to + size - 16, start + size - 16, 16)
    else:
        memcpy(to, start, size)
    out.size += size


cdef int put_object(Out *out, bytes text) except -2:
    """Append bytes, with room for them. The argument keeps them alive until they are copied."""
    reserve(out, PyBytes_GET_SIZE(text))
    put(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0


cdef inline void put_char(Out *out, char value) noexcept:
    out.data[out.size] = value
    out.size += 1


cdef int put_blanks(Out *out, Py_ssize_t count) except -2:
    if count > 0:
        reserve(out, count)
        memset(out.data + out.size, c" ", count)
        out.size += count
    return 0


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


cdef inline void put_milliseconds(Out *out, int64_t micros) noexcept:
    """HH:MM:SS.mmmZ of microseconds since midnight."""
    put_clock(out, micros)
    put_char(out, c".")
    put_digits(out, <uint32_t>(micros % 1000000 // 1000), 3)
    put_char(out, c"Z")


cdef void put_time(Out *out, int64_t time, char between) noexcept:
    """The same as time_text() in pgoutput/scalars.py, with `between` as its T."""
    cdef int64_t days = floor_divided(time, DAY)
    cdef int64_t rest = floor_remainder(time, DAY)
    cdef bint before_christ = put_date(out, days)
    put_char(out, between)
    put_clock(out, rest)
    put_char(out, c".")
    put_digits(out, <uint32_t>(rest % 1000000), 6)
    put_char(out, c"Z")
    if before_christ:
        put(out, <const char *>b" BC", 3)
