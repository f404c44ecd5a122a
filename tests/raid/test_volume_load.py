"""Rebuilds beside the load, gates of engines, sectors, and arrays that have failed."""

import json

import numpy as np
import pytest

from nvmesim.catalog.load import get
from nvmesim.cli.main import run_command
from nvmesim.errors import GeometryError, ScenarioError
from tests.raid.volumes import ready_for, scenario, simulated
from tests.servers import bare

RAID5 = {"raid": "raid5", "chunk": "64 KiB"}
LOST = {**RAID5, "degraded": [1]}
ALONE = {"threads": 1, "outstanding": 1, "read": 0.0}


def run(volume, load=None, requests=20_000, **more):
    return bare(scenario(volume, load, **more), requests=requests)


def test_speeds_of_a_rebuild_and_what_it_costs_the_load():
    light = {"threads": 1, "outstanding": 1}
    result = run({**LOST, "rebuild": True}, light)
    assert result.rebuild.bytes_per_s == pytest.approx(204.8e6, rel=0.02)
    size = 1.6e12
    assert result.rebuild.hours == pytest.approx(size / 204.8e6 / 3600, rel=0.05)
    found = json.loads(json.dumps(result.to_json()))["rebuild"]
    assert {"bytes_per_s", "hours", "drive", "volume"} <= found.keys()
    assert found["drive"] == "drive1"
    assert run(LOST, light, 5_000).to_json()["rebuild"] is None
    load = {"threads": 4, "outstanding": 16}
    slow = run({**LOST, "rebuild": True, "sync_speed_max": "20 MB/s"}, load)
    assert slow.rebuild.bytes_per_s == pytest.approx(20e6, rel=0.15)
    fast = {**LOST, "rebuild": True, "sync_speed_max": "2 GB/s", "group_thread_cnt": 8}
    paced = run(fast, load)  # one window at a time
    forced = run({**fast, "sync_speed_min": "1.5 GB/s"}, load)
    assert 200e6 < paced.rebuild.bytes_per_s < 1.2e9
    assert forced.rebuild.bytes_per_s > 1.2 * paced.rebuild.bytes_per_s
    load = {"threads": 4, "outstanding": 16, "read": 1.0}
    latency = [
        run({**LOST, **more}, load).total.latency.mean
        for more in ({}, {"rebuild": True, "rebuilt": 0.0}, {"rebuild": True, "rebuilt": 1.0})
    ]
    assert latency[1] > 1.005 * latency[0]
    assert latency[2] < latency[1]  # what is restored needs no other member


@pytest.mark.long
def test_a_raised_least_speed_is_no_addition():
    """md waits window by window above the least speed and not at all below: the larger counts."""
    load = {"threads": 4, "outstanding": 16}
    fast = {**LOST, "rebuild": True, "sync_speed_max": "2 GB/s"}
    alone = run(fast, load).rebuild.bytes_per_s
    below, above = (
        run({**fast, "sync_speed_min": f"{share * alone / 1e6:.0f} MB/s"}, load).rebuild.bytes_per_s
        for share in (0.6, 1.5)
    )
    assert below == pytest.approx(alone, rel=0.05)
    assert above == pytest.approx(1.5 * alone, rel=0.05)


def test_rebuilds_of_disks_under_load_and_checks_beside_it():
    """With a deep queue on slow disks one window at a time would fall below sync_speed_min."""
    load = {"threads": 16, "outstanding": 32}
    drives = [{"profile": "hdd-7200", "count": 4}]
    result = run({**LOST, "rebuild": True}, load, 3_000, drives=drives)
    assert result.rebuild.bytes_per_s == pytest.approx(1.024e6, rel=0.25)
    load = {"threads": 1, "outstanding": 1, "read": 1.0}
    result = run({**RAID5, "rebuild": True}, load)
    assert result.rebuild.drive is None
    assert result.rebuild.bytes_per_s == pytest.approx(204.8e6, rel=0.02)
    # what the check reads belongs to no request
    assert sum(m.reads_per_request for m in result.members) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("rebuild", [None, True, False])
def test_a_hot_spare_takes_over_unless_told_not_to(rebuild):
    asked = {} if rebuild is None else {"rebuild": rebuild}
    ready = ready_for({**LOST, "spares": 1, **asked}, count=5)
    volume = ready.scenario.volumes[0]
    if rebuild is False:
        assert (volume.members, volume.spares, volume.degraded) == ((0, 1, 2, 3), (4,), (1,))
        return
    assert (volume.members, volume.spares, volume.degraded) == ((0, 4, 2, 3), (), ())
    assert volume.rebuilding == 1
    says = any("hot spare drive4" in text for text in ready.scenario.assumptions)
    assert says == (rebuild is None)


