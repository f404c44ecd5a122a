from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nvmesim.engine.contract import Acc
from nvmesim.measure.stations import Totals, busy, cpu_stats, drive_utilization, fullest
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import StationInfo
from nvmesim.predict import bottleneck
from nvmesim.predict.prepare import prepare
from nvmesim.predict.simulate import simulate
from tests.predict.scenarios import CPU, DRIVE, scenario

MANY = {"threads": 16, "outstanding": 64}


def lowered(**options: Any) -> Lowered:
    return prepare(scenario(**options), "compiled", 1).lowered


def totals(low: Lowered, *, requests: int = 1000, duration_ps: float = 1e9) -> Totals:
    n = low.network.n_stations
    return Totals(duration_ps, requests, np.zeros((n, 4)), np.zeros((len(low.scenario.drives), 6)))


def named(low: Lowered, name: str) -> StationInfo:
    return next(s for s in low.stations if s.name == name)


def test_the_published_example_of_ghz_per_miops() -> None:
    """50.4 % of 64 logical CPUs at 2.1 GHz and 2.72 MIOPS: 24.9."""
    cpu = {"cores": 16, "threads_per_core": 2, "ghz": 2.1, "lanes": 48, "interconnect": "upi"}
    low = lowered(sockets=[{"cpu": cpu}, {"cpu": cpu}])
    sums = totals(low, requests=2720)
    for info in low.stations:
        if info.kind == "cpu":
            sums.stations[info.first, Acc.SERVICE] = 0.504 * 32 * 1e9
            sums.stations[info.first, Acc.WORK] = 0.504 * 32 * 1e9
    cpu_now = cpu_stats(low, sums)
    assert cpu_now.logical_utilization == pytest.approx(0.504)
    assert cpu_now.ghz_per_miops == pytest.approx(24.9, abs=0.02)
    assert cpu_now.physical_utilization == pytest.approx(0.504 * 64 / (32 * 1.25))
    assert len(cpu_now.sockets) == 2


def test_one_hot_die_counts_and_chance_does_not() -> None:
    low = lowered(drives=1)
    dies = named(low, "drive0 dies")
    rows = slice(dies.first, dies.first + dies.count)
    sums = totals(low)
    rng = np.random.default_rng(1)
    sums.stations[rows, Acc.VISITS] = rng.poisson(400, dies.count)
    sums.stations[rows, Acc.SERVICE] = sums.stations[rows, Acc.VISITS] * 1e6
    mean = float(busy(low.network, dies, sums).mean())
    assert fullest(low.network, dies, sums) == mean
    sums.stations[dies.first, :] *= 2
    assert fullest(low.network, dies, sums) > 1.8 * mean
    assert drive_utilization(low, sums, 0) == fullest(low.network, dies, sums)
    bound = bottleneck.bound(low, dies, sums)
    assert bound == pytest.approx(1000 / (sums.stations[dies.first, Acc.SERVICE] / 1e12))


def test_a_skewed_load_is_seen() -> None:
    """One of four drives gets everything."""
    found = simulate(scenario(drives=4, targets=["drive1"], **MANY), reliefs=False, certainty=False)
    shares = [m.reads_per_request for m in found.members]
    assert shares == pytest.approx([0, 1, 0, 0], rel=1e-3)
    assert found.members[1].utilization > 0.5
    assert found.members[0].utilization == 0


def test_utilization_is_at_most_one() -> None:
    low = lowered()
    sums = totals(low)
    sums.stations[:, Acc.SERVICE] = 1e12
    for info in low.stations:
        assert busy(low.network, info, sums).max(initial=0) <= 1


def test_background_load_is_part_of_utilization_but_not_of_the_cost() -> None:
    base = prepare(scenario(), "compiled", 1).scenario
    quiet = simulate(base, reliefs=False, certainty=False)
    busy_server = simulate(replace(base, background=0.25), reliefs=False, certainty=False)
    assert busy_server.cpu.cycles_per_io == pytest.approx(quiet.cpu.cycles_per_io, rel=0.01)
    added = busy_server.cpu.physical_utilization - quiet.cpu.physical_utilization
    assert added == pytest.approx(0.25, abs=0.03)


