"""A measured run on its way to a `Result`: the what-ifs, and everything that a prediction says."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from nvmesim.errors import InputError
from nvmesim.measure.control import Measured, Progress
from nvmesim.measure.figures import Distribution, Interval, OpStats, Rebuild, Relief, rising
from nvmesim.measure.groups import GroupStats, group_stats, slices
from nvmesim.measure.latency import (
    CLAT,
    LATENCY,
    Bend,
    distribution,
    percentile_name,
    sync_stats,
    tail_warnings,
)
from nvmesim.measure.stations import Totals, cpu_stats, member_stats, rebuild_stats, station_stats
from nvmesim.predict import bottleneck
from nvmesim.predict.prepare import EngineFactory, Prepared
from nvmesim.predict.result import Bottleneck, CurvePoint, Result
from nvmesim.predict.uncertainty.certainty import (
    UncertaintyBudget,
    drive_share,
    drive_traffic,
    misfit_of,
    model_uncertainty,
    room,
)
from nvmesim.predict.uncertainty.derived import cpu_intervals, shown
from nvmesim.predict.uncertainty.design import Numbers
from nvmesim.predict.uncertainty.parts import FIGURES, NONE, Certainty, Parts, Span
from nvmesim.predict.uncertainty.standing import outside
from nvmesim.predict.what_ifs import WhatIfs
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S, format_bandwidth
from nvmesim.version import __version__
from nvmesim.warning import Warning, coded

CARRIED: Final = 0.99
"""Share of what rate limits allow from which on the load is carried."""
SPEED_LIMIT: Final = 0.97
"""Share of ``sync_speed_max`` from which on it is what holds a rebuild."""
STACK_CYCLES = (
    "the drive was captured by threads that paid {scale:.2f} times the cycles of {stack}; so do "
    "those of this load (calibrate --stack makes a stack of your own)"
)

SYNCHRONOUS = (
    "the drive was captured by threads that did no more at depth than one by one: they waited for "
    "each request (a synchronous engine, or a file that grows), and so do those of this load"
)


@dataclass
class RunAnswer:
    """A measured run on its way to a `Result`."""

    ready: Prepared
    measured: Measured
    reliefs: tuple[Relief, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    numbers: Numbers = field(default_factory=dict)
    known: UncertaintyBudget | None = None
    """None: intervals are the simulation's alone."""
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    sliced: bool = True
    spent_s: float = 0.0
    """Wall seconds of the measured run."""

    def __post_init__(self) -> None:
        window, growth = self.measured.window, self.measured.backlog_per_s or 0.0
        arrived = window.requests + round(growth * window.duration_ps / PS_PER_S)
        self.totals = replace(Totals.of(window), requests=arrived)
        self.stable = self.measured.backlog_per_s is None
        self.what_ifs = WhatIfs(self.ready, self.measured, self.totals, self.warnings)

    @cached_property
    def latency(self) -> Distribution | None:
        """Of all requests, as simulated; None if none completed."""
        return distribution(self.measured.window, None, LATENCY, stable=self.stable)

    def explore(self, reliefs: bool, curve: bool, numbers: bool, progress: Progress | None) -> None:
        """Simulate the what-ifs that were asked for."""
        if reliefs:
            self.reliefs = self.what_ifs.reliefs(progress)
        if curve:
            self.curve = self.what_ifs.curve(progress)
        if numbers:
            self.numbers = self.what_ifs.numbers(progress)

    def judge(self, without: str = "") -> UncertaintyBudget:
        """Learn what is beyond the simulation: the profiles' misfit, the model's error."""
        ready, found = self.ready, self._bottleneck()
        # errors were learned with full buffers among those that nothing limits
        verdict = "latency-bound" if found.kind == "gate" and self.stable else found.verdict
        traffic = drive_traffic(ready.lowered, self.totals)
        share = drive_share(ready.lowered, self.totals)
        known = model_uncertainty(ready.scenario, verdict, share, without, traffic)
        self.known = UncertaintyBudget(known, self.numbers, self._headroom())
        iops = self.measured.window.iops().value * math.exp(self.known.shift("iops"))
        self.known = replace(self.known, room=room(ready.scenario, iops))
        return self.known

    def shifts(self) -> Callable[[str], float]:
        """Return what `UncertaintyBudget.shift` says of a figure; nothing else is judged."""
        share = drive_share(self.ready.lowered, self.totals)
        is_carried = self._headroom() is not None

        def shift(figure: str) -> float:
            if figure == "iops" and is_carried:
                return 0.0
            return misfit_of(self.ready.scenario, figure, share).shift

        return shift

    def _headroom(self) -> float | None:
        """By how much the bound exceeds the rate of a load that states it and is carried."""
        if not self.stable:
            return None
        if self.ready.load.is_open:
            rate = offered(self.ready.scenario)
            return self._bottleneck().bound_iops / rate if rate else None
        rate = limited(self.ready.scenario)
        if not rate or self.measured.window.iops().value < CARRIED * rate:
            return None
        return self._bottleneck().bound_iops / rate

    def result(self, engine: str | EngineFactory, wall_s: float) -> Result:
        """Everything that a prediction says."""
        ready, window = self.ready, self.measured.window
        total = self._op(None)
        if total is None:
            raise InputError(f"{ready.name}: no request completed; nothing to report")
        lowered, totals, scenario = ready.lowered, self.totals, ready.scenario
        in_flight, known = ready.load.in_flight, self.known
        if ready.load.is_open:
            in_flight = round(total.iops.value * window.mean_latency_s(None).value)
        cpu, rebuild = cpu_stats(lowered, totals), rebuild_stats(lowered, totals)
        warnings = [*lowered.warnings, *self.measured.warnings, *self.warnings]
        warnings += tail_warnings(total.latency) if self.stable else []
        warnings += speed_limits(scenario, rebuild)
        if scenario.stack.scale != 1.0:
            said = STACK_CYCLES.format(stack=scenario.stack.name, scale=scenario.stack.scale)
            warnings.append(Warning("stack-cycles", said))
        if any(d.profile.captured and d.profile.captured.synchronous for d in scenario.drives):
            warnings.append(Warning("synchronous", SYNCHRONOUS))
        simulated = self._simulated()
        certainty = Certainty({name: Parts(simulation=span) for name, span in simulated.items()})
        if known is not None:
            certainty = replace(known, simulation=simulated).certainty(list(simulated))
        derived: dict[str, Any] = {}
        if known is not None and self.stable:
            found = self._bottleneck()
            bound = max(found.bound_iops, 1e-9)
            ends = replace(known.parts("iops"), simulation=NONE).around(bound)
            intervals = cpu_intervals(scenario, known, cpu, is_full=found.verdict == "cpu")
            derived = {"cpu_intervals": intervals, "bound": Interval(bound, *ends)}
        return Result(
            scenario=ready.name,
            engine=engine if isinstance(engine, str) else getattr(engine, "__name__", "own"),
            seed=ready.seed,
            requests=window.requests,
            simulated_s=window.duration_ps / PS_PER_S,
            wall_s=wall_s,
            warmup_s=window.warmup_ps / PS_PER_S,
            converged=self.measured.converged and not self.interrupted,
            total=total,
            read=self._op(0),
            write=self._op(1),
            members=member_stats(lowered, totals),
            stations=station_stats(lowered, totals),
            cpu=cpu,
            bottleneck=self._shown_bottleneck(total),
            outstanding=in_flight,
            curve=tuple(self._on_curve(point) for point in self.curve),
            certainty=certainty,
            outside=outside(scenario),
            warnings=coded(warnings),
            assumptions=lowered.assumptions,
            version=__version__,
            rebuild=rebuild,
            sync=sync_stats(window.total.syncs, window.duration_ps),
            groups=self._groups(),
            **derived,
            over_time=slices(lowered, window, self._bend()) if self.sliced else None,
            resolved=scenario,
        )  # fmt: skip

    def _groups(self) -> tuple[GroupStats, ...]:
        """Each workload group, moved as the total is, with the whole interval."""
        if not (self.stable and self.sliced and self.ready.scenario.workload):
            return ()
        found = group_stats(self.ready.lowered, self.measured.window, self.totals, self._bend())
        if len(found) == 1:  # its batches are the run's, not slices of it
            found = (replace(found[0], iops=self.measured.window.iops(None)),)
        if self.known is None:
            return found
        return tuple(
            replace(
                group, iops=self.whole_of(group.iops), mean_s=self._moved("mean", group.mean_s),
                percentiles=rising({n: v and self._moved(n, v)
                                    for n, v in group.percentiles.items()}),
            )
            for group in found
        )  # fmt: skip

    def _on_curve(self, point: CurvePoint) -> CurvePoint:
        """*point* moved as the answer is."""
        if self.known is None:
            return point
        return replace(
            point, iops=self._moved("iops", point.iops), mean_s=self._moved("mean", point.mean_s),
            p99_s=point.p99_s and self._moved("p99", point.p99_s),
        )  # fmt: skip

    def _op(self, operation: int | None) -> OpStats | None:
        window = self.measured.window
        latency = distribution(window, operation, LATENCY, stable=self.stable)
        clat = distribution(window, operation, CLAT, stable=self.stable)
        if latency is None or clat is None:
            return None
        return OpStats(
            iops=self.whole_of(window.iops(operation)),
            bytes_per_s=self.whole_of(window.bytes_per_s(operation)),
            count=int(latency.bin_count.sum()),
            latency=self._unsure(latency),
            clat=self._unsure(clat),
        )

    def _bottleneck(self, reliefs: tuple[Relief, ...] = ()) -> Bottleneck:
        ready = self.ready
        return bottleneck.judge(
            ready.lowered, self.totals,
            in_flight=0 if ready.load.is_open else ready.load.in_flight,
            reliefs=reliefs,
            backlog_per_s=self.measured.backlog_per_s,
            offered=offered(ready.scenario),
            left_out=ready.left_out,
        )  # fmt: skip

    def _shown_bottleneck(self, total: OpStats) -> Bottleneck:
        """The bottleneck, its reliefs about the printed IOPS, and no bound below those."""
        value, reliefs = total.iops.value, self.reliefs
        if self.known is not None:
            parts = self.known.parts("iops")
            reliefs = tuple(shown(relief, value, parts) for relief in reliefs)
        # The sentence names what helps in the simulation, with the IOPS of the table.
        of_pairs = zip(self.reliefs, reliefs, strict=True)
        found = self._bottleneck(tuple(replace(r, iops=s.iops) for r, s in of_pairs))
        return replace(found, reliefs=reliefs, bound_iops=max(found.bound_iops, value))

    def whole_of(self, interval: Interval) -> Interval:
        """*interval* moved by what profiles missed nearby, and as wide as all four parts."""
        if self.known is None or interval.value <= 0:
            return interval
        value = self._moved("iops", interval.value)
        parts = replace(self.known.parts("iops"), simulation=_span(interval))
        return Interval(value, *parts.around(value))

    def _unsure(self, latency: Distribution) -> Distribution:
        """*latency*, its figures moved and their intervals as wide as all four parts."""
        if self.known is None or not self.stable:
            return latency
        values = {percentile_name(q): v for q, v in latency.percentiles.items()}
        values["mean"] = latency.mean
        moved = {name: value and self._moved(name, value) for name, value in values.items()}
        wider = {}
        for name, span in latency.intervals.items():
            parts = self.known.parts(name if name in FIGURES else "p99.9")
            simulated = _span(Interval(values[name] or 0.0, *span))
            wider[name] = replace(parts, simulation=simulated).around(moved[name] or 0.0)
        percentiles = {q: moved[percentile_name(q)] for q in latency.percentiles}
        found = replace(latency, mean=moved["mean"] or 0.0, percentiles=percentiles,
                        intervals=wider).in_order()  # fmt: skip
        bend = Bend.of(latency.percentiles, found.percentiles)
        return replace(found, bin_s=bend(latency.bin_s), max=bend.one(latency.max))

    def _bend(self) -> Bend:
        """How far latencies of all requests are moved, ps."""
        if self.latency is None or self.known is None or not self.stable:
            return Bend.of({}, {})
        known = {q: v and v * PS_PER_S for q, v in self.latency.percentiles.items()}
        return Bend.of(known, {q: v and self._moved(percentile_name(q), v)
                               for q, v in known.items()})  # fmt: skip

    def level(self, figure: str) -> float | None:
        """Mean latency or p99 as it is printed, s; None where too few requests tell it."""
        if self.latency is None:
            return None
        latency = self._unsure(self.latency)
        return latency.mean if figure == "mean" else latency.percentiles.get(99.0)

    def parts_of(self, figure: str) -> Parts:
        """Return the four parts of *figure* as it is printed."""
        assert self.known is not None
        return replace(self.known, simulation=self._simulated()).parts(figure)

    def _moved(self, name: str, value: float) -> float:
        """*value* moved by what profiles missed nearby."""
        assert self.known is not None
        return value * math.exp(self.known.shift(name if name in FIGURES else "p99.9"))

    def _simulated(self) -> dict[str, Span]:
        """Figure -> what simulation alone leaves of it."""
        found = {"iops": _span(self.measured.window.iops())}
        own = self.latency
        if own is None or not self.stable:
            return found
        values = {percentile_name(q): v for q, v in own.percentiles.items()}
        values["mean"] = own.mean
        for name in FIGURES:
            if name in own.intervals and values.get(name):
                found[name] = _span(Interval(values[name] or 0.0, *own.intervals[name]))
        return found