def test_spares_that_are_too_small_and_members_that_stay_missing():
    drives = [{"profile": "intel-p4610-6.4tb", "count": 4}, {"profile": "intel-p4610-1.6tb"}]
    with pytest.raises(GeometryError, match="drive4 is too small a spare"):
        ready_for({**LOST, "spares": 1}, drives=drives)
    volume = ready_for({"raid": "raid6", "degraded": [0, 3], "rebuild": True}, count=6)
    found = volume.scenario.volumes[0]
    assert (found.rebuilding, found.degraded) == (0, (3,))


MANY_WORKERS = {"engine": {"extends": "linux-md", "rows": {"shared": 0}}, "group_thread_cnt": 32}
"""Or md's own threads and locks hold the writes back."""


def test_a_small_stripe_cache_holds_writes_back_and_no_reads():
    load = {"threads": 8, "outstanding": 16, "read": 0.0}
    many = {**RAID5, **MANY_WORKERS}
    small, large = (run({**many, "stripe_cache": rows}, load) for rows in (17, 8192))
    assert small.total.iops.value < 0.8 * large.total.iops.value
    gate = next(s for s in small.stations if s.name.endswith("stripe cache"))
    assert gate.utilization > 0.9
    assert not any(s.name.endswith("stripe cache") for s in large.stations)
    load = {"threads": 8, "outstanding": 16, "read": 1.0}
    small, large = (run({**RAID5, "stripe_cache": rows}, load) for rows in (17, 8192))
    assert small.total.iops.value == pytest.approx(large.total.iops.value)


def test_a_controllers_cache_hides_the_members_but_not_in_the_long_run():
    light = {"threads": 1, "outstanding": 1, "read": 0.0}
    cached = {**RAID5, "engine": "hardware-raid"}
    plain = {**cached, "engine": "tri-mode-9460"}
    drives = [{"profile": "sas-ssd", "count": 4}]
    fast, slow = (run(v, light, 5_000, drives=drives) for v in (cached, plain))
    assert fast.total.latency.mean < 0.6 * slow.total.latency.mean
    heavy = {"threads": 8, "outstanding": 16, "read": 0.0}
    drives = [{"profile": "hdd-7200", "count": 4}]
    found = [run(v, heavy, 12_000, drives=drives).total.iops.value for v in (cached, plain)]
    assert found[0] == pytest.approx(found[1], rel=0.25)


def test_sectors_inside_of_others_cost_reads_and_multiply_a_penalty():
    """4 KiB writes that start inside a 4 KiB sector: both ends are read first (512e)."""
    alone = {"threads": 1, "outstanding": 1, "read": 0.0}
    straight, inside = (run({"raid": "raid0"}, {**alone, "offset": o}) for o in ("0 B", "512 B"))
    assert inside.total.latency.mean > straight.total.latency.mean + 50e-6
    some = run({"raid": "raid0"}, {**alone, "align": "512 B"})  # 7 of 8 requests
    between = some.total.latency.mean - straight.total.latency.mean
    whole = inside.total.latency.mean - straight.total.latency.mean
    assert between == pytest.approx(7 / 8 * whole, rel=0.1)
    # A cluster that is not aligned: two reads and two writes as ever, each of two sectors, and
    # each write with two reads in its drive: 4 commands, 12 sectors and more.
    load = {"read": 0.0, "threads": 1, "outstanding": 1, "offset": "512 B"}
    volume = {"raid": "raid5", "engine": "storage-spaces-parity", "chunk": "64 KiB"}
    ready = ready_for(volume, load)
    np.testing.assert_allclose(simulated(ready, 500).sum(axis=0)[:2], [2, 2])
    aligned = ready_for(volume, {**load, "offset": "0 B"})
    dies = [visits(r) for r in (aligned, ready)]
    assert dies == pytest.approx([2, 8], abs=0.05)
    # a volume of 4 KiB sectors reads and writes both blocks itself
    own = ready_for({**volume, "logical_sector": "4 KiB"}, load)
    np.testing.assert_allclose(simulated(own, 500).sum(axis=0)[5], 4 * 4096, rtol=0.2)


def visits(ready):
    batch = ready.make(ready.lowered.network, seed=1).advance(2_000, 1 << 60)
    rows = [s for s in ready.lowered.stations if s.name.endswith(" dies")]
    return sum(batch.stations[s.first : s.first + s.count, 0].sum() for s in rows) / 2_000


