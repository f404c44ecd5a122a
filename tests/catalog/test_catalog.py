"""The catalog: every entry loads, says where its numbers are from, and adds up."""

import tomllib

import pytest

from nvmesim.catalog import links, load, toml
from nvmesim.catalog.profile import Quantity
from nvmesim.errors import CatalogError

REQUIRED = {
    "drive": "intel-p4610-1.6tb intel-p4610-6.4tb intel-p4510-1tb micron-7450-pro-3.84tb "
    "samsung-980pro-1tb sata-ssd sas-ssd hdd-7200",
    "cpu": "xeon-gold-6128 xeon-gold-6130 xeon-gold-6132 xeon-gold-6250 xeon-silver-4114",
    "stack": "windows-2016 windows-2019 windows-2025 linux-libaio linux-io_uring "
    "linux-io_uring-polled spdk",
    "raid-engine": "linux-md intel-vroc tri-mode-9460 hardware-raid storage-spaces-mirror "
    "storage-spaces-parity none",
}
ENTRIES = [(kind, name) for kind in load.MODELS for name in load.names(kind)]


@pytest.mark.parametrize("kind", REQUIRED)
def test_the_promised_names_are_there(kind):
    assert set(REQUIRED[kind].split()) <= set(load.names(kind))


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_loads_and_is_named_as_its_file(kind, name):
    profile = load.get(kind, name)
    assert (profile.kind, profile.name) == (kind, name)
    assert load.find(name) == profile


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_numbers_from_somewhere_say_from_where(kind, name):
    for key, quantity in load.quantities(load.get(kind, name)):
        if quantity.basis != "assumed" and key != "logical_sector":
            assert quantity.source or key in ("capacity", "dies"), key


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_intervals_contain_their_values(kind, name):
    profile = load.get(kind, name)
    fresh = [load.with_state(profile, "fresh")] if kind == "drive" and profile.fresh else []
    for state in (profile, *fresh):
        for key, q in load.quantities(state):
            assert (q.value if q.low is None else q.low) <= q.value, key
            assert (q.value if q.high is None else q.high) >= q.value, key
            if q.basis in ("measured", "fitted") and kind != "platform":
                assert None not in (q.low, q.high), f"{name}: {key} is {q.basis} without range"


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_written_out_and_read_back(kind, name):
    profile = load.get(kind, name)
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
    assert drive.channels.value / drive.read.channel.value * 1e12 > rated / 2
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


def test_an_unknown_name_brings_the_nearest():
    with pytest.raises(CatalogError, match="did you mean 'xeon-gold-6130'"):
        load.get("cpu", "xeon-gold-6130x")
    with pytest.raises(CatalogError, match="did you mean 'linux-md'"):
        load.find("linux-mdd")
    with pytest.raises(CatalogError, match="no kind"):
        load.names("disk")


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


def test_a_table_may_change_a_part_of_an_entry():
    drive = load.from_table("drive", {"extends": "sata-ssd", "read": {"die": "40 us"}})
    base = load.get("drive", "sata-ssd")
    assert drive.read.die == Quantity(value=40e6)
    assert drive.read.channel == base.read.channel


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


def test_a_file_takes_its_name_when_it_states_none(tmp_path):
    (tmp_path / "mine.toml").write_text('kind = "cpu"\ncores = 4\nghz = 3.0\n', "utf-8")
    assert load.load("cpu", "mine.toml", tmp_path).name == "mine"
    assert load.read(None, tmp_path / "mine.toml").kind == "cpu"
