"""Flushes of the load: fsync and fdatasync, as fio issues them.

A write is answered before its flush starts, so its latency does not hold it; the user then submits
the flush as a request of its own, waits for every member, and goes on. Source: fio 3.33, io_u.c
(a sync is an I/O unit of its own that takes one of the iodepth) and Linux md.c (md_flush_request).
"""

from __future__ import annotations

from collections.abc import Sequence

from nvmesim.network.builder import Row, op
from nvmesim.network.network import Op


def flushed_kinds(
    kinds: Sequence[tuple[bool, int, float]], sync_every: int
) -> list[tuple[bool, int, float, bool]]:
    """(write, bytes, share, flushes): one of *sync_every* writes has a flush behind it.

    Which one is drawn: it is every n-th on average, and the threads do not march in step.

    >>> flushed_kinds([(True, 4096, 1.0)], 4)
    [(True, 4096, 0.75, False), (True, 4096, 0.25, True)]
    """
    found = []
    for write, n_bytes, share in kinds:
        part = share / sync_every if write and sync_every else 0.0
        if share > part:
            found.append((write, n_bytes, share - part, False))
        if part:
            found.append((write, n_bytes, part, True))
    return found


def sync_rows(submit: Sequence[Row], flush: Sequence[Row], complete: Sequence[Row]) -> list[Row]:
    """Steps of a user once its write is answered: submit the flush, wait for it, reap it."""
    submitted = [row for row in submit if row[0] != Op.MARK]
    return [op(Op.ANSWER), *submitted, *flush, *complete]
