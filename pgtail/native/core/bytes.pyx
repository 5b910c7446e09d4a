"""Bytes in and bytes out: integers, a growing buffer, numbers, log positions and times as text."""

cdef extern from *:
    """
    /* Sixteen bytes that are compared at once, by whatever instructions the processor has. A flag is 0 or 0xFF. */
    typedef uint8_t pgtail_block __attribute__((vector_size(16)));
    typedef int8_t pgtail_signed __attribute__((vector_size(16)));
    typedef uint64_t pgtail_words __attribute__((vector_size(16)));
    /* For tests: 1 does without SSE2, 2 also without the order of the bytes in memory. */
    #ifndef PGTAIL_PORTABLE
    #define PGTAIL_PORTABLE 0
    #endif
    #define PGTAIL_LITTLE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && PGTAIL_PORTABLE < 2)
    #if defined(__SSE2__) && !PGTAIL_PORTABLE
    #include <emmintrin.h>
    #define PGTAIL_SSE2 1
    #else
    #define PGTAIL_SSE2 0
    #endif

    /* The next bytes, at most `left`, which are fewer than 16, and then zeros. Reads nothing else. */
    static inline pgtail_block pgtail_read_last(const uint8_t *p, Py_ssize_t left) {
    #if PGTAIL_LITTLE
        uint64_t first = 0, last = 0;
        uint32_t halves[2];
        if (left >= 8) {
            int half = 4 * (int)(16 - left);
            memcpy(&first, p, 8);
            memcpy(&last, p + left - 8, 8);
            last = last >> half >> half;            /* a shift by all 64 bits is not defined */
        } else if (left >= 4) {
            memcpy(halves, p, 4);
            memcpy(halves + 1, p + left - 4, 4);
            first = halves[0] | (uint64_t)halves[1] << 8 * (left - 4);
        } else if (left > 0) {
            first = p[0] | (uint64_t)p[left >> 1] << 8 * (left >> 1) | (uint64_t)p[left - 1] << 8 * (left - 1);
        }
        return (pgtail_block)(pgtail_words){first, last};
    #else
        pgtail_block block = {0};
        for (Py_ssize_t i = 0; i < left; i++) block[i] = p[i];
        return block;
    #endif
    }

    /* How many bytes come before the first flag that is set. */
    static inline Py_ssize_t pgtail_before(pgtail_block flags) {
    #if PGTAIL_SSE2
        return __builtin_ctz(_mm_movemask_epi8((__m128i)flags) | 1 << 16);
    #elif PGTAIL_LITTLE
        pgtail_words words = (pgtail_words)flags;
        return words[0] ? __builtin_ctzll(words[0]) >> 3 : words[1] ? 8 + (__builtin_ctzll(words[1]) >> 3) : 16;
    #else
        Py_ssize_t i = 0;
        while (i < 16 && !flags[i]) i++;
        return i;
    #endif
    }

    static inline pgtail_block pgtail_unusual(pgtail_block block, uint8_t a, uint8_t b, uint8_t c) {
        return (pgtail_block)((pgtail_signed)block < 0x20) | (pgtail_block)(block == a) | (pgtail_block)(block == b)
            | (pgtail_block)(block == c);
    }

    /* How many bytes come before a control character, one that is not ASCII, `a`, `b` or `c`, which may be the same. */
    static inline Py_ssize_t pgtail_plain(char *to, const uint8_t *p, Py_ssize_t size, uint8_t a, uint8_t b, uint8_t c) {
        Py_ssize_t done = 0, count = 16;
        pgtail_block block;
        for (; size - done >= 16; done += 16) {
            memcpy(&block, p + done, 16);
            if (to) memcpy(to + done, &block, 16);
            count = pgtail_before(pgtail_unusual(block, a, b, c));
            if (count < 16) return done + count;
        }
        block = pgtail_read_last(p + done, size - done);
        if (to) memcpy(to + done, &block, 16);
        count = done + pgtail_before(pgtail_unusual(block, a, b, c));
        return count < size ? count : size;
    }

    /* Copies fewer than 16 bytes, with others after them up to 16; returns how many digits come first. */
    static inline Py_ssize_t pgtail_copy_digits(char *to, const uint8_t *p, Py_ssize_t size) {
        pgtail_block block = pgtail_read_last(p, size);
        memcpy(to, &block, 16);
        return pgtail_before((pgtail_block)((block - '0') > 9));
    }

    /* How many digits come first. */
    static inline Py_ssize_t pgtail_digits(const uint8_t *p, Py_ssize_t size) {
        Py_ssize_t done = 0, count = 16;
        pgtail_block block;
        for (; count == 16 && size - done >= 16; done += count) {
            memcpy(&block, p + done, 16);
            count = pgtail_before((pgtail_block)((block - '0') > 9));
        }
        return count < 16 ? done : done + pgtail_before((pgtail_block)((pgtail_read_last(p + done, size - done) - '0') > 9));
    }

    #ifdef __GLIBC__
    #include <malloc.h>
    #define PGTAIL_KEEP_MEMORY() (mallopt(M_MMAP_THRESHOLD, 8 << 20), mallopt(M_TRIM_THRESHOLD, 64 << 20))
    #else
    #define PGTAIL_KEEP_MEMORY() 0
    #endif
    #ifndef PGTAIL_EXACT
    #define PGTAIL_EXACT 0
    #endif
    """
    # Copies them to `to` unless it is NULL, with up to 16 other bytes after them.
    Py_ssize_t copy_plain "pgtail_plain"(char *to, const uint8_t *p, Py_ssize_t size, uint8_t a, uint8_t b, uint8_t c)
    Py_ssize_t copy_digits "pgtail_copy_digits"(char *to, const uint8_t *p, Py_ssize_t size)
    Py_ssize_t count_digits "pgtail_digits"(const uint8_t *p, Py_ssize_t size)
    int KEEP_MEMORY "PGTAIL_KEEP_MEMORY"()
    bint EXACT "PGTAIL_EXACT"   # whether buffers are as small as they may be, for tests that check every access

