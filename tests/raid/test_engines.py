"""RAID engines and controllers as profiles: rules, sources, published ratios, rates by size."""

import json

import pytest

from nvmesim.cli.main import run_command
from nvmesim.errors import GeometryError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from tests.raid.volumes import DRIVE, ready_for
from tests.servers import bare

STRIPS_KIB = {
    3: 64, 4: 32, 5: 128, 6: 64, 7: 128, 8: 16, 9: 128, 10: 64, 11: 128, 12: 32, 13: 128, 14: 64,
    15: 128, 16: 8, 17: 128, 18: 64, 19: 128, 20: 32, 21: 128, 22: 64, 23: 128, 24: 16,
}  # fmt: skip
"""Intel, VROC RAID 5 default strips by drive count (docs.graidtech.com/vroc 000101186)."""


@pytest.mark.parametrize("members", sorted(STRIPS_KIB))
def test_the_default_strip_of_a_vroc_raid5(members):
    drives = [{"profile": DRIVE, "count": members, "link": "pcie3 x2"}]
    volume = ready_for({"raid": "raid5", "engine": "intel-vroc"}, drives=drives).scenario.volumes[0]
    assert volume.chunk == STRIPS_KIB[members] * 1024


def test_default_chunks_and_write_mostly_members():
    chunks = {
        engine: ready_for({"raid": "raid10", "engine": engine}).scenario.volumes[0].chunk // 1024
        for engine in ("linux-md", "intel-vroc", "storage-spaces-mirror")
    }
    assert chunks == {"linux-md": 512, "intel-vroc": 128, "storage-spaces-mirror": 256}
    own = ready_for({"raid": "raid5", "engine": "intel-vroc", "chunk": "16 KiB"})
    assert own.scenario.volumes[0].chunk == 16384
    volume = {"raid": "raid1", "write_mostly": [0]}
    ready = ready_for(volume, {"read": 1.0}, count=2)
    assert ready.scenario.volumes[0].write_mostly == (0,)
    for bad, words in (({"raid": "raid5", "write_mostly": [0]}, "is for raid1"),
                       ({"raid": "raid1", "write_mostly": [4]}, "names member 4")):  # fmt: skip
        with pytest.raises(GeometryError, match=words):
            ready_for(bad)


@pytest.mark.parametrize(("raid", "members"), [("raid1", 4), ("raid10", 6), ("raid10", 2)])
def test_vroc_mirrors_are_of_two_and_of_four(raid, members):
    drives = [{"profile": DRIVE, "count": members}]
    with pytest.raises(GeometryError, match=rf"{raid} of intel-vroc takes [24] members, it has"):
        ready_for({"raid": raid, "engine": "intel-vroc"}, drives=drives)


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


LINKS = {"perc-h965i": "pcie4 x2", "perc-h975i": "pcie5 x2"}
READS = {"block_size": "4 KiB", "read": 1.0}
WRITES = {"block_size": "4 KiB", "read": 0.0}
STREAM = {"block_size": "128 KiB", "access": "sequential"}


def card(engine="perc-h965i", drives=8, volumes=1, load=READS, **keys):
    """One card, its drives shared evenly among the volumes on it; 2,048 requests in flight."""
    each = drives // volumes
    return {
        "server": {"stack": "spdk", "sockets": [{"cpu": "epyc-9755"}]},
        "drives": [
            {"profile": "solidigm-d7-ps1030-12.8tb", "count": drives, "link": LINKS[engine]}
        ],
        "volume": [
            {
                "name": f"v{i}", "raid": "raid5", "engine": engine, "controller": "card",
                "members": list(range(i * each, (i + 1) * each)), **keys,
            }
            for i in range(volumes)
        ],
        "workload": {"threads": 32, "outstanding": 64 // volumes, **load},
    }  # fmt: skip


def run(requests=30_000, **keys):
    return bare(card(**keys), requests=requests, over_time=False)


@pytest.mark.parametrize(
    ("keys", "published"),
    [
        ({"load": READS}, 6.92e6),  # Tolly 223103
        ({"load": WRITES}, 1_725_198 / 2),  # StorageReview, two cards, as what follows
        ({"load": {**WRITES, "block_size": "16 KiB"}}, 492e3 / 2),
        ({"load": {**READS, "block_size": "16 KiB"}}, 3.55e6 / 2),
        ({"load": {**STREAM, "read": 0.0}}, 24.351e9 / 2 / 131072),
    ],
)
def test_a_card_does_what_was_published_of_it(keys, published):
    """The profile is made of these figures: this holds the mechanism, it validates nothing."""
    assert run(**keys).total.iops.value == pytest.approx(published, rel=0.05)


def test_arrays_of_one_table_are_of_one_card_and_its_chip_does_the_parity_of_all():
    def of(arrays, **keys):
        tables = card(drives=16, **keys)
        tables["volume"][0] |= {"arrays": arrays, "members": list(range(16))}
        del tables["volume"][0]["controller"]
        return bare(tables, requests=20_000, over_time=False)

    reads, writes = of(2), of(2, load=WRITES)
    assert sum(s.resource == "uplink" and s.direction == "up" for s in reads.stations) == 1
    assert reads.total.iops.value == pytest.approx(6.9e6, rel=0.05)
    assert writes.total.iops.value == pytest.approx(of(1, load=WRITES).total.iops.value, rel=0.05)


def test_cards_are_shared_rebuild_at_their_pace_and_are_of_engines_on_one():
    one = run(engine="perc-h975i", drives=16)
    four = run(engine="perc-h975i", drives=16, volumes=4)
    assert one.total.iops.value == pytest.approx(17.3e6 / 2, rel=0.03)
    assert four.total.iops.value == pytest.approx(12.5e6, rel=0.03)
    assert sum(s.resource == "uplink" and s.direction == "up" for s in four.stations) == 1
    shared = [s for s in four.stations if s.name == "card controller"]
    assert shared[0].utilization > 0.97
    # 11.23 minutes a TiB idle, and 38 beside all the reads that it can serve.
    alone = card(degraded=[0], rebuild=True, sync_speed_min="1 MB/s")
    del alone["workload"]
    answer = bare(alone, requests=5000)
    idle, (said,) = answer.rebuild, [w for w in answer.warnings if w.code == "sync-speed-max"]
    assert "raise" not in said  # it is the card's own pace, which no key of md lifts
    assert 2**40 / idle.bytes_per_s / 60 == pytest.approx(11.23, rel=0.05)
    busy = run(degraded=[0], rebuild=True)
    assert 2**40 / busy.rebuild.bytes_per_s / 60 == pytest.approx(38.4, rel=0.05)
    assert busy.total.iops.value < 0.5 * run().total.iops.value  # parity of what is gone
    tables = card()
    tables["volume"][0]["engine"] = "linux-md"
    with pytest.raises(GeometryError, match=r"controller is 'card'; linux-md runs on the host"):
        scenario_from_dict(tables)


@pytest.mark.parametrize(
    ("keys", "speeds"),
    [({}, (0.48e9, 1.63e9)), ({"sync_speed_max": "1 GB/s"}, (0.48e9, 1e9)),
     ({"sync_speed_max": "9 GB/s", "sync_speed_min": "5 MB/s"}, (5e6, 1.63e9))],
)  # fmt: skip
def test_the_pace_of_a_card_is_its_own_unless_stated_slower(keys, speeds):
    volume = resolve(scenario_from_dict(card(**keys))).volumes[0]
    assert (volume.sync_speed_min, volume.sync_speed_max) == speeds
