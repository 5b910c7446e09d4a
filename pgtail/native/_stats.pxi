"""The emitter of `pgtail stats`: counts the same as the methods of pgtail.stats.collect.Statistics."""

cdef struct Changes:
    # Row changes by operation, and their bytes.
    Py_ssize_t ops[OP_SNAPSHOT]
    Py_ssize_t size


@cython.final
cdef class CountedTable(Table):
    """A table with its counts since they were last added to its TableCount."""

    cdef object counts
    cdef int64_t number
    cdef bint touched, is_now, is_done
    cdef Changes now, done  # of the current transaction; of committed ones in the current bin of time
    cdef Py_ssize_t snapshot_rows, copied, compared, same, moved, unsent
    cdef Py_ssize_t *unsent_columns

    def __cinit__(self, relation, *_):
        self.unsent_columns = <Py_ssize_t *>PyMem_Calloc(self.columns + 1, sizeof(Py_ssize_t))
        if self.unsent_columns == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.unsent_columns)

    cdef int publish(self) except -2:
        """Add the counts other than those of changes to the TableCount and reset them."""
        cdef int i
        counts = self.counts
        counts.relation = self.relation
        counts.snapshot_rows += self.snapshot_rows
        counts.snapshot_bytes += self.copied
        counts.compared += self.compared
        counts.same += self.same
        counts.moved += self.moved
        counts.unsent += self.unsent
        if self.unsent:
            for i in range(self.columns):
                if self.unsent_columns[i]:
                    counts.unsent_columns[self.relation.column_name(i)] += self.unsent_columns[i]
                    self.unsent_columns[i] = 0
        self.snapshot_rows = self.copied = self.compared = self.same = self.moved = self.unsent = 0
        self.touched = False
        return 0


