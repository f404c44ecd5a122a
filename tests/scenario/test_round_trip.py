"""Any valid scenario, written out and read again, is the same scenario."""

import json
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvmesim.errors import InputError
from nvmesim.scenario.load import apply_sets, scenario_from_dict
from nvmesim.scenario.resolve import resolve

SIZES = st.sampled_from(["512 B", "4 KiB", "8 KiB", "64 KiB", "1 MiB"])
FRACTIONS = st.floats(0, 1, allow_nan=False)


@st.composite
def mixes(draw):
    if draw(st.booleans()):
        return draw(SIZES)
    sizes = draw(st.lists(SIZES, min_size=2, max_size=4, unique=True))
    return dict.fromkeys(sizes, 1 / len(sizes))


@st.composite
def workloads(draw):
    """Return a workload table in the scenario's own keys, closed or open."""
    table = {"block_size": draw(mixes()), "read": draw(FRACTIONS)}
    if draw(st.booleans()):
        table["access"] = draw(st.sampled_from(["random", "sequential"]))
    if draw(st.booleans()):
        table["span"] = draw(st.sampled_from(["1 GiB", "10 GB", "1.5 GiB"]))
    if draw(st.booleans()):
        return table | {"rate": f"{draw(st.integers(1, 10**6))}/s", "arrivals": "paced"}
    threads = draw(st.sampled_from(["threads", "threads_total"]))
    table |= {threads: draw(st.integers(1, 64)), "outstanding": draw(st.integers(1, 64))}
    if draw(st.booleans()):
        table["think_time"] = f"{draw(st.integers(0, 10**6))} ns"
    return table


@st.composite
def scenarios(draw):
    """Return the tables of a scenario that is valid by construction."""
    n_sockets = draw(st.integers(1, 2))
    n_drives = draw(st.integers(4, 8))
    tables = {
        "name": draw(st.text(max_size=8)),
        "server": {
            "stack": draw(
                st.sampled_from(["spdk", "windows-2019"]) | st.just({"cycles_per_io": 9})
            ),
            "sockets": [{"cpu": "xeon-gold-6130"}] * n_sockets,
        },
        "drives": [{"profile": "intel-p4610-1.6tb", "count": n_drives, "socket": n_sockets - 1}],
        "workload": draw(st.lists(workloads(), min_size=1, max_size=3)),
        "run": draw(st.sampled_from([{}, {"seed": 3}, {"precision": "2%"}, {"duration": "1.5 s"}])),
    }
    if draw(st.booleans()):
        level = draw(st.sampled_from(["raid0", "raid1", "raid10", "raid5", "raid6"]))
        tables["volume"] = {"raid": level, "chunk": f"{4 << draw(st.integers(0, 8))} KiB"}
        if level in ("raid5", "raid6") and draw(st.booleans()):
            tables["volume"]["degraded"] = [draw(st.integers(0, n_drives - 1))]
    return tables


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scenarios())
def test_round_trip(tables):
    scenario = scenario_from_dict(tables)
    again = scenario_from_dict(json.loads(json.dumps(scenario.to_dict())))
    assert again == scenario
    assert resolve(again) == resolve(scenario)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scenarios())
def test_groups_are_whole(tables):
    """Fractions sum to one, someone submits, and every target is there."""
    resolved = resolve(scenario_from_dict(tables))
    for group in resolved.workload:
        assert sum(share for _, share in group.block_sizes) == pytest.approx(1)
        assert group.n_threads >= 1
        assert group.in_flight >= 1 or group.is_open
        for target in group.targets:
            there = resolved.volumes if target.kind == "volume" else resolved.drives
            assert there[target.index].name == target.name


KEYS = st.sampled_from(
    ["server", "drives", "volume", "workload", "run", "0", "1", "count", "read", "chunk", "link",
     "profile", "stack", "links", "threads", "block_size", "seed", "x"]
)  # fmt: skip
VALUES = st.one_of(
    st.integers(-5, 5).map(str),
    st.floats().map(str),
    st.sampled_from(
        ["true", "nan", "[]", "{}", "4 KiB", "'x'", "[1, 'a']", "{ a = 1 }", "1979-05-27"]
    ),
    st.text(max_size=6),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=4), VALUES)
def test_any_change_is_taken_or_refused_in_one_line(path, value):
    """Nothing but an InputError ever comes out, whatever --set says."""
    tables = tomllib.loads(
        '[server]\nstack = "spdk"\n[[server.sockets]]\ncpu = "xeon-gold-6130"\n'
        '[[drives]]\nprofile = "sata-ssd"\ncount = 4\n[volume]\nraid = "raid5"\n'
        "[workload]\nthreads = 2\noutstanding = 2\n"
    )
    try:
        scenario_from_dict(apply_sets(tables, [".".join(path) + "=" + value]))
    except InputError as caught:
        error = str(caught)
    else:
        error = ""
    assert "\n" not in error
