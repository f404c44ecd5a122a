"""What a run answers: rates, shares, bounds, what is full, files that are written."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Acc, Batch
from nvmesim.errors import InputError
from nvmesim.measure.stations import Totals, busy, cpu_stats, drive_utilization, fullest
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS, StationInfo
from nvmesim.predict import bottleneck
from nvmesim.predict import what_ifs as whatifs
from nvmesim.predict.prepare import prepare
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import compare, simulate
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.show.answer import asked
from tests.predict.scenarios import CPU, DRIVE, scenario
from tests.servers import bare, one_server

MANY = {"threads": 16, "outstanding": 64}


def plain(result: Result) -> str:
    tables = result.to_json()
    del tables["wall_s"]
    return json.dumps(tables)


@pytest.fixture(scope="module")
def reads() -> Result:
    return bare(scenario(drives=4, run={"requests": 100_000}))


def test_a_short_run_has_no_bound_below_its_iops_and_strict_json() -> None:
    """Measured demands scatter; a single request has intervals without end."""
    for requests in (1, 3, 50, 500):
        short = bare(scenario(run={"requests": requests}))
        assert short.bottleneck.bound_iops >= short.total.iops.value
        assert json.loads(json.dumps(short.to_json(), allow_nan=False)) == short.to_json()


def test_figures_of_reads_and_of_mixes_add_up(reads: Result) -> None:
    """X R = N, and a command station is busy X / 500k."""
    assert reads.total.iops.value * reads.total.latency.mean == pytest.approx(128, rel=0.01)
    for station in reads.stations:
        if station.resource == "commands":
            each = reads.total.iops.value / 4 / 500e3
            assert station.utilization == pytest.approx(each, rel=0.03)
            assert station.visits_per_request == pytest.approx(0.25, rel=0.03)
            assert station.service_mean_s == pytest.approx(2e-6)
    # 10,000 cycles each; as long as cores are not shared, logical GHz are the same.
    assert reads.cpu.cycles_per_io == pytest.approx(10_000, rel=0.01)
    used = reads.cpu.logical_utilization * 16 * 2.0
    assert reads.cpu.ghz_per_miops == pytest.approx(used / (reads.total.iops.value / 1e6))
    assert reads.cpu.ghz_per_miops >= 10 * 0.99
    physical = reads.total.iops.value * 10_000 / (8 * 1.25 * 2e9)
    assert reads.cpu.physical_utilization == pytest.approx(physical, rel=0.01)
    assert [m.name for m in reads.members] == [f"drive{i}" for i in range(4)]
    assert sum(m.reads_per_request for m in reads.members) == pytest.approx(1, rel=0.01)
    for member in reads.members:
        assert member.read_bytes_per_request == pytest.approx(member.reads_per_request * 4096)
        assert member.writes_per_request == 0
        assert 0 < member.utilization < 1
    assert reads.write is None
    assert reads.read.count == reads.total.count == 100_000 == reads.requests
    assert reads.total.bytes_per_s.value == pytest.approx(4096 * reads.total.iops.value)
    assert reads.outstanding == 128
    mixed = bare(scenario(read=0.7, run={"requests": 50_000}))
    assert mixed.read is not None
    assert mixed.read.count + mixed.write.count == mixed.total.count
    assert mixed.read.count / mixed.total.count == pytest.approx(0.7, abs=0.02)
    total = mixed.read.iops.value + mixed.write.iops.value
    assert mixed.total.iops.value == pytest.approx(total)
    merged = mixed.read.latency.bin_count.sum() + mixed.write.latency.bin_count.sum()
    assert mixed.total.latency.bin_count.sum() == merged
    assert mixed.total.clat.mean < mixed.total.latency.mean


def test_the_same_seed_gives_the_same_result_on_either_engine() -> None:
    small: dict[str, Any] = {"read": 0.5, "run": {"requests": 600}}
    said = []
    for engine in ("compiled", "simpy"):
        first, again, other = (
            plain(bare(scenario(**small), engine=engine, seed=seed)) for seed in (None, None, 2)
        )
        assert first == again != other
        said.append(first.replace(f'"{engine}"', '"any"'))
    assert said[0] == said[1]


def test_arguments_take_the_place_of_the_scenario_and_an_unknown_engine_is_named() -> None:
    assert bare(scenario(), requests=700).requests == 700
    precise = bare(scenario(), precision=0.05)
    assert precise.converged
    assert precise.requests >= 200_000
    with pytest.raises(InputError, match="engine 'compield' is unknown; did you mean 'compiled'"):
        simulate(scenario(), engine="compield")


LOCKED = {"name": "locked", "serial_read": "20 us", "serial_write": "20 us"}
LIMITED = (
    # what is little of; verdict and kind; bound; what helps, and its gain with its tolerance
    ({"drives": 4, "sockets": [{"cpu": {**CPU, "cores": 1}}], **MANY}, ("cpu", "cpu"),
     250e3,  # 1 core x 1.25 x 2 GHz / 10,000 cycles
     {"one more core": (1.0, 0.05), "10 % more GHz": (0.1, 0.02)}),
    ({"drives": 2, "drive": {"commands": "50k/s"}, **MANY}, ("drive", "drive"), 100e3,
     {"one more drive with threads of its own": (0.5, 0.03),
      "drives with twice the command rate": (1.0, 0.1)}),
    ({"drives": 4, "threads_total": 1, "outstanding": 256}, ("cpu", "thread"), 200e3,
     {"twice the threads (as many outstanding in all)": (1.0, 0.2)}),
    ({"drives": 1, "block_size": "64 KiB", "drive": {"link": "pcie1 x1"}, **MANY},
     ("link", "link"), None, {"drive ports of pcie2 x1": (1.0, 0.1)}),
    ({"drives": 4, "volume": {"raid": "raid0", "engine": LOCKED}, **MANY},
     ("raid-engine", "raid-engine"), 50e3,
     {"a RAID engine with half the serial time": (1.0, 0.05)}),
)  # fmt: skip


@pytest.mark.parametrize(("options", "stop", "bound", "helps"), LIMITED, ids=lambda v: str(v)[:20])
def test_what_is_full_is_named_with_its_bound_and_what_helps(
    options: dict[str, Any], stop: tuple[str, str], bound: float | None,
    helps: dict[str, tuple[float, float]],
) -> None:  # fmt: skip
    found = simulate(scenario(**options))
    assert (found.bottleneck.verdict, found.bottleneck.kind) == stop
    assert found.bottleneck.sentence.startswith("Limited by ")
    if bound is not None:
        assert found.bottleneck.bound_iops == pytest.approx(bound, rel=0.02)
        assert found.total.iops.value == pytest.approx(bound, rel=0.03)
    gains = {r.change: r.gain for r in found.bottleneck.reliefs}
    for change, (gain, slack) in helps.items():
        assert gains[change] == pytest.approx(gain, abs=slack)


def test_a_full_write_buffer_is_what_stops_writes_and_fewer_in_flight_do_as_much() -> None:
    """16 slots of programs that take 200 us: 80k/s at most, dies half idle, whatever the depth."""
    small = {"write": {"base": "10 us", "program": "200 us", "buffer": "64 KiB"}}
    found = simulate(scenario(drives=1, read=0.0, drive=small, **MANY))
    stop = found.bottleneck
    assert (stop.verdict, stop.kind, stop.station) == ("drive", "gate", "drive0 write buffer")
    dies = next(s for s in found.stations if s.resource == "dies")
    assert dies.utilization < 0.6
    by = {r.change: r for r in stop.reliefs}
    assert by["drives that sustain twice the writes"].gain > 0.9
    assert by["twice as many outstanding"].gain == pytest.approx(0, abs=0.01)
    assert by["twice as many outstanding"].latency == pytest.approx(2, rel=0.01)
    (fewer,) = (r for r in stop.reliefs if "in flight" in r.change)
    assert fewer.gain == pytest.approx(0, abs=0.02)
    assert fewer.latency < 0.05
    shallow = bare(scenario(drives=1, read=0.0, drive=small, **{**MANY, "outstanding": 2}))
    assert shallow.total.iops.value == pytest.approx(found.total.iops.value, rel=0.02)
    assert shallow.total.latency.mean < found.total.latency.mean / 20


@pytest.mark.parametrize(("raid", "holds"), [("", 4), ("raid10", 2), ("raid5", 3), ("raid6", 2)])
def test_what_a_server_holds_and_takes_is_said(raid: str, holds: int) -> None:
    """Four drives of 100 GB of 8 W in a socket of 90 W; only what all profiles say is added."""
    known = {"power_active_w": 8, "price": 50}
    cpu = [{"cpu": {**CPU, "tdp_w": 90}}]
    volume = {"raid": raid, "chunk": "64 KiB"} if raid else None
    one = scenario(drives=4, drive=known, sockets=cpu, volume=volume)
    found = bare(one, requests=2000).to_json()
    assert found["usable_bytes"] == pytest.approx(holds * 100e9, rel=0.01)
    assert (found["watts"], found["price"]) == (4 * 8 + 90, None)
    assert bare(scenario(drives=4), requests=2000).to_json()["watts"] is None


def test_a_rebuild_alone_has_no_shallower_load() -> None:
    alone = {"raid": "raid6", "degraded": [0], "rebuild": True, "sync_speed_max": "10 GB/s"}
    tables = {**scenario(drives=6, volume=alone).to_dict(), "workload": [], "run": {}}
    found = simulate(scenario_from_dict(tables), certainty=False)
    assert found.bottleneck.verdict == "raid-engine"
    assert {r.latency for r in found.bottleneck.reliefs} == {None}
    assert not [r for r in found.bottleneck.reliefs if "in flight" in r.change]
    assert asked(found.resolved)


def test_nothing_full_is_latency_bound_and_depth_is_resimulated() -> None:
    found = simulate(scenario(drives=1, threads=1, outstanding=1))
    assert found.bottleneck.verdict == "latency-bound"
    assert "twice as many outstanding would give" in found.bottleneck.sentence
    deeper = found.bottleneck.reliefs[0]
    assert deeper.gain == pytest.approx(1.0, abs=0.1)
    assert deeper.gain_low <= deeper.gain <= deeper.gain_high
    assert found.total.iops.value <= found.bottleneck.bound_iops


def test_throughput_never_exceeds_its_bounds() -> None:
    """Asymptotic bounds hold for what was measured; 1 % for the ends of the window."""
    for read in (1.0, 0.5, 0.0):
        for depth in (1, 16, 128):
            found = bare(scenario(read=read, outstanding=depth))
            bounds = list(found.bottleneck.bounds.values())
            assert bounds == sorted(bounds)
            assert found.total.iops.value <= bounds[0] * 1.01


def test_open_loops_that_are_carried_and_above_their_bound() -> None:
    found = simulate(scenario(rate="100k/s"))
    assert found.total.iops.value == pytest.approx(100e3, rel=0.03)
    assert found.bottleneck.verdict == "latency-bound"
    assert "The offered 100k IOPS are carried" in found.bottleneck.sentence
    assert found.bottleneck.reliefs == ()
    assert found.outstanding == pytest.approx(100e3 * found.total.latency.mean, abs=1)
    slow = scenario(drive={"commands": "50k/s"}, rate="150k/s", run={"precision": "1%"})
    found = simulate(slow)
    assert found.bottleneck.verdict == "unstable"
    assert not found.converged
    assert found.bottleneck.backlog_per_s == pytest.approx(50e3, rel=0.1)
    assert set(found.total.latency.percentiles.values()) == {None}
    assert math.isnan(found.total.latency.mean)
    assert "no steady state" in found.bottleneck.sentence
    assert found.bottleneck.kind == "drive"


def test_common_random_numbers_shrink_the_difference() -> None:
    """In an open loop the same requests arrive at the same times and meet the same dies."""
    a = scenario(rate="500k/s")
    b = scenario(rate="500k/s", drive={"commands": "490k/s"})
    difference = compare(a, b, requests=100_000, certainty=False)
    low, high = bare(a).total.latency.intervals["mean"]
    paired = difference.mean_s.high - difference.mean_s.low
    assert paired < (high - low) / 10
    # 0.04 us more service and a little more waiting
    assert 0.04e-6 < difference.mean_s.low < difference.mean_s.high < 0.2e-6
    assert difference.gain.low <= 0 <= difference.gain.high
    assert difference.p99_s is not None
    assert "small (b) against small (a)" in str(difference)


def test_curve_rises_to_the_bound() -> None:
    found = bare(scenario(threads=2, outstanding=8), curve=True)
    depths = [p.outstanding for p in found.curve]
    assert depths == sorted(depths)
    assert 32 in depths
    iops = [p.iops for p in found.curve]
    assert all(b >= a * 0.99 for a, b in pairwise(iops))
    assert iops[-1] <= found.bottleneck.bounds["drive0 commands"] * 1.05


def test_a_file_has_one_row_a_request_and_a_failed_run_leaves_none(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    found = bare(scenario(read=0.5), requests_file=path)
    rows = pl.read_parquet(path)
    measured = rows.filter(~pl.col("warmup"))
    assert len(measured) == found.requests
    assert measured["latency_s"].mean() == pytest.approx(found.total.latency.mean, rel=1e-9)
    assert (measured["op"] == "write").sum() == found.write.count
    assert set(rows["target"]) == {"drive0", "drive1"}
    assert [p.name for p in tmp_path.iterdir()] == ["requests.parquet"]

    class Broken(CompiledEngine):
        def advance(self, completions: int, until_ps: int = HORIZON_PS) -> Batch:
            raise InputError("broken")

    with pytest.raises(InputError, match="broken"):
        simulate(scenario(), engine=Broken, requests_file=tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_what_if_keeps_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(whatifs, "prepare", interrupt)
    found = simulate(scenario())
    assert found.requests == 20_000
    assert any(w.code == "interrupted" for w in found.warnings)
    assert not found.converged


def test_progress_names_what_is_done() -> None:
    told: dict[str, float] = {}
    simulate(scenario(), curve=True, progress=told.__setitem__)
    assert "simulating" in told
    assert any(what.startswith("what if") for what in told)
    assert all(0 <= share <= 1 for share in told.values())


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


def test_a_skewed_load_and_one_hot_die_count_and_chance_does_not() -> None:
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
    # One of four drives gets everything.
    found = bare(scenario(drives=4, targets=["drive1"], **MANY))
    shares = [m.reads_per_request for m in found.members]
    assert shares == pytest.approx([0, 1, 0, 0], rel=1e-3)
    assert found.members[1].utilization > 0.5
    assert found.members[0].utilization == 0


def test_nothing_simulated_has_no_bound_and_utilization_is_at_most_one() -> None:
    low = lowered()
    verdict = bottleneck.judge(low, totals(low, requests=0), in_flight=8)
    assert verdict.verdict == "latency-bound"
    assert verdict.bounds == {}
    low = lowered()
    sums = totals(low)
    sums.stations[:, Acc.SERVICE] = 1e12
    for info in low.stations:
        assert busy(low.network, info, sums).max(initial=0) <= 1


def test_background_load_takes_cores_away_and_is_no_cost() -> None:
    base = prepare(scenario(), "compiled", 1).scenario
    quiet = bare(base)
    busy_server = bare(replace(base, background=0.25))
    assert busy_server.cpu.cycles_per_io == pytest.approx(quiet.cpu.cycles_per_io, rel=0.01)
    added = busy_server.cpu.physical_utilization - quiet.cpu.physical_utilization
    assert added == pytest.approx(0.25, abs=0.03)
    one = scenario(drives=4, sockets=[{"cpu": {**CPU, "cores": 1}}], **MANY)
    base = prepare(one, "compiled", 1).scenario
    found = bare(replace(base, background=0.5))
    assert found.total.iops.value == pytest.approx(125e3, rel=0.02)
    assert found.cpu.logical_utilization == pytest.approx(1, abs=0.01)


def test_polling_threads_are_always_busy_and_cpu_time_counts_cycles_alone() -> None:
    """A stack's numbers in ps (how long a thread slept) are no cycles of a request."""
    asleep = scenario(drives=1, threads_total=1, outstanding=4, stack={"extends": "linux-io_uring"})
    found = simulate(asleep, requests=4_000)
    assert {"ghz_per_miops", "cycles_per_io"} <= set(found.cpu_intervals)
    of_cycles = found.cpu_intervals["cycles_per_io"]
    cost = math.log(of_cycles.high / of_cycles.low)
    rate = math.log(found.total.iops.high / found.total.iops.low)
    for name, known in found.cpu_intervals.items():
        if "utilization" in name:  # that time at the predicted rate, which is as unsure as it is
            assert math.log(known.high / known.low) <= cost + rate
        else:
            assert known.high < 6 * known.low
    polled = scenario(stack={"polled": True}, threads_total=4, outstanding=1)
    found = bare(polled)
    assert found.cpu.logical_utilization == pytest.approx(4 / 16, abs=0.01)


def test_two_stations_full_are_both_named_and_so_is_a_full_gate() -> None:
    low = lowered(drives=1)
    sums = totals(low)
    for name in ("drive0 commands", "socket0 cpu"):
        info = named(low, name)
        sums.stations[info.first] = 1000, 0, 0.95e9 * info.servers, 0.6e9 * info.servers
    verdict = bottleneck.judge(low, sums, in_flight=8)
    assert verdict.verdict == "cpu"
    assert "with drive0 commands 95 % busy too" in verdict.sentence
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
        found.append(bare(small).total.latency.mean)
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    assert found[0] == pytest.approx((1 << 20) / (3e9 if read else 2e9), rel=0.06)


def test_large_requests_are_fewer_and_do_as_much_in_all():
    loads = [{"block_size": f"{size} MiB", "threads": 2, "outstanding": 64} for size in (1, 4)]
    small, large = (bare(one_server("intel-p4610-1.6tb", load, 2)) for load in loads)
    assert large.requests < 0.5 * small.requests
    assert 4 * large.total.iops.value == pytest.approx(small.total.iops.value, rel=0.05)