def test_background_load_takes_cores_away() -> None:
    one = scenario(drives=4, sockets=[{"cpu": {**CPU, "cores": 1}}], **MANY)
    base = prepare(one, "compiled", 1).scenario
    found = simulate(replace(base, background=0.5), reliefs=False, certainty=False)
    assert found.total.iops.value == pytest.approx(125e3, rel=0.02)
    assert found.cpu.logical_utilization == pytest.approx(1, abs=0.01)


def test_the_interval_of_cpu_time_counts_cycles_and_no_times() -> None:
    """A stack's numbers in ps (how long a thread slept) are no cycles of a request."""
    asleep = scenario(drives=1, threads_total=1, outstanding=4, stack={"extends": "linux-io_uring"})
    found = simulate(asleep, requests=4_000)
    assert {"ghz_per_miops", "cycles_per_io"} <= set(found.cpu_intervals)
    for known in found.cpu_intervals.values():
        assert known.high < 6 * known.low


def test_a_polling_thread_is_always_busy() -> None:
    polled = scenario(stack={"polled": True}, threads_total=4, outstanding=1)
    found = simulate(polled, reliefs=False, certainty=False)
    assert found.cpu.logical_utilization == pytest.approx(4 / 16, abs=0.01)


def test_two_stations_full_are_both_named() -> None:
    low = lowered(drives=1)
    sums = totals(low)
    for name in ("drive0 commands", "socket0 cpu"):
        info = named(low, name)
        sums.stations[info.first] = 1000, 0, 0.95e9 * info.servers, 0.6e9 * info.servers
    verdict = bottleneck.judge(low, sums, in_flight=8)
    assert verdict.verdict == "cpu"
    assert "with drive0 commands 95 % busy too" in verdict.sentence


def test_nothing_simulated_has_no_bound() -> None:
    low = lowered()
    verdict = bottleneck.judge(low, totals(low, requests=0), in_flight=8)
    assert verdict.verdict == "latency-bound"
    assert verdict.bounds == {}


def test_a_full_gate_is_named() -> None:
    low = lowered(drives=1, rate="10k/s", drive={"tags": 4})
    gate = named(low, "drive0 tags")
    sums = totals(low)
    sums.stations[gate.first, Acc.SERVICE] = 0.99 * 4 * 1e9
    verdict = bottleneck.judge(low, sums, in_flight=8)
    assert verdict.sentence.startswith("All slots of drive0 tags are taken")
    assert "Nothing is full" not in verdict.sentence


def test_a_stated_duration() -> None:
    timed = scenario(run={"duration": "50 ms"})
    found = simulate(timed, certainty=False)
    assert found.converged
    assert found.simulated_s == pytest.approx(0.05, rel=0.01)
    assert found.bottleneck.reliefs
    assert found.bottleneck.reliefs[0].gain_high - found.bottleneck.reliefs[0].gain_low < 0.2


@pytest.mark.parametrize("read", [1.0, 0.0])
def test_a_large_command_takes_the_slower_of_data_path_and_port(read: float) -> None:
    """1 MiB behind a port of 15.75 GB/s and of 7.88: the data path is slower than both."""
    found = []
    for link in ("pcie5 x4", "pcie4 x4"):
        small = scenario(
            drives=1, drive={"write": {"base": "10 us", "program": "1 us", "buffer": "64 MiB"},
                             "read": {**DRIVE["read"], "stream_large": "8 us"}, "link": link},
            threads_total=1, outstanding=1, block_size="1 MiB", read=read, access="sequential",
            run={"requests": 2_000},
        )  # fmt: skip
        found.append(simulate(small).total.latency.mean)
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    assert found[0] == pytest.approx((1 << 20) / (3e9 if read else 2e9), rel=0.06)
