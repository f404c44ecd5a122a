"""Choosing: who meets a goal, who does not and why, and which constraint fails first."""

import copy
import json
import shlex
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.scenario.load import load_scenario, scenario_from_dict, to_text
from nvmesim.scenario.load import with_values as put
from nvmesim.scenario.resolve import resolve
from nvmesim.show.blocks import Facts
from nvmesim.show.views.designs import choice_blocks
from nvmesim.study.choose import choose, condition, fixed, survived
from nvmesim.study.designs import goal_from_dict, load_goal
from nvmesim.study.sweep.plan import make_plan
from nvmesim.units import chance

EXAMPLES = Path(__file__).parents[2] / "examples"

GOAL = {
    "name": "goal",
    "scenario": {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
        "drives": [{"profile": "intel-p4610-1.6tb", "count": 2}],
        "volume": {"raid": "raid10"},
        "workload": {"threads": 16, "outstanding": 8, "read": 1.0},
        "run": {"requests": 12000},
    },
    "candidates": {"drives.0.count": [2, 4, 6, 8], "volume.raid": ["raid0", "raid10", "raid5"]},
    "constraints": {"capacity": "3 TB", "survives": 1, "iops": "1M/s"},
    "objective": {"minimize": "price"},
    "prices": {"server": 1000, "intel-p4610-1.6tb": 500, "xeon-gold-6130": 2000},
    "runner_ups": 1,
}


@pytest.fixture(scope="module")
def chosen():
    return choose(goal_from_dict(GOAL), workers=1)


def values(candidate):
    return tuple(candidate.values.values())


def changed(**changes):
    return goal_from_dict({**copy.deepcopy(GOAL), **changes})


def test_the_cheapest_that_holds_is_chosen_and_every_other_one_has_its_reason(chosen):
    assert values(chosen.chosen) == (4, "raid10")
    assert chosen.chosen.cost("price") == 1000 + 2000 + 4 * 500
    assert [values(c) for c in chosen.runner_ups] == [(6, "raid10")]
    assert "least price (5,000 EUR)" in str(chosen)
    by_values = {values(c): c for c in chosen.candidates}
    assert by_values[2, "raid10"].failed == "capacity"
    assert "47 % short of 3 TB" in by_values[2, "raid10"].reason
    assert by_values[4, "raid0"].failed == "survives"
    assert by_values[2, "raid5"].failed in ("scenario", "capacity")
    assert all(c.reason for c in chosen.candidates if c.state in ("rejected", "not simulated"))
    assert by_values[8, "raid5"].state in ("not simulated", "rejected")  # raid5d may not carry it
    frame = chosen.frame()
    assert len(frame) == 12
    assert frame["state"][0] == "chosen"
    assert {"price", "capacity", "iops", "lat_p99_us", "reason"} <= set(frame.columns)
    assert chosen.chart().to_dict()


def test_what_is_not_told_apart_is_said_with_what_would_tell_and_the_state(chosen, tmp_path):
    """A goal just above what the cheaper does, and one just below: nearly as likely to be met."""
    rate = chosen.chosen.row["iops"]
    file = tmp_path / "server.toml"
    file.write_text(to_text(GOAL["scenario"]))
    limits = {**GOAL["constraints"], "iops": f"{rate * 1.02:.0f}/s"}
    found = choose(changed(constraints=limits, scenario=str(file)), workers=1)
    assert values(found.chosen) == (6, "raid10")
    assert values(found.cheaper) == (4, "raid10")
    assert found.cheaper.least_sure == "iops"
    assert 0.3 < found.cheaper.p_meets < 0.5 < found.chosen.p_meets
    command = shlex.split(found.study)
    assert command[:5] == ["nvmesim", "sensitivity", str(file), "--metric", "iops"]
    assert {"drives.0.count=6", "volume.raid=raid10", "volume.*.degraded=[0]"} <= set(command)
    load_scenario(file, [s for s in command[5:] if s != "--set"])
    facts = next(b for b in choice_blocks(found, "") if isinstance(b, Facts))
    assert "1 drive of each array missing" in dict(facts.pairs)["figures of"]
    assert "steady" in dict(facts.pairs)["figures of"]
    assert "4 drives" in dict(facts.pairs)["may do as well"]
    fresh = {**GOAL["scenario"], "drives": [{**GOAL["scenario"]["drives"][0], "state": "fresh"}]}
    assert "arrays whole" in condition(resolve(scenario_from_dict(fresh)))
    below = changed(constraints={**limits, "iops": f"{rate * 0.97:.0f}/s"}, runner_ups=0)
    found = choose(below, workers=1)
    assert values(found.chosen) == (4, "raid10")
    assert 0.5 < found.chosen.p_meets < 0.7
    assert chance(found.chosen.p_meets) in str(found)
    assert found.cheaper is None


