"""Any valid scenario, written out and read again, is the same scenario."""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nvmesim.errors import InputError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from tests.properties.scenarios import SIZES, scenarios

RUNS = st.sampled_from([{}, {"seed": 3}, {"precision": "2%"}, {"duration": "1.5 s"}])


@st.composite
def named(draw):
    """Return a scenario that can be, with a name, mixes of sizes and an end of its run."""
    tables = draw(scenarios()) | {"name": draw(st.text(max_size=8)), "run": draw(RUNS)}
    for load in tables["workload"]:
        sizes = draw(st.lists(SIZES, max_size=4, unique=True))
        if sizes and "diskspd" not in load:
            load["block_size"] = dict.fromkeys(sizes, 1 / len(sizes))
    try:
        return scenario_from_dict(tables)
    except InputError:
        assume(False)


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(named())
def test_round_trip(scenario):
    again = scenario_from_dict(json.loads(json.dumps(scenario.to_dict())))
    assert again == scenario
    resolved = resolve(scenario)
    assert resolve(again) == resolved
    for group in resolved.workload:
        assert sum(share for _, share in group.block_sizes) == pytest.approx(1)
        assert group.n_threads >= 1
        assert group.in_flight >= 1 or group.is_open
        for target in group.targets:
            there = resolved.volumes if target.kind == "volume" else resolved.drives
            assert there[target.index].name == target.name
