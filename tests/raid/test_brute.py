"""The planner and the address map against `tests.raid.brute`, on any geometry up to 24 members."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nvmesim.errors import GeometryError
from nvmesim.raid.geometry import RaidGeometry, survives
from nvmesim.raid.map import raid_map
from tests.raid import brute
from tests.raid.requests import plan_request

KIB = 1024
BLOCK = 4 * KIB
LAYOUTS = ["left-symmetric", "left-asymmetric", "right-symmetric", "right-asymmetric",
           "parity-first", "parity-last"]  # fmt: skip
EXAMPLES = settings(max_examples=60, deadline=None)


def parity_cases():
    for level in (5, 6):
        for layout in LAYOUTS:
            for n in range(3 if level == 5 else 4, 25):
                yield level, layout, n


@pytest.mark.parametrize("level", [5, 6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parity_maps_to_24_members(level, layout):
    """Two periods of every layout, each chunk's place and its parity."""
    chunk = 8 * KIB
    for n in range(3 if level == 5 else 4, 25):
        found = raid_map(level, n, chunk, layout)
        data = n - (1 if level == 5 else 2)
        for number in range(2 * n * data):
            stripe, member, parity = brute.compute_sector(level, layout, n, number)
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
            capacity = brute.raid10_capacity(n, kind, copies, chunk, size)
            assert found.capacity == capacity
            for offset in range(0, capacity, chunk):
                places = brute.find_phys(n, kind, copies, chunk, size, offset + 5)
                assert found.locate(offset + 5) == places
                assert {found.data_at(*place) for place in places} == {offset + 5}
                assert len({member for member, _ in places}) == copies


@EXAMPLES
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
            place = brute.raid0_place(sizes, chunk, offset + 7, alternate=layout == "alternate")
            assert found.locate(offset + 7) == [place]
            assert found.data_at(*place) == offset + 7


def counted(plan, op):
    """bios and bytes by member of all commands *op*."""
    bios, size = Counter(), Counter()
    for phase in plan.phases:
        for child in phase:
            if child.op == op and child.n_bios:
                bios[child.member_alternatives[0]] += child.n_bios
                size[child.member_alternatives[0]] += child.n_bytes
    return bios, size


sectors = st.integers(0, 4096).map(lambda k: k * 512)
lengths = st.integers(1, 1024).map(lambda k: k * 512)


@EXAMPLES
@given(st.integers(2, 24), st.sampled_from([4, 12, 64, 2048]), sectors, lengths,
       st.sampled_from([64 * KIB, 1280 * KIB]))  # fmt: skip
def test_striped_requests(n, chunk, offset, length, limit):
    """raid0 cuts at its chunk (or the members' limit) from the start, then at chunk boundaries."""
    chunk *= KIB
    geometry = RaidGeometry(0, n, chunk, max_sectors=limit)
    pieces = brute.split(offset, length, min(chunk, limit), chunk)
    for op in ("read", "write"):
        bios, size = counted(plan_request(geometry, op, offset, length), op)
        expected_bios, expected_bytes = Counter(), Counter()
        for start, n_bytes in pieces:
            member = start // chunk % n
            expected_bios[member] += 1
            expected_bytes[member] += n_bytes
        assert (bios, size) == (expected_bios, expected_bytes)


@EXAMPLES
@given(st.data())
def test_mirrored_requests(data):
    """raid10 cuts at the members' limit, then at chunks, unless all members hold everything."""
    n = data.draw(st.integers(2, 24))
    kind = data.draw(st.sampled_from(["near", "far", "offset"]))
    copies = data.draw(st.integers(1, n))
    chunk = data.draw(st.sampled_from([4, 64, 512])) * KIB
    limit = data.draw(st.sampled_from([64 * KIB, 1280 * KIB]))
    offset, length = data.draw(sectors), data.draw(lengths)
    size = 1 << 30
    missing = tuple(m for m in range(n) if data.draw(st.integers(0, 9)) == 0)
    if not survives(10, n, f"{kind}{copies}", missing):
        missing = ()
    geometry = RaidGeometry(10, n, chunk, f"{kind}{copies}", degraded=missing, member_size=size,
                            max_sectors=limit)  # fmt: skip
    whole = kind == "near" and copies == n
    # The remainder behind a chunk boundary is cut at the limit from that boundary on, and a request
    # is first cut at the limit: pieces never exceed either.
    pieces = []
    for start, n_bytes in brute.split(offset, length, limit, None):
        pieces += brute.split(start, n_bytes, limit, None if whole else chunk)
    reads, writes = Counter(), Counter()
    read_bytes, write_bytes = Counter(), Counter()
    for start, n_bytes in pieces:
        live = [m for m, _ in brute.find_phys(n, kind, copies, chunk, size, start)
                if m not in missing]  # fmt: skip
        reads[live[0]] += 1
        read_bytes[live[0]] += n_bytes
        for member in live:
            writes[member] += 1
            write_bytes[member] += n_bytes
    assert counted(plan_request(geometry, "read", offset, length), "read") == (reads, read_bytes)
    assert counted(plan_request(geometry, "write", offset, length), "write") == (
        writes, write_bytes,
    )  # fmt: skip


