"""The emitter of `-o table`: what outputs/table/ says, for rows whose tables and cells are ordinary."""

cdef enum:
    COLUMN_GAP = 2          # cells between two items and between two columns; GAP of terminal/layout.py

cdef struct Fragment:
    Py_ssize_t at       # of its text
    Py_ssize_t size     # bytes
    Py_ssize_t chars    # as many as bytes if it is ASCII
    Py_ssize_t cells
    int style

cdef struct ShownItem:
    Py_ssize_t first, end   # fragments
    Py_ssize_t cells
    Py_ssize_t null         # the place in TablePage.hidden of a column that is NULL; -1 for other items

cdef struct PageRow:
    int op              # one of OPERATIONS, or OPS for a TableRow
    Py_ssize_t first    # items: table, key, values
    Py_ssize_t end

cdef struct PageColumns:
    # Positions and widths in cells: see Columns in outputs/table/page.py.
    Py_ssize_t width, left, table, values, below, min_values


cdef inline Fragment *fragments_of(Out *out) noexcept:
    return <Fragment *>out.data


cdef inline Py_ssize_t count_of(Out *out) noexcept:
    return out.size // <Py_ssize_t>sizeof(Fragment)


cdef int add_fragment(Out *out, Fragment one) except -2:
    reserve(out, sizeof(Fragment))
    put(out, &one, sizeof(Fragment))
    return 0


@cython.final
cdef class ItemText:
    """The fragments of an item; `styles` numbers the styles, `width_of` measures text."""

    cdef Out text, fragments

    def __cinit__(self, item, dict styles, width_of):
        cdef Fragment one
        cdef bytes data
        for text, style in item:
            data = text.encode()
            one.at, one.size, one.style = self.text.size, PyBytes_GET_SIZE(data), styles[style]
            one.chars, one.cells = len(text), width_of(text)
            put_object(&self.text, data)
            add_fragment(&self.fragments, one)

    def __dealloc__(self):
        PyMem_Free(self.text.data)
        PyMem_Free(self.fragments.data)


@cython.final
cdef class TableColumn:
    """A shown column of a table. `show` and `changed` of rows.py show what `shown` does not."""

    cdef int index, style
    cdef ShownColumn shown      # None: all values are shown by `show`
    cdef ItemText label, null, unchanged
    cdef object show, changed
    cdef dict made              # value -> its ItemText, for some that `show` shows
    cdef TableColumn maybe      # shows what may have changed; None if that is the same
    cdef bint optional          # --changed leaves it out of updates that did not change it
    cdef Py_ssize_t null_page, value_page   # the last page where it is NULL in a row; where it is not, or may not be
    cdef Py_ssize_t place       # in TablePage.hidden

    cdef Py_ssize_t part(self, const Cell *cell) noexcept:
        """How many characters of a value are shown, as ShownColumn.shown() says."""
        return DECLINED if self.shown is None or cell.kind != c"t" else self.shown.shown(cell.data, cell.size)


@cython.final
cdef class ShownTable(Table):
    """A table, and how its rows are shown."""

    cdef object masked
    cdef ItemText title
    cdef list keys, others
    cdef bint only_changed      # of an update: --changed
    cdef Py_ssize_t page        # the last one with a row of it
    cdef bint told              # that columns of an update without the old row may be unchanged