# Typed constants: Cython turns a literal above 32 bits into a Python object, which makes the expression slow.
cdef int64_t DAY = 86400000000              # microseconds
cdef int64_t EPOCH = 946684800000000        # microseconds between the Unix epoch and PostgreSQL's
cdef int64_t LATEST_UNIX = 0x7FFFFFFFFFFFFFFF - 946684800000000    # the last time that has a Unix time

cdef enum:
    DECLINED = -1
    FULL = 1 << 18          # bytes of text that are written at once
    SLACK = 32              # bytes after the room of a buffer, which may be overwritten
    LARGE = 1 << 20         # bytes; larger messages are declined, as the decoder needs less memory for them
    HEADER = 25             # of XLogData: 'w', start, end, clock
    KEEPALIVE = 18          # 'k', end, clock, whether to answer at once
    MOST_COLUMNS = 1600     # of any table

cdef const char *HEX = b"0123456789abcdef"
cdef const char *UPPER = b"0123456789ABCDEF"
cdef bytes _PAIRS = b"".join([b"%02d" % i for i in range(100)])
cdef const char *PAIRS = _PAIRS     # 00 to 99


def keep_memory():
    """Make the allocator of this process keep freed buffers of up to 8 MB.

    By default glibc returns each to the kernel, which clears the pages again for the next one: 20 % of the time to
    read a file.
    """
    KEEP_MEMORY()


cdef inline uint16_t u16(const uint8_t *p) noexcept nogil:
    return <uint16_t>((p[0] << 8) | p[1])


