"""The numbers' part of an interval has no seed, and it stays within what the drives' rows leave."""

import math
from dataclasses import replace

import numpy as np
import pytest

from nvmesim.catalog.load import get, load
from nvmesim.catalog.profile import Alternative, JointDraws
from nvmesim.catalog.toml import to_toml
from nvmesim.errors import CatalogError
from nvmesim.predict.simulate import compare, simulate
from nvmesim.predict.uncertainty.certainty import ANY, FASTER, LEAST_ROOM, LOST, room
from nvmesim.predict.uncertainty.design import design, two_sides
from nvmesim.predict.uncertainty.misfit import Where, of_profile
from nvmesim.predict.uncertainty.numbers import alternatives, draws, factors, moved
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from tests.predict.scenarios import scenario
from tests.servers import one_server

FITTED = {"value": "50 us", "low": "40 us", "high": "60 us", "basis": "fitted"}


def read_side(**more):
    return {"read": {"base": {**FITTED}, "die": {**FITTED}, "channel": "2 us"}, **more}


def names(found):
    return {factor.name.split(" ", 1)[1] for factor in factors(resolve(found))}


def test_numbers_of_a_joint_table_move_together_and_are_written_and_read(tmp_path):
    joint = {"names": ["read.die", "commands"], "factors": [[0.5, 2.0], [2.0, 0.5]]}
    one = resolve(scenario(drive={"joint": joint}))
    assert not any(f.moves.keys() & {"read.die", "commands"} for f in factors(one))
    (drawn,) = draws(one, 4).values()
    assert sorted(row["commands"] for row in drawn) == pytest.approx(
        [-math.log(2)] * 2 + [math.log(2)] * 2
    )
    new, old = moved(one, [], [], {"drive mine": drawn[0]}).drives[0].profile, one.drives[0].profile
    times = new.read.die.value / old.read.die.value
    assert math.log(times) == pytest.approx(math.log(2) * np.sign(math.log(times)))
    assert new.commands.value / old.commands.value == pytest.approx(1 / times)
    assert new.read.base == old.read.base
    apart = simulate(scenario(drive=read_side()), reliefs=False)
    joint = {"names": ["read.base", "read.die"], "factors": [[0.8, 1.2], [1.2, 0.8], [0.9, 1.1]]}
    together = simulate(scenario(drive=read_side(joint=joint)), reliefs=False)
    halves = [max(r.certainty.figures["mean"].numbers) for r in (apart, together)]
    assert halves[1] < halves[0]
    drive = get("drive", "intel-p4610-1.6tb")
    joint = JointDraws(names=("read.die",), factors=((0.95,), (1.05,)))
    path = tmp_path / "drive.toml"
    path.write_text(to_toml(drive.model_copy(update={"joint": joint})), encoding="utf-8")
    assert load("drive", str(path)).joint == joint
    path.write_text(path.read_text("utf-8").replace("[0.95]", "[0.95, 1]"), encoding="utf-8")
    with pytest.raises(CatalogError, match="rows of 1 factors"):
        load("drive", str(path))


@pytest.mark.parametrize("n", [1, 3, 7, 11, 20, 23, 31])
def test_no_two_numbers_of_a_design_move_alike(n):
    signs = design(n)
    np.testing.assert_array_equal(signs.T @ signs, len(signs) * np.eye(n))
    assert not signs.sum(axis=0).any()


def test_the_width_does_not_depend_on_the_seed():
    found = [
        simulate(scenario(drive=read_side()), reliefs=False, seed=seed).certainty.figures["iops"]
        for seed in (1, 2, 3)
    ]
    widths = [sum(parts.numbers) for parts in found]
    assert max(widths) < 1.05 * min(widths)


def test_numbers_without_an_interval_have_one_and_unused_ones_are_left_alone():
    exact = {"value": "50 us", "basis": "datasheet"}
    spreads = []
    for die in ("50 us", exact):
        one = resolve(scenario(drive={"read": {"base": "5 us", "die": die, "channel": "2 us"}}))
        found = next(f for f in factors(one) if f.name.endswith("read.die"))
        spreads.append(math.exp(1.959964 * found.moves["read.die"][0]))
    assert spreads == pytest.approx([1.5, 1.1])
    assert not any("write" in name for name in names(scenario()))
    assert "write.program" in names(scenario(read=0.5))
    assert not any(name.startswith(("filesystems", "sections")) for name in names(scenario()))
    assert "per_kib" not in names(scenario(stack={"per_kib": 0}))
    guest = scenario(guest="kvm-virtio", stack={"extends": "linux-io_uring"})
    assert "sections.kvm-virtio.read" in names(guest)