@EXAMPLES
@given(st.integers(2, 9), st.integers(0, 40), st.integers(1, 2048))
def test_a_mirror_cuts_where_its_barriers_change(n, before, after):
    """raid1: one command each, but two where a request crosses 64 MiB."""
    offset, length = (64 << 20) - before * 512, after * 512
    plan = plan_request(RaidGeometry(1, n), "write", offset, length)
    crosses = 0 < before < after
    assert counted(plan, "write")[0] == Counter(dict.fromkeys(range(n), 1 + crosses))
    assert counted(plan, "write")[1] == Counter(dict.fromkeys(range(n), length))


@st.composite
def parity_requests(draw):
    level, layout, n = draw(st.sampled_from(list(parity_cases())))
    chunk = draw(st.sampled_from([4, 8, 32])) * KIB
    unit = draw(st.sampled_from([512, BLOCK, chunk]))
    offset = draw(st.integers(0, 3 * n * n)) * unit
    length = draw(st.integers(1, 2 * n)) * unit
    lost = draw(st.sampled_from([(), *[(m,) for m in range(n)]]))
    return level, layout, n, chunk, offset, length, lost, draw(st.sampled_from([0, 1, 2]))


@settings(max_examples=250, deadline=None)
@given(parity_requests())
def test_parity_writes(case):
    """Each 4 KiB row by itself: rmw or rcw, every member missing in turn, partial blocks too."""
    level, layout, n, chunk, offset, length, lost, rmw_level = case
    # What raid6 reads for partial blocks without a member is the kernel's order of steps alone.
    assume(not (level == 6 and lost and (offset % BLOCK or length % BLOCK)))
    geometry = RaidGeometry(level, n, chunk, layout, degraded=lost, rmw_level=rmw_level)
    plan = plan_request(geometry, "write", offset, length)
    reads, writes = Counter(), Counter()
    for _, found, parity, data in brute.rows_of(level, layout, n, chunk, offset, length):
        read, written = brute.write_row(n, found, parity, data, set(lost), rmw_level)
        reads.update(read)
        writes.update(written)
    assert counted(plan, "read")[0] == reads
    assert counted(plan, "write")[0] == writes
    for op, blocks in (("read", reads), ("write", writes)):
        assert counted(plan, op)[1] == Counter({m: k * BLOCK for m, k in blocks.items()})


@settings(max_examples=150, deadline=None)
@given(parity_requests())
def test_parity_reads(case):
    """Healthy: one bio a chunk, never parity. One lost: its rows from all the others."""
    level, layout, n, chunk, offset, length, lost, _ = case
    geometry = RaidGeometry(level, n, chunk, layout, degraded=lost)
    bios, size = counted(plan_request(geometry, "read", offset, length), "read")
    expected = Counter()
    if not lost:
        for start, n_bytes in brute.split(offset, length, 1 << 20, chunk):
            _, member, _ = brute.compute_sector(level, layout, n, start // chunk)
            expected[member] += 1
            size[member] -= n_bytes
        assert bios == expected
        assert not any(size.values())
        return
    for _, found, _, _ in brute.rows_of(level, layout, n, chunk, offset, length):
        wanted = set(found)
        expected.update(set(range(n)) - set(lost) if wanted & set(lost) else wanted)
    assert bios == expected
    assert size == Counter({m: k * BLOCK for m, k in expected.items()})


@pytest.mark.parametrize("kind", ["near", "far", "offset"])
def test_which_mirrors_survive(kind):
    """An array lives while every chunk has a copy left; every set of missing members is tried."""
    for n in range(2, 8):
        for copies in range(1, n + 1):
            places = [
                {m for m, _ in brute.find_phys(n, kind, copies, BLOCK, 64 * n * BLOCK, k * BLOCK)}
                for k in range(2 * n)
            ]
            for k in range(n + 1):
                for missing in combinations(range(n), k):
                    alive = all(held - set(missing) for held in places)
                    assert survives(10, n, f"{kind}{copies}", missing) == alive
                    if not alive:
                        with pytest.raises(GeometryError, match="has failed"):
                            RaidGeometry(10, n, BLOCK, f"{kind}{copies}", degraded=missing)
