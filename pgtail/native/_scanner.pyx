# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# distutils: language = c
"""Compiled code: rows from bytes to text, Arrow columns or counts, without being decoded.

index() finds the messages of a buffer, and everything else is a function of a slice of them. What is not ordinary is
left to the decoder, which handles every message and reports errors. Every length is checked against the end of the
buffer before it is used.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE, _PyBytes_Resize
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from typing import get_args

from pgtail.native.plan import NoPlan, NotTested
from pgtail.pgoutput.cells import UNCHANGED
from pgtail.pgoutput.cells import Binary as BinaryCell
from pgtail.pgoutput.cursor import MAX_COLUMNS
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.values.codec import Undecoded

# One module, so that the C compiler inlines across these files; types stand before their use.
include "core/bytes.pyx"
include "values/json.pyx"
include "values/encode.pyx"
include "core/frames.pyx"
include "core/copy.pyx"
include "rows/plan.pyx"
include "rows/condition.pyx"
include "core/index.pyx"
include "rows/slice.pyx"
include "rows/copies.pyx"
include "rows/seen.pyx"
include "rows/text.pyx"
include "rows/columns.pyx"
include "rows/counts.pyx"


cdef int check_table(str what, native, python, str where="pgtail/native/plan.py") except -2:
    """Raise RuntimeError if a table of a Python file, by default native/plan.py, is not that of this build."""
    if native != python:
        raise RuntimeError(f"the compiled scanner has other {what} than {where}: build it again")
    return 0


cdef dict without_prefix(members):
    return {name.partition("_")[2]: <int>value for name, value in members.items()}


check_table("fields", without_prefix(Field.__members__), {one.name: one.value for one in pieces_module.Field if one < FIELDS})
check_table("operations", OPERATIONS, pieces_module.ROW_OPS)
check_table("skip codes", without_prefix(Skip.__members__), dict(pieces_module.Skip.__members__))
check_table("encoders", {"", *ENCODERS}, set(get_args(pieces_module.EncoderName)))
check_table("limits", LARGE, pieces_module.LARGE)
check_table("sizes of rows", SEEN_ROW_SIZE, pieces_module.SEEN_ROW_SIZE)
check_table("limits", MOST_COLUMNS, MAX_COLUMNS, "pgtail/pgoutput/cursor.py")
check_table("frames", HEADER, XLOG_HEADER_SIZE, "pgtail/pgoutput/decoder.py")
check_table("buffers", len(BUFFER_NAMES), BUFFERS, "pgtail/native/rows/columns.pyx")
