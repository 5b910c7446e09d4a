"""Rows of COPY TO STDOUT as Insert messages in frames; the values are not decoded."""

cdef enum:
    SIGNATURE = 0x5047      # PG, how the header of COPY's binary form starts: no row has so many columns
    COPY_HEADER = 19        # of the binary form: signature, flags, and the length of an extension that follows
    TRAILER = 0xFFFF        # in place of the number of columns: the end of the binary form
    BROKEN = -2             # in place of a row's length: the connection broke
    LOOKS = 10              # how often one call waits for rows that arrive slowly, so that it ends soon

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
    int poll(pollfd *descriptors, unsigned long count, int milliseconds)
    short POLLIN

ctypedef int (*GetCopyData)(void *connection, char **row, int asynchronous) noexcept nogil
ctypedef int (*ConsumeInput)(void *connection) noexcept nogil
ctypedef void (*FreeMem)(void *row) noexcept nogil

cdef struct RowForm:
    const char *head        # what a frame starts with, up to the number of columns
    Py_ssize_t head_size
    const char *kinds       # of the cells of COPY's binary form; NULL for its text form
    int columns
    int framing


def copy_inserts(
    functions, size_t connection, int socket, int milliseconds,
    bytes head not None, bytes kinds, int columns, int framing, Py_ssize_t limit,
):
    """What RowFrames.receive() in postgres/copy_rows.py does, by these functions of libpq, without the GIL."""
    cdef size_t get_copy_data, consume_input, free_mem
    cdef RowForm form
    cdef Buffer to = Buffer()
    cdef Out *out = &to.out
    cdef pollfd waiting
    cdef char *row = NULL
    cdef Py_ssize_t rows = 0
    cdef int length = 0, added = 0, looks = 0
    get_copy_data, consume_input, free_mem = functions
    form.head, form.head_size = PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head)
    form.kinds = NULL if kinds is None else PyBytes_AS_STRING(kinds)
    form.columns, form.framing = columns, framing
    waiting.fd, waiting.events = socket, POLLIN
    new_object(out, 0 if EXACT else limit + limit // 16)
    try:
        with nogil:
            while out.size < limit:
                length = (<GetCopyData>get_copy_data)(<void *>connection, &row, 1)
                if length > 0:
                    if form.kinds == NULL:
                        added = put_text_row(out, &form, <const uint8_t *>row, length)
                    else:
                        added = put_binary_row(out, &form, <const uint8_t *>row, length)
                    (<FreeMem>free_mem)(row)
                    row = NULL
                    if added < 0:
                        break
                    rows += added
                elif length < 0 or looks == LOOKS:
                    break
                else:
                    looks = LOOKS if poll(&waiting, 1, milliseconds) == 0 else looks + 1
                    # Also if nothing has arrived: poll() does not see what TLS has decrypted.
                    if not (<ConsumeInput>consume_input)(<void *>connection):
                        length = BROKEN
                        break
        if added < 0:
            raise ValueError(f"a row of COPY that does not have {columns} columns")
        return finished(out), rows, length
    finally:
        if row != NULL:
            (<FreeMem>free_mem)(row)    # no memory


cdef inline Py_ssize_t start_insert(Out *out, const RowForm *form) noexcept nogil:
    """Append the start of an Insert; returns where its frame starts. There must be room for it."""
    cdef Py_ssize_t start = out.size
    if form.framing == 5:
        put_char(out, c"d")
    out.size += 4
    put(out, form.head, form.head_size)
    return start


cdef inline void end_insert(Out *out, const RowForm *form, Py_ssize_t start) noexcept nogil:
    """Write the length of the frame that starts there."""
    start += form.framing == 5
    write_length(out.data + start, out.size - start - (0 if form.framing == 5 else 4))


cdef int put_text_row(Out *out, const RowForm *form, const uint8_t *p, Py_ssize_t size) except -2 nogil:
    """Append the Insert of a line of COPY's text form; returns 1, or -1 if it has another number of columns."""
    cdef Py_ssize_t start, at, pos = 0, stop, end = size - 1
    cdef int column, columns = form.columns
    cdef bint escaped
    if size < 1 or p[end] != c"\n":
        return -1
    reserve(out, 8 + form.head_size + 5 * columns + size)
    start = start_insert(out, form)
    escaped = memchr(p, c"\\", end) != NULL
    for column in range(columns):
        if pos > end:
            return -1
        if escaped and end - pos >= 2 and p[pos] == c"\\" and p[pos + 1] == c"N":
            pos += 2
            if pos < end and p[pos] != c"\t":
                return -1
            put_char(out, c"n")
            pos += 1
            continue
        stop = next_tab(p, pos, end)
        at = out.size
        out.size += 5
        if escaped and memchr(p + pos, c"\\", stop - pos) != NULL:
            put_unescaped(out, p + pos, stop - pos)
        else:
            put(out, p + pos, stop - pos)
        out.data[at] = c"t"
        write_length(out.data + at + 1, out.size - at - 5)
        pos = stop + 1
    if pos != (end + 1 if columns else end):
        return -1
    end_insert(out, form, start)
    return 1


cdef inline Py_ssize_t next_tab(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    """Where the value at `pos` ends: at a tab, or at the end. Most are short: these need no call."""
    cdef Py_ssize_t near = min(end, pos + 16)
    cdef const void *found
    while pos < near:
        if p[pos] == c"\t":
            return pos
        pos += 1
    if pos == end:
        return end
    found = memchr(p + pos, c"\t", end - pos)
    return end if found == NULL else <const uint8_t *>found - p


cdef void put_unescaped(Out *out, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Append a value without COPY's escapes (src/backend/commands/copyto.c, CopyAttributeOutText)."""
    cdef const uint8_t *end = p + size
    cdef const uint8_t *found
    cdef const char *letters = b"bfnrtv"
    cdef const char *meant = b"\b\f\n\r\t\v"
    cdef const char *place
    while p < end:
        found = <const uint8_t *>memchr(p, c"\\", end - p)
        if found == NULL or found + 1 == end:
            put(out, p, end - p)
            return
        put(out, p, found - p)
        place = <const char *>memchr(letters, found[1], 6)
        put_char(out, <char>found[1] if place == NULL else meant[place - letters])
        p = found + 2


cdef int put_binary_row(Out *out, const RowForm *form, const uint8_t *p, Py_ssize_t size) except -2 nogil:
    """Append the Insert of a row of COPY's binary form; returns 1, 0 if there is none, -1 if it has other columns."""
    cdef const uint8_t *end = p + size
    cdef Py_ssize_t start
    cdef int32_t length
    cdef int column, columns = form.columns
    if size >= 2 and u16(p) == SIGNATURE:
        if size < COPY_HEADER or u32(p + COPY_HEADER - 4) > <uint32_t>(size - COPY_HEADER):
            return -1
        p += COPY_HEADER + u32(p + COPY_HEADER - 4)
        if p == end:
            return 0
    if end - p < 2:
        return -1
    if u16(p) == TRAILER and end - p == 2:
        return 0
    if u16(p) != columns:
        return -1
    p += 2
    reserve(out, 8 + form.head_size + 5 * columns + size)
    start = start_insert(out, form)
    for column in range(columns):
        if end - p < 4:
            return -1
        length = <int32_t>u32(p)
        p += 4
        if length == -1:
            put_char(out, c"n")
            continue
        if length < 0 or length > end - p:
            return -1
        put_char(out, form.kinds[column])
        put(out, p - 4, 4)
        put(out, p, length)
        p += length
    if p != end:
        return -1
    end_insert(out, form, start)
    return 1
