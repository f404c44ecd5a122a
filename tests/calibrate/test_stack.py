"""A stack with known costs is simulated, and the fit finds them again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nvmesim.calibrate.asked_host import parse_cpu
from nvmesim.calibrate.bench import measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.infer.posterior import infer
from nvmesim.calibrate.infer.problem import ERRORS
from nvmesim.calibrate.points import Point, points_of
from nvmesim.calibrate.stack.fit import Bench, _with_draws, costs_of, fit_stack
from nvmesim.calibrate.stack.full_threads import with_full_threads
from nvmesim.calibrate.stack.scaled import scaled_costs
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import get, quantities
from nvmesim.catalog.profile import CpuProfile, Quantity
from nvmesim.errors import FitError, InputError
from tests.calibrate.bench import drive, host, simulated, stack

GHZ = 2.5


@pytest.mark.slow
def test_the_costs_are_found():
    made = stack(ghz=GHZ)
    on = host(made, GHZ)
    points = [simulated(drive(), j, d, on=on) for j, d in ((1, 1), (1, 8), (1, 64), (4, 64))]
    fit = fit_stack(points, ghz=GHZ)
    found = fit.profile
    for name in ("submit", "interrupt", "wakeup", "wakeup_half"):
        q, true = getattr(found, name), getattr(made, name).value
        print(name, q.low, q.value, q.high, "true", true)
    work = found.submit.value + found.complete.value
    assert work == pytest.approx(made.submit.value + made.complete.value, rel=0.1)
    assert found.wakeup.value == pytest.approx(made.wakeup.value, rel=0.25)
    for j in fit.points:
        assert abs(j.residual["cpu_s"]) < 0.05
        assert abs(j.residual["iops"]) < 0.05
    assert any("share their cycles 50%" in w or "assumed" in w for w in fit.warnings)


def test_one_row_scales_a_known_stack():
    p = Point("p", 1.0, True, 4096, 16, 64, 2567e3, 399e-6, cpu_s=3.6e-6, per_job_pct=58.0)
    found = fit_stack([p], ghz=GHZ).profile
    known = get("stack", "linux-io_uring")
    ratio = found.submit.value / known.submit.value
    total = known.submit.value + known.complete.value + known.interrupt.value
    assert ratio * total / (GHZ * 1e9) == pytest.approx(3.6e-6, rel=0.5)
    assert found.wakeup.value == pytest.approx(ratio * known.wakeup.value)
    assert found.joint is not None


def test_rows_of_two_sizes_tell_what_a_page_costs():
    """Published: one host's reads of 4 KiB and of 4 MiB, 2.2 and 86 us of CPU each."""
    small = Point("", 1.0, True, 4096, 4, 32, 1548e3, None, cpu_s=2.245e-6, per_job_pct=87.0)
    large = Point("", 1.0, False, 4 << 20, 1, 32, 1733.0, None, cpu_s=85.8e-6, per_job_pct=15.0)
    costs = scaled_costs([small, large], parse_link("pcie4 x4"), 3.0)
    assert 0.05e-6 < 4 * costs.per_kib < 0.09e-6
    assert costs.per_kib * 4096 + costs.factor * 7160 / 3e9 == pytest.approx(85.8e-6, rel=0.02)


def test_of_polled_rows_the_cheapest_tells_the_cost():
    one, two = (
        Point("", 1.0, True, 512, 1, 128, x, None, cpu_s=1 / x, targets=n, polled=True)
        for x, n in ((5.02e6, 1), (6.19e6, 2))
    )
    stack = scaled_costs([one, two], parse_link("pcie4 x4"), 3.0).stack(3.0, "s")
    assert stack.polled
    cycles = stack.submit.value + stack.complete.value
    assert cycles / 3e9 == pytest.approx(1 / 6.19e6, rel=0.01)


def test_a_row_that_the_named_stack_cannot_do_blames_the_stack():
    """One thread did 900k requests/s; the named stack's cycles allow 343k at 2.4 GHz."""
    rows = [deep(1, 14e3, depth=1), deep(1, 900e3)]
    fit = fit_drive(rows, captured_on="linux-libaio,pcie4 x4,2.4 GHz")
    assert not fit.misses
    assert any("it is not the stack that measured" in w for w in fit.warnings)
    plain = fit_drive([deep(1, 14e3, depth=1), deep(4, 1000e3)], captured_on="linux-libaio")
    assert not any("at most: it is not the stack" in w for w in plain.warnings)


def test_no_cpu_figures_are_too_few():
    points = [Point("p", 1.0, True, 4096, 1, d, 12e3 * d, 8e-5) for d in (1, 8)]
    with pytest.raises(FitError, match="with CPU figures; found none"):
        fit_stack(points, ghz=GHZ)


def deep(jobs, iops, drives=1, depth=128):
    return Point("", 1.0, True, 4096, jobs, depth, iops, None, targets=drives)


