"""The local virtual disk is found to serve in rounds, and tells a depth that was held out."""

from pathlib import Path

import pytest

from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.notes import law_of_rounds
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.load import quantities

pytestmark = [pytest.mark.xdist_group("rounds_fit"), pytest.mark.long]

LOCAL = Path(__file__).parents[2] / "calibration" / "local-disk"


@pytest.fixture(scope="module")
def fitted():
    """Reads and writes of the local disk at depths 1, 4 and 64; 16 held out."""
    found = read_captures([*LOCAL.glob("randread_qd*.json"), *LOCAL.glob("randwrite_qd*.json")])
    return fit_drive(found, name="local", held_out=["QD=16"])


def test_rounds_are_chosen_by_a_depth_that_neither_saw(fitted):
    assert fitted.profile.rounds is not None
    said = next(w for w in fitted.warnings if "two models were fitted without depth" in w)
    assert "batch service (a virtual disk: one thread behind one queue) predicts it better" in said


def test_the_held_out_depth_is_told(fitted):
    held = [j for j in fitted.points if j.point.held_out]
    assert len(held) == 2
    for j in held:
        print(j.point.name, j.residual)
        assert abs(j.residual["iops"]) < 0.10
        assert abs(j.residual["p50_s"]) < 0.10
        assert abs(j.residual["p99_s"]) < 0.20
        assert abs(j.residual["p99.9_s"]) < 0.25


def test_what_holds_rounds_up_is_chosen_by_depths_left_out(fitted):
    rounds = fitted.profile.rounds
    assert rounds.pauses is not None
    assert rounds.read_stalls.length.value == pytest.approx(3e9, rel=0.3)
    (said,) = [w for w in fitted.warnings if "log-likelihood of depths left out" in w]
    assert "pauses of all in flight" in said
    assert "none -" in said


def test_its_numbers_have_intervals_and_vary_together(fitted):
    numbers = dict(quantities(fitted.profile))
    for key in ("rounds.base", "rounds.read", "rounds.write", "rounds.pauses.every"):
        q = numbers[key]
        assert q.basis == "fitted"
        assert q.low <= q.value <= q.high
    assert set(fitted.profile.joint.names) >= {"rounds.base", "rounds.read"}


def test_what_overlaps_is_no_disk_of_rounds():
    assert law_of_rounds([1, 4, 16, 64], [14e3, 56e3, 210e3, 560e3]) is None
    assert law_of_rounds([1, 16], [17e3, 69e3]) is None
