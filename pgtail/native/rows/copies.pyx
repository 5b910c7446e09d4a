"""Messages of a batch as byte ranges: copied for a capture, or kept until the end of a streamed transaction."""

cdef struct Copy:
    # What is copied, and how.
    const uint8_t *buf
    int framing             # of pgoutput/frames.py
    bint dump               # a dump, whose messages get a header with their LSN twice
    Py_ssize_t head         # bytes before a message in its frame
    Py_ssize_t more         # bytes by which a message is longer in a capture than it is with its frame
    Out *out
    # Where it ends: at so many bytes, and at transactions outside of these LSNs or after this commit time.
    Py_ssize_t room
    uint64_t after, until
    int64_t latest
    # Of the transactions: the commit LSNs, the least and the greatest xid and commit time, the end LSN of the last one.
    Out *commits
    uint32_t least, greatest
    int64_t first_time, last_time
    uint64_t end_lsn

cdef struct RowCounts:
    uint32_t oid
    Py_ssize_t[3] rows      # inserts, updates and deletes


def copied_messages(
    Batch batch not None,
    Py_ssize_t pos,
    bint dump,
    bint inside,
    Py_ssize_t room,
    uint64_t after,
    uint64_t until,
    int64_t latest,
):
    """The rows from a position of the buffer on of the open transaction (`inside`), else whole transactions of rows (Copied).

    Their commit LSNs rise. What ends before `room` bytes are reached is copied; rows of the open transaction until they
    are.
    """
    cdef Buffer messages = Buffer(), commits = Buffer()
    cdef Copy copy
    cdef Py_ssize_t first, row
    at_message(batch, pos)      # nothing of an empty batch is copied
    memset(&copy, 0, sizeof(copy))
    copy.buf, copy.framing, copy.dump, copy.out = <const uint8_t *>batch.view.buf, batch.framing, dump, &messages.out
    copy.head = batch.framing + HEADER if batch.framing else 0
    copy.more = 5 - batch.framing if batch.framing else 5 + HEADER - 1
    copy.room, copy.after, copy.until, copy.latest, copy.commits = room, after, until, latest, &commits.out
    first = row = batch.rows_before
    if inside:
        row = copy_rows(&copy, batch, pos)
        pos = batch.row_entries[row - 1].stop if row > first else pos
    else:
        row = copy_transactions(&copy, batch, &pos)
    return records.Copied(
        PyBytes_FromStringAndSize(messages.out.data, messages.out.size),
        row - first,
        rows_by_oid(batch.row_entries + first, batch.row_entries + row),
        PyBytes_FromStringAndSize(commits.out.data, commits.out.size),
        (copy.least, copy.greatest),
        (copy.first_time, copy.last_time),
        copy.end_lsn,
        pos,
    )


cdef Py_ssize_t copy_rows(Copy *copy, Batch batch, Py_ssize_t pos) except -1:
    """Copy rows of the open transaction from `pos` on; returns the first one that is left."""
    cdef Py_ssize_t row = batch.rows_before, end = batch.row_count
    cdef const TransactionEntry *entry = &batch.transaction_entries[batch.transactions_before]
    if batch.marks_before < batch.mark_count:
        end = batch.mark_entries[batch.marks_before].row
    if row == end or batch.row_entries[row].start != pos:
        return row
    end = min(end, entry.end_row)
    while row < end and copy.out.size < copy.room:
        put_row_data(copy, &batch.row_entries[row])
        row += 1
    return row


