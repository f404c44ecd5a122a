"""Scaling, symmetry, conservation, monotony: what names must not change, and more must not cost."""

import copy
from typing import Any

import numpy as np
import pytest

import nvmesim as ns
from nvmesim.catalog.links import command_time_ps, parse_link
from nvmesim.scenario.schema import Scenario
from tests.predict.scenarios import CPU, scenario
from tests.servers import bare

REQUESTS = 4000
BUFFER = {"write": {"buffer": "1 MiB"}}


def server(**tables):
    base = {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
        "drives": [{"profile": {"extends": "intel-p4610-1.6tb", **BUFFER}, "count": 4}],
        "workload": {"threads": 2, "outstanding": 8},
    }
    return {**base, **tables}


def run(tables, requests=REQUESTS):
    return bare(tables, requests=requests)


def digits(result):
    """Every number of a result."""
    total = result.total
    return (
        total.iops, total.latency.mean, total.latency.max, dict(total.latency.percentiles),
        sorted((s.kind, s.utilization, s.wait_mean_s) for s in result.stations),
        sorted(m.utilization for m in result.members),
    )  # fmt: skip


LOADS = {
    "jbod": {},
    "raid5": {"volume": {"raid": "raid5", "chunk": "64 KiB"},
              "workload": {"read": 0.5, "threads": 2, "outstanding": 4}},
    "raid10": {"volume": {"raid": "raid10", "chunk": "64 KiB"}},
}  # fmt: skip


@pytest.mark.parametrize("load", LOADS)
def test_names_do_not_matter(load):
    plain = server(**LOADS[load])
    named = copy.deepcopy(plain)
    named["name"] = "another"
    named["drives"][0]["name"] = "zz-top"
    if "volume" in named:
        named["volume"]["name"] = "archive"
    assert digits(run(plain)) == digits(run(named))


@pytest.mark.parametrize("load", LOADS)
def test_one_table_of_four_drives_is_four_tables_of_one(load):
    whole = server(**LOADS[load])
    parts = copy.deepcopy(whole)
    (drive,) = parts["drives"]
    parts["drives"] = [{**drive, "count": 1} for _ in range(4)]
    assert digits(run(whole)) == digits(run(parts))


@pytest.mark.parametrize("load", LOADS)
def test_sockets_mirrored(load):
    """Everything on socket 0, or everything on socket 1: the same numbers."""

    def on(socket):
        tables = server(**copy.deepcopy(LOADS[load]))
        tables["server"] = {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}] * 2}
        tables["drives"][0]["socket"] = socket
        tables["workload"] = {**tables["workload"], "socket": socket}
        return run(tables)

    zero, one = on(0), on(1)
    assert zero.total.iops == one.total.iops
    assert zero.total.latency.percentiles == one.total.latency.percentiles
    assert zero.cpu.logical_utilization == pytest.approx(one.cpu.logical_utilization, rel=1e-12)


def slowed(factor):
    """A drive, a CPU and links that are *factor* (a power of two) times slower, in all they do."""
    generation = {1: 5, 2: 4, 4: 3}[factor]
    us = lambda value: f"{value * factor} us"  # noqa: E731
    drive = {
        "kind": "drive", "name": "d", "capacity": "1 TB", "link": f"pcie{generation} x4",
        "dies": 32, "channels": 4, "commands": f"{800 / factor}k/s",
        "read_bandwidth": f"{6.4 / factor} GB/s", "write_bandwidth": f"{3.2 / factor} GB/s",
        "read": {"base": us(20), "die": us(50), "channel": us(2)},
        "write": {"base": us(10), "program": us(400), "buffer": "1 MiB"},
    }  # fmt: skip
    cpu = {
        "cores": 8, "ghz": 4.0 / factor, "lanes": 64, "pcie_generation": generation,
        "memory_channels": 4, "memory_rate": f"{4800 // factor} MT/s",
    }  # fmt: skip
    stack = {
        "kind": "stack", "name": "s", "submit": 4000, "complete": 4000, "wakeup": 2000,
        "interrupt": 1000, "wakeup_half": us(8),
    }  # fmt: skip
    return server(
        server={"stack": stack, "sockets": [{"cpu": cpu}]}, drives=[{"profile": drive, "count": 4}]
    )


