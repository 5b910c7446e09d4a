"""The scanner: the loop over frames, Begin, rows and Commit. Its subclasses are the emitters."""

cdef tuple OPERATIONS = ("insert", "update", "delete", "snapshot")

cdef enum:
    # Their places.
    OP_INSERT
    OP_UPDATE
    OP_DELETE
    OP_SNAPSHOT
    OPS


cdef enum:
    SEEN_ROW_SIZE = 240     # that of plan.py
    TUPLE_HEAD = 2          # bytes of the number of cells before them

cdef uint8_t SEEN = c"S"    # the kind of an old row that was not sent


@cython.final
cdef class RowCount:
    """How many rows of a table, of whatever version, were processed, shown or not, by operation."""

    cdef Py_ssize_t rows[OPS]


cdef class Table:
    """One version of a table, as the scanner needs it. Emitters add what they need."""

    cdef object relation
    cdef int columns
    cdef bint full          # whether REPLICA IDENTITY is FULL
    cdef bint shown[OPS]    # by operation
    cdef bint bound[OPS]    # by operation: whether its condition was made
    cdef bint asked         # whether `remembers` and what follows are known, if rows are remembered at all
    cdef bint remembers     # whether its rows are remembered (changes/seen_rows.py)
    cdef bint hides, has_others     # whether not all of a row is, and whether there is more than the key
    cdef bytes prefix
    cdef int keys_count
    cdef int *keys          # the columns of the key
    cdef list conditions    # by operation: a Condition, or None for no condition
    cdef RowCount count

    def __cinit__(self, relation, *_):
        self.relation = relation
        self.columns = len(relation.columns)
        self.full = relation.identity == "full"
        self.conditions = [None] * OPS
        self.show(True)

    def __dealloc__(self):
        PyMem_Free(self.keys)

    cdef int remember(self, seen) except -2:
        """Its rows are remembered as this SeenTable says."""
        self.set_key(seen.prefix, seen.keys)
        self.remembers, self.hides, self.has_others = self.keys_count > 0, bool(seen.hidden), bool(seen.others)
        self.asked = True
        return 0

    cdef int set_key(self, bytes prefix, tuple keys) except -2:
        """The keys of its rows begin with `prefix`, and have the cells of these columns."""
        cdef int i
        self.keys_count, self.prefix = len(keys), prefix
        PyMem_Free(self.keys)
        self.keys = <int *>PyMem_Calloc(self.keys_count + 1, sizeof(int))
        if self.keys == NULL:
            raise MemoryError
        for i in range(self.keys_count):
            self.keys[i] = keys[i]
        return 0

    cdef void show(self, bint shown) noexcept:
        """Whether rows are shown, whatever the operation."""
        cdef int op
        for op in range(OPS):
            self.shown[op] = shown