@cython.final
cdef class StatsScanner(Scanner):
    """Counts for a Statistics, which between two runs holds the state of the current transaction."""

    cdef object stats
    cdef Py_ssize_t now_rows, now_bytes
    cdef uint64_t first_lsn
    cdef bint anything
    cdef list commits, hot_keys     # of this run: those of Transactions.add_all() and HotKeys.add_all()
    cdef Out cells                  # of the commits, for Transactions.add_all()
    cdef list now, done             # the tables with counts of the current transaction, and of the current bin
    cdef int64_t bin_start, bin_stop    # a half-open range of commit times

    def __cinit__(self, find, filter_, stats):
        self.stats, self.commits, self.hot_keys, self.now, self.done = stats, [], [], [], []

    def __dealloc__(self):
        PyMem_Free(self.cells.data)

    cdef int entered(self) except -2:
        stats = self.stats
        stats.enter(self.transaction)
        if not self.started:
            stats.begin()
        self.anything, self.first_lsn = stats.anything, stats.first_lsn or 0
        return 0

    cdef int start(self) except -2:
        self.anything = False
        self.now_rows = self.now_bytes = self.first_lsn = 0
        return 0

    cdef int store(self) except -2:
        """Add the counts of the current transaction, of which other parts are counted elsewhere."""
        cdef CountedTable table
        stats = self.stats
        if self.began:
            stats.begin()
        for table in self.now:
            stats.add_now(*changes_of(table, &table.now))
            table.is_now = False
            memset(&table.now, 0, sizeof(Changes))
        del self.now[:]
        stats.anything, stats.first_lsn = self.anything, self.first_lsn or None
        return 0

    cdef int commit(self) except -2:
        if not self.shows():
            return 0
        if not self.began:
            self.store()
            self.stats.committed()
        elif self.anything:
            if self.now:
                self.end_now()
            first_lsn = self.first_lsn or None
            self.commits.append((self.xid, self.commit_lsn, self.commit_ts, self.now_rows, self.now_bytes, first_lsn))
        else:
            self.stats.transactions.empty += 1
        return 0

    cdef int end_now(self) except -2:
        """Count the tables of the current transaction, which began in this run, as committed."""
        cdef CountedTable table
        cdef int64_t cell[6]
        cdef int i
        if not self.bin_start <= self.commit_ts < self.bin_stop:
            self.end_bin()
            self.bin_start, self.bin_stop = self.stats.rate.bounds(self.commit_ts)
        cell[0] = PyList_GET_SIZE(self.commits)
        for table in self.now:
            cell[1], cell[5] = table.number, table.now.size
            for i in range(OP_SNAPSHOT):
                cell[2 + i] = table.now.ops[i]
                table.done.ops[i] += table.now.ops[i]
            table.done.size += table.now.size
            reserve(&self.cells, sizeof(cell))
            put(&self.cells, cell, sizeof(cell))
            if not table.is_done:
                table.is_done = True
                self.done.append(table)
            table.is_now = False
            memset(&table.now, 0, sizeof(Changes))
        del self.now[:]
        return 0

    cdef int end_bin(self) except -2:
        """Add the counts of the current bin."""
        cdef CountedTable table
        if not self.done:
            return 0
        changes = []
        for table in self.done:
            changes.append(changes_of(table, &table.done))
            table.is_done = False
            memset(&table.done, 0, sizeof(Changes))
        del self.done[:]
        self.stats.add_committed(self.bin_start, changes)
        return 0

    cdef int flush(self) except -2:
        cdef CountedTable table
        if self.inside:
            self.store()
        self.end_bin()
        self.bin_stop = self.bin_start
        for table in self.tables.values():
            if table.touched:
                table.publish()
        commits, keys = self.commits, self.hot_keys
        self.commits, self.hot_keys = [], []
        if commits:
            cells = memoryview(PyBytes_FromStringAndSize(self.cells.data, self.cells.size)).cast("q")
            self.cells.size = 0
            self.stats.add_all(commits, cells)
        if keys:
            self.stats.hot_keys.add_all(keys)
        return 0

    cdef Table describe(self, relation):
        return CountedTable(relation)

    cdef int emit(self, Table described, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        cdef CountedTable table = <CountedTable>described
        cdef int i
        if table.counts is None:
            table.counts, row_key = self.stats.known(table.relation)
            table.number = table.counts.number
            table.set_key(row_key.prefix, row_key.places)
        table.touched = True
        if op == OP_UPDATE:
            if kind == c"O":
                table.compared += 1
                table.same += same_rows(self.old, self.new, table.columns, False)
            elif kind == c"K":
                table.moved += not same_rows(self.old, self.new, table.columns, True)
            if self.unchanged:
                table.unsent += 1
                for i in range(table.columns):
                    table.unsent_columns[i] += self.new[i].kind == c"u"
        if table.keys_count and (op == OP_UPDATE or kind == c"K"):
            key = self.key(table, self.old if kind == c"K" else self.new)
            if key is not None:
                self.hot_keys.append(key)
        if op == OP_SNAPSHOT:
            table.snapshot_rows += 1
            table.copied += size
        else:
            if not table.is_now:
                table.is_now = True
                self.now.append(table)
            table.now.ops[op] += 1
            table.now.size += size
            self.now_bytes += size
            self.now_rows += 1
        self.started = self.anything = True
        if not self.first_lsn:
            self.first_lsn = lsn
        return 0


cdef tuple changes_of(CountedTable table, const Changes *changes):
    """The TableCount, inserts, updates, deletes and their bytes."""
    return table.counts, changes.ops[OP_INSERT], changes.ops[OP_UPDATE], changes.ops[OP_DELETE], changes.size


cdef bint same_rows(const Cell *old, const Cell *new, int columns, bint key) noexcept:
    """Whether two tuples are equal. Unchanged TOAST values count as equal; with `key`, NULLs of the old one too."""
    cdef int i
    for i in range(columns):
        if new[i].kind != c"u" and not (key and old[i].kind == c"n") and not same_cell(&old[i], &new[i]):
            return False
    return True
