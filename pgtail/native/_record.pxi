"""Ordinary messages for a capture, copied as they are: see Recorder.take_run() in capture/recorder.py."""

cdef struct Copy:
    # What is copied, and how.
    const uint8_t *buf
    Py_ssize_t end
    int framing             # of pgoutput/frames.py
    bint dump               # a dump, whose messages are checked, and get a header with their LSN twice
    Out *out
    Py_ssize_t room


def copied_messages(
    buf,
    Py_ssize_t pos,
    Py_ssize_t end,
    int framing,
    bint dump,
    bint inside,
    Py_ssize_t room,
    uint64_t after,
    uint64_t until,
    int64_t latest,
):
    """The rows of the open transaction (`inside`), else whole transactions of rows, whose commit LSNs rise.

    Returns them as CopyData messages, their commit LSNs as native integers of 8 bytes, the number of rows, the end LSN
    of the last transaction, and where the first message starts that is left. Transactions that are not complete, or
    reach `room` before their end, are left.
    """
    cdef Py_buffer view
    cdef Copy copy
    cdef Out out = no_bytes(), commits = no_bytes()
    cdef Py_ssize_t rows = 0, whole
    cdef uint64_t end_lsn = 0
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= pos <= end <= view.len:
            raise ValueError("not a part of the buffer")
        copy.buf, copy.end, copy.framing, copy.dump = <const uint8_t *>view.buf, end, framing, dump
        copy.out, copy.room = &out, room
        if inside:
            pos = copy_rows(&copy, pos, &rows)
            whole = out.size
        else:
            whole = copy_transactions(&copy, &pos, &rows, &commits, &end_lsn, after, until, latest)
        return (
            PyBytes_FromStringAndSize(out.data, whole),
            PyBytes_FromStringAndSize(commits.data, commits.size),
            rows,
            end_lsn,
            pos,
        )
    finally:
        PyBuffer_Release(&view)
        PyMem_Free(out.data)
        PyMem_Free(commits.data)


cdef Py_ssize_t copy_transactions(
    Copy *copy,
    Py_ssize_t *pos,
    Py_ssize_t *rows,
    Out *commits,
    uint64_t *end_lsn,
    uint64_t after,
    uint64_t until,
    int64_t latest,
) except -2:
    """Copy transactions from `pos` on; moves it. Returns the size of those that are whole, which come first."""
    cdef const uint8_t *buf = copy.buf
    cdef Py_ssize_t at, message, whole = 0, of_this
    cdef uint64_t lsn, time
    while pos[0] < copy.end and copy.out.size < copy.room and end_lsn[0] < until:
        message = fixed_message(copy, pos[0], c"B", 21)
        if message < 0 or u32(buf + message + 17) == 0:     # no xid: a snapshot
            break
        lsn, time = u64(buf + message + 1), u64(buf + message + 9)
        if lsn <= after or lsn > until or <int64_t>time > latest:
            break
        at, of_this = put_copy_data(copy, pos[0], message, message + 21), 0
        at = copy_rows(copy, at, &of_this)
        message = fixed_message(copy, at, c"C", 26)
        if copy.out.size >= copy.room or message < 0:
            break
        if copy.dump and u64(buf + message + 18) != time:
            break
        pos[0] = put_copy_data(copy, at, message, message + 26)
        reserve(commits, sizeof(lsn))
        put(commits, &lsn, sizeof(lsn))
        after, end_lsn[0] = lsn, max(end_lsn[0], u64(buf + message + 10))
        rows[0] += of_this
        whole = copy.out.size
    return whole


cdef Py_ssize_t copy_rows(Copy *copy, Py_ssize_t pos, Py_ssize_t *rows) except -2:
    """Copy row messages from `pos` on while there is room; returns where the first other message starts."""
    cdef const uint8_t *buf = copy.buf
    cdef Py_ssize_t at, stop, after
    while pos < copy.end and copy.out.size < copy.room:
        at, stop = message_bounds(copy, pos)
        if stop - at < 9 or (buf[at] != c"I" and buf[at] != c"U" and buf[at] != c"D"):
            break
        after = row_message_end(buf, at, stop, 0) if copy.dump else stop
        if after < 0 or after - at > LARGE or not ends_here(buf, after, stop, copy.framing > 0):
            break
        pos = put_copy_data(copy, pos, at, after)
        rows[0] += 1
    return pos


