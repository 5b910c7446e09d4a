"""Conditions (changes/condition.py) evaluated on cells: comparisons of text and plain decimal numbers; Python does the rest."""

cdef enum Truth:
    FALSE
    TRUE
    UNKNOWN

cdef enum Operator:
    OP_PYTHON
    OP_IS_NULL
    OP_EQUAL
    OP_DIFFERENT
    OP_LESS
    OP_AT_MOST
    OP_GREATER
    OP_AT_LEAST

cdef dict OPERATORS = {
    "is null": OP_IS_NULL, "=": OP_EQUAL, "!=": OP_DIFFERENT, "<>": OP_DIFFERENT,
    "<": OP_LESS, "<=": OP_AT_MOST, ">": OP_GREATER, ">=": OP_AT_LEAST,
}

cdef enum NodeKind:
    NODE_TEST
    NODE_NOT
    NODE_AND
    NODE_OR

cdef dict NODE_KINDS = {"test": NODE_TEST, "not": NODE_NOT, "and": NODE_AND, "or": NODE_OR}

cdef struct Node:
    NodeKind kind
    int end                 # the index after its last descendant; nodes stand before their parts
    int index               # of the column; -1 if the table does not have it
    Operator operator
    bint number, key
    Bytes value
    BinaryType binary
    int object              # the place of the test, its codec and value in Condition.objects


@cython.final
cdef class Condition:
    """A bound condition as an array of nodes, each followed by its parts."""

    cdef Node *nodes
    cdef int count
    cdef list objects
    cdef bint untested      # whether the last evaluation needed a value that was not sent or cannot be decoded

    def __cinit__(self, bound):
        cdef int i
        flat = bound.nodes()
        self.objects = []
        self.count = len(flat)
        self.nodes = <Node *>PyMem_Calloc(self.count + 1, sizeof(Node))
        if self.nodes == NULL:
            raise MemoryError
        for i in range(self.count):
            kind, end, test = flat[i]
            self.fill(&self.nodes[i], bound, kind, end, test)

    def __dealloc__(self):
        PyMem_Free(self.nodes)

    cdef int fill(self, Node *node, bound, str kind, int end, test) except -2:
        node.kind, node.end = NODE_KINDS[kind], end
        if node.kind == NODE_TEST:
            node.index = bound.places.get(test, -1)
            if node.index >= 0:
                self.fill_test(node, test, bound.relation.columns[node.index])
        return 0

    cdef int fill_test(self, Node *node, test, column) except -2:
        codec = column.codec
        value = test.native(codec.kind) if codec.native is not None else None
        node.key, node.object = column.key, len(self.objects)
        self.objects += [test, codec, value]
        if test.op == "is null":
            node.operator = OP_IS_NULL
        elif value is not None:
            node.operator, node.value = OPERATORS[test.op], view_of(value)
            node.number = codec.kind is ValueKind.NUMBER
            node.binary = BINARY_TYPES.get(codec.native.type, BINARY_UNKNOWN)
        return 0

    cdef int holds(self, int at, const Cell *cells, bint key_only, Out *scratch) except -2:
        """The Truth of the node at `at` for these cells; `key_only`: NULLs outside the replica identity were not sent."""
        cdef Node *node = &self.nodes[at]
        cdef int part = at + 1, found
        cdef Truth decisive
        cdef bint unknown = False
        if node.kind == NODE_TEST:
            return self.test(node, cells, key_only, scratch)
        if node.kind == NODE_NOT:
            found = self.holds(part, cells, key_only, scratch)
            return UNKNOWN if found == UNKNOWN else TRUE if found == FALSE else FALSE
        decisive = TRUE if node.kind == NODE_OR else FALSE
        while part < node.end:
            found = self.holds(part, cells, key_only, scratch)
            if found == decisive:
                return found
            unknown = unknown or found == UNKNOWN
            part = self.nodes[part].end
        return UNKNOWN if unknown else FALSE if decisive == TRUE else TRUE

    cdef int test(self, Node *node, const Cell *cells, bint key_only, Out *scratch) except -2:
        cdef const Cell *cell
        cdef int order
        cdef const uint8_t *p
        cdef Py_ssize_t size
        if node.index < 0:
            return UNKNOWN
        cell = &cells[node.index]
        if cell.kind == c"u" or (cell.kind == c"n" and key_only and not node.key):
            self.untested = True
            return UNKNOWN
        if node.operator == OP_IS_NULL:
            return TRUE if cell.kind == c"n" else FALSE
        if cell.kind == c"n":
            return UNKNOWN
        p, size = cell.data, cell.size
        if node.operator != OP_PYTHON and cell.kind == c"b":
            scratch.size = 0
            if node.binary == BINARY_UNKNOWN or put_binary(scratch, node.binary, p, size) < 0:
                return self.test_in_python(node, cell)
            p, size = <const uint8_t *>scratch.data, scratch.size
        if node.operator == OP_PYTHON:
            return self.test_in_python(node, cell)
        if node.number:
            if not is_plain_number(p, size):
                return self.test_in_python(node, cell)
            order = compare_numbers(p, size, <const uint8_t *>node.value.data, node.value.size)
        else:
            if not is_utf8(p, size):
                return self.test_in_python(node, cell)
            order = compare_texts(p, size, <const uint8_t *>node.value.data, node.value.size)
        return TRUE if (
            order == 0 if node.operator == OP_EQUAL else order != 0 if node.operator == OP_DIFFERENT
            else order < 0 if node.operator == OP_LESS else order <= 0 if node.operator == OP_AT_MOST
            else order > 0 if node.operator == OP_GREATER else order >= 0
        ) else FALSE

    cdef int test_in_python(self, Node *node, const Cell *cell) except -2:
        cdef bytes data = PyBytes_FromStringAndSize(<const char *>cell.data, cell.size)
        test, codec = self.objects[node.object], self.objects[node.object + 1]
        try:
            text = codec.text_text(data) if cell.kind == c"t" else codec.text_binary(data)
        except Undecoded:
            found = None
        else:
            found = test.holds(text, codec.kind)
        if found is None:
            self.untested = True
            return UNKNOWN
        return TRUE if found else FALSE


