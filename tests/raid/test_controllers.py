"""RAID controllers of today: rates by size, one card for several volumes, rebuilds at its pace."""

import pytest

import nvmesim as ns
from nvmesim.errors import GeometryError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve

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
    return ns.simulate(scenario_from_dict(card(**keys)), requests=requests, reliefs=False)


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


def test_volumes_on_one_card_share_it_and_one_volume_does_not_fill_it():
    one = run(engine="perc-h975i", drives=16)
    four = run(engine="perc-h975i", drives=16, volumes=4)
    assert one.total.iops.value == pytest.approx(17.3e6 / 2, rel=0.03)
    assert four.total.iops.value == pytest.approx(12.5e6, rel=0.03)
    assert sum(s.resource == "uplink" and s.direction == "up" for s in four.stations) == 1
    shared = [s for s in four.stations if s.name == "card controller"]
    assert shared[0].utilization > 0.97


def test_a_card_rebuilds_at_its_own_pace():
    """11.23 minutes a TiB idle, and 38 beside all the reads that it can serve."""
    alone = card(degraded=[0], rebuild=True, sync_speed_min="1 MB/s")
    del alone["workload"]
    idle = ns.simulate(scenario_from_dict(alone), requests=5000, reliefs=False).rebuild
    assert 2**40 / idle.bytes_per_s / 60 == pytest.approx(11.23, rel=0.05)
    busy = run(degraded=[0], rebuild=True)
    assert 2**40 / busy.rebuild.bytes_per_s / 60 == pytest.approx(38.4, rel=0.05)
    assert busy.total.iops.value < 0.5 * run().total.iops.value  # parity of what is gone


@pytest.mark.parametrize(
    ("keys", "speeds"),
    [({}, (0.48e9, 1.63e9)), ({"sync_speed_max": "1 GB/s"}, (0.48e9, 1e9)),
     ({"sync_speed_max": "9 GB/s", "sync_speed_min": "5 MB/s"}, (5e6, 1.63e9))],
)  # fmt: skip
def test_the_pace_of_a_card_is_its_own_unless_stated_slower(keys, speeds):
    volume = resolve(scenario_from_dict(card(**keys))).volumes[0]
    assert (volume.sync_speed_min, volume.sync_speed_max) == speeds


def test_a_controller_is_of_an_engine_on_one():
    tables = card()
    tables["volume"][0]["engine"] = "linux-md"
    with pytest.raises(GeometryError, match=r"controller is 'card'; linux-md runs on the host"):
        scenario_from_dict(tables)
