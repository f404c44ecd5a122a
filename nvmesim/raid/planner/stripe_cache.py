"""The stripe cache of raid5 and raid6: which blocks of which 4 KiB rows md still holds.

Rows live in eight buckets (row modulo 8), each an LRU list with an eighth of ``stripe_cache_size``.
Source: Linux drivers/md/raid5.c, stripe_hash_locks_hash and get_free_stripe.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

N_BUCKETS: Final = 8


class StripeCache:
    """Blocks that are up to date, a set of members (bits of an int) for each cached row.

    >>> cache = StripeCache(256)
    >>> cache.put(7, 0b1011)
    >>> cache.get(7), cache.get(8)
    (11, 0)
    """

    def __init__(self, n_rows: int) -> None:
        self._depth = max(1, n_rows // N_BUCKETS)
        self._buckets: list[OrderedDict[int, int]] = [OrderedDict() for _ in range(N_BUCKETS)]

    def get(self, row: int) -> int:
        """Members whose block of *row* is up to date; 0 when the row is not cached."""
        return self._buckets[row % N_BUCKETS].get(row, 0)

    def put(self, row: int, members: int) -> None:
        """Note what is up to date in *row* after its use; the least recently used row goes."""
        bucket = self._buckets[row % N_BUCKETS]
        bucket[row] = members
        bucket.move_to_end(row)
        if len(bucket) > self._depth:
            bucket.popitem(last=False)

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets)
