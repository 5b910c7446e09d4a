"""Counts of the rows of slices, by table, transaction and time: the same as Statistics (stats/collect.py) makes of events."""

cdef struct Changes:
    # Row changes by operation, and their bytes.
    Py_ssize_t ops[OP_SNAPSHOT]
    Py_ssize_t size


@cython.final
cdef class CountedTable:
    """A version of a table with its counts since they were last added to its TableCount."""

    cdef object relation, counts
    cdef int64_t number
    cdef RowKey key         # None if its rows have none
    cdef Changes now, done  # of the current transaction; of committed ones in the current bin of time
    cdef Py_ssize_t snapshot_rows, copied, compared, same, moved, unsent
    cdef list unsent_columns

    def __cinit__(self, relation, counts, key):
        self.relation, self.counts, self.number = relation, counts, counts.number
        self.key = RowKey(key.prefix, key.places) if key.places else None
        self.unsent_columns = [0] * len(relation.columns)

    cdef tuple take(self, Changes *changes):
        """The TableCount, inserts, updates, deletes and their bytes, which are then reset."""
        ops = changes.ops
        taken = self.counts, ops[OP_INSERT], ops[OP_UPDATE], ops[OP_DELETE], changes.size
        memset(changes, 0, sizeof(Changes))
        return taken

    cdef int publish(self) except -1:
        """Add the counts other than those of changes to the TableCount and reset them."""
        counts = self.counts
        counts.relation = self.relation
        counts.snapshot_rows += self.snapshot_rows
        counts.snapshot_bytes += self.copied
        counts.compared += self.compared
        counts.same += self.same
        counts.moved += self.moved
        counts.unsent += self.unsent
        if self.unsent:
            for i, count in enumerate(self.unsent_columns):
                if count:
                    counts.unsent_columns[self.relation.column_name(i)] += count
                    self.unsent_columns[i] = 0
        self.snapshot_rows = self.copied = self.compared = self.same = self.moved = self.unsent = 0
        return 0


cdef inline bint is_counted(const Changes *changes) noexcept:
    return changes.ops[OP_INSERT] or changes.ops[OP_UPDATE] or changes.ops[OP_DELETE]


