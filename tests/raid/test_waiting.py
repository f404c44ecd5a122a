"""Wait for the slowest: the worked example, how it grows with the members, uneven members."""

import json
from dataclasses import replace

import numpy as np
import pytest

import nvmesim as ns
from nvmesim.catalog.load import get
from nvmesim.catalog.profile import EmpiricalLatencies
from nvmesim.catalog.quantity import Quantity
from nvmesim.predict.straggler_runs import scaling, study
from nvmesim.scenario.resolve import resolve
from nvmesim.show.charts.waits import waiting_charts
from tests.raid.volumes import scenario

EXAMPLE_MS = [4.1, 2.2, 1.9, 1.4, 1.0, 9.7, 5.4, 8.6]
RAID0 = {"raid": "raid0", "chunk": "512 KiB", "engine": "none"}


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_the_worked_example_simulated(engine):
    """4 MiB on eight drives that take these times: each request ends with the slowest."""
    drives = [{"profile": constant(ms)} for ms in EXAMPLE_MS]
    load = {"block_size": "4 MiB", "read": 0.0, "threads": 1, "outstanding": 1}
    result = ns.simulate(
        scenario(RAID0, load, drives=drives),
        engine=engine,
        requests=200,
        reliefs=False,
        certainty=False,
    )
    assert result.total.clat.mean == pytest.approx(9.7e-3, rel=2e-3)
    waits = study(resolve(scenario(RAID0, load, drives=drives)), counts=(1,))
    whole = next(size for size in waits.sizes if size.n_bytes == 4 << 20)
    shares = [round(member.busy * 100) for member in whole.members]
    assert shares == [42, 23, 20, 14, 10, 100, 56, 89]
    assert [member.last for member in whole.members] == [0, 0, 0, 0, 0, 1, 0, 0]
    # to the digit of the text; moving 512 KiB through memory adds 9 us to each
    assert round(float(np.mean(whole.volume_s)) * 1e3, 1) == 9.7


def constant(ms):
    return captured([ms * 1000])


def captured(write_us, read_us=(), block=1):
    profile = get("drive", "sata-ssd").model_dump(mode="json", exclude_none=True)
    return {
        "extends": profile["name"],
        "host_included": False,
        "latencies": {
            "queue_depth": 1, "block_size": "512 KiB", "block": block,
            "write_us": list(write_us), "read_us": list(read_us),
        },
    }  # fmt: skip


def ssd_of_2014(n=20_000, seed=1):
    """512 KiB writes of 1.2 ms that now and then fall to 50 MB/s, as the text tells of its drives.

    Made up so that seven members lose 10 %; what it shows further out is then a prediction.
    """
    rng = np.random.default_rng(seed)
    base = rng.gamma(2500.0, 1200 / 2500, n)
    stalled = rng.random(n) < 0.0022
    return np.where(stalled, 512 * 1024 / 50e6 * 1e6 * 0.8, base)


def mean_of_slowest(latencies, members):
    """Mean of the slowest of *members* independent draws from *latencies*: exact, no sampling.

    The i-th smallest of N is the largest of n draws with probability (i/N)^n - ((i-1)/N)^n.
    """
    below = np.arange(len(latencies) + 1) / len(latencies)
    return float(np.sort(latencies) @ np.diff(below**members))


def efficiency(latencies, members):
    """Throughput of *members* that wait for one another over *members* times the mean of one."""
    return float(np.mean(latencies)) / mean_of_slowest(latencies, members)


def points(drives, counts, op, volume=RAID0):
    resolved = resolve(scenario(volume, drives=drives))
    # the drives alone: to send a command to each costs a thread a microsecond, too
    sending = resolved.stack.model_copy(update={"per_child": Quantity(value=0)})
    resolved = replace(resolved, stack=sending)
    found = scaling(resolved, resolved.volumes[0], counts, units=400_000)
    return {p.members: p.efficiency for p in found if p.op == op}


def test_the_empirical_drive_falls_as_its_capture_says():
    samples, reads = ssd_of_2014(), np.random.default_rng(3).gamma(2500.0, 0.4, 4000)
    drives = [{"profile": captured(samples, reads), "count": 4}]
    counts = (1, 2, 7, 16)
    for op, latencies in (("write", samples), ("read", reads)):
        found = points(drives, counts, op)
        for n in counts:
            assert found[n] == pytest.approx(efficiency(latencies, n), abs=0.025)
    assert found[7] > 0.95  # reads


def with_episodes(on="10 ms"):
    """A drive that programs 8 times slower in episodes longer than its buffer lasts (8 ms)."""
    return {
        "extends": "sata-ssd",
        "write": {
            "unit": "64 KiB", "program": "2 ms", "buffer": "3 MiB",
            "gc": {"on": on, "off": "600 ms", "factor": 8},
        },
    }  # fmt: skip


