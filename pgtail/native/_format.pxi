"""%-formats of Python with arguments that are written from bytes."""

from re import compile as compiled_pattern

cdef object CONVERSION = compiled_pattern(r"%(?:%|(?:\((\w+)\))?(\.0)?(\d*)[ds])")

cdef enum:
    MOST_ARGUMENTS = 64     # of a format

cdef enum ArgumentKind:
    NUMBER_ARGUMENT
    LSN_ARGUMENT
    TIME_ARGUMENT
    HEX_ARGUMENT            # bytes in hexadecimal digits
    SPACED_ARGUMENT         # the same, with blanks between the bytes
    TEXT_ARGUMENT

cdef struct Argument:
    ArgumentKind kind
    uint64_t number         # also of an LSN or a time
    const uint8_t *data
    Py_ssize_t size

cdef struct FormatPart:
    Bytes text              # what precedes the argument
    int argument            # DECLINED: none follows
    int width               # numbers are right-aligned
    bint left_out


cdef inline Argument number_argument(ArgumentKind kind, uint64_t number) noexcept:
    cdef Argument argument
    argument.kind, argument.number, argument.data, argument.size = kind, number, NULL, 0
    return argument


cdef inline Argument bytes_argument(ArgumentKind kind, const uint8_t *data, Py_ssize_t size) noexcept:
    cdef Argument argument
    argument.kind, argument.number, argument.data, argument.size = kind, 0, data, size
    return argument


@cython.final
cdef class Format:
    """A %-format with %d, %5d, %s, %.0s and %%. `names` are those of its arguments if it names them: %(size)d."""

    cdef FormatPart *parts
    cdef int count
    cdef list texts

    def __cinit__(self, str template, tuple names=()):
        cdef FormatPart *part
        cdef int i
        cdef Py_ssize_t at = 0
        cdef str text = ""
        cdef list found = []
        for match in CONVERSION.finditer(template):
            text += template[at:match.start()]
            at = match.end()
            if match[0] == "%%":
                text += "%"
            else:
                found.append((text.encode(), names.index(match[1]) if match[1] else len(found), match[3], match[2]))
                text = ""
        found.append(((text + template[at:]).encode(), DECLINED, "", ""))
        if len(found) > MOST_ARGUMENTS:
            raise ValueError("too many arguments")
        self.texts = [one[0] for one in found]
        self.count = len(found)
        self.parts = <FormatPart *>PyMem_Calloc(self.count, sizeof(FormatPart))
        if self.parts == NULL:
            raise MemoryError
        for i in range(self.count):
            part = &self.parts[i]
            part.text, part.argument = view_of(self.texts[i]), found[i][1]
            part.width, part.left_out = int(found[i][2] or 0), bool(found[i][3])

    def __dealloc__(self):
        PyMem_Free(self.parts)

    cdef int put(self, Out *out, const Argument *arguments) except -2:
        cdef FormatPart *part
        cdef int i
        for i in range(self.count):
            part = &self.parts[i]
            reserve(out, part.text.size)
            put(out, part.text.data, part.text.size)
            if part.argument >= 0 and not part.left_out:
                put_argument(out, &arguments[part.argument], part.width)
        return 0


cdef int put_argument(Out *out, const Argument *argument, int width) except -2:
    cdef ArgumentKind kind = argument.kind
    if kind == HEX_ARGUMENT:
        reserve(out, 2 * argument.size)
        put_hex_bytes(out, argument.data, argument.size)
        return 0
    if kind == SPACED_ARGUMENT:
        return put_spaced_bytes(out, argument.data, argument.size)
    if kind == TEXT_ARGUMENT:
        reserve(out, argument.size)
        put(out, argument.data, argument.size)
        return 0
    reserve(out, FIELD_SIZE + width)
    if kind == NUMBER_ARGUMENT:
        put_blanks(out, width - digits_of(argument.number))
        put_unsigned(out, argument.number)
    elif kind == LSN_ARGUMENT:
        put_lsn(out, argument.number)
    else:
        put_time(out, <int64_t>argument.number, c" ")
    return 0


cdef inline int digits_of(uint64_t value) noexcept:
    cdef int digits = 1
    while value >= 10:
        value //= 10
        digits += 1
    return digits


cdef int put_spaced_bytes(Out *out, const uint8_t *data, Py_ssize_t size) except -2:
    cdef Py_ssize_t i
    reserve(out, 3 * size)
    for i in range(size):
        if i:
            put_char(out, c" ")
        put_hex_bytes(out, data + i, 1)
    return 0
