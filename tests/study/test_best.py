"""The largest load within a goal: found, held, and honest where there is none."""

import json
import math

import pytest

from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.scenario.load import load_scenario, scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.show.views.designs import best_page
from nvmesim.study.best import best, in_state
from nvmesim.study.designs import LimitMiss, LoadGoal
from nvmesim.study.load_search import LoadSearch
from tests.servers import bare

SERVER = {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]}
ONE = {
    "server": SERVER,
    "drives": [{"profile": "intel-p4610-1.6tb"}],
    "workload": {"threads": 2, "outstanding": 4},
}
RAID = {
    **ONE, "name": "four", "drives": [{"profile": "intel-p4610-1.6tb", "count": 4}],
    "volume": {"raid": "raid5"}, "workload": {"threads": 4, "outstanding": 8},
}  # fmt: skip
OLTP = {
    **ONE, "drives": [{"profile": "intel-p4610-1.6tb", "count": 8}], "volume": {"raid": "raid10"},
    "workload": {"threads": 16, "outstanding": 8, "block_size": "8 KiB", "read": 0.7},
}  # fmt: skip


ONE_WORKER = pytest.mark.xdist_group("raid of best")


@pytest.fixture(scope="module")
def raid():
    return best(RAID, p99="500 us", over={"volume.raid": ["raid10", "raid0", "raid5"]})


def test_the_load_found_holds_with_its_interval_and_is_what_its_run_says():
    search = LoadSearch(resolve(scenario_from_dict(ONE)), LoadGoal(p99=300e-6))
    found = search.largest()
    p99 = found.result.total.latency.percentiles[99.0]
    simulation = found.result.certainty.figures["p99"].simulation[1]
    assert p99 < p99 * math.exp(simulation) <= 300e-6
    low, high = found.result.total.latency.intervals["p99"]
    assert low < p99 < high, "the interval is the whole one"
    assert next(t for t in found.trials if t.applied == found.applied).decides
    beyond = [t.iops for t in found.trials if not t.holds]
    assert beyond, "no load beyond the goal was tried: the largest is not known to be the largest"
    assert 0.9 * min(beyond) < found.result.total.iops.value < min(beyond)
    # The write buffers of this array fill after the short trials end: they show 8 % more.
    tables = in_state(OLTP, "degraded")
    found = LoadSearch(resolve(scenario_from_dict(tables)), LoadGoal(p99=1e-3)).largest()
    shown = next(t for t in found.trials if t.applied == found.applied)
    assert shown.decides
    assert shown.holds
    assert shown.iops == found.result.total.iops.value
    assert max(t.iops for t in found.trials if t.holds) < 1.03 * shown.iops


def test_a_tighter_goal_never_carries_more_and_a_cpu_limit_is_kept():
    rates = [best(ONE, p99=limit).designs[0].states[0].iops for limit in ("200us", "1ms")]
    assert rates[0] < rates[1] * 1.01
    found = best(ONE, cpu="10%").designs[0].states[0]
    assert found.met
    assert found.result.cpu.logical_utilization <= 0.10


def test_a_rate_is_searched_up_to_its_bound_and_given_up_after_a_few():
    tables = {**ONE, "workload": {"rate": "10k/s"}}
    found = best(tables, p99="400us").designs[0].states[0]
    assert found.met
    assert found.applied.rate == pytest.approx(found.iops, rel=0.03)
    assert found.iops > 100_000
    assert found.result.bottleneck.verdict != "unstable"
    tables = {**RAID, "workload": {"rate": "40k/s"}}
    found = best(tables, p99="20us", states=["rebuilding"]).designs[0].states[0]
    assert not found.met
    assert found.missed.what == "p99"
    assert len(found.trials) < 5
    assert min(t.applied.rate for t in found.trials) > 100


@ONE_WORKER
def test_states_differ_a_rebuild_has_hours_and_is_explained(raid):
    states = {d.values["volume.raid"]: {s.state: s for s in d.states} for d in raid.designs}
    five = states["raid5"]
    assert five["healthy"].iops > five["degraded"].iops
    assert 0.1 < five["rebuilding"].rebuild_hours < 1000
    assert five["healthy"].rebuild_hours is None
    # Half of a new mirror serves reads; parity is read for the rebuild as well.
    rates = {d.name: {s.state: s.iops or 0.0 for s in d.states} for d in raid.designs if d.met}
    more = {name for name, r in rates.items() if r["rebuilding"] > 1.02 * r["degraded"]}
    assert "raid10" in more
    assert {note.partition(" ")[0] for note in raid.notes if "volume.rebuilt" in note} >= more


