"""Scenario files: what loads, what --set changes, what one line says when it is wrong."""

import re

import pytest

from nvmesim.errors import InputError, ScenarioError
from nvmesim.scenario.load import apply_sets, load_scenario, scenario_from_dict
from nvmesim.scenario.resolve import resolve


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


def test_set_leaves_the_tables_it_was_given_alone():
    tables = {"drives": [{"count": 1}]}
    apply_sets(tables, ["drives.0.count=2"])
    assert tables == {"drives": [{"count": 1}]}


BAD = {
    # issue: unknown key, unit, geometry, adapter, lanes, negative and NaN
    "volume.chnk=1": "volume.0.chnk is not a known key; did you mean 'chunk'?",
    "server.stck=spdk": "server.stck is not a known key; did you mean 'stack'?",
    "volume.chunk=65536": "volume.0.chunk is 65536; a size needs its unit",
    "volume.chunk=64 GT/s": "unit 'GT/s'",
    "volume.chunk=64": "needs its unit",
    "volume.chunk=10 KiB": "chunk is 10 KiB; a multiple of 4 KiB",
    "volume.chunk=0": "a size needs its unit",
    "volume.chunk=0 KiB": "multiple of 4 KiB, at least 4 KiB",
    "volume.members=[0, 1]": "raid5 needs at least 3 members, it has 2",
    "volume.members=[0, 1, 1]": "names drive 1 twice",
    "volume.members=[0, 1, 9]": "names drive 9; there are 0 to 3",
    "volume.members=[0, 1, -1]": "names drive -1; there are 0 to 3",
    "volume.raid=raid7": "did you mean 'raid6'",
    "volume.layout=left": "volume.layout is 'left' for raid5; known: left-symmetric",
    "volume.degraded=[0, 1]": "[0, 1]: the array has failed; raid5 survives 1",
    "volume.degraded=[7]": "names member 7; 0 to 3",
    "volume.engine=linux-mdd": "volume.engine: the catalog has no raid-engine",
    "volume.engine=storage-spaces-mirror": "storage-spaces-mirror has raid1, raid10",
    "volume.columns=5": "columns is 5; the volume has 4 members",
    "volume.spares=1": "spares is 1; 0 drives are in no volume",
    "volume.stripe_cache=4": "from 17 to 32768",
    "volume.logical_sector=1 KiB": "512 B or 4 KiB",
    "drives.0.behind=qud": "'qud', which is not an adapter; did you mean 'quad'?",
    "drives.0.socket=0": "socket and behind exclude each other",
    "drives.0.count=0": "drives.0.count is 0; from 1 to 1024",
    "drives.0.count=-4": "drives.0.count is -4",
    "drives.0.count=nan": "finite",
    "drives.0.state=fresh1": "drives.0.state is 'fresh1'; did you mean 'fresh'?",
    "drives.0.link=sata3": "has NVME",
    "drives.0.link=pcie9 x4": "PCIe has 1 to 6",
    "drives.0.profile=intel-p4610": "did you mean 'intel-p4610",
    "drives.0.profile=missing.toml": "missing.toml: no such file",
    "drives.0.profile=3": "a catalog name, the path of a TOML file, or a table",
    "drives.0.profile.read.die={ value = nan }": "finite",
    "drives.0.profile.read.die=-1 us": "negative",
    "adapters.0.socket=2": "adapters.0.socket is 2; the server has sockets 0 to 1",
    "adapters.0.link=sas3": "an uplink is PCIe or DMI",
    "server.sockets.0.cpu.lanes=8": "socket 0 needs 16 PCIe lanes (quad 16)",
    "server.sockets.0.cpu=xeon-gold-6129": "did you mean 'xeon-gold-61",
    "server.sockets.0.cpu.cores=0": "cores is 0; at least 1",
    "server.sockets.0.ghz=0": "above 0",
    "server.sockets.1.ghz=turbo": "does not state",
    "server.sockets.0.memory=false": "memory is false on every socket",
    "server.sockets=[]": "server.sockets is []; at least one",
    "server.interconnect.rate=11 GT/s": "no upi runs at",
    "server.interconnect.links=0": "from 1 to 8",
    "server.interconnect.kind=uppi": "did you mean 'upi'",
    "server.stack=window-2019": "did you mean 'windows-2019'",
    "server.stack.submit=-1": "submit.value is -1",
    "server.background=100%": "below 1",
    "server.platform=x11": "server.platform: the catalog has no platform",
    "workload.0.read=1.5": "workload.0.read is 1.5; from 0 to 1",
    "workload.0.read=nan": "finite",
    "workload.0.read=-0.1": "from 0 to 1",
    "workload.0.threads=0": "from 1 to 65536",
    "workload.0.threads_total=4": "exclude each other",
    "workload.0.outstanding=inf": "finite",
    "workload.0.block_size=4096": "a size needs its unit",
    "workload.0.block_size=100 B": "not a multiple of 512 B",
    'workload.0.block_size={ "4 KiB" = 0.5 }': "fractions sum to 0.5",
    'workload.0.block_size={ "4 KiB" = -1 }': "it must be above 0 and at most 1",
    "workload.0.align=1 KB": "unit 'KB'",
    "workload.0.align=1000 B": "multiple of 512 B",
    "workload.0.access=randm": "did you mean 'random'",
    "workload.0.targets=drive9": "not a volume or drive; did you mean",
    "workload.0.targets=[3]": "names volume 3; there are 0 to 0",
    "workload.0.targets=0": "a count of files is 1 to 4096",
    "workload.0.targets=[]": "targets is empty",
    "workload.0.span=100 TiB": "offset + span is 100 TiB; volume0 offers",
    "workload.0.span=8 KiB": "a request of 64 KiB does not fit",
    "workload.0.socket=2": "socket is 2; there are 2 sockets",
    "workload.0.filesystem=zfs": "filesystem is 'zfs'",
    "workload.0.speed=2": "speed needs trace",
    "workload.0.arrivals=paced": "arrivals needs rate",
    "workload.0.rate=500k/s": "outstanding cannot be given beside rate",
    "workload.0.diskspd=-b4K": "cannot be given beside diskspd",
    "workload=[{ read = 0.5 }]": "workload.0: states no load",
    'workload=[{ trace = "no.blkparse" }]': "there is no such file",
    'workload=[{ rate = "500k/s", diskspd = "-t1" }]': "diskspd and rate exclude each other",
    'workload=[{ rate = "500 kHz" }]': "not a rate",
    "workload=[]": "workload is missing; only an array with rebuild = true",
    "drives=[]": "at least one",
    "drives=4": "drives is 4; a list is needed",
    "run.precision=0": "above 0",
    "run.precision=1 s": "not a fraction",
    "run.duration=2": "a time needs its unit",
    "run.requests=0": "at least 1",
    "run.seed=-1": "at least 0",
    "drives.7.count=1": "drives has elements 0 to 0, not '7'",
    "name.x=1": "which has no parts",
    "drives": "is not KEY=VALUE",
    "=1": "is not KEY=VALUE",
}


@pytest.mark.parametrize("change", BAD)
def test_bad_values_are_one_line(example, change):
    with pytest.raises(InputError, match=re.escape(BAD[change])) as caught:
        load_scenario(example, [change])
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{example}: ")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "no such file"),
        (b"drives = [", "not TOML"),
        (b"\xff\xfe\x00", "not TOML"),
        (b"", "server is missing"),
        (b'[server]\nstack = "spdk"', "server.sockets is missing"),
    ],
)
def test_bad_files_are_one_line(tmp_path, content, match):
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScenarioError, match=match) as caught:
        load_scenario(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_not_a_scenario(tmp_path):
    with pytest.raises(ScenarioError, match="folder"):
        load_scenario(tmp_path)


def test_a_byte_order_mark_is_read(example):
    example.write_bytes(b"\xef\xbb\xbf" + example.read_bytes())
    assert load_scenario(example).name.startswith("4 x P4610")


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