def test_a_bitmap_costs_a_stream_one_write_a_region_and_a_narrow_span_nothing():
    load = {"read": 0.0, "threads": 1, "outstanding": 1, "block_size": "1 MiB"}
    volume = {"raid": "raid1", "bitmap": "internal"}
    stream = ready_for(volume, {**load, "access": "sequential"}, count=2)
    found = simulated(stream, 640).sum(axis=0)
    assert found[1] == pytest.approx(2 + 2 / 64, rel=0.005)
    dirty = {**load, "span": "10 GiB"}  # 160 regions, each written several times a second
    random = simulated(ready_for(volume, dirty, count=2), 640).sum(axis=0)
    assert random[1] == pytest.approx(2)


def test_a_failed_array_is_an_answer_on_the_command_line(tmp_path, capsys):
    file = tmp_path / "failed.toml"
    file.write_text(
        '[server]\n[[server.sockets]]\ncpu = "epyc-9654"\n[[drives]]\n'
        'profile = "intel-p4610-1.6tb"\ncount = 4\n'
        '[volume]\nraid = "raid5"\ndegraded = [0, 2]\n[workload]\nthreads = 1\n'
    )
    assert run_command(["run", str(file)]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "the array has failed" in said[0]
    assert run_command(["run", str(file), "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["failed"] is True
    assert answer["missing_members"] == [0, 2]
    assert "raid5 survives 1 missing of 4" in answer["sentence"]


def test_an_engine_of_ones_own_in_ten_lines(tmp_path):
    """A profile beside the scenario: its serial section is the ceiling, its levels are checked."""
    engine = tmp_path / "mine.toml"
    engine.write_text(
        'kind = "raid-engine"\nname = "mine"\nruns_on = "controller"\nuplink = "pcie4 x8"\n'
        'serial_read = { value = "10 us", basis = "assumed", source = "a guess" }\n'
        'serial_write = { value = "20 us", basis = "assumed", source = "a guess" }\n'
        'merge = "none"\nlevels = ["raid10", "raid5"]\n'
    )
    load = {"threads": 8, "outstanding": 8}
    read = run({"raid": "raid10", "engine": str(engine)}, {**load, "read": 1.0})
    write = run({"raid": "raid10", "engine": str(engine)}, {**load, "read": 0.0})
    assert read.total.iops.value == pytest.approx(100_000, rel=0.02)
    assert write.total.iops.value == pytest.approx(50_000, rel=0.02)
    assert read.bottleneck.verdict == "raid-engine"
    with pytest.raises(GeometryError, match=r"mine has raid10, raid5"):
        ready_for({"raid": "raid6", "engine": str(engine)})


def test_a_network_delay_counts_for_a_captured_drive_too():
    latencies = {"queue_depth": 1, "block_size": "4 KiB", "read_us": [100.0]}
    drive = {"profile": {"extends": "sata-ssd", "host_included": False, "latencies": latencies}}
    load = {"read": 1.0, "threads": 1, "outstanding": 1}
    near, far = (
        run({"raid": "raid0"}, load, 2_000, drives=[{**drive, "count": 2, "delay": delay}])
        for delay in ("0 us", "500 us")
    )
    # who sleeps 600 us instead of 100 pays more to wake up
    stack, hz = get("stack", "linux-io_uring"), get("cpu", "epyc-9654").ghz.value * 1e9
    half = stack.wakeup_half.value / 1e12
    awake = stack.wakeup.value / hz * (600e-6 / (600e-6 + half) - 100e-6 / (100e-6 + half))
    more = far.total.latency.mean - near.total.latency.mean
    assert more - 500e-6 == pytest.approx(awake, abs=2e-8)


@pytest.mark.parametrize("state", [{}, {"degraded": [1], "rebuild": True}])
def test_a_capture_that_lacks_what_the_volume_needs(state):
    """RAID5 writes read too, and a rebuild writes."""
    latencies = {"queue_depth": 1, "block_size": "4 KiB", "write_us": [100.0]}
    load = {"read": 0.0}
    if state:
        latencies, load = {**latencies, "read_us": [90.0], "write_us": []}, {"read": 1.0}
    drives = [{"profile": {"extends": "sata-ssd", "latencies": latencies}, "count": 4}]
    with pytest.raises(ScenarioError, match=r"holds no (read|write) latencies"):
        ready_for({**RAID5, **state}, load, drives=drives)
