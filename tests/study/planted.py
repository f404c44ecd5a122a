"""Servers with one planted mistake, measured by simulation with noise, to judge `diagnose` by.

The mistakes are planted with numbers of their own, not those that `diagnose` tries.
``python -m tests.study.planted 0 200`` prints trials 0 to 199, each planted and healthy.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import numpy as np

from nvmesim.capture.capture import (
    Capture,
    Captures,
    Conditions,
    Latency,
    Measurement,
    Op,
    OpResult,
)
from nvmesim.catalog.load import find
from nvmesim.errors import InputError
from nvmesim.predict.simulate import simulate
from nvmesim.study.diagnosis import diagnose as module
from nvmesim.study.diagnosis.diagnose import diagnose
from nvmesim.study.diagnosis.findings import Diagnosis
from nvmesim.study.diagnosis.short_runs import ShortRuns
from nvmesim.units import parse_size

NOISE: Final = 0.015
"""Standard deviation of the logarithm of a measured rate."""
TAIL_NOISE: Final = 0.05
NOTICED: Final = 0.7
"""A mistake counts if some row does no more than this share of what it should."""
LOADS: Final = (
    # read share, block size, threads, depth, drives (0: all)
    (1.0, "4 KiB", 1, 1, 1), (1.0, "4 KiB", 4, 32, 0), (1.0, "4 KiB", 16, 32, 0),
    (1.0, "128 KiB", 8, 8, 0), (0.0, "4 KiB", 16, 8, 0),
)  # fmt: skip
REQUESTS: Final = 12_000
"""Of a measured row: longer than what `diagnose` simulates, and with other random numbers."""


@dataclass(frozen=True)
class Planted:
    """A mistake as nature makes it."""

    code: str
    change: Callable[[Mapping[str, Any], np.random.Generator], Mapping[str, Any]]
    raid: tuple[str, ...] = ()
    """Levels that can have it; (): every server."""


def _last(tables: Mapping[str, Any], **values: Any) -> Mapping[str, Any]:
    spec = tables["drives"][0]
    return {"drives": [{**spec, "count": spec["count"] - 1}, {**spec, "count": 1, **values}]}


def _slow(tables: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
    name, factor = tables["drives"][0]["profile"], rng.uniform(2.5, 5)
    profile: Any = find(name)
    die, program = profile.read.die.value / 1e6, profile.write.program.value / 1e6
    return _last(tables, profile={
        "extends": name, "read": {"die": f"{factor * die:.1f} us"},
        "write": {"program": f"{factor * program:.1f} us"}})  # fmt: skip


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
    Planted("rebuild", lambda t, r: {"volume.*.degraded": [0], "volume.*.rebuild": True},
            ("raid10", "raid5")),
    Planted("bitmap", lambda t, r: {"volume.*.bitmap": {"kind": "internal", "chunk": "128 KiB"}},
            ("raid10", "raid5")),
    Planted("kernel", lambda t, r: {"volume.*.kernel": "4.18"},
            ("raid10", "raid5")),
    Planted("workers", lambda t, r: {"volume.*.group_thread_cnt": 0}, ("raid5",)),
)  # fmt: skip


DRIVES: Final = ("samsung-980pro-1tb", "intel-p4610-1.6tb", "samsung-pm9a3-3.84tb")


def server(rng: np.random.Generator) -> dict[str, Any]:
    """Return the tables of a server: drives alone or an array of md."""
    spec = {"profile": str(rng.choice(DRIVES)), "count": int(rng.choice([4, 8])), "socket": 0}
    tables: dict[str, Any] = {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "epyc-7313"}]},
        "drives": [spec], "workload": [{"threads_total": 1, "outstanding": 1}],
    }  # fmt: skip
    level = str(rng.choice(["", "", "raid0", "raid10", "raid5"]))
    if level:
        workers = {"group_thread_cnt": 8} if level == "raid5" else {}
        tables["volume"] = [{"raid": level, "chunk": "512 KiB", **workers}]
    return tables


def loads() -> list[dict[str, Any]]:
    """Return `LOADS` as tables of workloads."""
    return [
        {"access": "random", "read": read, "block_size": size, "threads_total": jobs,
         "outstanding": depth, **({"targets": ["drive0"]} if drives else {})}
        for read, size, jobs, depth, drives in LOADS
    ]  # fmt: skip


def row(
    tables: Mapping[str, Any], change: Mapping[str, Any], load: Mapping[str, Any],
    rng: np.random.Generator, seed: int,
) -> Measurement:  # fmt: skip
    """Return what the server with *change* does under *load*, with noise."""
    alone, read = "targets" in load, load["read"]
    found = simulate(ShortRuns(tables, ".").scenario(change, load), seed=seed, requests=REQUESTS,
                     reliefs=False, over_time=False, certainty=False)  # fmt: skip
    rate = found.total.iops.value * math.exp(NOISE * rng.standard_normal())
    p99 = None if found.read is None else found.read.clat.percentiles[99.0]
    noise = math.exp(TAIL_NOISE * rng.standard_normal())
    op: Op = "read" if read else "write"
    size, jobs, depth = (load[key] for key in ("block_size", "threads_total", "outstanding"))
    return Measurement(
        f"{op} {size} {jobs} x {depth}",
        Conditions(read_fraction=read, access="random", block_size=parse_size(size), jobs=jobs,
                   iodepth=depth, direct=True,
                   targets=1 if alone else tables["drives"][0]["count"],
                   raid=None if alone else tables.get("volume", [{}])[0].get("raid")),
        {op: OpResult(0, 0, rate, 0.0,
                      clat=Latency(0, percentiles_s={} if p99 is None else {99.0: p99 * noise}))},
    )  # fmt: skip


def captured(rows: Sequence[Measurement]) -> Captures:
    """Return *rows* as a capture."""
    return Captures((Capture(None, "planted", None, tuple(rows), len(rows)),))


def measured(
    tables: Mapping[str, Any], change: Mapping[str, Any], rng: np.random.Generator
) -> Captures:
    """Return rows of the server with *change* under all `LOADS`, with noise."""
    seed = int(rng.integers(1 << 30))
    return captured([row(tables, change, load, rng, seed) for load in loads()])


def followed(number: int, asked: int = 2) -> tuple[str, list[list[str]]]:
    """Return the planted code of trial *number* and what is found as suggestions are followed.

    It begins with one row, of the whole server, and measures what is suggested *asked* times.
    """
    tables, change, code, rng = planted(number)
    rows, found = [row(tables, change, loads()[1], rng, number)], []
    for n in range(asked + 1):
        answer = diagnose(tables, captured(rows), workers=1)
        found.append(found_codes(answer))
        if answer.next is None or n == asked:
            break
        rows.append(row(tables, change, answer.next.workload, rng, number + n))
    return code, found


def shares(tables: Mapping[str, Any], change: Mapping[str, Any]) -> list[float]:
    """Return what each of `LOADS` still does with *change*, relative; InputError: cannot be."""
    runs = ShortRuns(tables, ".", workers=1)
    wanted = [(c, load) for load in loads() for c in ({}, change)]
    rates = [None if found is None else found["iops"] for found in runs.figures(wanted, "")]
    pairs = [(a, b) for a, b in zip(rates[::2], rates[1::2], strict=True) if a and b]
    if len(pairs) < len(LOADS):
        raise InputError("this server cannot have this mistake")
    return [b / a for a, b in pairs]


def planted(number: int) -> tuple[dict[str, Any], Mapping[str, Any], str, np.random.Generator]:
    """Server, change, code and random numbers of trial *number*: a mistake one would notice.

    One that the drawn server cannot have, or whose effect nobody would notice, is drawn anew.
    """
    rng = np.random.default_rng(number)
    one = PLANTED[number % len(PLANTED)]
    while True:
        tables = server(rng)
        if one.raid and tables.get("volume", [{}])[0].get("raid", "") not in one.raid:
            continue
        change = one.change(tables, rng)
        if min(shares(tables, change)) < NOTICED:
            return tables, change, one.code, rng
        one = PLANTED[int(rng.integers(len(PLANTED)))]


def plant(number: int) -> tuple[dict[str, Any], Captures, str]:
    """Return server, rows and code of trial *number*."""
    tables, change, code, rng = planted(number)
    return tables, measured(tables, change, rng), code


def healthy(number: int) -> tuple[dict[str, Any], Captures]:
    """Return server and rows of trial *number* in which nothing is wrong."""
    rng = np.random.default_rng(number)
    tables = server(rng)
    return tables, measured(tables, {}, rng)


def found_codes(diagnosis: Diagnosis) -> list[str]:
    """Return codes of explanations and "healthy", the most probable first."""
    every = [(diagnosis.healthy, "healthy")]
    every += [(e.probability, e.code) for e in diagnosis.explanations]
    return [code for _, code in sorted(every, reverse=True)]


@contextmanager
def remembering() -> Iterator[None]:
    """What was simulated once is not simulated again: many trials are of one server."""
    known: dict[str, Any] = {}
    run = ShortRuns._run

    def predicted(scenario: Any, **options: Any) -> Any:
        key = repr((scenario, options))
        if key not in known:
            known[key] = simulate(scenario, **options)
        return known[key]

    def short(self: ShortRuns, change: Any, load: Any) -> Any:
        key = json.dumps([self._tables, change, load], sort_keys=True)
        if key not in known:
            known[key] = run(self, change, load)
        return known[key]

    with (
        mock.patch.object(module, "simulate", predicted),
        mock.patch.object(ShortRuns, "_run", short),
    ):
        yield


def trial(number: int) -> tuple[str, list[str], bool]:
    """Return the planted code of trial *number*, what was found, and whether healthy is healthy."""
    tables, rows, code = plant(number)
    found = found_codes(diagnose(tables, rows, workers=1))
    tables, rows = healthy(number)
    return code, found, diagnose(tables, rows, workers=1).is_healthy


def main(first: int, end: int) -> None:
    """Print the trials from *first* on and the shares in which the cause is first, or in three."""
    ranks, well = [], []
    for number in range(first, end):
        code, found, is_healthy = trial(number)
        ranks.append([*found, code].index(code))
        well.append(is_healthy)
        print(f"{number:4} {code:12} at {ranks[-1] + 1}: {', '.join(found[:3])}"
              f"{'' if is_healthy else '; healthy server accused'}", flush=True)  # fmt: skip
    firsts, thirds = (sum(r < n for r in ranks) / len(ranks) for n in (1, 3))
    print(f"{len(ranks)} planted: {firsts:.0%} first, {thirds:.0%} in three; "
          f"{len(well)} healthy: {sum(well) / len(well):.0%} left alone")  # fmt: skip


if __name__ == "__main__":
    with remembering():
        main(*map(int, sys.argv[1:3]))
