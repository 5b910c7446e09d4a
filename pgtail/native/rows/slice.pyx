"""Slices: the rows of a batch between two marks, each with its table, as far as they need not be decoded."""


cdef tuple OPERATIONS = ("insert", "update", "delete", "snapshot")      # by their places in OP_INSERT ...
cdef tuple OLD_KIND_TEXTS = ("", "K", "O", "S")     # of changes


cdef Slice slice_of(Batch batch, Py_ssize_t start, current, transaction):
    cdef Slice found
    if not at_message(batch, start):
        return None
    found = Slice.__new__(Slice)
    found.batch, found.start, found.current = batch, start, current
    found.relations, found.places = [], {}
    found.first_row = batch.rows_before
    found.first_transaction = batch.transactions_before
    # If the last one was cut, rows after the cut are checked again: few of them.
    if start < batch.slice_stop:
        batch.most_rows = max(16, 2 * (found.first_row - batch.slice_row))
    else:
        batch.most_rows = min(4 * batch.most_rows, MOST_ENTRIES)
    if transaction is None:
        found.check(0, 0)
    else:
        found.continues, found.snapshot, found.base = True, transaction.snapshot, transaction.changes
        found.started = True
        if is_beyond(transaction.lsn or 0, transaction.time or 0):
            found.cut(found.first_transaction, found.first_row, start, True)
        else:
            found.check(transaction.commit_lsn or 0, transaction.commit_ts or 0)
    batch.slice_row, batch.slice_stop = found.first_row, found.stop
    return found


cdef inline bint is_beyond(uint64_t lsn, int64_t time) noexcept:
    """Whether an LSN or a time cannot be a bigint or a Unix time: of an output to which that matters, it is an error."""
    return lsn >> 63 or time > LATEST_UNIX


cdef bint at_message(Batch batch, Py_ssize_t start) noexcept:
    """Go on to the first row, mark and transaction at or after a position; returns whether one of them starts there."""
    cdef const TransactionEntry *entry
    cdef bint starts = False
    if not batch.start <= start < batch.stop:
        return False
    while batch.rows_before < batch.row_count and batch.row_entries[batch.rows_before].start < start:
        batch.rows_before += 1
    while batch.marks_before < batch.mark_count and batch.mark_entries[batch.marks_before].start < start:
        batch.marks_before += 1
    while batch.transactions_before < batch.transaction_count:
        entry = &batch.transaction_entries[batch.transactions_before]
        if entry.commit == NOWHERE or entry.commit >= start:
            starts = entry.begin == start or entry.commit == start
            break
        batch.transactions_before += 1
    if batch.rows_before < batch.row_count and batch.row_entries[batch.rows_before].start == start:
        return True
    return starts or (
        batch.marks_before < batch.mark_count and batch.mark_entries[batch.marks_before].start == start
    )


