"""Linux md once more, written from the kernel's own functions and as plainly as possible.

Nothing here is fast or shared with the planner: a request is taken apart 4 KiB by 4 KiB. Sources:
Linux 6.1 drivers/md: raid0.c (find_zone, raid0_make_request), raid10.c (__raid10_find_phys,
raid10_make_request, raid10_size, calc_sectors), raid5.c (raid5_compute_sector,
chunk_aligned_read), and the rules of the md ground truth for rmw and rcw.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

BLOCK = 4096
Place = tuple[int, int]


def compute_sector(
    level: int, layout: str, n: int, chunk_number: int
) -> tuple[int, int, list[int]]:
    """(stripe, data member, parity members) of a data chunk: raid5_compute_sector."""
    data_disks = n - (1 if level == 5 else 2)
    stripe, dd = divmod(chunk_number, data_disks)
    if level == 5:
        pd = {
            "left-asymmetric": data_disks - stripe % n,
            "left-symmetric": data_disks - stripe % n,
            "right-asymmetric": stripe % n,
            "right-symmetric": stripe % n,
            "parity-first": 0,
            "parity-last": data_disks,
        }[layout]
        if layout.endswith("-symmetric"):
            dd = (pd + 1 + dd) % n
        elif layout != "parity-last" and dd >= pd:
            dd += 1
        return stripe, dd, [pd]
    if layout in ("left-asymmetric", "right-asymmetric"):
        pd = stripe % n if layout == "right-asymmetric" else n - 1 - stripe % n
        qd = pd + 1
        if pd == n - 1:
            dd, qd = dd + 1, 0
        elif dd >= pd:
            dd += 2
    elif layout in ("left-symmetric", "right-symmetric"):
        pd = n - 1 - stripe % n if layout.startswith("left") else stripe % n
        qd = (pd + 1) % n
        dd = (pd + 2 + dd) % n
    elif layout == "parity-first":
        pd, qd, dd = 0, 1, dd + 2
    else:
        pd, qd = data_disks, data_disks + 1
    return stripe, dd, [pd, qd]


def find_phys(n: int, kind: str, copies: int, chunk: int, size: int, byte: int) -> list[Place]:
    """Copies of a byte of a raid10: __raid10_find_phys with calc_sectors' stride."""
    near, far = (copies, 1) if kind == "near" else (1, copies)
    number, inside = divmod(byte, chunk)
    stripe, dev = divmod(number * near, n)
    if kind == "offset":
        stripe *= far
        stride = chunk
    else:
        chunks = size // chunk // far * n // near * (near * far)
        stride = -(-chunks // n) // far * chunk
    sector = inside + stripe * chunk
    places = []
    for _ in range(near):
        d, s = dev, sector
        places.append((d, s))
        for _ in range(1, far):
            d = (d + near) % n
            s += stride
            places.append((d, s))
        dev += 1
        if dev >= n:
            dev, sector = 0, sector + chunk
    return places


def raid10_capacity(n: int, kind: str, copies: int, chunk: int, size: int) -> int:
    """Bytes of a raid10: raid10_size."""
    near, far = (copies, 1) if kind == "near" else (1, copies)
    return size // chunk // far * n // near * chunk


def raid0_place(sizes: list[int], chunk: int, byte: int, *, alternate: bool) -> Place:
    """Member and offset of a byte of a raid0, zone after zone, chunk after chunk."""
    whole = [size // chunk for size in sizes]
    used = [0] * len(sizes)
    number, first = 0, 0
    while True:
        alive = [m for m in range(len(sizes)) if used[m] < whole[m]]
        rows = min(whole[m] - used[m] for m in alive)
        length = rows * len(alive)
        if byte // chunk < number + length:
            at = byte // chunk - number
            turn = (byte // chunk - first) % len(alive)
            member = alive[turn]
            return member, (used[member] + at // len(alive)) * chunk + byte % chunk
        for m in alive:
            used[m] += rows
        number += length
        first = number if alternate else 0


def split(offset: int, length: int, limit: int, boundary: int | None) -> list[tuple[int, int]]:
    """Pieces of a request: at *limit* from its start, and each of these at *boundary*.

    A byte begins a new piece if it is a whole number of limits from the start, or on a boundary.
    """
    marks = set(range(offset, offset + length, limit)) | {offset + length}
    if boundary is not None:
        first = -(-offset // boundary) * boundary
        marks |= set(range(first, offset + length, boundary))
    ordered = sorted(marks)
    return [(a, b - a) for a, b in pairwise(ordered)]


def rows_of(
    level: int, layout: str, n: int, chunk: int, offset: int, length: int
) -> Iterator[tuple[int, dict[int, int], list[int], list[int]]]:
    """(row, member -> bytes covered, parity members, all data members) of each 4 KiB row."""
    covered: dict[int, dict[int, int]] = {}
    for byte in range(offset // 512 * 512, offset + length, 512):
        stripe, member, _ = compute_sector(level, layout, n, byte // chunk)
        row = (stripe * chunk + byte % chunk) // BLOCK
        covered.setdefault(row, Counter())[member] += 512
    data_disks = n - (1 if level == 5 else 2)
    for row, found in covered.items():
        stripe = row * BLOCK // chunk
        chunks = [
            compute_sector(level, layout, n, stripe * data_disks + i) for i in range(data_disks)
        ]
        yield row, found, chunks[0][2], [member for _, member, _ in chunks]


def write_row(
    n: int, found: dict[int, int], parity: list[int], data: list[int], lost: set[int],
    rmw_level: int,
) -> tuple[set[int], set[int]]:  # fmt: skip
    """(members read, members written) for one row that is not cached, at most one member lost."""
    full = {m for m, size in found.items() if size == BLOCK}
    touched = set(found)
    written = (touched | set(parity)) - lost
    if full == set(data):
        return set(), written
    modify = touched | set(parity)
    others = set(data) - full
    if lost & (touched - full):  # a partly written block that is lost: all others make it
        return set(range(n)) - lost, written
    cost_modify = len(modify - lost) + 2 * n * len(modify & lost)
    cost_others = len(others - lost) + 2 * n * len(others & lost)
    if rmw_level == 0:
        chosen = others
    elif rmw_level == 2 and cost_modify == cost_others:
        chosen = modify
    else:
        chosen = modify if cost_modify < cost_others else others
    if chosen & lost:  # it must be computed first, from all that is left
        return set(range(n)) - lost, written
    return chosen, written
