"""The writer of an output: executes row plans."""

# ==== what the writer asks about pieces ============================================================================

cdef inline bint differ(const Cell *now, const Cell *before) noexcept:
    """Whether a cell has another value than before; an unchanged one does not."""
    return now.kind != c"u" and not same_cell(now, before)


cdef inline bint skipped(Skip skip, const Cell *cell, const Cell *other, bint old, bint has_other) noexcept:
    """Whether `skip` applies to a cell, which is of the old tuple or the new one."""
    if skip == SKIP_DIFFERENT:
        return not has_other or differ(cell, other)
    if (has_other and other.kind == c"u") if old else cell.kind == c"u":
        return True
    return skip == SKIP_SAME and has_other and same_cell(cell, other)


cdef int pad(Out *out, Py_ssize_t start, Py_ssize_t least) except -2:
    """Pad what was written from `start` on with blanks (plan.Padded). DECLINED if its width is not known here."""
    cdef Py_ssize_t i = start, width = 0
    while i < out.size:
        if out.data[i] == 0x1B:         # an SGR sequence
            while i < out.size and out.data[i] != c"m":
                i += 1
        elif 0x20 <= out.data[i] < 0x7F:
            width += 1
        else:
            return DECLINED
        i += 1
    if width < least:
        reserve(out, least - width)
        memset(out.data + out.size, c" ", least - width)
        out.size += least - width
    return 0


cdef bint has_dollars(Out *out, Py_ssize_t start) noexcept:
    """Whether what was written from `start` on contains $$, or would with the $$ around it."""
    cdef Py_ssize_t i
    for i in range(start, out.size - 1):
        if out.data[i] == c"$" and out.data[i + 1] == c"$":
            return True
    return out.size > start and out.data[out.size - 1] == c"$"


# ==== fields and the writer ========================================================================================

cpdef enum Field:
    FIELD_XID
    FIELD_COMMIT_LSN
    FIELD_COMMIT_TS
    FIELD_TIMESTAMP
    FIELD_END_LSN
    FIELD_CHANGES
    FIELD_SEQ
    FIELD_LSN
    FIELD_ABORTED
    FIELD_COMMIT_TIME
    FIELD_STATE
    FIELD_TIME

cdef enum:
    FIELDS = FIELD_TIME + 1
    FIELD_SIZE = 48         # bytes; the text of no field is longer


@cython.final
cdef class Plans:
    """The plans of a version of a table, by the shapes of its rows: OLD_KINDS * operation + kind of the old tuple."""

    cdef object relation
    cdef list plans         # RowPlan, None if there is none, or False if it was not made

    def __cinit__(self, relation):
        self.relation = relation
        self.plans = [False] * (OPS * OLD_KINDS)


