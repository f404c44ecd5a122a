"""A stack with known costs is simulated, and the fit finds them again."""

import pytest

from nvmesim.errors import FitError
from nvmesim.fit.points import Point
from nvmesim.fit.stack import fit_stack
from tests.fit.bench import drive, host, simulated, stack

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


def test_one_depth_is_too_few():
    p = Point("p", 1.0, True, 4096, 1, 1, 12e3, 8e-5, cpu_s=6e-6, per_job_pct=7.0)
    with pytest.raises(FitError, match="two depths or more"):
        fit_stack([p], ghz=GHZ)


def test_no_cpu_figures_are_too_few():
    points = [Point("p", 1.0, True, 4096, 1, d, 12e3 * d, 8e-5) for d in (1, 8)]
    with pytest.raises(FitError, match="with CPU figures; found 0 points"):
        fit_stack(points, ghz=GHZ)
