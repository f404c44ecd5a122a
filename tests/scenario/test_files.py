"""Scenario files: what loads, what --set changes, what is said of wrong ones, what is written."""

import json
import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nvmesim.errors import InputError, ScenarioError
from nvmesim.scenario.load import apply_sets, load_scenario, scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.workload_keys import preset, workload
from tests.properties.scenarios import SIZES, scenarios
from tests.scenario.conftest import REFUSED


def test_the_example_resolves(example):
    resolved = resolve(load_scenario(example))
    assert [drive.name for drive in resolved.drives] == ["drive0", "drive1", "drive2", "drive3"]
    assert {drive.adapter for drive in resolved.drives} == {0}
    assert resolved.sockets[0].ghz == 3.9
    assert [socket.has_memory for socket in resolved.sockets] == [True, False]
    assert resolved.interconnect.link.lanes == 2
    volume = resolved.volumes[0]
    assert (volume.level, volume.layout, volume.chunk) == ("raid5", "left-symmetric", 524288)
    group = resolved.workload[0]
    assert group.block_sizes == ((4096, 0.7), (65536, 0.3))
    assert (group.n_threads, group.in_flight, group.align) == (32, 1024, 4096)
    assert resolved.run.precision == 0.01


def test_a_file_may_state_precision_and_length(example):
    """The length wins, as the surface promises: then no precision is asked."""
    sets = ["run.requests=200000", "run.duration=2 s"]
    run = resolve(load_scenario(example, sets)).run
    assert (run.precision, run.requests, run.duration_ps) == (None, 200000, 2 * 10**12)


@pytest.mark.parametrize(
    ("change", "reads"),
    [
        ("server.interconnect.links=3", lambda r: r.interconnect.link.lanes == 3),
        ("drives.0.count=3", None),
        ("workload.0.read=0.5", lambda r: r.workload[0].read == 0.5),
        ("workload.read=0.5", lambda r: r.workload[0].read == 0.5),
        ("volume.chunk=64 KiB", lambda r: r.volumes[0].chunk == 65536),
        ('volume.0.chunk="64 KiB"', lambda r: r.volumes[0].chunk == 65536),
        ("volume.engine.per_child=7", lambda r: r.volumes[0].engine.per_child.value == 7),
        ("server.stack.submit=9000", lambda r: r.stack.submit.value == 9000),
        ("server.sockets.0.cpu=xeon-gold-6128", lambda r: r.sockets[0].cpu.cores == 6),
        ("server.sockets.0.cpu.cores=9", lambda r: r.sockets[0].cpu.cores == 9),
        ("server.sockets.0.ghz=turbo", lambda r: r.sockets[0].ghz == 4.1),
        ("drives.0.profile.read.die=40 us", lambda r: r.drives[0].profile.read.die.value == 40e6),
        ("drives.0.state=fresh", lambda r: r.drives[3].profile.state == "fresh"),
        ("server.stack={ cycles_per_io = 12000 }", lambda r: r.stack.complete.value == 6000),
        ("run.seed=7", lambda r: r.run.seed == 7),
    ],
)
def test_set_changes_one_value(example, change, reads):
    if reads is None:
        with pytest.raises(ScenarioError, match="names drive 3; there are 0 to 2"):
            load_scenario(example, [change])
    else:
        assert reads(resolve(load_scenario(example, [change])))


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        (["workload.0.outstanding=64"], "diskspd.exe -b4K -t8 -o64 -w30 -r"),
        (["workload.*.threads=16", "workload.0.read=0.5"], "diskspd.exe -b4K -t16 -o32 -w50 -r"),
        (["workload.0.block_size=8 KiB"], "diskspd.exe -b8192 -t8 -o32 -w30 -r"),
    ],
)
def test_threads_and_depth_of_a_diskspd_line_change_the_line(sets, line):
    tables = {"workload": [{"diskspd": "diskspd.exe -b4K -t8 -o32 -w30 -r"}]}
    assert apply_sets(tables, sets)["workload"] == [{"diskspd": line}]


def test_another_level_leaves_out_what_only_the_old_one_has():
    volume = {"raid": "raid5", "layout": "left-symmetric", "group_thread_cnt": 8, "chunk": "64 KiB"}
    tables = {"volume": [volume]}
    changed = apply_sets(tables, ["volume.0.raid=raid10"])["volume"]
    assert changed == [{"raid": "raid10", "chunk": "64 KiB"}]
    assert apply_sets(tables, ["volume.0.raid=raid6"])["volume"] == [{**volume, "raid": "raid6"}]
    both = apply_sets(tables, ["volume.0.layout=far2", "volume.0.raid=raid10"])["volume"]
    assert both == [{"raid": "raid10", "layout": "far2", "chunk": "64 KiB"}]
    assert tables == {"volume": [volume]}
    assert volume["raid"] == "raid5"


@pytest.mark.parametrize(("change", "said"), REFUSED["set"].items())
def test_bad_values_are_one_line(example, change, said):
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        load_scenario(example, [change])
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{example}: ")
    assert caught.value.exit_code == 2


def test_relative_paths_start_at_the_file(example):
    (example.parent / "mine.toml").write_text(
        'kind = "drive"\nextends = "sata-ssd"\nname = "mine"\ninterface = "nvme"\n'
        'link = "pcie3 x4"\n',
        "utf-8",
    )
    scenario = load_scenario(example, ["drives.0.profile=./mine.toml"])
    assert resolve(scenario).drives[0].profile.name == "mine"


def test_a_platform_brings_its_server(tmp_path):
    scenario = scenario_from_dict(
        {
            "server": {"platform": "team-windows-2019", "stack": "spdk"},
            "drives": [{"profile": "intel-p4610-6.4tb", "count": 4, "behind": "quad"}],
            "workload": {"outstanding": 32},
        }
    )
    resolved = resolve(scenario)
    assert resolved.stack.name == "spdk"
    assert [socket.cpu.name for socket in resolved.sockets] == ["xeon-gold-6130"] * 2
    assert resolved.adapters[0].link.lanes == 16


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


def test_a_changed_load_loses_the_title_of_its_preset():
    tables = {"workload": [{"name": preset("oltp").title, **workload("oltp")}]}
    for change, stays in (("block_size=4 KiB", False), ("read=0.7", True), ("threads=2", True)):
        (changed,) = apply_sets(tables, [f"workload.0.{change}"])["workload"]
        assert ("name" in changed) == stays
