"""Short runs of changed scenarios: reliefs, the curve of outstanding, draws of the calibration.

Each shares its random numbers with the measured run, and is compared with that run's first batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.array_types import Floats
from nvmesim.engine.contract import Acc
from nvmesim.errors import InputError
from nvmesim.measure import paired
from nvmesim.measure.control import Measured, Progress
from nvmesim.measure.figures import Relief
from nvmesim.measure.latency import enough, samples
from nvmesim.measure.load import fill_share
from nvmesim.measure.paired import MIN_PAIRED
from nvmesim.measure.stations import Totals
from nvmesim.measure.steady import Collector
from nvmesim.predict import bottleneck
from nvmesim.predict.change import Change
from nvmesim.predict.pilots.buffers import of_drives
from nvmesim.predict.prepare import Prepared, compiled, prepare
from nvmesim.predict.result import CurvePoint
from nvmesim.predict.uncertainty.design import Numbers, numbers
from nvmesim.predict.upgrades import choose, scaled_outstanding
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S
from nvmesim.warning import Warning

SHORT_REQUESTS: Final = 60_000
"""Requests of a what-if run: common random numbers make so few enough."""
LEAST_REQUESTS: Final = 20_000
SHORT_VISITS: Final = 600_000
"""Station visits of a what-if run: large requests are many, so fewer of them are simulated."""
REBUILD_REQUESTS: Final = 3_000
"""Requests of a what-if run of a rebuild alone: nothing in it is drawn but dies."""
REBUILD_MOVED: Final = 800
"""Of one with moved numbers."""
KNOWN: Final = 0.01
"""A relief's run ends early once the 95 % half-width of its throughput is so small a share of it:
beside what the model may be off it is nothing."""
MOVED_REQUESTS: Final = (250, 16_000)
"""Requests of a run with moved numbers."""
MOVED_VISITS: Final = 120_000
"""Station visits of such a run, within these limits."""
MOVED_ROUNDS: Final = 12
"""Such a run is of what is in flight so many times over, at least."""
MOVED_BATCHES: Final = 16
MAX_THREADS: Final = 4
CURVE_POINTS: Final = 9


@dataclass(frozen=True)
class WhatIfs:
    """What-if runs, from a measured run."""

    ready: Prepared
    measured: Measured
    totals: Totals
    warnings: list[str]
    """Gets what could not be simulated."""

    def reliefs(self, progress: Progress | None) -> tuple[Relief, ...]:
        """Changes that could relieve the bottleneck, most gain first; none where none can gain.

        An open loop that is carried completes what arrives: no change brings more.
        """
        if self.ready.load.is_open and self.measured.backlog_per_s is None:
            return ()
        return tuple(sorted(self._reliefs(progress), key=lambda relief: -relief.gain))

    def curve(self, progress: Progress | None) -> tuple[CurvePoint, ...]:
        """Throughput against outstanding, for closed loops."""
        return () if self.ready.load.is_open else tuple(self._curve(progress))

    def numbers(self, progress: Progress | None) -> Numbers | None:
        """Effect of the profiles' uncertain numbers on the answer; None without a steady state.

        Always by the compiled engine: both complete every request alike.
        """
        if self.measured.backlog_per_s is not None or self.ready.load.replayed:
            return None
        fast = replace(self, ready=compiled(self.ready))
        return numbers(self.ready.scenario, fast.again, progress)

    @property
    def _starts_full(self) -> bool:
        """True if what-if runs would mostly fill write buffers: theirs start as this one's end."""
        long = self.measured.warmup_requests > SHORT_REQUESTS
        return self.ready.level > 0 or (long and bool(self.ready.load.buffers.size))

    @property
    def _has_own_base(self) -> bool:
        """True if what-ifs cannot be paired with the run's first batches: these are not alike."""
        return self._starts_full or len(self.measured.head) < MIN_PAIRED

    def _reliefs(self, progress: Progress | None) -> Iterator[Relief]:
        lowered = self.ready.lowered
        stations = bottleneck.ranked(lowered, self.totals)
        stop = bottleneck.limiting(stations)
        changes = choose(self.ready.scenario, stations, stop)
        base = self.measured.window.iops()
        head = self.measured.head
        if self._has_own_base:
            head = self._again(self.ready.scenario).records
        # The kernel holds no lock, so runs in threads overlap; each is its own.
        with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
            try:
                runs = pool.map(lambda change: self._changed(change, head), changes)
                for i, (change, changed) in enumerate(zip(changes, runs, strict=True)):
                    if progress is not None:
                        progress(f"what if: {change.text}", (i + 1) / len(changes))
                    if changed is not None:
                        found = paired.relief(change.text, base, head, changed)
                        yield replace(found, set=change.set)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise

    def _changed(self, change: Change, head: Floats) -> Floats | None:
        """Records of the changed scenario; None (and a warning) if it cannot be."""

        def is_known(kept: Collector) -> bool:
            return len(kept) >= MIN_PAIRED and paired.half_of_rate(head, kept.records) <= KNOWN

        try:
            return self._again(change.scenario, is_known).records
        except InputError as error:
            text = f"{change.text} was not simulated: {error}"
            self.warnings.append(Warning("what-if-failed", text))
            return None

    def again(self, scenario: ResolvedScenario) -> Collector:
        """Run a scenario of the same shape for as long as a moved number needs to show."""
        ready = self._prepared(scenario)
        return ready.shortly(*self._moved_requests, longest=1)

    @property
    def _moved_requests(self) -> tuple[int, int]:
        """Batch and requests of a run with moved numbers: some rounds of what is in flight."""
        if not self.ready.scenario.workload:
            return max(1, REBUILD_MOVED // MOVED_BATCHES), REBUILD_MOVED
        visits = float(self.totals.stations[:, Acc.VISITS].sum()) / max(1, self.totals.requests)
        few = min(MOVED_REQUESTS[1], max(MOVED_REQUESTS[0], round(MOVED_VISITS / max(visits, 1.0))))
        requests = max(few, MOVED_ROUNDS * self.ready.load.in_flight)
        return max(1, requests // MOVED_BATCHES), requests

    def _prepared(self, scenario: ResolvedScenario) -> Prepared:
        """*scenario* with write buffers as full as they are at the end of the measured run."""
        level = 0.0
        if self._starts_full:
            drives = of_drives(self.ready.load, self.ready.lowered.network)
            level = fill_share(self.measured.window, drives) if drives.buffers.size else 0.0
        return prepare(scenario, self.ready.make, self.ready.seed, level)

    def _again(
        self, scenario: ResolvedScenario, is_known: Callable[[Collector], bool] | None = None
    ) -> Collector:
        """Run another scenario shortly, paired with the first batches of this one."""
        other = self._prepared(scenario)
        requests = max(self._short_requests(), 20 * other.load.in_flight)
        if not self._starts_full:
            requests += self.measured.warmup_requests
        if not self._has_own_base:
            requests = min(requests, len(self.measured.head) * self.measured.batch)
        return other.shortly(self.measured.batch, requests, is_known)

    def _short_requests(self) -> int:
        if not self.ready.scenario.workload:
            return REBUILD_REQUESTS
        visits = float(self.totals.stations[:, Acc.VISITS].sum()) / max(1, self.totals.requests)
        return min(SHORT_REQUESTS, max(LEAST_REQUESTS, round(SHORT_VISITS / max(visits, 1.0))))

    def _curve(self, progress: Progress | None) -> Iterator[CurvePoint]:
        """Throughput against outstanding, in powers of two around the workload's own."""
        for i in range(CURVE_POINTS):
            factor = 2.0 ** (i - CURVE_POINTS + 3)
            changed = scaled_outstanding(self.ready.scenario, factor)
            if changed is None:
                continue
            if progress is not None:
                progress("throughput against outstanding", i / CURVE_POINTS)
            yield self._point(changed)

    def _point(self, scenario: ResolvedScenario) -> CurvePoint:
        kept = self._again(scenario)
        window = kept.window(kept.warmup()[0])
        data = samples(window, None)
        p99 = None
        if data is not None and enough(data.size, 99):
            p99 = data.quantile(0.99) / PS_PER_S
        in_flight = sum(g.in_flight for g in scenario.workload if not g.is_open)
        mean = window.mean_latency_s(None).value
        return CurvePoint(in_flight, window.iops().value, mean, p99)
