"""Row plans (plan.py) as arrays of steps, made once for each version of a table, operation and kind of old tuple."""

from pgtail.native import plan as pieces_module
from pgtail.native.plan import Cells, Changed, Count, Dollars, Names, Padded, Text, Undecodable, Value

cdef enum:
    MOST_NAMES = 1000       # remembered lists of names of a plan

cdef enum StepKind:
    STEP_LITERAL
    STEP_VALUE
    STEP_TEXT
    STEP_GROUP
    STEP_CELLS
    STEP_NAMES
    STEP_DOLLARS
    STEP_COUNT
    STEP_CHANGED
    STEP_PADDED

cpdef enum Skip:
    SKIP_NOTHING
    SKIP_UNCHANGED
    SKIP_SAME
    SKIP_DIFFERENT

cdef enum Usual:
    # What is tried inline before an encoder is called.
    USUAL_NONE
    USUAL_NUMBER
    USUAL_TEXT

cdef struct CellPlan:
    int index
    bint direct             # whether a text is encoded with nothing else to ask
    Usual usual
    uint8_t quote, special  # of copy_usual_text()
    Encoder encode          # NULL: Python converts the value
    int64_t parameter
    Bytes before, between, after, null, unchanged, constant     # between: the separator and `before`
    bint written            # whether the value is; otherwise only `before` and `after`
    Bytes skipped, previous_before, previous_after      # previous_before: its data is NULL without `previous`
    bint null_absent, required, unchanged_undecoded
    Skip skip
    int encoding            # its place in RowPlan.objects

# By the encoder and whether it has a parameter: the same for ordinary values.
cdef dict USUAL = {
    ("number", False): (USUAL_NUMBER, 0, 0),
    ("number_or_null", False): (USUAL_NUMBER, 0, 0),
    ("string", False): (USUAL_TEXT, ord('"'), ord("\\")),
    ("sql", False): (USUAL_TEXT, ord("'"), 0x7F),
    ("bare", False): (USUAL_TEXT, 0, 0x7F),
    ("bare", True): (USUAL_TEXT, 0, 0x7F),
}

cdef struct Made:
    Out text
    uint64_t generation     # that of the writer when it was made

cdef struct Step:
    StepKind kind
    Made *made              # of a Group
    Bytes text              # the literal, or what comes before a value
    Bytes after, missing
    int field, missing_field
    bint old                # the side
    bint fill, not_empty, complete
    CellPlan *cells
    int count
    int object              # the place in RowPlan.objects of a function or a nested plan
    bint absent             # of Names: whether columns can be outside the replica identity
    Py_ssize_t least        # of Padded, in terminal cells


cdef inline Bytes view_of(object text):
    """A view of bytes that a plan keeps alive, or of None. Of any others it dangles: use put_object()."""
    cdef Bytes found
    if text is None:
        found.data, found.size = NULL, 0
    else:
        found.data, found.size = PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    return found


@cython.final
cdef class Group:
    """Pieces that do not depend on the row, with their text for the rows of one transaction. Plans share them."""

    cdef RowPlan plan
    cdef Made made

    def __cinit__(self, tuple pieces):
        self.plan = RowPlan(pieces, None, None)
        grow(&self.made.text, 64)

    def __dealloc__(self):
        Py_XDECREF(self.made.text.object)