@pytest.mark.parametrize("factor", [2, 4])
def test_all_times_longer(factor):
    """Everything *factor* times slower: IOPS by as much lower, latencies higher.

    Times are rounded to the picosecond, so that the two are not equal to the last digit.
    """
    one, other = run(slowed(1), 20_000), run(slowed(factor), 20_000)
    assert other.total.iops.value * factor == pytest.approx(one.total.iops.value, rel=1e-4)
    for percent in (50.0, 99.0):
        expected = one.total.latency.percentiles[percent] * factor
        # bins are 1/256 wide and double with the value, so a factor of two keeps them
        assert other.total.latency.percentiles[percent] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("factor", [2, 5])
def test_bandwidth_divided(factor):
    """A load that the drives' bandwidth bounds moves that many times fewer bytes."""

    def moved(bandwidth):
        drive = {"extends": "intel-p4610-1.6tb", "read_bandwidth": f"{bandwidth} GB/s"}
        load = {"block_size": "1 MiB", "access": "sequential", "threads": 2, "outstanding": 16}
        tables = server(drives=[{"profile": drive, "count": 2}], workload=load)
        return run(tables, 2000).total.bytes_per_s.value

    assert moved(2.0) == pytest.approx(2 * 2e9, rel=2e-3)
    assert moved(2.0 / factor) == pytest.approx(2 * 2e9 / factor, rel=2e-3)


@pytest.mark.parametrize("block", [4096, 65536])
@pytest.mark.parametrize("read", [1.0, 0.0])
def test_bytes_on_the_port_are_what_the_link_is_held_for(block, read):
    tables = server(
        workload={"block_size": f"{block // 1024} KiB", "read": read, "threads": 1,
                  "outstanding": 4},
    )  # fmt: skip
    profile = ns.catalog.get("drive", "intel-p4610-1.6tb")
    op, way = ("read", "up") if read else ("write", "down")
    expected = command_time_ps(parse_link(profile.link), op, block, way)
    ports = [s for s in run(tables).stations if s.name.endswith(f"port {way}")]
    assert len(ports) == 4
    for port in ports:
        assert port.service_mean_s == pytest.approx(expected * 1e-12, rel=1e-12)
    assert sum(p.visits_per_request for p in ports) == pytest.approx(1, abs=32 / REQUESTS)


SCENARIOS = 500
PER_DESIGN = 3_000
LEAST = 0.03


def asked(rng: np.random.Generator) -> dict[str, Any]:
    """A load on a small server: numbers of `build`."""
    drives = int(rng.choice([1, 2, 3, 4, 8]))
    return {
        "drives": drives, "cores": int(rng.choice([1, 2, 4, 8])),
        "threads": int(rng.choice([1, 2, 5, 8])), "outstanding": int(rng.choice([1, 2, 4, 16])),
        "read": float(rng.choice([0.0, 0.7, 1.0])),
        "block_size": str(rng.choice(["4 KiB", "16 KiB", "128 KiB"])),
        "level": str(rng.choice(["", "raid0"])) if drives > 1 else "",
    }  # fmt: skip


def build(numbers: dict[str, Any]) -> Scenario:
    level = {"raid": "raid0", "engine": "linux-md"} if numbers["level"] else None
    return scenario(
        drives=numbers["drives"], sockets=[{"cpu": {**CPU, "cores": numbers["cores"]}}],
        volume=level, threads_total=numbers["threads"], outstanding=numbers["outstanding"],
        read=numbers["read"], block_size=numbers["block_size"],
    )  # fmt: skip


def iops(numbers: dict[str, Any]) -> tuple[float, float]:
    """Requests per second, and the standard error."""
    found = bare(build(numbers), requests=PER_DESIGN, over_time=False).total.iops
    return found.value, (found.high - found.low) / 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_more_never_does_less(part):
    rng = np.random.default_rng(100 + part)
    losses = []
    for _ in range(SCENARIOS // 5):
        numbers = asked(rng)
        base, error = iops(numbers)
        for what in ("drives", "cores", "outstanding"):
            more, other = iops({**numbers, what: 2 * numbers[what]})
            if more < base - max(LEAST * base, 3 * float(np.hypot(error, other))):
                losses.append((what, numbers, round(more / base, 3)))
    assert losses == []
