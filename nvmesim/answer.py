"""A measured run on its way to a `Result`: the what-ifs, and everything that a prediction says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from nvmesim import __version__
from nvmesim.calibration_draws import Spread
from nvmesim.errors import InputError
from nvmesim.prepared import EngineFactory, Prepared
from nvmesim.result import bottleneck
from nvmesim.result.control import Measured, Progress
from nvmesim.result.groups import GroupStats, group_stats, slices
from nvmesim.result.latency import CLAT, LATENCY, distribution, percentile_name, tail_warnings
from nvmesim.result.result import (
    CurvePoint,
    Distribution,
    Interval,
    OpStats,
    Relief,
    Result,
)
from nvmesim.result.stations import Totals, cpu_stats, member_stats, rebuild_stats, station_stats
from nvmesim.result.syncs import sync_stats
from nvmesim.result.waiting import Waits
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.units import PS_PER_S
from nvmesim.whatifs import WhatIfs


@dataclass
class Answer:
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

    def explore(self, reliefs: bool, curve: bool, draws: int, progress: Progress | None) -> None:
        """Simulate the what-ifs that were asked for."""
        what_ifs = WhatIfs(self.ready, self.measured, self.totals, self.warnings)
        if reliefs:
            self.reliefs = what_ifs.reliefs(progress)
        if curve:
            self.curve = what_ifs.curve(progress)
        self.calibration = what_ifs.draws(draws, progress)

    def study_waits(self, progress: Progress | None) -> None:
        """Simulate what a striped volume loses to its slowest member."""
        from nvmesim.waiting import study

        if progress is not None:
            progress("waiting for the slowest member", 0.0)
        self.waits = study(self.ready.scenario, self.ready.seed)

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
