"""One point of a sweep: a scenario as tables in, one flat row of plain values out."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from nvmesim.errors import NvmesimError
from nvmesim.result.control import MIN_REQUESTS, TAIL_FACTOR
from nvmesim.result.result import OpStats, Result
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.simulate import EngineFactory, simulate
from nvmesim.sweep.cache import PointCache
from nvmesim.sweep.content import content_of

MAX_REQUESTS: Final = 4_000_000
"""Of one point: a sweep must go on where one run would be patient."""
FEW_REQUESTS: Final = 40_000
ROUNDS: Final = 40
"""A first, short run of a closed loop completes what is in flight so many times at least."""
DOUBTS: Final = ("warm-up may not have been over", "still filling", "close to the bound")
"""Parts of warnings after which a short run is not taken."""
OVERLOAD: Final = 0.1
"""Share of what arrives that stays behind, from which a short run settles that it does."""
KINDS: Final = ("cpu", "thread", "raid-engine", "link", "drive")
PERCENTILES: Final = {50.0: "p50", 90.0: "p90", 99.0: "p99", 99.9: "p99_9", 99.99: "p99_99"}


@dataclass(frozen=True)
class Settings:
    """How each point is simulated; None: as its scenario says."""

    engine: str | EngineFactory = "compiled"
    seed: int | None = None
    precision: float | None = None
    requests: int | None = None
    max_requests: int = MAX_REQUESTS
    cache: bool = True

    def plain(self) -> dict[str, Any]:
        """Return what a point's numbers depend on."""
        values = asdict(self)
        del values["cache"]
        values["engine"] = self.engine if isinstance(self.engine, str) else str(self.engine)
        return values


@dataclass(frozen=True)
class Job:
    """One point, ready to be sent to a worker as JSON."""

    number: int
    tables: Mapping[str, Any]
    base: str
    settings: Settings

    def to_text(self) -> str:
        """Return one line of JSON."""
        settings = {**self.settings.plain(), "cache": self.settings.cache}
        return json.dumps([self.number, self.tables, self.base, settings])

    @classmethod
    def from_text(cls, text: str) -> Job:
        """Return the job that `to_text` wrote."""
        number, tables, base, settings = json.loads(text)
        return cls(number, tables, base, Settings(**settings))


@dataclass(frozen=True)
class Answer:
    """A point's row, or the reason that there is none in its ``error``."""

    number: int
    row: dict[str, Any]
    wall_s: float
    cached: bool = False
    died: bool = False
    """The worker died of it: the answer is not kept, a resumed sweep tries again."""

    def to_text(self) -> str:
        """Return one line of JSON."""
        return json.dumps([self.number, self.row, self.wall_s, self.cached, self.died])

    @classmethod
    def from_text(cls, text: str) -> Answer:
        """Return the answer that `to_text` wrote; names of columns are held once for all."""
        number, row, *rest = json.loads(text)
        return cls(number, {sys.intern(k): v for k, v in row.items()}, *rest)


def answer(job: Job) -> Answer:
    """Simulate *job*, or find it in the cache; an input that cannot be gives an ``error``."""
    started = time.perf_counter()
    cached = False
    try:
        scenario = resolve(scenario_from_dict(job.tables, job.base))
        row, cached = row_of(scenario, job.settings)
    except NvmesimError as error:
        row = {"error": " ".join(str(error).split())}
    return Answer(job.number, row, time.perf_counter() - started, cached)


def row_of(scenario: ResolvedScenario, settings: Settings) -> tuple[dict[str, Any], bool]:
    """Return the row of *scenario*, and whether it came from the cache."""
    cache = PointCache() if settings.cache and isinstance(settings.engine, str) else None
    key = content_of([scenario, settings.plain()]) if cache else ""
    found = cache.get(key) if cache else None
    if found is not None:
        return found, True
    row = columns(predict(scenario, settings))
    if cache is not None:
        cache.put(key, row)
    return row, False


def predict(scenario: ResolvedScenario, settings: Settings) -> Result:
    """Simulate without what-ifs, no longer than the precision needs; Ctrl-C is raised.

    `nvmesim run` measures 200,000 requests at least. A point of a sweep is first simulated with
    fewer and taken if its intervals are narrow enough already and nothing speaks against it.
    """
    few, share = _few(scenario, settings)
    if few:
        result = _simulated(scenario, replace(settings, requests=few))
        if _is_precise(result, share) or _is_overloaded(result):
            return result
    return _simulated(scenario, settings)


