"""Compiled matching of issues and completions, one event after the other, in flat memory.

Requests in flight sit in a pool of nodes. A node is in a hash chain by (device, sector, sectors),
in order of issue, so the first match is the oldest. Devices that show no D events (md, dm) are
matched by bio instead: there a node is in its device's list, and ends when completions have
covered all its sectors.
"""

from __future__ import annotations

import numpy as np

from nvmesim.capture.requests import (
    LONGEST_NS,
    OTHER,
    OUT_BYTES,
    OUT_COMPLETE,
    OUT_DEPTH,
    OUT_DEVICE,
    OUT_ISSUE,
    OUT_OFFSET,
    OUT_OP,
    WRITE,
)
from nvmesim.capture.requests.kernel_cache import compiled

# Columns of the pool (a request is one cache line): what is known of a request in flight. LEFT:
# sectors still to complete; -1 in a hash chain, where a completion is always whole.
DEVICE, SECTOR, SECTORS, ISSUE, DEPTH, OP, NEXT, LEFT, N_FIELDS = range(9)

# Rows of the device table. COMMANDS: 1 once a D event was seen, after which Q events say nothing
# about the drive.
FLYING, COMMANDS, HEAD, TAIL, N_DEVICE_FIELDS = range(5)

# Counters. FREE: first free node, or -1. OTHERS: flushes, discards and the like that were paired,
# and are neither read nor write. UNRELATED: Q events (and their completions) of devices that
# turned out to have D events.
UNMATCHED, DUPLICATES, REQUEUES, FREE, LOST, OTHERS, UNRELATED, IN_FLIGHT, N_COUNTERS = range(9)

ISSUED, COMPLETED, QUEUED, REQUEUED = b"DCQR"


@compiled
def _bucket(device: int, sector: int, n: int, size: int) -> int:
    """Chain of a key; *size* is a power of two. Products stay far below 2**63 by the masks."""
    mixed = (sector & 0xFFFFFFFF) * 73_244_475 + (sector >> 32) * 40_503
    mixed = (mixed ^ (mixed >> 17)) + n * 97 + device * 7919
    return (mixed ^ (mixed >> 11)) & (size - 1)


@compiled
def _take(
    pool: np.ndarray, devices: np.ndarray, counters: np.ndarray, time: int, device: int,
    sector: int, n: int, op: int, left: int,
) -> int:  # fmt: skip
    """A node off the free list, filled; the caller has made sure that there is one."""
    node = counters[FREE]
    counters[FREE] = pool[node, NEXT]
    counters[IN_FLIGHT] += 1
    devices[FLYING, device] += 1
    pool[node, NEXT] = -1
    pool[node, DEVICE] = device
    pool[node, SECTOR] = sector
    pool[node, SECTORS] = n
    pool[node, ISSUE] = time
    pool[node, DEPTH] = devices[FLYING, device]
    pool[node, OP] = op
    pool[node, LEFT] = left
    return int(node)


@compiled
def _give(pool: np.ndarray, counters: np.ndarray, node: int) -> None:
    pool[node, NEXT] = counters[FREE]
    counters[FREE] = node
    counters[IN_FLIGHT] -= 1


@compiled
def _same(pool: np.ndarray, node: int, device: int, sector: int, n: int) -> bool:
    return bool(
        pool[node, SECTOR] == sector and pool[node, SECTORS] == n and pool[node, DEVICE] == device
    )


@compiled
def _chain(
    pool: np.ndarray, heads: np.ndarray, devices: np.ndarray, counters: np.ndarray, time: int,
    device: int, sector: int, n: int, op: int,
) -> int:  # fmt: skip
    """Put an issue at the end of its chain, so that equal keys complete in order of issue.

    Returns its node, -1 if it is there twice.
    """
    bucket = _bucket(device, sector, n, heads.shape[0])
    node = heads[bucket]
    last = -1
    while node >= 0:
        if pool[node, ISSUE] == time and _same(pool, node, device, sector, n):
            counters[DUPLICATES] += 1
            return -1
        last = node
        node = pool[node, NEXT]
    node = _take(pool, devices, counters, time, device, sector, n, op, -1)
    if last < 0:
        heads[bucket] = node
    else:
        pool[last, NEXT] = node
    return int(node)


@compiled
def _unchain(
    pool: np.ndarray, heads: np.ndarray, devices: np.ndarray, device: int, sector: int, n: int,
    newest: bool,
) -> int:  # fmt: skip
    """Take the oldest (or *newest*) issue of this key out of its chain; -1 if there is none."""
    bucket = _bucket(device, sector, n, heads.shape[0])
    node = heads[bucket]
    before = -1
    found = -1
    found_before = -1
    while node >= 0:
        if _same(pool, node, device, sector, n):
            found = node
            found_before = before
            if not newest:
                break
        before = node
        node = pool[node, NEXT]
    if found < 0:
        return -1
    if found_before < 0:
        heads[bucket] = pool[found, NEXT]
    else:
        pool[found_before, NEXT] = pool[found, NEXT]
    devices[FLYING, device] -= 1
    return int(found)


@compiled
def _append(
    pool: np.ndarray, devices: np.ndarray, counters: np.ndarray, time: int, device: int,
    sector: int, n: int, op: int,
) -> int:  # fmt: skip
    """Put a bio at the end of its device's list; its node, -1 if it is there twice."""
    tail = devices[TAIL, device]
    if tail >= 0 and pool[tail, ISSUE] == time and _same(pool, tail, device, sector, n):
        counters[DUPLICATES] += 1
        return -1
    node = _take(pool, devices, counters, time, device, sector, n, op, n)
    if tail < 0:
        devices[HEAD, device] = node
    else:
        pool[tail, NEXT] = node
    devices[TAIL, device] = node
    return int(node)


