"""What the text emitter asks about pieces: whether cells differ or are skipped, and how wide a text is."""

cdef inline bint differ(const Cell *now, const Cell *before) noexcept:
    """Whether a cell has another value than before; an unchanged one does not."""
    return now.kind != c"u" and not same_cell(now, before)


cdef inline bint skipped(Skip skip, const Cell *cell, const Cell *other, bint old, bint has_other) noexcept:
    """Whether `skip` applies to a cell, which is of the old tuple or the new one."""
    if (has_other and other.kind == c"u") if old else cell.kind == c"u":
        return True
    return skip == SKIP_SAME and has_other and same_cell(cell, other)


cdef int fit(Out *out, Py_ssize_t start, const Step *step) except -2:
    """Pad or cut what was written from `start` on (plan.Fitted). DECLINED if its width is not known here."""
    cdef Py_ssize_t i = start, width = 0, cut = -1
    cdef uint8_t value
    while i < out.size:
        value = <uint8_t>out.data[i]
        if value == 0x1B:               # an SGR sequence
            while i < out.size and out.data[i] != c"m":
                i += 1
            i += 1
            continue
        if width == step.most - 1:
            cut = i
        if 0x20 <= value < 0x7F:
            i += 1
        elif value == 0xE2 and is_mark(<const uint8_t *>out.data + i, out.size - i):
            i += 3
        else:
            return DECLINED
        width += 1
    if step.most and width > step.most:
        out.size = cut
        reserve(out, step.text.size)
        put(out, step.text.data, step.text.size)
    else:
        put_blanks(out, step.least - width)
    return 0


cdef inline bint is_mark(const uint8_t *p, Py_ssize_t size) noexcept:
    """Whether an arrow (U+2192) or an ellipsis (U+2026) starts here."""
    return size >= 3 and ((p[1] == 0x86 and p[2] == 0x92) or (p[1] == 0x80 and p[2] == 0xA6))


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
