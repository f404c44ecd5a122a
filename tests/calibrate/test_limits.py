"""A volume's rate limit is recognised, recovered, and told from what a disk itself can do."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.over_time.limits import bursts_of, find_limits
from nvmesim.calibrate.points import points_of
from nvmesim.capture.capture import Captures
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import load
from nvmesim.catalog.profile import Quantity, VolumeLimits
from nvmesim.catalog.toml import to_toml
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.model.lower import lower
from nvmesim.scenario.workload_keys import LimitsSpec
from tests.calibrate.bench import drive, fio_json, simulated
from tests.calibrate.written import scenario_of, write_blkparse

CAPTURES = Path(__file__).parents[2] / "calibration"
DEPTHS = (1, 2, 4, 16, 64)


def limited(iops: float | None = None, bandwidth: float | None = None):
    """A volume whose disk takes 0.45 ms a read, behind a limit."""

    def quantity(value):
        return None if value is None else Quantity(value=value)

    limits = VolumeLimits(iops=quantity(iops), bandwidth=quantity(bandwidth))
    return drive(dies=64, die=300.0, base=150.0, ack=300.0).model_copy(update={"limits": limits})


def sweep(profile, *, read=1.0, size=4096, seed=1):
    """What fio would have measured at each depth."""
    return [
        simulated(profile, 1, n, read=read, size=size, requests=20_000, seed=seed + n)
        for n in DEPTHS
    ]


def test_reads_and_writes_at_one_rate_are_a_limit_and_it_is_recovered():
    points = sweep(limited(3000)) + sweep(limited(3000), read=0.0)
    fit = fit_drive(points)
    found = fit.profile.limits
    assert found.iops.low <= 3000 <= found.iops.high
    assert found.iops.value == pytest.approx(3000, rel=0.002)
    assert found.bandwidth is None
    for j in fit.points:
        assert abs(j.residual["iops"]) < 0.01, j.point.name
        assert abs(j.residual["p99_s"]) < 0.05, j.point.name
    (said,) = [w for w in fit.warnings if w.startswith("a rate limit of")]
    assert "3,000 requests/s: randread 4 KiB, randwrite 4 KiB stay at it from depth 2" in said
    assert "more depth buys only latency, a larger allowance buys throughput" in said
    assert any("a capture at another size would decide" in w for w in fit.warnings)


def test_the_disk_behind_it_is_fitted_from_the_points_below(tmp_path):
    points = [replace(p, held_out=p.outstanding == 16) for p in sweep(limited(20_000))]
    fit = fit_drive(points)
    (held,) = [j for j in fit.points if j.point.held_out]
    assert abs(held.residual["iops"]) < 0.02
    assert abs(held.residual["p99_s"]) < 0.10
    path = tmp_path / "volume.toml"
    path.write_text(to_toml(fit.profile))
    assert load("drive", str(path)).limits == fit.profile.limits


def test_files_of_fio_say_it_too(tmp_path):
    for point in sweep(limited(3000)):
        (tmp_path / f"qd{point.iodepth}.json").write_text(fio_json(point))
    points, _ = points_of(read_captures([tmp_path]))
    found = find_limits(points)
    assert found.profile.iops.value == pytest.approx(3000, rel=0.002)
    assert "qd64.json" in found.profile.iops.source


@pytest.mark.parametrize("seed", range(3))
def test_bytes_and_requests_are_told_apart_by_size(seed):
    volume = limited(16_000, 125e6)
    points = [p for n in (4096, 262144) for r in (1.0, 0.0)
              for p in sweep(volume, read=r, size=n, seed=100 * seed)]  # fmt: skip
    found = find_limits(points)
    assert found.profile.iops.low <= 16_000 <= found.profile.iops.high
    assert found.profile.bandwidth.low <= 125e6 <= found.profile.bandwidth.high
    assert found.allowed(65536) == pytest.approx(125e6 / 65536, rel=0.01)
    only = find_limits([p for p in points if p.block_size > 4096])
    assert only.profile.iops is None or only.allowed(262144) == pytest.approx(477, rel=0.01)


@pytest.mark.long
def test_a_volume_with_both_limits_is_told_at_every_point():
    volume = limited(16_000, 250e6)
    points = [p for n in (4096, 262144) for r in (1.0, 0.0) for p in sweep(volume, read=r, size=n)]
    fit = fit_drive(points)
    for j in fit.points:
        assert abs(j.residual["iops"]) < 0.02, j.point.name
        assert abs(j.residual["p50_s"]) < 0.05, j.point.name
    assert fit.profile.write.program.basis == "assumed"
    (said,) = [w for w in fit.warnings if w.startswith("a rate limit of")]
    assert "16,000 requests/s and 250 MB/s" in said
    assert any("the write rate of the disk behind it is assumed" in w for w in fit.warnings)


def test_what_a_disk_itself_can_do_is_no_limit():
    points = sweep(drive()) + sweep(drive(), read=0.0)
    assert find_limits(points) is None
    deep = [simulated(drive(commands=100e3), 1, n, requests=20_000) for n in (1, 8, 32, 64, 128)]
    assert find_limits(deep[:-1]) is None
    for folder in ("local-disk", "samsung-980pro"):
        files = sorted((CAPTURES / folder).glob("*.json"))
        if files:
            assert find_limits(points_of(read_captures(files))[0]) is None, folder


def test_one_thread_that_is_full_is_no_limit():
    full = [replace(p, per_job_pct=97.0) for p in sweep(limited(3000))]
    assert find_limits(full) is None


def bursting(rate: float, burst_s: float, *, read: float, n: int = 60_000) -> np.ndarray:
    """Requests of a load that a token bucket lets run ahead at first; as `requests_of`."""
    scenario = scenario_of(drive(), 32, ((4096, 1.0),), read)
    limits = LimitsSpec(iops=f"{rate}/s", burst=f"{burst_s} s")
    group = replace(scenario.workload[0], limits=limits)
    lowered = lower(replace(scenario, workload=(group,)))
    engine = CompiledEngine(lowered.network, record=True)
    rows = []
    while sum(map(len, rows)) < n:
        engine.advance(1 << 15)
        rows.append(engine.records())
    table = np.concatenate(rows)[:n]
    write = np.array([f.write for f in lowered.flows])[table[:, 3]]
    size = np.full(len(table), 4096)
    return np.stack([table[:, 4], table[:, 6], write.astype(np.int64), size], axis=1)


@pytest.mark.parametrize("burst_s", [0.2, 0.5])
def test_a_burst_credit_that_is_spent_is_recovered(tmp_path, burst_s):
    path = tmp_path / "burst.blkparse"
    write_blkparse(path, bursting(40e3, burst_s, read=1.0))
    (burst,) = bursts_of(read_captures(path))
    assert burst.iops == pytest.approx(40e3, rel=0.01)
    step = burst.step
    assert step.low <= burst_s * 40e3 * 4096 <= step.high
    found = find_limits([], [burst])
    assert found.profile.burst.low <= burst_s * 1e12 <= found.profile.burst.high
    assert "was spent" in " ".join(found.notes)


def test_a_series_of_fio_steps_down_in_a_fit(tmp_path):
    point = replace(sweep(limited(3000))[-1], label="burst")
    whole = json.loads(fio_json(point))
    whole["jobs"][0]["job options"]["write_iops_log"] = "burst"
    (tmp_path / "burst.json").write_text(json.dumps(whole))
    rate = [9000] * 30 + [3000] * 60
    lines = "".join(f"{1000 * (i + 1)}, {r}, 0, 0, 0\n" for i, r in enumerate(rate))
    (tmp_path / "burst_iops.1.log").write_text(lines)
    captures = read_captures([tmp_path])
    assert [b.saved_s for b in bursts_of(captures)] == pytest.approx([60.0], rel=0.05)
    fit = fit_drive(captures)
    assert fit.profile.limits.iops.value == pytest.approx(3000, rel=0.01)
    assert fit.profile.limits.burst.value == pytest.approx(60e12, rel=0.05)
    assert any("saved-up allowance of 180,000 requests" in w for w in fit.warnings)


def test_a_write_buffer_is_not_taken_for_a_credit(tmp_path):
    path = tmp_path / "writes.blkparse"
    write_blkparse(path, bursting(40e3, 0.3, read=0.0))
    bursts = bursts_of(read_captures(path))
    assert not bursts[0].reads
    assert find_limits([], bursts) is None
    flat = sweep(limited(40_000), read=0.0)  # the same rate at every depth: then it is one
    assert find_limits(flat, bursts).profile.burst is not None
    assert bursts_of(Captures(())) == []


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="limits needs iops or bandwidth"):
        VolumeLimits()


def test_flat_writes_are_the_drives_own():
    """A buffer's drain is as flat as a limit, with as sharp a knee; reads that exceed it tell."""
    writes = [simulated(drive(), 1, n, read=0.0, requests=20_000) for n in (1, 4, 16, 64)]
    assert find_limits(writes) is None
    reads = [simulated(drive(), 1, n, requests=20_000) for n in (1, 8, 64)]
    assert find_limits(writes + reads) is None
    flat = sweep(limited(3_000))
    assert find_limits(flat) is not None
    assert find_limits([*flat, *reads]) is None  # 340k of the same size


