"""Reshape of an idle array: what md reads and writes, and how long it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nvmesim as ns
from nvmesim.errors import GeometryError
from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.rebuild import reshape_plan_table, reshape_rows_held
from nvmesim.raid.tables import expectation
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.show.words import rebuild_sentence
from tests.raid.test_table import check_arrays
from tests.raid.test_volume_load import same
from tests.raid.volumes import DRIVE, prepare

KIB = 1024


def tables(volume, count=5, drive=DRIVE):
    return scenario_from_dict({
        "server": {"stack": "linux-libaio", "sockets": [{"cpu": "epyc-9654"}]},
        "drives": [{"profile": drive, "count": count}],
        "volume": {"raid": "raid5", "reshape_from": 4, **volume},
    })  # fmt: skip


def run(volume, **more):
    return ns.simulate(tables(volume, **more), requests=2_000, reliefs=False, certainty=False)


@given(st.sampled_from([5, 6]), st.integers(4, 12), st.integers(1, 6))
def test_all_of_the_old_array_is_read_and_all_of_the_new_one_written(level, before, more):
    """Over a whole member: what the old members hold is read once, parity and all."""
    geometry = RaidGeometry(level, before + more, 64 * KIB)
    table = reshape_plan_table(geometry, before)
    check_arrays(table)
    mean = expectation(table)
    assert mean.member_writes == pytest.approx([1.0] * geometry.members)
    assert mean.member_reads[:before] == pytest.approx([1.0] * before)
    assert mean.member_reads[before:] == pytest.approx([0.0] * more)
    copying = [i for i in table.order if table.plan(int(i))[0]]
    parity = geometry.record.parity
    assert len(copying) / len(table.order) == (before - parity) / geometry.data_disks


@pytest.mark.parametrize(("rotational", "size"), [(False, 128 * KIB), (True, 512 * KIB)])
def test_a_request_is_a_plug_of_rows_and_on_disks_a_chunk(rotational, size):
    geometry = RaidGeometry(6, 6, 512 * KIB, rotational=(rotational,) * 6)
    table = reshape_plan_table(geometry, 5)
    assert table.request_bytes == size
    plans = [table.plan(int(i)) for i in table.order]
    # three old data members: of four requests two fetch one stripe, one two, the last none
    assert [(len(reads), len(writes)) for reads, writes in plans] == [
        (10, 6), (5, 6), (5, 6), (0, 6)
    ]  # fmt: skip
    for reads, writes in plans:
        assert {(write, n, bios) for _, write, n, bios in reads} <= {(False, size, size // 4096)}
        assert {(write, n, bios) for _, write, n, bios in writes} == {(True, size, size // 4096)}


@pytest.mark.parametrize(
    ("level", "members", "before", "held"), [(5, 5, 4, 7 / 3), (6, 6, 5, 7 / 3), (6, 8, 4, 4.0)]
)
def test_the_rows_that_are_held(level, members, before, held):
    """One of the new array, and the old ones whose data it takes."""
    geometry = RaidGeometry(level, members, 64 * KIB)
    assert float(reshape_rows_held(geometry, before)) == pytest.approx(held)


def test_how_long_it_takes():
    result = run({"sync_speed_max": "5 GB/s"})
    found = result.rebuild
    assert found.members_before == 4
    assert found.hours == pytest.approx(1.6e12 / found.bytes_per_s / 3600, rel=0.01)
    assert result.bottleneck.station == "volume0 raid5d"
    assert "reshaped, from 4 before" in rebuild_sentence(found)
    assert result.to_json()["rebuild"]["members_before"] == 4
    # Two rows are handled for each of the new array, and the parity of one is computed.
    one = run({"reshape_from": None, "check": True, "sync_speed_max": "5 GB/s"}).rebuild
    assert 1.6 < one.bytes_per_s / found.bytes_per_s < 2


def test_its_speed_is_limited_and_that_is_said():
    result = run({})
    assert result.rebuild.bytes_per_s == pytest.approx(204.8e6, rel=0.02)
    assert any(w.code == "sync-speed-max" for w in result.warnings)


def test_disks_go_to_and_fro():
    """RAID6 of eleven, a large stripe cache: about 55 MB/s (B. Wicht, 2015; disks unknown)."""
    volume = {"raid": "raid6", "reshape_from": 10, "sync_speed_max": "1 GB/s"}
    large = run({**volume, "stripe_cache_size": 32768}, count=11, drive="hdd-7200").rebuild
    small = run(volume, count=11, drive="hdd-7200").rebuild
    assert 30e6 < large.bytes_per_s < 90e6
    assert small.bytes_per_s < large.bytes_per_s / 2


def test_the_stripe_cache_holds_four_chunks():
    ready = prepare(tables({}), "compiled", 3, level=0.0)
    assert ready.scenario.volumes[0].stripe_cache == 4 * 512 // 4
    assert any("stripe_cache_size: 512" in text for text in ready.scenario.assumptions)
    small = prepare(tables({"chunk": "64 KiB"}), "compiled", 3, level=0.0)
    assert small.scenario.volumes[0].stripe_cache == 256


def test_both_engines_agree_on_a_reshape():
    same(prepare(tables({"sync_speed_max": "5 GB/s"}), "compiled", 3, level=0.0), 200)


REFUSED = [
    ({"raid": "raid10"}, "only raid5 and raid6 of Linux md .* not raid10"),
    ({"raid": "raid1"}, "a mirror gets a copy by recovery"),
    ({"engine": "user-space-parity"}, "not raid5 of user-space-parity"),
    ({"reshape_from": 5}, "number of members before: 3 to 4"),
    ({"reshape_from": 2}, "number of members before: 3 to 4"),
    ({"degraded": [1]}, "degraded is given, too"),
    ({"check": True}, "check is given, too"),
    ({"journal": "ppl"}, "with a journal"),
    ({"raid": "raidz1"}, "reshape_from is not for raidz1"),
]


@pytest.mark.parametrize(("volume", "message"), REFUSED)
def test_what_is_not_reshaped(volume, message):
    with pytest.raises(GeometryError, match=message):
        prepare(tables(volume), "compiled", 3, level=0.0)


def test_not_beside_a_load():
    asked = tables({}).to_dict() | {"workload": [{"threads": 1}]}
    with pytest.raises(GeometryError, match="an idle array only, leave workload out"):
        prepare(scenario_from_dict(asked), "compiled", 3, level=0.0)
