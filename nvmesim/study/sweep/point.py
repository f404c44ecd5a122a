"""One point of a sweep: a scenario as tables in, one flat row of plain values out."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from nvmesim.errors import NvmesimError
from nvmesim.measure.control import MAX_REQUESTS
from nvmesim.measure.figures import OpStats
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import EngineFactory, simulate
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.sweep.cache import PointCache
from nvmesim.study.sweep.content import content_of
from nvmesim.warning import has

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
    certainty: bool = True
    """True if intervals hold all four parts, or the simulation's alone."""

    def plain(self) -> dict[str, Any]:
        """Return what a point's numbers depend on."""
        values = asdict(self)
        del values["cache"]
        values["engine"] = self.engine if isinstance(self.engine, str) else str(self.engine)
        return values


@dataclass(frozen=True)
class SweepJob:
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
    def from_text(cls, text: str) -> SweepJob:
        """Return the job that `to_text` wrote."""
        number, tables, base, settings = json.loads(text)
        return cls(number, tables, base, Settings(**settings))


@dataclass(frozen=True)
class PointAnswer:
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
    def from_text(cls, text: str) -> PointAnswer:
        """Return the answer that `to_text` wrote; names of columns are held once for all."""
        number, row, *rest = json.loads(text)
        return cls(number, {sys.intern(k): v for k, v in row.items()}, *rest)


def answer(job: SweepJob) -> PointAnswer:
    """Simulate *job*, or find it in the cache; an input that cannot be gives an ``error``."""
    started = time.perf_counter()
    cached = False
    try:
        scenario = resolve(scenario_from_dict(job.tables, job.base))
        row, cached = row_of(scenario, job.settings)
    except NvmesimError as error:
        row = {"error": " ".join(str(error).split())}
    return PointAnswer(job.number, row, time.perf_counter() - started, cached)


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
    """Simulate as `nvmesim run` does, without what-ifs; Ctrl-C is raised."""
    result = simulate(
        scenario, engine=settings.engine, seed=settings.seed, precision=settings.precision,
        requests=settings.requests, max_requests=settings.max_requests, reliefs=False,
        over_time=False, certainty=settings.certainty,
    )  # fmt: skip
    if has(result.warnings, "interrupted"):
        raise KeyboardInterrupt
    return result


def _warnings(result: Result) -> str | None:
    """Return what a row says; a percentile with too few samples is empty, which says it."""
    return "; ".join(w for w in result.warnings if w.code != "few-samples") or None


def columns(result: Result) -> dict[str, Any]:
    """Return the row of *result*: latencies in us, from submission to completion."""
    cpu, stop = result.cpu, result.bottleneck
    row: dict[str, Any] = {
        **_interval("iops", result.total.iops),
        "bytes_per_s": result.total.bytes_per_s.value,
        **_latency(result.total, ""),
        **_operation(result.read, "read_"),
        **_operation(result.write, "write_"),
        **_simulated(result),
        "outside": "; ".join(map(str, result.outside)) or None,
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
        "warnings": _warnings(result),
        "assumptions": len(result.assumptions),
        "error": None,
    }
    return {key: _finite(value) for key, value in row.items()}


def _interval(name: str, interval: Any) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _simulated(result: Result) -> dict[str, float | None]:
    """Half-widths of IOPS and p99 by simulation alone, relative, 95 %."""
    out: dict[str, float | None] = {}
    for figure, name in (("iops", "iops_simulation"), ("p99", "lat_p99_simulation")):
        parts = result.certainty.figures.get(figure)
        out[name] = None if parts is None else math.expm1(max(parts.simulation))
    return out


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


__all__ = ["PointAnswer", "Settings", "SweepJob", "answer", "columns", "predict", "row_of"]
