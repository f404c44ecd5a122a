"""Any scenario runs, or is refused with one line; laws that hold on whatever runs."""

import math

import pytest
from hypothesis import HealthCheck, given, settings

import nvmesim as ns
from nvmesim.errors import InputError
from nvmesim.predict.prepare import prepare
from nvmesim.scenario.load import scenario_from_dict
from tests.engines.test_equality import assert_complete_alike
from tests.properties.scenarios import scenarios

REQUESTS = 300
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LONG = settings(QUICK, max_examples=1500)
SLACK = 1e-9  # of sums of floats


def one_line(said: str) -> str:
    assert "\n" not in said
    assert len(said) > 10
    return said


def check(tables, *, certainty=False) -> str:
    """Run *tables*; "ran" or why it was refused."""
    try:
        result = ns.simulate(
            scenario_from_dict(tables), requests=REQUESTS, reliefs=False, certainty=certainty
        )
    except InputError as error:
        return one_line(str(error))
    total = result.total
    assert total.iops.value > 0
    assert math.isfinite(total.iops.value)
    counted = sum(part.count for part in (result.read, result.write) if part is not None)
    assert counted == total.count
    for station in result.stations:
        assert -SLACK <= station.utilization <= 1 + SLACK
        assert station.wait_mean_s >= 0
        assert station.service_mean_s >= 0
    seen = [v for v in total.latency.percentiles.values() if v is not None]
    assert seen == sorted(seen)
    assert not seen or seen[-1] <= total.latency.max * (1 + SLACK)
    return "ran"


REFUSED: dict[str, int] = {"ran": 0, "refused": 0}


@QUICK
@given(scenarios())
def test_a_scenario_runs_or_is_refused_with_one_line(tables):
    REFUSED["ran" if check(tables) == "ran" else "refused"] += 1


def test_most_of_them_ran():
    """What is checked above means little if nothing runs (or nothing is refused)."""
    if not sum(REFUSED.values()):
        pytest.skip("the test above was not run here")
    assert REFUSED["ran"] > 20
    assert REFUSED["refused"] > 5


def test_streams_of_a_thread_beside_streams_of_a_target():
    """Groups of different kinds of sequential streams, in either order."""
    each = {"access": "sequential", "threads": 2, "outstanding": 1}
    shared = {"diskspd": "-b64K -si -t3 -d5"}
    for loads in ([each, shared], [shared, each]):
        tables = {"server": {"sockets": [{"cpu": "xeon-gold-6130"}]},
                  "drives": [{"profile": "intel-p4610-1.6tb"}], "workload": loads}  # fmt: skip
        assert check(tables) == "ran"


def test_a_cache_whose_destager_begins_with_room_is_not_emptier_than_empty():
    load = {"block_size": "512 B", "read": 0.0, "rate": "500/s", "arrivals": "paced"}
    tables = {"server": {"sockets": [{"cpu": "xeon-gold-6130"}]},
              "drives": [{"profile": "intel-p4610-1.6tb", "count": 2}], "workload": [load],
              "volume": {"raid": "raid0", "chunk": "4 KiB", "engine": "hardware-raid"}}  # fmt: skip
    assert check(tables) == "ran"


@pytest.mark.long
@settings(QUICK, max_examples=100)
@given(scenarios())
def test_both_engines_complete_every_request_alike(tables):
    try:
        net = prepare(scenario_from_dict(tables), seed=5, level=0.0).lowered.network
    except InputError:
        return
    assert_complete_alike(net, REQUESTS, seed=5)


@pytest.mark.slow
@LONG
@given(scenarios())
def test_many_scenarios(tables):
    check(tables, certainty=True)