@cython.final
cdef class Writer:
    """Writes the transactions of an output (outputs/planned.py) by its plans.

    `elements` is how many elements of the open transaction were written. What the pieces Count in it is added to the
    counts of the output.
    """

    cdef Out out
    cdef Py_ssize_t complete        # bytes of `out` without a row that an exception broke off
    cdef object plan_of, write, target
    cdef object local_time          # the text of FIELD_TIME; None where local time is UTC
    cdef dict groups                # by their pieces
    cdef dict described             # by version: every table that was described, with its plans
    cdef RowPlan begin, end, separator
    cdef readonly bint one_by_one
    # The open transaction: `transaction` is its Transaction if that is known.
    cdef object transaction
    cdef uint64_t generation        # counts the transactions
    cdef bint has_xid, has_commit_lsn, has_commit_ts, has_end_lsn, has_time
    cdef uint32_t xid
    cdef uint64_t commit_lsn, end_lsn
    cdef int64_t commit_ts
    cdef int64_t time               # of the commit or the prepare
    cdef bytes state                # of a transaction that did not start here
    cdef public Py_ssize_t elements
    cdef dict counts        # of the pieces Count in the open transaction
    cdef dict ended         # the same of transactions that ended
    # The row; of a start or an end `seq` and `lsn`.
    cdef const Cell *old
    cdef const Cell *new
    cdef bint has_old, has_new
    cdef int unchanged      # cells of the new tuple
    cdef Py_ssize_t seq     # rows of the transaction before this one
    cdef uint64_t lsn
    # The slice that is written, and what of it comes next.
    cdef Slice rows
    cdef list tables        # the Plans of its relations
    cdef Py_ssize_t next_transaction, next_row
    cdef bint inside        # whether the next transaction is `transaction`, or the one of the fields below
    cdef bint started       # whether its start was written

    def __cinit__(self, output):
        self.groups = {}
        new_text(&self.out)
        self.counts, self.ended = output.rows.counts, {}
        self.plan_of, self.write, self.target = output.plan_of, output.write, output.write
        self.begin, self.end = RowPlan(output.begin, None, None), RowPlan(output.end, None, None)
        self.separator, self.one_by_one = RowPlan((output.separator,), None, None), output.one_by_one
        self.local_time = output.local_time
        self.described = {}

    def __dealloc__(self):
        Py_XDECREF(self.out.object)

    # -- slices ----------------------------------------------------------------------------------------------------

    def enter(self, Slice rows, transaction):
        """write_rows() writes this slice next. `transaction` is the one that continues."""
        self.rows = rows
        self.tables = [None if relation is None else self.plans_of(relation) for relation in rows.relations]
        self.next_transaction, self.next_row, self.inside = rows.first_transaction, rows.first_row, rows.continues
        self.started = rows.started
        if self.inside:
            self.enter_transaction(transaction)

    def write_rows(self):
        """See Writer in native/batch.py."""
        cdef Py_ssize_t place
        try:
            place = self.write_slice()
            return None if place == NOWHERE else place
        finally:
            self.flush()

    def take_ended(self):
        """How often the pieces Count were executed in transactions that ended; removes them."""
        ended, self.ended = self.ended, {}
        return ended

    cdef Py_ssize_t write_slice(self) except -2:
        """The place of the row, or NOWHERE at the end."""
        cdef Slice rows = self.rows
        cdef Batch batch = rows.batch
        cdef const TransactionEntry *entry
        cdef const RowEntry *row
        cdef Py_ssize_t end, before
        while self.next_transaction < rows.end_transaction:
            entry = &batch.transaction_entries[self.next_transaction]
            if not self.inside:
                self.start_transaction(entry.xid, entry.final_lsn, entry.begin_time)
                self.inside, self.started = True, False
            if not self.started and (not rows.filtered or entry.shown):
                self.start()
                self.started = True
            end = rows.end_row_of(entry)
            before = rows.base_of(entry) - rows.first_row_of(entry)
            while self.next_row < end:
                row = &batch.row_entries[self.next_row]
                self.next_row += 1
                if row.hidden:
                    continue
                self.seq = before + self.next_row - 1
                self.old = batch.cell_entries + row.cells
                self.new = self.old + row.old_width
                self.unchanged = row.unchanged
                if self.add_row(<Plans>self.tables[row.table], row.shape, row.lsn) < 0:
                    return self.next_row - 1
                if self.out.size > FULL or self.one_by_one:
                    self.flush()
            if rows.ends(entry):
                if self.started:
                    self.seq = before + end
                    self.end_lsn = entry.end_lsn
                    self.end_transaction()
                    if self.one_by_one:
                        self.flush()
                self.inside = False
            self.next_transaction += 1
        self.rows = None
        return NOWHERE

    # -- transactions ----------------------------------------------------------------------------------------------

    cdef int enter_transaction(self, transaction) except -2:
        """What follows is of this Transaction."""
        self.transaction = transaction
        self.xid = transaction.xid or 0
        self.commit_lsn, self.commit_ts = transaction.commit_lsn or 0, transaction.commit_ts or 0
        self.has_xid, self.has_commit_lsn = transaction.xid is not None, transaction.commit_lsn is not None
        self.has_commit_ts, self.has_end_lsn = transaction.commit_ts is not None, transaction.end_lsn is not None
        self.end_lsn = transaction.end_lsn or 0
        self.state = None if transaction.state is None else transaction.state.encode()
        self.has_time, self.time = transaction.time is not None, transaction.time or 0
        self.generation += 1
        return 0

    cdef int start_transaction(self, uint32_t xid, uint64_t commit_lsn, int64_t commit_ts) except -2:
        """What follows is of a transaction that begins here."""
        self.transaction, self.state = None, None
        self.xid, self.commit_lsn, self.commit_ts, self.time = xid, commit_lsn, commit_ts, commit_ts
        self.has_xid = self.has_commit_lsn = self.has_commit_ts = self.has_time = True
        self.has_end_lsn = False
        self.elements = 0
        self.generation += 1
        return 0

    cdef int start(self) except -2:
        """Write the start of the open transaction."""
        self.aim(self.write)
        self.boundary(self.begin)
        self.complete = self.out.size
        if self.one_by_one:
            self.flush()
        return 0

    cdef int end_transaction(self) except -2:
        """Write the end of the open transaction."""
        self.aim(self.write)
        self.has_end_lsn = True
        self.boundary(self.end)
        self.complete = self.out.size
        if self.counts:
            for key, count in self.counts.items():
                self.ended[key] = self.ended.get(key, 0) + count
            self.counts.clear()
        return 0

    cdef int add_row(self, Plans plans, int shape, uint64_t lsn) except -2:
        """Write a row, whose cells are in `old` and `new`. DECLINED if it has no plan, or that cannot write it."""
        cdef Out *out = &self.out
        cdef Py_ssize_t mark
        cdef RowPlan plan = self.plan_for(plans, shape)
        if plan is None:
            return DECLINED
        self.aim(plan.write)
        mark = out.size
        if self.elements and self.separator.count:
            self.run_plan(self.separator)
        self.lsn, self.has_old, self.has_new = lsn, shape % OLD_KINDS != OLD_NONE, shape // OLD_KINDS != OP_DELETE
        if self.run_plan(plan) < 0:
            out.size = mark
            return DECLINED
        self.elements += 1
        self.complete = out.size
        return 0

    cdef Plans plans_of(self, relation):
        """The plans of a table, from those of an earlier run if it is the same version: plans are slow to make."""
        cdef Plans plans = self.described.get(relation.version)
        if plans is None or plans.relation is not relation:
            plans = self.described[relation.version] = Plans(relation)
        return plans

    cdef inline RowPlan plan_for(self, Plans plans, int shape):
        """The plan of a shape, which is made for its first row; None if there is none."""
        found = plans.plans[shape]
        return <RowPlan>found if found is not False else self.make_plan(plans, shape)

    cdef RowPlan make_plan(self, Plans plans, int shape):
        made = self.plan_of(plans.relation, OPERATIONS[shape // OLD_KINDS], OLD_KIND_TEXTS[shape % OLD_KINDS])
        plans.plans[shape] = None if made is None else RowPlan(made[0], made[1], self.groups)
        return plans.plans[shape]

    cdef int flush(self) except -2:
        cdef Py_ssize_t complete = self.complete
        if complete:
            self.complete = 0   # without memory it is lost
            self.target(taken(&self.out, complete))
        self.out.size = 0
        return 0

    cdef inline int aim(self, write) except -2:
        """What follows is written to this."""
        if write is not self.target:
            self.flush()
            self.target = write
        return 0

    cdef inline int run_plan(self, RowPlan plan) except -2:
        """Write the pieces of a plan, with room for all of its texts; DECLINED if one cannot be written."""
        self.out.kept = plan.room
        reserve(&self.out, 0)
        return self.execute(plan)

    cdef int boundary(self, RowPlan plan) except -2:
        """The start or end of a transaction; its position is the commit's."""
        if plan.count == 0:
            return 0
        self.lsn = self.commit_lsn
        if self.run_plan(plan) < 0:
            raise ValueError("the start or end of a transaction cannot be declined")
        return 0

    cdef int execute(self, RowPlan plan) except -2:
        """Write the pieces; DECLINED if one cannot be written."""
        cdef Out *out = &self.out
        cdef Step *step = plan.steps
        cdef Step *end = step + plan.count
        cdef Py_ssize_t mark
        while step < end:
            if step.kind == STEP_LITERAL:
                put_padded(out, step.text)
            elif step.kind == STEP_GROUP:
                self.group(plan, step)
            elif step.kind == STEP_VALUE:
                self.value(step)
            elif step.kind == STEP_CELLS:
                if self.cells(plan, step) < 0:
                    return DECLINED
            elif step.kind == STEP_NAMES:
                if self.unchanged or step.absent:
                    self.list_names(plan, step)
            elif step.kind == STEP_TEXT:
                if self.transaction is not None:    # empty if it started here
                    put_object(out, plan.objects[step.object](self.transaction))
            elif step.kind == STEP_DOLLARS:
                put_object(out, b"$$")
                mark = out.size
                if self.execute(<RowPlan>plan.objects[step.object]) < 0 or has_dollars(out, mark):
                    return DECLINED
                put_object(out, b"$$")
            elif step.kind == STEP_COUNT:
                key = plan.objects[step.object]
                self.counts[key] = self.counts.get(key, 0) + 1
            elif step.kind == STEP_CHANGED:
                self.list_changed(plan, step)
            else:
                mark = out.size
                if self.execute(<RowPlan>plan.objects[step.object]) < 0 or pad(out, mark, step.least) < 0:
                    return DECLINED
            step += 1
        return 0

    cdef inline int value(self, Step *step) except -2:
        """A field between its texts, or what stands for a missing one."""
        cdef Py_ssize_t mark = self.out.size
        put_padded(&self.out, step.text)
        if step.field == FIELD_SEQ:
            put_unsigned(&self.out, self.seq + 1)
        elif (step.field == FIELD_LSN and self.lsn == 0) or self.field(step.field) == 0:
            self.out.size = mark
            if step.missing_field >= 0:
                return self.field(step.missing_field)
            put_padded(&self.out, step.missing)
            return 0
        put_padded(&self.out, step.after)
        return 0

    cdef int field(self, int field) except -2:
        """Write a field; returns whether it is known."""
        cdef Out *out = &self.out
        cdef bint known = True
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
            put_time(out, self.commit_ts, c"T", False)
        elif field == FIELD_TIMESTAMP:
            known = self.has_commit_ts
            put_time(out, self.commit_ts, c" ", True)
        elif field == FIELD_END_LSN:
            known = self.has_end_lsn
            put_lsn(out, self.end_lsn)
        elif field == FIELD_CHANGES:
            put_unsigned(out, self.seq)
        elif field == FIELD_COMMIT_TIME:
            known = self.has_commit_ts
            put_time(out, self.commit_ts, c" ", False)
        elif field == FIELD_TIME:
            known = self.has_time
            if self.local_time is None:
                put_time(out, self.time, c" ", False)
            else:
                put_object(out, self.local_time(self.time).encode())
        elif field == FIELD_STATE:
            known = self.state is not None
            if known:
                put_object(out, self.state)
        else:
            known = False
        return known

    cdef inline int group(self, RowPlan plan, Step *step) except -2:
        """Pieces that do not depend on the row: made once for a transaction."""
        cdef Bytes text
        if step.made.generation != self.generation:
            return self.make(<Group>plan.objects[step.object])
        text.data, text.size = step.made.text.data, step.made.text.size
        reserve(&self.out, text.size)
        put_padded(&self.out, text)
        return 0

    cdef int make(self, Group group) except -2:
        """Write the pieces of a group, and keep their text."""
        cdef Out *text = &group.made.text
        cdef Py_ssize_t mark = self.out.size
        reserve(&self.out, group.plan.room)
        self.execute(group.plan)
        text.size = 0
        reserve(text, self.out.size - mark)
        put(text, self.out.data + mark, self.out.size - mark)
        group.made.generation = self.generation
        return 0

    cdef int cells(self, RowPlan plan, Step *step) except -2:
        cdef Out *out = &self.out
        cdef const Cell *row = self.old if step.old else self.new
        cdef const Cell *other = self.new if step.old else self.old
        cdef const Cell *cell
        cdef CellPlan *how = step.cells
        cdef CellPlan *end = how + step.count
        cdef Bytes *instead
        cdef Py_ssize_t mark
        cdef char *to
        cdef char *ended
        cdef const char *limit = out.data + out.room - out.kept
        cdef bint first = True, has_other = self.has_new if step.old else self.has_old
        if step.complete and not step.old and self.unchanged:
            return DECLINED
        to = out.data + out.size
        while how < end:
            cell = &row[how.index]
            if how.direct and cell.kind == c"t":
                to = copy_padded(to, how.before if first else how.between)
                first = False
                ended = NULL
                if how.usual == USUAL_NUMBER:
                    ended = copy_usual_number(to, limit, cell.data, cell.size)
                elif how.usual == USUAL_TEXT:
                    ended = copy_usual_text(to, limit, cell.data, cell.size, how.quote, how.special)
                if ended == NULL:
                    mark = out.size = to - out.data
                    if how.encode(out, cell.data, cell.size, how.parameter) < 0:
                        out.size = mark
                        if put_call(out, plan.objects[how.encoding], cell) < 0:
                            return DECLINED
                    ended, limit = out.data + out.size, out.data + out.room - out.kept
                to = ended
                if how.after.size:
                    to = copy_padded(to, how.after)
                how += 1
                continue
            out.size = to - out.data
            instead = NULL
            if how.skip != SKIP_NOTHING and skipped(how.skip, cell, &other[how.index], step.old, has_other):
                instead = &how.skipped
            else:
                if cell.kind == c"u" and step.fill and has_other and other[how.index].kind != c"n":
                    cell = &other[how.index]
                if cell.kind == c"n" or cell.kind == c"u":
                    if how.required or (how.unchanged_undecoded and cell.kind == c"u"):
                        return DECLINED
                    instead = &how.null if cell.kind == c"n" else &how.unchanged
            if instead == NULL or instead.data != NULL:
                put_padded(out, how.before if first else how.between)
                first = False
                if how.previous_before.data != NULL and has_other and differ(cell, &other[how.index]):
                    if self.previous(plan, how, &other[how.index]) < 0:
                        return DECLINED
                if instead != NULL:
                    put_padded(out, instead[0])
                elif how.written and put_value(out, plan, how, cell) < 0:
                    return DECLINED
                put_padded(out, how.after)
            to, limit = out.data + out.size, out.data + out.room - out.kept
            how += 1
        out.size = to - out.data
        return DECLINED if first and step.not_empty else 0

    cdef int previous(self, RowPlan plan, CellPlan *how, const Cell *cell) except -2:
        """The value in the other tuple, between its texts."""
        put_padded(&self.out, how.previous_before)
        if cell.kind == c"n":
            put_padded(&self.out, how.null)
        elif how.written and put_value(&self.out, plan, how, cell) < 0:
            return DECLINED
        put_padded(&self.out, how.previous_after)
        return 0

    cdef int list_names(self, RowPlan plan, Step *step) except -2:
        """The columns that were not sent. The text of each list is made once."""
        cdef list names = []
        cdef int i
        for i in <tuple>plan.objects[step.object + 1]:
            if self.old[i].kind == c"n":
                names.append(i)
        for i in <tuple>plan.objects[step.object + 2]:
            if self.new[i].kind == c"u" and not (step.fill and self.has_old and self.old[i].kind != c"n"):
                names.append(i)
        return self.put_names(plan, step.object, (step.object, *names), (names,)) if names else 0

    cdef int list_changed(self, RowPlan plan, Step *step) except -2:
        """The columns that changed, and those that may have."""
        cdef list changed = [], maybe = []
        cdef int i
        for i in <tuple>plan.objects[step.object + 1]:
            if differ(&self.new[i], &self.old[i]):
                changed.append(i)
        for i in <tuple>plan.objects[step.object + 2]:
            if self.new[i].kind != c"u":
                maybe.append(i)
        return self.put_names(plan, step.object, (step.object, *changed, None, *maybe), (changed, maybe))

    cdef int put_names(self, RowPlan plan, int object, tuple key, tuple lists) except -2:
        """Lists of columns as text, which is made once."""
        text = plan.names.get(key)
        if text is None:
            if len(plan.names) >= MOST_NAMES:
                plan.names.clear()
            text = plan.names[key] = plan.objects[object](*lists)
        return put_object(&self.out, text)
