# A batch, and what its arrays consist of. See core/index.pyx.

cdef enum:
    # Operations, in the order of ROW_OPS.
    OP_INSERT
    OP_UPDATE
    OP_DELETE
    OP_SNAPSHOT             # an Insert of a snapshot, which a slice knows
    OPS

cdef struct Cell:
    const uint8_t *data     # NULL without a value
    uint32_t size
    uint8_t kind            # as in the message: n, u, t or b

cdef struct RowEntry:
    uint64_t lsn            # of the frame; 0 if unknown
    uint32_t start, stop    # of the frame or, without frames, of the message and its newline
    uint32_t oid
    uint32_t xid            # in a stream: of the (sub)transaction; else 0
    uint32_t cells          # the first cell of the old tuple, after which those of the new one come
    uint16_t old_width, new_width
    uint16_t unchanged      # cells of the new tuple
    uint16_t table          # its place in the tables of a slice, which sets it
    uint8_t op              # an operation
    uint8_t hidden          # whether a filter hides it; a slice sets it
    uint8_t kind            # of the old tuple, as in the message: K, O or, without one, N
    uint8_t shape           # OLD_KINDS * operation + old kind: what a plan depends on besides the table; a slice sets it

cdef struct TransactionEntry:
    Py_ssize_t begin        # where the frames of Begin and Commit start, or NOWHERE
    Py_ssize_t commit
    Py_ssize_t first_row, end_row
    uint64_t final_lsn      # of Begin
    int64_t begin_time
    uint64_t commit_lsn, end_lsn        # of Commit
    int64_t commit_time
    uint32_t xid
    uint8_t flags
    # Of its rows in a slice, which sets them: how many are shown, and how many could not be tested.
    Py_ssize_t shown, not_sent

cdef struct MarkEntry:
    Py_ssize_t start, stop  # of the frame
    Py_ssize_t row          # how many rows come before
    uint8_t tag             # of the message or, of a Keepalive, of the frame

cdef enum:
    NOWHERE = -1

cdef class Batch:
    cdef Py_buffer view
    cdef bint has_view
    cdef readonly Py_ssize_t start, stop
    cdef readonly int framing
    cdef readonly bint in_stream
    cdef int commit_size    # of a frame with a Commit
    cdef readonly str ended
    cdef RowEntry *row_entries
    cdef Cell *cell_entries
    cdef TransactionEntry *transaction_entries
    cdef MarkEntry *mark_entries
    cdef Py_ssize_t row_count, cell_count, transaction_count, mark_count
    cdef Py_ssize_t row_room, cell_room, transaction_room, mark_room
    cdef list kept          # what cells refer to besides the buffer
    # Where the last slice began and ended before it was cut, and how many rows the next one has at most.
    cdef Py_ssize_t slice_row, slice_stop, most_rows
    # How many of each come before the next slice.
    cdef Py_ssize_t rows_before, transactions_before, marks_before

    cdef int fill(self, Py_ssize_t end) except -1
    cdef Py_ssize_t add_row(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t stop) except -3
    cdef Py_ssize_t add_tuple(
        self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint16_t *width, uint16_t *unchanged
    ) except -3
    cdef Py_ssize_t add_begin(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t stop) except -3
    cdef Py_ssize_t add_commit(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t stop) except -3
    cdef TransactionEntry *add_transaction(self, Py_ssize_t begin) except NULL
    cdef int add_mark(self, Py_ssize_t start, Py_ssize_t stop, uint8_t tag) except -3
    cdef int set_old(self, RowEntry *row, const Cell *old, int width, bytes kept) except -3
    cdef Py_ssize_t message_size(self, const RowEntry *row) noexcept
    cdef tuple cells(self, Py_ssize_t first, int count)
