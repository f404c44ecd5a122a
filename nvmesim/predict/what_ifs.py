"""Short runs of changed scenarios: reliefs, the curve of outstanding, draws of the calibration."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.array_types import Floats
from nvmesim.engine.contract import Acc
from nvmesim.errors import InputError
from nvmesim.measure import paired
from nvmesim.measure.control import Measured, Progress
from nvmesim.measure.figures import Relief
from nvmesim.measure.latency import enough, samples
from nvmesim.measure.paired import MIN_PAIRED
from nvmesim.measure.stations import Totals, rows_of
from nvmesim.measure.steady import Collector, fullest_share
from nvmesim.model.host import served_in_turn
from nvmesim.predict import bottleneck
from nvmesim.predict import upgrades as up
from nvmesim.predict.changes import Change, ChangeFactory
from nvmesim.predict.pilots import of_drives
from nvmesim.predict.prepare import Prepared, compiled, prepare
from nvmesim.predict.result import CurvePoint
from nvmesim.predict.uncertainty.design import Numbers, numbers, overlapped
from nvmesim.scenario.resolved import ResolvedScenario, WorkloadGroup
from nvmesim.units import PS_PER_S
from nvmesim.warning import Warning

MOST: Final = 5
"""Reliefs simulated for one answer, beside a shallower load."""
SPARE: Final = 1.5
"""A load that should do as much has so many times what moves in flight: some still wait."""
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
"""Share of its throughput that ends a relief's run early, as its 95 % half-width."""
SETTLED: Final = 6
"""It does not end before what is in flight was replaced so often: queues take that to even out."""
MOVED_REQUESTS: Final = (250, 16_000)
"""Requests of a run with moved numbers."""
MOVED_VISITS: Final = 120_000
"""Station visits of such a run, within these limits."""
MOVED_TIMES: Final = (3, 12)
"""Such a run is of what is in flight so many times over, the second of few requests."""
MOVED_MOST: Final = 100_000
"""These are few."""
MOVED_BATCHES: Final = 16
CURVE_POINTS: Final = 9
TURNOVERS: Final = 20
"""A what-if run replaces what is in flight so often, unless it is known before."""
CURVE_TURNOVERS: Final = 5
"""The same of a point of the curve, which is drawn without an interval."""


BY_RESOURCE: Final[dict[str, tuple[ChangeFactory, ...]]] = {
    "cores": (
        up.on_all_sockets, up.one_more_core, up.more_ghz, up.twice_the_cores,
        up.twice_the_cores_and_threads,
    ),
    "threads": (up.a_thread_a_cpu, up.twice_the_threads, up.more_ghz, up.one_file_a_thread),
    **dict.fromkeys(("dies", "channels"), (up.one_more_drive, up.twice_the_dies)),
    "commands": (up.one_more_drive, up.twice_the_commands),
    "rounds": (up.one_more_drive,),
    **dict.fromkeys(("read_bandwidth", "write_bandwidth"),
                    (up.one_more_drive, up.twice_the_bandwidth)),
    **dict.fromkeys(("program", "buffer"), (up.one_more_drive, up.twice_the_buffer)),
    "dirty-data": (up.more_at_a_drive, up.one_more_drive, up.twice_the_buffer),
    "port": (up.faster_ports, up.one_more_drive),
    "uplink": (up.wider_uplinks,),
    "adapter-commands": (up.more_commands_through_adapters, up.wider_uplinks),
    "interconnect": (up.one_more_interconnect, up.near_the_drives),
    "memory": (up.twice_the_memory, up.near_the_drives),
    "section": (up.near_the_drives, up.one_more_interconnect),
    "guest-section": (up.one_file_a_thread, up.more_threads_of_a_virtual_disk),
    "sq-threads": (up.twice_the_threads, up.more_ghz),
    "engine": (up.shorter_serial_section,),
    "engine-lock": (up.newer_kernel, up.two_arrays, up.no_bitmap),
    "stripe-locks": (up.half_the_workers, up.two_arrays),
    "bitmap-file": (up.no_bitmap,),
    "engine-threads": (
        up.eight_workers, up.two_arrays, up.two_arrays_with_workers, up.newer_kernel,
        up.larger_stripe_cache,
    ),
    "volume-limit": (up.twice_the_volume_limits, up.one_more_drive),
}  # fmt: skip
"""Changes to try for each `StationInfo.resource`, most to the point first."""


