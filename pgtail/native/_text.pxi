"""The text emitter: executes row plans."""

# ==== what the emitter asks about pieces ===========================================================================

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
    return put_blanks(out, least - width)


cdef inline Step *step_of(RowPlan plan, bint old) noexcept:
    """The Cells of a tuple in a plan; NULL if there are none."""
    cdef int i
    for i in range(plan.count):
        if plan.steps[i].kind == STEP_CELLS and plan.steps[i].old == old:
            return &plan.steps[i]
    return NULL


cdef bint has_dollars(Out *out, Py_ssize_t start) noexcept:
    """Whether what was written from `start` on contains $$, or would with the $$ around it."""
    cdef Py_ssize_t i
    for i in range(start, out.size - 1):
        if out.data[i] == c"$" and out.data[i + 1] == c"$":
            return True
    return out.size > start and out.data[out.size - 1] == c"$"


# ==== fields and the emitter =======================================================================================

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
cdef class TextTable(Table):
    """A table with its plans, by operation and kind of old tuple (none, K, O, S)."""

    cdef list plans         # RowPlan, None if there is none, or False if it was not made
    cdef PyObject *ready[OPS * 4]       # the RowPlans among these


@cython.final
cdef class TextScanner(Scanner):
    """Writes rows by the plans of an output (outputs/planned.py).

    `plan_of(relation, op, old kind)` returns (pieces, write), or None; `output` has the plans of a transaction's start and
    end and the separator.
    """

    cdef Out out
    cdef object local_time          # the text of FIELD_TIME; None where local time is UTC
    cdef bint has_xid, has_commit_lsn, has_commit_ts, has_end_lsn
    cdef int64_t time               # of the commit or the prepare
    cdef bint has_time
    cdef bytes state                # of a transaction that did not start here
    cdef dict groups                # by their pieces
    cdef uint64_t generation        # counts the transactions
    cdef uint64_t lsn
    cdef object plan_of, output, write, target
    cdef dict described             # by version: every table that was described, with its plans
    cdef RowPlan begin, end, separator
    cdef bint one_by_one, has_old, has_new
    cdef Py_ssize_t elements        # how many of the open transaction were written
    cdef Py_ssize_t complete        # bytes of `out` without a row that an exception broke off
    cdef list tallies       # of the open transaction since `counts`, in the order of their first use
    cdef dict counts        # of the open transaction when the run started
    cdef dict ended         # of transactions that ended in this run

    def __cinit__(self, find, filter_, plan_of, output):
        self.groups = {}
        new_text(&self.out)
        self.tallies, self.counts, self.ended = [], {}, {}
        self.plan_of, self.output, self.write = plan_of, output, output.write
        self.target = self.write
        self.begin, self.end = RowPlan(output.begin, None, None), RowPlan(output.end, None, None)
        self.separator, self.one_by_one = RowPlan((output.separator,), None, None), output.one_by_one
        self.local_time = output.local_time
        self.described = {}

    def __dealloc__(self):
        Py_XDECREF(self.out.object)

    cdef int flush(self) except -2:
        cdef Py_ssize_t complete = self.complete
        cdef uint64_t resume_at = self.resume_at
        cdef bytes text
        if complete:
            self.complete = self.resume_at = 0  # without memory it is lost, and the run cannot be resumed after it
            text = taken(&self.out, complete)
            self.resume_at = resume_at
            self.target(text)
        self.out.size = 0
        return 0

    cdef Table describe(self, relation):
        """The table, from those of an earlier run if it is the same version: plans are slow to make."""
        cdef TextTable table = self.described.get(relation.version)
        if table is None or table.relation is not relation:
            table = self.described[relation.version] = TextTable(relation)
            table.plans = [False] * (OPS * 4)
        return table

    @property
    def written(self):
        """What was written when the last run ended (Written)."""
        if not self.started:
            return Written(0, {}, self.ended)
        self.add_counts(self.counts)
        return Written(self.elements, self.counts, self.ended)

    @written.setter
    def written(self, before not None):
        self.elements = before.elements
        self.counts, self.ended = dict(before.counts), {}

    cdef int entered(self) except -2:
        transaction = self.transaction
        self.has_xid, self.has_commit_lsn = transaction.xid is not None, transaction.commit_lsn is not None
        self.has_commit_ts, self.has_end_lsn = transaction.commit_ts is not None, transaction.end_lsn is not None
        self.end_lsn = transaction.end_lsn or 0
        self.state = None if transaction.state is None else transaction.state.encode()
        self.has_time, self.time = transaction.time is not None, transaction.time or 0
        self.generation += 1
        return 0

    cdef int start(self) except -2:
        self.elements = 0
        self.has_xid = self.has_commit_lsn = self.has_commit_ts = self.has_time = True
        self.has_end_lsn = False
        self.state = None
        self.time = self.commit_ts
        self.generation += 1
        return 0

    cdef int commit(self) except -2:
        if not self.shows():
            return 0
        self.aim(self.write)
        if not self.started:
            self.boundary(self.begin)
        self.has_end_lsn = True
        self.boundary(self.end)
        self.complete = self.out.size
        if self.counts:
            for key, count in self.counts.items():
                self.ended[key] = self.ended.get(key, 0) + count
            self.counts = {}
        if self.tallies:
            self.add_counts(self.ended)
        return 0

    cdef int add_counts(self, dict counts) except -2:
        cdef Tally tally
        for tally in self.tallies:
            counts[tally.key] = counts.get(tally.key, 0) + tally.count
            tally.count = 0
        self.tallies.clear()
        return 0

    cdef inline int count(self, Tally tally) except -2:
        if tally.count == 0:
            self.tallies.append(tally)
        tally.count += 1
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
        if self.one_by_one:
            self.complete = self.out.size
            self.flush()
        return 0

    cdef int emit(self, Table table, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        cdef Out *out = &self.out
        cdef Py_ssize_t mark
        cdef int place = 4 * op + (0 if kind == c"N" else 1 if kind == c"K" else 2 if kind == c"O" else 3)
        cdef PyObject *ready = (<TextTable>table).ready[place]
        cdef RowPlan plan = <RowPlan>ready if ready != NULL else <RowPlan>self.plan(<TextTable>table, place)
        if plan is None:
            return DECLINED
        self.aim(plan.write)
        if self.one_by_one and not self.started:
            self.boundary(self.begin)
            self.started = True
        mark = out.size
        if not self.started:
            self.boundary(self.begin)
        if self.elements and self.separator.count:
            self.run_plan(self.separator)
        self.lsn, self.has_old, self.has_new = lsn, kind != c"N", op != OP_DELETE
        if self.run_plan(plan) < 0:
            out.size = mark
            return DECLINED
        self.started = True
        self.elements += 1
        self.complete = out.size
        if out.size > FULL or self.one_by_one:
            self.flush()
        return 0

    cdef object plan(self, TextTable table, int place):
        """The RowPlan at a place of `plans`; None if there is none."""
        found = table.plans[place]
        if found is False:
            made = self.plan_of(table.relation, OPERATIONS[place // 4], ("", "K", "O", "S")[place % 4])
            found = table.plans[place] = None if made is None else RowPlan(made[0], made[1], self.groups)
        if found is not None:
            table.ready[place] = <PyObject *>found
        return found

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
                if (step.sides[0] and self.unchanged) or (step.sides[1] and step.absent):
                    self.list_names(plan, step)
            elif step.kind == STEP_TEXT:
                self.text(plan.objects[step.object])
            elif step.kind == STEP_DOLLARS:
                put_object(out, b"$$")
                mark = out.size
                if self.execute(<RowPlan>plan.objects[step.object]) < 0 or has_dollars(out, mark):
                    return DECLINED
                put_object(out, b"$$")
            elif step.kind == STEP_COUNT:
                self.count(<Tally>plan.objects[step.object])
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
            put_time(out, self.commit_ts, c"T")
        elif field == FIELD_TIMESTAMP:
            known = self.has_commit_ts
            put_moment(out, self.commit_ts, True)
        elif field == FIELD_END_LSN:
            known = self.has_end_lsn
            put_lsn(out, self.end_lsn)
        elif field == FIELD_CHANGES:
            put_unsigned(out, self.seq)
        elif field == FIELD_COMMIT_TIME:
            known = self.has_commit_ts
            put_time(out, self.commit_ts, c" ")
        elif field == FIELD_TIME:
            known = self.has_time
            if self.local_time is None:
                put_time(out, self.time, c" ")
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

    cdef int text(self, render) except -2:
        """A text that depends on the transaction; empty if it started here."""
        return 0 if self.transaction is None else put_object(&self.out, render(self.transaction))

    cdef int cells(self, RowPlan plan, Step *step) except -2:
        cdef Out *out = &self.out
        cdef Cell *row = self.old if step.old else self.new
        cdef Cell *other = self.new if step.old else self.old
        cdef Cell *cell
        cdef CellPlan *how = step.cells
        cdef CellPlan *end = how + step.count
        cdef Bytes *instead
        cdef char *to = out.data + out.size
        cdef char *ended
        cdef Py_ssize_t mark
        cdef const char *limit = out.data + out.room - out.kept
        cdef bint first = True, has_other = self.has_new if step.old else self.has_old
        if step.complete and not step.old and self.unchanged:
            return DECLINED
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

    cdef int list_changed(self, RowPlan plan, Step *step) except -2:
        """The columns that changed, and those that may have. The text of each pair of lists is made once."""
        cdef int i, object = step.object
        cdef list changed = [], maybe = []
        for index in <tuple>plan.objects[object + 1]:
            i = index
            if differ(&self.new[i], &self.old[i]):
                changed.append(index)
        for index in <tuple>plan.objects[object + 2]:
            i = index
            if self.new[i].kind != c"u":
                maybe.append(index)
        key = (object, *changed, None, *maybe)
        text = plan.names.get(key)
        if text is None:
            text = plan.remember(key, plan.objects[object](changed, maybe))
        return put_object(&self.out, text)

    cdef int list_names(self, RowPlan plan, Step *step) except -2:
        """The columns that were not sent. The text of each list is made once."""
        cdef list found = []
        if step.sides[1] and step.absent:
            self.add_absent(plan, found)
        if step.sides[0] and self.unchanged:
            self.add_unchanged(plan, step, found)
        if not found:
            return 0
        key = (step.object, *found)
        text = plan.names.get(key)
        if text is None:
            text = plan.remember(key, plan.objects[step.object](found))
        put_object(&self.out, text)
        return 0

    cdef int add_absent(self, RowPlan plan, list found) except -2:
        cdef Step *cells = step_of(plan, True)
        cdef int i
        if cells != NULL:
            for i in range(cells.count):
                if cells.cells[i].null_absent and self.old[cells.cells[i].index].kind == c"n":
                    found.append(cells.cells[i].index)
        return 0

    cdef int add_unchanged(self, RowPlan plan, Step *step, list found) except -2:
        cdef Step *cells = step_of(plan, False)
        cdef bint fill
        cdef int i
        if cells != NULL:
            fill = cells.fill and self.has_old and not step.filled
            for i in range(cells.count):
                if self.new[cells.cells[i].index].kind == c"u" and cells.cells[i].skip == SKIP_NOTHING:
                    if not (fill and self.old[cells.cells[i].index].kind != c"n"):
                        found.append(cells.cells[i].index)
        return 0
