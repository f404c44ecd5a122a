"""Flushes of the load: fsync and fdatasync, as fio issues them.

A write is answered before its flush starts, so its latency does not hold it; the user then submits
the flush as a request of its own, waits for every member, and goes on. Source: fio 3.33, io_u.c
(a sync is an I/O unit of its own that takes one of the iodepth) and Linux md.c (md_flush_request).

An fsync of a file commits the journal of its file system. All threads share one file and one commit
runs at a time: whoever comes before its flush joins it. File times change once a tick, so in the
tick of the last commit there is nothing to commit and a thread flushes by itself. ext4: a journal
write, a flush, and a record that must reach the media; XFS: a log write behind a flush. Sources:
Linux fs/ext4/fsync.c, fs/jbd2/commit.c, fs/xfs/xfs_file.c (xfs_file_fsync),
Documentation/filesystems/multigrain-ts.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nvmesim.network.builder import Row, op
from nvmesim.network.network import Op

TICK_PS: Final = 10**9
"""Of kernels with HZ = 1000, as measured: one busy file makes 999 to 1,000 commits a second."""
JOURNAL: Final = {"ext4": 12288, "xfs": 0}
"""Bytes that a commit writes before its flush; counted on ext4: commits of 12 KiB."""
RECORD: Final = 4096
"""Bytes of the record that ends a commit."""


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


def commit_rows(turn: int, flush: Sequence[Row], record: Row, journal: Sequence[Row]) -> list[Row]:
    """Steps of an fsync on a file system whose commits are the *turn*.

    The leader writes the *journal*, then closes the commit, and ends it with a *flush* and the
    *record*; who comes in the tick of the last commit only flushes.
    """
    lead = [*journal, op(Op.CLOSE, turn), *flush, record, op(Op.LEAVE, turn, len(flush))]
    join = op(Op.JOIN, turn, len(lead) + len(flush), len(lead), TICK_PS)
    return [join, *lead, *flush]
