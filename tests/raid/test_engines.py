"""RAID engines as profiles: their own rules, the source of each number, and published ratios."""

import json

import pytest

from nvmesim.catalog.load import get, names, quantities, with_level
from nvmesim.cli.main import run_command
from nvmesim.errors import GeometryError
from tests.raid.volumes import DRIVE, ready_for

ENGINES = names("raid-engine")
STRIPS_KIB = {
    3: 64, 4: 32, 5: 128, 6: 64, 7: 128, 8: 16, 9: 128, 10: 64, 11: 128, 12: 32, 13: 128, 14: 64,
    15: 128, 16: 8, 17: 128, 18: 64, 19: 128, 20: 32, 21: 128, 22: 64, 23: 128, 24: 16,
}  # fmt: skip
"""Intel, VROC RAID 5 default strips by drive count (docs.graidtech.com/vroc 000101186)."""


@pytest.mark.parametrize("name", ENGINES)
def test_every_number_that_counts_has_a_basis_and_a_source(name):
    engine = get("raid-engine", name)
    for level in engine.levels:
        for key, quantity in quantities(with_level(engine, level)):
            if quantity.value and key not in ("workers",):
                where = f"{name} {level} {key}"
                assert quantity.basis in ("measured", "fitted", "datasheet", "assumed"), where
                assert quantity.source or name == "none" or key == "parity_rate", where
    assert engine.sources


def test_the_engines_that_the_interface_names():
    wanted = {"linux-md", "intel-vroc", "tri-mode-9460", "hardware-raid", "storage-spaces-mirror",
              "storage-spaces-parity", "none"}  # fmt: skip
    assert wanted <= set(ENGINES)


@pytest.mark.parametrize("members", sorted(STRIPS_KIB))
def test_the_default_strip_of_a_vroc_raid5(members):
    drives = [{"profile": DRIVE, "count": members, "link": "pcie3 x2"}]
    volume = ready_for({"raid": "raid5", "engine": "intel-vroc"}, drives=drives).scenario.volumes[0]
    assert volume.chunk == STRIPS_KIB[members] * 1024


def test_default_chunks_of_other_engines():
    chunks = {
        engine: ready_for({"raid": "raid10", "engine": engine}).scenario.volumes[0].chunk // 1024
        for engine in ("linux-md", "intel-vroc", "storage-spaces-mirror")
    }
    assert chunks == {"linux-md": 512, "intel-vroc": 128, "storage-spaces-mirror": 256}
    own = ready_for({"raid": "raid5", "engine": "intel-vroc", "chunk": "16 KiB"})
    assert own.scenario.volumes[0].chunk == 16384


@pytest.mark.parametrize(("raid", "members"), [("raid1", 4), ("raid10", 6), ("raid10", 2)])
def test_vroc_mirrors_are_of_two_and_of_four(raid, members):
    drives = [{"profile": DRIVE, "count": members}]
    with pytest.raises(GeometryError, match=rf"{raid} of intel-vroc takes [24] members, it has"):
        ready_for({"raid": raid, "engine": "intel-vroc"}, drives=drives)


def test_the_write_mostly_member_of_a_mirror_reads_nothing():
    volume = {"raid": "raid1", "write_mostly": [0]}
    ready = ready_for(volume, {"read": 1.0}, count=2)
    assert ready.scenario.volumes[0].write_mostly == (0,)
    for bad, words in (({"raid": "raid5", "write_mostly": [0]}, "is for raid1"),
                       ({"raid": "raid1", "write_mostly": [4]}, "names member 4")):  # fmt: skip
        with pytest.raises(GeometryError, match=words):
            ready_for(bad)


HEAD = """
[server]
stack = "windows-2019"
[[server.sockets]]
cpu = "epyc-9654"
[[drives]]
profile = "micron-7450-pro-3.84tb"
count = 6
state = "fresh"
"""


def asked(tmp_path, capsys, volume, load, requests=20_000):
    file = tmp_path / "penalty.toml"
    file.write_text(f"{HEAD}[volume]\n{volume}\n[[workload]]\n{load}\n[run]\nrequests={requests}\n")
    assert run_command(["run", str(file), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def commands(found):
    keys = ("reads_per_request", "writes_per_request")
    return [sum(m[key] for m in found["members"]) for key in keys]


def moved(found):
    keys = ("read_bytes_per_request", "write_bytes_per_request")
    return [sum(m[key] for m in found["members"]) for key in keys]


MD5 = 'raid = "raid5"\nchunk = "64 KiB"'
ALONE = 'threads = 1\noutstanding = 1\nread = 0.0\nblock_size = "{}"\naccess = "{}"'


def test_the_penalty_on_the_command_line(tmp_path, capsys):
    """4 commands at random; 2 and a little in a stream; 16 times the bytes of 512 B each way."""
    random = asked(tmp_path, capsys, MD5, ALONE.format("4 KiB", "random"), 2_000)
    assert commands(random) == pytest.approx([2, 2])
    stream = asked(tmp_path, capsys, MD5, ALONE.format("4 KiB", "sequential"), 8_000)
    assert commands(stream)[1] == pytest.approx(2, rel=0.01)
    assert commands(stream)[0] < 1.3
    small = asked(tmp_path, capsys, MD5, ALONE.format("512 B", "random"), 2_000)
    assert [n / 512 for n in moved(small)] == pytest.approx([16, 16])


def test_the_sixty_of_storage_spaces_on_the_command_line(tmp_path, capsys):
    """2,800k reads and 45k writes of 4 KiB (Storage Spaces article, 2025)."""
    parity = 'raid = "raid5"\nengine = "storage-spaces-parity"'
    line = 'diskspd = "-b4K -t15 -o16 -r -S -w{} -d60"\ntargets = 4\nfilesystem = "ntfs"'
    iops = {}
    for writes in (0, 100):
        found = asked(tmp_path, capsys, parity, line.format(writes), 60_000)
        iops[writes] = found["total"]["iops"]["value"]
        assert found["total"]["iops"]["low"] < iops[writes]
    assert iops[0] == pytest.approx(2_800_000, rel=0.1)
    assert iops[100] == pytest.approx(45_000, rel=0.05)
    assert iops[0] / iops[100] == pytest.approx(62, rel=0.1)
