# What the parts of the module declare to each other: each .pxd stands beside the file that it is of.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

include "core/index.pxd"
include "rows/slice.pxd"