def test_states_of_drives_alone_of_pools_and_of_degraded_scenarios():
    alone = {key: table for key, table in RAID.items() if key != "volume"}
    found = best(alone, p99="500 us", over={"volume.raid": ["raid10"]})
    assert [s.state for s in found.designs[0].states] == ["healthy", "degraded", "rebuilding"]
    zfs = {**RAID, "workload": {"threads": 4, "outstanding": 1}}
    found = best(zfs, p99="5 ms", over={"volume.raid": ["raidz1", "zfs-mirror"]}).designs
    assert [[s.state for s in d.states] for d in found] == [["healthy", "degraded"]] * 2
    assert all(d.met for d in found)
    tables = {"volume": [{"raid": "raid5", "degraded": [2], "rebuild": True}]}
    healthy = in_state(tables, "healthy")["volume"][0]
    assert healthy == {"raid": "raid5", "degraded": [], "rebuild": False}
    assert tables["volume"][0]["degraded"] == [2]


@ONE_WORKER
def test_a_level_without_redundancy_loses_the_data_and_never_wins(raid):
    assert raid.designs[-1].values == {"volume.raid": "raid0"}
    assert [s.lost for s in raid.designs[-1].states] == [False, True, True]
    assert raid.best.values["volume.raid"] != "raid0"
    page = best_page(raid)
    assert "data lost" in page
    assert "raid0" in page


def test_what_nothing_meets_or_cannot_be_built_is_said():
    found = best(ONE, p99="20us")
    assert found.best is None
    assert found.designs[0].states[0].applied.in_flight == 1
    assert "p99 is" in str(found)
    assert "times 20 us" in str(found)
    found = best(ONE, p99="1ms", iops="50M")
    answer = found.designs[0].states[0]
    assert not answer.met
    short = 1 - answer.iops / 50e6
    assert f"{100 * short:.0f} % short of 50M IOPS" in str(found)
    with pytest.raises(InputError, match=r"nothing can be built; the first: .*at least 3") as found:
        best(RAID, p99="1ms", over={"drives.count": [1, 2]})
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "no limit"),
        ({"p99": "0us"}, "above 0"),
        ({"p99": "1ms", "states": ["broken"]}, "unknown"),
        ({"p99": "1ms", "states": ["degraded"]}, "needs a .volume"),
        ({"cpu": "150%"}, "cpu"),
        ({"p99": "1ms", "iops": 0}, "iops"),
    ],
)
def test_goals_that_cannot_be(how, said):
    with pytest.raises(InputError, match=said):
        best(ONE, **how)


@pytest.mark.parametrize(
    ("miss", "said"),
    [
        (LimitMiss("p99", math.inf, 1e-3), "p99 grows without end: the load has no steady state"),
        (LimitMiss("p99.9", math.nan, 1e-3), "p99.9 is not known: too few requests"),
        (LimitMiss("cpu", 0.6, 0.5), "CPU is 60 %: 20 % above 50 %"),
        (LimitMiss("mean", 1.02e-3, 1e-3), "mean is 1.02 ms: 2 % above 1 ms"),
        (
            LimitMiss("cpu", 0.51, 0.5, sure=False),
            "CPU is within 50 % but not for sure: its interval ends at 51 %",
        ),
        (
            LimitMiss("iops", 2.9e6, 3e6, sure=False),
            "3M IOPS are reached but not for sure: their interval begins at 2.9M IOPS",
        ),
    ],
)
def test_a_missed_limit_is_said_in_words(miss, said):
    assert miss.words().startswith(said)


def test_the_command_prints_writes_and_exits(tmp_path, file, capfd):
    report = tmp_path / "best.html"
    assert run_command(["best", str(file), "--p99", "1ms", "--report", str(report)]) == 0
    printed = capfd.readouterr().out
    assert "healthy" in printed
    assert "met" in printed
    assert "IOPS" in printed
    assert report.read_text("utf-8").count('class="chart"') == 2
    assert run_command(["best", str(file), "--p99", "5us", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert found["met"] is False
    assert found["designs"][0]["states"][0]["why"]
    assert found["rule"]
    assert isinstance(found["warnings"], list)
    holds = bare(load_scenario(file), requests=2000).to_json()["usable_bytes"]
    assert [d["usable_bytes"] for d in found["designs"]] == [holds]
    assert run_command(["best", str(file)]) == 2
    assert "no limit is named" in capfd.readouterr().err
