"""The small figures that fits rest on, held to values worked out by hand; which points are used."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from nvmesim.calibrate.bench import measure
from nvmesim.calibrate.drive.empirical import (
    decorrelation_length,
    percentile_intervals,
    thinned,
)
from nvmesim.calibrate.points import Point, bounded_depth, hold_out, points_of
from nvmesim.capture.capture import (
    Capture,
    Captures,
    Conditions,
    CpuUse,
    Latency,
    Measurement,
    OpResult,
)
from nvmesim.capture.registry import read_captures
from nvmesim.errors import FitError
from nvmesim.model.drive import PAGE_PS
from nvmesim.units import PS_PER_S
from tests.calibrate import bench

DEEP = Conditions(access="random", block_size=4096, jobs=2, iodepth=8)


def op(iops=1000.0, count=100_000, clat=100e-6, lat=None, **more) -> OpResult:
    return OpResult(
        count=count, bytes=0, iops=iops, bytes_per_s=0.0,
        clat=None if clat is None else Latency(count, mean_s=clat, **more),
        lat=None if lat is None else Latency(count, mean_s=lat),
    )  # fmt: skip


def measured(conditions=DEEP, cpu=None, **ops: OpResult) -> Measurement:
    return Measurement("m", conditions, ops, cpu=cpu)


def points(*measurements: Measurement) -> tuple[list[Point], list[str]]:
    files = [
        Capture(Path(f"{n}.json"), "made", None, (m,), rows=1) for n, m in enumerate(measurements)
    ]
    return points_of(Captures(tuple(files)))


def only(measurement: Measurement) -> Point:
    (found,), _ = points(measurement)
    return found


NO_SIZE = "no single block size is known"


@pytest.mark.parametrize(
    ("measurement", "why"),
    [
        (measured(), "it does not say what was read and what written"),
        (measured(replace(DEEP, block_size=None), read=op()), NO_SIZE),
        (
            measured(replace(DEEP, block_size={4096: 1.0}), read=op()),
            "no single block size is known",
        ),
        (measured(replace(DEEP, jobs=None), read=op()), "the queue depth is not known"),
        (measured(replace(DEEP, iodepth=None), read=op()), "the queue depth is not known"),
        (measured(replace(DEEP, rate_iops=5.0), read=op()), "it did more than its rate limit"),
        (measured(read=op(iops=0.0)), "it did no requests"),
    ],
)
def test_what_is_no_point_is_named_with_its_reason(measurement: Measurement, why: str) -> None:
    with pytest.raises(FitError, match=f"nothing to fit: 0.json: {why}") as caught:
        points(measurement)
    assert ("op,block_size,jobs,iodepth,iops" in str(caught.value)) == ("known" in why)
    found, said = points(measurement, measured(read=op()))
    assert len(found) == 1
    assert any(text.startswith(f"not used, {why}") and "0.json" in text for text in said)


def test_means_are_weighted_by_rates_and_prefer_the_total() -> None:
    assert only(measured(read=op(3000, clat=100e-6), write=op(1000, clat=20e-6))).mean_s == (
        pytest.approx(80e-6)
    )
    assert only(measured(read=op(clat=100e-6, lat=110e-6))).mean_s == pytest.approx(110e-6)
    unknown = Latency(5)
    assert only(measured(read=replace(op(), clat=unknown, lat=unknown))).mean_s is None


def test_submission_is_the_total_less_clat() -> None:
    assert only(measured(read=op(clat=90e-6, lat=100e-6))).slat_s == pytest.approx(10e-6)
    assert only(measured(read=op(clat=100e-6, lat=90e-6))).slat_s == 0
    assert only(measured(read=op(clat=90e-6))).slat_s is None
    assert only(measured(read=replace(op(), lat=Latency(5)))).slat_s is None
    assert only(measured(read=replace(op(lat=1e-4), clat=Latency(5)))).slat_s is None


def test_cpu_of_a_request_and_of_a_job() -> None:
    busy = measured(cpu=CpuUse(50.0, 100.0, 150.0), read=op(5000))
    assert only(busy).cpu_s == pytest.approx(1.5 / 5000)
    assert only(busy).per_job_pct == 75  # two jobs
    host = measured(cpu=CpuUse(50.0, 100.0, 150.0, scope="host"), read=op(5000))
    assert only(host).per_job_pct is None
    assert not only(host).is_cpu_bound
    told = measured(cpu=CpuUse(50.0, 100.0, 150.0, per_job_pct=90.0), read=op(5000))
    assert only(told).per_job_pct == 90
    assert only(told).is_cpu_bound
    below = measured(cpu=CpuUse(50.0, 100.0, 150.0, per_job_pct=89.9), read=op(5000))
    assert not only(below).is_cpu_bound
    assert only(measured(read=op())).cpu_s is None


def bins(*pairs: tuple[float, int]) -> dict:
    at, count = zip(*pairs, strict=True)
    return {"bin_s": np.array(at), "bin_count": np.array(count, np.int64)}


def test_percentiles_are_of_the_bin_that_holds_the_rank() -> None:
    table = bins((1e-5, 5_000), (2e-5, 4_900), (3e-5, 100))
    point = only(measured(read=op(count=10_000, **table)))
    assert point.percentiles_s == {50.0: 1e-5, 99.0: 2e-5}  # 99.9 has 10 beyond, 20 are needed
    assert point.bins.count.sum() == 10_000
    one_more = bins((1e-5, 4_999), (2e-5, 4_900), (3e-5, 101))
    assert only(measured(read=op(count=10_000, **one_more))).percentiles_s == {
        50.0: 2e-5, 99.0: 3e-5,
    }  # fmt: skip


def test_the_depth_of_a_point_that_does_not_say_is_enough_and_bounded() -> None:
    """Three times 50 M/s x 80 us is 12,000."""
    assert bounded_depth(50e6, read=True) == 1024


def test_a_percentile_has_at_least_twenty_beyond_it() -> None:
    told = {"percentiles_s": {50.0: 1e-5, 99.0: 2e-5, 99.9: 3e-5}}
    assert list(only(measured(read=op(count=20_001, **told))).percentiles_s) == [50.0, 99.0, 99.9]
    assert list(only(measured(read=op(count=19_990, **told))).percentiles_s) == [50.0, 99.0]
    assert len(only(measured(read=op(count=0, **told))).percentiles_s) == 3  # a datasheet
    _, said = points(measured(read=op(count=19_990, **told)))
    assert any("randread 4 KiB 2 x 8 (p99.9)" in text for text in said)


def test_percentiles_of_the_total_where_clat_has_none() -> None:
    total = Latency(100_000, mean_s=2e-4, percentiles_s={50.0: 2e-4}, **bins((2e-4, 100_000)))
    point = only(measured(read=replace(op(), lat=total)))
    assert (point.percentiles_of, point.percentiles_s[50.0]) == ("lat", 2e-4)
    assert point.bins.at_s.tolist() == [2e-4]
    both = op(percentiles_s={50.0: 1e-4}, **bins((1e-4, 100_000)))
    point = only(measured(read=replace(both, lat=total)))
    assert (point.percentiles_of, point.percentiles_s[50.0]) == ("clat", 1e-4)
    assert point.totals_s[50.0] == 2e-4
    assert point.bins is not None
    assert (point.bins.at_s[0], point.total_bins.at_s[0]) == (1e-4, 2e-4)
    stays = point.with_totals()
    assert (stays.percentiles_of, stays.percentiles_s[50.0]) == ("lat", 2e-4)
    assert stays.bins.at_s[0] == 2e-4


def test_a_mix_has_no_percentiles_of_its_own() -> None:
    table = {"percentiles_s": {50.0: 1e-4}, **bins((1e-4, 100_000))}
    point = only(measured(read=op(950, lat=1e-4, **table), write=op(50, **table)))
    assert (point.percentiles_s, point.totals_s, point.bins, point.total_bins) == (
        {},
        {},
        None,
        None,
    )
    assert point.read_fraction == pytest.approx(0.95)
    nearly = only(measured(read=op(1000, **table), write=op(5, count=10, **table)))
    assert nearly.read_fraction == 1
    assert nearly.percentiles_s


def test_submission_is_added_where_the_file_has_only_clat() -> None:
    point = Point(
        "", 1.0, True, 4096, 1, 1, 1.0, 1e-4, percentiles_s={50.0: 9e-5}, slat_s=1e-5,
    )  # fmt: skip
    assert point.with_totals().percentiles_s == {50.0: pytest.approx(1e-4)}
    total = replace(point, percentiles_of="lat")
    assert total.with_totals() == total
    assert replace(point, slat_s=None).with_totals().percentiles_of == "clat"


def test_repeats_are_found_within_a_step_of_the_mix() -> None:
    conditions = replace(DEEP, read_fraction=0.7)
    found, said = points(
        measured(conditions, read=op(699, count=10_000), write=op(301, count=5_000)),
        measured(conditions, read=op(702, count=90_000), write=op(298, count=40_000)),
        measured(conditions, read=op(602, count=90_000), write=op(398, count=40_000)),
    )
    assert [round(p.read_fraction, 3) for p in found] == [0.702, 0.602]
    assert [p.count for p in found] == [130_000, 130_000]
    assert any("the longest run is used and not: 0.json" in text for text in said)


def test_order_of_points() -> None:
    large = replace(DEEP, block_size=65536)
    shallow = replace(DEEP, iodepth=1)
    sequential = replace(DEEP, access="sequential")
    found, _ = points(
        measured(write=op()), measured(sequential, read=op()), measured(large, read=op()),
        measured(read=op()), measured(shallow, read=op()),
    )  # fmt: skip
    assert [p.name for p in found] == [
        "randread 4 KiB 2 x 1", "randread 4 KiB 2 x 8", "randread 64 KiB 2 x 8", "read 4 KiB 2 x 8",
        "randwrite 4 KiB 2 x 8",
    ]  # fmt: skip


def test_one_block_that_goes_round_the_end_is_the_series_again() -> None:
    series = np.random.default_rng(1).normal(size=101)
    (found,) = percentile_intervals(series, [50.0], 101).values()
    assert found.low == found.value == found.high == np.median(series)
    (found,) = percentile_intervals(series, [50.0], 50).values()
    assert found.low < found.value < found.high


@pytest.mark.parametrize("run", [1, 20])
def test_an_interval_is_the_middle_95_percent_of_resamples_in_blocks(run: int) -> None:
    series = np.repeat(np.random.default_rng(1).normal(size=400), 10)
    begun = np.arange(len(series))
    blocks = series[(begun[:, None] + np.arange(run)) % len(series)]
    other = stats.bootstrap(
        (begun,), lambda which: np.median(blocks[which[: len(series) // run]]), vectorized=False,
        n_resamples=2000, method="percentile", rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    found = percentile_intervals(series, [50.0], run, trials=2000)[50.0]
    assert found.value == np.median(series)
    width = other.high - other.low
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=0.1 * width)


def test_ten_samples_beyond_a_percentile_are_enough() -> None:
    x = np.random.default_rng(1).normal(size=1000)
    assert list(percentile_intervals(x, [0.9, 1.0, 50.0, 99.0, 99.1], 1)) == [1.0, 50.0, 99.0]
    assert percentile_intervals(x, [99.9], 1) == {}
    found = percentile_intervals(x, [50.0], 1)[50.0]
    assert found.value == np.median(x)
    # a median of 1,000 normals: standard error sqrt(pi / 2 / 1000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(np.pi / 2000), rel=0.2)
    assert found.low < found.value < found.high


def test_memory_of_a_series() -> None:
    rng = np.random.default_rng(2)
    assert decorrelation_length(np.zeros(1000)) == 1
    # microseconds make ties, and ties have no order: no memory comes of them
    assert decorrelation_length(rng.integers(0, 2, 4000).astype(float)) == 1
    assert 6 <= decorrelation_length(np.repeat(rng.normal(size=500), 10)) <= 9
    assert decorrelation_length(np.arange(1000.0)) == 100  # a trend: all that is looked at


def plain_memory(series: np.ndarray) -> int:
    """The definition, step by step: autocorrelation of the ranks, averaged over lags k to 2k."""
    ranks = stats.rankdata(series)
    centred = ranks - ranks.mean()
    total = float((centred**2).sum())
    n, lag = len(series), 1

    @cache
    def rho(k: int) -> float:
        return float((centred[k:] * centred[: n - k]).sum()) / total if total > 0 else 0.0

    limit = max(0.1, 1.96 / np.sqrt(n))
    while lag < n // 10 and np.mean([rho(k) for k in range(lag, 2 * lag + 1)]) > limit:
        lag = max(lag + 1, lag * 5 // 4)
    return min(lag, n // 10)


def normals(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n)


SERIES = {
    **{
        f"{n} in runs of {run}": np.repeat(normals(n, n + run), run)[:n].round(1)
        for n in (30, 400, 2000)
        for run in (1, 3, 20, 150)
    },
    **{f"a trend of {n}": np.arange(float(n)) ** 2 for n in (20, 130, 300)},
    # the autocorrelation is below a tenth on the average from some 150 on, short of the longest
    "runs of 220": np.repeat(normals(100, 3), 220),
}


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
def test_memory_is_what_its_definition_says(series: np.ndarray) -> None:
    assert decorrelation_length(series) == plain_memory(series)


def test_memory_of_what_is_too_short_for_any() -> None:
    assert decorrelation_length(np.arange(5.0)) == 1
    assert decorrelation_length(np.arange(25.0)) == 2


def test_runs_of_a_series_are_spread_over_it() -> None:
    series = np.arange(100.0)
    assert thinned(series, 100, 5) is series
    assert thinned(series, 4, 1).tolist() == [0.0, 33.0, 66.0, 99.0]
    assert thinned(series, 5, 2).tolist() == [0.0, 1.0, 98.0, 99.0]
    found = thinned(series, 20, 5)
    assert found.tolist() == [*range(5), *range(32, 37), *range(63, 68), *range(95, 100)]
    assert len(thinned(series, 20, 500)) == 20


def point(jobs=1, depth=16, size=4096, read=1.0, **more):
    return Point("p", read, True, size, jobs, depth, 1e5, 1e-4, {50.0: 9e-5, 99.0: 2e-4}, **more)


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        ("QD=16", [True, False, False, False]),
        ("qd = 64", [False, True, True, False]),
        ("BS=64 KiB", [False, False, False, True]),
        ("OP=write", [False, False, True, False]),
        ("OP=randread", [True, True, False, True]),
        ("JOBS=4", [False, True, False, False]),
    ],
)
def test_a_rule_names_points(rule, held):
    points = [point(), point(4, 16), point(1, 64, read=0.0), point(1, 1, 65536)]
    assert [p.held_out for p in hold_out(points, [rule])] == held


@pytest.mark.parametrize("rule", ["OP=randrw", "OP=randrw:70", "OP=rw:70"])
def test_a_mix_is_named_with_its_share_or_without(rule):
    points = [point(), point(read=0.7)]
    assert [p.held_out for p in hold_out(points, [rule])] == [False, True]


@pytest.mark.parametrize("rule", ["QD=17", "QD", "depth=16", "QD=x", "", "OP=trim"])
def test_a_rule_that_names_nothing_is_an_error(rule):
    with pytest.raises(FitError, match="--hold-out"):
        hold_out([point()], [rule])


def test_a_rule_that_holds_nothing_out_is_told_what_there_is():
    points = [replace(point(), iodepth=depth) for depth in (4, 1)]
    with pytest.raises(FitError, match=r"--hold-out QD=17: no point matches; there are QD=1, QD=4"):
        hold_out(points, ["QD=17"])


TOGETHER = """name,op,block_size,jobs,iodepth,iops,lat_mean_us,rate,arrivals,limit,beside
load,randwrite,4k,6,,5000,10,5000,poisson,384,
probe,randread,4k,1,64,1000,70,1000,fixed,64,load
full,randwrite,4k,6,,80000,4800,200000,poisson,384,
,randread,4k,4,,50000,80,,,,
"""


def test_rows_keep_the_load_that_they_state(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(TOGETHER, encoding="utf-8")
    found = {p.name: p for p in points_of(read_captures(path))[0]}
    probe = found["randread 4 KiB 1,000/s"]
    assert (probe.rate, probe.arrivals, probe.beside.rate) == (1000, "paced", 5000)
    full = found["randwrite 4 KiB 6 x 64"]  # it does not keep up: a closed loop of its limit
    assert full.rate is None
    deep = found["randread 4 KiB 4 x 1"]  # by Little's law
    assert not deep.is_bounded
    drive = bench.drive()
    answer = measure(drive, bench.host(), probe, requests=20_000)
    assert answer.iops == pytest.approx(1000, rel=0.01)
    alone = measure(drive, bench.host(), deep).mean_s
    busy = 5000 * drive.write.program.value / PS_PER_S / drive.dies.value
    waits = busy * PAGE_PS / PS_PER_S / 2  # of a read that finds a program: half of what it takes
    assert answer.mean_s == pytest.approx(alone + waits, rel=0.1)


def test_a_flush_follows_each_write_and_an_array_is_simulated():
    one = point(1, 1, read=0.0)
    safe = bench.drive()  # with capacitors Linux sends no flush
    lost = safe.model_copy(update={"write": safe.write.model_copy(update={"volatile": True})})
    plain, synced, array = (
        measure(lost, bench.host(), p, requests=20_000).iops
        for p in (one, replace(one, sync="fdatasync"), replace(one, raid="raid1", targets=2))
    )
    assert synced < 0.8 * plain
    assert array < 1.05 * plain
    wide = replace(one, raid="raid0:65536", targets=2, jobs=64)
    lone = measure(bench.drive(), bench.host(), replace(one, jobs=64), requests=20_000).iops
    assert measure(bench.drive(), bench.host(), wide, requests=20_000).iops > 1.5 * lone


@pytest.mark.parametrize(
    ("targets", "per_job", "own"),
    [
        (2, 1, True),
        (4, 1, True),
        (4, 4, False),
        (2, 2, False),
        (1, 1, False),
        (4, None, False),
        (None, 1, False),
    ],
)
def test_jobs_have_targets_of_their_own(targets, per_job, own):
    conditions = replace(DEEP, jobs=4, targets=targets, targets_per_job=per_job)
    point = only(measured(conditions, read=op()))
    assert (point.own_targets, point.targets) == (own, targets or 1)
