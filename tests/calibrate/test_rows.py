"""Rows as users have them: ceilings are ceilings, explanations are carried, misses are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nvmesim.calibrate.asked_host import parse_host
from nvmesim.calibrate.bench import BenchAnswer, free_host, measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.drive.gate import missed_means, misses, residual
from nvmesim.calibrate.drive.suspension import suspending
from nvmesim.calibrate.drive.which_rows import host_doubts
from nvmesim.calibrate.evidence import DriveFit, Judged
from nvmesim.calibrate.points import Point, points_of
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.load import with_alternative
from nvmesim.errors import FitError
from tests.calibrate.bench import drive, host, simulated

pytestmark = pytest.mark.xdist_group("rows")


def row(read: float, jobs: int, depth: int, iops: float, **more: Any) -> Point:
    return Point("", read, True, 4096, jobs, depth, iops, **{"mean_s": None, **more})


def test_one_deep_row_reproduces_itself() -> None:
    """8 x 128 at 894k: assumed channels and dies once capped it at half."""
    fit = fit_drive([row(1.0, 8, 128, 894e3)])
    assert abs(fit.residuals[0]) < 0.05
    assert fit.misses == ()
    assert 894e3 < fit.profile.dies.value / fit.profile.read.die.value * 1e12 < 1.5 * 894e3
    assert set(fit.profile.untold) >= {"read.base", "read.die", "commands", "dies"}
    (other,) = fit.profile.alternatives
    assert with_alternative(fit.profile, other).commands.value == pytest.approx(894e3, rel=0.05)


def test_nothing_to_fit_names_the_column_that_was_not_read(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("op,request,jobs,qd,iops\nrandread,4k,1,1,9\n")
    with pytest.raises(FitError, match=r"block size is known; .*'request' is not known"):
        points_of(read_captures([tmp_path / "rows.csv"]))


@pytest.mark.parametrize(("again", "is_doubted"), [(110_000, False), (250_000, True)])
def test_repeats_that_differ_are_doubted(tmp_path: Path, again: int, is_doubted: bool) -> None:
    """Two runs of one load that do 2.5 times as much were of two things, such as an array."""
    rows = "\n".join(f"randread,4k,4,32,{iops}" for iops in (100_000, again))
    (tmp_path / "rows.csv").write_text(f"op,block_size,jobs,qd,iops\n{rows}\n")
    points, said = points_of(read_captures([tmp_path / "rows.csv"]))
    assert len(points) == 1
    assert any(f"2 runs, 100,000 to {again:,}" in text for text in said) == is_doubted


@pytest.mark.parametrize(
    ("gigabytes", "named"),
    [(5, ""), (10, "'pcie5 x4'"), (20, "'pcie6 x4'"), (60, "several drives")],
)
def test_more_than_a_port_carries_names_one_that_does(gigabytes: int, named: str) -> None:
    host = parse_host("linux-libaio,pcie4 x4").host
    said = [*host_doubts(host, [row(1.0, 4, 64, gigabytes * 1e9 / 4096)], included=False)]
    assert [named in text for text in said] == [True] * bool(named)


def test_a_write_ceiling_is_no_latency() -> None:
    fit = fit_drive([row(0.0, 4, 64, 200e3)])
    w = fit.profile.write
    assert abs(fit.residuals[0]) < 0.05
    assert w.base.value < 60e6  # 256 in flight at 200k are 1.3 ms
    deeper = measure(fit.profile, free_host(fit.profile.link), row(0.0, 8, 64, 1.0))
    assert deeper.iops == pytest.approx(200e3, rel=0.05)


P4610 = [row(1.0, 32, 128, 639e3), row(0.0, 32, 128, 346e3)]
MIXES = [
    row(r / (r + w), 32, 128, 1e6 * (r + w))
    for r, w in ((0.404, 0.101), (0.333, 0.143), (0.211, 0.211), (0.111, 0.26))
]
"""Published beside it: million reads and writes a second of one P4610 1.6 TB, 32 x 128."""


@pytest.fixture(scope="module")
def pure() -> DriveFit:
    return fit_drive(P4610)


def test_pure_rows_leave_both_explanations_and_each_makes_them(pure: DriveFit) -> None:
    assert len(pure.profile.alternatives) == 2
    weights = {a.name: a.weight for a in pure.profile.alternatives}
    assert 1 - sum(weights.values()) == pytest.approx(0.5, abs=0.02)
    assert sum(w for n, w in weights.items() if "of the controller" in n) == pytest.approx(
        0.5, abs=0.02
    )
    assert max(abs(pure.residuals)) < 0.03
    for other in pure.profile.alternatives:
        made = with_alternative(pure.profile, other)
        for p in P4610:
            again = simulated(made, p.jobs, p.iodepth, read=p.read_fraction, on=None)
            assert again.iops == pytest.approx(p.iops, rel=0.05), other.name


def test_what_mixes_are_lies_among_the_explanations(pure: DriveFit) -> None:
    """With a suspension as short as this drive's, measured mixes lie 0 to 11 % below all of them,
    as reads and writes take turns in each; that time lies in the interval that is carried.
    """
    assert pure.profile.write.suspend.low < 21e6 < pure.profile.write.suspend.high
    named = {a.name: with_alternative(pure.profile, a) for a in pure.profile.alternatives}
    for p in MIXES:
        off = [
            simulated(suspending(made, 21e6), p.jobs, p.iodepth, read=p.read_fraction).iops / p.iops
            - 1
            for made in (pure.profile, *named.values())
        ]
        print(p.name, [f"{o:+.1%}" for o in off])
        assert min(map(abs, off)) < 0.03
        assert min(off) > -0.03
        assert max(off) < 0.12


def test_mixes_decide() -> None:
    fit = fit_drive([*P4610, *MIXES])
    assert max(abs(fit.residuals)) < 0.05
    suspend = fit.profile.write.suspend
    assert suspend.basis == "fitted"
    assert suspend.low < 21e6 < suspend.high  # as its even mix alone tells, ceiling on the dies


def test_one_mix_tells_the_other() -> None:
    """An unnamed PCIe 4.0 drive beside the P4610: its mixes are 17 and 21 % below work alone."""
    pure = [row(1.0, 16, 128, 1018e3), row(0.0, 16, 128, 376e3)]
    other = row(0.9, 16, 128, 756e3)
    made = fit_drive([*pure, row(0.5, 16, 128, 458e3)]).profile
    assert 40e6 < made.write.suspend.value < 160e6
    assert simulated(made, 16, 128, read=0.9).iops == pytest.approx(other.iops, rel=0.03)


def test_an_array_row_calibrates_its_drive() -> None:
    truth = drive()
    one = simulated(truth, 1, 1)
    asked = replace(one, jobs=16, iodepth=64, targets=4, own_targets=True)

    answer = measure(truth, host(), asked, requests=100_000, seed=5)
    four = replace(asked, iops=answer.iops, mean_s=answer.mean_s, percentiles_s={}, body_s={})
    fit = fit_drive([one, four])
    assert max(abs(fit.residuals)) < 0.03
    single = simulated(fit.profile, 4, 64)
    assert single.iops == pytest.approx(simulated(truth, 4, 64).iops, rel=0.04)


def test_a_row_that_is_missed_is_named_with_what_stands_in_the_way() -> None:
    point = row(1.0, 8, 128, 900e3, source="review.csv", place="line 7")
    far = Judged(point, BenchAnswer(600e3, 1e-3, full="dies"))
    (said,), carried = misses([far], is_included=True)
    assert carried == []
    assert said.startswith("review.csv, line 7: randread 4 KiB 8 x 128: the fitted drive does 600,")
    assert "(-33%); dies and the time of a die limits it" in said
    assert misses([Judged(point, BenchAnswer(860e3, 1e-3))], is_included=True) == ([], [])
    noisy = replace(point, noise=0.15)
    assert misses([Judged(noisy, BenchAnswer(600e3, 1e-3))], is_included=True) == ([], [])
    unlike = replace(point, noise=0.6)  # of several drives, or states
    assert misses([Judged(unlike, BenchAnswer(600e3, 1e-3))], is_included=True) == ([], [])
    assert misses([Judged(unlike, BenchAnswer(400e3, 1e-3))], is_included=True)[0]


def test_a_small_miss_and_flushes_beside_plain_writes_are_carried_not_refused() -> None:
    near = Judged(row(1.0, 8, 128, 900e3), BenchAnswer(720e3, 1e-3))
    plain = Judged(row(0.0, 1, 1, 40e3), BenchAnswer(40e3, 1e-3))
    synced = Judged(replace(row(0.0, 1, 1, 1e3), sync="fsync"), BenchAnswer(10e3, 1e-3))
    assert misses([near, plain, synced], is_included=True) == ([], [])
    assert [len(rows) for rows in misses([near, synced], is_included=True)] == [1, 0]
    assert residual(synced).sync == "fsync"


@pytest.mark.parametrize(
    ("point", "iops", "is_carried"),
    [
        (row(0.5, 1, 32, 68e3), 200e3, True),  # a mix slower than its parts make it
        (row(0.5, 1, 32, 68e3), 20e3, False),  # one that is faster
        (replace(row(1.0, 1, 1, 4e3), random=False), 2e3, True),
    ],
)
def test_streams_and_slow_mixes_are_carried_beside_random_rows(point, iops, is_carried):
    rows = [Judged(row(1.0, 8, 128, 900e3), BenchAnswer(900e3, 1e-3)),
            Judged(point, BenchAnswer(iops, 1e-3))]  # fmt: skip
    refused, carried = misses(rows, is_included=True)
    assert (len(refused), len(carried)) == ((0, 1) if is_carried else (1, 0))


def points_in(folder: Path, text: str) -> tuple[list[Point], list[str]]:
    (folder / "p.csv").write_text(text, encoding="utf-8")
    return points_of(read_captures([folder / "p.csv"]))


def test_columns_for_drives_threads_and_notes(tmp_path: Path) -> None:
    text = (
        "op,block_size,iodepth,iops,drives,threads_per_drive,note\n"
        "randread,4k,32,4000000,8,4,array\n"
    )
    ((point,), _) = points_in(tmp_path, text)
    assert (point.jobs, point.targets, point.own_targets, point.depth) == (32, 8, True, 128)


def test_an_unknown_depth_is_bounded_and_said(tmp_path: Path) -> None:
    ((point,), said) = points_in(tmp_path, "op,block_size,iops\nrandread,4k,894000\n")
    assert point.is_bounded
    assert point.outstanding == 256
    assert any("jobs or depth not stated" in text for text in said)


def test_repeats_give_the_noise(tmp_path: Path) -> None:
    text = "op,block_size,jobs,iodepth,iops\n" + "".join(
        f"randread,4k,1,32,{iops}\n" for iops in (100000, 104000, 96000)
    )
    ((point,), _) = points_in(tmp_path, text)
    assert point.iops == 100_000
    assert point.noise == pytest.approx(0.04, rel=0.05)


@pytest.mark.parametrize(
    ("count", "share", "missed"),
    [(10_000, 0.85, True), (10_000, 0.92, False), (30, 0.85, False)],
    ids=["15 % of many", "8 % of many", "15 % of thirty"],
)
def test_a_mean_of_a_trace_that_is_missed_is_named(count, share, missed):
    """Exponential latencies: of thirty the mean is known to 18 %, of 10,000 to 1 %."""
    rng = np.random.default_rng(1)
    took = rng.exponential(1e-4, 2 * count)
    write = np.arange(2 * count) % 2 == 0
    model = np.where(write, share * took, took)
    found = missed_means("x.blkparse", write, took, model)
    assert [line.split(" take ")[0] for line in found] == ["x.blkparse: writes"] * missed


def test_an_operation_that_a_trace_has_none_of_is_not_missed():
    took = np.full(100, 1e-4)
    assert missed_means("x", np.zeros(100, bool), took, took) == []


def test_a_slow_mix_beside_a_sequential_row_is_fitted() -> None:
    """A capped volume: 3k mixed requests/s. Reads of the assumed drive once did 60k of them."""
    mix, stream = row(0.5, 4, 256, 3000.0), replace(row(1.0, 1, 64, 126.0), random=False)
    rows = [mix, replace(stream, block_size=1 << 20)]
    fit = fit_drive(rows)
    assert fit.misses == ()
    assert abs(fit.residuals[0]) < 0.1
    written = fit.profile.write_bandwidth
    assert written.basis == "assumed"  # and no faster than reads
    assert written.low is not None
    assert written.high is not None
    assert written.low < 126 * (1 << 20) < written.high < 1e9


def test_reads_are_what_mixes_take_beyond_their_writes() -> None:
    write, mix = row(0.0, 1, 2, 3500.0), row(0.5, 1, 2, 2500.0)
    fit = fit_drive([write, mix])
    assert fit.misses == ()
    assert all(abs(r) < 0.1 for r in fit.residuals)


def test_a_few_slow_requests_tell_a_network_and_no_ceiling() -> None:
    """4 reads of 0.64 ms and 4 writes of 4 ms: once 6k and 1k a second at any depth."""
    profile = fit_drive([row(1.0, 1, 4, 6240.0), row(0.0, 1, 4, 941.0)]).profile
    deep = [measure(profile, free_host("pcie4 x4"), row(x, 1, 64, 1.0)).iops for x in (1.0, 0.0)]
    assert deep[0] > 4 * 6240
    assert deep[1] > 4 * 941


def test_a_rate_counts_before_the_percentiles_of_bursts() -> None:
    """Of 256 at once many are answered at once, the others wait for a limit: no drive does both."""
    shares = {50.0: 20e-3, 99.0: 77e-3, 99.9: 0.1}
    body = {10.0: 16e-6, 30.0: 21e-6, 70.0: 64e-3, 90.0: 64e-3}
    fit = fit_drive([
        row(0.0, 1, 256, 3000.0, mean_s=77e-3, percentiles_s=shares, body_s=body, cpu_s=14e-6)
    ])  # fmt: skip
    assert fit.misses == ()
    assert abs(fit.residuals[0]) < 0.1
