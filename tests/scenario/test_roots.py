"""Root complexes, adapters and memory with a bandwidth that the scenario states."""

import pytest

import nvmesim as ns
from nvmesim.errors import ScenarioError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve

GIB = 1 << 30


def tree(counts, roots=2, rate="8 GiB/s", **adapter):
    """Drives of 6.5 GiB/s on an adapter of each root."""
    return {
        "server": {
            "stack": "linux-libaio",
            "sockets": [{"cpu": "epyc-7313"}],
            "roots": [{"name": f"root{i}", "bandwidth": rate} for i in range(roots)],
        },
        "adapters": [
            {"name": f"quad{i}", "link": "pcie4 x16", "root": f"root{i}", **adapter}
            for i in range(len(counts))
        ],
        "drives": [
            {"profile": "samsung-980pro-1tb", "count": n, "behind": f"quad{i}"}
            for i, n in enumerate(counts)
        ],
        "workload": {"block_size": "1 MiB", "access": "sequential", "outstanding": 16},
    }


def gib_per_s(tables):
    found = ns.simulate(scenario_from_dict(tables), requests=4000, reliefs=False)
    return found.total.bytes_per_s.value / GIB, found


def test_a_root_carries_what_it_says_whatever_its_lanes():
    one, found = gib_per_s(tree([4], roots=1))
    assert one == pytest.approx(8.0, rel=0.03)
    full = next(s for s in found.stations if s.resource == "root")
    assert (full.name, full.direction, full.kind) == ("root0 up", "up", "link")
    assert full.utilization > 0.97
    both, _ = gib_per_s(tree([4, 4]))
    assert both == pytest.approx(16.0, rel=0.03)


def test_a_root_that_is_wide_enough_changes_nothing():
    wide, _ = gib_per_s(tree([1], rate="100 GiB/s"))
    tables = tree([1])
    del tables["server"]["roots"], tables["adapters"][0]["root"]
    assert wide == pytest.approx(gib_per_s(tables)[0], rel=0.01)


def test_an_adapter_and_the_memory_may_be_narrower_than_their_links():
    assert gib_per_s(tree([4], bandwidth="5 GiB/s"))[0] == pytest.approx(5.0, rel=0.03)
    tables = tree([4])
    tables["server"]["sockets"][0]["memory"] = {"bandwidth": "4 GiB/s"}
    assert gib_per_s(tables)[0] == pytest.approx(4.0, rel=0.03)


def test_drives_are_plugged_in_a_root_without_an_adapter():
    tables = tree([1])
    tables["drives"] = [{"profile": "samsung-980pro-1tb", "count": 2, "root": "root1"}]
    assert [(d.root, d.socket) for d in resolve(scenario_from_dict(tables)).drives] == [(1, 0)] * 2


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        ("drives", {"root": "root0"}, "root and behind exclude each other"),
        ("drives", {"behind": None, "root": "rot1"}, "drives.0.root is 'rot1'.*'root1'"),
        ("adapters", {"socket": 0}, "socket and root exclude each other"),
        ("adapters", {"root": "roof"}, "adapters.0.root is 'roof'"),
        ("roots", {"name": "root1"}, "server.roots.1.name is 'root1'"),
        ("roots", {"socket": 3}, "server.roots.0.socket is 3"),
    ],
)
def test_places_that_are_not_there(where, change, message):
    tables = tree([1])
    table = tables["server"]["roots"] if where == "roots" else tables[where]
    table[0] = {k: v for k, v in {**table[0], **change}.items() if v is not None}
    with pytest.raises(ScenarioError, match=message):
        scenario_from_dict(tables)