def test_rows_of_full_threads_are_told_by_more_threads():
    """Published rows of a P5800X: one thread 564k, four and more 1,562k of it."""
    rows = [deep(n, x) for n, x in ((1, 564e3), (2, 1031e3), (4, 1562e3), (8, 1562e3))]
    rows += [deep(n, x, 8) for n, x in ((1, 501e3), (16, 7131e3))]
    found, (said,) = with_full_threads(rows)
    full = [(p.jobs, p.targets) for p in found if p.cpu_s]
    assert full == [(1, 1), (2, 1), (1, 8)]
    assert all(p.is_cpu_bound for p in found if p.cpu_s)
    assert found[1].cpu_s == pytest.approx(2 / 1031e3)
    assert "randread 4 KiB 2 x 128" in said


@pytest.mark.parametrize(
    "rows",
    [
        [deep(1, 12e3, depth=1), deep(4, 48e3, depth=1)],  # the depth limits
        [deep(1, 640e3), deep(4, 640e3)],  # the drive limits
        [deep(1, 564e3), deep(4, 1562e3, drives=4)],  # more drives, not more threads
        [replace(deep(1, 564e3), cpu_s=1e-6), deep(4, 1562e3)],  # it is stated
    ],
)
def test_rows_that_something_else_limits_are_of_no_full_thread(rows):
    assert with_full_threads(rows) == (rows, [])


@pytest.mark.slow
def test_a_stack_from_full_threads_alone():
    made = stack(ghz=GHZ).model_copy(update={"per_sharer": Quantity(value=400.0)})
    on = host(made, GHZ)
    quick = drive(dies=256, commands=3e6)
    loads = ((1, 256, 1), (2, 256, 1), (16, 256, 1), (1, 256, 4), (16, 256, 4))
    points = []
    for jobs, depth, drives in loads:
        asked = deep(jobs, 1.0, drives, depth)
        a = measure(quick, on, asked, requests=200_000, seed=4711)
        points.append(replace(asked, iops=a.iops))
    fit = fit_stack(points, ghz=GHZ)
    for j in fit.points:
        if j.point.cpu_s:
            assert abs(j.residual["iops"]) < 0.03, j.point.name
    q = fit.profile.per_sharer
    assert q.low <= 400 <= q.high
    assert fit.profile.wakeup.basis == "assumed"


def shared(jobs, depth, targets, on, *, own=False) -> Point:
    """The point that a run over several drives would have measured, every job on all of them."""
    asked = Point(
        f"{jobs}x{depth}", 1.0, True, 4096, jobs, depth, 1.0, None, targets=targets,
        own_targets=own,
    )  # fmt: skip
    a = measure(drive(), on, asked, requests=100_000, seed=4711)
    return replace(
        asked, iops=a.iops, mean_s=a.mean_s, percentiles_s=dict(a.percentiles_s), cpu_s=a.cpu_s,
        count=100_000,
    )  # fmt: skip


@pytest.mark.slow
def test_what_each_further_drive_of_a_thread_costs_is_found():
    made = stack(ghz=GHZ).model_copy(update={"per_target": Quantity(value=300.0)})
    on = host(made, GHZ)
    loads = ((1, 1, 1), (1, 8, 1), (1, 64, 1), (4, 64, 1), (2, 64, 2), (2, 128, 4), (2, 128, 8))
    fit = fit_stack([shared(*load, on) for load in loads], ghz=GHZ)
    q = fit.profile.per_target
    print(q.low, q.value, q.high)
    assert q.low <= 300 <= q.high
    assert q.value == pytest.approx(300, rel=0.35)
    assert fit.to_json()["profile"]["per_target"]["basis"] == "fitted"


@pytest.mark.slow
def test_siblings_that_share_a_core_are_seen_through():
    made = stack(ghz=GHZ)
    cpu = CpuProfile(name="two", cores=2, threads_per_core=2, ghz=Quantity(value=GHZ))
    on = replace(host(made, GHZ), cpu=cpu)
    fast = drive(dies=128, commands=2e6)  # else the drive stops four threads, which are not full
    points = [simulated(fast, j, d, on=on) for j, d in ((1, 1), (1, 8), (1, 64), (4, 64))]
    assert points[-1].is_cpu_bound
    off = {}
    for name, named in (("clock", None), ("cpu", cpu)):
        fit = fit_stack(points, ghz=GHZ, cpu=named)
        off[name] = [j.residual["cpu_s"] for j in fit.points]
    print(off)
    # interrupts and requests are told together only, as a warning says: each is in its interval,
    # and what they cost a request together is near
    for key in ("submit", "complete", "interrupt"):
        found = getattr(fit.profile, key)
        assert found.low <= getattr(made, key).value <= found.high
    assert max(map(abs, off["cpu"])) < 0.08
    assert abs(off["clock"][-1]) > 2 * abs(off["cpu"][-1])


def test_the_tables_of_diskspd_are_points_with_cpu_time():
    captures = Path(__file__).parents[1] / "capture" / "data" / "diskspd-xml"
    points, _ = points_of(read_captures([captures / "two_targets.xml.gz"]))
    (both,) = (p for p in points if p.cpu_s)
    assert (both.jobs, both.targets, both.own_targets) == (2, 2, True)
    assert both.cpu_s == pytest.approx(1.46 / (20_000 / 3), rel=0.01)