def test_two_ceilings_that_meet_by_chance_are_no_limit(tmp_path):
    """An AWS m5d: 16 KiB reads and 8 KiB writes stop near 33k/s, smaller reads at 117k/s."""
    swept = {
        ("randread", "4K"): (11151, 42917, 117932, 117160),
        ("randread", "16K"): (9519, 32605, 33067, 33066),
        ("randwrite", "8K"): (31157, 32173, 32173, 32172),
    }
    path = tmp_path / "points.csv"
    lines = ["op,block_size,jobs,iodepth,iops"]
    for (op, size), rates in swept.items():
        lines += [f"{op},{size},1,{n},{r}" for n, r in zip((1, 4, 16, 64), rates, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    points, _ = points_of(read_captures([str(path)]))
    assert find_limits(points) is None
    shared = [p for p in points if p.block_size > 4096]  # nothing says that the two are not one
    found = find_limits(shared).profile.iops
    assert 32_173 < found.value < 33_067


def test_a_port_that_both_directions_fill_is_no_limit(tmp_path):
    """A drive by SAS moves 1.12 GB/s whichever way: of bytes, and each direction's own."""
    rows = [
        f"{op},1M,1,{n},{rate}" for op, rate in (("read", 1060), ("write", 1071)) for n in (8, 64)
    ]
    rows += ["randread,4K,1,32,180600", "randwrite,4K,1,32,173700"]
    path = tmp_path / "points.csv"
    path.write_text("\n".join(["op,block_size,jobs,iodepth,iops", *rows]) + "\n")
    points, _ = points_of(read_captures([str(path)]))
    found = find_limits(points)
    assert found.profile.iops is None  # 180k of 4 KiB
    assert 1060 << 20 < found.profile.bandwidth.value < 1071 << 20
    assert found.but_of(parse_link("sas3")) is None
    assert found.but_of(parse_link("pcie3 x4")) is found