cdef inline uint32_t u32(const uint8_t *p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | <uint32_t>p[3]


cdef inline uint64_t u64(const uint8_t *p) noexcept:
    return (<uint64_t>u32(p) << 32) | <uint64_t>u32(p + 4)


cdef struct Out:
    char *data
    Py_ssize_t size
    Py_ssize_t room
    Py_ssize_t kept         # of the room, for what is put without reserve()
    PyObject *object        # the bytes object that has the data; NULL without any

cdef struct Bytes:
    const char *data        # NULL for none
    Py_ssize_t size


@cython.final
cdef class Buffer:
    """Owns a buffer, which is empty at first."""

    cdef Out out

    def __dealloc__(self):
        Py_XDECREF(self.out.object)


cdef void *zeroed(list kept, Py_ssize_t count, size_t size) except NULL:
    """An array of zeros that `kept` keeps: `count` entries of a size."""
    cdef bytearray memory = bytearray(count * size)
    kept.append(memory)
    return PyByteArray_AS_STRING(memory)


cdef int grow(Out *out, Py_ssize_t more) except -2 with gil:
    """Make room. Without memory, the buffer stays as it is."""
    cdef Out larger
    new_object(&larger, out.size + more if EXACT else 2 * (out.size + more))
    if out.size:
        memcpy(larger.data, out.data, out.size)
    Py_XDECREF(out.object)
    out.object, out.data, out.room = larger.object, larger.data, larger.room
    return 0


cdef int new_object(Out *out, Py_ssize_t room) except -2:
    """Begin a bytes object with this much room, for finished()."""
    cdef bytes data = PyBytes_FromStringAndSize(NULL, room + SLACK)
    Py_INCREF(data)
    out.object, out.data, out.size, out.room = <PyObject *>data, PyBytes_AS_STRING(data), 0, room
    return 0


cdef bytes finished(Out *out):
    """The object, without the room that is left. The buffer has none then."""
    cdef PyObject *made = out.object
    cdef Py_ssize_t size = out.size
    cdef bytes data
    out.object, out.data, out.size, out.room = NULL, NULL, 0, 0
    _PyBytes_Resize(&made, size)
    data = <bytes>made
    Py_DECREF(data)         # what the buffer counted
    return data


cdef int new_text(Out *out) except -2:
    """Begin an object, of which taken() makes texts of FULL bytes and more."""
    return new_object(out, 0 if EXACT else FULL + FULL // 4)


cdef bytes taken(Out *out, Py_ssize_t size):
    """The first `size` bytes of a buffer with an object. Large texts are not copied.

    The buffer is empty then, also if there is no memory for the text.
    """
    cdef Out emptied = out[0]
    out.size = 0
    if size < FULL:
        return PyBytes_FromStringAndSize(out.data, size)
    new_text(&emptied)
    out.size = size
    try:
        return finished(out)
    finally:
        out[0] = emptied


cdef inline int reserve(Out *out, Py_ssize_t more) except -2 nogil:
    """Make room for `more` bytes, and what is kept. The put functions do not check for room."""
    if out.room - out.size < more + out.kept:
        grow(out, more + out.kept)
    return 0


cdef inline void put(Out *out, const void *data, Py_ssize_t size) noexcept nogil:
    """Append bytes. Most are short: these are copied in at most two moves that overlap, without a call."""
    cdef char *to = out.data + out.size
    cdef const char *start = <const char *>data
    out.size += size
    if size > 32:
        memcpy(to, start, size)
    elif size > 16:
        memcpy(to, start, 16)
        memcpy(to + size - 16, start + size - 16, 16)
    elif size >= 8:
        memcpy(to, start, 8)
        memcpy(to + size - 8, start + size - 8, 8)
    elif size >= 4:
        memcpy(to, start, 4)
        memcpy(to + size - 4, start + size - 4, 4)
    elif size:
        to[0], to[size >> 1], to[size - 1] = start[0], start[size >> 1], start[size - 1]


cdef inline char *copy_padded(char *to, Bytes text) noexcept:
    """Copy a text that has SLACK more bytes after it, in moves of as many; returns where it ends. Most need one."""
    cdef Py_ssize_t i = SLACK
    memcpy(to, text.data, SLACK)
    while i < text.size:
        memcpy(to + i, text.data + i, SLACK)
        i += SLACK
    return to + text.size


cdef inline void put_padded(Out *out, Bytes text) noexcept:
    """Append such a text."""
    out.size = copy_padded(out.data + out.size, text) - out.data


cdef int put_object(Out *out, bytes text) except -2:
    """Append bytes, with room for them. The argument keeps them alive until they are copied."""
    reserve(out, PyBytes_GET_SIZE(text))
    put(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0


cdef inline void put_char(Out *out, char value) noexcept nogil:
    out.data[out.size] = value
    out.size += 1


cdef inline void write_length(char *to, Py_ssize_t size) noexcept nogil:
    """An int32, as in messages and frames."""
    to[0], to[1], to[2], to[3] = <char>(size >> 24), <char>(size >> 16), <char>(size >> 8), <char>size


cdef inline void put_length(Out *out, Py_ssize_t size) noexcept nogil:
    write_length(out.data + out.size, size)
    out.size += 4


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
    while value >= 100 and start > 2:   # the second is always true, which C compilers do not see
        start -= 2
        memcpy(digits + start, PAIRS + 2 * (value % 100), 2)
        value //= 100
    start -= 2
    memcpy(digits + start, PAIRS + 2 * value, 2)
    start += value < 10
    put(out, digits + start, 20 - start)


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


cdef void put_time(Out *out, int64_t time, char between, bint trimmed) noexcept:
    """The same as time_text() in pgoutput/scalars.py, with `between` as its T, or as timestamp() in outputs/fields.py."""
    cdef int64_t days = floor_divided(time, DAY)
    cdef int64_t micros = time - days * DAY
    cdef uint32_t seconds = <uint32_t>(micros // 1000000)
    cdef bint before_christ = put_date(out, days)
    put_char(out, between)
    put_digits(out, seconds // 3600, 2)
    put_char(out, c":")
    put_digits(out, seconds // 60 % 60, 2)
    put_char(out, c":")
    put_digits(out, seconds % 60, 2)
    put_char(out, c".")
    put_digits(out, <uint32_t>(micros % 1000000), 6)
    if trimmed:
        while out.data[out.size - 1] == c"0":
            out.size -= 1
        out.size -= out.data[out.size - 1] == c"."
        put(out, <const char *>b"+00", 3)
    else:
        put_char(out, c"Z")
    if before_christ:
        put(out, <const char *>b" BC", 3)
