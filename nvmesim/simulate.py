"""From a scenario to a prediction: lower it, run it, judge it, and try what could relieve it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nvmesim import __version__
from nvmesim.engine.contract import Acc, Engine
from nvmesim.errors import InputError, nearest
from nvmesim.model.lowered import Lowered
from nvmesim.network import HORIZON_PS, Kind, Network
from nvmesim.reliefs import Change, choose, filled, scaled_outstanding
from nvmesim.result import bottleneck, paired
from nvmesim.result.control import (
    MAX_REQUESTS,
    Controller,
    Goal,
    Load,
    Measured,
    Progress,
    Recorder,
    fill_share,
    filling,
)
from nvmesim.result.groups import GroupStats, group_stats, slices
from nvmesim.result.latency import (
    CLAT,
    LATENCY,
    distribution,
    enough,
    percentile_name,
    samples,
    tail_warnings,
)
from nvmesim.result.paired import Comparison
from nvmesim.result.result import (
    CurvePoint,
    Distribution,
    Interval,
    OpStats,
    Relief,
    Result,
)
from nvmesim.result.stations import (
    Totals,
    cpu_stats,
    member_stats,
    rebuild_stats,
    reducer,
    station_stats,
)
from nvmesim.result.steady import MAX_RECORDS, Collector, Floats
from nvmesim.result.syncs import sync_stats
from nvmesim.result.waiting import Waits
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.units import PS_PER_S

if TYPE_CHECKING:
    from nvmesim.calibration_draws import Spread

EngineFactory = Callable[..., Engine]
"""Called with (network, seed=, record=)."""

SHORT_REQUESTS: Final = 100_000
"""Requests of a what-if run: common random numbers make so few enough."""
LEAST_REQUESTS: Final = 20_000
SHORT_VISITS: Final = 2_000_000
"""Station visits of a what-if run: large requests are many, so fewer of them are simulated."""
SLOW_ENGINE: Final = 10
"""The SimPy engine's runs are so many times shorter at most."""
MIN_PAIRED: Final = 16
"""Batches of the run that what-ifs can be paired with, at least."""
MAX_THREADS: Final = 4
LONGEST: Final = 4
"""A what-if run is so many times longer at most, while its write buffers fill."""
CURVE_POINTS: Final = 9
PILOT_REQUESTS: Final = (40_000, 200_000)
PILOT_SHARE: Final = 4
"""A pilot run shows whether write buffers fill: a request for so many of their slots, within those
limits, so that what fills moves by some per cent."""
PILOT_BATCHES: Final = 32


@dataclass(frozen=True)
class Prepared:
    """A scenario ready to run."""

    scenario: ResolvedScenario
    lowered: Lowered
    make: EngineFactory
    seed: int
    load: Load
    starts_full: bool = False
    """Its write buffers are full at time 0, as they would be soon."""

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.scenario.name or "scenario"


