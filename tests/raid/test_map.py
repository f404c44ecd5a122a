"""Address maps: every measured block, and laws for any geometry."""

import re

import pytest

from nvmesim.errors import GeometryError, InputError
from nvmesim.raid.map import BLOCK, raid_map
from tests.raid.md_truth import DATA, KIB, rows_of

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


def test_capacity_is_unknown_without_a_member_size():
    found = raid_map("raid5", 4, "64 KiB")
    assert found.capacity is None
    assert found.locate(10**15)


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
    ],
)
def test_geometry_that_cannot_be_is_one_line(args, text):
    with pytest.raises(GeometryError, match=re.escape(text)) as caught:
        raid_map(*args)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("level", "disks"), [("raid0", 6), ("raid1", 6), ("raid10", 6), ("raid5", 5), ("raid6", 4)]
)
def test_members_less_those_of_parity(level, disks):
    assert raid_map(level, 6, None if level == "raid1" else CHUNK).data_disks == disks


def test_places_that_do_not_exist():
    found = raid_map(5, 4, CHUNK, member_size=CHUNK)
    with pytest.raises(InputError, match="below the capacity, 196608"):
        found.locate(3 * CHUNK)
    with pytest.raises(GeometryError, match="give member_size"):
        raid_map(10, 4, CHUNK, "far2").locate(0)
