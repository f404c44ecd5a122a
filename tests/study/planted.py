"""Servers with one planted mistake, measured by simulation with noise, to judge `diagnose` by.

The mistakes are planted with numbers of their own, not those that `diagnose` tries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import nvmesim as ns
from nvmesim.capture.capture import Capture, Captures, Conditions, Latency, Measurement, OpResult
from nvmesim.errors import InputError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.study.sweep.plan import put
from nvmesim.units import parse_size

NOISE: Final = 0.015
"""Standard deviation of the logarithm of a measured rate."""
TAIL_NOISE: Final = 0.05
NOTICED: Final = 0.7
"""A mistake counts if some row does no more than this share of what it should."""
LOADS: Final = (
    # read share, block size, threads, depth
    (1.0, "4 KiB", 1, 1), (1.0, "4 KiB", 4, 32), (1.0, "4 KiB", 16, 32), (1.0, "128 KiB", 8, 8),
    (0.0, "4 KiB", 1, 1), (0.0, "4 KiB", 16, 8),
)  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """A mistake as nature makes it."""

    code: str
    change: Callable[[Mapping[str, Any], np.random.Generator], Mapping[str, Any]]


def _last(tables: Mapping[str, Any], **values: Any) -> Mapping[str, Any]:
    spec = tables["drives"][0]
    return {"drives": [{**spec, "count": spec["count"] - 1}, {**spec, "count": 1, **values}]}


def _slow(tables: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
    die = rng.uniform(2.5, 5) * 50
    return _last(tables, profile={
        "extends": tables["drives"][0]["profile"], "read": {"die": f"{die:.1f} us"},
        "write": {"program": f"{10 * die:.1f} us"}})  # fmt: skip


def _uplink(tables: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
    spec = {k: v for k, v in tables["drives"][0].items() if k != "socket"}
    return {"adapters": [{"name": "sw", "kind": "switch", "link": "pcie3 x8", "socket": 0}],
            "drives": [{**spec, "behind": "sw"}]}  # fmt: skip


PLANTED: Final = (
    Planted("link", lambda t, r: {"drives.*.link": "pcie4 x1"}),
    Planted("link", lambda t, r: _last(t, link="pcie3 x1")),
    Planted("one-uplink", _uplink),
    Planted("iommu", lambda t, r: {"server.stack.complete": 2162 + r.uniform(2000, 4000),
                                   "server.stack.contention": r.uniform(0.1, 0.4)}),
    Planted("power", lambda t, r: {"server.sockets.*.ghz": round(r.uniform(0.9, 1.5), 2)}),
    Planted("power", lambda t, r: {"server.stack.latency": f"{r.uniform(40, 100):.0f} us"}),
    Planted("interrupts", lambda t, r: {
        "workload.*.limits": {"iops": f"{r.uniform(0.9, 1.1) * 3.0e9 / 4998:.0f}/s"}}),
    Planted("slow-drive", _slow),
    Planted("slow-drive", lambda t, r: _last(t, delay=f"{r.uniform(150, 300):.0f} us")),
    Planted("depth", lambda t, r: {"workload.*.outstanding": 1}),
    Planted("one-thread", lambda t, r: {"workload.*.threads_total": 1}),
    Planted("scheduler", lambda t, r: {
        "drives.*.profile.commands": f"{r.uniform(170e3, 230e3):.0f}/s"}),
    Planted("flushes", lambda t, r: {"workload.*.sync": "dsync"}),
    Planted("guest", lambda t, r: {"workload.*.guest": "kvm-virtio"}),
    Planted("limit", lambda t, r: {"workload.*.limits": {"iops": f"{r.uniform(6e4, 1e5):.0f}/s"}}),
    Planted("other-load", lambda t, r: {"server.background": r.uniform(0.5, 0.7)}),
    Planted("rebuild", lambda t, r: {"volume.*.degraded": [0], "volume.*.rebuild": True}),
    Planted("bitmap", lambda t, r: {"volume.*.bitmap": {"kind": "internal", "chunk": "128 KiB"}}),
    Planted("kernel", lambda t, r: {"volume.*.kernel": "4.18"}),
    Planted("workers", lambda t, r: {"volume.*.group_thread_cnt": 0}),
)  # fmt: skip


def server(rng: np.random.Generator) -> dict[str, Any]:
    """Return the tables of a server: drives alone or an array of md."""
    tables: dict[str, Any] = {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "epyc-7313"}]},
        "drives": [
            {"profile": "samsung-980pro-1tb", "count": int(rng.choice([4, 8])), "socket": 0}
        ],
        "workload": [{"threads_total": 1, "outstanding": 1}],
    }
    level = rng.choice(["", "raid0", "raid10", "raid5"])
    if level:
        workers = {"group_thread_cnt": 8} if level == "raid5" else {}
        tables["volume"] = [{"raid": str(level), "chunk": "512 KiB", **workers}]
    return tables


def measured(
    tables: Mapping[str, Any], change: Mapping[str, Any], rng: np.random.Generator
) -> Captures:
    """Return the rows of *tables* with *change*, simulated with another seed and noise."""
    rows = []
    for read, size, jobs, depth in LOADS:
        load = {"access": "random", "read": read, "block_size": size, "threads_total": jobs,
                "outstanding": depth}  # fmt: skip
        changed = put({**tables, "workload": [load]}, change)
        result = ns.simulate(
            resolve(scenario_from_dict(changed, ".")), seed=int(rng.integers(1 << 30)),
            requests=max(20_000, 20 * jobs * depth), reliefs=False, over_time=False,
            certainty=False,
        )  # fmt: skip
        stats = result.read or result.write
        p99 = stats.clat.percentiles[99.0]
        tail = {} if p99 is None else {99.0: p99 * math.exp(TAIL_NOISE * rng.standard_normal())}
        rate = result.total.iops.value * math.exp(NOISE * rng.standard_normal())
        op = "read" if read else "write"
        rows.append(Measurement(
            f"{op} {size} {jobs} x {depth}",
            Conditions(read_fraction=read, access="random", block_size=parse_size(size),
                       jobs=jobs, iodepth=depth, direct=True, engine="io_uring"),
            {op: OpResult(0, 0, rate, 0.0, clat=Latency(0, percentiles_s=tail))},
        ))  # fmt: skip
    return Captures((Capture(None, "planted", None, tuple(rows), len(rows)),))


def plant(
    number: int,
) -> tuple[dict[str, Any], Captures, str] | None:
    """Return server, rows and code of trial *number*; None if nobody would notice the mistake."""
    rng = np.random.default_rng(number)
    tables = server(rng)
    one = PLANTED[number % len(PLANTED)]
    try:
        slow = measured(tables, one.change(tables, rng), np.random.default_rng(number))
    except InputError:
        return None
    well = measured(tables, {}, np.random.default_rng(number))
    shares = [
        next(iter(a.ops.values())).iops / next(iter(b.ops.values())).iops
        for a, b in zip(slow.measurements, well.measurements, strict=True)
    ]
    return (tables, slow, one.code) if min(shares) < NOTICED else None
