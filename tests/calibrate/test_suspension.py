"""Reads that suspend programs: what pure rows cannot tell is carried, and a mix decides."""

from dataclasses import replace

import numpy as np
import pytest

from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.drive.suspension import USUAL, fitted, may_suspend, suspending
from nvmesim.calibrate.evidence import DriveFit
from nvmesim.calibrate.points import Point
from nvmesim.catalog.load import get
from nvmesim.catalog.profile import DriveProfile
from nvmesim.model.drive import PAGE_PS
from tests.calibrate.bench import drive, simulated

pytestmark = pytest.mark.xdist_group("suspension")

TRUTH = get("drive", "intel-p4610-1.6tb")
LINK = "pcie3 x4"


def as_measured(depth: int, read: float) -> Point:
    """A row of the catalog's P4610."""
    asked = Point("", read, True, 4096, 1, depth, 1.0, None)
    count = 100_000
    a = measure(TRUTH, free_host(LINK), asked, requests=count, seed=4711)
    if 0 < read < 1:
        return replace(asked, iops=a.iops)
    return replace(
        asked, iops=a.iops, mean_s=a.mean_s, percentiles_s=dict(a.percentiles_s),
        body_s=dict(a.body_s), count=count,
    )  # fmt: skip


@pytest.fixture(scope="module")
def pure() -> DriveFit:
    rows = [as_measured(d, 1.0) for d in (1, 8, 32, 128, 256)]
    return fit_drive([*rows, *(as_measured(d, 0.0) for d in (1, 8, 32, 128))], link=LINK)


def off(made: DriveProfile, depth: int) -> float:
    asked = as_measured(depth, 0.7)
    return measure(made, free_host(LINK), asked, requests=40_000).iops / asked.iops - 1


@pytest.mark.long
def test_nine_pure_rows_leave_open_how_long_a_suspension_takes(pure: DriveFit) -> None:
    """Its mixes are met with the time that it has, which is in the interval, and not without."""
    time = pure.profile.write.suspend
    assert (time.value, time.basis) == (USUAL[False], "assumed")
    assert time.low <= TRUTH.write.suspend.value <= time.high
    right = suspending(pure.profile, TRUTH.write.suspend.value)
    assert off(pure.profile, 32) < -0.1
    assert max(abs(off(right, depth)) for depth in (8, 32, 128)) < 0.03


@pytest.mark.long
@pytest.mark.parametrize("time", [20e6, 5000e6])
def test_a_mix_tells_the_time(time: float) -> None:
    """Short, or longer than a program: then none is suspended."""
    truth = suspending(drive(), time)
    rows = [simulated(truth, 1, d, requests=60_000) for d in (1, 16, 128)]
    rows += [simulated(truth, 1, d, read=0.0) for d in (1, 64)]
    fit = fit_drive([*rows, simulated(truth, 1, 16, read=0.7)])
    found = fit.profile.write.suspend
    assert found.basis == "fitted"
    assert found.low < time < found.high or min(found.value, time) > PAGE_PS
    assert abs(fit.residuals[-1]) < 0.05


def test_what_holds_no_flash_does_not_suspend() -> None:
    assert may_suspend(TRUTH)
    assert not may_suspend(get("drive", "hdd-7200"))
    slow = TRUTH.write.program.model_copy(update={"value": 86e9})
    write = TRUTH.write.model_copy(update={"program": slow})
    assert not may_suspend(TRUTH.model_copy(update={"write": write}))
    assert not may_suspend(get("drive", "intel-p5800x"))
    through = TRUTH.write.model_copy(update={"through": True})
    assert not may_suspend(TRUTH.model_copy(update={"write": through}))


@pytest.mark.parametrize("best", [10e6, 20e6, 160e6, 2560e6])
def test_all_of_the_span_is_looked_at(best: float) -> None:
    """Also where a long time is nearly as good as a short one."""

    def cost(made: DriveProfile) -> float:
        return 1e3 * min(1.0, abs(np.log(made.write.suspend.value / best)))

    made, _ = fitted(TRUTH, cost, 1.0, "rows")
    assert made.write.suspend.value == best
    assert made.write.suspend.low < best < made.write.suspend.high
