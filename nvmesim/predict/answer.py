"""A measured run on its way to a `Result`: the what-ifs, and everything that a prediction says."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from nvmesim.errors import InputError
from nvmesim.measure.control import Measured, Progress
from nvmesim.measure.figures import Cpu, Distribution, Interval, OpStats, Relief
from nvmesim.measure.groups import GroupStats, group_stats, slices
from nvmesim.measure.latency import CLAT, LATENCY, distribution, percentile_name, tail_warnings
from nvmesim.measure.stations import Totals, cpu_stats, member_stats, rebuild_stats, station_stats
from nvmesim.measure.syncs import sync_stats
from nvmesim.predict import bottleneck
from nvmesim.predict.prepare import EngineFactory, Prepared
from nvmesim.predict.rebuild_speed import speed_limits
from nvmesim.predict.result import Bottleneck, CurvePoint, Result
from nvmesim.predict.stragglers import Waits
from nvmesim.predict.uncertainty.certainty import UncertaintyBudget, drive_share, model_uncertainty
from nvmesim.predict.uncertainty.derived import bound_interval, cpu_intervals
from nvmesim.predict.uncertainty.design import Numbers
from nvmesim.predict.uncertainty.difference import shown
from nvmesim.predict.uncertainty.domain import outside
from nvmesim.predict.uncertainty.parts import FIGURES, Certainty, Parts, Span
from nvmesim.predict.what_ifs import WhatIfs
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S
from nvmesim.version import __version__
from nvmesim.warning import Warning, coded


@dataclass
class RunAnswer:
    """A measured run on its way to a `Result`."""

    ready: Prepared
    measured: Measured
    reliefs: tuple[Relief, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    waits: Waits | None = None
    numbers: Numbers | None = None
    known: UncertaintyBudget | None = None
    """None: intervals are the simulation's alone."""
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    sliced: bool = True
    _ops: dict[int | None, OpStats | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        window, growth = self.measured.window, self.measured.backlog_per_s or 0.0
        arrived = window.requests + round(growth * window.duration_ps / PS_PER_S)
        self.totals = replace(Totals.of(window), requests=arrived)
        self.stable = self.measured.backlog_per_s is None

    def explore(self, reliefs: bool, curve: bool, numbers: bool, progress: Progress | None) -> None:
        """Simulate the what-ifs that were asked for."""
        what_ifs = WhatIfs(self.ready, self.measured, self.totals, self.warnings)
        if reliefs:
            self.reliefs = what_ifs.reliefs(progress)
        if curve:
            self.curve = what_ifs.curve(progress)
        if numbers:
            self.numbers = what_ifs.numbers(progress)

    def judge(self, without: str = "") -> None:
        """Learn what is beyond the simulation: the profiles' misfit, the model's error."""
        lowered, load = self.ready.lowered, self.ready.load
        share = drive_share(lowered, self.totals)
        verdict = self._bottleneck().verdict
        known = model_uncertainty(self.ready.scenario, verdict, share, without)
        rate = offered(self.ready.scenario)
        headroom = None
        if load.is_open and self.stable and rate:
            headroom = self._bottleneck().bound_iops / rate
        self.known = UncertaintyBudget(known, self.numbers, headroom)

    def study_waits(self, progress: Progress | None, *, of_load: bool) -> None:
        """Simulate what a volume loses to its slowest member; *of_load*: under its load alone."""
        from nvmesim.predict.straggler_runs import study

        if progress is not None:
            progress("waiting for the slowest member", 0.0)
        self.waits = study(self.ready.scenario, self.ready.seed, of_load=of_load)

    def result(self, engine: str | EngineFactory, wall_s: float) -> Result:
        """Everything that a prediction says."""
        ready, window = self.ready, self.measured.window
        total = self._op(None)
        if total is None:
            raise InputError(f"{ready.name}: no request completed; nothing to report")
        converged = self.measured.converged and not self.interrupted
        cpu = cpu_stats(ready.lowered, self.totals)
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
            cpu=cpu,
            bottleneck=self._shown_bottleneck(total),
            outstanding=self._outstanding(total),
            curve=tuple(self._on_curve(point) for point in self.curve),
            certainty=self._certainty(),
            outside=outside(ready.scenario),
            warnings=self._all_warnings(total),
            assumptions=ready.lowered.assumptions,
            version=__version__,
            rebuild=rebuild_stats(ready.lowered, self.totals),
            sync=sync_stats(window.total.syncs, window.duration_ps),
            waits=self.waits,
            groups=self._groups(),
            **self._derived(cpu),
            over_time=slices(ready.lowered, window) if self.sliced else None,
            resolved=ready.scenario,
        )  # fmt: skip

    def _derived(self, cpu: Cpu) -> dict[str, Any]:
        """Intervals of what follows from other figures; none without certainty or steady state."""
        if self.known is None or not self.stable:
            return {}
        found = self._bottleneck()
        scenario, known = self.ready.scenario, self.known
        is_full = found.verdict == "cpu"
        return {
            "cpu_intervals": cpu_intervals(scenario, known, cpu, is_full=is_full),
            "bound": bound_interval(known, max(found.bound_iops, 1e-9)),
        }

    def _groups(self) -> tuple[GroupStats, ...]:
        if not (self.stable and self.sliced and self.ready.scenario.workload):
            return ()
        found = group_stats(self.ready.lowered, self.measured.window, self.totals)
        return found if self.known is None else tuple(self._of_group(group) for group in found)

    def _of_group(self, group: GroupStats) -> GroupStats:
        """*group* moved as the total is, with the whole interval."""
        percentiles = {n: v and v * math.exp(self._shift(n)) for n, v in group.percentiles.items()}
        mean_s = group.mean_s * math.exp(self._shift("mean"))
        iops = self.whole_of(group.iops)
        return replace(group, iops=iops, mean_s=mean_s, percentiles=percentiles)

    def _on_curve(self, point: CurvePoint) -> CurvePoint:
        """*point* moved as the answer is."""
        if self.known is None:
            return point
        mean_s = point.mean_s * math.exp(self._shift("mean"))
        p99_s = point.p99_s and point.p99_s * math.exp(self._shift("p99"))
        iops = point.iops * math.exp(self.known.shift("iops"))
        return replace(point, iops=iops, mean_s=mean_s, p99_s=p99_s)

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
        """The bottleneck, its reliefs about the printed IOPS, and no bound below those.

        A bound is one over a measured demand: in a short run it scatters as the demand does.
        """
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
        value = interval.value * math.exp(self.known.shift("iops"))
        parts = replace(self.known.parts("iops"), simulation=_span(interval))
        return Interval(value, *parts.around(value))

    def _unsure(self, latency: Distribution) -> Distribution:
        """*latency*, its figures moved and their intervals as wide as all four parts."""
        if self.known is None or not self.stable:
            return latency
        names = {percentile_name(q): q for q in latency.percentiles}
        values = {name: latency.percentiles[q] for name, q in names.items()}
        values["mean"] = latency.mean
        moved = {n: v and v * math.exp(self._shift(n)) for n, v in values.items()}
        wider = {
            name: self._around(name, values[name] or 0.0, moved[name] or 0.0, span)
            for name, span in latency.intervals.items()
        }
        percentiles = {q: moved[name] for name, q in names.items()}
        mean = moved["mean"]
        assert mean is not None
        return replace(latency, mean=mean, percentiles=percentiles, intervals=wider)

    def _shift(self, name: str) -> float:
        assert self.known is not None
        return self.known.shift(name if name in FIGURES else "p99.9")

    def _around(
        self, name: str, value: float, moved: float, span: tuple[float, float]
    ) -> tuple[float, float]:
        assert self.known is not None
        parts = self.known.parts(name if name in FIGURES else "p99.9")
        return replace(parts, simulation=_span(Interval(value, *span))).around(moved)

    def whole(self, operation: int | None) -> Interval:
        """IOPS of an operation with its whole interval."""
        return self.whole_of(self.measured.window.iops(operation))

    def warnings_of_run(self) -> list[str]:
        """Warnings of the scenario and of its run."""
        return [*self.ready.lowered.warnings, *self.measured.warnings]

    def _outstanding(self, total: OpStats) -> int:
        if not self.ready.load.is_open:
            return self.ready.load.in_flight
        mean = self.measured.window.mean_latency_s(None).value
        return round(total.iops.value * mean)

    def _certainty(self) -> Certainty:
        """The parts of each figure that the result has."""
        simulated = self._simulated()
        if self.known is None:
            return Certainty({name: Parts(simulation=span) for name, span in simulated.items()})
        known = replace(self.known, simulation=simulated)
        return known.certainty(list(simulated))

    def _simulated(self) -> dict[str, Span]:
        """Figure -> what simulation alone leaves of it."""
        window = self.measured.window
        found = {"iops": _span(window.iops())}
        own = distribution(window, None, LATENCY, stable=self.stable)
        if own is None or not self.stable:
            return found
        values = {percentile_name(q): v for q, v in own.percentiles.items()}
        values["mean"] = own.mean
        for name in FIGURES:
            if name in own.intervals and values.get(name):
                found[name] = _span(Interval(values[name] or 0.0, *own.intervals[name]))
        return found

    def _all_warnings(self, total: OpStats) -> tuple[Warning, ...]:
        out = [*self.ready.lowered.warnings, *self.measured.warnings, *self.warnings]
        if self.stable:
            out += tail_warnings(total.latency)
        out += speed_limits(self.ready.scenario, rebuild_stats(self.ready.lowered, self.totals))
        return coded(out)


def _span(interval: Interval) -> Span:
    """How far the logarithm may lie below and above; none where nothing was simulated."""
    value = interval.value
    if value <= 0:
        return 0.0, 0.0
    ends = (interval.low, interval.high)
    low, high = (abs(math.log(max(end, 1e-3 * value) / value)) for end in ends)
    return low, high


def offered(scenario: ResolvedScenario) -> float | None:
    """Requests per second that arrive by the clock; None for closed loops and replayed traces."""
    rates = [g.rate for g in scenario.workload]
    if not rates or any(rate is None for rate in rates):
        return None
    return sum(rate for rate in rates if rate is not None)
