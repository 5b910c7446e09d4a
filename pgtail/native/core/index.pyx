"""index(): walks messages once, checks every length, and returns where their transactions, rows and cells are.

It knows no table, filter or output, and nothing of the messages before. A batch ends before a message that has no place
in its arrays; the decoder handles that message.
"""

from pgtail.native import batch as records

cdef enum:
    # What a walk returns in place of a position.
    OTHER = -1              # no ordinary message: the decoder handles it, and reports what is wrong
    INCOMPLETE = -2         # more bytes are needed
    MOST_ENTRIES = 1 << 16  # of all arrays of a batch together


def index(buffer, Py_ssize_t start, Py_ssize_t stop, int framing, bint in_stream=False):
    """The Batch of the messages of buffer[start:stop], of which the first one starts at `start`. It keeps the buffer.

    `framing` is one of pgoutput/frames.py. With `in_stream` they are row messages of stream segments, which have an
    xid; the batch ends before any other message.
    """
    cdef Batch batch = Batch.__new__(Batch)
    PyObject_GetBuffer(buffer, &batch.view, PyBUF_SIMPLE)
    batch.has_view = True
    if not 0 <= start <= stop <= batch.view.len:
        raise ValueError("not a part of the buffer")
    if stop >= 0xFFFFFFFF:
        raise ValueError("the buffer has 4 GB or more")
    batch.start = batch.stop = start
    batch.framing, batch.in_stream = framing, in_stream
    batch.most_rows = MOST_ENTRIES
    batch.commit_size = framing + HEADER + 26 if framing else 27
    batch.fill(stop)
    return batch


cdef void *grown(void *entries, Py_ssize_t *room, Py_ssize_t least, size_t size) except NULL:
    """An array with room for at least `least` entries of a size, and for twice as many as before."""
    cdef Py_ssize_t more = max(least, 2 * room[0])
    entries = PyMem_Realloc(entries, more * size)
    if entries == NULL:
        raise MemoryError
    room[0] = more
    return entries


cdef inline Py_ssize_t message_end(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t stop, bint framed) noexcept:
    """Where a message ends whose last field ends at `pos`: with its frame, or after a newline."""
    if framed:
        return pos if pos == stop else OTHER
    if pos >= stop:
        return INCOMPLETE
    return pos + 1 if buf[pos] == c"\n" else OTHER


cdef Py_ssize_t skip_strings(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t stop, int count) noexcept:
    """Where the last of these strings ends."""
    cdef const uint8_t *nul
    while count:
        nul = <const uint8_t *>memchr(buf + pos, 0, stop - pos) if pos < stop else NULL
        if nul == NULL:
            return INCOMPLETE
        pos = nul - buf + 1
        count -= 1
    return pos


cdef Py_ssize_t mark_end(const uint8_t *buf, Py_ssize_t pos, Py_ssize_t stop) noexcept:
    """Where the last field of a Relation, Type, Origin, Truncate or Message ends."""
    cdef uint8_t tag = buf[pos]
    cdef int columns
    if tag == c"O":
        return skip_strings(buf, pos + 9, stop, 1)
    pos += 1
    if tag == c"T":
        return pos + 5 + 4 * <Py_ssize_t>u32(buf + pos) if stop - pos >= 5 else INCOMPLETE
    if tag == c"Y":
        return skip_strings(buf, pos + 4, stop, 2)
    if tag == c"M":
        pos = skip_strings(buf, pos + 9, stop, 1)
        if pos < 0 or stop - pos < 4:
            return INCOMPLETE
        return pos + 4 + u32(buf + pos)
    pos = skip_strings(buf, pos + 4, stop, 2)
    if pos < 0 or stop - pos < 3:
        return INCOMPLETE
    columns = u16(buf + pos + 1)
    pos += 3
    while columns and pos >= 0:
        pos = skip_strings(buf, pos + 1, stop, 1)
        if pos >= 0:
            pos += 8
        columns -= 1
    return pos


