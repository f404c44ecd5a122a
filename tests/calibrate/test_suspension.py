"""Reads that suspend programs: what pure rows cannot tell is carried, and a mix decides."""

import tomllib
from dataclasses import replace

import pytest

from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.drive.suspension import USUAL, fitted, may_suspend, suspending
from nvmesim.calibrate.evidence import DriveFit
from nvmesim.calibrate.points import Point
from nvmesim.catalog.load import from_table, get, with_alternative
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.toml import to_toml
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
def test_nine_pure_rows_leave_open_whether_their_drive_suspends(pure: DriveFit) -> None:
    """Of drives that rows measured more wait; the other explanation meets the mixes of this one."""
    assert pure.profile.write.suspend is None
    assert off(pure.profile, 32) < -0.2
    again = from_table("drive", tomllib.loads(to_toml(pure.profile)), name="x")
    assert isinstance(again, DriveProfile)
    (suspends,) = [a for a in again.alternatives if a.name.endswith("suspends a program")]
    other = with_alternative(again, suspends)
    assert other.write.suspend is not None
    assert (other.write.suspend.value, other.write.suspend.basis) == (USUAL, "assumed")
    assert max(abs(off(other, depth)) for depth in (8, 32, 128)) < 0.03


@pytest.mark.long
@pytest.mark.parametrize("suspends", [False, True])
def test_a_mix_decides(suspends: bool) -> None:
    truth = suspending(drive()) if suspends else drive()
    rows = [simulated(truth, 1, d, requests=60_000) for d in (1, 16, 128)]
    rows += [simulated(truth, 1, d, read=0.0) for d in (1, 64)]
    fit = fit_drive([*rows, simulated(truth, 1, 16, read=0.7)])
    assert (fit.profile.write.suspend is not None) == suspends
    assert abs(fit.residuals[-1]) < 0.05
    assert not any(a.name.endswith("of a program") for a in fit.profile.alternatives)


def test_what_holds_no_flash_does_not_suspend() -> None:
    assert may_suspend(TRUTH)
    assert not may_suspend(get("drive", "hdd-7200"))
    assert not may_suspend(get("drive", "intel-p5800x"))
    through = TRUTH.write.model_copy(update={"through": True})
    assert not may_suspend(TRUTH.model_copy(update={"write": through}))


@pytest.mark.parametrize("best", [5e6, 20e6, 80e6])
def test_the_time_is_looked_for_on_both_sides(best: float) -> None:
    def cost(made: DriveProfile) -> float:
        return 1e3 * abs(made.write.suspend.value / best - 1)

    made, _ = fitted(TRUTH, cost, 1.0, "rows")
    assert made.write.suspend.value == best
    assert made.write.suspend.low is not None
    assert made.write.suspend.low < best < made.write.suspend.high