@cython.final
cdef class RowCounter:
    """Counts the rows of slices for a Statistics, which holds the state of the open transaction."""

    cdef object stats
    cdef dict versions              # of tables: a CountedTable each
    cdef list tables                # the same, by their places in the slice; None before the first row that is shown
    cdef list now, done             # those with changes of the current transaction, and of the current bin
    cdef int64_t bin_start, bin_stop    # a half-open range of commit times
    cdef Py_ssize_t rows, size      # of the current transaction: rows and bytes of changes
    cdef uint64_t first_lsn
    cdef list commits, hot_keys     # for Transactions.add_all() and HotKeys.add_all()
    cdef Buffer cells, scratch      # of the commits, for Transactions.add_all()

    def __cinit__(self, stats):
        self.stats, self.versions, self.now, self.done = stats, {}, [], []
        self.cells, self.scratch = Buffer(), Buffer()

    def count(self, Slice rows):
        """Count the rows of a slice that are shown, and their transactions."""
        cdef const TransactionEntry *entry
        cdef CountedTable table
        cdef Py_ssize_t place
        self.tables, self.commits, self.hot_keys = [None] * len(rows.relations), [], []
        self.bin_stop = self.bin_start
        for place in range(rows.first_transaction, rows.end_transaction):
            entry = &rows.batch.transaction_entries[place]
            self.count_transaction(rows, entry)
        self.end_bin()
        for table in self.tables:
            if table is not None:
                table.publish()
        if self.commits:
            cells = memoryview(PyBytes_FromStringAndSize(self.cells.out.data, self.cells.out.size)).cast("q")
            self.cells.out.size = 0
            self.stats.add_all(self.commits, cells)
        self.stats.hot_keys.add_all(self.hot_keys)

    cdef int count_transaction(self, Slice rows, const TransactionEntry *entry) except -1:
        cdef CountedTable table
        cdef bint begins = rows.begins(entry), ends = rows.ends(entry)
        if not begins or not ends:
            if begins or not rows.started:
                self.stats.begin()
        self.count_rows(rows, entry)
        if begins and ends:
            if self.rows:
                self.end_now(entry.commit_time)
                self.commits.append((
                    entry.xid, entry.commit_lsn, entry.commit_time, self.rows, self.size, self.first_lsn or None,
                ))
            elif not rows.filtered:
                self.stats.transactions.empty += 1
            return 0
        if self.rows:
            self.stats.add_part([table.take(&table.now) for table in self.now], self.first_lsn or None)
            del self.now[:]
        if ends and (not rows.filtered or rows.is_shown(entry)):
            self.stats.committed()
        return 0

    cdef int count_rows(self, Slice rows, const TransactionEntry *entry) except -1:
        """Count the rows of a transaction of the slice as those of the current one."""
        cdef const RowEntry *row = rows.batch.row_entries + rows.first_row_of(entry)
        cdef const RowEntry *end = rows.batch.row_entries + rows.end_row_of(entry)
        cdef const Cell *old
        cdef CountedTable table
        cdef Py_ssize_t size
        cdef int op, old_kind
        self.rows = self.size = self.first_lsn = 0
        while row < end:
            if not row.hidden:
                table = <CountedTable>self.tables[row.table]
                if table is None:
                    table = self.tables[row.table] = self.table(rows.relations[row.table])
                op, old_kind = row.shape // OLD_KINDS, row.shape % OLD_KINDS
                old = rows.batch.cell_entries + row.cells
                size = rows.batch.message_size(row)
                if op == OP_UPDATE:
                    count_update(table, row, old_kind, old, old + row.old_width)
                if table.key is not None and (op == OP_UPDATE or old_kind == OLD_KEY):
                    key = table.key.of(old if old_kind == OLD_KEY else old + row.old_width, self.scratch)
                    if key is not None:
                        self.hot_keys.append(key)
                if op == OP_SNAPSHOT:
                    table.snapshot_rows += 1
                    table.copied += size
                else:
                    if not is_counted(&table.now):
                        self.now.append(table)
                    table.now.ops[op] += 1
                    table.now.size += size
                    self.size += size
                self.rows += 1
                if not self.first_lsn:
                    self.first_lsn = row.lsn
            row += 1
        return 0

    cdef CountedTable table(self, relation):
        cdef CountedTable known = <CountedTable>self.versions.get(relation.version)
        if known is None or known.relation is not relation:
            known = self.versions[relation.version] = CountedTable(relation, *self.stats.known(relation))
        return known

    cdef int end_now(self, int64_t time) except -1:
        """Count the tables of the current transaction as committed at a time."""
        cdef CountedTable table
        cdef int64_t cell[6]
        cdef int i
        if not self.bin_start <= time < self.bin_stop:
            self.end_bin()
            self.bin_start, self.bin_stop = self.stats.rate.bounds(time)
        cell[0] = PyList_GET_SIZE(self.commits)
        for table in self.now:
            cell[1], cell[5] = table.number, table.now.size
            if not is_counted(&table.done):
                self.done.append(table)
            for i in range(OP_SNAPSHOT):
                cell[2 + i] = table.now.ops[i]
                table.done.ops[i] += table.now.ops[i]
            table.done.size += table.now.size
            reserve(&self.cells.out, sizeof(cell))
            put(&self.cells.out, cell, sizeof(cell))
            memset(&table.now, 0, sizeof(Changes))
        del self.now[:]
        return 0

    cdef int end_bin(self) except -1:
        """Add the counts of the current bin."""
        cdef CountedTable table
        if self.done:
            self.stats.add_committed(self.bin_start, [table.take(&table.done) for table in self.done])
            del self.done[:]
        return 0


cdef int count_update(
    CountedTable table, const RowEntry *row, int old_kind, const Cell *old, const Cell *new
) except -1:
    """Count what an update changed."""
    cdef int i
    if old_kind == OLD_FULL:
        table.compared += 1
        table.same += same_rows(old, new, row.new_width, False)
    elif old_kind == OLD_KEY:
        table.moved += not same_rows(old, new, row.new_width, True)
    if row.unchanged:
        table.unsent += 1
        for i in range(row.new_width):
            if new[i].kind == c"u":
                table.unsent_columns[i] += 1
    return 0


cdef bint same_rows(const Cell *old, const Cell *new, int columns, bint key) noexcept:
    """Whether two tuples are equal. Unchanged TOAST values count as equal; with `key`, NULLs of the old one too."""
    cdef int i
    for i in range(columns):
        if new[i].kind != c"u" and not (key and old[i].kind == c"n") and not same_cell(&old[i], &new[i]):
            return False
    return True