@cython.final
cdef class Slice:
    """See Slice in native/batch.py."""

    def __dealloc__(self):
        PyMem_Free(self.tables)

    # -- where it ends ---------------------------------------------------------------------------------------------

    cdef int check(self, uint64_t lsn, int64_t time) except -1:
        """Find the end. The Begin of the transaction that continues had this LSN and time."""
        cdef Batch batch = self.batch
        cdef const TransactionEntry *entry
        cdef Py_ssize_t place = self.first_transaction, row = self.first_row, first, end
        cdef Py_ssize_t stop = batch.stop, last = batch.row_count
        cdef bint inside = self.continues, begins
        if batch.marks_before < batch.mark_count:
            stop, last = batch.mark_entries[batch.marks_before].start, batch.mark_entries[batch.marks_before].row
        if last - row > batch.most_rows:
            last = row + batch.most_rows
            stop = batch.row_entries[last].start
        while place < batch.transaction_count:
            entry = &batch.transaction_entries[place]
            if entry.begin >= stop:
                break
            begins = self.begins(entry)
            if begins:
                if inside or entry.xid == 0 or is_beyond(entry.final_lsn, entry.begin_time):
                    return self.cut(place, row, entry.begin, inside)
                lsn, time = entry.final_lsn, entry.begin_time
            elif not inside:
                return self.cut(place, row, self.start, False)
            first, end = row, min(entry.end_row, last)
            row = self.check_rows(row, end)
            if row == end and entry.commit != NOWHERE and entry.commit < stop and not self.snapshot:
                if entry.commit_lsn == lsn and entry.commit_time == time and not entry.flags:
                    inside = False
                    place += 1
                    continue
            if begins and row == first:
                return self.cut(place, row, entry.begin, False)
            if row < end:
                stop = batch.row_entries[row].start
            elif entry.commit != NOWHERE:
                stop = min(stop, entry.commit)
            return self.cut(place + 1, row, stop, True)
        return self.cut(place, row, stop, inside)

    cdef Py_ssize_t check_rows(self, Py_ssize_t row, Py_ssize_t end) except -1:
        """Give rows their table and shape; returns the first one that does not fit its table, or `end`."""
        cdef RowEntry *entries = self.batch.row_entries
        cdef RowEntry *entry
        cdef const TableEntry *table = NULL
        cdef int place = 0, old
        while row < end:
            entry = &entries[row]
            if table == NULL or table.oid != entry.oid:
                place = <int>self.recent[entry.oid & 0xFF] - 1
                if place < 0 or self.tables[place].oid != entry.oid:
                    place = self.add_table(entry.oid)
                table = &self.tables[place]
            if (entry.op != OP_DELETE and entry.new_width != table.columns) or (
                entry.kind != c"N" and entry.old_width != table.columns
            ) or table.columns == NOWHERE or (self.snapshot and entry.op != OP_INSERT) or entry.lsn >> 63:
                break
            old = OLD_NONE if entry.kind == c"N" else OLD_FULL if entry.kind == c"O" and table.full else OLD_KEY
            entry.shape = <uint8_t>(OLD_KINDS * (OP_SNAPSHOT if self.snapshot else entry.op) + old)
            entry.table = <uint16_t>place
            entry.hidden = False
            row += 1
        return row

    cdef int add_table(self, uint32_t oid) except -1:
        """The place of a table, which is looked up if it is the first time."""
        cdef TableEntry *table
        found = self.places.get(oid)
        if found is None:
            if len(self.relations) == 0xFFFF:
                raise OverflowError("rows of too many tables without a description between them")
            relation = self.current.get(oid)
            found = self.places[oid] = len(self.relations)
            if found == self.table_room:
                self.tables = <TableEntry *>grown(self.tables, &self.table_room, 4, sizeof(TableEntry))
            self.relations.append(relation)
            table = &self.tables[<int>found]
            table.oid, table.columns = oid, NOWHERE
            if relation is not None and relation.seen:
                table.columns, table.full = len(relation.columns), relation.identity == "full"
        self.recent[oid & 0xFF] = <uint16_t>(found + 1)
        return found

    cdef int cut(self, Py_ssize_t transaction, Py_ssize_t row, Py_ssize_t stop, bint goes_on) except -1:
        """End before this transaction and row, at this position of the buffer, perhaps inside a transaction."""
        self.end_transaction, self.end_row, self.stop, self.goes_on = transaction, row, stop, goes_on
        return 0

    def end_before(self, until, uint64_t last_lsn, int64_t latest):
        """End before the Commit of the first transaction that ends at or after the LSN `until` (None: no limit), and
        before the Begin of one that commits after it, after `last_lsn`, or after the time `latest`."""
        cdef const TransactionEntry *entry
        cdef Py_ssize_t place
        cdef uint64_t end = 0xFFFFFFFFFFFFFFFF if until is None else until
        last_lsn = min(last_lsn, end)
        for place in range(self.first_transaction, self.end_transaction):
            entry = &self.batch.transaction_entries[place]
            if self.begins(entry) and (entry.final_lsn > last_lsn or entry.begin_time > latest):
                return self.cut(place, entry.first_row, entry.begin, False)
            if self.ends(entry) and entry.end_lsn >= end:
                return self.cut_inside(place, entry.end_row)

    def end_shown(self, Py_ssize_t count, bint after=False):
        """End before the Commit with which the `count`th shown transaction ends, or `after` it."""
        cdef const TransactionEntry *entry
        cdef Py_ssize_t place
        for place in range(self.first_transaction, self.end_transaction):
            entry = &self.batch.transaction_entries[place]
            if self.ends(entry) and self.is_shown(entry):
                count -= 1
                if count == 0 and not after:
                    return self.cut_inside(place, entry.end_row)
                if count == 0:
                    return self.cut(place + 1, entry.end_row, entry.commit + self.batch.commit_size, False)

    def end_inside(self):
        """End before the first Commit."""
        cdef const TransactionEntry *entry = &self.batch.transaction_entries[self.first_transaction]
        if self.first_transaction < self.end_transaction and self.ends(entry):
            self.cut_inside(self.first_transaction, entry.end_row)

    cdef int cut_inside(self, Py_ssize_t place, Py_ssize_t row) except -1:
        """End before a row of a transaction or, after its last one, before its Commit."""
        cdef const TransactionEntry *entry = &self.batch.transaction_entries[place]
        if self.begins(entry) and row == entry.first_row:
            return self.cut(place, row, entry.begin, False)
        return self.cut(
            place + 1, row, entry.commit if row == entry.end_row else self.batch.row_entries[row].start, True
        )

    # -- what is in it ---------------------------------------------------------------------------------------------

    cdef inline bint begins(self, const TransactionEntry *entry) noexcept:
        """Whether a transaction of the slice begins in it."""
        return entry.begin >= self.start

    cdef inline bint ends(self, const TransactionEntry *entry) noexcept:
        return entry.commit != NOWHERE and entry.commit < self.stop

    cdef inline Py_ssize_t first_row_of(self, const TransactionEntry *entry) noexcept:
        return max(entry.first_row, self.first_row)

    cdef inline Py_ssize_t end_row_of(self, const TransactionEntry *entry) noexcept:
        return min(entry.end_row, self.end_row)

    cdef inline Py_ssize_t base_of(self, const TransactionEntry *entry) noexcept:
        """How many rows of a transaction come before the slice."""
        return 0 if self.begins(entry) else self.base

    cdef inline bint is_shown(self, const TransactionEntry *entry) noexcept:
        """Whether a transaction that ends in the slice counts as shown."""
        if self.filtered:
            return entry.shown > 0 or (self.started and not self.begins(entry))
        return self.base_of(entry) + entry.end_row > self.first_row_of(entry)

    def totals(self):
        """What is in the slice (Totals)."""
        cdef const TransactionEntry *entry = NULL
        cdef Py_ssize_t place, begun = 0, ended = 0, shown = 0, left_out = 0, not_sent = 0
        cdef int64_t first_time = 0, last_time = 0
        cdef uint64_t end_lsn = 0
        for place in range(self.first_transaction, self.end_transaction):
            entry = &self.batch.transaction_entries[place]
            begun += self.begins(entry)
            if self.ends(entry):
                first_time = min(first_time, entry.commit_time) if ended else entry.commit_time
                last_time = max(last_time, entry.commit_time) if ended else entry.commit_time
                ended += 1
                shown += self.is_shown(entry)
                end_lsn = entry.end_lsn
            if self.filtered:
                left_out += self.end_row_of(entry) - self.first_row_of(entry) - entry.shown
                not_sent += entry.not_sent
        rows = self.end_row - self.first_row
        opened, changes = None, self.base + rows
        started = self.goes_on and (entry == NULL or not self.filtered or entry.shown > 0 or (
            self.started and not self.begins(entry)
        ))
        if self.goes_on and entry != NULL and self.begins(entry):
            opened, changes = begin_of(entry), self.end_row - entry.first_row
        return records.Totals(
            rows, left_out, not_sent, rows + begun + ended, ended, shown, (first_time, last_time) if ended else None,
            end_lsn or None, opened, changes, started,
        )

    def counts(self, bint shown=False):
        """[(relation, its rows by operation)], of all rows or of those that are shown."""
        cdef const RowEntry *row
        cdef Py_ssize_t place, tables = len(self.relations)
        cdef list memory = []
        cdef Py_ssize_t *sums = <Py_ssize_t *>zeroed(memory, tables, OPS * sizeof(Py_ssize_t))
        for place in range(self.first_row, self.end_row):
            row = &self.batch.row_entries[place]
            sums[OPS * row.table + row.shape // OLD_KINDS] += not (shown and row.hidden)
        found = [[sums[OPS * place + op] for op in range(OPS)] for place in range(tables)]
        return [(relation, counts) for relation, counts in zip(self.relations, found) if any(counts)]

    def row(self, Py_ssize_t place):
        """A row of the slice (SliceRow), by its place in the batch."""
        cdef const TransactionEntry *entry
        cdef RowEntry *row
        cdef Py_ssize_t at = self.first_transaction, last = self.end_transaction - 1, middle
        if not self.first_row <= place < self.end_row:
            raise IndexError("no row of the slice")
        while at < last:
            middle = (at + last) // 2
            if self.batch.transaction_entries[middle].end_row <= place:
                at = middle + 1
            else:
                last = middle
        entry, row = &self.batch.transaction_entries[at], &self.batch.row_entries[place]
        seq = self.base_of(entry) + place - self.first_row_of(entry) + 1
        begin = begin_of(entry) if self.begins(entry) else None
        is_last = self.goes_on and at == self.end_transaction - 1
        old = self.batch.cells(row.cells, row.old_width) if row.shape % OLD_KINDS != OLD_NONE else None
        new = self.batch.cells(row.cells + row.old_width, row.new_width) if row.op != OP_DELETE else None
        return records.SliceRow(
            begin, is_last, OPERATIONS[row.shape // OLD_KINDS], seq, row.lsn or None, self.relations[row.table],
            OLD_KIND_TEXTS[row.shape % OLD_KINDS], old, new,
        )


cdef object begin_of(const TransactionEntry *entry):
    return records.BeginEntry(entry.begin, entry.final_lsn, entry.begin_time, entry.xid)


@cython.final
cdef class TableFilter:
    """What a Filter shows of the rows of a version of a table, by operation."""

    cdef object relation
    cdef bint[OPS] shown
    cdef list conditions    # a Condition, or None for no condition

    def __cinit__(self, relation, filter_):
        cdef int op
        self.relation, self.conditions = relation, [None] * OPS
        for op in range(OPS):
            self.shown[op] = filter_.row_passes(relation, OPERATIONS[op])
            bound = filter_.bound(relation, OPERATIONS[op]) if self.shown[op] else None
            if bound is not None and bound.root is not True:
                self.shown[op] = bound.root is not False and bound.root is not None
                self.conditions[op] = Condition(bound)


@cython.final
cdef class RowFilter:
    """Marks the rows of slices that a Filter (changes/filters.py) hides."""

    cdef object filter
    cdef dict tables        # by version
    cdef uint64_t first_lsn, last_lsn   # of commits
    cdef int64_t first_time, last_time

    def __cinit__(self, filter_):
        self.filter, self.tables = filter_, {}
        self.first_lsn, self.first_time, self.last_lsn, self.last_time = filter_.commits.bounds()

    cdef TableFilter table(self, relation):
        cdef TableFilter found = self.tables.get(relation.version)
        if found is None or found.relation is not relation:
            found = self.tables[relation.version] = TableFilter(relation, self.filter)
        return found

    def mark(self, Slice rows, transaction, bint started):
        """See RowFilter in native/batch.py."""
        cdef list tables = [None if relation is None else self.table(relation) for relation in rows.relations]
        cdef TransactionEntry *entry
        cdef Row row
        cdef Py_ssize_t place
        cdef bint selected
        rows.filtered, rows.started = True, started
        for place in range(rows.first_transaction, rows.end_transaction):
            entry = &rows.batch.transaction_entries[place]
            if rows.begins(entry):
                selected = (
                    self.first_lsn <= entry.final_lsn <= self.last_lsn
                    and self.first_time <= entry.begin_time <= self.last_time
                    and (not self.filter.xids or entry.xid in self.filter.xids)
                )
            else:
                selected = self.filter.selects(transaction)
            row.entry, row.transaction = entry, NULL if rows.begins(entry) else <PyObject *>transaction
            entry.shown = entry.not_sent = 0
            self.mark_rows(rows, entry, tables, selected, &row)

    cdef int mark_rows(self, Slice rows, TransactionEntry *entry, list tables, bint selected, Row *row) except -1:
        cdef RowEntry *place = rows.batch.row_entries + rows.first_row_of(entry)
        cdef RowEntry *end = rows.batch.row_entries + rows.end_row_of(entry)
        cdef TableFilter table
        cdef Condition condition
        cdef int op, truth
        while place < end:
            table = <TableFilter>tables[place.table]
            op = place.shape // OLD_KINDS
            place.hidden = not selected or not table.shown[op]
            if not place.hidden:
                condition = <Condition>table.conditions[op]
                if condition is not None:
                    row.old = rows.batch.cell_entries + place.cells
                    row.new = row.old + place.old_width
                    row.old_kind = place.shape % OLD_KINDS
                    condition.untested = False
                    truth = condition.holds(0, row)
                    entry.not_sent += truth == UNKNOWN and condition.untested
                    place.hidden = truth != TRUE
                entry.shown += not place.hidden
            place += 1
        return 0
