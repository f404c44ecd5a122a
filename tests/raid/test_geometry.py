"""Geometries and address maps: every measured block, and md's own functions up to 24 members.

These are written again as plainly as possible, from Linux 6.1 drivers/md: raid0.c (find_zone),
raid10.c (__raid10_find_phys, raid10_size, calc_sectors), raid5.c (raid5_compute_sector).
"""

import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvmesim.errors import GeometryError, InputError, LimitError
from nvmesim.raid.geometry import RaidGeometry, survives
from nvmesim.raid.map import BLOCK, raid_map
from nvmesim.raid.planner.pieces import planning
from tests.raid.md_truth import DATA, KIB, rows_of
from tests.raid.requests import plan_request


@pytest.mark.parametrize(("level", "members", "most"), [(0, 4, 0), (1, 3, 2), (5, 4, 1), (6, 5, 2)])
def test_which_losses_an_array_survives(level, members, most):
    """Of raid10 every set of missing members is tried in `test_maps`."""
    for lost in (tuple(range(most)), tuple(range(most + 1))):
        lives = len(lost) <= most
        assert survives(level, members, "", lost) == lives
        if not lives:
            with pytest.raises(GeometryError, match="has failed"):
                RaidGeometry(level, members, 64 * KIB, degraded=lost)


def test_texts_and_the_least_that_is_taken():
    geometry = RaidGeometry("raid10", 4, "64 KiB", "n2")
    assert (geometry.level, geometry.chunk, geometry.layout) == (10, 65536, "near2")
    geometry = RaidGeometry(5, 4, 4 * KIB, max_sectors=4 * KIB, max_segments=1, stripe_cache=17)
    assert geometry.max_segments == 1
    assert RaidGeometry("raid1", 2).chunk == 0
    found = raid_map("raid5", 4, "64 KiB")
    assert found.capacity is None
    assert found.locate(10**15)


def test_flushes_bitmaps_and_spared_members():
    geometry = RaidGeometry(5, 4, 64 * KIB, degraded=(3,), bitmap="internal")
    plan = plan_request(geometry, "write", 0, 4096, first_dirty=True, flush=True)
    first, *_, last = plan.phases
    assert [(c.member_alternatives, c.n_bytes) for c in first] == [((m,), 512) for m in range(3)]
    assert [(c.member_alternatives, c.n_bytes) for c in last] == [((m,), 0) for m in range(3)]
    assert {(c.member_offset, c.n_bios) for c in (*first, *last)} == {(0, 1)}
    geometry = RaidGeometry(
        5, 4, 64 * KIB, rebuilding=(0,), rebuilt=0.5, member_size=64 * KIB * 100
    )
    low = plan_request(geometry, "read", 0, 4096)
    high = plan_request(geometry, "read", 192 * KIB * 80, 4096)
    assert low.count("read")[0] == 1
    assert high.count("read")[0] == 3
    for lost, readers in (((), (1, 2)), ((1,), (2,)), ((1, 2), (0,))):
        geometry = RaidGeometry(1, 3, write_mostly=(0,), degraded=lost)
        ((child,),) = plan_request(geometry, "read", 0, 4 * KIB).phases
        assert child.member_alternatives == readers


@pytest.mark.parametrize(
    ("kernel", "bitmap", "bios"), [("6.1", "none", 2), ("6.12", "none", 1), ("6.12", "internal", 2)]
)
def test_chunks_of_a_mirrored_write_merge_where_md_plugs(kernel, bitmap, bios):
    geometry = RaidGeometry(10, 4, 64 * KIB, kernel=kernel, bitmap=bitmap)
    (children,) = plan_request(geometry, "write", 0, 256 * KIB).phases
    assert {c.n_bios for c in children} == {bios}
    assert sum(c.n_bytes for c in children) == 512 * KIB
    stripes = RaidGeometry(0, 2, 64 * KIB, kernel=kernel, bitmap=bitmap)
    (children,) = plan_request(stripes, "write", 0, 256 * KIB).phases
    assert {c.n_bios for c in children} == {2 if kernel == "6.1" else 1}