def _span(interval: Interval) -> Span:
    """How far the logarithm may lie below and above; none where nothing was simulated."""
    value = interval.value
    if value <= 0:
        return 0.0, 0.0
    ends = (interval.low, interval.high)
    low, high = (abs(math.log(max(end, 1e-3 * value) / value)) for end in ends)
    return low, high


def limited(scenario: ResolvedScenario) -> float | None:
    """Requests per second that rate limits let threads send; None where some have none."""
    found = 0.0
    for g in scenario.workload:
        if g.rate_limit is None:
            return None
        apart = g.outstanding_per == "thread-target" and not g.threads_are_per_target
        found += g.rate_limit * g.n_threads * (len(g.targets) if apart else 1)
    return found


def offered(scenario: ResolvedScenario) -> float | None:
    """Requests per second that arrive by the clock; None for closed loops and replayed traces."""
    rates = [g.rate for g in scenario.workload]
    if not rates or any(rate is None for rate in rates):
        return None
    return sum(rate for rate in rates if rate is not None)


def speed_limits(scenario: ResolvedScenario, rebuild: Rebuild | None) -> list[Warning]:
    """Say that ``sync_speed_max`` of md, or a controller's own pace, holds *rebuild*."""
    if rebuild is None:
        return []
    volume = next(v for v in scenario.volumes if v.name == rebuild.volume)
    if rebuild.bytes_per_s < SPEED_LIMIT * volume.sync_speed_max:
        return []
    own, key = volume.engine.rebuild, f"volume.{volume.table}.sync_speed_max"
    more = f"raise {key} (md's default is 200,000 KiB/s) to know what they can"
    if own is not None and volume.sync_speed_max >= round(own.value):
        more = f"{volume.engine.name} restores no more"
    held = f"{format_bandwidth(volume.sync_speed_max)} of each member"
    text = f"{volume.name}: the rebuild is held at {held}, not by the drives: {more}"
    return [Warning("sync-speed-max", text, volume.name)]