@compiled
def _cover(pool: np.ndarray, devices: np.ndarray, device: int, sector: int, n: int) -> int:
    """The bio that this completion finishes; -1: none holds it, -2: it has sectors left.

    An equal range is preferred to a larger one that holds it, the older to the newer.
    """
    node = devices[HEAD, device]
    before = -1
    found = -1
    found_before = -1
    while node >= 0:
        if pool[node, SECTOR] == sector and pool[node, SECTORS] == n:
            found = node
            found_before = before
            break
        inside = (
            pool[node, SECTOR] <= sector and sector + n <= pool[node, SECTOR] + pool[node, SECTORS]
        )
        if inside and found < 0:
            found = node
            found_before = before
        before = node
        node = pool[node, NEXT]
    if found < 0:
        return -1
    pool[found, LEFT] -= n
    if pool[found, LEFT] > 0:
        return -2
    if found_before < 0:
        devices[HEAD, device] = pool[found, NEXT]
    else:
        pool[found_before, NEXT] = pool[found, NEXT]
    if devices[TAIL, device] == found:
        devices[TAIL, device] = found_before
    devices[FLYING, device] -= 1
    return int(found)


@compiled
def _first_command(
    pool: np.ndarray, devices: np.ndarray, device: int, counters: np.ndarray
) -> None:
    """From its first D event on a device is matched by command; its bios so far are dropped."""
    devices[COMMANDS, device] = 1
    node = devices[HEAD, device]
    while node >= 0:
        after = pool[node, NEXT]
        _give(pool, counters, node)
        counters[UNRELATED] += 1
        node = after
    devices[HEAD, device] = -1
    devices[TAIL, device] = -1
    devices[FLYING, device] = 0


@compiled
def pair_events(
    events: np.ndarray, codes: np.ndarray, first: int, pool: np.ndarray, heads: np.ndarray,
    devices: np.ndarray, counters: np.ndarray, out: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Match events from *first* on; rows written to *out*, and the index where it stopped.

    events: int64[n, 4]: time ns (ascending), device index, sector, sectors >= 1. codes:
    uint8[2, n]: action letter, operation. pool: int64[room, N_FIELDS]. heads: int64[2**k].
    devices: int64[N_DEVICE_FIELDS, n_devices]. out: int64[N_OUT, at least n].
    It stops before n only when the pool is full: enlarge it and call again.
    """
    rows = 0
    i = first
    while i < events.shape[0] and counters[FREE] >= 0:
        time, device, sector, n = events[i, 0], events[i, 1], events[i, 2], events[i, 3]
        action, op = int(codes[0, i]), int(codes[1, i])
        node = -1
        if action == ISSUED:
            if devices[COMMANDS, device] == 0:
                _first_command(pool, devices, device, counters)
            _chain(pool, heads, devices, counters, time, device, sector, n, op)
        elif action == COMPLETED:
            if devices[COMMANDS, device] == 1:
                node = _unchain(pool, heads, devices, device, sector, n, False)
            else:
                node = _cover(pool, devices, device, sector, n)
            counters[UNMATCHED] += node == -1
        elif action == QUEUED and devices[COMMANDS, device] == 0:
            _append(pool, devices, counters, time, device, sector, n, op)
        elif action == REQUEUED and devices[COMMANDS, device] == 1:
            lost = _unchain(pool, heads, devices, device, sector, n, True)
            if lost >= 0:
                counters[REQUEUES] += 1
                _give(pool, counters, lost)
        if node >= 0:
            kind = pool[node, OP]
            if time - pool[node, ISSUE] > LONGEST_NS:
                counters[LOST] += 1
            elif time < pool[node, ISSUE]:  # of two batches, each in order of time
                counters[LOST] += 1
                counters[UNMATCHED] += 1
            elif kind <= WRITE or kind > OTHER:
                out[OUT_ISSUE, rows] = pool[node, ISSUE]
                out[OUT_COMPLETE, rows] = time
                out[OUT_OFFSET, rows] = pool[node, SECTOR] * 512
                out[OUT_BYTES, rows] = pool[node, SECTORS] * 512
                out[OUT_DEVICE, rows] = pool[node, DEVICE]
                out[OUT_DEPTH, rows] = pool[node, DEPTH]
                out[OUT_OP, rows] = pool[node, OP]
                rows += 1
            else:
                counters[OTHERS] += 1
            _give(pool, counters, node)
        i += 1
    return rows, i


@compiled
def keep_younger(
    old: np.ndarray, pool: np.ndarray, heads: np.ndarray, devices: np.ndarray, counters: np.ndarray,
    horizon: int,
) -> None:  # fmt: skip
    """Move what was issued at *horizon* or later from *old*, in order, to an empty pool.

    old: int64[n, N_FIELDS], nodes in order of issue. The rest counts as lost.
    """
    for i in range(old.shape[0]):
        if old[i, ISSUE] < horizon:
            counters[LOST] += 1
            continue
        device, sector, n = old[i, DEVICE], old[i, SECTOR], old[i, SECTORS]
        time, op, left = old[i, ISSUE], old[i, OP], old[i, LEFT]
        if left >= 0:
            node = _append(pool, devices, counters, time, device, sector, n, op)
        else:
            node = _chain(pool, heads, devices, counters, time, device, sector, n, op)
        if node >= 0:
            pool[node, DEPTH] = old[i, DEPTH]
            pool[node, LEFT] = left
