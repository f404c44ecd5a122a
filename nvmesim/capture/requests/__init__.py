"""Tables of single requests: pairing, depth, statistics in flat memory; codes that they share."""

from typing import Final

READ, WRITE, FLUSH, OTHER, UNKNOWN = range(5)
"""Operations."""
UNKNOWN_TIME: Final = -(2**62)
"""Stands for a time (or offset) that a format does not have; null in the table."""
LONGEST_NS: Final = 3_600 * 10**9
"""No command takes an hour: such a pair is two requests with events lost between."""

OUT_ISSUE, OUT_COMPLETE, OUT_OFFSET, OUT_BYTES, OUT_DEVICE, OUT_DEPTH, OUT_OP, N_OUT = range(8)
"""Rows of the requests of a block, int64[N_OUT, n]."""
