"""The emitter of events, for an output that writes rows in Python and only counts some of them."""

@cython.final
cdef class EventTable(Table):
    """A table, and what its rows are shown as."""

    cdef object masked


@cython.final
cdef class EventScanner(Scanner):
    """Sends Started, rows and Ended to `output.event`.

    While `full` is set, as no rows of the transaction are left to be shown (`output.left`), rows are counted:
    `output.skipped` gets their number. `events` is the module of the events, `mask` that of outputs/base.py.
    """

    cdef object output, mask, event, events, row_change
    cdef Py_ssize_t skipped
    cdef bint full

    def __cinit__(self, find, filter_, output, mask, events):
        self.output, self.mask, self.event = output, mask, output.event
        self.events, self.row_change = events, events.RowChange

    cdef Table describe(self, relation):
        cdef EventTable table = EventTable(relation)
        table.masked = relation if self.mask is None else self.mask(relation)
        return table

    cdef int entered(self) except -2:
        self.full = self.output.left <= 0
        return 0

    cdef int begin(self) except -2:
        if self.transaction is None:
            self.transaction = self.events.Transaction(self.xid, self.commit_lsn, self.commit_ts)
        self.event(self.events.Started(self.transaction))
        self.started, self.full = True, self.output.left <= 0
        return 0

    cdef int emit(self, Table table, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        if not self.started:
            self.begin()
        if self.full:
            self.skipped += 1
            return 0
        self.event(
            self.row_change(
                OPERATIONS[op],
                self.transaction,
                self.seq + 1,
                lsn or None,
                (<EventTable>table).masked,
                "" if kind == c"N" else "K" if kind == c"K" else "O",
                None if kind == c"N" else tuple_data(self.old, table.columns),
                None if op == OP_DELETE else tuple_data(self.new, table.columns),
            )
        )
        self.full = self.output.left <= 0
        return 0

    cdef int commit(self) except -2:
        if self.shows():
            if not self.started:
                self.begin()
            self.flush()
            self.transaction.changes, self.transaction.end_lsn = self.seq, self.end_lsn
            self.event(self.events.Ended(self.transaction))
        return 0

    cdef int flush(self) except -2:
        if self.skipped:
            self.output.skipped(self.skipped)
            self.skipped = 0
        return 0


cdef tuple tuple_data(const Cell *cells, int columns):
    """A tuple as the decoder returns it."""
    cdef int i
    return tuple([cell_value(&cells[i]) for i in range(columns)])
