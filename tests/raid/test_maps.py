"""Address maps against md's own functions, written again as plainly as possible; up to 24 members.

Sources: Linux 6.1 drivers/md: raid0.c (find_zone), raid10.c (__raid10_find_phys, raid10_size,
calc_sectors), raid5.c (raid5_compute_sector). What requests do is held to a real md: test_md_cases.
"""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvmesim.errors import GeometryError
from nvmesim.raid.geometry import RaidGeometry, survives
from nvmesim.raid.map import raid_map

KIB = 1024
BLOCK = 4 * KIB
LAYOUTS = ["left-symmetric", "left-asymmetric", "right-symmetric", "right-asymmetric",
           "parity-first", "parity-last"]  # fmt: skip
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


@pytest.mark.parametrize("level", [5, 6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parity_maps_to_24_members(level, layout):
    """Two periods of every layout, each chunk's place and its parity."""
    chunk = 8 * KIB
    for n in range(3 if level == 5 else 4, 25):
        found = raid_map(level, n, chunk, layout)
        data = n - (1 if level == 5 else 2)
        for number in range(2 * n * data):
            stripe, member, parity = compute_sector(level, layout, n, number)
            offset = number * chunk + 4097 % chunk
            place = (member, stripe * chunk + 4097 % chunk)
            assert found.locate(offset) == [place]
            assert found.data_at(*place) == offset
            assert [m for m, _ in found.parity(offset)] == parity
            assert len({member, *parity}) == 1 + len(parity)


@pytest.mark.parametrize("kind", ["near", "far", "offset"])
def test_mirror_maps_to_24_members(kind):
    """Every number of copies up to the members, on sizes that do not divide evenly."""
    chunk = 4 * KIB
    for n in range(2, 25):
        for copies in range(1, n + 1):
            size = (2 * copies + 3) * chunk + 512
            found = raid_map(10, n, chunk, f"{kind}{copies}", size)
            capacity = raid10_capacity(n, kind, copies, chunk, size)
            assert found.capacity == capacity
            for offset in range(0, capacity, chunk):
                places = find_phys(n, kind, copies, chunk, size, offset + 5)
                assert found.locate(offset + 5) == places
                assert {found.data_at(*place) for place in places} == {offset + 5}
                assert len({member for member, _ in places}) == copies


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_striped_maps_of_unequal_members(data):
    chunk = data.draw(st.sampled_from([4 * KIB, 12 * KIB]))
    n = data.draw(st.integers(2, 24))
    sizes = [data.draw(st.integers(1, 6)) * chunk + data.draw(st.integers(0, 2)) * 512
             for _ in range(n)]  # fmt: skip
    for layout in ("original", "alternate"):
        found = raid_map(0, n, chunk, layout, sizes)
        assert found.capacity == sum(size // chunk for size in sizes) * chunk
        for offset in range(0, found.capacity, chunk):
            place = raid0_place(sizes, chunk, offset + 7, alternate=layout == "alternate")
            assert found.locate(offset + 7) == [place]
            assert found.data_at(*place) == offset + 7


@pytest.mark.parametrize("kind", ["near", "far", "offset"])
def test_which_mirrors_survive(kind):
    """An array lives while every chunk has a copy left; every set of missing members is tried."""
    for n in range(2, 8):
        for copies in range(1, n + 1):
            places = [
                {m for m, _ in find_phys(n, kind, copies, BLOCK, 64 * n * BLOCK, k * BLOCK)}
                for k in range(2 * n)
            ]
            for k in range(n + 1):
                for missing in combinations(range(n), k):
                    alive = all(held - set(missing) for held in places)
                    assert survives(10, n, f"{kind}{copies}", missing) == alive
                    if not alive:
                        with pytest.raises(GeometryError, match="has failed"):
                            RaidGeometry(10, n, BLOCK, f"{kind}{copies}", degraded=missing)
