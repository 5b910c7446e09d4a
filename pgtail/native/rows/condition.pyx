"""Conditions (changes/bound_condition.py) evaluated on cells. Python does all tests but comparisons of text cells."""

# ==== comparisons: text, plain decimal numbers =====================================================================

cdef inline int compare_texts(const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    """Less than, equal to or greater than 0, by code points: their order is that of the bytes of UTF-8."""
    cdef int order = memcmp(p, q, min(size, other))
    return order if order else (size > other) - (size < other)


cdef bint is_plain_number(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether this is digits with at most a sign before and a point between them."""
    cdef Py_ssize_t i = 1 if size and p[0] == c"-" else 0
    cdef Py_ssize_t digits = count_digits(p + i, size - i)
    i += digits
    if i < size and p[i] == c"." and digits:
        digits = count_digits(p + i + 1, size - i - 1)
        i += 1 + digits
    return digits and i == size


cdef int compare_numbers(const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    """Less than, equal to or greater than 0 for two plain decimal numbers of any length."""
    cdef bint negative = p[0] == c"-", other_negative = q[0] == c"-"
    cdef int order
    if negative:
        p, size = p + 1, size - 1
    if other_negative:
        q, other = q + 1, other - 1
    order = compare_magnitudes(p, size, q, other)
    if negative == other_negative:
        return -order if negative else order
    if order == 0 and is_zero(p, size):
        return 0
    return -1 if negative else 1


cdef bint is_zero(const uint8_t *p, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        if p[i] != c"0" and p[i] != c".":
            return False
    return True


cdef int compare_magnitudes(const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    cdef Py_ssize_t digits = integer_digits(p, size), other_digits = integer_digits(q, other), i
    cdef uint8_t one, two
    while digits and p[0] == c"0":
        p, size, digits = p + 1, size - 1, digits - 1
    while other_digits and q[0] == c"0":
        q, other, other_digits = q + 1, other - 1, other_digits - 1
    if digits != other_digits:
        return 1 if digits > other_digits else -1
    i = 0
    while i < size or i < other:
        one = p[i] if i < size else c"0"
        two = q[i] if i < other else c"0"
        if i == digits:
            i += 1
            continue
        if one != two:
            return 1 if one > two else -1
        i += 1
    return 0


cdef Py_ssize_t integer_digits(const uint8_t *p, Py_ssize_t size) noexcept:
    """How many digits stand before the point."""
    cdef const void *point = memchr(p, c".", size)
    return size if point == NULL else <const uint8_t *>point - p


# ==== conditions ===================================================================================================

cdef enum Truth:
    FALSE
    TRUE
    UNKNOWN
    NULL_VALUE
    NOT_SENT

cdef enum:
    # How two texts compare.
    LESS = 1
    EQUAL = 2
    GREATER = 4
    # Operators are what they accept of these, or:
    IS_NULL = 8
    CHANGED = 16

cdef dict OPERATORS = {
    "is null": IS_NULL, "changed": CHANGED, "in": EQUAL, "=": EQUAL, "<>": LESS | GREATER, "<": LESS,
    "<=": LESS | EQUAL, ">": GREATER, ">=": GREATER | EQUAL,
}

cdef enum How:
    HOW_TEXT
    HOW_NUMBER
    HOW_PADDED

cdef dict HOWS = {"text": HOW_TEXT, "number": HOW_NUMBER, "padded": HOW_PADDED, "": HOW_TEXT}

cdef enum NodeKind:
    NODE_TEST
    NODE_NOT
    NODE_AND
    NODE_OR
    NODE_FALSE
    NODE_TRUE
    NODE_UNKNOWN

cdef dict NODE_KINDS = {
    "test": NODE_TEST, "not": NODE_NOT, "and": NODE_AND, "or": NODE_OR, "false": NODE_FALSE, "true": NODE_TRUE,
    "unknown": NODE_UNKNOWN,
}

cdef enum Place:
    PLACE_NONE              # there is no such operand
    PLACE_NEW
    PLACE_OLD
    PLACE_XID
    PLACE_COMMIT_TS
    PLACE_CONTEXT           # NULL: rows of transactions that have one are not scanned
    PLACE_CONSTANT

cdef dict PLACES = {
    "new": PLACE_NEW, "old": PLACE_OLD, "xid": PLACE_XID, "commit_ts": PLACE_COMMIT_TS, "context": PLACE_CONTEXT,
    "constant": PLACE_CONSTANT,
}

cdef struct Source:         # as in changes/operand.py
    Place place
    int index
    bint key, same_row

cdef struct Node:
    NodeKind kind
    int end                 # the index after its last descendant; nodes stand before their parts
    int operator            # 0: Python does the test
    How how
    Source left, right
    Bytes *values
    int count
    int object              # the place in Condition.objects of the test

cdef struct Row:
    const Cell *old
    const Cell *new
    int old_kind
    const TransactionEntry *entry
    PyObject *transaction   # the one that continues; NULL: `entry` has its Begin

cdef Cell NULL_CELL
NULL_CELL.kind, NULL_CELL.data, NULL_CELL.size = c"n", NULL, 0


cdef inline const Cell *sent_cell(const Source *source, const Row *row) noexcept:
    """The cell of a column; NULL if it was not sent. The same as Source.cell()."""
    cdef const Cell *cell = &row.new[source.index]
    if source.place == PLACE_NEW:
        if cell.kind == c"u" and row.old_kind >= OLD_FULL:
            cell = &row.old[source.index]
    elif row.old_kind != OLD_NONE:
        cell = &row.old[source.index]
        if cell.kind == c"n" and row.old_kind == OLD_KEY and not source.key:
            return NULL
    elif not source.same_row:
        return NULL
    return NULL if cell.kind == c"u" else cell


@cython.final
cdef class Condition:
    """A bound condition as an array of nodes, each followed by its parts."""

    cdef Node *nodes
    cdef int count
    cdef list objects
    cdef bint untested      # whether the last evaluation needed a value that was not sent or cannot be compared

    def __cinit__(self, bound):
        cdef int i
        flat = bound.nodes()
        self.objects = []
        self.count = len(flat)
        self.nodes = <Node *>zeroed(self.objects, self.count, sizeof(Node))
        for i in range(self.count):
            kind, end, test = flat[i]
            self.nodes[i].kind, self.nodes[i].end = NODE_KINDS[kind], end
            if test is not None:
                self.fill(&self.nodes[i], test)

    cdef int fill(self, Node *node, test) except -2:
        cdef int i
        native = test.native()
        node.object = len(self.objects)
        self.objects += [test, native]
        self.fill_source(&node.left, test.left)
        if test.right is not None:
            self.fill_source(&node.right, test.right)
        if native is None:
            return 0
        node.operator, node.how, node.count = OPERATORS[native.op], HOWS[native.how], len(native.values)
        node.values = <Bytes *>zeroed(self.objects, node.count, sizeof(Bytes))
        for i in range(node.count):
            node.values[i] = view_of(native.values[i])
        return 0

    cdef int fill_source(self, Source *to, source) except -2:
        to.place, to.index, to.key, to.same_row = PLACES[source.place], source.index, source.key, source.same_row
        return 0

    cdef int holds(self, int at, const Row *row) except -2:
        """The Truth of the node at `at` for a row."""
        cdef Node *node = &self.nodes[at]
        cdef int part = at + 1, found
        cdef Truth decisive
        cdef bint unknown = False
        if node.kind == NODE_TEST:
            found = self.test(node, row)
            self.untested = self.untested or found == NOT_SENT
            return UNKNOWN if found >= UNKNOWN else found
        if node.kind == NODE_NOT:
            found = self.holds(part, row)
            return UNKNOWN if found == UNKNOWN else TRUE if found == FALSE else FALSE
        if node.kind >= NODE_FALSE:
            return FALSE if node.kind == NODE_FALSE else TRUE if node.kind == NODE_TRUE else UNKNOWN
        decisive = TRUE if node.kind == NODE_OR else FALSE
        while part < node.end:
            found = self.holds(part, row)
            if found == decisive:
                return found
            unknown = unknown or found == UNKNOWN
            part = self.nodes[part].end
        return UNKNOWN if unknown else FALSE if decisive == TRUE else TRUE

    cdef int test(self, Node *node, const Row *row) except -2:
        """The Truth of a test, NULL_VALUE or NOT_SENT."""
        cdef const Cell *left = NULL
        cdef const Cell *right = NULL
        if node.left.place <= PLACE_OLD:
            if node.operator == CHANGED and row.new[node.left.index].kind == c"u":
                return FALSE
            left = sent_cell(&node.left, row)
            if left == NULL:
                return NOT_SENT
        if node.right.place == PLACE_NEW or node.right.place == PLACE_OLD:
            right = sent_cell(&node.right, row)
            if right == NULL:
                return NOT_SENT
        if node.operator == CHANGED:
            return FALSE if same_cell(left, right) else TRUE
        if node.operator == IS_NULL:
            return TRUE if left.kind == c"n" else FALSE
        return self.test_texts(node, left, right, row)

    cdef int test_texts(self, Node *node, const Cell *left, const Cell *right, const Row *row) except -2:
        """A test of texts; Python does it where these are not ordinary."""
        cdef const uint8_t *p = NULL
        cdef const uint8_t *q = NULL
        cdef Py_ssize_t size = 0, other = 0
        cdef int found = DECLINED, second = TRUE, i
        if node.operator:
            found = text_of(node.how, left, &p, &size)
            if found != DECLINED and right != NULL:
                second = text_of(node.how, right, &q, &other)
        if found == DECLINED or second == DECLINED:
            return self.test_in_python(node, left, right, row)
        if found == NULL_VALUE or second == NULL_VALUE:
            return NULL_VALUE
        if right != NULL:
            return TRUE if compare(node.how, p, size, q, other) & node.operator else FALSE
        for i in range(node.count):
            q, other = <const uint8_t *>node.values[i].data, node.values[i].size
            if compare(node.how, p, size, q, other) & node.operator:
                return TRUE
        return FALSE

    cdef int test_in_python(self, Node *node, const Cell *left, const Cell *right, const Row *row) except -2:
        test = self.objects[node.object]
        try:
            found = test.of_cells(
                operand_value(&node.left, test.left, left, row),
                None if node.right.place == PLACE_NONE else operand_value(&node.right, test.right, right, row),
            )
        except NotTested:
            return NOT_SENT
        return NULL_VALUE if found is None else TRUE if found else FALSE


cdef int text_of(How how, const Cell *cell, const uint8_t **p, Py_ssize_t *size) noexcept:
    """The text of a cell that is compared: TRUE, NULL_VALUE or DECLINED."""
    if cell.kind == c"n":
        return NULL_VALUE
    if cell.kind == c"b":
        return DECLINED
    p[0], size[0] = cell.data, cell.size
    if how == HOW_NUMBER:
        return TRUE if is_plain_number(cell.data, cell.size) else DECLINED
    if not is_utf8(cell.data, cell.size):
        return DECLINED
    if how == HOW_PADDED:
        while size[0] and p[0][size[0] - 1] == c" ":
            size[0] -= 1
    return TRUE


cdef object operand_value(const Source *to, source, const Cell *cell, const Row *row):
    """The cell of an operand as the decoder returns it."""
    if to.place <= PLACE_OLD:
        return cell_value(cell)
    if to.place == PLACE_CONTEXT:
        return None
    if to.place == PLACE_CONSTANT:
        return None if source.constant is None else source.constant.encode()
    if row.transaction == NULL:
        return source.of_transaction(row.entry.xid, row.entry.begin_time)
    transaction = <object>row.transaction
    return source.of_transaction(transaction.xid, transaction.commit_ts)


cdef inline int compare(How how, const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    """LESS, EQUAL or GREATER."""
    cdef int order
    order = compare_numbers(p, size, q, other) if how == HOW_NUMBER else compare_texts(p, size, q, other)
    return EQUAL if order == 0 else LESS if order < 0 else GREATER
