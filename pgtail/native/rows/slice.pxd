# A part of a batch without marks, as far as it goes on with the stream as it should. See rows/slice.pyx.

cdef enum:
    # Kinds of old tuples.
    OLD_NONE
    OLD_KEY
    OLD_FULL
    OLD_SEEN                # not sent, but seen before
    OLD_KINDS

cdef struct TableEntry:
    uint32_t oid
    int columns             # NOWHERE if it was not described
    bint full               # whether REPLICA IDENTITY is FULL

cdef Slice slice_of(Batch batch, Py_ssize_t start, current, transaction)

cdef class Slice:
    cdef Batch batch
    cdef readonly Py_ssize_t start, stop
    cdef Py_ssize_t first_row, end_row, first_transaction, end_transaction
    cdef readonly bint continues, goes_on
    cdef Py_ssize_t base    # rows of the transaction that continues, before the slice
    cdef bint snapshot
    cdef bint filtered      # whether a filter has marked its rows
    cdef bint started       # whether the start of the transaction that continues was written
    cdef object current     # the tables by OID
    cdef readonly list relations
    cdef dict places        # in `relations`, by OID
    cdef TableEntry *tables
    cdef Py_ssize_t table_room
    cdef uint16_t[256] recent           # by the last byte of an OID: 1 + its place

    cdef int check(self, uint64_t lsn, int64_t time) except -1
    cdef Py_ssize_t check_rows(self, Py_ssize_t row, Py_ssize_t end) except -1
    cdef int add_table(self, uint32_t oid) except -1
    cdef int cut(self, Py_ssize_t transaction, Py_ssize_t row, Py_ssize_t stop, bint goes_on) except -1
    cdef int cut_inside(self, Py_ssize_t place, Py_ssize_t row) except -1
    cdef bint begins(self, const TransactionEntry *entry) noexcept
    cdef bint ends(self, const TransactionEntry *entry) noexcept
    cdef Py_ssize_t first_row_of(self, const TransactionEntry *entry) noexcept
    cdef Py_ssize_t end_row_of(self, const TransactionEntry *entry) noexcept
    cdef Py_ssize_t base_of(self, const TransactionEntry *entry) noexcept
    cdef bint is_shown(self, const TransactionEntry *entry) noexcept
