"""Servers and cloud instances: each can be simulated, and says what of it is assumed."""

import pytest

from nvmesim.catalog import load as catalog
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve

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
def test_every_platform_can_be_filled(name):
    found = resolve(scenario_from_dict(tables(name)))
    platform = catalog.get("platform", name)
    assert len(found.drives) == (platform.bays.value if platform.bays else platform.slots)
    assert len(found.sockets) == len(platform.server["sockets"])
    assert platform.sources


@pytest.mark.parametrize(
    ("bay", "runs"), [("dell-r760", "pcie4 x4"), ("qnap-ts-h2490fu", "pcie3 x4"),
                      ("synology-pas7700", "pcie4 x2"), ("dell-r770", "pcie5 x4")],
)  # fmt: skip
def test_a_drive_has_no_more_than_its_bay(bay, runs):
    drives = [{"profile": "samsung-pm1743-15.36tb"}]
    found = resolve(scenario_from_dict(tables(bay, drives=drives)))
    link = found.drives[0].link
    assert f"pcie{link.generation} x{link.lanes}" == runs


def test_what_is_assumed_and_too_many_drives_are_said():
    drives = [{"profile": DRIVE, "count": 13}, {"profile": DRIVE, "count": 12, "socket": 1}]
    said = " ".join(resolve(scenario_from_dict(tables("dell-r760", drives=drives))).assumptions)
    assert "dell-r760: bays, lanes of a bay, lanes of a socket: from memory" in said
    assert "has 24 bays for 25 drives" in said


@pytest.mark.parametrize(("read", "limit"), [(1.0, 800_000), (0.0, 440_000)])
def test_an_instance_does_what_its_provider_states(read, limit):
    """i4i.8xlarge; source: Amazon EC2 instance types guide, instance store table."""
    load = [{"threads": 16, "outstanding": 32, "read": read}]
    found = simulate(
        scenario_from_dict(tables("aws-i4i-8xlarge", workload=load)), requests=100_000,
        reliefs=False, over_time=False, certainty=False,
    )  # fmt: skip
    assert found.total.iops.value == pytest.approx(limit, rel=0.02)


@pytest.mark.parametrize("name", catalog.names("platform"))
def test_the_cards_of_a_platform_are_raid_engines_of_the_catalog(name):
    for card in catalog.get("platform", name).controllers:
        assert catalog.get("raid-engine", card).levels or card in ("linux-md", "openzfs")


def test_a_platform_takes_its_card():
    engine = catalog.get("platform", "dell-r7625").controllers[0]
    volume = [{"raid": "raid5", "engine": engine}]
    load = [{"block_size": "4 KiB", "read": 1.0, "threads": 32, "outstanding": 64}]
    made = tables("dell-r7625", drives=[{"profile": DRIVE, "count": 8}], volume=volume,
                  workload=load)  # fmt: skip
    made["server"]["stack"] = "spdk"
    result = simulate(scenario_from_dict(made), requests=20_000, reliefs=False, certainty=False)
    assert result.total.iops.value == pytest.approx(3_402_370, rel=0.03)  # Tolly 223103
