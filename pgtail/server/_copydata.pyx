# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# distutils: language = c
"""Floor 5, the compiled way of server/copydata.py: frames out of libpq without Python between its calls.

It calls the libpq that psycopg has loaded, with the connection that psycopg holds: for such calls there is
psycopg.pq.PGconn.pgconn_ptr. What libpq answers is told as it is; what to make of it is known elsewhere.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

cdef extern from "<dlfcn.h>":
    int RTLD_LAZY
    int RTLD_NOLOAD
    void *dlopen(const char *path, int mode)
    void *dlsym(void *library, const char *name)

cdef extern from "<poll.h>" nogil:
    short POLLIN
    short POLLOUT
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int milliseconds)

SOURCE = "0406bbc77e28e596089e784d6af8de667fffe81492cd74c9b45991973782b87c"
"""SHA-256 of this file with zeros in this place (tests/tools/stamp_compiled.py): tells a stale build from a fresh one."""

cdef enum:
    BROKEN = -2             # as PQgetCopyData says it
    NO_MEMORY = -3
    LENGTH = 4              # of the length before each frame
    KIND = 25               # where in a w frame the message's tag stands
    WATCHED = 8             # descriptors at most

ctypedef int (*ConsumeInput)(void *conn) noexcept nogil
ctypedef int (*GetCopyData)(void *conn, char **data, int asynchronous) noexcept nogil
ctypedef int (*Socket)(void *conn) noexcept nogil
ctypedef void (*FreeMem)(void *data) noexcept nogil


cdef void *function(void *library, const char *name) except NULL:
    """A function of libpq. Raises ImportError."""
    cdef void *found = dlsym(library, name)
    if found == NULL:
        raise ImportError(f"{name.decode()} was not found")
    return found


cdef class Reader:
    """As the one of copydata.py. `library` is the path of a library that is loaded and was linked with libpq: psycopg's own."""

    cdef public bint stopped
    cdef ConsumeInput consume_input
    cdef GetCopyData get_copy_data
    cdef Socket socket
    cdef FreeMem freemem
    cdef Py_ssize_t most, few, size, room
    cdef int soon
    cdef bytes kept
    cdef const char *amid
    cdef Py_ssize_t kinds
    cdef char *frames

    def __init__(self, library, most, few, soon, amid):
        cdef void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD)
        if loaded == NULL:
            raise ImportError(f"{library.decode()} is not loaded")
        self.consume_input = <ConsumeInput>function(loaded, b"PQconsumeInput")
        self.get_copy_data = <GetCopyData>function(loaded, b"PQgetCopyData")
        self.socket = <Socket>function(loaded, b"PQsocket")
        self.freemem = <FreeMem>function(loaded, b"PQfreemem")
        self.most, self.few, self.soon, self.kept = most, few, soon, amid
        self.amid, self.kinds = self.kept, len(self.kept)

    def __dealloc__(self):
        free(self.frames)

    def next(self, pgconn, writing, others, milliseconds, at_once=None):
        cdef uintptr_t conn = pgconn.pgconn_ptr or 0
        cdef int timeout = milliseconds
        cdef bint writable = False
        cdef int count = 1
        cdef int outcome
        cdef pollfd watched[WATCHED]
        watched[0].fd = self.socket(<void *>conn) if conn else -1
        watched[0].events = POLLIN | POLLOUT if writing else POLLIN
        if watched[0].fd < 0:
            return b"", BROKEN, False, []
        for watched[count].fd, watched[count].events in others[: WATCHED - 1]:
            count += 1
        with nogil:
            if poll(watched, count, timeout) <= 0:
                count = 1
            else:
                writable = watched[0].revents & POLLOUT
            outcome = self.gather(<void *>conn)
        if outcome == NO_MEMORY:
            raise MemoryError
        found = PyBytes_FromStringAndSize(self.frames, self.size)
        if self.room > 2 * self.most:
            free(self.frames)
            self.frames, self.room = NULL, 0
        if at_once is not None and found:
            at_once(found)
        return found, outcome, writable, [watched[i].fd for i in range(1, count) if watched[i].revents]

    cdef int gather(self, void *conn) noexcept nogil:
        """Put what there is into `frames`; returns 0, or what ended it."""
        cdef Py_ssize_t before = -1
        cdef char *data
        cdef int length, kind
        self.size = 0
        while before < self.size < self.most and not self.stopped:
            before = self.size
            kind = 0
            if self.consume_input(conn) != 1:
                return BROKEN
            while True:
                length = self.get_copy_data(conn, &data, 1)
                if length <= 0:
                    break
                if self.stopped:
                    self.freemem(data)
                    break
                if not self.keep(data, length):
                    self.freemem(data)
                    return NO_MEMORY
                kind = data[KIND] if length > KIND else 0
                self.freemem(data)
            if length < 0:
                return length
            if self.size < self.few and not (kind and memchr(self.amid, kind, self.kinds) and self.readable(conn)):
                break
        return 0

    cdef bint keep(self, const char *data, int length) noexcept nogil:
        """Put a frame behind the others; returns whether there was memory for it."""
        cdef Py_ssize_t end = self.size + LENGTH + length
        cdef Py_ssize_t room
        cdef uint8_t *place
        cdef void *grown
        if end > self.room:
            room = max(end, min(2 * self.room, self.room + self.most))
            grown = realloc(self.frames, room)
            if grown == NULL:
                return False
            self.frames, self.room = <char *>grown, room
        place = <uint8_t *>self.frames + self.size
        place[0], place[1], place[2], place[3] = length >> 24, length >> 16, length >> 8, length
        memcpy(place + LENGTH, data, length)
        self.size = end
        return True

    cdef bint readable(self, void *conn) noexcept nogil:
        """Whether more comes soon."""
        cdef pollfd wanted
        wanted.fd, wanted.events = self.socket(conn), POLLIN
        return poll(&wanted, 1, self.soon) > 0
