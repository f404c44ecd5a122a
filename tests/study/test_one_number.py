"""One scenario has one number: run, sweep, compare, choose and explore agree within simulation."""

import math
from functools import partial

import pytest

from nvmesim.predict.simulate import compare, simulate
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.study import choose as choosing
from nvmesim.study.choose import choose
from nvmesim.study.sweep.point import Settings, columns, predict
from nvmesim.ui import explore as exploring
from tests.predict.scenarios import DRIVE as ROUND
from tests.servers import bare

DRIVE = {**ROUND, "write": {**ROUND["write"], "buffer": "8 MiB"}}
SERVER = {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]}

WIDE = {"stack": "linux-io_uring", "sockets": [{"cpu": "epyc-9654"}]}


def tables(drives=1, profile=DRIVE, raid=None, server=SERVER, **load):
    found = {
        "server": server,
        "drives": [{"profile": profile, "count": drives}],
        "workload": [{"threads": 4, "outstanding": 16, **load}],
    }
    if raid is not None:
        found["volume"] = [{"raid": raid}]
    return found


SCENARIOS = {
    "one drive, reads": tables(),
    "one drive, deep": tables(threads=8, outstanding=64),
    "one drive, shallow": tables(threads=1, outstanding=1),
    "one drive, mix": tables(read=0.7),
    "one drive, writes that fill the buffer": tables(read=0.0, outstanding=64),
    "one drive, writes below the drain": tables(read=0.5, threads=1, outstanding=1),
    "one drive, open loop": {
        **tables(),
        "workload": [{"rate": "300k/s", "arrivals": "poisson", "threads": 8}],
    },
    "one drive, 64 KiB": tables(block_size="64 KiB", outstanding=4),
    "catalog drive, mix": tables(profile="intel-p4610-1.6tb", read=0.7, threads=8, outstanding=32),
    "catalog drive, writes": tables(profile="samsung-980pro-1tb", read=0.0, outstanding=32),
    "disks": tables(profile="hdd-7200", drives=2, threads=1, outstanding=4),
    "four drives": tables(drives=4),
    "four drives, full buffers": tables(drives=4, read=0.5, threads=8, outstanding=64),
    "24 drives": tables(drives=24, server=WIDE, threads=1, outstanding=8),
    "24 drives, mix": tables(drives=24, server=WIDE, threads=1, outstanding=8, read=0.7),
    "mirrors, mix": tables(drives=4, raid="raid10", read=0.7, outstanding=32),
    "mirrors, full buffers": tables(drives=8, raid="raid10", read=0.3, threads=8, outstanding=32),
    "stripes": tables(drives=4, raid="raid0", block_size="128 KiB", outstanding=4),
    "parity, writes": tables(drives=5, raid="raid5", read=0.0, outstanding=4),
    "parity, mix": tables(drives=6, raid="raid6", read=0.7, outstanding=16),
}


def figures_of(row):
    return row["iops"], row["iops_simulation"]


@pytest.mark.parametrize(
    "name", [n if i % 3 == 0 else pytest.param(n, marks=pytest.mark.long)
             for i, n in enumerate(SCENARIOS)]
)  # fmt: skip
def test_every_command_gives_the_same_iops(name, monkeypatch):
    sure = partial(Settings, certainty=False)  # the simulation's part alone: it is what may differ
    monkeypatch.setattr(choosing, "Settings", sure)
    one = SCENARIOS[name]
    scenario = scenario_from_dict(one)
    run = simulate(scenario, reliefs=False, over_time=False, certainty=False)
    assert run.converged
    half = math.expm1(max(run.certainty.figures["iops"].simulation))
    value = run.total.iops.value
    other = scenario_from_dict({**one, "server": {**SERVER, "sockets": [{"cpu": "epyc-7763"}]}})
    goal = {
        "scenario": one, "candidates": {"run.seed": [1]}, "constraints": {"iops": "1/s"},
        "prices": {"server": 1},
        "objective": {"minimize": "drives"},
    }  # fmt: skip
    shown = []
    monkeypatch.setattr(
        exploring,
        "simulate",
        lambda *a, **options: shown.append(simulate(*a, **options)) or shown[0],
    )
    exploring._View(one, ".", None, None).html({})
    found = {
        "sweep": figures_of(columns(predict(resolve(scenario), sure(cache=False)))),
        "compare": (compare(scenario, other, certainty=False).iops_a.value, half),
        "choose": figures_of(choose(goal, workers=1).frame().to_dicts()[0]),
        "explore": (shown[0].total.iops.value, half),
    }
    for command, (iops, own) in found.items():
        assert abs(iops / value - 1) <= math.hypot(half, own) + 1e-9, command


def test_two_designs_are_as_unsure_side_by_side_as_each_alone():
    """The doubt about numbers, which both share, is part of each one's interval."""
    both = [scenario_from_dict(tables(drives=n, profile="intel-p4610-1.6tb")) for n in (1, 2)]
    found = compare(*both)
    for one, scenario in zip((found.iops_a, found.iops_b), both, strict=True):
        alone = simulate(scenario, reliefs=False, over_time=False).total.iops
        assert one.value == pytest.approx(alone.value, rel=0.02)
        assert one.low == pytest.approx(alone.low, rel=0.05)
        assert one.high == pytest.approx(alone.high, rel=0.05)


def test_buffers_start_full_or_it_is_said_that_they_are_not_steady():
    """What was 10.8 M of 100,000 requests, and 7.48 M in the steady state."""
    asked = tables(drives=16, server=WIDE, read=0.7, threads=16, outstanding=32,
                   profile="intel-p4610-1.6tb")  # fmt: skip
    long = bare(asked, over_time=False)
    short = bare(long.resolved, over_time=False, requests=100_000)
    wide = math.hypot(*(max(r.certainty.figures["iops"].simulation) for r in (long, short)))
    assert short.total.iops.value == pytest.approx(long.total.iops.value, rel=wide + 0.02)
    # It is nearly as fast as it drains, so neither is it full soon nor does it stay empty.
    slow = {**DRIVE, "write": {**DRIVE["write"], "buffer": "64 MiB"}}
    net = tables(profile=slow, read=0.0, threads=1, outstanding=16)
    from nvmesim.measure.control import RunGoal
    from nvmesim.predict.prepare import prepare

    ready = prepare(scenario_from_dict(net), "compiled", 1, 0.0)
    measured = ready.measure(RunGoal(None, 6_000))
    assert not measured.converged
    assert [w.code for w in measured.warnings] == ["filling"]
    assert "6,000 simulated requests" in measured.warnings[0]
