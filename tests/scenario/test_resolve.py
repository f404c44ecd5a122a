"""What a scenario resolves to: defaults, links, sockets, root complexes, volumes."""

import pytest

from nvmesim.errors import GeometryError, ScenarioError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.volumes import geometry
from tests.servers import bare, one_server


def scenario(**changes):
    """Return two P4610 on one socket under DiskSpd's most common load, resolved."""
    load = {"threads": 4, "outstanding": 8}
    tables = one_server("intel-p4610-1.6tb", load, 2, stack="spdk")
    return resolve(scenario_from_dict({**tables, **changes}))


def drives(n, **keys):
    return [{"profile": "intel-p4610-1.6tb", "count": n, **keys}]


def names(group):
    return [(target.name, target.part, target.parts) for target in group.targets]


@pytest.mark.parametrize(
    ("level", "targets", "found"),
    [
        (None, None, [("drive0", 0, 1), ("drive1", 0, 1)]),
        (None, "drive1", [("drive1", 0, 1)]),
        (None, 3, [("drive0", 0, 2), ("drive1", 0, 1), ("drive0", 1, 2)]),
        ("raid0", None, [("volume0", 0, 1)]),  # it hides its drives unless they are named
        ("raid0", ["drive1", "volume0"], [("drive1", 0, 1), ("volume0", 0, 1)]),
        ("raid1", 4, [("volume0", part, 4) for part in range(4)]),
    ],
)
def test_what_a_load_is_laid_on(level, targets, found):
    tables = {"volume": {"raid": level}} if level else {}
    load = {"threads": 15, "outstanding": 16} | ({"targets": targets} if targets else {})
    group = scenario(**tables, workload=load).workload[0]
    assert names(group) == found
    assert (group.n_threads, group.in_flight) == (15 * len(found), 240 * len(found))


def test_threads_in_all_share_their_outstanding():
    group = scenario(workload={"threads_total": 10, "outstanding": 8}).workload[0]
    assert (group.n_threads, group.in_flight, group.outstanding_per) == (10, 80, "thread")


def test_links_train_to_the_lower_generation_and_say_so():
    resolved = scenario(drives=[{"profile": "samsung-980pro-1tb"}])
    assert str(resolved.drives[0].link) == "pcie3 x4"
    assert any("runs as pcie3 x4" in text for text in resolved.assumptions)


def test_a_switch_lets_drives_keep_their_generation():
    resolved = scenario(
        adapters=[{"name": "switch", "kind": "switch", "link": "pcie3 x8"}],
        drives=[{"profile": "samsung-980pro-1tb", "count": 8, "behind": "switch"}],
    )
    assert {str(drive.link) for drive in resolved.drives} == {"pcie4 x4"}


def test_only_uplinks_use_lanes_of_drives_behind_them():
    adapters = [{"name": "sw", "kind": "switch", "link": "pcie3 x16"}]
    assert len(scenario(adapters=adapters, drives=drives(24, behind="sw")).drives) == 24
    with pytest.raises(ScenarioError, match=r"needs 96 PCIe lanes \(drives 96\)"):
        scenario(drives=drives(24))


def test_xgmi_takes_lanes_of_its_own_socket():
    server = {"stack": "spdk", "sockets": [{"cpu": "epyc-7763"}]}
    assert len(scenario(server=server, drives=drives(32)).drives) == 32
    two = {**server, "sockets": [{"cpu": "epyc-7763"}] * 2}
    with pytest.raises(ScenarioError, match="epyc-7763 has 64"):
        scenario(server=two, drives=drives(32, socket=0))


def test_a_vmd_domain_has_sixteen_lanes():
    adapters = [{"name": "vmd0", "kind": "vmd", "link": "pcie3 x16"}]
    resolved = scenario(adapters=adapters, drives=drives(4, behind="vmd0"))
    assert resolved.adapters[0].cycles_per_command > 0
    with pytest.raises(ScenarioError, match="20 lanes of drives; a VMD domain"):
        scenario(adapters=adapters, drives=drives(5, behind="vmd0"))


def test_sata_drives_use_no_lanes():
    resolved = scenario(drives=[{"profile": "sata-ssd", "count": 100}])
    assert {drive.link.pcie_lanes for drive in resolved.drives} == {0}


def test_what_the_catalog_fills_in_is_listed():
    assert scenario().interconnect is None  # one socket
    server = {"stack": "windows-2019", "sockets": [{"cpu": "xeon-gold-6130"}] * 2}
    resolved = scenario(server=server)
    assert resolved.interconnect.link.lanes == 3
    text = "\n".join(resolved.assumptions)
    assert "server.interconnect: kind, links, rate from xeon-gold-6130: 3 x upi" in text
    assert "cpu xeon-gold-6130: smt_yield = 1.25 is assumed" in text
    assert "drive intel-p4610-1.6tb: read.die = 60 us is assumed" in text
    assert "drives.0: socket not stated, 0 taken" in text
    assert "hyper-v" not in text
    assert "turbo" not in text


def test_a_cost_that_is_not_known_is_said():
    resolved = scenario(workload={"threads": 1, "filesystem": "ntfs", "guest": "hyper-v"})
    assert any("no cost known for ntfs" in text for text in resolved.assumptions)
    assert any("guest hyper-v" in text for text in resolved.assumptions)


def test_open_loop():
    group = scenario(workload={"rate": "500k/s", "arrivals": "paced", "read": 0}).workload[0]
    assert (group.rate, group.arrivals, group.is_open, group.read) == (5e5, "paced", True, 0.0)


