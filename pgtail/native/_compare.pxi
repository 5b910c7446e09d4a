"""Comparisons for conditions: text, plain decimal numbers, LIKE patterns."""

cdef enum:
    LIKE_ONE = 0xFE         # as in changes/like.py
    LIKE_ANY = 0xFF


cdef inline Py_ssize_t next_character(const uint8_t *p, Py_ssize_t at, Py_ssize_t size) noexcept:
    """Where the character after the one at `at` starts, in valid UTF-8."""
    at += 1
    while at < size and (p[at] & 0xC0) == 0x80:
        at += 1
    return at


cdef bint is_like(const uint8_t *p, Py_ssize_t size, const uint8_t *pattern, Py_ssize_t length) noexcept:
    """Whether a pattern (like_bytes() in changes/like.py) matches all of a text in valid UTF-8."""
    cdef Py_ssize_t i = 0, j = 0, any = -1, retry = 0
    cdef const void *found
    while i < size:
        if j < length and pattern[j] == LIKE_ANY:
            any, retry = j, i
            j += 1
            if j == length:
                return True
        elif j < length and pattern[j] == LIKE_ONE:
            i = next_character(p, i, size)
            j += 1
        elif j < length and pattern[j] == p[i]:
            i += 1
            j += 1
        elif any < 0:
            return False
        else:
            retry = next_character(p, retry, size)
            j = any + 1
            if pattern[j] < LIKE_ONE:
                found = memchr(p + retry, pattern[j], size - retry)
                if found == NULL:
                    return False
                retry = <const uint8_t *>found - p
            i = retry
    while j < length and pattern[j] == LIKE_ANY:
        j += 1
    return j == length


cdef bint put_lower(Out *out, const uint8_t *p, Py_ssize_t size) except -1:
    """An ASCII text in lower case, from the start of `out`; False if it is not ASCII."""
    cdef Py_ssize_t i
    out.size = 0
    reserve(out, size + 1)
    for i in range(size):
        if p[i] >= 0x80:
            return False
        out.data[i] = <char>(p[i] + 32 if 65 <= p[i] <= 90 else p[i])
    out.size = size
    return True


cdef bint is_ordinary_time(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether a date or timestamp is of the years 1 to 9999: such texts sort as their values."""
    return size >= 10 and is_digit(p[0]) and p[4] == c"-" and p[size - 1] != c"C"


cdef inline int compare_texts(const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    """Less than, equal to or greater than 0, by code points: their order is that of the bytes of UTF-8."""
    cdef int order = memcmp(p, q, min(size, other))
    return order if order else (size > other) - (size < other)


cdef bint is_plain_number(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether this is digits with at most a sign before and a point between them."""
    cdef Py_ssize_t i = 1 if size and p[0] == c"-" else 0
    cdef bint point = False
    if i >= size or not is_digit(p[i]) or not is_digit(p[size - 1]):
        return False
    while i < size:
        if p[i] == c"." and not point:
            point = True
        elif not is_digit(p[i]):
            return False
        i += 1
    return True


cdef int compare_numbers(const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    """Less than, equal to or greater than 0 for two plain decimal numbers of any length."""
    cdef bint negative = p[0] == c"-", other_negative = q[0] == c"-"
    cdef int order
    if negative:
        p, size = p + 1, size - 1
    if other_negative:
        q, other = q + 1, other - 1
    order = compare_magnitudes(p, size, q, other)
    if negative == other_negative:
        return -order if negative else order
    if order == 0 and is_zero(p, size):
        return 0
    return -1 if negative else 1


cdef bint is_zero(const uint8_t *p, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        if p[i] != c"0" and p[i] != c".":
            return False
    return True


cdef int compare_magnitudes(const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    cdef Py_ssize_t digits = integer_digits(p, size), other_digits = integer_digits(q, other), i
    cdef uint8_t one, two
    while digits and p[0] == c"0":
        p, size, digits = p + 1, size - 1, digits - 1
    while other_digits and q[0] == c"0":
        q, other, other_digits = q + 1, other - 1, other_digits - 1
    if digits != other_digits:
        return 1 if digits > other_digits else -1
    i = 0
    while i < size or i < other:
        one = p[i] if i < size else c"0"
        two = q[i] if i < other else c"0"
        if i == digits:
            i += 1
            continue
        if one != two:
            return 1 if one > two else -1
        i += 1
    return 0


cdef Py_ssize_t integer_digits(const uint8_t *p, Py_ssize_t size) noexcept:
    """How many digits stand before the point."""
    cdef const void *point = memchr(p, c".", size)
    return size if point == NULL else <const uint8_t *>point - p