def test_the_cheapest_that_one_part_holds_back_has_the_command_that_says_what_lifts_it(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text(to_text(GOAL["scenario"]))
    found = choose(changed(constraints={"iops": "50M/s"}, scenario=str(file)), workers=1)
    command = shlex.split(found.lift)
    assert command[:3] == ["nvmesim", "run", str(file)]
    load_scenario(file, [s for s in command[3:] if s != "--set"])
    costs = {c.cost("price") for c in found.candidates if c.is_bounded}
    assert f"drives.0.count={(min(costs) - 3000) // 500:.0f}" in command


def test_bounds_spare_the_simulation_unless_all_are_asked_for():
    choice = choose(changed(constraints={"iops": "50M/s"}), workers=1)
    assert choice.chosen is None
    assert "iops fails first (of 12 candidates " in choice.nearest
    assert "at most" in choice.nearest
    assert "short of 50M IOPS" in choice.nearest
    assert choice.lift == ""  # no file to name
    choice = choose(changed(constraints={"drives": 4}), workers=1, everything=True)
    assert not [c for c in choice.candidates if c.state == "not simulated"]
    assert values(choice.chosen)[0] == 2


@pytest.mark.parametrize(
    ("constraints", "match"),
    [
        ({"capacity": "100 TB", "iops": "1M/s"}, "capacity fails first.*nearest is 8 drives, r"),
        ({"survives": 3}, "survives fails first"),
        ({"price": 10}, "price fails first.*above 10 EUR"),
        ({"p99": "1 us"}, "p99 fails first.*above 1 us"),
        pytest.param({"cpu": "1%"}, "cpu fails first.*above 1.0%", marks=pytest.mark.long),
        pytest.param({"bandwidth": 1e12}, "bandwidth fails first", marks=pytest.mark.long),
        ({"lanes": 4, "survives": 1}, "lanes fails first.*8 is 100 % above 4"),
        ({"slots": 1}, "slots fails first"),
        pytest.param(
            {"p99_9": "1 s", "p50": "1 ns"},
            "p99_9 fails first.*too few samples|p50 fails first",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_goal_that_nothing_meets_says_what_fails_first(constraints, match):
    choice = choose(changed(constraints=constraints, runner_ups=0), workers=1)
    assert choice.chosen is None
    import re

    assert re.search(match, choice.nearest), choice.nearest


def test_what_must_survive_is_simulated_with_drives_missing(chosen):
    goal = changed(failed=1, constraints={"drives": 4}, runner_ups=9)
    choice = choose(goal, workers=1)
    reasons = {values(c): (c.failed, c.reason) for c in choice.candidates}
    assert reasons[4, "raid0"][0] == "survives"
    assert "1 failed" in reasons[4, "raid0"][1]
    healthy = choose(changed(constraints={"drives": 4}, runner_ups=9), workers=1)

    def iops(found):
        return next(c.row["iops"] for c in found.candidates if values(c) == (4, "raid5"))

    assert iops(choice) < iops(healthy)
    # RAID5 of four reaches the goal whole, not with one drive missing; RAID10 does both.
    by_values = {values(c): c for c in chosen.candidates}
    assert by_values[4, "raid5"].failed == "iops"
    whole = choose(changed(failed=0), workers=1)
    assert (4, "raid5") in [values(c) for c in (whole.chosen, *whole.runner_ups)]


def test_an_open_load_is_judged_by_whether_it_is_carried():
    server = {**GOAL["scenario"], "workload": {"threads": 16, "rate": "1M/s"}}
    choice = choose(changed(scenario=server), workers=1)
    assert values(choice.chosen) == (4, "raid10")
    assert choice.chosen.row["iops"] == pytest.approx(1e6, rel=0.05)
    over = {**GOAL["scenario"], "workload": {"threads": 16, "rate": "9M/s"}}
    choice = choose(changed(scenario=over, constraints={"iops": "9M/s"}), workers=1)
    assert choice.chosen is None
    reasons = [c.reason for c in choice.candidates if c.failed == "iops"]
    assert all("short of 9M IOPS" in reason for reason in reasons)
    assert "0.0%" not in " ".join(reasons)


def test_the_example_asks_what_it_says_and_drives_alone_lose_data():
    goal = load_goal(EXAMPLES / "goal.toml")
    assert goal.missing == 1
    plan = make_plan(goal.candidates)
    assert len(plan) == 3 * 3 * 2
    found = load_scenario(goal.base / goal.scenario)
    tables = put(found.to_dict(), dict(zip(plan.keys, next(iter(plan.points())),
                                           strict=True)))  # fmt: skip
    figures = fixed(resolve(scenario_from_dict(tables)), goal)
    assert (figures.drives, figures.price) == (8, 3000 + 8 * 420 + 2 * 1900)
    assert figures.power == 150 + 8 * 14 + 2 * 125
    tables = {k: v for k, v in GOAL["scenario"].items() if k != "volume"}
    figures = fixed(resolve(scenario_from_dict(tables)), goal_from_dict(GOAL))
    assert (figures.survives, figures.capacity) == (0, 3.2e12)


@pytest.mark.parametrize(
    ("level", "count", "capacity", "redundancy"),
    [("raid0", 4, 4, 0), ("raid1", 3, 1, 2), ("raid10", 4, 2, 1), ("raid5", 4, 3, 1),
     ("raid6", 6, 4, 2)],
)  # fmt: skip
def test_capacity_and_redundancy_follow_from_the_level(level, count, capacity, redundancy):
    tables = {**GOAL["scenario"], "volume": {"raid": level}}
    tables["drives"] = [{"profile": "intel-p4610-1.6tb", "count": count}]
    resolved = resolve(scenario_from_dict(tables))
    volume = resolved.volumes[0]
    assert fixed(resolved, goal_from_dict(GOAL)).capacity == capacity * volume.member_bytes
    assert survived(volume) == redundancy
    assert fixed(resolved, goal_from_dict(GOAL)).drives == count


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"prices": {}}, "the drive intel-p4610-1.6tb has no price; add it to the goal's"),
        ({"objective": {"minimize": "power"}}, "no power; add it"),
        ({"objective": {"minimize": "cost"}}, "price"),
        ({"constraints": {}}, "there is none"),
        ({"constraints": {"iops": 3}}, "unit"),
        ({"constraints": {"latency": "1 us"}}, "latency"),
        ({"constraints": {"failed": 1}}, r"constraints\.failed .* above the first \[table\]"),
        ({"constraints": {"prices": {"server": 1}}}, r"\[prices\] is a table"),
        ({"candidates": {}}, "candidates"),
        ({"candidates": {"drives.0.cuont": [1]}}, "count"),
        ({"candidates": {"drives.0.count": []}}, "no values"),
        ({"scenario": "nothing.toml"}, "no such file"),
    ],
)
def test_bad_goals_are_one_line(changes, match):
    with pytest.raises(InputError, match=match) as caught:
        choose(changed(**changes), workers=1)
    assert "\n" not in str(caught.value)