@cython.final
cdef class TablePage:
    """As Page in outputs/table/page.py, for rows of the scanner and others. `formatter` is a RowFormatter, `codes` those
    of a Painter, `layout` the module."""

    cdef Out text, fragments, items, rows, out, pending
    cdef object formatter, width_of, fit_end
    cdef list others, codes
    cdef bint colored           # whether there is anything in `codes`
    cdef list tables            # of the rows of the page
    cdef Py_ssize_t number      # of the page
    cdef Py_ssize_t null_columns        # columns that are NULL in a row of it
    cdef bint hides             # whether some of these are not shown
    cdef bytearray hidden       # which ones
    cdef object find_nulls_of   # find_nulls() of page.py
    cdef dict styles
    cdef ItemText arrow, null, more, only_the_key, no_columns
    cdef list operations
    cdef Py_ssize_t most, most_text, weight, cells, chars
    cdef int plain, old_style, new_style

    def __cinit__(self, formatter, dict codes, layout, find_nulls_of, Py_ssize_t most, Py_ssize_t most_text):
        self.tables, self.number, self.find_nulls_of = [], 1, find_nulls_of
        self.width_of, self.fit_end = layout.width_of, layout.fit_end
        self.formatter, self.most, self.most_text, self.others = formatter, most, most_text, []
        self.codes = [(before.encode(), after.encode()) for before, after in codes.values()]
        self.colored = any(map(any, self.codes))
        self.styles = {style: number for number, style in enumerate(codes)}
        self.plain, self.old_style, self.new_style = [self.styles[style] for style in ("plain", "old", "new")]
        self.operations = [self.item(item) for item in formatter.operations]
        self.arrow, self.null, self.more, self.only_the_key, self.no_columns = [
            self.item(item) for item in formatter.fixed_items
        ]

    def __dealloc__(self):
        PyMem_Free(self.text.data)
        PyMem_Free(self.fragments.data)
        PyMem_Free(self.items.data)
        PyMem_Free(self.rows.data)
        PyMem_Free(self.out.data)
        PyMem_Free(self.pending.data)

    # -- rows --------------------------------------------------------------------------------------------------

    def __len__(self):
        return self.rows.size // <Py_ssize_t>sizeof(PageRow)

    @property
    def full(self):
        return self.is_full()

    cdef inline bint is_full(self) noexcept:
        return self.rows.size // <Py_ssize_t>sizeof(PageRow) >= self.most or self.weight >= self.most_text

    def add(self, row):
        """Add a TableRow."""
        self.others.append(row)
        self.weight += row.weight()
        self.add_row(OPS, 0)

    def widths(self, Py_ssize_t most_table, Py_ssize_t most_key):
        """The widths of the widest table and the widest key within these limits."""
        cdef PageRow *row = <PageRow *>self.rows.data
        cdef ShownItem *items = <ShownItem *>self.items.data
        cdef Py_ssize_t i, table, key, widest_table = 0, widest_key = 0
        others = iter(self.others)
        for i in range(len(self)):
            if row[i].op == OPS:
                other = next(others)
                table, key = other.table[0], other.key[0]
            else:
                table, key = items[row[i].first].cells, items[row[i].first + 1].cells
            if widest_table < table <= most_table:
                widest_table = table
            if widest_key < key <= most_key:
                widest_key = key
        return widest_table, widest_key

    cdef int add_row(self, int op, Py_ssize_t first) except -2:
        cdef PageRow row
        row.op, row.first, row.end = op, first, self.items.size // <Py_ssize_t>sizeof(ShownItem)
        reserve(&self.rows, sizeof(PageRow))
        put(&self.rows, &row, sizeof(PageRow))
        return 0

    cdef int describe(self, ShownTable table) except -2:
        """Set the parts of a table's rows. Only then does --columns know the table."""
        parts = self.formatter.parts(table.masked)
        table.title = self.item(parts.table[1])
        table.keys = [self.column(column, "key") for column in parts.keys]
        table.others = [self.other(column, parts.optional) for column in parts.others]
        table.only_changed = self.formatter.only_changed
        return 0

    cdef TableColumn other(self, of, optional):
        """A column outside the key."""
        cdef TableColumn column = self.column(of, "value")
        column.optional = of.index in optional
        if of.maybe is not of.show:
            column.maybe = self.showing(of, of.maybe, of.maybe_label, "value")
        return column

    cdef TableColumn column(self, of, str style):
        cdef TableColumn column = self.showing(of, of.show, of.label, style)
        column.changed = lambda old, new: self.formatter.changed(of, old, new)
        return column

    cdef TableColumn showing(self, of, show, label, str style):
        """A column as `show` shows it."""
        cdef TableColumn column = TableColumn()
        column.index, column.style, column.show, column.made = of.index, self.styles[style], show, {}
        column.shown = show if isinstance(show, ShownColumn) else None
        column.label = self.item(label)
        column.null, column.unchanged = [self.item(show(cell)[1]) for cell in (None, UNCHANGED)]
        return column

    cdef int change(
        self, ShownTable table, int op, uint8_t kind, const Cell *old, const Cell *new, bint unchanged
    ) except -2:
        """Add a row as RowFormatter.change() shows it: 0, or DECLINED."""
        cdef Py_ssize_t first = self.items.size // <Py_ssize_t>sizeof(ShownItem)
        cdef Py_ssize_t values
        cdef const Cell *cells = old if op == OP_DELETE else new
        cdef bint both = op == OP_UPDATE and kind != c"N"
        cdef bint whole = kind == c"O"
        cdef bint only_changed = op == OP_UPDATE and table.only_changed
        cdef bint changed
        cdef TableColumn column
        cdef const Cell *now
        cdef ShownItem *key
        if op == OP_UPDATE and whole and unchanged:
            return DECLINED
        if table.page != self.number:
            table.page = self.number
            self.tables.append(table)
        self.copy_item(table.title)
        self.begin()
        for column in table.keys:
            now = cells + column.index
            if both and now.kind != c"u" and not same_cell(old + column.index, now):
                self.put_changed(column, old + column.index, now)
            else:
                self.put_column(column, old + column.index if both else now)
        self.end()
        self.chars = 0
        for column in table.others:
            now = cells + column.index
            if op == OP_DELETE and not whole and now.data == NULL:
                continue
            changed = both and whole and not same_cell(old + column.index, now)
            if changed or now.kind != c"n":
                column.value_page = self.number
            if only_changed and column.optional and (not changed if whole else now.kind == c"u"):
                continue
            self.begin()
            if changed:
                self.put_changed(column, old + column.index, now)
            else:
                if now.kind == c"n":
                    if column.null_page != self.number:
                        column.null_page, column.place = self.number, self.null_columns
                        self.null_columns += 1
                    (<ShownItem *>(self.items.data + self.items.size - sizeof(ShownItem))).null = column.place
                self.put_column(column.maybe if only_changed and not whole and column.maybe is not None else column, now)
            self.end()
        values = self.items.size // <Py_ssize_t>sizeof(ShownItem) - first - 2
        if op == OP_DELETE and not whole and values < PyList_GET_SIZE(table.others):
            self.copy_item(self.only_the_key)
            values += 1
        key = <ShownItem *>self.items.data + first + 1
        if not values and key.first == key.end:
            self.copy_item(self.no_columns)
        if only_changed and not whole and values and not table.told:
            table.told = True
            self.formatter.tell_unknown(table.masked)
        self.weight += self.chars
        return self.add_row(op, first)

    # -- items and fragments -----------------------------------------------------------------------------------

    cdef ItemText item(self, item):
        return ItemText(item, self.styles, self.width_of)

    cdef int begin(self) except -2:
        """The fragments that follow are an item."""
        cdef ShownItem item
        self.cells = 0
        item.first = item.end = count_of(&self.fragments)
        item.cells, item.null = 0, -1
        reserve(&self.items, sizeof(ShownItem))
        put(&self.items, &item, sizeof(ShownItem))
        return 0

    cdef void end(self) noexcept:
        cdef ShownItem *item = <ShownItem *>(self.items.data + self.items.size - sizeof(ShownItem))
        item.end, item.cells = count_of(&self.fragments), self.cells

    cdef int copy_item(self, ItemText item) except -2:
        self.begin()
        self.copy(item)
        self.end()
        return 0

    cdef int copy(self, ItemText item) except -2:
        cdef Py_ssize_t i, base = self.text.size
        cdef Fragment one
        reserve(&self.text, item.text.size)
        put(&self.text, item.text.data, item.text.size)
        for i in range(count_of(&item.fragments)):
            one = fragments_of(&item.fragments)[i]
            one.at += base
            self.add_one(one)
        return 0

    cdef int add_one(self, Fragment one) except -2:
        self.cells += one.cells
        self.chars += one.chars
        return add_fragment(&self.fragments, one)

    cdef int put_column(self, TableColumn column, const Cell *cell) except -2:
        """A cell after its label."""
        cdef Py_ssize_t part
        if cell.data == NULL:
            return self.copy(column.null if cell.kind == c"n" else column.unchanged)
        part = column.part(cell)
        if part < 0:
            return self.copy(self.shown_item(column, cell_value(cell)))
        self.copy(column.label)
        return self.put_value(column, cell, part, column.style)

    cdef ItemText shown_item(self, TableColumn column, cell):
        """The item of a value that `show` shows. Those of one character, such as booleans, are made once."""
        cdef ItemText found = column.made.get(cell) if type(cell) is bytes else None
        if found is None:
            found = self.item(column.show(cell)[1])
            if type(cell) is bytes and PyBytes_GET_SIZE(cell) == 1:
                column.made[cell] = found
        return found

    cdef int put_changed(self, TableColumn column, const Cell *old, const Cell *new) except -2:
        cdef Py_ssize_t before = 0 if old.data == NULL else column.part(old)
        cdef Py_ssize_t now = 0 if new.data == NULL else column.part(new)
        if before < 0 or now < 0:
            return self.copy(self.item(column.changed(cell_value(old), cell_value(new))[1]))
        self.copy(column.label)
        self.put_value(column, old, before, self.old_style)
        self.copy(self.arrow)
        return self.put_value(column, new, now, self.new_style)

    cdef int put_value(self, TableColumn column, const Cell *cell, Py_ssize_t part, int style) except -2:
        """NULL, or a value of which `part` characters are shown."""
        cdef Fragment one
        if cell.data == NULL:
            return self.copy(self.null)
        one.at, one.style = self.text.size, style
        reserve(&self.text, part + 2)
        if column.shown.quoted:
            put_char(&self.text, c"'")
        put(&self.text, cell.data, part)
        if column.shown.quoted:
            put_char(&self.text, c"'")
        one.size = one.chars = one.cells = self.text.size - one.at
        self.add_one(one)
        return self.copy(self.more) if part < cell.size else 0

    # -- lines -------------------------------------------------------------------------------------------------

    def may_hide(self, Py_ssize_t fewest):
        """Whether so many columns may be NULL in all rows."""
        return self.null_columns >= fewest or PyList_GET_SIZE(self.others) > 0

    def find_nulls(self, nulls):
        """Add the columns of all rows that are NULL, or not, to a NullColumns."""
        cdef ShownTable table
        cdef TableColumn column
        for table in self.tables:
            null = [column.index for column in table.others if column.null_page == self.number]
            nulls.add(table.masked, null, [column.index for column in table.others if column.value_page == self.number])
        self.find_nulls_of(self.others, nulls)

    def lay_out(self, columns, hidden, write, write_lines):
        """Write the lines of all rows, without `hidden` NULLs, and remove them. `columns` is a Columns; `write_lines` gets
        the lines of a TableRow."""
        cdef Py_ssize_t i
        cdef PageRow row
        cdef PageColumns at
        cdef ShownTable table
        cdef TableColumn column
        self.hides = len(hidden) > 0
        if self.hides:
            self.hidden = bytearray(self.null_columns)
            for table in self.tables:
                for column in table.others:
                    if column.null_page == self.number:
                        self.hidden[column.place] = column.index in hidden.get(table.masked.version, ())
        at.width, at.table, at.values = columns.width, columns.table, columns.values
        at.left, at.below, at.min_values = columns.left, columns.below, columns.min_values
        others = iter(self.others)
        for i in range(len(self)):
            row = (<PageRow *>self.rows.data)[i]
            if row.op != OPS:
                self.row_lines(&row, &at)
            if self.out.size and (row.op == OPS or self.out.size >= FULL):
                self.write_out(write)
            if row.op == OPS:
                write_lines(columns.lines(next(others), hidden))
        if self.out.size:
            self.write_out(write)
        self.others = []
        self.number += 1
        self.null_columns = 0
        self.tables.clear()
        self.weight = self.rows.size = self.items.size = self.fragments.size = self.text.size = 0

    cdef int write_out(self, write) except -2:
        text = PyBytes_FromStringAndSize(self.out.data, self.out.size)
        self.out.size = 0
        write(text)
        return 0

    cdef int row_lines(self, PageRow *row, PageColumns *at) except -2:
        """The lines of a row, as Columns.lines()."""
        cdef ShownItem *items = <ShownItem *>self.items.data
        cdef ShownItem *table = items + row.first
        cdef ShownItem *key = table + 1
        cdef ItemText operation = <ItemText>self.operations[row.op]
        cdef bint has_key = key.first < key.end, has_values = self.any_shown(row.first + 2, row.end)
        cdef Py_ssize_t gap = max(at.table - table.cells, 0) + COLUMN_GAP
        cdef Py_ssize_t used = at.left + table.cells + (gap + key.cells if has_key else 0)
        cdef Py_ssize_t start = max(at.values, used + COLUMN_GAP)
        cdef Py_ssize_t first = row.first + 2, room = at.width - start
        cdef bint beside = has_values and room >= at.min_values
        if beside and 2 * room < at.width:
            beside = self.line_count(first, row.end, room) <= 1 + self.line_count(first, row.end, at.width - at.below)
        self.emit_all(&operation.fragments, operation.text.data, 0, count_of(&operation.fragments))
        if not beside and used > at.width:
            self.wrap(row.first, row.first + 1 + has_key, at.width - at.left, at.left)
        else:
            self.emit_item(table)
            if has_key:
                self.emit_padding(gap)
                self.emit_item(key)
        if beside:
            self.emit_padding(start - used)
            self.wrap(row.first + 2, row.end, at.width - start, start)
        elif has_values:
            self.newline()
            self.emit_padding(at.below)
            self.wrap(row.first + 2, row.end, at.width - at.below, at.below)
        return self.newline()

    cdef inline bint is_hidden(self, const ShownItem *item) noexcept:
        return self.hides and item.null >= 0 and PyByteArray_AS_STRING(self.hidden)[item.null]

    cdef bint any_shown(self, Py_ssize_t first, Py_ssize_t end) noexcept:
        """Whether an item is not hidden."""
        cdef Py_ssize_t i
        for i in range(first, end):
            if not self.is_hidden(<ShownItem *>self.items.data + i):
                return True
        return False

    cdef Py_ssize_t line_count(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t width) noexcept:
        """How many lines wrap() makes about, as line_count() in layout.py."""
        cdef Py_ssize_t i, more, lines = 1, used = -1
        cdef ShownItem *item
        for i in range(first, end):
            item = <ShownItem *>self.items.data + i
            if self.is_hidden(item):
                continue
            if used >= 0 and used + COLUMN_GAP + item.cells <= width:
                used += COLUMN_GAP + item.cells
                continue
            more = max(item.cells - 1, 0) // width
            lines += more + (used >= 0)
            used = item.cells - more * width
        return lines

    cdef int wrap(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t width, Py_ssize_t indent) except -2:
        """Lay items side by side, as wrap_sized()."""
        cdef Py_ssize_t i, used = -1
        cdef ShownItem item
        for i in range(first, end):
            item = (<ShownItem *>self.items.data)[i]
            if self.is_hidden(&item):
                continue
            if used >= 0:
                if used + COLUMN_GAP + item.cells <= width:
                    self.emit_padding(COLUMN_GAP)
                    self.emit_item(&item)
                    used += COLUMN_GAP + item.cells
                    continue
                self.newline()
                self.emit_padding(indent)
            if item.cells <= width:
                self.emit_item(&item)
                used = item.cells
            else:
                used = self.broken(&item, width, indent)
        return 0

    cdef Py_ssize_t broken(self, ShownItem *item, Py_ssize_t width, Py_ssize_t indent) except -2:
        """Break an item into lines, as _broken() in layout.py; returns the width of the last one."""
        cdef Py_ssize_t i, end, whole, left = width
        cdef int before = -1
        cdef bint space, first = True
        cdef Fragment one, piece
        self.pending.size = 0
        for i in range(item.first, item.end):
            one = fragments_of(&self.fragments)[i]
            space = self.pending.size > 0 and self.is_space(
                fragments_of(&self.pending) + count_of(&self.pending) - 1, self.plain
            )
            whole, end = one.cells, i + 1
            while whole <= width and end < item.end:
                piece = fragments_of(&self.fragments)[end]
                if piece.style != one.style or self.is_space(&piece, self.plain):
                    break
                whole += piece.cells
                end += 1
            if left < whole <= width and (one.style != before or space):
                if space:
                    self.pending.size -= sizeof(Fragment)
                if self.pending.size:
                    first = self.emit_pending(first, indent)
                left = width
            before = one.style
            if not self.pending.size and self.is_space(&one, one.style):
                continue
            while one.cells > left:
                piece = self.fitting(one, left)
                add_fragment(&self.pending, piece)
                first = self.emit_pending(first, indent)
                one.at += piece.size
                one.size -= piece.size
                one.chars -= piece.chars
                one.cells -= piece.cells
                left = width
            add_fragment(&self.pending, one)
            left -= one.cells
        self.emit_pending(first, indent)
        return width - left

    cdef inline bint is_space(self, const Fragment *one, int style) noexcept:
        return one.size == 1 and self.text.data[one.at] == c" " and one.style == style

    cdef Fragment fitting(self, Fragment one, Py_ssize_t width) except *:
        """The beginning of a fragment that is at most `width` cells wide."""
        if one.chars == one.size:
            one.size = one.chars = one.cells = min(one.size, width)
            return one
        text = self.text.data[one.at:one.at + one.size].decode()
        part = text[:self.fit_end(text, 0, width)]
        one.size, one.chars, one.cells = len(part.encode()), len(part), self.width_of(part)
        return one

    cdef int emit_pending(self, bint first, Py_ssize_t indent) except -2:
        """Write a line of a broken item, or its beginning; the first follows what is on the line. Returns False."""
        if not first:
            self.newline()
            self.emit_padding(indent)
        self.emit_all(&self.pending, self.text.data, 0, count_of(&self.pending))
        self.pending.size = 0
        return False

    cdef int emit_item(self, ShownItem *item) except -2:
        return self.emit_all(&self.fragments, self.text.data, item.first, item.end)

    cdef int emit_all(self, Out *fragments, const char *text, Py_ssize_t first, Py_ssize_t end) except -2:
        cdef Py_ssize_t i
        cdef Fragment *one
        for i in range(first, end):
            one = fragments_of(fragments) + i
            if self.colored:
                put_object(&self.out, <bytes>(<tuple>self.codes[one.style])[0])
            reserve(&self.out, one.size)
            put(&self.out, text + one.at, one.size)
            if self.colored:
                put_object(&self.out, <bytes>(<tuple>self.codes[one.style])[1])
        return 0

    cdef int emit_padding(self, Py_ssize_t width) except -2:
        before, after = <tuple>self.codes[self.plain]
        put_object(&self.out, <bytes>before)
        put_blanks(&self.out, width)
        return put_object(&self.out, <bytes>after)

    cdef int newline(self) except -2:
        reserve(&self.out, 1)
        put_char(&self.out, c"\n")
        return 0