cdef Py_ssize_t copy_transactions(Copy *copy, Batch batch, Py_ssize_t *pos) except -1:
    """Copy whole transactions from `pos` on; moves it. Returns the first row that is left."""
    cdef const TransactionEntry *entry
    cdef Py_ssize_t row = batch.rows_before, place = batch.transactions_before, stop = batch.stop
    if batch.marks_before < batch.mark_count:
        stop = batch.mark_entries[batch.marks_before].start
    while place < batch.transaction_count and copy.out.size < copy.room and copy.end_lsn < copy.until:
        entry = &batch.transaction_entries[place]
        if entry.begin != pos[0] or entry.commit == NOWHERE or entry.commit >= stop or entry.xid == 0:   # 0: a snapshot
            break
        if entry.final_lsn <= copy.after or entry.final_lsn > copy.until or entry.begin_time > copy.latest:
            break
        if copy.dump and entry.commit_time != entry.begin_time:
            break
        if copy.out.size + entry.commit - pos[0] + (1 + entry.end_row - row) * copy.more >= copy.room:
            break
        put_copy_data(copy, entry.begin, 21)
        while row < entry.end_row:
            put_row_data(copy, &batch.row_entries[row])
            row += 1
        put_copy_data(copy, entry.commit, 26)
        pos[0] = entry.commit + copy.head + 26 + (copy.framing == 0)
        if copy.commits.size == 0:
            copy.least, copy.first_time, copy.last_time = entry.xid, entry.begin_time, entry.begin_time
        copy.least, copy.greatest = min(copy.least, entry.xid), max(copy.greatest, entry.xid)
        copy.first_time, copy.last_time = min(copy.first_time, entry.begin_time), max(copy.last_time, entry.begin_time)
        copy.after, copy.end_lsn = entry.final_lsn, max(copy.end_lsn, entry.end_lsn)
        reserve(copy.commits, sizeof(uint64_t))
        put(copy.commits, &entry.final_lsn, sizeof(uint64_t))
        place += 1
    return row


cdef inline int put_row_data(Copy *copy, const RowEntry *row) except -2:
    return put_copy_data(copy, row.start, row.stop - row.start - copy.head - (copy.framing == 0))


cdef int put_copy_data(Copy *copy, Py_ssize_t pos, Py_ssize_t size) except -2:
    """Append the message of this size whose frame is at `pos`, as CopyData."""
    cdef const uint8_t *header = copy.buf + pos + copy.framing
    cdef Out *out = copy.out
    reserve(out, 5 + HEADER + size)
    put_char(out, c"d")
    put_length(out, 4 + HEADER + size)
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
    put(out, copy.buf + pos + copy.head, size)
    return 0


cdef list rows_by_oid(const RowEntry *row, const RowEntry *end):
    """The rows by table: (OID, inserts, updates, deletes), in the order of their first rows."""
    cdef Buffer tables = Buffer()
    cdef dict places = {}
    cdef uint32_t[256] recent           # by the last byte of an OID: 1 + its place
    cdef Py_ssize_t place
    cdef RowCounts *counts = NULL
    memset(recent, 0, sizeof(recent))
    while row < end:
        place = <Py_ssize_t>recent[row.oid & 0xFF] - 1
        if place < 0 or counts[place].oid != row.oid:
            place = places.setdefault(row.oid, len(places))
            if place * <Py_ssize_t>sizeof(RowCounts) == tables.out.size:
                reserve(&tables.out, sizeof(RowCounts))
                counts = <RowCounts *>tables.out.data
                memset(&counts[place], 0, sizeof(RowCounts))
                counts[place].oid = row.oid
                tables.out.size += sizeof(RowCounts)
            recent[row.oid & 0xFF] = <uint32_t>place + 1
        counts[place].rows[row.op] += 1
        row += 1
    return [
        (oid, counts[place].rows[0], counts[place].rows[1], counts[place].rows[2]) for oid, place in places.items()
    ]


def runs_of_rows(Batch batch not None, Py_ssize_t limit):
    """The rows of stream segments in runs of one (sub)transaction, and of about `limit` bytes.

    [(where it ends in the buffer, xid, OIDs of its tables, number of rows)], from the start of the batch.
    """
    cdef const RowEntry *row = batch.row_entries
    cdef const RowEntry *end = row + batch.row_count
    cdef const RowEntry *first
    cdef list runs = []
    cdef set oids
    while row < end:
        first, oids = row, set()
        while row < end and row.xid == first.xid and row.start - first.start < limit:
            if row == first or row.oid != (row - 1).oid:
                oids.add(row.oid)
            row += 1
        runs.append(((row - 1).stop, first.xid, tuple(oids), row - first))
    return runs
