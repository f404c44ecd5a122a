"""Wait for the slowest: the worked example, how it grows with the members, uneven members."""

import numpy as np
import pytest

import nvmesim as ns
from nvmesim.catalog.load import get
from nvmesim.catalog.profile import EmpiricalLatencies
from nvmesim.scenario.load import scenario_from_dict
from tests.raid.volumes import scenario

EXAMPLE_MS = [4.1, 2.2, 1.9, 1.4, 1.0, 9.7, 5.4, 8.6]
RAID0 = {"raid": "raid0", "chunk": "512 KiB", "engine": "none"}
FREE = {"extends": "linux-io_uring", "per_child": 0}
"""To send a command costs no more than a request."""


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_the_worked_example_simulated(engine):
    """4 MiB on eight drives that take these times: each request ends with the slowest."""
    drives = [{"profile": captured([ms * 1000])} for ms in EXAMPLE_MS]
    load = {"block_size": "4 MiB", "read": 0.0, "threads": 1, "outstanding": 1}
    result = ns.simulate(
        scenario(RAID0, load, drives=drives, stack=FREE),
        engine=engine,
        requests=200,
        reliefs=False,
        certainty=False,
    )
    assert result.total.clat.mean == pytest.approx(9.7e-3, rel=2e-3)


def captured(write_us, read_us=(), block=1):
    profile = get("drive", "sata-ssd").model_dump(mode="json", exclude_none=True)
    return {
        "extends": profile["name"],
        "host_included": False,
        "latencies": {
            "queue_depth": 1, "block_size": "512 KiB", "block": block,
            "write_us": list(write_us), "read_us": list(read_us),
        },
    }  # fmt: skip


def ssd_of_2014(n=20_000, seed=1):
    """512 KiB writes of 1.2 ms that now and then fall to 50 MB/s, as the text tells of its drives.

    Made up so that seven members lose 10 %; what it shows further out is then a prediction.
    """
    rng = np.random.default_rng(seed)
    base = rng.gamma(2500.0, 1200 / 2500, n)
    stalled = rng.random(n) < 0.0022
    return np.where(stalled, 512 * 1024 / 50e6 * 1e6 * 0.8, base)


def mean_of_slowest(latencies, members):
    """Mean of the slowest of *members* independent draws from *latencies*: exact, no sampling.

    The i-th smallest of N is the largest of n draws with probability (i/N)^n - ((i-1)/N)^n.
    """
    below = np.arange(len(latencies) + 1) / len(latencies)
    return float(np.sort(latencies) @ np.diff(below**members))


def rate(drives, read, kib):
    """Requests/s, one of a chunk a member after the other; to send a command costs nothing."""
    n = len(drives)
    tables = {
        "server": {"stack": FREE, "sockets": [{"cpu": "epyc-9654"}]},
        "drives": drives,
        "workload": {"threads": 1, "outstanding": 1, "read": read, "block_size": f"{n * kib} KiB"},
    }  # fmt: skip
    if n > 1:
        tables["volume"] = {"raid": "raid0", "chunk": f"{kib} KiB", "engine": "none"}
    found = ns.simulate(scenario_from_dict(tables), requests=20_000 // n, reliefs=False,
                        certainty=False, over_time=False)  # fmt: skip
    return found.total.iops.value


def efficiency(drives, read=0.0, kib=512):
    """Throughput of drives that wait for one another over that of as many alone."""
    alone = {id(drive): rate([drive], read, kib) for drive in drives}
    return rate(drives, read, kib) / np.mean([alone[id(drive)] for drive in drives])


@pytest.mark.parametrize("members", [2, 7, 16])
def test_the_empirical_drive_falls_as_its_capture_says(members):
    samples, reads = ssd_of_2014(), np.random.default_rng(3).gamma(2500.0, 0.4, 4000)
    drive = {"profile": captured(samples, reads)}
    for read, latencies in ((0.0, samples), (1.0, reads)):
        expected = float(np.mean(latencies)) / mean_of_slowest(latencies, members)
        assert efficiency([drive] * members, read) == pytest.approx(expected, abs=0.025)


def test_uneven_members_do_the_slowest_times_their_number():
    """One member behind a network: throughput tends to members x the slowest, not x the mean."""
    near = {"profile": "intel-p4610-1.6tb"}
    far = {"profile": "intel-p4610-1.6tb", "delay": "2 ms"}
    even = efficiency([near] * 4, kib=64)
    assert even > 0.95
    assert efficiency([near, near, near, far], kib=64) < 0.5 * even


def test_a_capture_needs_no_read_latencies():
    assert EmpiricalLatencies(queue_depth=1, block_size="4 KiB", write_us=(5.0,)).read_us == ()