def test_the_fall_with_the_members_from_episodes_of_garbage_collection():
    """Independent episodes: any member's holds all of them up; even members lose nothing."""
    counts = (1, 2, 7, 16)
    episodes = points([{"profile": with_episodes(), "count": 4}], counts, "write")
    even = points([{"profile": with_episodes("1 us"), "count": 4}], counts, "write")
    assert 1 > episodes[2] > episodes[7] > episodes[16]
    assert 1 - episodes[7] == pytest.approx(0.10, abs=0.05)
    assert 1 - episodes[16] == pytest.approx(0.20, abs=0.08)
    assert 1 - even[16] < 0.04


def test_uneven_members_do_the_slowest_times_their_number():
    """One member behind a network: throughput tends to members x the slowest, not x the mean."""
    near = {"profile": "intel-p4610-1.6tb", "count": 3}
    far = {"profile": "intel-p4610-1.6tb", "delay": "2 ms"}
    volume = {**RAID0, "chunk": "64 KiB"}
    even = points([{**near, "count": 4}], (1, 4), "write", volume)
    uneven = points([near, far], (1, 3, 4), "write", volume)
    assert uneven[3] > 0.95
    # three fast ones and a slow one: the mean is that of four, each by itself
    assert uneven[4] < 0.5 * even[4]
    resolved = resolve(scenario(volume, {"block_size": "256 KiB", "read": 0.0}, drives=[near, far]))
    whole = study(resolved, counts=(1,)).sizes[-1]
    assert whole.members[3].busy > 0.95
    assert whole.members[3].last > 0.9
    assert max(member.busy for member in whole.members[:3]) < 0.3


@pytest.mark.parametrize(
    "level",
    ["raid1", "raid5", *(pytest.param(n, marks=pytest.mark.long) for n in ("raid6", "raid10"))],
)
def test_other_levels_wait_too(level):
    chunk = {} if level == "raid1" else {"chunk": "64 KiB"}
    resolved = resolve(scenario({"raid": level, **chunk}, {"read": 0.0}, count=4))
    waits = study(resolved, counts=(1, 2))
    last = waits.sizes[-1]
    assert all(0 < member.busy <= 1 for member in last.members)
    assert sum(member.last for member in last.members) > 0
    mean = np.mean([np.mean(m.latencies_s) for m in last.members])
    assert np.mean(last.volume_s) >= mean


def test_a_write_cache_does_not_hide_the_members():
    volume = {"raid": "raid5", "engine": "hardware-raid", "chunk": "64 KiB", "degraded": [1]}
    resolved = resolve(scenario({**volume, "rebuild": True}, {"read": 0.0}, count=4))
    sizes = study(resolved, counts=(1,)).sizes
    assert [size.op for size in sizes] == ["write"] * 3
    assert all(len(size.members) == 4 for size in sizes)


def test_a_volume_without_siblings_has_nothing_to_show():
    resolved = resolve(scenario(RAID0))
    alone = replace(resolved, volumes=(), workload=())
    assert study(alone) is None


@pytest.mark.parametrize(
    ("volume", "load", "sizes"),
    [
        ({**RAID0, "chunk": "64 KiB"}, {"read": 1.0}, None),
        ({**RAID0, "chunk": "64 KiB"}, {"read": 0.0}, None),
        ({**RAID0, "chunk": "4 KiB"}, {"read": 1.0, "block_size": "8 KiB"}, {"read"}),
        ({"raid": "raid10", "chunk": "64 KiB"}, {"read": 1.0}, None),
        ({"raid": "raid10", "chunk": "64 KiB"}, {"read": 0.7}, {"write"}),
        ({"raid": "raid5", "chunk": "64 KiB", "degraded": [0]}, {"read": 1.0}, {"read"}),
    ],
)  # fmt: skip
def test_a_report_has_it_only_where_requests_wait_for_several_members(volume, load, sizes):
    waits = study(resolve(scenario(volume, load, count=4)), counts=(1, 2), of_load=True)
    if sizes is None:
        assert waits is None
    else:
        assert {size.op for size in waits.sizes} == sizes
        assert bool(waits.scaling) == (volume.get("chunk") == "4 KiB")


def test_json_and_charts_carry_it():
    asked = scenario({**RAID0, "chunk": "16 KiB"}, {"read": 1.0}, count=4)
    result = ns.simulate(asked, requests=2_000, reliefs=False, certainty=False, waits=True)
    found = json.loads(json.dumps(result.to_json()))["waits"]
    assert [size["block_size"] for size in found["sizes"]] == [4096, 16384, 65536]
    assert {point["op"] for point in found["scaling"]} == {"read", "write"}
    drawn = waiting_charts(result.waits)
    assert len(drawn) == 3
    for chart in drawn.values():
        assert len(json.dumps(chart.to_dict())) < 60_000
    assert waiting_charts(None) == {}
    from nvmesim.show.report import page

    text = page(result)
    assert all(title in text for title in drawn)


def test_a_capture_needs_no_read_latencies():
    assert EmpiricalLatencies(queue_depth=1, block_size="4 KiB", write_us=(5.0,)).read_us == ()
    found = points([{"profile": constant(1.0), "count": 2}], (1, 2), "read")
    assert found == {}
