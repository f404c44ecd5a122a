"""Short runs of a server under measured loads, as it is and with changes.

All share their random numbers, so the ratio of two needs few requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from nvmesim.errors import NvmesimError
from nvmesim.measure.latency import CLAT, samples
from nvmesim.measure.steady import Window
from nvmesim.predict.prepare import prepare
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.sweep.api import Progress
from nvmesim.study.sweep.plan import put
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
"""Where drives differ, write buffers take so many times their size to settle: a slow drive's begins
as full as those of all are on average."""
OF_WRITES: Final = ("workload.*.sync", "workload.*.fsync", "workload.*.filesystem")
"""Keys that loads without writes cannot have: a change of them leaves those as they are."""


class ShortRuns:
    """Runs of one server under changes."""

    def __init__(
        self, tables: Mapping[str, Any], base: str, *, seed: int | None = None,
        workers: int | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self._tables, self._base, self._seed = tables, base, seed
        self._workers, self._progress = workers or usable_cpus(), progress

    def scenario(self, change: Change, *loads: Mapping[str, Any]) -> ResolvedScenario:
        """Return the server with *change* under *loads*; raises what makes it impossible."""
        if all(load.get("read") == 1 for load in loads):
            change = {key: value for key, value in change.items() if key not in OF_WRITES}
        tables = put({**self._tables, "workload": [dict(load) for load in loads]}, change)
        return resolve(scenario_from_dict(tables, self._base))

    def figures(
        self, wanted: Sequence[tuple[Change, Mapping[str, Any]]], what: str
    ) -> list[Figures | None]:
        """Return what the server does with each (change, load); None where the two cannot be."""
        out = []
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                for found in pool.map(self._run, *zip(*wanted, strict=True)) if wanted else ():
                    out.append(found)
                    if self._progress is not None:
                        self._progress(what, len(out) / len(wanted))
            except KeyboardInterrupt:  # or a page that wants no more
                pool.shutdown(cancel_futures=True)
                raise
        return out

    def _run(self, change: Change, load: Mapping[str, Any]) -> Figures | None:
        try:
            window = short_window(self.scenario(change, load), self._seed)
        except NvmesimError:
            return None
        if window is None:
            return None
        data = samples(window, 0, CLAT)
        p99 = {} if data is None else {"p99": data.quantile(0.99) / PS_PER_S}
        return {"iops": window.iops().value, **p99}


def short_window(
    scenario: ResolvedScenario, seed: int | None = None, least: int = REQUESTS, rounds: int = ROUNDS
) -> Window | None:
    """Return what a run of *least* requests counted after its warm-up; None if nothing ended."""
    ready = prepare(scenario, seed=seed)
    requests = max(least, rounds * ready.load.in_flight)
    own = [(d.profile, d.link, d.delay_ps) for d in scenario.drives]
    if any(one != own[0] for one in own):
        requests = max(requests, min(MOST, FILLS * int(ready.load.buffer_slots.sum())))
    kept = ready.run_short(max(1, requests // BATCHES), requests)
    return kept.window(kept.warmup()[0]) if kept.requests else None
