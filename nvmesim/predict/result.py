"""Content of a prediction: the numbers, how sure they are, and why (the JSON of the interface)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nvmesim.drawing import Printable
from nvmesim.files import plain_json
from nvmesim.measure.figures import (
    Cpu,
    Interval,
    MemberStats,
    OpStats,
    Rebuild,
    Relief,
    StationStats,
)
from nvmesim.measure.groups import GroupStats, OverTime
from nvmesim.measure.syncs import Syncs
from nvmesim.predict.crossing import Crossing, crossing
from nvmesim.predict.stragglers import Waits
from nvmesim.predict.uncertainty.domain import Outside
from nvmesim.predict.uncertainty.goal import Goal, goal_of
from nvmesim.predict.uncertainty.parts import Certainty
from nvmesim.warning import Warning, coded

Verdict = Literal["cpu", "drive", "link", "raid-engine", "limit", "latency-bound", "unstable"]
SCHEMA = 1


@dataclass(frozen=True)
class Bottleneck:
    """Verdict: the part that stops it."""

    verdict: Verdict
    sentence: str
    station: str | None
    kind: str | None
    utilization: float
    bound_iops: float
    """Largest throughput that the largest demand allows (asymptotic bound)."""
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Station -> its own bound, IOPS, least first."""
    reliefs: tuple[Relief, ...] = ()
    backlog_per_s: float | None = None
    """Open loop without steady state: requests by which the backlog grows each second."""


@dataclass(frozen=True)
class CurvePoint:
    """One point of throughput against outstanding requests, simulated."""

    outstanding: int
    iops: float
    mean_s: float
    p99_s: float | None


@dataclass(frozen=True, repr=False)
class Result(Printable):
    """A prediction."""

    scenario: str
    engine: str
    seed: int
    requests: int
    simulated_s: float
    wall_s: float
    warmup_s: float
    converged: bool
    total: OpStats
    read: OpStats | None
    write: OpStats | None
    members: tuple[MemberStats, ...]
    stations: tuple[StationStats, ...]
    cpu: Cpu
    bottleneck: Bottleneck
    outstanding: int
    """Requests in flight that the workload keeps (closed loop), or the mean in flight."""
    curve: tuple[CurvePoint, ...] = ()
    certainty: Certainty = field(default_factory=Certainty)
    """How far to trust it: the four parts of each interval."""
    outside: tuple[Outside, ...] = ()
    """Conditions of the load that the profiles were not captured under."""
    warnings: tuple[Warning, ...] = ()
    assumptions: tuple[str, ...] = ()
    version: str = ""
    resolved: Any = None
    """The `ResolvedScenario`, for pictures; not in the JSON."""
    rebuild: Rebuild | None = None
    sync: Syncs | None = None
    """Flushes that follow writes, if the load has any."""
    waits: Waits | None = None
    """Loss of a striped volume to its slowest member, if it was asked for."""
    groups: tuple[GroupStats, ...] = ()
    """Each workload group by itself."""
    over_time: OverTime | None = None
    """Throughput and latency slice by slice."""
    cpu_intervals: Mapping[str, Interval] = field(default_factory=dict)
    """Figure of ``cpu`` -> its 95 % interval; empty without certainty."""
    bound: Interval | None = None
    """The operational bound with its interval."""
    changes: tuple[str, ...] = ()
    """The ``--set`` values that the scenario's file was changed by."""

    @property
    def uncertainty(self) -> dict[str, Any]:
        """Relative 95 % half-widths by where they come from, as in the JSON."""
        return self.certainty.to_json()

    @property
    def goal(self) -> Goal | None:
        """The latency that the load should keep (slo), and how probable it is that it does."""
        return goal_of(self.resolved, self.total.latency)

    @property
    def crossing(self) -> Crossing | None:
        """Limits of a load that crosses sockets; None if nothing crosses."""
        if self.resolved is None:
            return None
        cpus = self.cpu.sockets
        return crossing(self.resolved.interconnect, self.stations, self.members, cpus)

    def __repr__(self) -> str:
        """Return one line: the scenario, its IOPS, the verdict."""
        iops = self.total.iops.value
        return f"<Result {self.scenario!r}: {iops:.0f} IOPS, {self.bottleneck.verdict}>"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `run --json` prints; what is not a finite number is None."""
        b = self.bottleneck
        found: dict[str, Any] = plain_json({
            "schema": SCHEMA,
            "nvmesim": self.version,
            "scenario": self.scenario,
            "changes": list(self.changes),
            "engine": self.engine,
            "seed": self.seed,
            "requests": self.requests,
            "simulated_s": self.simulated_s,
            "wall_s": self.wall_s,
            "warmup_s": self.warmup_s,
            "converged": self.converged,
            "total": self.total.to_json(),
            "read": self.read.to_json() if self.read else None,
            "write": self.write.to_json() if self.write else None,
            "members": [vars(m) for m in self.members],
            "stations": [vars(s) for s in self.stations],
            "cpu": {
                **vars(self.cpu), "sockets": [vars(s) for s in self.cpu.sockets],
                "intervals": {n: i.to_json() for n, i in self.cpu_intervals.items()},
            },
            "bottleneck": {
                "verdict": b.verdict,
                "sentence": b.sentence,
                "station": b.station,
                "kind": b.kind,
                "utilization": b.utilization,
                "bound_iops": b.bound_iops,
                "bound": self.bound.to_json() if self.bound else None,
                "bounds": dict(b.bounds),
                "backlog_per_s": b.backlog_per_s,
                "reliefs": [
                    {"change": r.change, "iops": r.iops.to_json(), "gain": r.gain,
                     "gain_low": r.gain_low, "gain_high": r.gain_high, "p_better": r.p_better,
                     "set": dict(r.set)}
                    for r in b.reliefs
                ],
            },
            "goal": goal.to_json() if (goal := self.goal) else None,
            "rebuild": self.rebuild.to_json() if self.rebuild else None,
            "sync": self.sync.to_json() if self.sync else None,
            "crossing": way.to_json() if (way := self.crossing) else None,
            "waits": self.waits.to_json() if self.waits else None,
            "groups": [g.to_json() for g in self.groups],
            "over_time": self.over_time.to_json() if self.over_time else None,
            "uncertainty": self.uncertainty,
            "outside": [item.to_json() for item in self.outside],
            "warnings": [w.to_json() for w in coded(self.warnings)],
            "assumptions": list(self.assumptions),
        })  # fmt: skip
        return found
