"""A drive with known parameters is simulated, and the fit finds them; the bench is lowered once."""

from dataclasses import fields, replace

import numpy as np
import pytest

from nvmesim.calibrate.bench import Bench, BenchHost, _built
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.points import Point
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import get, names, quantities
from nvmesim.catalog.profile import WAIT_CV
from nvmesim.catalog.quantity import with_numbers
from tests.calibrate.bench import drive, simulated

pytestmark = pytest.mark.xdist_group("recovery")

INSIDE = ("commands", "read.base", "read.die", "read.die_cv")


def inside(fit, truth, names=INSIDE):
    """Names of the numbers whose interval holds the truth."""
    true = dict(quantities(truth))
    return [
        n for n, q in quantities(fit.profile) if n in names and q.low <= true[n].value <= q.high
    ]


@pytest.fixture(scope="module")
def sweep():
    truth = drive()
    points = [simulated(truth, 1, d) for d in (1, 8, 32, 128)]
    others = [simulated(truth, 1, d, read=0.0) for d in (1, 64)]
    others.append(simulated(truth, 1, 48, read=0.7))
    return truth, points, fit_drive([*points, *others], held_out=["QD=32"])


def test_the_parameters_are_found(sweep):
    truth, _, fit = sweep
    p = fit.profile
    print(*(f"{n} {q.low} {q.value} {q.high}" for n, q in quantities(p) if n in INSIDE), sep="\n")
    assert p.dies.value == pytest.approx(truth.dies.value, rel=0.1)
    assert p.commands.value == pytest.approx(truth.commands.value, rel=0.03)
    known, found = (  # how much of it is the channel's, no row of 4 KiB tells
        d.read.base.value + d.read.die.value + d.read.channel.value for d in (truth, p)
    )
    assert found == pytest.approx(known, rel=0.01)
    assert p.read.die.value == pytest.approx(truth.read.die.value, rel=0.05)
    assert p.read.die_cv.value == pytest.approx(truth.read.die_cv.value, abs=0.05)
    assert fit.free_parameters == (
        "read base", "read die", "read cv", "read commands", "dies",
        "write base", "write cv", "write rate",
    )  # fmt: skip


def test_they_lie_inside_their_intervals(sweep):
    truth, _, fit = sweep
    assert len(inside(fit, truth)) >= 3


def test_the_depth_that_was_held_out_is_predicted(sweep):
    _, _, fit = sweep
    held = next(j for j in fit.points if j.point.held_out)
    assert held.point.outstanding == 32
    assert abs(held.residual["iops"]) < 0.02
    assert abs(held.residual["p99_s"]) < 0.10
    assert fit.worst == abs(held.residual["iops"])


@pytest.mark.parametrize(("depths", "told"), [((1, 8), False), ((1, 64), True)])
def test_whoever_shows_percentiles_of_waits_tells_their_order(depths, told):
    truth = with_numbers(drive(commands=100e3), {"wait_cv": WAIT_CV})
    rows = [simulated(truth, 1, d) for d in depths]
    assert fit_drive(rows).profile.wait_cv.value == (0.0 if told else WAIT_CV)
    blind = [replace(p, percentiles_s={}, body_s={}) for p in rows]
    assert fit_drive(blind).profile.wait_cv.value == WAIT_CV


def test_one_depth_gives_the_latency_and_warns():
    truth = drive()
    fit = fit_drive([simulated(truth, 1, 1)])
    latency = truth.read.die.value + truth.read.base.value
    p = fit.profile
    assert p.read.die.value + p.read.base.value == pytest.approx(latency, rel=0.02)
    assert p.dies.basis == "assumed"
    assert p.commands.basis == "assumed"
    said = " ".join(fit.warnings)
    assert {"dies", "commands"} <= set(p.untold)
    assert "one row" in said
    assert "no random writes were measured" in said


def test_two_depths_give_the_ceiling_too():
    truth = drive()
    fit = fit_drive([simulated(truth, 1, 1), simulated(truth, 4, 64)])
    assert fit.profile.commands.value == pytest.approx(truth.commands.value, rel=0.05)
    assert fit.profile.commands.basis == "fitted"
    assert "reads at 2 depths" in " ".join(fit.warnings)


def test_writes_that_a_drain_limits(sweep):
    truth, _, fit = sweep
    w = fit.profile.write
    rate = fit.profile.dies.value / w.program.value * 1e12
    assert rate == pytest.approx(120e3, rel=0.05)
    assert w.base.value == pytest.approx(truth.write.base.value, rel=0.15)
    assert not w.through
    assert w.commands is None
    mixed = next(j for j in fit.points if 0 < j.point.read_fraction < 1)
    assert abs(mixed.residual["iops"]) < 0.1


def test_no_mix_is_said():
    truth = drive()
    fit = fit_drive([simulated(truth, 1, d, read=0.0) for d in (1, 16)])
    assert any("a 70/30 capture would decide" in w for w in fit.warnings)
    assert any("no random reads were measured" in w for w in fit.warnings)


SHALLOW = Point("", 0.7, True, 4096, 4, 1, 1e5, None)


@pytest.mark.parametrize("stack", names("stack"))
@pytest.mark.parametrize("depth", [7, 256])
def test_a_deeper_network_is_the_one_of_that_depth(stack: str, depth: int) -> None:
    """256 x 4 take all 1,024 tags, and no more."""
    host = BenchHost(get("stack", stack), 2.4, parse_link("pcie4 x4"))
    bench = Bench(drive(), host)
    for point in (SHALLOW, replace(SHALLOW, targets=2, own_targets=True)):
        bench._prepared(replace(point, iodepth=3))
        deep = replace(point, iodepth=depth)
        made, own = bench._prepared(deep), _built(drive(), host, deep)
        for item in fields(own.lowered.network):
            a, b = (getattr(r.lowered.network, item.name) for r in (made, own))
            assert np.array_equal(a, b) if isinstance(b, np.ndarray) else a == b, item.name


@pytest.mark.parametrize("where", ["itself", "beside"])
def test_more_than_the_drive_can_do_is_offered(where: str) -> None:
    """What is outstanding stands at its limit: the backlog must not grow for ever."""
    host = BenchHost(get("stack", "linux-io_uring"), 2.4, parse_link("pcie4 x4"))
    offered = replace(SHALLOW, rate=1e9, most_outstanding=32)
    point = offered
    if where == "beside":
        point = replace(SHALLOW, rate=1000.0, arrivals="paced", beside=offered)
    bench = Bench(drive(), host)
    found = bench.measure(point, requests=2_000, seed=1)
    closed = bench.measure(replace(SHALLOW, iodepth=8), requests=2_000, seed=1)
    if where == "itself":
        assert found.iops == closed.iops
    else:
        assert found.iops == pytest.approx(1000, rel=0.05)
        assert found.mean_s > 0.5 * closed.mean_s
