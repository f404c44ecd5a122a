"""Content of a prediction: the numbers, how sure they are, and why (the JSON of the interface)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from nvmesim.catalog.links import LINE_BYTES
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
from nvmesim.measure.latency import Syncs
from nvmesim.predict.changes import price, watts
from nvmesim.predict.uncertainty.derived import Goal, goal_of, probability
from nvmesim.predict.uncertainty.parts import Certainty
from nvmesim.predict.uncertainty.standing import Outside
from nvmesim.scenario.resolved import Interconnect
from nvmesim.scenario.volumes import usable_bytes
from nvmesim.units import percent
from nvmesim.warning import Warning, coded

Verdict = Literal["cpu", "drive", "link", "raid-engine", "limit", "latency-bound", "unstable"]
SCHEMA = 1
FULL: Final = 0.90
"""Utilization above which a station is what stops it."""


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
    fullest: str = ""
    """What *station* is, as the sentence calls it; empty where there is none."""


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
        goal, growth = goal_of(self.resolved, self.total.latency), self.bottleneck.backlog_per_s
        if goal is None or growth is None:
            return goal
        iops = self.total.iops  # a backlog ends once more is carried than comes
        return replace(goal, probability=probability(iops, iops.value + growth, at_least=True))

    @property
    def usable_bytes(self) -> int | None:
        """Bytes that its volumes and the drives of none hold."""
        return None if self.resolved is None else usable_bytes(self.resolved)

    @property
    def watts(self) -> float | None:
        """W of its drives and CPUs at work; None if the profile of one does not say it."""
        return None if self.resolved is None else watts(self.resolved)

    @property
    def price(self) -> float | None:
        """List price of its drives and CPUs; None if the profile of one does not say it."""
        return None if self.resolved is None else price(self.resolved)

    @property
    def crossing(self) -> Crossing | None:
        """Limits of a load that crosses sockets; None if nothing crosses."""
        return None if self.resolved is None else crossing(self.resolved.interconnect, self)

    def __repr__(self) -> str:
        """Return one line: the scenario, its IOPS, the verdict."""
        iops = self.total.iops.value
        return f"<Result {self.scenario!r}: {iops:.0f} IOPS, {self.bottleneck.verdict}>"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `run --json` prints; what is not a finite number is None."""
        plain = (  # waits, of an earlier version, is null
            "scenario", "changes", "engine", "seed", "requests", "simulated_s", "wall_s",
            "warmup_s", "converged", "total", "read", "write", "members", "stations", "cpu",
            "bottleneck", "goal", "rebuild", "sync", "crossing", "waits", "groups", "over_time",
            "uncertainty", "outside", "warnings", "assumptions", "usable_bytes", "watts", "price",
        )  # fmt: skip
        stop = (
            "verdict", "sentence", "station", "kind", "utilization", "bound_iops", "bound",
            "bounds", "backlog_per_s", "reliefs",
        )  # fmt: skip
        bottleneck = {**vars(self.bottleneck), "bound": self.bound}
        found: dict[str, Any] = plain_json({
            "schema": SCHEMA, "nvmesim": self.version,
            **{key: getattr(self, key, None) for key in plain},
            "cpu": {**vars(self.cpu), "intervals": self.cpu_intervals},
            "bottleneck": {key: bottleneck[key] for key in stop},
            "warnings": coded(self.warnings),
        })  # fmt: skip
        return found


@dataclass(frozen=True)
class Suspect:
    """One thing that could bind, how full it is, and what is counted."""

    name: str
    """As "wire", "credits", "cycles", "memory", "drive" or "lock"."""
    utilization: float
    station: str = ""

    @property
    def binds(self) -> bool:
        """True if it is full."""
        return self.utilization > FULL

    def to_json(self) -> dict[str, Any]:
        """Return an object of `run --json`."""
        found = {"name": self.name, "utilization": self.utilization, "binds": self.binds}
        return {**found, "station": self.station or None}


@dataclass(frozen=True)
class Crossing:
    """Traffic between sockets: what binds it of drive, wire, credits, cycles, memory and locks."""

    bytes_per_s: float
    """Over the fullest direction of the links, messages included."""
    wire_bytes_per_s: float
    """Load of that direction."""
    lines_under_way: float
    """Cache lines between the sockets at a time, on average: fewer credits than that would bind."""
    suspects: tuple[Suspect, ...]

    def sentence(self) -> str:
        """The limit and what is excluded, in one line."""
        named = {s.name: f"{s.name} ({percent(s.utilization)})" for s in self.suspects}
        full = [named[s.name] for s in self.suspects if s.binds]
        rest = [named[s.name] for s in self.suspects if not s.binds]
        moved = f"{self.bytes_per_s / 1e9:.3g} of {self.wire_bytes_per_s / 1e9:.3g} GB/s cross"
        verdict = f"bound by {' and '.join(full)}" if full else "none of them binds"
        lines = f"{self.lines_under_way:.2g} cache lines in flight"
        return f"{moved} ({lines}); {verdict}; excluded: {', '.join(rest)}"


def crossing(joined: Interconnect | None, result: Result) -> Crossing | None:
    """Return what a run says of the way between sockets, *joined*; None if nothing crosses."""
    links = [s for s in result.stations if s.resource == "interconnect" and s.utilization > 0]
    locks = [s for s in result.stations if s.kind == "lock"]
    memory = [s for s in result.stations if s.resource == "memory"]
    if joined is None or not (links or locks):
        return None

    def fullest(name: str, stations: Sequence[StationStats]) -> list[Suspect]:
        most = max(stations, key=lambda s: s.utilization, default=None)
        return [Suspect(name, most.utilization, most.name)] if most else []

    wire = joined.link.raw_bytes_per_s * joined.efficiency
    wires = fullest("wire", links) or [Suspect("wire", 0.0)]
    if joined.credits is not None and joined.latency_ps:
        # A direction that is held by its credits moves fewer bytes than it could.
        per_line = max(LINE_BYTES / wire, 2 * joined.latency_ps * 1e-12 / joined.credits)
        full = float(wires[0].utilization * (LINE_BYTES / per_line) / wire)
        wires = [replace(wires[0], utilization=full)]
    full = wires[0].utilization
    lines = full * wire / LINE_BYTES * 2 * joined.latency_ps * 1e-12
    cycles = max((c.logical_utilization for c in result.cpu.sockets), default=0.0)
    suspects = [
        *wires,
        *([Suspect("credits", lines / joined.credits)] if joined.credits else []),
        Suspect("cycles", cycles),
        *fullest("memory", memory),
        Suspect("drive", max((m.utilization for m in result.members), default=0.0)),
        *fullest("lock", locks),
    ]
    return Crossing(full * wire, wire, lines, tuple(suspects))