@cython.final
cdef class TableScanner(Scanner):
    """Begins and ends transactions of `output`; sends it rows as events, or adds them to its `page`.

    `page` is a TablePage or None. While `full` is set, as no rows of the transaction are left to be shown
    (`output.left`), rows are counted. `output.counted` gets the number of rows that were not sent as events. `events` is
    the module of the events, `mask` that of outputs/base.py.
    """

    cdef object output, mask, event, events, row_change
    cdef TablePage page
    cdef Py_ssize_t counted_rows, left
    cdef bint headed

    def __cinit__(self, find, filter_, output, page, mask, events):
        self.output, self.page, self.mask, self.event = output, page, mask, output.event
        self.events, self.row_change = events, events.RowChange

    cdef Table describe(self, relation):
        cdef ShownTable table = ShownTable(relation)
        table.masked = relation if self.mask is None else self.mask(relation)
        return table

    cdef int entered(self) except -2:
        self.left, self.headed = self.output.left, self.output.headed
        return 0

    cdef int begin(self) except -2:
        if self.transaction is None:
            self.transaction = self.events.Transaction(self.xid, self.commit_lsn, self.commit_ts)
        self.output.begin()
        self.started = True
        return self.entered()

    cdef int emit(self, Table table, int op, uint8_t kind, uint64_t lsn, Py_ssize_t size) except -2:
        if kind == SEEN:
            return DECLINED
        if not self.started:
            self.begin()
        if self.page is not None and (<ShownTable>table).title is None:
            self.page.describe(<ShownTable>table)
        if self.left > 0:
            if self.page is None or self.page.change(
                <ShownTable>table, op, kind, self.old, self.new, self.unchanged > 0
            ) < 0:
                return self.emit_event(<ShownTable>table, op, kind, lsn)
            if not self.headed:
                self.output.head(self.transaction)
                self.headed = True
            if self.page.is_full() or self.left == 1:
                self.output.lay_out()
        self.left -= 1
        self.counted_rows += 1
        return 0

    cdef int emit_event(self, ShownTable table, int op, uint8_t kind, uint64_t lsn) except -2:
        self.flush()
        self.event(
            self.row_change(
                OPERATIONS[op],
                self.transaction,
                self.seq + 1,
                lsn or None,
                table.masked,
                "" if kind == c"N" else "K" if kind == c"K" else "O",
                None if kind == c"N" else tuple_data(self.old, table.columns),
                None if op == OP_DELETE else tuple_data(self.new, table.columns),
            )
        )
        return self.entered()

    cdef int commit(self) except -2:
        if self.shows():
            if not self.started:
                self.begin()
            self.flush()
            self.transaction.changes, self.transaction.end_lsn = self.seq, self.end_lsn
            self.output.end(self.transaction)
        return 0

    cdef int flush(self) except -2:
        if self.counted_rows:
            self.output.counted(self.counted_rows)
            self.counted_rows = 0
        return 0


cdef tuple tuple_data(const Cell *cells, int columns):
    """A tuple as the decoder returns it."""
    cdef int i
    return tuple([cell_value(&cells[i]) for i in range(columns)])
