"""Counts the commits of ordinary transactions for `pgtail stats`; Transactions.add() and Rate.add() count the others."""

cdef enum:
    LEADING_BITS = 5        # as in stats/histogram.py
    BUCKETS = 60 << LEADING_BITS

cdef struct Numbers:
    Py_ssize_t counts[BUCKETS]      # by the bits that are dropped and the leading ones
    Py_ssize_t total, maximum


cdef inline void add_number(Numbers *numbers, Py_ssize_t number) noexcept:
    """The same as Histogram.add()."""
    cdef int drop = 0
    while number >> drop >> LEADING_BITS:
        drop += 1
    numbers.counts[(drop << LEADING_BITS) + (number >> drop)] += 1
    numbers.total += number
    if number > numbers.maximum:
        numbers.maximum = number


cdef tuple taken_numbers(Numbers *numbers):
    """The arguments for Histogram.merge(); resets the counts."""
    cdef dict buckets = {}
    cdef Py_ssize_t i, total = numbers.total, maximum = numbers.maximum
    cdef int drop
    for i in range(BUCKETS):
        if numbers.counts[i]:
            drop = <int>(i >> LEADING_BITS)
            buckets[(((i & 31) + 1) << drop) - 1] = numbers.counts[i]
            numbers.counts[i] = 0
    numbers.total = numbers.maximum = 0
    return buckets, total, maximum


@cython.final
cdef class Commits:
    """The ordinary transactions of a run.

    A transaction is ordinary if it is not larger than the largest that are kept, its commit is later in the WAL than
    the one before, and no commit times are to be thinned out.
    """

    cdef object stats
    cdef bint loaded                # whether the next four lines were read since the last other commit of this run
    cdef list points                # of CommitTimes
    cdef Py_ssize_t room            # for points
    cdef Py_ssize_t least_rows, least_bytes
    cdef int64_t least_time, width  # of Largest, of the bins of Rate
    cdef Numbers rows, bytes
    cdef uint32_t xid               # of the last ordinary transaction, as the next two
    cdef uint64_t lsn
    cdef int64_t time
    cdef bint is_last               # whether no other was added after it
    cdef Py_ssize_t bin_rows, bin_bytes     # not added to Rate yet; all in the bin of `time`

    def __cinit__(self, stats):
        self.stats = stats

    cdef int load(self) except -2:
        transactions = self.stats.transactions
        self.points, self.room = transactions.commits.points, transactions.commits.room
        self.least_rows, self.least_bytes = transactions.by_rows.least, transactions.by_bytes.least
        self.least_time = min(max(0, transactions.by_time.least), 0x7FFFFFFFFFFFFFFF)
        self.width = self.stats.rate.width
        self.loaded = True
        return 0

    cdef int others_added(self) except -2:
        """A commit was counted by Transactions.add() and Rate.add()."""
        self.loaded = self.is_last = False
        return 0

    cdef bint add(
        self, uint32_t xid, uint64_t lsn, int64_t time, Py_ssize_t rows, Py_ssize_t size, uint64_t first_lsn
    ) except *:
        """Count a commit, or return False if it is not ordinary. Times are in microseconds since 2000."""
        if not self.loaded:
            self.load()
        if rows > self.least_rows or size > self.least_bytes or time < 0 or len(self.points) >= self.room:
            return False
        if not self.points or lsn < self.lsn_of(len(self.points) - 1):
            return False
        if first_lsn and self.may_be_longest(first_lsn, time):
            return False
        self.points.append((lsn, time))
        add_number(&self.rows, rows)
        add_number(&self.bytes, size)
        if self.bin_rows and time // self.width != self.time // self.width:
            self.publish_bin()
        self.bin_rows += rows
        self.bin_bytes += size
        self.xid, self.lsn, self.time, self.is_last = xid, lsn, time, True
        return True

    cdef inline uint64_t lsn_of(self, Py_ssize_t place) except? 0:
        return (<tuple>self.points[place])[0]

    cdef bint may_be_longest(self, uint64_t first_lsn, int64_t time) except *:
        """Whether the time since the first commit after `first_lsn` is to be kept: see CommitTimes.since()."""
        cdef Py_ssize_t low = 0, high = len(self.points), middle
        cdef int64_t earlier
        if self.lsn_of(high - 1) <= first_lsn:
            return False
        while low < high:
            middle = (low + high) >> 1
            if self.lsn_of(middle) <= first_lsn:
                low = middle + 1
            else:
                high = middle
        earlier = (<tuple>self.points[low])[1]
        return earlier < 0 or time - earlier > self.least_time

    cdef int publish_bin(self) except -2:
        self.stats.rate.add(self.time, self.bin_rows, self.bin_bytes)
        self.bin_rows = self.bin_bytes = 0
        self.width = self.stats.rate.width
        return 0

    cdef int publish(self) except -2:
        """Add what was counted to the Statistics: at the end of a run."""
        if self.bin_rows:
            self.publish_bin()
            last = (self.xid, self.lsn, self.time) if self.is_last else None
            self.stats.merge(last, taken_numbers(&self.rows), taken_numbers(&self.bytes))
        self.loaded = self.is_last = False
        return 0