def choose(
    scenario: ResolvedScenario,
    stations: Sequence[bottleneck.SaturatedStation],
    stop: bottleneck.SaturatedStation | None,
) -> list[Change]:
    """The changes worth simulating: for what stops it, then for those next in line."""
    pools = served_in_turn(scenario)
    makers: list[ChangeFactory] = [up.smaller_records]
    if stop is not None:
        makers += BY_RESOURCE.get(stop.info.resource, ())
    elif pools:
        makers += [up.more_at_a_drive, up.twice_the_threads]
    else:
        makers += [up.twice_the_outstanding, up.larger_stripe_cache]
    if any(f.info.resource == "interconnect" and f.utilization > 0 for f in stations):
        most = [m for m in makers if m(scenario) is not None][:3]
        makers = [*most, *BY_RESOURCE["interconnect"]]
    resources = dict.fromkeys(f.info.resource for f in stations if f is not stop)
    for resource in [r for r in resources if r in BY_RESOURCE][:3]:
        makers += [m for m in BY_RESOURCE[resource] if m(scenario) is not None][:1]
    makers.append(up.twice_the_threads if pools else up.twice_the_outstanding)
    made = (maker(scenario) for maker in dict.fromkeys(makers))
    return [change for change in made if change is not None][:MOST]


def scaled_outstanding(s: ResolvedScenario, factor: float) -> ResolvedScenario | None:
    """Return *s* with *factor* times as much outstanding per thread, or with fewer threads."""

    def change(group: WorkloadGroup) -> WorkloadGroup:
        per_thread = group.outstanding * factor
        if per_thread >= 1:
            return replace(group, outstanding=int(per_thread) if per_thread % 1 == 0 else 0)
        threads = group.threads * per_thread
        return replace(group, outstanding=1, threads=int(threads) if threads % 1 == 0 else 0)

    groups = tuple(g if g.is_open else change(g) for g in s.workload)
    if any(g.threads < 1 or g.outstanding < 1 for g in groups):
        return None
    return replace(s, workload=groups)