def _few(scenario: ResolvedScenario, settings: Settings) -> tuple[int, float]:
    """Requests of a first, short run and the precision asked for; 0: no precision is asked."""
    share = settings.precision or scenario.run.precision
    if settings.requests or share is None or any(g.trace for g in scenario.workload):
        return 0, 0.0
    in_flight = sum(g.in_flight for g in scenario.workload if not g.is_open)
    few = max(FEW_REQUESTS, ROUNDS * in_flight)
    return (few, share) if few < MIN_REQUESTS else (0, 0.0)


def _is_precise(result: Result, share: float) -> bool:
    """Whether IOPS and p99 are within *share* and five times *share*, in a steady state."""
    iops, p99 = result.total.iops, result.total.latency.percentiles.get(99.0)
    low, high = result.total.latency.intervals.get("p99", (0.0, 0.0))
    if p99 is None or high <= low or result.bottleneck.verdict == "unstable":
        return False
    if any(doubt in text for text in result.warnings for doubt in DOUBTS):
        return False
    widest = max((iops.high - iops.low) / iops.value, (high - low) / p99 / TAIL_FACTOR)
    return widest / 2 <= share


def _is_overloaded(result: Result) -> bool:
    """Whether an open loop is so far beyond what is carried that a longer run says the same."""
    growth = result.bottleneck.backlog_per_s
    return growth is not None and growth > OVERLOAD * (growth + result.total.iops.value)


def _simulated(scenario: ResolvedScenario, settings: Settings) -> Result:
    result = simulate(
        scenario, engine=settings.engine, seed=settings.seed, precision=settings.precision,
        requests=settings.requests, max_requests=settings.max_requests, reliefs=False,
        over_time=False,
    )  # fmt: skip
    if any(w.startswith("interrupted") for w in result.warnings):
        raise KeyboardInterrupt
    return result


def columns(result: Result) -> dict[str, Any]:
    """Return the row of *result*: latencies in us, from submission to completion."""
    cpu, stop = result.cpu, result.bottleneck
    row: dict[str, Any] = {
        **_interval("iops", result.total.iops),
        "bytes_per_s": result.total.bytes_per_s.value,
        **_latency(result.total, ""),
        **_operation(result.read, "read_"),
        **_operation(result.write, "write_"),
        "cpu_logical": cpu.logical_utilization,
        "cpu_physical": cpu.physical_utilization,
        "cycles_per_io": cpu.cycles_per_io,
        "ghz_per_miops": cpu.ghz_per_miops,
        "verdict": stop.verdict,
        "station": stop.station,
        "utilization": stop.utilization,
        "bound_iops": stop.bound_iops,
        "backlog_per_s": stop.backlog_per_s,
        "outstanding": result.outstanding,
        **_busy(result),
        "requests": result.requests,
        "converged": result.converged,
        "warnings": "; ".join(result.warnings) or None,
        "assumptions": len(result.assumptions),
        "error": None,
    }
    return {key: _finite(value) for key, value in row.items()}


def _interval(name: str, interval: Any) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _latency(stats: OpStats, prefix: str) -> dict[str, float | None]:
    found = stats.latency
    out: dict[str, float | None] = {f"{prefix}lat_mean_us": found.mean * 1e6}
    for p, name in PERCENTILES.items():
        value = found.percentiles.get(p)
        out[f"{prefix}lat_{name}_us"] = None if value is None else value * 1e6
    if not prefix:
        low, high = found.intervals.get("p99", (None, None))
        out["lat_p99_low_us"] = None if low is None else low * 1e6
        out["lat_p99_high_us"] = None if high is None else high * 1e6
        out["lat_max_us"] = found.max * 1e6
    return out


def _operation(stats: OpStats | None, prefix: str) -> dict[str, float | None]:
    if stats is None:
        return {}
    iops = stats.iops.value
    latency = _latency(stats, prefix)
    kept = ("lat_mean_us", "lat_p50_us", "lat_p99_us", "lat_p99_9_us")
    return {f"{prefix}iops": iops, **{prefix + k: latency[prefix + k] for k in kept}}


def _busy(result: Result) -> dict[str, float | None]:
    """Utilization of the fullest station of each kind."""
    out: dict[str, float | None] = {}
    for kind in KINDS:
        found = [s.utilization for s in result.stations if s.kind == kind]
        out[f"busy_{kind.replace('-', '_')}"] = max(found, default=None)
    return out


def _finite(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


__all__ = ["Answer", "Job", "Settings", "answer", "columns", "predict", "row_of"]