def simulate(
    scenario: Scenario | ResolvedScenario,
    *,
    engine: str | EngineFactory = "compiled",
    seed: int | None = None,
    precision: float | None = None,
    requests: int | None = None,
    reliefs: bool = True,
    curve: bool = False,
    waits: bool = False,
    over_time: bool = True,
    calibration_draws: int = 0,
    requests_file: str | Path | None = None,
    max_requests: int = MAX_REQUESTS,
    max_wall_s: float = math.inf,
    progress: Progress | None = None,
) -> Result:
    """Predict what *scenario* does.

    *engine* is "compiled", "simpy", or a callable (network, seed=, record=) -> Engine. *seed*,
    *precision* (relative, of IOPS) and *requests* (exactly so many after the warm-up) take the
    place of the scenario's own. *reliefs* simulates what could relieve the bottleneck, *curve*
    throughput against outstanding, *waits* what a striped volume loses to its slowest member,
    *over_time* (on unless it is turned off) latency slice by slice and each workload by itself,
    *calibration_draws* (``nvmesim run`` takes 8) how far the intervals of the profiles' numbers
    move the answer; the answer's intervals are widened by it. *requests_file* gets one row a
    request (Parquet). The run ends unconverged after *max_requests* or *max_wall_s*; a
    KeyboardInterrupt ends it with what there is, unconverged and with a warning.

    Raises ScenarioError and its kin for a scenario that cannot be, DeadlockError if it stops.
    """
    started = time.perf_counter()
    ready = _settled_buffers(prepare(scenario, engine, seed))
    goal = _goal(ready.scenario, precision, requests, max_requests, max_wall_s)
    if engine == "simpy":
        goal = replace(goal, least=goal.least // SLOW_ENGINE, most=goal.most // SLOW_ENGINE)
    with _recorder(requests_file, ready.lowered) as (record, finish):
        measured = _run(ready, goal, record, progress)
        finish(measured.window.warmup_ps)
    answer = _Answer(ready, measured, sliced=over_time)
    if not measured.interrupted:
        try:
            answer.explore(reliefs, curve, calibration_draws, progress)
            if waits:
                answer.study_waits(progress)
        except KeyboardInterrupt:
            answer.warnings.append("interrupted: what-ifs were left out")
            answer.interrupted = True
    return answer.result(engine, time.perf_counter() - started)


def compare(
    a: Scenario | ResolvedScenario,
    b: Scenario | ResolvedScenario,
    *,
    engine: str | EngineFactory = "compiled",
    seed: int | None = None,
    requests: int = 200_000,
    progress: Progress | None = None,
) -> Comparison:
    """What changes from *a* to *b*, with the interval of the difference.

    Both draw the same random numbers (common random numbers), so the interval is that of the
    difference and not of two independent runs; `Comparison.saved` says how many times the requests
    those would need. *requests* are simulated of each, warm-up included.
    """
    first = prepare(a, engine, seed)
    second = prepare(b, engine, first.seed)
    batch = max(1, requests // 60)
    runs = []
    for i, ready in enumerate((first, second)):
        if progress is not None:
            progress(f"simulating {ready.name}", i / 2)
        runs.append(_short(_settled_buffers(ready), batch, requests))
    cut = paired.common_warmup(*(run.records for run in runs))
    windows = [run.window(cut) for run in runs]
    warnings = [*first.lowered.warnings, *second.lowered.warnings]
    if first.name == second.name:
        names = (f"{first.name} (a)", f"{second.name} (b)")
    else:
        names = (first.name, second.name)
    return paired.compared(names, windows[0], windows[1], tuple(dict.fromkeys(warnings)))


def prepare(
    scenario: Scenario | ResolvedScenario, engine: str | EngineFactory, seed: int | None
) -> Prepared:
    """Resolve and lower *scenario*; find the engine."""
    from nvmesim.bitmaps import with_bitmaps
    from nvmesim.model.lower import lower
    from nvmesim.rebuilds import with_rebuilds
    from nvmesim.scenario.resolve import resolve

    resolved = resolve(scenario) if isinstance(scenario, Scenario) else scenario
    resolved, lowered = with_rebuilds(*with_bitmaps(resolved, lower(resolved)))
    number = resolved.run.seed if seed is None else seed
    return Prepared(resolved, lowered, engine_factory(engine), number, load_of(lowered))


def _settled_buffers(ready: Prepared) -> Prepared:
    """Let *ready* begin with full write buffers, if a pilot run fills them.

    To fill them takes seconds of load, and what comes before is only warm-up.
    """
    load, net = ready.load, ready.lowered.network
    if not load.buffers.size or load.replayed:
        return ready
    from nvmesim.engine.compiled import CompiledEngine

    batch = int(np.clip(load.buffer_slots.sum() // PILOT_SHARE, *PILOT_REQUESTS)) // PILOT_BATCHES
    engine = CompiledEngine(net, seed=ready.seed)
    kept = Collector(reducer(ready.lowered), batch)
    for _ in range(PILOT_BATCHES):
        part = engine.advance(batch)
        if part.completions < batch:
            return ready
        kept.add(part)
    if not filling(kept.window(0), load):
        return ready
    lowered = replace(ready.lowered, network=filled(net, 1.0))
    return replace(ready, lowered=lowered, starts_full=True)


def engine_factory(engine: str | EngineFactory) -> EngineFactory:
    """Return the engine called *engine*; InputError with the known names."""
    if callable(engine):
        return engine
    if engine == "compiled":
        from nvmesim.engine.compiled import CompiledEngine

        return CompiledEngine
    if engine == "simpy":
        from nvmesim.engine.reference import ReferenceEngine

        return ReferenceEngine
    raise InputError(f"engine {engine!r} is unknown; {nearest(engine, ('compiled', 'simpy'))}")


def load_of(lowered: Lowered) -> Load:
    """What the controller must know of the load of *lowered*."""
    groups, net = lowered.scenario.workload, lowered.network
    steady = [d.index for d in lowered.scenario.drives if d.profile.state == "steady"]
    buffers = _buffers(net, lowered, steady)
    queues = ~np.isin(net.station_kind, (Kind.GATE, Kind.DELAY, Kind.LIMIT))
    return Load(
        is_open=any(g.is_open for g in groups),
        replayed=all(g.trace is not None for g in groups),
        bursts=any(g.bursts is not None for g in groups),
        in_flight=sum(g.in_flight for g in groups if not g.is_open),
        servers=np.where(queues, net.station_servers, 0),
        buffers=buffers,
        buffer_slots=net.station_servers[buffers],
    )


def _buffers(net: Network, lowered: Lowered, drives: list[int]) -> Any:
    """Gates of the write buffers of *drives*."""
    gates = {int(g) for g in net.die_gate if g >= 0}
    of = {s.first for s in lowered.stations if s.drive in drives}
    return np.array(sorted(gates & of), np.int64)


def _goal(
    scenario: ResolvedScenario,
    precision: float | None,
    requests: int | None,
    most: int,
    wall_s: float,
) -> Goal:
    """The scenario's goal, unless the caller has another."""
    run = scenario.run
    if requests is not None:
        return Goal(None, requests, None, most=most, wall_s=wall_s)
    if precision is not None:
        return Goal(precision, None, None, most=most, wall_s=wall_s)
    return Goal(run.precision, run.requests, run.duration_ps, most=most, wall_s=wall_s)


@contextmanager
def _recorder(
    path: str | Path | None, lowered: Lowered
) -> Iterator[tuple[Recorder | None, Callable[[float], None]]]:
    """Yield where rows of requests go, and what makes a file of them."""
    if path is None:
        yield None, lambda warmup_ps: None
        return
    from nvmesim.result.requests import RequestWriter

    with RequestWriter(Path(path), lowered) as writer:
        yield writer, writer.finish


def _run(
    ready: Prepared, goal: Goal, record: Recorder | None, progress: Progress | None
) -> Measured:
    engine = ready.make(ready.lowered.network, seed=ready.seed, record=record is not None)
    controller = Controller(
        engine, reducer(ready.lowered), goal, ready.load, record=record, progress=progress
    )
    return controller.run()


def _short(ready: Prepared, batch: int, requests: int) -> Collector:
    """Run *requests* in equal batches, warm-up included; longer while write buffers fill."""
    engine = ready.make(ready.lowered.network, seed=ready.seed)
    kept = Collector(reducer(ready.lowered), batch)
    least = max(8, math.ceil(requests / batch))
    for i in range(1, min(MAX_RECORDS, LONGEST * least)):
        part = engine.advance(batch, HORIZON_PS)
        if part.completions < batch:
            break
        kept.add(part)
        if i >= least and (i - least) % 8 == 0 and _is_settled(kept, ready.load):
            break
    return kept


def _is_settled(kept: Collector, load: Load) -> bool:
    """Whether write buffers have filled, and the warm-up is over; at once without any buffer."""
    if not load.buffers.size:
        return True
    cut, warm = kept.warmup()
    return warm and not filling(kept.window(cut), load)


@dataclass
class _Answer:
    """A measured run on its way to a `Result`."""

    ready: Prepared
    measured: Measured
    reliefs: tuple[Relief, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    waits: Waits | None = None
    calibration: Spread | None = None
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    sliced: bool = True
    _ops: dict[int | None, OpStats | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        window, growth = self.measured.window, self.measured.backlog_per_s or 0.0
        arrived = window.requests + round(growth * window.duration_ps / PS_PER_S)
        self.totals = replace(Totals.of(window), requests=arrived)
        self.stable = self.measured.backlog_per_s is None
        self.starts_full = self._fills_slowly()
        # What-ifs pair with the run's first batches, unless these are not alike.
        self.own_base = self.starts_full or len(self.measured.head) < MIN_PAIRED

    def explore(self, reliefs: bool, curve: bool, draws: int, progress: Progress | None) -> None:
        """Simulate the what-ifs that were asked for."""
        if reliefs and self._can_gain():
            found = self._reliefs(progress)
            self.reliefs = tuple(sorted(found, key=lambda relief: -relief.gain))
        if curve and not self.ready.load.is_open:
            self.curve = tuple(self._curve(progress))
        if draws and self.stable:
            from nvmesim.calibration_draws import spread

            self.calibration = spread(
                self.ready.scenario, self.ready.seed, self._compiled_again, draws, progress
            )

    def _short_requests(self) -> int:
        visits = float(self.totals.stations[:, Acc.VISITS].sum()) / max(1, self.totals.requests)
        return min(SHORT_REQUESTS, max(LEAST_REQUESTS, round(SHORT_VISITS / max(visits, 1.0))))

    def study_waits(self, progress: Progress | None) -> None:
        """Simulate what a striped volume loses to its slowest member."""
        from nvmesim.waiting import study

        if progress is not None:
            progress("waiting for the slowest member", 0.0)
        self.waits = study(self.ready.scenario, self.ready.seed)

    def _fills_slowly(self) -> bool:
        """Whether what-if runs would mostly fill write buffers: theirs start as this one's end."""
        long = self.measured.warmup_requests > SHORT_REQUESTS
        return self.ready.starts_full or (long and bool(self.ready.load.buffers.size))

    def _can_gain(self) -> bool:
        """An open loop that is carried completes what arrives: no change brings more."""
        return not self.ready.load.is_open or not self.stable

    def _reliefs(self, progress: Progress | None) -> Iterator[Relief]:
        lowered = self.ready.lowered
        stations = bottleneck.ranked(lowered, self.totals)
        stop = bottleneck.limiting(stations)
        changes = choose(self.ready.scenario, stations, stop)
        base = self.measured.window.iops()
        head = self.measured.head
        if self.own_base:
            head = self._again(self.ready.scenario).records
        # The kernel holds no lock, so runs in threads overlap; each is its own.
        with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
            try:
                runs = pool.map(self._changed, changes)
                for i, (change, changed) in enumerate(zip(changes, runs, strict=True)):
                    if progress is not None:
                        progress(f"what if: {change.text}", (i + 1) / len(changes))
                    if changed is not None:
                        yield paired.relief(change.text, base, head, changed)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise

    def _changed(self, change: Change) -> Floats | None:
        """Records of the changed scenario; None (and a warning) if it cannot be."""
        try:
            return self._again(change.scenario).records
        except InputError as error:
            self.warnings.append(f"{change.text} was not simulated: {error}")
            return None

    def _again(self, scenario: ResolvedScenario) -> Collector:
        """Run another scenario shortly, paired with the first batches of this one."""
        other = prepare(scenario, self.ready.make, self.ready.seed)
        if self.starts_full:
            network = filled(
                other.lowered.network, fill_share(self.measured.window, self.ready.load)
            )
            other = replace(other, lowered=replace(other.lowered, network=network))
        requests = max(self._short_requests(), 20 * other.load.in_flight)
        if not self.starts_full:
            requests += self.measured.warmup_requests
        if not self.own_base:
            requests = min(requests, len(self.measured.head) * self.measured.batch)
        return _short(other, self.measured.batch, requests)

    def _compiled_again(self, scenario: ResolvedScenario) -> Collector:
        """`_again` by the compiled engine: both complete every request alike."""
        if getattr(self.ready.make, "__name__", "") != "ReferenceEngine":
            return self._again(scenario)
        fast = replace(self.ready, make=engine_factory("compiled"))
        return replace(self, ready=fast)._again(scenario)

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

    def result(self, engine: str | EngineFactory, wall_s: float) -> Result:
        """Everything that a prediction says."""
        ready, window = self.ready, self.measured.window
        total = self._op(None)
        if total is None:
            raise InputError(f"{ready.name}: no request completed; nothing to report")
        converged = self.measured.converged and not self.interrupted
        return Result(
            scenario=ready.name,
            engine=engine if isinstance(engine, str) else getattr(engine, "__name__", "own"),
            seed=ready.seed,
            requests=window.requests,
            simulated_s=window.duration_ps / PS_PER_S,
            wall_s=wall_s,
            warmup_s=window.warmup_ps / PS_PER_S,
            converged=converged,
            total=total,
            read=self._op(0),
            write=self._op(1),
            members=member_stats(ready.lowered, self.totals),
            stations=station_stats(ready.lowered, self.totals),
            cpu=cpu_stats(ready.lowered, self.totals),
            bottleneck=bottleneck.judge(
                ready.lowered, self.totals,
                in_flight=0 if ready.load.is_open else ready.load.in_flight,
                reliefs=self.reliefs,
                backlog_per_s=self.measured.backlog_per_s,
                offered=offered(ready.scenario),
            ),
            outstanding=self._outstanding(total),
            curve=self.curve,
            uncertainty=self._uncertainty(total),
            warnings=self._all_warnings(total),
            assumptions=ready.lowered.assumptions,
            version=__version__,
            rebuild=rebuild_stats(ready.lowered, self.totals),
            sync=sync_stats(window.total.syncs, window.duration_ps),
            waits=self.waits,
            groups=self._groups(),
            over_time=slices(ready.lowered, window) if self.sliced else None,
            resolved=ready.scenario,
        )  # fmt: skip

    def _groups(self) -> tuple[GroupStats, ...]:
        if not (self.stable and self.sliced):
            return ()
        return group_stats(self.ready.lowered, self.measured.window, self.totals)

    def _op(self, operation: int | None) -> OpStats | None:
        if operation not in self._ops:
            self._ops[operation] = self._op_stats(operation)
        return self._ops[operation]

    def _op_stats(self, operation: int | None) -> OpStats | None:
        window = self.measured.window
        latency = distribution(window, operation, LATENCY, stable=self.stable)
        clat = distribution(window, operation, CLAT, stable=self.stable)
        if latency is None or clat is None:
            return None
        return OpStats(
            iops=self._widened(window.iops(operation)),
            bytes_per_s=self._widened(window.bytes_per_s(operation)),
            count=int(latency.bin_count.sum()),
            latency=self._unsure(latency),
            clat=self._unsure(clat),
        )

    def _widened(self, interval: Interval) -> Interval:
        """With what calibration adds to the uncertainty, in quadrature."""
        low, high = self._wider(interval.value, (interval.low, interval.high), "iops")
        return Interval(interval.value, low, high)

    def _unsure(self, latency: Distribution) -> Distribution:
        """*latency* with intervals that hold the calibration's share."""
        if self.calibration is None:
            return latency
        values = {percentile_name(q): v for q, v in latency.percentiles.items()}
        values["mean"] = latency.mean
        wider = {
            name: self._wider(values[name] or 0.0, span, name)
            for name, span in latency.intervals.items()
        }
        return replace(latency, intervals=wider)

    def _wider(self, value: float, span: tuple[float, float], name: str) -> tuple[float, float]:
        return span if self.calibration is None else self.calibration.wider(name, value, span)

    def _outstanding(self, total: OpStats) -> int:
        if not self.ready.load.is_open:
            return self.ready.load.in_flight
        mean = self.measured.window.mean_latency_s(None).value
        return round(total.iops.value * mean)

    def _uncertainty(self, total: OpStats) -> dict[str, Any]:
        """Relative 95 % half-widths, by where they come from."""
        iops = self.measured.window.iops()
        value = max(iops.value, 1e-300)
        out: dict[str, Any] = {"simulation": {"iops": (iops.high - iops.low) / 2 / value}}
        known = total.latency.percentiles.get(99.0)
        own = distribution(self.measured.window, None, LATENCY, stable=self.stable)
        if known and own is not None and "p99" in own.intervals:
            low, high = own.intervals["p99"]
            out["simulation"]["p99"] = (high - low) / 2 / known
        if self.calibration is not None:
            out["calibration"] = self.calibration.to_json()
        return out

    def _all_warnings(self, total: OpStats) -> tuple[str, ...]:
        out = [*self.ready.lowered.warnings, *self.measured.warnings, *self.warnings]
        if self.stable:
            read, write = self._op(0), self._op(1)
            ops = [("reads", read.latency), ("writes", write.latency)] if read and write else []
            out += tail_warnings([("requests", total.latency), *ops])
        return tuple(dict.fromkeys(out))


def offered(scenario: ResolvedScenario) -> float | None:
    """Requests per second that arrive by the clock; None for closed loops and replayed traces."""
    rates = [g.rate for g in scenario.workload]
    if any(rate is None for rate in rates):
        return None
    return sum(rate for rate in rates if rate is not None)
