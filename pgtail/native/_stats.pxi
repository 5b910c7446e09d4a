"""The emitter of `pgtail stats`: counts the same as the methods of pgtail.stats.collect.Statistics."""

@cython.final
cdef class CountedTable(Table):
    """A table with its counts since they were last added to its TableCount."""

    cdef object counts
    cdef bint touched
    cdef Py_ssize_t ops[OPS]
    cdef Py_ssize_t size, copied, compared, same, moved, unsent
    cdef Py_ssize_t *unsent_columns

    def __cinit__(self, relation, *_):
        self.unsent_columns = <Py_ssize_t *>PyMem_Calloc(self.columns + 1, sizeof(Py_ssize_t))
        if self.unsent_columns == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.unsent_columns)

    cdef int publish(self) except -2:
        """Add the counts to the TableCount and reset them."""
        cdef int i
        counts = self.counts
        counts.relation = self.relation
        counts.inserts += self.ops[OP_INSERT]
        counts.updates += self.ops[OP_UPDATE]
        counts.deletes += self.ops[OP_DELETE]
        counts.snapshot_rows += self.ops[OP_SNAPSHOT]
        counts.bytes += self.size
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
        for i in range(OPS):
            self.ops[i] = 0
        self.size = self.copied = self.compared = self.same = self.moved = self.unsent = 0
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

    def __cinit__(self, find, filter_, stats):
        self.stats, self.commits, self.hot_keys = stats, [], []

    cdef int entered(self) except -2:
        stats = self.stats
        stats.enter(self.transaction)
        if not self.started:
            stats.begin()
        self.now_rows, self.now_bytes, self.anything = stats.now_rows, stats.now_bytes, stats.anything
        self.first_lsn = stats.first_lsn or 0
        return 0

    cdef int start(self) except -2:
        self.anything = False
        self.now_rows = self.now_bytes = self.first_lsn = 0
        return 0

    cdef int store(self) except -2:
        stats = self.stats
        stats.now_rows, stats.now_bytes, stats.anything = self.now_rows, self.now_bytes, self.anything
        stats.first_lsn = self.first_lsn or None
        return 0

    cdef int commit(self) except -2:
        if not self.shows():
            return 0
        if not self.began:
            self.store()
            self.stats.committed()
        elif self.anything:
            first_lsn = self.first_lsn or None
            self.commits.append((self.xid, self.commit_lsn, self.commit_ts, self.now_rows, self.now_bytes, first_lsn))
        else:
            self.stats.transactions.empty += 1
        return 0

    cdef int flush(self) except -2:
        cdef CountedTable table
        if self.inside:
            self.store()
        for table in self.tables.values():
            if table.touched:
                table.publish()
        commits, keys = self.commits, self.hot_keys
        self.commits, self.hot_keys = [], []
        if commits:
            self.stats.add_all(commits)
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
            table.set_key(row_key.prefix, row_key.places)
        table.touched = True
        table.ops[op] += 1
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
            table.copied += size
        else:
            table.size += size
        self.now_bytes += size
        self.now_rows += 1
        self.started = self.anything = True
        if not self.first_lsn:
            self.first_lsn = lsn
        return 0


cdef bint same_rows(const Cell *old, const Cell *new, int columns, bint key) noexcept:
    """Whether two tuples are equal. Unchanged TOAST values count as equal; with `key`, NULLs of the old one too."""
    cdef int i
    for i in range(columns):
        if new[i].kind != c"u" and not (key and old[i].kind == c"n") and not same_cell(&old[i], &new[i]):
            return False
    return True