def test_several_volumes_each_with_members_and_spares():
    volumes = [
        {"name": "fast", "raid": "raid0", "members": [0, 1]},
        {"name": "safe", "raid": "raid5", "members": [2, 3, 4], "spares": 1},
    ]
    resolved = scenario(drives=drives(6), volume=volumes)
    assert resolved.volumes[1].spares == (5,)
    assert names(resolved.workload[0]) == [("fast", 0, 1), ("safe", 0, 1)]
    with pytest.raises(ScenarioError, match="drive1 is in fast already"):
        scenario(drives=drives(6), volume=[volumes[0], {**volumes[1], "members": [1, 2, 3]}])
    with pytest.raises(ScenarioError, match=r"volume\.1\.members is missing"):
        scenario(drives=drives(6), volume=[volumes[0], {"raid": "raid0"}])
    with pytest.raises(ScenarioError, match="'fast', which a drive or volume has"):
        scenario(drives=drives(6), volume=[volumes[0], {**volumes[1], "name": "fast"}])


def test_spares_are_kept_out_of_a_volume_of_all():
    resolved = scenario(drives=drives(5), volume={"raid": "raid5", "spares": 1})
    assert resolved.volumes[0].members == (0, 1, 2, 3)
    assert resolved.volumes[0].spares == (4,)


def test_engine_sets_defaults_by_level():
    raid5 = scenario(drives=drives(3), volume={"raid": "raid5"}).volumes[0]
    raid0 = scenario(drives=drives(3), volume={"raid": "raid0"}).volumes[0]
    assert raid5.engine.per_request.value > raid0.engine.per_request.value > 0
    spaces = scenario(volume={"raid": "raid1", "engine": "storage-spaces-mirror"}).volumes[0]
    assert spaces.chunk == 256 * 1024


def test_what_an_engine_states_itself_holds_at_every_level():
    own = {"extends": "linux-md", "serial_write": "0.9 us"}
    raid5 = scenario(drives=drives(3), volume={"raid": "raid5", "engine": own}).volumes[0]
    assert raid5.engine.serial_write.value == 900_000
    wrong = {"extends": "linux-md", "by_level": {"raid66": {"serial_write": "0.9 us"}}}
    with pytest.raises(ScenarioError, match=r"by_level.raid66: there are raid0, raid1"):
        scenario(drives=drives(3), volume={"raid": "raid5", "engine": wrong})


def test_a_disk_of_rounds_assumes_nothing_of_dies():
    rounds = {
        "base": {"value": "20 us", "basis": "fitted"}, "read": {"value": "5 us", "basis": "fitted"},
        "write": {"value": "5 us", "basis": "assumed"},
    }  # fmt: skip
    disk = {"extends": "intel-p4610-1.6tb", "name": "mine", "rounds": rounds}
    assumed = [a for a in scenario(drives=[{"profile": disk}]).assumptions if "drive mine" in a]
    assert any("rounds.write = 5 us" in a for a in assumed)
    assert not any(key in a for a in assumed for key in (" dies", "read.die", "write.program"))


def test_members_of_unequal_size_use_the_smallest():
    mixed = [{"profile": "intel-p4610-1.6tb"}, {"profile": "intel-p4510-1tb"}]
    resolved = scenario(drives=mixed, volume={"raid": "raid0"})
    assert resolved.volumes[0].member_bytes <= 10**12
    assert any("members differ in size" in text for text in resolved.assumptions)


def test_names_of_drives():
    two = drives(2, name="ssd") + drives(1, name="spare")
    assert [drive.name for drive in scenario(drives=two).drives] == ["ssd0", "ssd1", "spare"]
    with pytest.raises(ScenarioError, match="'a' is the name of two drives"):
        scenario(drives=drives(1, name="a") + drives(1, name="a"))


@pytest.mark.parametrize(
    ("level", "least"), [("raid0", 1), ("raid1", 2), ("raid10", 2), ("raid5", 3), ("raid6", 4)]
)
def test_too_few_members(level, least):
    geometry(level, least, None)
    with pytest.raises(GeometryError, match=f"needs at least {least} members, it has {least - 1}"):
        geometry(level, least - 1, None)


@pytest.mark.parametrize(
    ("level", "layout", "match"),
    [
        ("raid10", "near1", "2 to 4 copies"),
        ("raid10", "far9", "2 to 4 copies"),
        ("raid10", "left", "near2, far2"),
        ("raid0", "near2", "layout is 'near2' for raid0; known: original, alternate"),
    ],
)
def test_layouts_that_do_not_exist(level, layout, match):
    with pytest.raises(GeometryError, match=match):
        geometry(level, 4, layout)


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
    found = bare(tables, requests=4000)
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


@pytest.mark.parametrize(
    ("generation", "memory", "joined"),
    [(3, 6 * 2666e6, "10.4 GT/s"), (4, 8 * 3200e6, "11.2 GT/s"), (None, 8 * 4800e6, "16 GT/s")],
)
def test_a_cpu_of_which_little_is_stated_is_fed_as_usual(generation, memory, joined):
    cpu = {"cores": 64, "ghz": 2.5} | ({"pcie_generation": generation} if generation else {})
    server = {"stack": "spdk", "sockets": [{"cpu": cpu}, {"cpu": cpu}]}
    resolved = scenario(server=server, drives=drives(32))
    assert resolved.sockets[0].memory_bytes_per_s == pytest.approx(memory * 8 * 0.8)
    assert any(joined in text for text in resolved.assumptions)


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