cdef class Scanner:
    """Processes ordinary row messages with their Begin and Commit; see Scanner in native/__init__.py.

    A subclass implements emit() and, where it needs them, the other hooks below.
    """

    cdef object find, filter
    cdef dict tables
    cdef dict row_counts    # by schema and name
    cdef uint32_t last_oid
    cdef Table last
    cdef Cell *old
    cdef Cell *new
    cdef int unchanged      # cells of the new tuple of the current row
    cdef Out scratch
    # The current transaction. `transaction` is its Transaction if it did not start here.
    cdef object transaction
    cdef uint32_t xid
    cdef uint64_t commit_lsn, end_lsn
    cdef int64_t commit_ts
    cdef bint selected      # whether it passes the filter
    cdef bint bounded       # whether the next four lines are a range of commits
    cdef uint64_t since_lsn, until_lsn
    cdef int64_t since_ts, until_ts, latest_ts
    cdef int framing
    cdef readonly bint inside, started, began
    cdef bint snapshot      # whether the current transaction is one
    cdef readonly Py_ssize_t seq, rows, left_out, messages, shown, not_sent, transactions
    cdef readonly int64_t first_ts, last_ts
    cdef readonly uint64_t resume_at
    cdef public object most, until
    cdef public bint single
    # The rows that were seen (SeenRows), if they are remembered, and those of a row message.
    cdef object seen, seen_rows
    cdef bytes seen_key, new_key, seen_row      # of the row before and after it, and the row before it, or None
    cdef Py_ssize_t seen_size, seen_limit
    cdef bint advanced      # whether `seen` knows of the current transaction

    def __cinit__(self, find, filter_, *_):
        self.find, self.filter = find, filter_
        self.tables, self.row_counts = {}, {}
        self.bounded = filter_ is not None and filter_.commits.active
        if self.bounded:
            self.since_lsn, self.since_ts, self.until_lsn, self.until_ts, self.latest_ts = filter_.commits.bounds()
        self.old = <Cell *>PyMem_Malloc(MOST_COLUMNS * sizeof(Cell))
        self.new = <Cell *>PyMem_Malloc(MOST_COLUMNS * sizeof(Cell))
        if self.old == NULL or self.new == NULL:
            raise MemoryError
        grow(&self.scratch, 1024)

    def __dealloc__(self):
        PyMem_Free(self.old)
        PyMem_Free(self.new)
        PyMem_Free(self.scratch.data)

    def remember(self, seen):
        """Fill in old rows from these SeenRows, and remember rows there."""
        self.seen, self.seen_rows = seen, seen.rows

    def forget(self):
        """Drop cached tables: they may have changed."""
        self.tables = {}
        self.last = None

    def rows_by_table(self):
        """{(schema, table): the number of rows by operation}."""
        return {name: (<RowCount>count).rows for name, count in list(self.row_counts.items())}

    @property
    def begun(self):
        """(xid, commit LSN, commit time) of the transaction that began in this run."""
        return self.xid, self.commit_lsn, self.commit_ts

    @property
    def written(self):
        """What was written (Written): only an emitter of text needs to know."""
        return None

    @written.setter
    def written(self, before):
        pass

    def enter(self, transaction, bint started):
        """The next run starts inside this transaction; `started` says whether its start was written."""
        self.transaction = transaction
        self.xid = transaction.xid or 0
        self.commit_lsn, self.commit_ts = transaction.commit_lsn or 0, transaction.commit_ts or 0
        self.selected = self.filter is None or self.filter.selects(transaction)
        self.snapshot = transaction.snapshot
        self.inside, self.began, self.started, self.seq = True, False, started, transaction.changes
        self.advanced = True
        self.entered()

    def leave(self):
        """The next run starts outside a transaction."""
        self.inside = self.began = self.started = self.snapshot = False

    def scan(self, buf, Py_ssize_t pos, Py_ssize_t end, int framing, bint in_stream=False):
        """Process messages of buf[pos:end]; returns where the first declined message starts."""
        cdef Py_buffer view
        self.rows = self.left_out = self.messages = self.shown = self.not_sent = self.resume_at = 0
        self.transactions = 0
        self.began, self.framing = False, framing
        if self.seen is not None:
            self.seen_size, self.seen_limit = self.seen.size, self.seen.limit
        PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= pos <= end <= view.len:
                raise ValueError("not a part of the buffer")
            return self.run(<const uint8_t *>view.buf, pos, end, in_stream)
        finally:
            PyBuffer_Release(&view)
            if self.seen is not None:
                self.seen.size = self.seen_size
            self.flush()

    # -- hooks of the emitters ---------------------------------------------------------------------------------

    cdef int emit(self, Table table, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        """Add a row, whose cells are in `old` and `new`; `kind` is N without an old tuple. 0, or DECLINED."""
        return DECLINED

    cdef Table describe(self, relation):
        """The table for a relation."""
        return Table(relation)

    cdef int entered(self) except -2:
        """The run starts inside a transaction."""
        return 0

    cdef int start(self) except -2:
        """A transaction starts. 0, or DECLINED."""
        return 0

    cdef int commit(self) except -2:
        """The transaction ends: called at Commit."""
        return 0

    cdef bint may_commit(self) noexcept:
        """Whether the run may go on after the Commit."""
        return True

    cdef bint is_full(self) noexcept:
        """Whether the run must end before the next message."""
        return False

    cdef int flush(self) except -2:
        """The run ends."""
        return 0

    # -- the loop ----------------------------------------------------------------------------------------------

    cdef Py_ssize_t run(self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, bint in_stream) except -2:
        cdef Py_ssize_t at, stop, after, begin = -1
        cdef uint64_t lsn
        cdef uint8_t tag
        cdef int framing = self.framing
        cdef uint64_t until = 0xFFFFFFFFFFFFFFFF if self.until is None else self.until
        cdef Py_ssize_t most = -1 if self.most is None else self.most
        while pos < end and not self.is_full():
            if framing:
                stop = frame_end(buf, pos, end, framing)
                if stop < 0:
                    break
                at = pos + framing + HEADER
                lsn = u64(buf + pos + framing + 1)
            else:
                at, stop, lsn = pos, end, 0
            tag = buf[at]
            if tag == c"I" or tag == c"U" or tag == c"D":
                if not self.inside:
                    break
                after = self.row(buf, at, stop, lsn, 4 if in_stream else 0)
                if after < 0:
                    break
                begin = -1
                if self.seen is not None:
                    self.advance()
            elif in_stream:
                break
            elif tag == c"B":
                after = at + 21
                if self.inside or not ends_here(buf, after, stop, framing > 0) or u64(buf + at + 1) > until:
                    break
                self.commit_lsn, self.commit_ts = u64(buf + at + 1), <int64_t>u64(buf + at + 9)
                self.xid = u32(buf + at + 17)
                if self.xid == 0:               # a snapshot: its rows are processed once the decoder has begun it
                    break
                if self.bounded and (self.commit_lsn > self.until_lsn or self.commit_ts > self.latest_ts):
                    break
                if self.seen is not None and self.commit_lsn <= self.seen.last_lsn:
                    break                       # the decoder forgets all rows
                if self.start() < 0:
                    break
                self.advanced = False
                self.selected = self.filter is None or (
                    (not self.bounded or self.is_in_range()) and (not self.filter.xids or self.xid in self.filter.xids)
                )
                self.transaction = None
                self.inside, self.began, self.started, self.seq = True, True, False, 0
                begin = pos
            elif tag == c"C":
                after = at + 26
                if not self.inside or self.snapshot or not ends_here(buf, after, stop, framing > 0) or buf[at + 1]:
                    break
                if u64(buf + at + 2) != self.commit_lsn or <int64_t>u64(buf + at + 18) != self.commit_ts:
                    break
                self.end_lsn = u64(buf + at + 10)
                if self.end_lsn >= until or not self.may_commit():
                    break
                if most >= 0 and self.shows() and self.seq and self.shown + 1 >= most:
                    break
                self.shown += self.shows() and self.seq > 0
                self.first_ts = self.commit_ts if not self.transactions else min(self.first_ts, self.commit_ts)
                self.last_ts = self.commit_ts if not self.transactions else max(self.last_ts, self.commit_ts)
                self.transactions += 1
                if self.seen is not None:
                    self.advance()
                self.commit()
                self.resume_at = self.end_lsn
                self.inside = self.began = self.started = False
                begin = -1
            else:
                break
            self.messages += 1
            pos = after + (framing == 0)
            if self.single and self.shown:
                break
        if begin >= 0 and not self.started:
            # Only Begin of this transaction was read: undo it, as an Origin may follow, which the decoder handles.
            self.messages -= 1
            self.inside = self.began = False
            return begin
        return pos

    cdef inline bint is_in_range(self) noexcept:
        """Whether the commit of the current transaction is in the range."""
        return (self.since_lsn <= self.commit_lsn <= self.until_lsn) and (self.since_ts <= self.commit_ts <= self.until_ts)

    cdef inline bint shows(self) noexcept:
        """Whether the current transaction is shown; without a filter every one is."""
        return self.started or self.filter is None

    cdef Table table(self, uint32_t oid):
        """The current version of the table, which is then the last one; None if it was not described."""
        found = self.tables.get(oid)
        if found is None:
            relation = self.find(oid)
            if relation is None:
                return None
            found = self.describe(relation)
            self.set_shown(found)
            self.set_count(found)
            (<Table>found).asked = self.seen is None
            self.tables[oid] = found
        self.last, self.last_oid = found, oid
        return self.last

    cdef int set_count(self, Table table) except -2:
        name = (table.relation.schema, table.relation.name)
        table.count = self.row_counts.get(name)
        if table.count is None:
            table.count = self.row_counts[name] = RowCount()
        return 0

    cdef int set_shown(self, Table table) except -2:
        if self.filter is not None:
            for i, op in enumerate(OPERATIONS):
                table.shown[<int>i] = self.filter.row_passes(table.relation, op)
        return 0

    cdef Py_ssize_t row(
        self, const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, uint64_t lsn, int xid_size
    ) except -2:
        """Process one row message; returns where it ends, or DECLINED."""
        cdef int op = OP_INSERT if buf[pos] == c"I" else OP_UPDATE if buf[pos] == c"U" else OP_DELETE
        cdef Py_ssize_t start = pos
        cdef uint8_t kind
        cdef Table table
        cdef uint32_t oid
        cdef int unchanged = 0, known
        cdef Py_ssize_t new_start = 0
        cdef bint hidden
        if end - pos < 8 + xid_size:
            return DECLINED
        pos += xid_size
        oid = u32(buf + pos + 1)
        table = self.last if oid == self.last_oid and self.last is not None else self.table(oid)
        if table is None:
            return DECLINED
        kind = buf[pos + 5]
        pos += 6
        if not (kind == c"N" if op == OP_INSERT else kind == c"K" or kind == c"O" or (op == OP_UPDATE and kind == c"N")):
            return DECLINED
        if kind == c"O" and not table.full:
            kind = c"K"                         # as row_change() of changes/events.py
        if self.snapshot:
            if op != OP_INSERT:
                return DECLINED
            op = OP_SNAPSHOT
        hidden = not table.shown[op] or not self.selected
        if hidden and table.asked and not table.remembers:
            pos = skip_row(buf, pos, end, op, kind, table.columns)
            return self.counted(buf, start, pos, end, &table.count.rows[op])
        if kind != c"N":
            pos = read_tuple(buf, pos, end, table.columns, self.old, &unchanged)
            if pos < 0 or unchanged:
                return DECLINED
            if op == OP_UPDATE:
                if pos >= end or buf[pos] != c"N":
                    return DECLINED
                pos += 1
        self.unchanged = 0
        if op != OP_DELETE:
            new_start = pos + TUPLE_HEAD
            pos = read_tuple(buf, pos, end, table.columns, self.new, &self.unchanged)
        if pos < 0 or not self.ends_well(buf, start, pos, end):
            return DECLINED
        if not table.asked:     # only for a whole row, as rows that the decoder refuses do not count
            table.remember(self.seen.table(table.relation))
        if table.remembers:
            known = self.recall(table, op, kind)
            if known < 0:
                return DECLINED
            if known:
                kind = SEEN
        if hidden or (self.filter is not None and not self.passes(table, op, kind)):
            self.left_out += 1
        elif self.emit(table, op, kind, lsn, pos - start - xid_size) < 0:
            return DECLINED
        if table.remembers:
            self.replace(op, buf + new_start, pos - new_start, table.columns)
        self.seq += 1
        self.rows += 1
        table.count.rows[op] += 1
        return pos

    # -- rows that were seen -----------------------------------------------------------------------------------

    cdef inline int advance(self) except -2:
        """The current transaction counts."""
        if not self.advanced:
            self.advanced = True
            self.seen.last_lsn = self.commit_lsn
        return 0

    cdef bytes key(self, Table table, const Cell *cells):
        """The key of a row, as SeenTable.key() and RowKey.of() make it; None if a part of it is missing."""
        cdef Out *out = &self.scratch
        cdef int i
        out.size = 0
        put_object(out, table.prefix)
        for i in range(table.keys_count):
            if cells[table.keys[i]].data == NULL:
                return None
            put_cell(out, &cells[table.keys[i]])
        return PyBytes_FromStringAndSize(out.data, out.size)

    cdef int recall(self, Table table, int op, uint8_t kind) except -2:
        """Look up the row that a change is of; whether it is then in `old`, with all its values. Or DECLINED."""
        if table.hides or kind == c"O":
            return DECLINED
        self.seen_row = None
        self.seen_key = self.key(table, self.new if kind == c"N" else self.old)
        if self.seen_key is None:
            return DECLINED
        self.new_key = self.key(table, self.new) if op == OP_UPDATE and kind == c"K" else self.seen_key
        if self.new_key is None:
            return DECLINED
        if op != OP_UPDATE and op != OP_DELETE:
            return False
        self.seen_row = self.seen_rows.get(self.seen_key)
        if self.seen_row is None:
            return False
        if read_packed(
            <const uint8_t *>PyBytes_AS_STRING(self.seen_row), PyBytes_GET_SIZE(self.seen_row), table.columns, self.old
        ) < 0:
            return DECLINED
        return table.has_others

    cdef int replace(self, int op, const uint8_t *new, Py_ssize_t size, int columns) except -2:
        """Remember the new row of a change in place of the one that recall() found; its packed cells are at `new`."""
        cdef bytes row
        cdef Out *out = &self.scratch
        cdef int i
        if op != OP_DELETE:
            if self.unchanged:
                out.size = 0
                for i in range(columns):
                    put_cell(
                        out, &self.old[i] if self.new[i].kind == c"u" and self.seen_row is not None else &self.new[i]
                    )
                row = PyBytes_FromStringAndSize(out.data, out.size)
            else:
                row = PyBytes_FromStringAndSize(<const char *>new, size)
        if self.seen_row is not None and (op == OP_DELETE or self.new_key != self.seen_key):
            self.drop(self.seen_key)
        if op != OP_DELETE:
            self.drop(self.new_key)
            self.seen_rows[self.new_key] = row
            self.seen_size += SEEN_ROW_SIZE + PyBytes_GET_SIZE(self.new_key) + PyBytes_GET_SIZE(row)
            if self.seen_size > self.seen_limit:
                self.seen.size = self.seen_size
                self.seen.make_room()
                self.seen_size = self.seen.size
        return 0

    cdef int drop(self, bytes key) except -2:
        row = self.seen_rows.pop(key, None)
        if row is not None:
            self.seen_size -= SEEN_ROW_SIZE + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(row)
        return 0

    cdef inline bint ends_well(self, const uint8_t *buf, Py_ssize_t start, Py_ssize_t pos, Py_ssize_t end) noexcept:
        """Whether a message of ordinary size ends at `pos`."""
        return ends_here(buf, pos, end, self.framing > 0) and pos - start <= LARGE

    cdef Py_ssize_t counted(
        self, const uint8_t *buf, Py_ssize_t start, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t *count
    ) noexcept:
        """Count a row that is not shown and ends at `pos`; returns that, or DECLINED."""
        if pos < 0 or not self.ends_well(buf, start, pos, end):
            return DECLINED
        self.seq += 1
        self.rows += 1
        self.left_out += 1
        count[0] += 1
        return pos

    cdef int bind(self, Table table, int op) except -2:
        bound = self.filter.bound(table.relation, OPERATIONS[op])
        table.bound[op] = True
        if bound is not None and bound.root is not True:
            table.shown[op] = bound.root is not False and bound.root is not None
            table.conditions[op] = Condition(bound)
        return 0

    cdef int passes(self, Table table, int op, uint8_t kind) except -2:
        cdef Condition condition
        cdef Row row
        cdef int found
        if not table.bound[op]:
            self.bind(table, op)
        condition = <Condition>table.conditions[op]
        if condition is None:
            return True
        row.old, row.new, row.kind, row.xid, row.commit_ts = self.old, self.new, kind, self.xid, self.commit_ts
        row.has_xid = self.transaction is None or self.transaction.xid is not None
        row.has_commit_ts = self.transaction is None or self.transaction.commit_ts is not None
        condition.untested = False
        found = condition.holds(0, &row)
        self.not_sent += found == UNKNOWN and condition.untested
        return found == TRUE


cdef Py_ssize_t skip_row(
    const uint8_t *buf, Py_ssize_t pos, Py_ssize_t end, int op, uint8_t kind, int columns
) noexcept:
    """Where the tuples of a row message end; DECLINED if they are not valid."""
    if kind != c"N":
        pos = skip_tuple(buf, pos, end, columns)
        if pos < 0 or op == OP_DELETE:
            return pos
        if pos >= end or buf[pos] != c"N":
            return DECLINED
        pos += 1
    return skip_tuple(buf, pos, end, columns)


@cython.final
cdef class KnownTable(Table):
    """A table of which a row was seen."""

    cdef bint known


@cython.final
cdef class CountingScanner(Scanner):
    """Counts rows inside a transaction. It declines the first row of each table, so that the output learns of it, and
    Commit."""

    cdef Table describe(self, relation):
        return KnownTable(relation)

    cdef int emit(self, Table table, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        if not (<KnownTable>table).known:
            (<KnownTable>table).known = True
            return DECLINED
        return 0

    cdef bint may_commit(self) noexcept:
        return False

    cdef bint is_full(self) noexcept:
        return not self.inside