def test_doubt_that_can_only_cost_promises_no_gain():
    copies = {"value": 0, "low": 0, "high": 2000, "basis": "fitted"}
    unsure = simulate(
        scenario(
            drives=4, threads_total=1, outstanding=256, stack={
                "per_kib": copies,
                **{k: {"value": v, "low": v, "high": v, "basis": "fitted"}
                   for k, v in (("submit", 4000), ("complete", 6000))},
            },
        ),
        reliefs=False,
    )  # fmt: skip
    down, up = unsure.certainty.figures["iops"].numbers
    assert down > 0.1
    assert up < 0.2 * down
    assert two_sides([(0.1, 0.1), (-0.1, 0.1)]) == (0.0, 0.0)


def test_other_explanations_of_a_capture_count_by_their_probability():
    drive = get("drive", "intel-p4610-1.6tb")
    other = Alternative(name="slow controller", weight=0.2, values={"commands": "320k/s"})
    profile = drive.model_copy(update={"alternatives": (other,)})
    load = {"threads": 4, "outstanding": 32}
    tables = one_server("intel-p4610-1.6tb", load, run={"requests": 20_000})
    plain = resolve(scenario_from_dict(tables))
    held = replace(plain, drives=(replace(plain.drives[0], profile=profile),))
    (changed, weight), = alternatives(held)  # fmt: skip
    assert weight == 0.2
    assert changed.drives[0].profile.commands.value == 320e3
    widths = [simulate(s, reliefs=False).certainty.figures["iops"].numbers for s in (plain, held)]
    assert widths[1][0] > widths[0][0] + 0.1
    assert widths[1][1] == pytest.approx(widths[0][1])


def test_what_two_designs_share_cancels():
    one, two = scenario(drive=read_side()), scenario(drive=read_side(), outstanding=9)
    apart = simulate(one, reliefs=False).certainty.figures["iops"].total
    found = compare(one, two)
    assert found.gain.value > 0
    assert (found.gain.high - found.gain.low) / 2 < 0.5 * sum(apart) / 2
    assert 0.5 < found.p_better <= 1
    same = compare(one, scenario(drive=read_side()))
    assert (same.gain.low, same.gain.high, same.p_better) == (0.0, 0.0, 0.5)


def test_what_the_calibration_did_not_tell_is_a_warning():
    rounds = {
        "base": {"value": "20 us", "basis": "fitted"}, "read": {"value": "5 us", "basis": "fitted"},
        "write": {"value": "5 us", "basis": "assumed"},
    }  # fmt: skip
    missed = {"randrw:70": 0.185, "randread": -0.12}
    disk = {"extends": "intel-p4610-1.6tb", "name": "mine", "rounds": rounds, "missed": missed}
    for read, said in ((1.0, False), (0.7, True)):
        tables = one_server(disk, {"outstanding": 4, "read": read})
        found = simulate(scenario_from_dict(tables), reliefs=False, requests=4000)
        assert any(w.code == "writes-unmeasured" for w in found.warnings) is said
        assert any(w.code == "missed" for w in found.warnings)
        half = max(found.certainty.figures["iops"].misfit)
        missed_by = math.log1p(0.185 if read < 1 else 0.12)  # as far as the drive matters
        assert 0.5 * missed_by < half <= missed_by


@pytest.mark.parametrize("name", ["intel-p4510-1tb", "intel-p4610-6.4tb", "micron-7450-pro-3.84tb"])
@pytest.mark.parametrize("read", [0.0, 1.0])
def test_what_a_data_sheet_does_not_say_leaves_its_rates(name: str, read: float) -> None:
    """Dies and program time are assumed, their ratio is the sheet's rate: known to 10 %."""
    load = [{"block_size": "4 KiB", "read": read, "threads": 8, "outstanding": 64}]
    tables = one_server(name, load, cpu="xeon-gold-6338")
    result = simulate(scenario_from_dict(tables), reliefs=False, requests=30_000, over_time=False)
    down, up = result.certainty.figures["iops"].numbers
    assert 0.05 <= down <= 0.16
    assert 0.05 <= up <= 0.16


LONE, DEEP = 17_000.0, 320_000.0


def row(depth, measured, **more):
    return {"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": depth, "iops": 0.0,
            "measured": measured, **more}  # fmt: skip