def test_large_requests_far_copies_and_places_that_do_not_exist():
    """max_sectors_kb is 1,280 where nobody sets it (BLK_DEF_MAX_SECTORS)."""
    (children,) = plan_request(RaidGeometry(1, 2), "write", 0, 2048 * KIB).phases
    of_one = [(c.member_offset, c.n_bytes) for c in children if c.member_alternatives == (0,)]
    assert of_one == [(0, 1280 * KIB), (1280 * KIB, 768 * KIB)]
    far = RaidGeometry(10, 4, 64 * KIB, "far2", member_size=1024 * KIB)
    assert far.address_map.locate(0) == [(0, 0), (1, 512 * KIB)]
    assert RaidGeometry(10, 4, 64 * KIB, "near2").address_map.member_sizes is None
    found = raid_map(5, 4, CHUNK, member_size=CHUNK)
    with pytest.raises(InputError, match="below the capacity, 196608"):
        found.locate(3 * CHUNK)
    with pytest.raises(GeometryError, match="give member_size"):
        raid_map(10, 4, CHUNK, "far2").locate(0)


@pytest.mark.parametrize(
    ("geometry", "pieces"),
    [
        (RaidGeometry(5, 4, 64 * KIB), 72),  # rows of 4 KiB
        (RaidGeometry(0, 4, 64 * KIB), 13),  # chunks
        (RaidGeometry(1, 2), 138),  # no chunks: blocks of 4 KiB, twice
    ],
)
def test_a_plan_costs_its_pieces_and_eight(geometry, pieces):
    with planning(pieces):
        plan_request(geometry, "read", 0, 256 * KIB)
    with planning(pieces - 1), pytest.raises(LimitError, match=f"more than {pieces - 1} in all"):
        plan_request(geometry, "read", 0, 256 * KIB)


CHUNK = 64 * KIB


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("layout_*.csv.gz")))
def test_every_block_of_a_measured_layout(name):
    level, layout, members = re.fullmatch(r"layout_(\d+)_(.*)_(\d+)\.csv\.gz", name).groups()
    rows = rows_of(name)
    size = (max(int(row["member_block"]) for row in rows) + 1) * BLOCK
    found = raid_map(
        level, int(members), CHUNK, None if layout == "default" else layout, member_size=size
    )
    copies: dict[int, set[tuple[int, int]]] = {}
    for row in rows:
        member, place = int(row["member"]), int(row["member_block"]) * BLOCK
        logical = int(row["logical_block"])
        if logical < 0:
            stripe, inside = divmod(place, CHUNK)
            offset = stripe * found.data_disks * CHUNK + inside
            assert found.parity(offset)["PQ".index(row["kind"])] == (member, place)
            assert found.data_at(member, place) is None
        else:
            assert found.data_at(member, place) == logical * BLOCK
            copies.setdefault(logical, set()).add((member, place))
    assert found.capacity == len(copies) * BLOCK
    for logical, places in copies.items():
        assert set(found.locate(logical * BLOCK)) == places


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("raid5", 2, "64 KiB"), "raid5 with 2 members; it takes at least 3"),
        (("raid6", 3, "64 KiB"), "it takes at least 4"),
        (("raid0", 0, "64 KiB"), "raid0 with 0 members; it takes at least 1"),
        (("raid5", 4, "6 KiB"), "chunk is 6 KiB for raid5; it is a multiple of 4 KiB"),
        (("raid5", 4, 0), "chunk is 0 B for raid5; it is a multiple of 4 KiB"),
        (("raid5", 4, "100 KiB"), "chunk is 100 KiB for raid5; it is a power of two"),
        (("raid5", 4, None), "chunk is missing"),
        (("raid5", 4, "64 KiB", "left-symetric"), "did you mean 'left-symmetric'"),
        (("raid10", 4, "64 KiB", "nera2"), "did you mean 'near2'"),
        (("raid10", 3, "64 KiB", "near4"), "at most 3 copies"),
        (("raid10", 3, "64 KiB", "near0"), "at least 1 copy"),
        (("raid7", 3, "64 KiB"), "level is 'raid7'"),
        (("raid1", 2, None, "left-symmetric"), "raid1 has no layouts"),
        (("raid0", 2, "64 KiB", None, [CHUNK]), "member_size has 1 values for 2 members"),
        (("raid0", 2, "64 KiB", None, "4 KiB"), "at least one chunk"),
        (("raid1", 2, None, None, 0), "more than 0 bytes"),
        # of a raid5 of four
        ({"degraded": (0, 1)}, "raid5 of 4 members has failed; missing: 0 and 1"),
        ({"degraded": (0,), "rebuilding": (1,)}, "has failed"),
        ({"max_sectors": 100}, "max_sectors is 100 bytes"),
    ],
)
def test_geometry_that_cannot_be_is_one_line(args, text):
    with pytest.raises(GeometryError, match=re.escape(text)) as caught:
        raid_map(*args) if isinstance(args, tuple) else RaidGeometry(5, 4, CHUNK, **args)
    assert "\n" not in str(caught.value)


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
