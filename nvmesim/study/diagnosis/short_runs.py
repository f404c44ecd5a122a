"""Short runs of a server under rows' loads, as it is and with changes.

All share their random numbers, so the ratio of two needs few requests; of changes that leave a load
as it is one run is made.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from nvmesim.errors import NvmesimError
from nvmesim.measure.latency import CLAT, samples
from nvmesim.measure.steady import Window
from nvmesim.network.network import Network
from nvmesim.predict.prepare import Prepared, prepare
from nvmesim.predict.uncertainty.design import overlapped
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.load import with_values as put
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.sweep.api import Progress
from nvmesim.study.sweep.workers import usable_cpus
from nvmesim.units import PS_PER_S

Change = Mapping[str, Any]
"""Key -> value, as ``--set`` takes them."""
Figures = Mapping[str, float]
"""IOPS, and the p99 of the completion latency of reads in s."""

REQUESTS: Final = 3_000
"""Of a run at least."""
ROUNDS: Final = 8
"""It completes what is in flight so many times at least."""
MOST: Final = 100_000
BATCHES: Final = 24
FILLS: Final = 4
"""Write buffers take so many times their size to settle: a slow drive's begins as full as those of
all are on average, and a slower server's as full as a faster one's."""
OF_WRITES: Final = ("workload.*.sync", "workload.*.fsync", "workload.*.filesystem")
"""Keys that loads without writes cannot have: a change of them leaves those as they are."""

OF_SLEEPERS: Final = ("server.stack.latency",)
"""Keys of what CPUs do that sleep between two requests."""
SLEEPS: Final = 2
"""Requests in flight of each thread above which they do not: deep states are for idle times of 600
us on (Linux, intel_idle.c: C6 of Skylake wakes up in 133 us)."""


class ShortRuns:
    """Runs of one server under changes."""

    def __init__(
        self, tables: Mapping[str, Any], base: str, *, seed: int | None = None,
        workers: int | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self._tables, self._base, self._seed = tables, base, seed
        self._workers, self._progress = workers or usable_cpus(), progress
        self._known: dict[tuple[bytes, int], Figures | None] = {}
        """By network and length: of changes that leave a load as it is one is simulated."""

    def scenario(self, change: Change, *loads: Mapping[str, Any]) -> ResolvedScenario:
        """Return the server with *change* under *loads*; raises what makes it impossible."""
        never: tuple[str, ...] = ()
        if all(load.get("read") == 1 for load in loads):
            never += OF_WRITES
        if all(load.get("outstanding", 1) > SLEEPS for load in loads):
            never += OF_SLEEPERS
        change = {key: value for key, value in change.items() if key not in never}
        tables = put({**self._tables, "workload": [dict(load) for load in loads]}, change)
        return resolve(scenario_from_dict(tables, self._base))

    def figures(
        self, wanted: Sequence[tuple[Change, Mapping[str, Any]]], what: str
    ) -> list[Figures | None]:
        """Return what the server does with each (change, load); None where the two cannot be."""
        return overlapped(lambda one: self._run(*one), wanted, self._progress,
                          lambda _: what, self._workers)  # fmt: skip

    def _run(self, change: Change, load: Mapping[str, Any]) -> Figures | None:
        try:
            ready = prepare(self.scenario(change, load), seed=self._seed)
            requests = requests_of(ready)
            same = digest(ready.lowered.network), requests
            if same not in self._known:
                self._known[same] = _figures(_window(ready, requests))
        except NvmesimError:
            return None
        return self._known[same]


def _figures(window: Window | None) -> Figures | None:
    if window is None:
        return None
    data = samples(window, 0, CLAT)
    p99 = {} if data is None else {"p99": data.quantile(0.99) / PS_PER_S}
    return {"iops": window.iops().value, **p99}


def digest(network: Network) -> bytes:
    """Return what tells *network* from others: runs of one and a seed are the same."""
    found = hashlib.sha256()
    for item in fields(network):
        value = getattr(network, item.name)
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.digest()


def short_window(scenario: ResolvedScenario, least: int, rounds: int) -> Window | None:
    """Return what a run of *least* requests counted after its warm-up; None if nothing ended."""
    ready = prepare(scenario)
    return _window(ready, requests_of(ready, least, rounds))


def requests_of(ready: Prepared, least: int = REQUESTS, rounds: int = ROUNDS) -> int:
    """Return how many requests a short run has: *least*, and *rounds* of what is in flight."""
    fills = min(MOST, FILLS * int(ready.load.buffer_slots.sum()))
    filling = math.ceil(fills / slots_of_a_request(ready.scenario))
    return max(least, rounds * ready.load.in_flight, filling)


def _window(ready: Prepared, requests: int) -> Window | None:
    kept = ready.run_short(max(1, requests // BATCHES), requests)
    return kept.window(kept.warmup()[0]) if kept.requests else None


def slots_of_a_request(scenario: ResolvedScenario) -> float:
    """Return how many slots of write buffers a request takes on average, 1 at least.

    As many as it has units, on each member that small ones are written to.
    """
    unit = max(drive.profile.write.unit.value for drive in scenario.drives)
    taken = []
    for group in scenario.workload:
        volumes = [scenario.volumes[t.index] for t in group.targets if t.kind == "volume"]
        size = sum(n * share for n, share in group.write_block_sizes or group.block_sizes)
        members = min((max(v.copies, 1 + v.raid.parity * (size <= v.chunk)) for v in volumes),
                      default=1)  # fmt: skip
        taken.append((1 - group.read) * members * max(1.0, size / unit))
    return max(1.0, min(taken, default=1.0))
