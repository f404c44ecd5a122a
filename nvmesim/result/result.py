"""What a prediction says: the numbers, how sure they are, and why (the JSON of the interface)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from nvmesim.result.crossing import Crossing, crossing
from nvmesim.result.syncs import Syncs
from nvmesim.result.waiting import Waits

if TYPE_CHECKING:
    from nvmesim.result.groups import GroupStats, OverTime

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
Verdict = Literal["cpu", "drive", "link", "raid-engine", "limit", "latency-bound", "unstable"]
SCHEMA = 1


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Return {"value", "low", "high"}."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Distribution:
    """A latency distribution, s; a percentile with too few samples beyond it is None."""

    mean: float
    max: float
    percentiles: Mapping[float, float | None]
    intervals: Mapping[str, tuple[float, float]]
    """"mean", "p50", ... -> (low, high)."""
    bin_s: npt.NDArray[np.float64]
    """float64[n]: middles of the non-empty bins."""
    bin_count: npt.NDArray[np.int64]
    """int64[n]"""

    def to_json(self) -> dict[str, float | None]:
        """Return mean, p50, ..., max."""
        named = {f"p{p:g}": v for p, v in self.percentiles.items()}
        return {"mean": self.mean, **named, "max": self.max}


@dataclass(frozen=True)
class OpStats:
    """What reads, writes or both did."""

    iops: Interval
    bytes_per_s: Interval
    count: int
    latency: Distribution
    """From submission by the application to completion seen by it."""
    clat: Distribution
    """fio's completion latency: without the submission itself."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of the interface."""
        return {
            "iops": self.iops.to_json(),
            "bytes_per_s": self.bytes_per_s.to_json(),
            "latency_s": self.latency.to_json(),
            "clat_s": self.clat.to_json(),
            "latency_ci_s": {k: list(v) for k, v in self.latency.intervals.items()},
        }


@dataclass(frozen=True)
class MemberStats:
    """What one drive did, per volume request (or per request of any target for JBOD)."""

    name: str
    reads_per_request: float
    writes_per_request: float
    read_bios_per_request: float
    write_bios_per_request: float
    read_bytes_per_request: float
    write_bytes_per_request: float
    utilization: float


@dataclass(frozen=True)
class Rebuild:
    """A rebuild beside the load: how fast, and how long for the whole member at this load."""

    volume: str
    drive: str | None
    """Being restored; None: a check of all members."""
    bytes_per_s: float
    hours: float
    """inf if it does not advance (null in the JSON)."""

    def to_json(self) -> dict[str, Any]:
        """Return volume, drive, bytes_per_s, hours."""
        return {**vars(self), "hours": self.hours if self.hours < float("inf") else None}


@dataclass(frozen=True)
class StationStats:
    """One station along the path."""

    name: str
    kind: str
    servers: int
    utilization: float
    wait_mean_s: float
    service_mean_s: float
    visits_per_request: float
    resource: str = ""
    drive: int | None = None
    socket: int | None = None
    adapter: int | None = None


@dataclass(frozen=True)
class SocketCpu:
    """CPU of one socket."""

    name: str
    logical_utilization: float
    physical_utilization: float
    ghz: float
    cores: int
    threads_per_core: int


@dataclass(frozen=True)
class Cpu:
    """CPU of the whole server."""

    logical_utilization: float
    """What the operating system would show."""
    physical_utilization: float
    """Share of the work the cores could do, SMT yield counted."""
    cycles_per_io: float
    ghz_per_miops: float
    sockets: tuple[SocketCpu, ...]


@dataclass(frozen=True)
class Relief:
    """A change, simulated again with the same random numbers."""

    change: str
    iops: Interval
    gain: float
    """Relative: 0.1 is 10 % more."""
    gain_low: float
    gain_high: float


@dataclass(frozen=True)
class Bottleneck:
    """What stops it."""

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
class Result:
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
    uncertainty: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    version: str = ""
    resolved: Any = None
    """The `ResolvedScenario`, for pictures; not in the JSON."""
    rebuild: Rebuild | None = None
    sync: Syncs | None = None
    """Flushes that follow writes, if the load has any."""
    waits: Waits | None = None
    """What a striped volume loses to its slowest member, if it was asked for."""
    groups: tuple[GroupStats, ...] = ()
    """Each workload group by itself."""
    over_time: OverTime | None = None
    """Throughput and latency slice by slice."""
    changes: tuple[str, ...] = ()
    """The ``--set`` values that the scenario's file was changed by."""

    @property
    def crossing(self) -> Crossing | None:
        """What binds a load that crosses sockets, and what does not; None if nothing crosses."""
        return crossing(self)

    def chart(self) -> Any:
        """All charts of this result (Altair)."""
        from nvmesim.result.charts import chart

        return chart(self)

    def __repr__(self) -> str:
        """Return one line: the scenario, its IOPS, the verdict."""
        iops = self.total.iops.value
        return f"<Result {self.scenario!r}: {iops:.0f} IOPS, {self.bottleneck.verdict}>"

    def __str__(self) -> str:
        """What `nvmesim run` prints."""
        from rich.console import Console

        from nvmesim.result.terminal import result_view

        console = Console(width=120, color_system=None, record=False)
        with console.capture() as said:
            console.print(result_view(self))
        return "\n".join(line.rstrip() for line in said.get().splitlines())

    def _repr_html_(self) -> str:
        """What a notebook shows: numbers, reason, server."""
        from nvmesim.result.report import fragment

        return fragment(self)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `run --json` prints."""
        b = self.bottleneck
        return {
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
            "cpu": {**vars(self.cpu), "sockets": [vars(s) for s in self.cpu.sockets]},
            "bottleneck": {
                "verdict": b.verdict,
                "sentence": b.sentence,
                "station": b.station,
                "kind": b.kind,
                "utilization": b.utilization,
                "bound_iops": b.bound_iops,
                "bounds": dict(b.bounds),
                "backlog_per_s": b.backlog_per_s,
                "reliefs": [
                    {"change": r.change, "iops": r.iops.to_json(), "gain": r.gain,
                     "gain_low": r.gain_low, "gain_high": r.gain_high}
                    for r in b.reliefs
                ],
            },
            "rebuild": self.rebuild.to_json() if self.rebuild else None,
            "sync": self.sync.to_json() if self.sync else None,
            "crossing": found.to_json() if (found := self.crossing) else None,
            "waits": self.waits.to_json() if self.waits else None,
            "groups": [g.to_json() for g in self.groups],
            "over_time": self.over_time.to_json() if self.over_time else None,
            "uncertainty": dict(self.uncertainty),
            "warnings": list(self.warnings),
            "assumptions": list(self.assumptions),
        }  # fmt: skip