cdef inline int compare_texts(const uint8_t *p, Py_ssize_t size, const uint8_t *q, Py_ssize_t other) noexcept:
    """Less than, equal to or greater than 0, by code points: their order is that of the bytes of UTF-8."""
    cdef int order = memcmp(p, q, min(size, other))
    return order if order else (size > other) - (size < other)


cdef bint is_plain_number(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether this is digits with at most a sign before and a point between them."""
    cdef Py_ssize_t i = 1 if size and p[0] == c"-" else 0
    cdef bint point = False
    if i >= size or not is_digit(p[i]) or not is_digit(p[size - 1]):
        return False
    while i < size:
        if p[i] == c"." and not point:
            point = True
        elif not is_digit(p[i]):
            return False
        i += 1
    return True


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
    cdef Py_ssize_t whole = whole_digits(p, size), other_whole = whole_digits(q, other), i
    cdef uint8_t one, two
    while whole and p[0] == c"0":
        p, size, whole = p + 1, size - 1, whole - 1
    while other_whole and q[0] == c"0":
        q, other, other_whole = q + 1, other - 1, other_whole - 1
    if whole != other_whole:
        return 1 if whole > other_whole else -1
    i = 0
    while i < size or i < other:
        one = p[i] if i < size else c"0"
        two = q[i] if i < other else c"0"
        if i == whole:
            i += 1
            continue
        if one != two:
            return 1 if one > two else -1
        i += 1
    return 0


cdef Py_ssize_t whole_digits(const uint8_t *p, Py_ssize_t size) noexcept:
    """How many digits stand before the point."""
    cdef const void *point = memchr(p, c".", size)
    return size if point == NULL else <const uint8_t *>point - p
