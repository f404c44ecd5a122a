"""The catalog: every entry loads, adds up, says where it is from, and is what its script makes."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from nvmesim.catalog import links, load, toml
from nvmesim.catalog import load as catalog
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import (
    Alternative,
    Captured,
    DriveProfile,
    JointDraws,
    Quantity,
    Residual,
)
from nvmesim.catalog.toml import fitted_toml, to_toml
from nvmesim.errors import CatalogError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from tests.servers import bare

ENTRIES = [(kind, name) for kind in load.MODELS for name in load.names(kind)]


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_loads_adds_up_says_where_it_is_from_and_can_be_written(kind, name):
    profile = load.get(kind, name)
    assert (profile.kind, profile.name) == (kind, name)
    assert load.find(name) == profile
    for key, quantity in load.quantities(load.get(kind, name)):
        if quantity.basis != "assumed":
            assert quantity.source or key in ("capacity", "dies"), key
    fresh = [load.with_state(profile, "fresh")] if kind == "drive" and profile.fresh else []
    for state in (profile, *fresh):
        for key, q in load.quantities(state):
            assert (q.value if q.low is None else q.low) <= q.value, key
            assert (q.value if q.high is None else q.high) >= q.value, key
            if q.basis in ("measured", "fitted") and kind != "platform":
                assert None not in (q.low, q.high), f"{name}: {key} is {q.basis} without range"
    assert load.from_table(None, tomllib.loads(toml.to_toml(profile))) == profile


@pytest.mark.parametrize("state", ["fresh", "steady"])
@pytest.mark.parametrize("name", load.names("drive"))
def test_dies_can_carry_the_rated_commands(name, state):
    drive = load.with_state(load.get("drive", name), state)
    per_s = drive.dies.value / drive.read.die.value * 1e12
    rated = drive.commands.value
    if drive.commands.basis == "assumed":  # of a data sheet, whose ceiling is taken to be the dies'
        rated = min(rated, per_s)
    elif name != "hdd-7200":  # its one arm is far slower than its interface
        assert per_s > rated
    size = 1.0 if drive.read.is_flash else 512 / 4096  # of the smallest read, in pages
    assert drive.channels.value / (size * drive.read.channel.value) * 1e12 > rated / 2
    assert state == "steady" or drive.fresh is None or drive.state == "fresh"


QD1_US = {
    "intel-p4610-1.6tb": (77, 18),
    "intel-p4610-6.4tb": (77, 18),
    "intel-p4510-1tb": (77, 18),
    "micron-7450-pro-3.84tb": (80, 15),
    "sata-ssd": (110, 52),
}


@pytest.mark.parametrize("name", QD1_US)
def test_parts_of_one_request_sum_to_the_data_sheet(name):
    """Base was derived from the QD1 latency: put together again they give it, to 0.1 %."""
    drive = load.get("drive", name)
    link = links.parse_link(drive.link)
    command = 1e12 / drive.commands.value
    read = drive.read.base.value + drive.read.die.value + drive.read.channel.value + command
    read += 4096e12 / drive.read_bandwidth.value + links.command_time_ps(link, "read", 4096, "up")
    write = drive.write.base.value + command + 4096e12 / drive.write_bandwidth.value
    write += links.command_time_ps(link, "write", 4096, "down")
    assert (read / 1e6, write / 1e6) == pytest.approx(QD1_US[name], rel=1e-3)


def test_windows_cycles_follow_from_the_one_drive_row():
    stack = load.get("stack", "windows-2019")
    # 64 threads sleep before all completions but the 12.7 % that find them busy
    cycles = stack.submit.value + stack.complete.value + (1 - 0.127) * stack.wakeup.value
    assert cycles == pytest.approx(0.127 * 64 * 2.1e9 / 680e3, rel=0.001)


def test_unknown_names_bring_the_nearest_and_all_of_the_tables_are_there() -> None:
    with pytest.raises(CatalogError, match="did you mean 'xeon-gold-6130'"):
        load.get("cpu", "xeon-gold-6130x")
    with pytest.raises(CatalogError, match="did you mean 'linux-md'"):
        load.find("linux-mdd")
    with pytest.raises(CatalogError, match="no kind"):
        load.names("disk")
    assert set(DRIVES) <= set(load.names("drive"))
    assert set(CPUS) <= set(load.names("cpu"))
    for start in ("samsung-pm9a3-", "kioxia-cm7-", "solidigm-d7-ps1010-", "micron-9550-"):
        assert any(name.startswith(start) for name in DRIVES)


@pytest.mark.parametrize(
    ("kind", "table", "match"),
    [
        ("cpu", {"cores": 8, "ghz": 3.9, "core": 2}, "core is not a known key; did you mean"),
        ("cpu", {"cores": 8}, "ghz is missing"),
        ("cpu", {"cores": 8, "ghz": float("nan")}, "finite"),
        ("cpu", {"cores": 8, "ghz": -1}, "at least 0"),
        ("stack", {"kind": "cpu"}, "is a cpu profile; a stack profile is needed"),
        ("stack", {"cycles_per_io": -1}, "at least 0"),
        ("stack", {"cycles_per_io": 1, "submit": 2}, "same thing"),
        ("stack", {"extends": "linux-libio"}, "did you mean 'linux-libaio'"),
        ("drive", {"extends": "sata-ssd", "read": {"die": 40}}, "needs its unit"),
        ("drive", {"extends": "sata-ssd", "read": {"die": "40 GB"}}, "not a time"),
        ("drive", {"extends": "sata-ssd", "read": {"dye": "40 us"}}, "did you mean 'die'"),
        ("drive", {"extends": "sata-ssd", "dies": {"value": 4, "basis": "x"}}, "basis is 'x'"),
        (None, {"cores": 8}, "kind is missing"),
        (None, {"kind": "driv"}, "did you mean 'drive'"),
    ],
)
def test_broken_tables_are_refused_in_one_line(kind, table, match):
    with pytest.raises(CatalogError, match=match) as caught:
        load.from_table(kind, table)
    assert "\n" not in str(caught.value)


def test_a_table_changes_a_part_and_a_file_gives_its_name(tmp_path):
    drive = load.from_table("drive", {"extends": "sata-ssd", "read": {"die": "40 us"}})
    base = load.get("drive", "sata-ssd")
    assert drive.read.die == Quantity(value=40e6)
    assert drive.read.channel == base.read.channel
    (tmp_path / "mine.toml").write_text('kind = "cpu"\ncores = 4\nghz = 3.0\n', "utf-8")
    assert load.load("cpu", "mine.toml", tmp_path).name == "mine"
    assert load.read(None, tmp_path / "mine.toml").kind == "cpu"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "no such file"),
        (b"kind = ", "not TOML"),
        (b"\xff\xfe\x00", "not TOML"),
        (b'kind = "cpu"', "is a cpu profile"),
    ],
)
def test_broken_files_are_named(tmp_path, content, match):
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CatalogError, match=match) as caught:
        load.load("drive", "mine.toml", tmp_path)
    assert str(path) in str(caught.value)


def drive() -> DriveProfile:
    die = {"value": "70 us", "low": "65 us", "high": "76 us", "basis": "fitted"}
    other = Alternative(
        name="read ceiling in the controller", weight=0.25,
        values={"commands": "640k/s", "read.die": die},
        joint=JointDraws(names=("commands",), factors=((0.99,), (1.01,))),
    )  # fmt: skip
    return load.get("drive", "intel-p4610-1.6tb").model_copy(
        update={
            "alternatives": (other,),
            "residuals": (
                Residual(
                    read=0.7, block_size=4096, threads=32, outstanding=128, drives=2, iops=-0.02
                ),
                Residual(read=1, block_size=4096, threads=1, outstanding=1, iops=0.0, p99_9=0.1),
            ),
            "captured": Captured(
                block_sizes=(4096,), read_shares=(0.7, 1.0), depths=(1, 2048), kernel="6.1"
            ),
            "untold": {"dies": "reads at three depths"},
        }
    )


def test_it_is_written_and_read_again() -> None:
    made = drive()
    again = load.from_table("drive", tomllib.loads(to_toml(made)))
    assert again == made
    assert drive().residuals[0].depth == 2048


def test_a_fit_is_written_with_few_digits() -> None:
    made = load.get("drive", "intel-d7-p5600-6.4tb")
    exact = {"value": 216_000_000.658, "low": 1 / 3, "high": 987_654_321.98}
    made = made.model_copy(update={"commands": made.commands.model_copy(update=exact)})
    text = fitted_toml(made)
    assert '"216000k/s", low = "0.000333333k/s", high = "987654k/s"' in text
    assert not re.search(r'(value|low|high) = "?[0-9.]*\.[0-9]{10}', text)
    again = load.from_table("drive", tomllib.loads(text))
    for (key, a), (_, b) in zip(load.quantities(made), load.quantities(again), strict=True):
        assert b.value == pytest.approx(a.value, rel=1e-5), key
        assert (a.low is None) == (b.low is None)
        assert b.low is None or b.low <= b.value <= b.high, key
    assert again.capacity.value == made.capacity.value
    first, second = made.alternatives[0], again.alternatives[0]
    assert first.values.keys() == second.values.keys()


def test_an_alternative_takes_the_place_of_the_profile() -> None:
    made = drive()
    (other,) = made.alternatives
    placed = load.with_alternative(made, other)
    assert placed.commands.value == 640e3
    assert placed.read.die.low == 65e6
    assert placed.read.base == made.read.base
    assert placed.alternatives == ()
    assert placed.joint == other.joint
    other = Alternative(name="x", weight=0.5, values={"read.dye": "1 us"})
    with pytest.raises(CatalogError, match=r"read\.dye is not a known key"):
        load.with_alternative(drive(), other)


ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_parts", ROOT / "calibration" / "parts" / "generate.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PARTS = script()
DRIVES = {row["name"]: row for row in PARTS.rows("drive")}
CPUS = {row["name"]: row for row in PARTS.rows("cpu")}
QUICK = ("intel-p5800x", "samsung-pm9a3-3.84tb")


def kept(name: str, folder: str) -> bool:
    """True for an entry of this script, and not one of a measured part."""
    text = (PARTS.DATA / folder / f"{name}.toml").read_text("utf-8")
    return PARTS.MARK in text


@pytest.mark.parametrize("name", CPUS)
def test_a_cpu_is_what_the_script_makes(name: str) -> None:
    if kept(name, "cpus"):
        text = to_toml(PARTS.cpu_of(CPUS[name]))
        assert text == (PARTS.DATA / "cpus" / f"{name}.toml").read_text("utf-8")
    assert load.get("cpu", name).cores == int(CPUS[name]["cores"])


def same(made: DriveProfile, stored: DriveProfile) -> None:
    """Numbers of a fit are the same within what the order of sums may do."""
    values = dict(quantities(stored))
    for key, q in quantities(made):
        assert q.value == pytest.approx(values[key].value, rel=0.02), key
        assert q.basis == values[key].basis, key
    assert [a.name for a in made.alternatives] == [a.name for a in stored.alternatives]


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in DRIVES]
)
def test_a_drive_is_what_the_script_makes(name: str) -> None:
    same(PARTS.drive_of(DRIVES[name]), load.get("drive", name))


@pytest.mark.parametrize("name", [n for n, row in DRIVES.items() if row["basis"] != "read"])
def test_what_is_from_memory_is_assumed(name: str) -> None:
    stored = load.get("drive", name)
    told = {key for key, q in quantities(stored) if q.basis != "assumed"}
    assert told <= {"capacity", *(["commands"] if "reads of 512 B" in stored.notes else [])}


DRIVE = "micron-7450-pro-3.84tb"


def tables(name, **more):
    """A scenario on the platform *name*, every bay filled, half of them at each socket."""
    found = catalog.get("platform", name)
    out = {"server": {"platform": name}, "workload": [{"threads": 4, "outstanding": 8}], **more}
    if not found.drives:
        bays = int(found.bays.value) if found.bays else found.slots
        sockets = len(found.server["sockets"])
        counts = [(s, len(range(s, bays, sockets))) for s in range(sockets)]
        out.setdefault("drives", [{"profile": DRIVE, "count": n, "socket": s} for s, n in counts])
    return out


@pytest.mark.parametrize("name", catalog.names("platform"))
def test_every_platform_can_be_filled_and_its_cards_are_of_the_catalog(name):
    found = resolve(scenario_from_dict(tables(name)))
    platform = catalog.get("platform", name)
    assert len(found.drives) == (platform.bays.value if platform.bays else platform.slots)
    assert len(found.sockets) == len(platform.server["sockets"])
    assert platform.sources
    for card in catalog.get("platform", name).controllers:
        assert catalog.get("raid-engine", card).levels or card in ("linux-md", "openzfs")


@pytest.mark.parametrize(
    ("bay", "runs"), [("dell-r760", "pcie4 x4"), ("qnap-ts-h2490fu", "pcie3 x4"),
                      ("synology-pas7700", "pcie4 x2"), ("dell-r770", "pcie5 x4")],
)  # fmt: skip
def test_a_drive_has_no_more_than_its_bay(bay, runs):
    drives = [{"profile": "samsung-pm1743-15.36tb"}]
    found = resolve(scenario_from_dict(tables(bay, drives=drives)))
    link = found.drives[0].link
    assert f"pcie{link.generation} x{link.lanes}" == runs


def test_what_is_assumed_is_said_and_what_is_stated_holds_in_every_state():
    drives = [{"profile": DRIVE, "count": 13}, {"profile": DRIVE, "count": 12, "socket": 1}]
    said = " ".join(resolve(scenario_from_dict(tables("dell-r760", drives=drives))).assumptions)
    assert "dell-r760: bays, lanes of a bay, lanes of a socket: from memory" in said
    assert "has 24 bays for 25 drives" in said
    of_table = {"extends": "intel-p4610-1.6tb", "commands": "50k/s"}
    of_sheet = {"extends": "samsung-pm9a3-3.84tb", "write": {"commands": "20k/s"}}
    fresh = [load.with_state(load.from_table("drive", t), "fresh") for t in (of_table, of_sheet)]
    assert fresh[0].commands.value == 50_000
    assert fresh[0].write.program.value < load.get("drive", "intel-p4610-1.6tb").write.program.value
    assert fresh[1].write.commands.value == 20_000


@pytest.mark.parametrize(("read", "limit"), [(1.0, 800_000), (0.0, 440_000)])
def test_an_instance_does_what_its_provider_states(read, limit):
    """i4i.8xlarge; source: Amazon EC2 instance types guide, instance store table."""
    load = [{"threads": 16, "outstanding": 32, "read": read}]
    found = bare(tables("aws-i4i-8xlarge", workload=load), requests=100_000, over_time=False)
    assert found.total.iops.value == pytest.approx(limit, rel=0.02)


def test_a_platform_takes_its_card():
    engine = catalog.get("platform", "dell-r7625").controllers[0]
    volume = [{"raid": "raid5", "engine": engine}]
    load = [{"block_size": "4 KiB", "read": 1.0, "threads": 32, "outstanding": 64}]
    made = tables("dell-r7625", drives=[{"profile": DRIVE, "count": 8}], volume=volume,
                  workload=load)  # fmt: skip
    made["server"]["stack"] = "spdk"
    result = bare(made, requests=20_000)
    assert result.total.iops.value == pytest.approx(3_402_370, rel=0.03)  # Tolly 223103