cdef inline (Py_ssize_t, Py_ssize_t) message_bounds(const Copy *copy, Py_ssize_t pos) noexcept:
    """Where the message at `pos` starts, and where it ends at the latest; DECLINED for another frame than XLogData."""
    if not copy.framing:
        return pos, copy.end
    return pos + copy.framing + HEADER, frame_end(copy.buf, pos, copy.end, copy.framing)


cdef inline Py_ssize_t fixed_message(const Copy *copy, Py_ssize_t pos, uint8_t tag, Py_ssize_t size) noexcept:
    """Where the message of this kind and size starts whose frame is at `pos`; DECLINED if that is another one."""
    cdef Py_ssize_t at, stop
    at, stop = message_bounds(copy, pos)
    if stop - at < size or copy.buf[at] != tag or not ends_here(copy.buf, at + size, stop, copy.framing > 0):
        return DECLINED
    return at


cdef Py_ssize_t put_copy_data(Copy *copy, Py_ssize_t pos, Py_ssize_t start, Py_ssize_t stop) except -2:
    """Append the message that is there, whose frame is at `pos`, as CopyData; returns where the next frame starts."""
    cdef const uint8_t *header = copy.buf + pos + copy.framing
    cdef Out *out = copy.out
    reserve(out, 5 + HEADER + stop - start)
    put_char(out, c"d")
    put_length(out, 4 + HEADER + stop - start)
    if not copy.framing:
        put_char(out, c"w")
        memset(out.data + out.size, 0, HEADER - 1)
        out.size += HEADER - 1
    elif copy.dump:
        put(out, header, 9)
        put(out, header + 1, 8)
        put(out, header + 17, 8)
    else:
        put(out, header, HEADER)
    put(out, copy.buf + start, stop - start)
    return stop + (copy.framing == 0)


# ==== what is in the messages that were copied: see ContentsCounter in capture/contents.py =========================

cdef enum:
    SLOTS = 64              # of a table of tables by the low bits of their OIDs

cdef struct RowCounts:
    uint32_t oid
    Py_ssize_t rows[3]      # inserts, updates and deletes


def counted_messages(bytes messages not None):
    """The rows of CopyData messages by table: (OID, inserts, updates, deletes), in the order of their first rows.

    Also the number of Begins, and the least and greatest of their xids, and of their commit times.
    """
    cdef const uint8_t *buf = <const uint8_t *>PyBytes_AS_STRING(messages)
    cdef const uint8_t *message
    cdef Py_ssize_t pos = 0, end = PyBytes_GET_SIZE(messages), transactions = 0, index
    cdef uint32_t oid, xid, least = 0, greatest = 0
    cdef int64_t time, first = 0, last = 0
    cdef dict places = {}
    cdef Py_ssize_t slots[SLOTS]
    cdef RowCounts *counts
    cdef Out tables = no_bytes()
    for index in range(SLOTS):
        slots[index] = -1
    try:
        while end - pos >= 5 + HEADER + 1:
            message = buf + pos + 5 + HEADER
            pos += 1 + <Py_ssize_t>u32(buf + pos + 1)
            if pos > end or message + 5 > buf + pos:
                break
            if message[0] == c"B" and message + 21 <= buf + pos:
                xid, time = u32(message + 17), <int64_t>u64(message + 9)
                least, greatest = min(least, xid) if transactions else xid, max(greatest, xid)
                first = min(first, time) if transactions else time
                last = max(last, time) if transactions else time
                transactions += 1
                continue
            if message[0] == c"C":
                continue
            oid = u32(message + 1)
            index = slots[oid % SLOTS]
            if index < 0 or (<RowCounts *>tables.data)[index].oid != oid:
                index = places.setdefault(oid, tables.size // <Py_ssize_t>sizeof(RowCounts))
                if index * <Py_ssize_t>sizeof(RowCounts) == tables.size:
                    reserve(&tables, sizeof(RowCounts))
                    memset(tables.data + tables.size, 0, sizeof(RowCounts))
                    tables.size += sizeof(RowCounts)
                    (<RowCounts *>tables.data)[index].oid = oid
                slots[oid % SLOTS] = index
            counts = <RowCounts *>tables.data + index
            counts.rows[0 if message[0] == c"I" else 1 if message[0] == c"U" else 2] += 1
        counts = <RowCounts *>tables.data
        found = [
            (counts[index].oid, counts[index].rows[0], counts[index].rows[1], counts[index].rows[2])
            for index in range(tables.size // <Py_ssize_t>sizeof(RowCounts))
        ]
        return found, transactions, (least, greatest), (first, last)
    finally:
        PyMem_Free(tables.data)