@pytest.mark.slow
def test_threads_with_drives_of_their_own_have_no_cost_of_further_ones():
    made, cpu = stack(ghz=3.4), parse_cpu("xeon-gold-6128")[1]
    on = replace(host(made, 3.4), cpu=cpu)
    loads = ((1, 1, 1), (1, 8, 1), (1, 64, 1), (4, 64, 1), (8, 32, 2))
    fit = fit_stack([shared(*load, on, own=load[2] > 1) for load in loads], ghz=3.4, cpu=cpu)
    work = fit.profile.submit.value + fit.profile.complete.value
    assert work == pytest.approx(made.submit.value + made.complete.value, rel=0.15)
    assert fit.profile.per_target.value == 0


def test_busy_siblings_and_a_bare_clock_are_said():
    points = [Point("p", 1.0, True, 4096, j, 1, 12e3 * j, 8e-5, cpu_s=6e-5) for j in (1, 2, 4, 8)]
    from nvmesim.calibrate.stack.fit import _siblings

    (said,) = _siblings(points, None)
    assert "name the CPU, as --cpu '2 x xeon-gold-6130'" in said
    few = CpuProfile(name="few", cores=2, threads_per_core=2, ghz=Quantity(value=2.0))
    (said,) = _siblings(points, few)
    assert "of 2 cores were busy: siblings that share a core" in said
    assert _siblings(points, parse_cpu("2 x xeon-gold-6130")[1]) == []
    assert _siblings(points[:1], None) == []


@pytest.mark.parametrize("text", ["0 x xeon-gold-6130", "two x xeon-gold-6130", "99 x 2.4 GHz"])
def test_a_cpu_that_is_none_is_an_error(text):
    with pytest.raises(InputError, match="--cpu"):
        parse_cpu(text)


@pytest.mark.parametrize(("host", "scaled"), [(None, False), ("linux-libaio,pcie4 x4", True)])
def test_cycles_are_those_of_a_named_stack_alone(host, scaled):
    """Without one the host stays in the drive's constants, and nothing of it is left to scale."""
    rows = [replace(deep(1, 14e3, depth=1), cpu_s=40e-6), deep(4, 100e3, depth=4)]
    captured = fit_drive(rows, captured_on=host).profile.captured
    assert (captured.stack_cycles > 1.5) == scaled


TRIALS = 60
LEAST = 51
"""Of the trials: intervals that hold 95 % fall below this with probability 1 in 500."""
DRAWN = 39
"""Draws whose least and largest hold 95 %."""
LOADS = ((1, 1), (1, 4), (1, 16), (1, 64), (4, 64))


OTHER = (2, 32)
"""A load that no capture is of."""


@pytest.mark.slow
def test_intervals_of_costs_hold_the_truth() -> None:
    """CPU time is measured with the error that a fit assumes; the drive is known."""
    made, behind = stack(ghz=GHZ), drive()
    points = [simulated(behind, j, d, on=host(made, GHZ)) for j, d in LOADS]
    full = [p.is_cpu_bound for p in points]
    assert sum(full) == 1
    other = simulated(behind, *OTHER, on=host(made, GHZ))
    costs = costs_of("found", points, GHZ, several=False)
    true = dict(quantities(made))
    names = ("submit", "interrupt", "wakeup", "wakeup_half")
    held = dict.fromkeys((*names, "other load"), 0)
    halves = dict.fromkeys(held, 0.0)
    rng = np.random.default_rng(7)
    for _ in range(TRIALS):
        noisy = [replace(p, cpu_s=(p.cpu_s or 0.0) * np.exp(error(rng))) for p in points]
        used = [p for p, is_full in zip(noisy, full, strict=True) if is_full]
        bench = Bench(costs, noisy, used, behind, host(made, GHZ))
        inferred = infer(bench.problem(costs.first))
        drawn = inferred.draws
        profile = _with_draws(costs.stack(inferred.best), costs, drawn, noisy)
        found = dict(quantities(profile))
        spans = {name: (found[name].low, found[name].high, true[name].value) for name in names}
        asked = [
            measure(behind, host(costs.stack(u), GHZ), other, requests=5_000).cpu_s
            for u in drawn[:DRAWN]
        ]
        spans["other load"] = (min(asked), max(asked), other.cpu_s)
        for name, (low, high, value) in spans.items():
            held[name] += bool(low <= value <= high)
            halves[name] += (high - low) / 2 / value / TRIALS
    print({name: f"{held[name]} of {TRIALS}, half-width {halves[name]:.0%}" for name in held})
    assert all(count >= LEAST for count in held.values())
    assert halves["other load"] < 0.1 * halves["interrupt"]


def error(rng: np.random.Generator) -> float:
    return ERRORS["cpu"] * float(rng.standard_normal())