ROWS = [row(1, LONE), row(32, DEEP)]


def asked(rows=ROWS, depth=8, drives=1, captured=None, **load):
    captured = {"depths": [1, 32], "block_sizes": [4096], "read_shares": [1.0], **(captured or {})}
    drive = {"residuals": rows, "captured": captured}
    load = {"threads_total": 1, "outstanding": depth, "read": 1.0, **load}
    return scenario(drives=drives, drive=drive, **load)


def left(iops, **more):
    return room(resolve(asked(**more)), iops)


LEFT = {
    # what is predicted of which load, and the factors that are left below and above it
    "between two rows": (100e3, {}, 100e3 / (LOST[True] * LONE), FASTER * 8 * LONE / 100e3),
    "beyond all rows": (500e3, {"depth": 256}, 500e3 / (LOST[True] * DEEP), None),
    "fewer in flight on more drives": (
        100e3, {"depth": 16, "drives": 4}, 100e3 / (LOST[True] * LONE), None,
    ),
    "below a deeper row": (250e3, {"rows": [row(32, DEEP)]}, None, FASTER * DEEP / 250e3),
    "more threads than one that may be full": (
        250e3, {"rows": [row(32, DEEP)], "threads_total": 4}, None, FASTER * 4 * DEEP / 250e3,
    ),
    "more threads than one that was not": (
        20e3, {"rows": [row(4, LONE)], "threads_total": 4, "depth": 1}, None, FASTER * LONE / 20e3,
    ),
    # rows that contradict it do not cut it, and some room is left always
    "less than a row": (1e3, {}, math.inf, None),
    "more than a row": (10 * FASTER * 8 * LONE, {}, None, math.inf),
    "hardly more than a row": (LOST[True] * LONE * 1.01, {}, math.exp(LEAST_ROOM), None),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_rows_bound_what_is_predicted(what):
    iops, load, *factors = LEFT[what]
    for found, factor in zip(left(iops, **load), factors, strict=True):
        assert factor is None or found == pytest.approx(math.log(factor))


@pytest.mark.parametrize(
    "other",
    [
        {"read": 0.0},
        {"access": "sequential"},
        {"rate": "10k/s", "threads_total": 1},
        {"rows": [row(1, LONE, sync="fsync"), row(8, DEEP, held_out=True)]},
        {"captured": {"datasheet": True}},
    ],
)
def test_rows_of_other_loads_say_nothing(other):
    assert left(100_000.0, **other) == ANY


def test_a_row_that_was_held_out_moves_no_prediction():
    """What --hold-out left out of the fit is there to be predicted, not to be known."""
    missed = {"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": 8, "iops": 1.0}
    where = Where(1.0, 4096, 8, 1)
    found = {}
    for held_out in (False, True):
        rows = [*ROWS, {**missed, "held_out": held_out}]
        found[held_out] = of_profile(resolve(asked(rows=rows)).drives[0].profile, where)
    assert found[False].shift == pytest.approx(-1.0, abs=0.1)
    assert found[True] == of_profile(resolve(asked()).drives[0].profile, where)


def test_the_printed_interval_is_within_what_whole_sectors_leave():
    found = simulate(asked(depth=8), reliefs=False, requests=20_000)
    value = found.total.iops
    down, up = left(value.value)
    assert value.low >= 0.999 * value.value * math.exp(-down)
    assert value.high <= 1.001 * value.value * math.exp(up)
    assert value.low < value.value < value.high
    part = row(1, 2_000.0, read=0.0, block_size=512)
    assert left(2_500.0, rows=[part], depth=1, read=0.0)[1] == math.inf
    whole = row(1, 2_000.0, read=0.0)
    assert left(2_500.0, rows=[whole], depth=1, read=0.0)[1] < math.inf


def test_numbers_that_make_up_for_one_another_leave_no_doubt():
    """Base and die of 10 and 50 us that add to 60 in every draw: a lone request takes that."""
    parts = np.linspace(1e-6, 59e-6, 64)
    joint = {"names": ["read.base", "read.die"],
             "factors": [[float(x / 10e-6), float(6 - x / 10e-6) / 5] for x in parts]}  # fmt: skip
    read = {
        "base": "10 us",
        "die": "50 us",
        "channel": {"value": "2 us", "low": "2 us", "high": "2 us"},
    }
    found = simulate(
        scenario(drive={"read": read, "joint": joint}, outstanding=1, threads=1), reliefs=False
    )
    assert max(found.certainty.figures["mean"].numbers) < 0.05