@cython.final
cdef class RowPlan:
    """A plan that can be executed. Its objects have the bytes that its steps point to."""

    cdef Step *steps
    cdef int count
    cdef Py_ssize_t room    # bytes that its texts and fields may take, but not its values and groups
    cdef dict groups
    cdef list objects
    cdef dict names         # the texts of lists of columns, by what they are of
    cdef object write

    def __cinit__(self, tuple pieces, write, dict groups):
        """`groups` has the groups that plans share by their pieces; None: make no groups."""
        cdef int i
        cdef list found = used(pieces, groups)
        self.write, self.groups = write, groups
        self.objects, self.names = [], {}
        self.count = len(found)
        self.steps = <Step *>zeroed(self.objects, self.count, sizeof(Step))
        for i in range(self.count):
            self.fill(&self.steps[i], found[i], found)

    cdef int keep(self, found) except -2:
        self.objects.append(found)
        return len(self.objects) - 1

    cdef Bytes text(self, found):
        """A text, or None, as put_padded() takes it. There is room for it in each row."""
        cdef Bytes text
        if found is None:
            return view_of(None)
        text = view_of(self.objects[self.keep(found + bytes(SLACK))])
        text.size -= SLACK
        self.room += text.size
        return text

    cdef RowPlan nested(self, tuple pieces):
        cdef RowPlan found = RowPlan(pieces, None, self.groups)
        self.room += found.room
        return found

    cdef int fill(self, Step *step, piece, list pieces) except -2:
        if isinstance(piece, bytes):
            step.kind, step.text = STEP_LITERAL, self.text(piece)
        elif isinstance(piece, Group):
            step.kind, step.object, step.made = STEP_GROUP, self.keep(piece), &(<Group>piece).made
        elif isinstance(piece, Value):
            step.kind, step.field = STEP_VALUE, piece.field
            self.room += FIELD_SIZE
            step.text, step.after = self.text(piece.before), self.text(piece.after)
            if isinstance(piece.missing, bytes):
                step.missing_field, step.missing = -1, self.text(piece.missing)
            else:
                step.missing_field = piece.missing
            if step.field >= FIELDS or step.missing_field >= FIELDS:
                raise TypeError(f"no field of compiled code: {piece!r}")
        elif isinstance(piece, Text):
            step.kind, step.object = STEP_TEXT, self.keep(piece.render)
        elif isinstance(piece, Cells):
            self.fill_cells(step, piece)
        elif isinstance(piece, Names):
            step.kind, step.object = STEP_NAMES, self.keep(piece.render)
            absent, unchanged, step.fill = listed(piece, pieces)
            step.absent = len(absent) > 0
            self.keep(absent)
            self.keep(unchanged)
        elif isinstance(piece, Dollars):
            step.kind, step.object = STEP_DOLLARS, self.keep(self.nested(piece.pieces))
        elif isinstance(piece, Changed):
            step.kind, step.object = STEP_CHANGED, self.keep(piece.render)
            self.keep(piece.compared)
            self.keep(piece.unknown)
        elif isinstance(piece, Padded):
            step.kind, step.object = STEP_PADDED, self.keep(self.nested(piece.pieces))
            step.least = piece.least
        elif isinstance(piece, Count):
            step.kind, step.object = STEP_COUNT, self.keep(piece.key)
        else:
            raise TypeError(f"no piece of a plan: {piece!r}")
        return 0

    cdef int fill_cells(self, Step *step, piece) except -2:
        cdef CellPlan *cell
        cdef int i
        step.kind, step.old = STEP_CELLS, piece.side == "old"
        step.fill, step.not_empty, step.complete = piece.fill, piece.not_empty, piece.complete
        step.count = len(piece.cells)
        step.cells = <CellPlan *>zeroed(self.objects, step.count, sizeof(CellPlan))
        for i in range(step.count):
            cell, found = &step.cells[i], piece.cells[i]
            cell.index, cell.before, cell.after = found.index, self.text(found.before), self.text(found.after)
            cell.between = self.text(piece.separator + found.before)
            cell.null, cell.unchanged = self.text(found.null), self.text(found.unchanged)
            cell.null_absent, cell.required = found.null_absent, found.required
            cell.skip, cell.skipped = <Skip><int>found.skip, self.text(found.skipped)
            if found.previous is not None:
                cell.previous_before = self.text(found.previous.before)
                cell.previous_after = self.text(found.previous.after)
            cell.unchanged_undecoded = found.unchanged_undecoded != ""
            cell.written = found.encoding is not None
            if cell.written:
                self.fill_encoding(cell, found.encoding)
            cell.direct = (
                cell.encode != NULL and cell.constant.data == NULL and cell.previous_before.data == NULL
                and cell.skip == SKIP_NOTHING
            )
        return 0

    cdef int fill_encoding(self, CellPlan *cell, encoding) except -2:
        native = encoding.codec.native
        cell.encoding = self.keep(encoding.text)
        self.keep(encoding.binary)
        if native is None:
            return 0
        cell.constant = view_of(self.objects[self.keep(native.constant)])
        if encoding.form is not None:
            cell.parameter = encoding.form.parameter
            if encoding.form.name:
                cell.encode = encoder_of(encoding.form.name)
            usual = encoding.form.name, cell.parameter != 0
            cell.usual, cell.quote, cell.special = USUAL.get(usual, (USUAL_NONE, 0, 0))
        return 0


cdef tuple listed(piece, list pieces):
    """What Names may list of the other pieces: columns outside the replica identity, and columns of the new tuple that
    may be unchanged; and whether the values of the old one fill these in."""
    cdef list absent = [], unchanged = []
    fills = False
    for cells in pieces:
        if isinstance(cells, Cells) and cells.side in piece.sides:
            if cells.side == "new":
                fills = cells.fill and not piece.filled
                unchanged += [cell.index for cell in cells.cells if cell.skip == SKIP_NOTHING]
            elif piece.absent:
                absent += [cell.index for cell in cells.cells if cell.null_absent]
    return tuple(absent), tuple(unchanged), fills


cdef list used(tuple pieces, dict groups):
    """The pieces that the Writer writes. Unless `groups` is None, groups take the place of those that do not depend
    on the row and of texts between them."""
    cdef list found = []
    pieces = pieces_module.joined([piece for piece in pieces if not is_unused(piece)])
    for piece in pieces if groups is None else pieces_module.grouped(pieces):
        if isinstance(piece, tuple):
            if piece not in groups:
                groups[piece] = Group(piece)
            piece = groups[piece]
        found.append(piece)
    return found


cdef bint is_unused(piece) except *:
    """Whether the Writer writes nothing for a piece: it declines the rows about which it would say something."""
    if isinstance(piece, Undecodable):
        return True
    return isinstance(piece, Value) and piece.field == FIELD_ABORTED and not piece.missing


cdef int put_call(Out *out, object convert, const Cell *cell) except -2:
    """A value converted by Python; DECLINED if it cannot be decoded."""
    cdef bytes text
    try:
        text = convert(PyBytes_FromStringAndSize(<const char *>cell.data, cell.size))
    except (Undecoded, NoPlan):
        return DECLINED
    return put_object(out, text)


cdef int put_value(Out *out, RowPlan plan, CellPlan *how, const Cell *cell) except -2:
    """A value in a format; DECLINED if it cannot be decoded."""
    cdef const uint8_t *p = cell.data
    cdef Py_ssize_t size = cell.size, start = out.size
    cdef bint text = cell.kind == c"t"
    if how.constant.data != NULL:
        p, size, text = <const uint8_t *>how.constant.data, how.constant.size, True
    if text and how.encode != NULL:
        if how.encode(out, p, size, how.parameter) == 0:
            return 0
        out.size = start
    return put_call(out, plan.objects[how.encoding + (cell.kind != c"t")], cell)
