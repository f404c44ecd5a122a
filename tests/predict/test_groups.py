"""Tenants: limits, bursts, what each got, latency over time, and what was agreed."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nvmesim as ns
from nvmesim.catalog.toml import to_toml
from nvmesim.errors import ScenarioError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.show.report import page
from tests.servers import bare, one_server

FIO = Path(__file__).parents[1] / "capture/data/fio-json"


def scenario(*groups, requests=20_000):
    tables = one_server("intel-p4610-1.6tb", list(groups), 2, run={"requests": requests})
    return scenario_from_dict(tables)


def run(*groups, requests=20_000, **options):
    return bare(scenario(*groups, requests=requests), **options)


WEB = {"name": "web", "threads": 2, "outstanding": 8, "slo": "90 us"}
BACKUP = {"name": "backup", "block_size": "64 KiB", "threads": 1, "outstanding": 4}


def test_each_group_by_itself_and_all_together():
    found = run(WEB, BACKUP)
    web, backup = found.groups
    assert web.iops.value + backup.iops.value == pytest.approx(found.total.iops.value, rel=1e-6)
    assert web.percentiles["p50"] < found.total.latency.percentiles[50.0] * 1.001
    assert backup.percentiles["p50"] > 1.3 * web.percentiles["p50"]  # 16 pages and their bytes
    weighted = (web.iops.value * web.mean_s + backup.iops.value * backup.mean_s) / (
        web.iops.value + backup.iops.value
    )
    assert weighted == pytest.approx(found.total.latency.mean, rel=0.005)
    assert web.slo.limit_s == pytest.approx(90e-6)
    assert backup.slo is None
    assert "web" in str(found)
    (alone,) = run(WEB).groups
    assert alone.iops.value > web.iops.value


def test_shares_above_are_those_of_the_requests_file(tmp_path):
    out = tmp_path / "requests.parquet"
    found = run(WEB, BACKUP, requests_file=out)
    rows = pl.read_parquet(out).filter(~pl.col("warmup"), pl.col("workload") == 0)
    above = (rows["latency_s"] > 90e-6).mean()
    (late,) = [g.slo for g in found.groups if g.slo]
    assert late.requests_above.value == pytest.approx(above, abs=0.01)
    assert late.requests_above.low <= above + 0.01
    assert late.requests_above.high >= above - 0.01
    assert late.time_above == 1.0


@pytest.mark.parametrize(
    ("limits", "iops"),
    [
        ({"iops": "20k/s"}, 20_000),
        ({"bandwidth": "40.96 MB/s"}, 10_000),
        ({"iops": "20k/s", "bandwidth": "40.96 MB/s"}, 10_000),
        ({"iops": "20k/s", "burst": "1 ms", "peak_iops": "100k/s"}, 20_000),
    ],
)
def test_a_closed_loop_gets_its_limit_and_waits_for_the_rest(limits, iops):
    found = run({**WEB, "limits": limits})
    (web,) = found.groups
    assert web.iops.value == pytest.approx(iops, rel=0.01)
    assert web.limit_used == pytest.approx(1.0, abs=0.01)
    # Little: 32 outstanding at that rate
    assert web.mean_s == pytest.approx(32 / iops, rel=0.01)
    assert web.limit_wait_s > 0.9 * (web.mean_s - 90e-6)
    assert found.bottleneck.verdict == "limit"
    assert "limit" in found.bottleneck.sentence


def test_limits_below_what_arrives_leave_no_steady_state_and_the_rest_to_others():
    before, after = (run(WEB, {**BACKUP, **more}) for more in ({}, {"limits": {"iops": "1k/s"}}))
    assert after.groups[1].iops.value == pytest.approx(1000, rel=0.02)
    assert after.groups[0].percentiles["p99"] < before.groups[0].percentiles["p99"]
    assert after.bottleneck.verdict != "limit"
    load = {"name": "a", "rate": "30k/s", "limits": {"iops": "20k/s"}}
    found = run(load, requests=200_000)
    assert found.bottleneck.verdict == "unstable"
    assert "a IOPS limit" in found.bottleneck.sentence
    assert found.bottleneck.backlog_per_s == pytest.approx(10_000, rel=0.05)


def test_saved_credit_carries_a_burst_that_the_limit_alone_would_not():
    bursts = {"on": "2 ms", "off": "8 ms", "lengths": "fixed"}
    load = {"name": "a", "rate": "40k/s", "threads": 4, "bursts": bursts}
    tight = run({**load, "limits": {"iops": "50k/s"}}).groups[0]
    saved = run({**load, "limits": {"iops": "50k/s", "burst": "10 ms"}}).groups[0]
    free = run(load).groups[0]
    # 400 requests arrive in 2 ms at 200k/s; at 50k/s the last waits for 6 ms, the middle for 3
    assert tight.percentiles["p50"] == pytest.approx(3e-3, rel=0.1)
    assert saved.percentiles["p50"] == pytest.approx(free.percentiles["p50"], rel=0.05)


def test_latency_over_time_follows_the_bursts_and_time_above_counts_slices():
    bursts = {"on": "90 ms", "off": "90 ms", "quiet": 0.4, "lengths": "fixed"}
    found = run({"name": "a", "rate": "700k/s", "threads": 8, "bursts": bursts, "slo": "300 us"},
                requests=400_000)  # fmt: skip
    frame = found.over_time.frame()
    assert frame["group"].unique().to_list() == ["a"]
    assert (frame["end_s"] > frame["start_s"]).all()
    assert float((frame["end_s"] - frame["start_s"]).sum()) == pytest.approx(found.simulated_s)
    busy = frame.filter(pl.col("iops") > 9e5)
    calm = frame.filter(pl.col("iops") < 5e5)
    assert len(busy) > 5
    assert len(calm) > 5
    assert busy["p99_s"].mean() > 1.2 * calm["p99_s"].mean()
    assert "Workloads" in page(found)
    bursts = {"on": "20 ms", "off": "60 ms", "lengths": "fixed"}
    load = {"name": "a", "rate": "300k/s", "threads": 8, "bursts": bursts}
    steady = run({**load, "slo": "20 ms"}, requests=200_000).groups[0].slo
    assert (steady.requests_above.value, steady.time_above) == (0.0, 0.0)
    tight = run({**load, "slo": "30 us"}, requests=200_000).groups[0].slo
    assert tight.requests_above.value == pytest.approx(1.0, abs=1e-4)
    assert tight.time_above == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"limits": {}}, "iops or bandwidth"),
        ({"limits": {"iops": "0/s"}}, "greater than 0|above 0|range"),
        ({"limits": {"iops": "20k/s", "peak_iops": "30k/s"}}, "burst"),
        ({"limits": {"iops": "20k/s", "burst": "1 s", "peak_iops": "10k/s"}}, "larger"),
        ({"limits": {"iop": "20k/s"}}, "iops"),
        ({"bursts": {"on": "1 ms", "off": "9 ms"}}, "bursts needs rate"),
        ({"slo": "0 us"}, "slo"),
    ],
)
def test_bad_limits_are_one_line(change, match):
    with pytest.raises(ScenarioError, match=match):
        scenario({**WEB, **change})


def test_bursts_that_hardly_ever_come_are_refused():
    bursts = {"on": "1 us", "off": "1 s"}
    with pytest.raises(ScenarioError, match="times the mean"):
        scenario({"rate": "1k/s", "bursts": bursts})


def test_a_trace_shows_its_own_time(tmp_path):
    """Arrivals that pause: nothing is warm-up, and the slices tell the pause."""
    at = np.concatenate([np.linspace(0, 0.1, 3000), np.linspace(0.9, 1.0, 3000)])
    lines = [
        f"  8,0    0 {i + 1:8d} {t:14.9f}  1  D   R {8 * i} + 8 [fio]" for i, t in enumerate(at)
    ]
    trace = tmp_path / "paused.blkparse"
    ends = [
        f"  8,0    0 {len(at) + i + 1:8d} {t + 9e-5:14.9f}  0  C   R {8 * i} + 8 [0]"
        for i, t in enumerate(at)
    ]
    both = sorted(zip([*at, *(at + 9e-5)], [*lines, *ends], strict=True))
    trace.write_text("\n".join(text for _, text in both) + "\n")
    for speed in (1.0, 2.0):
        found = run({"name": "t", "trace": str(trace), "speed": speed}, requests=6000)
        frame = found.over_time.frame()
        assert float(frame["end_s"].max()) == pytest.approx(1.0 / speed, rel=0.01)
        assert float((frame["end_s"] - frame["start_s"]).max()) > 0.7 / speed
    assert math.isfinite(found.total.latency.mean)


def test_what_is_above_a_goal_is_counted_where_the_p99_was_moved(tmp_path):
    """A profile that misses its own p99 moves it: the shares, the curve and the maximum follow."""
    capture = FIO / "randread_4k_qd4_nj3_group.json"
    (tmp_path / "mine.toml").write_text(to_toml(ns.fit_drive(ns.read_captures([capture])).profile))
    load = [{"threads": 2, "outstanding": 8, "slo": "1 ms"}]
    tables = one_server("mine.toml", load, 4, stack="linux-libaio")
    found = ns.simulate(scenario_from_dict(tables, tmp_path), reliefs=False, requests=200_000)
    latency, late = found.total.latency, found.groups[0].slo.requests_above.value
    p99 = latency.percentiles[99.0]
    assert found.certainty.figures["p99"].misfit[1] > 0
    assert p99 > 1e-3
    assert late > 0.01
    shares = np.cumsum(latency.bin_count) / latency.bin_count.sum()
    assert latency.bin_s[np.searchsorted(shares, 0.99)] == pytest.approx(p99, rel=0.02)
    assert 1 - shares[np.searchsorted(latency.bin_s, 1e-3)] == pytest.approx(late, abs=0.002)
    assert latency.max >= latency.percentiles[99.9] > p99