cdef class Batch:
    """The messages of a part of a buffer, from `start` to `stop`, as arrays. See Batch in native/batch.py."""

    def __dealloc__(self):
        PyMem_Free(self.row_entries)
        PyMem_Free(self.cell_entries)
        PyMem_Free(self.transaction_entries)
        PyMem_Free(self.mark_entries)
        if self.has_view:
            PyBuffer_Release(&self.view)

    # -- the walk ------------------------------------------------------------------------------------------------

    cdef int fill(self, Py_ssize_t end) except -1:
        cdef const uint8_t *buf = <const uint8_t *>self.view.buf
        cdef int framing = self.framing
        cdef Py_ssize_t pos = self.start, at, stop, after, size
        cdef uint64_t lsn = 0
        cdef uint8_t tag
        size = min(end - pos, <Py_ssize_t>MOST_ENTRIES * 16)        # what may be in one batch, about
        self.row_entries = <RowEntry *>grown(NULL, &self.row_room, size // 64 + 4, sizeof(RowEntry))
        self.cell_entries = <Cell *>grown(NULL, &self.cell_room, size // 16 + 16, sizeof(Cell))
        self.ended = "whole"
        while pos < end:
            if self.row_count + self.cell_count + self.transaction_count + self.mark_count >= MOST_ENTRIES:
                self.ended = "full"
                break
            at, stop, after = pos, end, OTHER
            if framing:
                if framing == 5 and buf[pos] != c"d":
                    self.ended = "other"
                    break
                if end - pos < framing:
                    self.ended = "incomplete"
                    break
                size = <Py_ssize_t>u32(buf + pos + framing - 4) - (4 if framing == 5 else 0)
                if size <= 0 or size > LARGE:
                    self.ended = "other"
                    break
                if size > end - pos - framing:
                    self.ended = "incomplete"
                    break
                stop = pos + framing + size
                at = pos + framing
                if buf[at] == c"k" and size == KEEPALIVE and not self.in_stream:
                    self.add_mark(pos, stop, c"k")
                    pos = stop
                    continue
                if buf[at] != c"w" or size <= HEADER:
                    self.ended = "other"
                    break
                lsn = u64(buf + at + 1)
                at += HEADER
            tag = buf[at]
            if tag == c"I" or tag == c"U" or tag == c"D":
                after = self.add_row(buf, pos, at, stop)
                if after > 0:
                    self.row_entries[self.row_count - 1].lsn = lsn
            elif self.in_stream:
                pass
            elif tag == c"B":
                after = self.add_begin(buf, pos, at, stop)
            elif tag == c"C":
                after = self.add_commit(buf, pos, at, stop)
            elif tag == c"R" or tag == c"Y" or tag == c"O" or tag == c"T" or tag == c"M":
                if framing:
                    after = stop
                else:
                    after = mark_end(buf, at, stop)
                    if after >= 0:
                        after = OTHER if after - at > LARGE else message_end(buf, after, stop, False)
                if after > 0:
                    self.add_mark(pos, after, tag)
            if after < 0:
                self.ended = "incomplete" if after == INCOMPLETE and not framing else "other"
                break
            pos = after
        self.stop = pos
        return 0

    cdef Py_ssize_t add_row(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t stop) except -3:
        """A row message; returns where it ends."""
        cdef int xid_size = 4 if self.in_stream else 0
        cdef Py_ssize_t cells = self.cell_count, after = at + xid_size + 6
        cdef TransactionEntry *transaction = NULL
        cdef RowEntry *row
        cdef uint8_t tag = buf[at], kind
        cdef uint16_t unchanged = 0
        if self.transaction_count:
            transaction = &self.transaction_entries[self.transaction_count - 1]
            if transaction.commit != NOWHERE:
                return OTHER
        if stop < after:
            return INCOMPLETE
        kind = buf[after - 1]
        if kind == c"N":
            if tag == c"D":
                return OTHER
        elif (kind != c"K" and kind != c"O") or tag == c"I":
            return OTHER
        if self.row_count == self.row_room:
            self.row_entries = <RowEntry *>grown(self.row_entries, &self.row_room, 0, sizeof(RowEntry))
        row = &self.row_entries[self.row_count]
        row.op = OP_INSERT if tag == c"I" else OP_UPDATE if tag == c"U" else OP_DELETE
        row.kind, row.cells = kind, <uint32_t>cells
        row.old_width = row.new_width = row.unchanged = row.table = 0
        row.xid = u32(buf + at + 1) if xid_size else 0
        row.oid = u32(buf + at + xid_size + 1)
        if kind != c"N":
            after = self.add_tuple(buf, after, stop, &row.old_width, &unchanged)
            if after >= 0 and tag == c"U":
                after = INCOMPLETE if after >= stop else OTHER if buf[after] != c"N" else after + 1
        if after >= 0 and tag != c"D" and not unchanged:
            after = self.add_tuple(buf, after, stop, &row.new_width, &row.unchanged)
        if after >= 0:
            after = OTHER if unchanged or after - at > LARGE else message_end(buf, after, stop, self.framing > 0)
        if after < 0:
            self.cell_count = cells
            return after
        if transaction == NULL:
            transaction = self.add_transaction(NOWHERE)
        row.start, row.stop = <uint32_t>pos, <uint32_t>after
        self.row_count += 1
        transaction.end_row = self.row_count
        return after

    cdef Py_ssize_t add_tuple(
        self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint16_t *width, uint16_t *unchanged
    ) except -3:
        """The cells of a tuple, and how many of them are unchanged; returns where it ends."""
        cdef Cell *cell
        cdef Cell *last
        cdef uint32_t size
        cdef uint8_t kind
        if end - pos < 2:
            return INCOMPLETE
        width[0] = u16(buf + pos)
        if width[0] > MOST_COLUMNS:
            return OTHER
        if self.cell_room - self.cell_count < width[0]:
            self.cell_entries = <Cell *>grown(
                self.cell_entries, &self.cell_room, self.cell_count + width[0], sizeof(Cell)
            )
        pos += 2
        cell = self.cell_entries + self.cell_count
        last = cell + width[0]
        while cell < last:
            if pos >= end:
                return INCOMPLETE
            kind = buf[pos]
            cell.kind = kind
            if kind == c"t" or kind == c"b":
                if end - pos < 5:
                    return INCOMPLETE
                size = u32(buf + pos + 1)
                pos += 5
                if size > end - pos:
                    return INCOMPLETE if size <= LARGE else OTHER
                cell.data, cell.size = buf + pos, size
                pos += size
            elif kind == c"n" or kind == c"u":
                cell.data, cell.size = NULL, 0
                unchanged[0] += kind == c"u"
                pos += 1
            else:
                return OTHER
            cell += 1
        self.cell_count += width[0]
        return pos

    cdef Py_ssize_t add_begin(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t stop) except -3:
        cdef Py_ssize_t after
        cdef TransactionEntry *transaction
        if self.transaction_count and self.transaction_entries[self.transaction_count - 1].commit == NOWHERE:
            return OTHER
        after = message_end(buf, at + 21, stop, self.framing > 0)
        if after > 0:
            transaction = self.add_transaction(pos)
            transaction.final_lsn, transaction.begin_time = u64(buf + at + 1), <int64_t>u64(buf + at + 9)
            transaction.xid = u32(buf + at + 17)
        return after

    cdef Py_ssize_t add_commit(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t stop) except -3:
        cdef Py_ssize_t after
        cdef TransactionEntry *transaction
        if self.transaction_count and self.transaction_entries[self.transaction_count - 1].commit != NOWHERE:
            return OTHER
        after = message_end(buf, at + 26, stop, self.framing > 0)
        if after > 0:
            transaction = &self.transaction_entries[self.transaction_count - 1] if self.transaction_count else NULL
            if transaction == NULL:
                transaction = self.add_transaction(NOWHERE)
            transaction.commit = pos
            transaction.flags, transaction.commit_lsn = buf[at + 1], u64(buf + at + 2)
            transaction.end_lsn, transaction.commit_time = u64(buf + at + 10), <int64_t>u64(buf + at + 18)
        return after

    cdef TransactionEntry *add_transaction(self, Py_ssize_t begin) except NULL:
        cdef TransactionEntry *transaction
        if self.transaction_count == self.transaction_room:
            self.transaction_entries = <TransactionEntry *>grown(
                self.transaction_entries, &self.transaction_room, 16, sizeof(TransactionEntry)
            )
        transaction = &self.transaction_entries[self.transaction_count]
        memset(transaction, 0, sizeof(TransactionEntry))
        transaction.begin, transaction.commit = begin, NOWHERE
        transaction.first_row = transaction.end_row = self.row_count
        self.transaction_count += 1
        return transaction

    cdef int add_mark(self, Py_ssize_t start, Py_ssize_t stop, uint8_t tag) except -3:
        if self.mark_count == self.mark_room:
            self.mark_entries = <MarkEntry *>grown(self.mark_entries, &self.mark_room, 16, sizeof(MarkEntry))
        self.mark_entries[self.mark_count] = MarkEntry(start, stop, self.row_count, tag)
        self.mark_count += 1
        return 0

    def has(self, Py_ssize_t start):
        """Whether a message of the batch starts at this position of the buffer."""
        return at_message(self, start)

    def slice(self, Py_ssize_t start, current, transaction):
        """The Slice from this position of the buffer on; None if no message of the batch starts there."""
        return slice_of(self, start, current, transaction)

    @property
    def buffer(self):
        return <object>self.view.obj

    @property
    def arrays(self):
        """The bytes of the arrays of rows, cells, transactions and marks."""
        return (
            (<const char *>self.row_entries)[:self.row_count * sizeof(RowEntry)],
            (<const char *>self.cell_entries)[:self.cell_count * sizeof(Cell)],
            (<const char *>self.transaction_entries)[:self.transaction_count * sizeof(TransactionEntry)],
            (<const char *>self.mark_entries)[:self.mark_count * sizeof(MarkEntry)],
        )

    cdef int set_old(self, RowEntry *row, const Cell *old, int width, bytes kept) except -3:
        """Give a row an old tuple, whose cells refer to `kept`."""
        cdef Py_ssize_t first = self.cell_count, size = width + row.new_width
        cdef const Cell *new
        if self.cell_room - first < size:
            self.cell_entries = <Cell *>grown(self.cell_entries, &self.cell_room, first + size, sizeof(Cell))
        new = self.cell_entries + row.cells + row.old_width
        memcpy(self.cell_entries + first, old, width * sizeof(Cell))
        memcpy(self.cell_entries + first + width, new, row.new_width * sizeof(Cell))
        row.cells, row.old_width = <uint32_t>first, <uint16_t>width
        self.cell_count += size
        if self.kept is None:
            self.kept = []
        self.kept.append(kept)
        return 0

    cdef inline Py_ssize_t message_size(self, const RowEntry *row) noexcept:
        """The bytes of a row message without its frame or newline, and without the xid of a streamed one."""
        cdef Py_ssize_t size = row.stop - row.start - (4 if self.in_stream else 0)
        return size - self.framing - HEADER if self.framing else size - 1

    cdef tuple cells(self, Py_ssize_t first, int count):
        """Cells as the decoder returns them."""
        cdef Py_ssize_t i
        return tuple([cell_value(&self.cell_entries[i]) for i in range(first, first + count)])