@dataclass(frozen=True)
class WhatIfs:
    """What-if runs, from a measured run."""

    ready: Prepared
    measured: Measured
    totals: Totals
    warnings: list[str]
    """Gets what could not be simulated."""

    def reliefs(self, progress: Progress | None) -> tuple[Relief, ...]:
        """Changes that could relieve the bottleneck, most gain first; none for a carried rate."""
        if self.ready.load.is_open and self.measured.backlog_per_s is None:
            return ()
        stations = bottleneck.ranked(self.ready.lowered, self.totals)
        stop = bottleneck.stopping(self.ready.lowered, self.totals, stations)
        changes = [*choose(self.ready.scenario, stations, stop), *self._lighter(stop)]
        base, head = self.measured.window.iops(), self.measured.head
        if self._has_own_base:
            head = self._again(self.ready.scenario).records
        out = []
        runs = overlapped(lambda change: self._changed(change, head), changes, progress,
                          lambda change: f"what if: {change.text}")  # fmt: skip
        for change, run in zip(changes, runs, strict=True):
            if run is not None:
                found = paired.relief(change.text, base, head, run)
                watts, price = (change.added(self.ready.scenario, what)
                                for what in ("power_active_w", "price"))  # fmt: skip
                out.append(replace(found, set=change.set, command=change.command, watts=watts,
                                   price=price, latency=self._longer(change, found)))  # fmt: skip
        # what may bring nothing comes behind what does, and so does a change behind its own part
        return tuple(sorted(out, key=lambda r: (
            r.gain_low <= 0, bottleneck.adds_nothing(r, out), -r.gain)))  # fmt: skip

    @property
    def _is_closed(self) -> bool:
        """True if threads send the load; a rebuild alone has none."""
        return bool(self.ready.scenario.workload) and not self.ready.load.is_open

    def _lighter(self, stop: bottleneck.SaturatedStation | None) -> list[Change]:
        """A shallower load that should do as much: without most of what waits where it is full."""
        if stop is None or not self._is_closed:
            return []
        n = self.ready.load.in_flight
        full = bottleneck.full_buffers(self.ready.lowered, self.totals)
        full += [] if stop in full else [stop]
        waits = sum(self.totals.stations[rows_of(f.info), Acc.WAIT].sum() for f in full)
        moving = max(1.0, n - float(waits) / max(1.0, self.totals.duration_ps))
        fewer = 2.0 ** -math.floor(math.log2(n / (SPARE * moving)))
        made = scaled_outstanding(self.ready.scenario, fewer) if fewer < 1 else None
        text = f"{round(fewer * n):,} in flight"
        keys = up.thread_keys(self.ready.scenario, made.workload) if made else {}
        return [Change(text, made, keys)] if made else []

    def _longer(self, change: Change, found: Relief) -> float | None:
        """Mean latency with *change* over that without, by Little's law; None of open loops."""
        if not self._is_closed or found.gain <= -1:
            return None
        more = sum(g.in_flight for g in change.scenario.workload) / self.ready.load.in_flight
        return more / (1 + found.gain)

    def curve(self, progress: Progress | None) -> tuple[CurvePoint, ...]:
        """Throughput against outstanding, in powers of two around a closed loop's own."""
        if self.ready.load.is_open:
            return ()
        factors = (2.0 ** (i - CURVE_POINTS + 3) for i in range(CURVE_POINTS))
        made = (scaled_outstanding(self.ready.scenario, factor) for factor in factors)
        points = overlapped(self._point, [m for m in made if m is not None], progress,
                            lambda _: "throughput against outstanding")  # fmt: skip
        return tuple(points)

    def _point(self, changed: ResolvedScenario) -> CurvePoint:
        window = self.measured.window  # its own load: the curve goes through the answer
        if changed.workload != self.ready.scenario.workload:
            kept = self._again(changed, turnovers=CURVE_TURNOVERS)
            window = kept.window(kept.warmup()[0])
        data = samples(window, None)
        is_enough = data is not None and enough(data.size, 99)
        p99 = data.quantile(0.99) / PS_PER_S if data is not None and is_enough else None
        in_flight = sum(g.in_flight for g in changed.workload if not g.is_open)
        return CurvePoint(in_flight, window.iops().value, window.mean_latency_s(None).value, p99)

    def numbers(self, progress: Progress | None) -> Numbers:
        """Effect of the profiles' uncertain numbers on the answer; none without a steady state."""
        if self.measured.backlog_per_s is not None or self.ready.load.replayed:
            return {}
        fast = replace(self, ready=compiled(self.ready))
        return numbers(self.ready.scenario, fast.again, progress)

    def again(self, scenario: ResolvedScenario) -> Collector:
        """Run a scenario of the same shape for as long as a moved number needs to show."""
        if self.ready.scenario.workload:
            least, most = MOVED_REQUESTS
            few = min(most, max(least, round(MOVED_VISITS / self._visits)))
            short, long = (times * self.ready.load.in_flight for times in MOVED_TIMES)
            long = max(short, round(long * self.ready.load.share))
            requests = max(few, min(long, max(MOVED_MOST, short)))
        else:
            requests = REBUILD_MOVED
        batch = max(1, requests // MOVED_BATCHES)
        return self._prepared(scenario).run_short(batch, requests, longest=1)

    @property
    def _visits(self) -> float:
        visits = float(self.totals.stations[:, Acc.VISITS].sum())
        return max(1.0, visits / max(1, self.totals.requests))

    @property
    def _starts_full(self) -> bool:
        """True if what-if runs would mostly fill write buffers: theirs start as this one's end."""
        long = self.measured.warmup_requests > SHORT_REQUESTS
        return self.ready.level > 0 or (long and bool(self.ready.load.buffers.size))

    @property
    def _has_own_base(self) -> bool:
        """True if what-ifs cannot be paired with the run's first batches: these are not alike."""
        return self._starts_full or len(self.measured.head) < MIN_PAIRED

    def _changed(self, change: Change, head: Floats) -> Floats | None:
        """Records of the changed scenario; None (and a warning) if it cannot be."""

        def is_known(kept: Collector) -> bool:
            turns = len(kept) * self.measured.batch / max(1, self.ready.load.in_flight)
            is_settled = len(kept) >= MIN_PAIRED and turns >= SETTLED
            return is_settled and paired.half_of_rate(head, kept.records) <= KNOWN

        try:
            return self._again(change.scenario, is_known, is_change=True).records
        except InputError as error:
            text = f"{change.text} was not simulated: {error}"
            self.warnings.append(Warning("what-if-failed", text))
            return None

    def _prepared(self, scenario: ResolvedScenario, *, is_change: bool = False) -> Prepared:
        """*scenario* with write buffers as full as they are at the end of the measured run.

        A change that brings more may fill those that stayed empty: a pilot tells.
        """
        level = None if is_change and self.ready.load.buffers.size else 0.0
        if self._starts_full:
            drives = of_drives(self.ready.load, self.ready.lowered.network)
            level = fullest_share(self.measured.window, drives) if drives.buffers.size else 0.0
        return prepare(scenario, self.ready.make, self.ready.seed, level, is_variant=True)

    def _again(
        self, scenario: ResolvedScenario, is_known: Callable[[Collector], bool] | None = None,
        *, is_change: bool = False, turnovers: int = TURNOVERS,
    ) -> Collector:  # fmt: skip
        """Run another scenario shortly, paired with the first batches of this one."""
        other = self._prepared(scenario, is_change=is_change)
        requests = REBUILD_REQUESTS
        if self.ready.scenario.workload:
            few = round(max(LEAST_REQUESTS * other.load.share, SHORT_VISITS / self._visits))
            requests = min(SHORT_REQUESTS, few)
        turnovers = max(min(turnovers, SETTLED), round(turnovers * other.load.share))
        requests = max(requests, turnovers * other.load.in_flight)
        if not self._starts_full:
            # less in flight is sooner steady; buffers are not
            less = other.load.in_flight / max(1, self.ready.load.in_flight)
            share = 1.0 if other.load.buffers.size else min(1.0, less)
            requests += round(share * self.measured.warmup_requests)
        if not self._has_own_base:
            requests = min(requests, len(self.measured.head) * self.measured.batch)
        if other.level:  # writes that wait for full buffers gather slowly
            is_known = None
        return other.run_short(self.measured.batch, requests, is_known)
