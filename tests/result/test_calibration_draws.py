"""Draws of calibrated numbers: together where they were fitted together, each on its own else."""

import math

import numpy as np
import pytest

from nvmesim.calibration_draws import Spread, drawn
from nvmesim.catalog.load import get
from nvmesim.catalog.profile import JointDraws, Quantity
from nvmesim.catalog.text import to_toml
from nvmesim.errors import CatalogError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.simulate import simulate
from tests.result.scenarios import scenario

FITTED = {"value": "50 us", "low": "40 us", "high": "60 us", "basis": "fitted"}


def read_side(**more):
    return {"read": {"base": {**FITTED}, "die": {**FITTED}, "channel": "2 us"}, **more}


def test_numbers_of_a_joint_table_move_together():
    drive = get("drive", "intel-p4610-1.6tb")
    joint = JointDraws(names=("read.die", "commands"), factors=((0.5, 2.0), (2.0, 0.5)))
    drive = drive.model_copy(update={"joint": joint})
    for seed in range(6):
        new = drawn(drive, np.random.default_rng(seed))
        moved = new.read.die.value / drive.read.die.value
        assert moved in (0.5, 2.0)
        assert new.commands.value / drive.commands.value == 1 / moved
        assert new.read.base == drive.read.base


def test_what_compensates_in_the_capture_compensates_in_the_prediction():
    apart = simulate(scenario(drive=read_side()), reliefs=False, calibration_draws=6)
    joint = {"names": ["read.base", "read.die"], "factors": [[0.8, 1.2], [1.2, 0.8], [0.9, 1.1]]}
    together = simulate(scenario(drive=read_side(joint=joint)), reliefs=False, calibration_draws=6)
    shares = [r.uncertainty["calibration"]["mean"] for r in (apart, together)]
    assert shares[1] < 0.5 * shares[0]


def test_latency_intervals_hold_the_calibration_too():
    sure = simulate(scenario(drive=read_side()), reliefs=False)
    unsure = simulate(scenario(drive=read_side()), reliefs=False, calibration_draws=6)
    for name in ("mean", "p50", "p99"):
        a, b = (r.total.latency.intervals[name] for r in (sure, unsure))
        assert b[0] < a[0] < a[1] < b[1]
    parts = unsure.uncertainty
    own, (down, up) = parts["simulation"]["iops"], parts["calibration"]["iops_ends"]
    iops = unsure.total.iops
    assert math.log(iops.value / iops.low) == pytest.approx(
        math.hypot(own, -math.log(1 - down)), rel=0.05
    )
    assert math.log(iops.high / iops.value) == pytest.approx(
        math.hypot(own, math.log(1 + up)), rel=0.05
    )


def test_the_interval_on_a_terminal_says_what_it_is_made_of():
    unsure = simulate(scenario(drive=read_side()), reliefs=False, calibration_draws=6)
    assert "of simulation and" in str(unsure)
    assert "of calibration (in quadrature" in str(unsure)


def test_a_narrow_span_stays_where_nothing_was_drawn():
    assert Spread({}, 8).wider("iops", 100.0, (99.0, 101.0)) == (99.0, 101.0)


def test_a_joint_table_is_written_and_read(tmp_path):
    drive = get("drive", "intel-p4610-1.6tb")
    joint = JointDraws(names=("read.die",), factors=((0.95,), (1.05,)))
    path = tmp_path / "drive.toml"
    path.write_text(to_toml(drive.model_copy(update={"joint": joint})), encoding="utf-8")
    from nvmesim.catalog.load import load

    assert load("drive", str(path)).joint == joint
    path.write_text(path.read_text("utf-8").replace("[0.95]", "[0.95, 1]"), encoding="utf-8")
    with pytest.raises(CatalogError, match="rows of 1 factors"):
        load("drive", str(path))


def test_an_assumed_interval_is_no_calibration():
    number = Quantity(value=5.0, low=1.0, high=9.0, basis="assumed")
    drive = get("drive", "hdd-7200").model_copy(update={"commands": number})
    assert drawn(drive, np.random.default_rng(1)).commands.value == 5.0


def test_doubt_that_can_only_cost_promises_no_gain():
    copies = {"value": 0, "low": 0, "high": 2000, "basis": "fitted"}
    unsure = simulate(
        scenario(drives=4, threads_total=1, outstanding=256, stack={"per_kib": copies}),
        reliefs=False, calibration_draws=6,
    )  # fmt: skip
    down, up = unsure.uncertainty["calibration"]["iops_ends"]
    assert down > 0.1
    assert up < 0.2 * down


def test_a_quantity_without_an_interval_stays():
    drive = get("drive", "hdd-7200").model_copy(update={"commands": Quantity(value=5.0)})
    assert drawn(drive, np.random.default_rng(1)).commands.value == 5.0


def test_what_the_calibration_did_not_tell_is_a_warning():
    rounds = {
        "base": {"value": "20 us", "basis": "fitted"}, "read": {"value": "5 us", "basis": "fitted"},
        "write": {"value": "5 us", "basis": "assumed"},
    }  # fmt: skip
    missed = {"randrw:70": 0.185, "randread": -0.12}
    disk = {"extends": "intel-p4610-1.6tb", "name": "mine", "rounds": rounds, "missed": missed}
    for read, said in ((1.0, False), (0.7, True)):
        tables = {
            "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
            "drives": [{"profile": disk}],
            "workload": {"outstanding": 4, "read": read},
            "run": {"requests": 4000},
        }
        warnings = simulate(scenario_from_dict(tables)).warnings
        assert any(w.startswith("mine: no writes were measured") for w in warnings) == said
        repeated = [w for w in warnings if "this profile predicts" in w]
        about = "randrw:70 did less" if said else "randread did more"
        assert [about in w for w in repeated] == [True]
