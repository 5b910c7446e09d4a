"""Fields: properties of a row and its transaction as text (plan.Field)."""

cdef enum Field:
    FIELD_XID
    FIELD_COMMIT_LSN
    FIELD_COMMIT_TS
    FIELD_TIMESTAMP
    FIELD_UNIX_MS
    FIELD_UNIX_US
    FIELD_UNIX_NS
    FIELD_END_LSN
    FIELD_CHANGES
    FIELD_LAST_END
    FIELD_SEQ
    FIELD_LSN
    FIELD_LSN_NUMBER
    FIELD_POSITION_NUMBER
    FIELD_ABORTED
    FIELD_NOW_MS
    FIELD_NOW_US
    FIELD_NOW_NS
    FIELD_COMMIT_TIME
    FIELD_STATE
    FIELD_TIME
    FIELD_CLOCK
    FIELD_END_NUMBER

cdef enum:
    FIELD_SIZE = 48         # bytes; the text of no field is longer



cdef class FieldScanner(Scanner):
    """A scanner that writes fields to `out`."""

    cdef Out out
    cdef object clock               # nanoseconds since 1970
    cdef uint64_t last_end
    cdef bint has_last_end
    cdef bint has_xid, has_commit_lsn, has_commit_ts, has_end_lsn
    cdef int64_t unix_time          # microseconds; of the commit or the prepare
    cdef bint has_unix_time
    cdef bint late                  # whether that time is out of range: no row is written
    cdef bytes state                # of a transaction that did not start here
    cdef dict groups                # by their pieces
    cdef uint64_t generation        # counts the transactions
    cdef uint64_t lsn
    cdef int64_t now                # nanoseconds; 0 if not read for this row

    def __cinit__(self, *_):
        self.groups = {}
        self.generation = 0
        grow(&self.out, FULL)

    def __dealloc__(self):
        PyMem_Free(self.out.data)

    cdef int entered(self) except -2:
        transaction = self.transaction
        self.has_xid, self.has_commit_lsn = transaction.xid is not None, transaction.commit_lsn is not None
        self.has_commit_ts, self.has_end_lsn = transaction.commit_ts is not None, transaction.end_lsn is not None
        self.end_lsn = transaction.end_lsn or 0
        self.state = None if transaction.state is None else transaction.state.encode()
        self.has_unix_time = transaction.time is not None
        self.late = self.has_unix_time and transaction.time > LATEST_UNIX
        self.unix_time = <int64_t>transaction.time + EPOCH if self.has_unix_time and not self.late else 0
        self.generation += 1
        return 0

    cdef int start(self) except -2:
        if self.commit_ts > LATEST_UNIX:
            return DECLINED
        self.late = False
        self.has_xid = self.has_commit_lsn = self.has_commit_ts = self.has_unix_time = True
        self.has_end_lsn = False
        self.state = None
        self.unix_time = self.commit_ts + EPOCH
        self.generation += 1
        return 0

    cdef inline int put_bytes(self, Bytes text) except -2:
        reserve(&self.out, text.size)
        put(&self.out, text.data, text.size)
        return 0

    cdef int value(self, Step *step) except -2:
        """A field between its texts, or what stands for a missing one."""
        cdef Py_ssize_t mark = self.out.size
        self.put_bytes(step.text)
        if self.field(step.field) > 0:
            if step.after.size:
                self.put_bytes(step.after)
            return 0
        self.out.size = mark
        if step.missing_field < 0:
            return self.put_bytes(step.missing)
        return self.field(step.missing_field)

    cdef int field(self, int field) except -2:
        """Write a field; returns whether it is known."""
        cdef Out *out = &self.out
        cdef bint known = True
        reserve(out, FIELD_SIZE)
        if field == FIELD_SEQ:
            put_unsigned(out, self.seq + 1)
        elif field == FIELD_LSN:
            known = self.lsn != 0
            put_lsn(out, self.lsn)
        elif field == FIELD_XID:
            known = self.has_xid
            put_unsigned(out, self.xid)
        elif field == FIELD_COMMIT_LSN:
            known = self.has_commit_lsn
            put_lsn(out, self.commit_lsn)
        elif field == FIELD_COMMIT_TS:
            known = self.has_commit_ts
            put_time(out, self.commit_ts, c"T")
        elif field == FIELD_TIMESTAMP:
            known = self.has_commit_ts
            put_moment(out, self.commit_ts, True)
        elif field == FIELD_UNIX_MS or field == FIELD_UNIX_US or field == FIELD_UNIX_NS:
            known = self.has_unix_time
            put_signed(out, floor_divided(self.unix_time, 1000) if field == FIELD_UNIX_MS else self.unix_time)
            if field == FIELD_UNIX_NS:
                put(out, <const char *>b"000", 3)
        else:
            known = self.rarer_field(field)
        return known

    cdef int rarer_field(self, int field) except -2:
        cdef Out *out = &self.out
        cdef bint known = True
        if field == FIELD_LSN_NUMBER:
            known = self.lsn != 0
            put_unsigned(out, self.lsn)
        elif field == FIELD_POSITION_NUMBER:
            put_unsigned(out, self.lsn or self.commit_lsn)
        elif field == FIELD_END_LSN:
            known = self.has_end_lsn
            put_lsn(out, self.end_lsn)
        elif field == FIELD_END_NUMBER:
            known = self.has_end_lsn
            put_unsigned(out, self.end_lsn)
        elif field == FIELD_CHANGES:
            put_unsigned(out, self.seq)
        elif field == FIELD_LAST_END:
            known = self.has_last_end
            put_unsigned(out, self.last_end)
        elif field == FIELD_COMMIT_TIME:
            known = self.has_commit_ts
            put_time(out, self.commit_ts, c" ")
        elif field == FIELD_TIME or field == FIELD_CLOCK:
            known = self.has_unix_time
            if field == FIELD_TIME:
                put_time(out, self.unix_time - EPOCH, c" ")
            else:
                put_milliseconds(out, floor_remainder(self.unix_time - EPOCH, DAY))
        elif field == FIELD_STATE:
            known = self.state is not None
            if known:
                put_object(out, self.state)
        elif field == FIELD_ABORTED:
            known = False
        else:
            put_unsigned(
                out,
                self.nanoseconds() // (1000000 if field == FIELD_NOW_MS else 1000 if field == FIELD_NOW_US else 1)
            )
        return known

    cdef int64_t nanoseconds(self) except -2:
        """The time, read once for each row."""
        if self.now == 0:
            self.now = self.clock()
        return self.now
