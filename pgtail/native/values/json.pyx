"""JSON: PostgreSQL's text as strings, numbers, booleans, documents and arrays, as values/render.py writes them."""

cdef enum:
    DEPTH = 200             # nesting of JSON that is checked here

# What encodes a value. Each encoder is described in encode.pyx; those of this file do without a parameter if none is named.
ctypedef int (*Encoder)(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2


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


cdef inline bint put_characters(Out *out, const uint8_t **p, Py_ssize_t *size, bint shown) noexcept:
    """Append the characters beyond ASCII that come first, for which there is room, and go on after them.

    Returns whether they are valid and, with `shown`, certainly not hidden.
    """
    cdef Py_ssize_t length
    while size[0] and p[0][0] >= 0x80:
        length = utf8_length(p[0], size[0])
        if not length or (shown and not is_shown(p[0])):
            return False
        put(out, p[0], length)
        p[0] += length
        size[0] -= length
    return True


cdef inline void put_escaped(Out *out, uint8_t value) noexcept:
    """A character that JSON requires escaped, in the form that orjson writes."""
    cdef const char *special = b'"\\\b\t\n\f\r'
    cdef const char *letters = b'"\\btnfr'
    cdef const char *place = <const char *>memchr(special, value, 7)
    put_char(out, c"\\")
    if place != NULL:
        put_char(out, letters[place - special])
        return
    put(out, <const char *>b"u00", 3)
    put_char(out, HEX[value >> 4])
    put_char(out, HEX[value & 15])


cdef int put_string(Out *out, const uint8_t *p, Py_ssize_t size, int64_t escaped) except -2:
    """UTF-8 as a JSON string; DECLINED if it is not valid UTF-8. `escaped`: the character after a backslash is literal.

    The last character of an escaped text is no such backslash.
    """
    cdef Py_ssize_t plain
    reserve(out, 6 * size + 2)
    put_char(out, c'"')
    while True:
        plain = copy_plain(out.data + out.size, p, size, c'"', c"\\", c"\\")
        out.size += plain
        p += plain
        size -= plain
        if size == 0:
            put_char(out, c'"')
            return 0
        if escaped and p[0] == c"\\":
            p += 1
            size -= 1
        if p[0] < 0x20 or p[0] == c'"' or p[0] == c"\\":
            put_escaped(out, p[0])
            p += 1
            size -= 1
        if not put_characters(out, &p, &size, False):
            return DECLINED


cdef inline bint is_digit(uint8_t value) noexcept:
    return 48 <= value <= 57


cdef Py_ssize_t number_end(const uint8_t *p, Py_ssize_t size) noexcept:
    """The length of the JSON number that starts here; 0 if there is none."""
    cdef Py_ssize_t i = 0, start = 1 if size and p[0] == c"-" else 0
    i = start + count_digits(p + start, size - start)
    if i == start:
        return 0
    if p[start] == c"0":
        i = start + 1
    if i + 1 < size and p[i] == c"." and is_digit(p[i + 1]):
        i += 1 + count_digits(p + i + 1, size - i - 1)
    if i < size and (p[i] == c"e" or p[i] == c"E"):
        start = i + 1
        if start < size and (p[start] == c"+" or p[start] == c"-"):
            start += 1
        if start < size and is_digit(p[start]):
            i = start + count_digits(p + start, size - start)
    return i


cdef inline bint is_number(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether this is a JSON number; most are digits only."""
    if count_digits(p, size) == size:
        return size == 1 or (size > 1 and p[0] != c"0")
    return number_end(p, size) == size


cdef inline char *copy_usual_number(char *to, const char *limit, const uint8_t *p, Py_ssize_t size) noexcept:
    """A number of fewer than 16 digits; returns where it ends. NULL if it is another value or, up to `limit`, has no room."""
    cdef Py_ssize_t minus = size > 1 and p[0] == c"-", digits
    if not 0 < size < 16 or limit - to < size:
        return NULL
    to[0] = c"-"
    p += minus
    size -= minus
    to += minus
    digits = copy_digits(to, p, size)
    if digits < size and (
        digits == 0 or p[digits] != c"." or not 0 < size - digits - 1 == count_digits(p + digits + 1, size - digits - 1)
    ):
        return NULL
    return NULL if p[0] == c"0" and digits > 1 else to + size


cdef int put_number(Out *out, const uint8_t *p, Py_ssize_t size, int64_t quoted) except -2:
    """PostgreSQL's text of a number, as a JSON number or quoted; NaN and the infinities are always quoted."""
    if not is_number(p, size):
        if not ((size == 3 and memcmp(p, <const char *>b"NaN", 3) == 0)
                or (size == 8 and memcmp(p, <const char *>b"Infinity", 8) == 0)
                or (size == 9 and memcmp(p, <const char *>b"-Infinity", 9) == 0)):
            return DECLINED
        quoted = 1
    reserve(out, size + 2)
    if quoted:
        put_char(out, c'"')
    put(out, p, size)
    if quoted:
        put_char(out, c'"')
    return 0


cdef int put_boolean(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
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
    while True:
        i += copy_plain(NULL, p + i, size - i, c'"', c"\\", c"\\")
        if i >= size:
            return 0
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
        elif p[i] >= 0x80:
            length = utf8_length(p + i, size - i)
            if not length:
                return 0
            i += length


cdef inline Py_ssize_t literal_end(const uint8_t *p, Py_ssize_t size) noexcept:
    if size >= 4 and (memcmp(p, <const char *>b"true", 4) == 0 or memcmp(p, <const char *>b"null", 4) == 0):
        return 4
    return 5 if size >= 5 and memcmp(p, <const char *>b"false", 5) == 0 else 0


cdef inline Py_ssize_t blanks_end(const uint8_t *p, Py_ssize_t i, Py_ssize_t size) noexcept:
    """Where the white space ends that starts at `i`."""
    while i < size and p[i] <= c" " and (p[i] == c" " or p[i] == c"\n" or p[i] == c"\t" or p[i] == c"\r"):
        i += 1
    return i


cdef bint is_json(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether this is one JSON document (RFC 8259), nested at most DEPTH levels deep. False if in doubt."""
    cdef uint8_t closing[DEPTH]
    cdef int depth = 0
    cdef Py_ssize_t i = 0, length
    cdef bint value = True      # a value is expected, otherwise a comma or a closing bracket
    cdef bint key = False       # a key is expected
    cdef bint may_close = False
    while True:
        i = blanks_end(p, i, size)
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
            i = blanks_end(p, i + length, size)
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


cdef int put_json(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
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


cdef int put_array(Out *out, const uint8_t *p, Py_ssize_t size, Encoder put_element) except -2:
    """An array with one dimension and lower bound 1; others are declined."""
    cdef Py_ssize_t i = 1, start
    if size < 2 or p[0] != c"{" or p[size - 1] != c"}":
        return DECLINED
    reserve(out, 2)
    put_char(out, c"[")
    if size > 2:
        while True:
            start = i
            if p[i] == c'"':
                if put_element != put_string:
                    return DECLINED
                i += 1
                while i < size and p[i] != c'"':
                    i += 2 if p[i] == c"\\" else 1
                if i >= size - 1 or put_string(out, p + start + 1, i - start - 1, 1) < 0:
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
                elif put_element(out, p + start, i - start, 0) < 0:
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


cdef int put_strings(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_array(out, p, size, put_string)


cdef int put_numbers(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_array(out, p, size, put_number)


cdef int put_booleans(Out *out, const uint8_t *p, Py_ssize_t size, int64_t parameter) except -2:
    return put_array(out, p, size, put_boolean)


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
