"""The text emitter: executes row plans."""

@cython.final
cdef class TextTable(Table):
    """A table with its plans, by operation and kind of old tuple (none, K, O)."""

    cdef list plans         # RowPlan, None if there is none, or False if it was not made


@cython.final
cdef class TextScanner(FieldScanner):
    """Writes rows by the plans of an output (outputs/planned.py).

    `plan_of(relation, op, old kind)` returns (pieces, write), or None; `output` has the plans of a transaction's start and
    end, the separator and the clock.
    """

    cdef object plan_of, output, write, target
    cdef dict described             # by version: every table that was described, with its plans
    cdef RowPlan begin, end
    cdef bytes separator
    cdef Bytes between              # the separator's
    cdef bint one_by_one, has_old, has_new
    cdef Py_ssize_t elements        # how many of the open transaction were written
    cdef Py_ssize_t whole   # bytes of `out` without a row that an exception broke off
    cdef list tallies       # of the open transaction since `counts`, in the order of their first use
    cdef dict counts        # of the open transaction when the run started
    cdef dict ended         # of transactions that ended in this run
    cdef LastOrdinals last_ordinals

    def __cinit__(self, find, filter_, plan_of, output):
        self.tallies, self.counts, self.ended = [], {}, {}
        self.last_ordinals = LastOrdinals(self.groups)
        self.plan_of, self.output, self.write = plan_of, output, output.write
        self.target = self.write
        self.begin, self.end = RowPlan(output.begin, None, None), RowPlan(output.end, None, None)
        self.separator, self.one_by_one = output.separator, output.one_by_one
        self.between = view_of(self.separator)
        self.clock = output.clock
        self.described = {}

    cdef int flush(self) except -2:
        cdef bytes text
        if self.whole:
            text = PyBytes_FromStringAndSize(self.out.data, self.whole)
            self.out.size = self.whole = 0
            self.target(text)
        self.out.size = 0
        return 0

    cdef Table describe(self, relation):
        """The table, from those of an earlier run if it is the same version: plans are slow to make."""
        cdef TextTable table = self.described.get(relation.version)
        if table is None or table.relation is not relation:
            table = self.described[relation.version] = TextTable(relation)
            table.plans = [False] * 9
        return table

    def forget_plans(self):
        """Ask for new plans: those of the output have changed."""
        self.described = {}
        self.forget()

    @property
    def written(self):
        """What was written when the last run ended (Written)."""
        last_end = self.last_end if self.has_last_end else None
        if not self.started:
            return Written(0, {}, last_end, {}, self.ended)
        self.add_counts(self.counts)
        return Written(self.elements, self.last_ordinals.by_key(), last_end, self.counts, self.ended)

    @written.setter
    def written(self, before not None):
        self.elements = before.elements
        self.last_ordinals.resume(before.ordinals)
        self.has_last_end, self.last_end = before.last_end is not None, before.last_end or 0
        self.counts, self.ended = dict(before.counts), {}

    cdef int start(self) except -2:
        self.elements = 0
        self.last_ordinals.forget()
        return FieldScanner.start(self)

    cdef int commit(self) except -2:
        if not self.shows():
            return 0
        if not self.started:
            self.boundary(self.begin)
        self.has_end_lsn = True
        self.boundary(self.end)
        self.whole = self.out.size
        self.last_end, self.has_last_end = self.end_lsn, True
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

    cdef int boundary(self, RowPlan plan) except -2:
        """The start or end of a transaction; its position is the commit's."""
        if plan.count == 0:
            return 0
        self.lsn, self.now = self.commit_lsn, 0
        if self.execute(plan) < 0:
            raise ValueError("the start or end of a transaction cannot be declined")
        if self.one_by_one:
            self.whole = self.out.size
            self.flush()
        return 0

    cdef int emit(self, Table table, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        cdef Out *out = &self.out
        cdef Py_ssize_t mark
        cdef RowPlan plan = self.plan(<TextTable>table, op, kind)
        if plan is None or self.late:
            return DECLINED
        if plan.write is not self.target:
            self.flush()
            self.target = plan.write
        if self.one_by_one and not self.started:
            self.boundary(self.begin)
            self.started = True
        mark = out.size
        if not self.started:
            self.boundary(self.begin)
        if self.elements and self.between.size:
            self.put_bytes(self.between)
        self.lsn, self.now, self.has_old, self.has_new = lsn, 0, kind != c"N", op != 2
        self.last_ordinals.of_row.clear()
        if self.execute(plan) < 0:
            self.last_ordinals.undo()
            out.size = mark
            return DECLINED
        self.started = True
        self.elements += 1
        self.whole = out.size
        if out.size > FULL or self.one_by_one:
            self.flush()
        return 0

    cdef RowPlan plan(self, TextTable table, int op, uint8_t kind):
        cdef int place = 3 * op + (0 if kind == c"N" else 1 if kind == c"K" else 2)
        found = table.plans[place]
        if found is False:
            made = self.plan_of(table.relation, OPERATIONS[op], ("", "K", "O")[place % 3])
            found = table.plans[place] = None if made is None else RowPlan(made[0], made[1], self.groups)
        return found

    cdef int execute(self, RowPlan plan) except -2:
        """Write the pieces; DECLINED if one cannot be written."""
        cdef Step *step
        cdef int i
        cdef Py_ssize_t mark
        cdef RowPlan nested
        for i in range(plan.count):
            step = &plan.steps[i]
            if step.kind == STEP_LITERAL:
                self.put_bytes(step.text)
            elif step.kind == STEP_GROUP:
                self.group(<Group>plan.objects[step.object])
            elif step.kind == STEP_VALUE:
                self.value(step)
            elif step.kind == STEP_CELLS:
                if self.cells(plan, step) < 0:
                    return DECLINED
            elif step.kind == STEP_NAMES:
                self.list_names(plan, i)
            elif step.kind == STEP_TEXT:
                self.text(plan.objects[step.object])
            elif step.kind == STEP_DOLLARS:
                put_object(&self.out, b"$$")
                mark = self.out.size
                if self.execute(<RowPlan>plan.objects[step.object]) < 0 or has_dollars(&self.out, mark):
                    return DECLINED
                put_object(&self.out, b"$$")
            elif step.kind == STEP_COUNT:
                self.count(<Tally>plan.objects[step.object])
            elif step.kind == STEP_ORDINAL:
                reserve(&self.out, FIELD_SIZE)
                put_unsigned(&self.out, self.last_ordinals.next(<Tally>plan.objects[step.object]))
            elif step.kind == STEP_ORDINALS:
                put_object(&self.out, plan.objects[step.object](self.last_ordinals.by_key()))
            elif step.kind == STEP_CHANGED:
                self.list_changed(plan, i)
            elif step.kind == STEP_FITTED:
                mark = self.out.size
                if self.execute(<RowPlan>plan.objects[step.object]) < 0 or fit(&self.out, mark, step) < 0:
                    return DECLINED
            else:
                nested = plan.objects[step.object + (1 if self.differ(plan.objects[step.object]) else 2)]
                if self.execute(nested) < 0:
                    return DECLINED
        return 0

    cdef inline int group(self, Group group) except -2:
        """Pieces that depend on the transaction only: made once for it."""
        cdef Py_ssize_t mark = self.out.size
        cdef Bytes text
        if group.generation == self.generation:
            text.data, text.size = group.text.data, group.text.size
            return self.put_bytes(text)
        self.execute(group.plan)
        group.text.size = 0
        reserve(&group.text, self.out.size - mark)
        put(&group.text, self.out.data + mark, self.out.size - mark)
        group.generation = self.generation
        return 0

    cdef int text(self, of) except -2:
        """A text that depends on the transaction; empty if it started here."""
        return 0 if self.transaction is None else put_object(&self.out, of(self.transaction))

    cdef int cells(self, RowPlan plan, Step *step) except -2:
        cdef Out *out = &self.out
        cdef Cell *row = self.old if step.old else self.new
        cdef Cell *other = self.new if step.old else self.old
        cdef Cell *cell
        cdef CellPlan *how
        cdef Bytes *instead
        cdef bint first = True, has_other = self.has_new if step.old else self.has_old
        cdef int i
        if step.whole and not step.old and self.unchanged:
            return DECLINED
        for i in range(step.count):
            how = &step.cells[i]
            cell = &row[how.index]
            instead = NULL
            if how.skip != SKIP_NOTHING and skipped(how.skip, cell, &other[how.index], step.old, has_other):
                instead = &how.skipped
            else:
                if cell.kind == c"u" and step.fill and has_other and other[how.index].kind != c"n":
                    cell = &other[how.index]
                if cell.kind == c"n" or cell.kind == c"u":
                    if how.required or (how.unchanged_odd and cell.kind == c"u"):
                        return DECLINED
                    instead = &how.null if cell.kind == c"n" else &how.unchanged
            if instead != NULL and instead.data == NULL:
                continue
            self.put_bytes(how.before if first else how.between)
            first = False
            if how.was_before.data != NULL and has_other and differ(cell, &other[how.index]):
                if self.was(plan, how, &other[how.index]) < 0:
                    return DECLINED
            if instead != NULL:
                self.put_bytes(instead[0])
            elif how.written:
                if put_value(out, &self.scratch, plan, how, cell) < 0:
                    return DECLINED
            if how.after.size:
                self.put_bytes(how.after)
        return DECLINED if first and step.not_empty else 0

    cdef int was(self, RowPlan plan, CellPlan *how, const Cell *cell) except -2:
        """The value in the other tuple, between its texts."""
        self.put_bytes(how.was_before)
        if cell.kind == c"n":
            self.put_bytes(how.null)
        elif how.written and put_value(&self.out, &self.scratch, plan, how, cell) < 0:
            return DECLINED
        return self.put_bytes(how.was_after)

    cdef int list_changed(self, RowPlan plan, int place) except -2:
        """The columns that changed, and those that may have. The text of each pair of lists is made once."""
        cdef int i, object = plan.steps[place].object
        cdef list changed = [], maybe = []
        for index in <tuple>plan.objects[object + 1]:
            i = index
            if differ(&self.new[i], &self.old[i]):
                changed.append(index)
        for index in <tuple>plan.objects[object + 2]:
            i = index
            if self.new[i].kind != c"u":
                maybe.append(index)
        key = (place, *changed, None, *maybe)
        text = plan.names.get(key)
        if text is None:
            text = plan.remember(key, plan.objects[object](changed, maybe))
        return put_object(&self.out, text)

    cdef int list_names(self, RowPlan plan, int place) except -2:
        """The columns that were not sent. The text of each list is made once."""
        cdef Step *step = &plan.steps[place]
        cdef list found
        if not (step.sides[1] and step.absent) and not (step.sides[0] and self.unchanged):
            return 0
        found = []
        if step.sides[1] and step.absent:
            self.add_absent(plan, found)
        if step.sides[0] and self.unchanged:
            self.add_unchanged(plan, step, found)
        if not found:
            return 0
        key = (place, *found)
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

    cdef bint differ(self, tuple indexes) except *:
        cdef int i
        for index in indexes:
            i = index
            if differ(&self.new[i], &self.old[i]):
                return True
        return False