def test_a_part_that_is_written_out_is_asked_for_its_own_price():
    own = {**GOAL["scenario"], "server": {"sockets": [{"cpu": {"cores": 16, "ghz": 2.9}}]}}
    for what, key in (("price", "price"), ("power", "tdp_w")):
        watts = {"intel-p4610-1.6tb": 14}
        goal = changed(scenario=own, objective={"minimize": what}, watts=watts)
        with pytest.raises(InputError, match=f"the CPU of the scenario has no {what}.*{key} = "):
            choose(goal, workers=1)
        own["server"]["sockets"][0]["cpu"][key] = 90
        goal = changed(scenario=own, objective={"minimize": what}, watts=watts)
        assert fixed(resolve(scenario_from_dict(own)), goal).price == 1000 + 90 + 2 * 500


def test_a_scenario_is_no_goal_and_is_told_how_to_become_one():
    with pytest.raises(InputError, match=r"this is a scenario: .*scenario = .*candidates"):
        goal_from_dict(GOAL["scenario"])


TOML = """
[scenario]
server = { sockets = [{ cpu = "xeon-gold-6130" }] }
drives = [{ profile = "sata-ssd" }]
workload = { threads = 2, outstanding = 8 }
run = { requests = 12000 }
[candidates]
"drives.0.count" = "1..2"
[constraints]
iops = "IOPS"
[objective]
minimize = "drives"
"""


@pytest.mark.parametrize(("iops", "code"), [("100k/s", 0), ("9M/s", 1)])
def test_the_command_answers_in_text_and_json(tmp_path, capfd, iops, code):
    file, report, table = tmp_path / "g.toml", tmp_path / "g.html", tmp_path / "g.parquet"
    file.write_text(TOML.replace("IOPS", iops))
    assert run_command(["choose", str(file), "--report", str(report), "-o", str(table)]) == code
    assert "rejected" in capfd.readouterr().out
    assert report.stat().st_size > 1000
    assert table.exists()
    assert run_command(["choose", str(file), "--json"]) == code
    said = json.loads(capfd.readouterr().out)
    assert (said["chosen"] is None) == bool(code)
    assert len(said["others"]) >= 1
    assert run_command(["choose", str(tmp_path / "none.toml")]) == 2
    assert "no such file" in capfd.readouterr().err
