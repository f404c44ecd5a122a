"""Requests on raid0, raid1 and raid10: cut, copied, and merged again.

The block layer first cuts a request into pieces of the volume's max_sectors counted from the
request's own start (for raid0 that is the chunk), then md cuts each at chunk boundaries. Hence a
misaligned request of k chunks on raid0 is 2k bios. Source: md ground truth, kernel 6.1.192.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.map import Place
from nvmesim.raid.planner.merge import merge_bios

BARRIER_UNIT: Final = 64 << 20
"""Source: Linux drivers/md/raid1.h, BARRIER_UNIT_SECTOR_SIZE, since 4.11."""

RawChild = tuple[tuple[int, ...], bool, int, int, int]
"""Member alternatives, is a write, member offset, bytes, bios."""
Piece = tuple[int, int]
"""Start on the volume and length, bytes."""


def submission_pieces(offset: int, length: int, cut: int, chunk: int | None) -> list[Piece]:
    """Pieces of a request in the order in which raid1, 10, 5 and 6 submit them.

    A remainder is queued behind what was cut off before it, and newer remainders before older ones,
    so the tails of misaligned pieces come last and backwards.
    Source: Linux block/blk-core.c, __submit_bio_noacct.

    >>> [start for start, _ in submission_pieces(32, 128, cut=64, chunk=64)]
    [32, 96, 128, 64]
    """
    work = [(offset, length)]
    done: list[Piece] = []
    while work:
        start, left = work.pop(0)
        rest: list[tuple[int, int]] = []
        if left > cut:
            rest.append((start + cut, left - cut))
            left = cut
        if chunk is not None:
            inside = chunk - start % chunk
            if left > inside:
                rest.append((start + inside, left - inside))
                left = inside
        done.append((start, left))
        work = rest + work
    return done


def striped_pieces(offset: int, length: int, cut: int, chunk: int) -> list[Piece]:
    """Pieces of a raid0 request in order: of each piece that crosses a chunk the tail comes first.

    Source: Linux drivers/md/raid0.c, raid0_make_request as of 6.1.192 and 6.12.

    >>> [start for start, _ in striped_pieces(32, 128, cut=64, chunk=64)]
    [64, 32, 128, 96]
    """
    done: list[Piece] = []
    for start in range(offset, offset + length, cut):
        left = min(cut, offset + length - start)
        inside = chunk - start % chunk
        if left > inside:
            done.append((start + inside, left - inside))
        done.append((start, min(left, inside)))
    return done


def split_unit(geometry: RaidGeometry) -> int | None:
    """Bytes at whose multiples md splits a request; None: nowhere.

    raid1 splits where its barriers change hands; raid10 at chunks, unless every member holds a copy
    of every chunk. Source: Linux drivers/md/raid1.c, align_to_barrier_unit_end; raid10.c,
    raid10_make_request.

    >>> [split_unit(RaidGeometry(10, n, 65536)) for n in (2, 3)]
    [None, 65536]
    """
    if geometry.level == 1:
        return BARRIER_UNIT if geometry.kernel != "none" else None
    kind, copies = geometry.record.copies_of(geometry.members, geometry.layout_name)
    if kind == "near" and copies == geometry.members:
        return None
    return geometry.chunk


def crosses_barriers(geometry: RaidGeometry, block_size: int, step: int, offset: int) -> bool:
    """True if some of the requests at offset + k * step cross a barrier unit of a raid1.

    >>> mirror = RaidGeometry(1, 2)
    >>> [crosses_barriers(mirror, 65536, *at) for at in ((65536, 65536), (4096, 0), (65536, 4096))]
    [False, True, True]
    """
    if geometry.level != 1 or split_unit(geometry) is None:
        return False
    grid = math.gcd(step, BARRIER_UNIT)
    return offset % grid + block_size > grid


def plan_pieces(
    geometry: RaidGeometry, op: Op, offset: int, length: int, *, below: bool = False
) -> list[RawChild]:
    """Children of one request on a raid0, raid1 or raid10.

    *below* says that the request lies where rebuilding members are good already.
    """
    level = geometry.level
    if level == 0 and geometry.kernel != "none":
        cut = min(geometry.chunk, geometry.max_sectors)
        pieces = striped_pieces(offset, length, cut, geometry.chunk)
    else:
        pieces = submission_pieces(offset, length, geometry.max_sectors, split_unit(geometry))
    if op == "read":
        found = []
        for start, size in pieces:
            order = read_order(geometry, geometry.address_map.locate(start), below)
            found.append((tuple(member for member, _ in order), False, order[0][1], size, 1))
        return found
    bios = [
        (member, member_offset, size)
        for start, size in pieces
        for member, member_offset in geometry.address_map.locate(start)
        if member not in geometry.degraded
    ]
    # Kernel 6.1 plugs a write as a whole; 6.12 does so only for the sake of a bitmap.
    newest_first = geometry.kernel == "6.1"
    if not newest_first and (level == 0 or geometry.bitmap == "none"):
        return [((member,), True, start, size, 1) for member, start, size in bios]
    commands = merge_bios(bios, newest_first, geometry.max_sectors)
    return [((c.member,), True, c.start, c.end - c.start, c.bios) for c in commands]


def read_order(geometry: RaidGeometry, places: Sequence[Place], below: bool) -> list[Place]:
    """Copies that a read may go to, md's preference first.

    raid10 reads only non-rotational copies if members are mixed, and of a far or offset layout on
    rotational members always the first copy.
    """
    lost = geometry.degraded if below else geometry.lost
    live = [place for place in places if place[0] not in lost]
    if geometry.level == 1:
        live = [p for p in live if p[0] not in geometry.write_mostly] or live
    elif geometry.level == 10 and geometry.rotational:
        flags = geometry.rotational
        fast = [place for place in live if not flags[place[0]]]
        if fast:
            live = fast
        elif not geometry.layout_name.startswith("near"):
            live = live[:1]
    return live[:1] if geometry.read_policy == "first" else live
