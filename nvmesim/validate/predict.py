"""The metrics of one configuration: simulated, from the link model, or from sizing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from nvmesim.catalog.links import command_ceiling, parse_link
from nvmesim.errors import InputError
from nvmesim.result.result import Result
from nvmesim.scenario.load import apply_sets, scenario_from_dict
from nvmesim.simulate import simulate
from nvmesim.validate.published import Config
from nvmesim.validate.question import Key, Question

REQUESTS: Final = 120_000
"""Requests of one simulation; their own interval is part of the predicted one."""
MIB: Final = 2**20


Change = tuple[str, str]
"""(glob of the configurations that it concerns, "key=value")"""


@dataclass(frozen=True)
class Value:
    """A predicted number with the half-width that simulating it leaves."""

    value: float
    half: float = 0.0
    verdict: str = ""


@dataclass
class Predictor:
    """Predicts the configurations of a question under given changes; each simulated once."""

    question: Question
    changes: tuple[Change, ...] = ()
    requests: int = REQUESTS
    seen: dict[tuple[object, ...], Result] = field(default_factory=dict)
    """What has been simulated, shared between predictors of one question."""

    def value(self, key: Key) -> Value:
        """Return the metric that *key* asks for."""
        config, metric, reference = key
        found = self.question.configs[config]
        if found.kind == "ceiling":
            return Value(command_ceiling(parse_link(found.link), "read", 4096), verdict="link")
        if found.kind == "sizing":
            return Value(self._sizing(config, found, metric), verdict="cpu")
        result = self.result(config)
        if reference:
            return _compared(metric, result, self.result(reference))
        return measure(metric, result)

    def result(self, config: str) -> Result:
        """Return the simulation of *config*."""
        sets = self._sets(config)
        key = (*sets, self.requests)
        if key not in self.seen:
            tables = apply_sets(self.question.scenario, sets)
            scenario = scenario_from_dict(tables, base=self.question.folder)
            requests = scenario.run.requests or self.requests
            self.seen[key] = simulate(scenario, reliefs=False, requests=requests)
        return self.seen[key]

    def _sets(self, config: str) -> tuple[str, ...]:
        mine = [text for only, text in self.changes if fnmatchcase(config, only)]
        return (*self.question.configs[config].set, *mine)

    def tables(self, config: str) -> dict[str, Any]:
        """Return the scenario of *config* with all changes in place."""
        return apply_sets(self.question.scenario, self._sets(config))

    def _sizing(self, name: str, config: Config, metric: str) -> float:
        from nvmesim.catalog.load import load
        from nvmesim.catalog.profile import StackProfile
        from nvmesim.sizing import size_cpu

        tables = self.tables(name)
        stack = load("stack", tables["server"]["stack"], self.question.folder)
        assert isinstance(stack, StackProfile)
        sizing = size_cpu(config.iops, 0.5, stack, cpus=[config.cpu])
        if metric == "carries":
            chosen = next(c for c in sizing.cpus if c.sockets == config.sockets)
            return float(chosen.carries)
        values: Mapping[str, float] = {"ghz_per_miops": sizing.ghz_per_miops, "ghz": sizing.ghz}
        if metric not in values:
            raise InputError(f"a sizing has no {metric}; ghz_per_miops, ghz or carries")
        return values[metric]


def measure(metric: str, result: Result) -> Value:
    """Return one metric of a simulated result."""
    base, _, which = metric.partition(":")
    total, verdict = result.total, result.bottleneck.verdict
    half = (total.iops.high - total.iops.low) / 2
    if base == "iops":
        return Value(total.iops.value, half, verdict)
    if base == "mib_per_s":
        half = (total.bytes_per_s.high - total.bytes_per_s.low) / 2 / MIB
        return Value(total.bytes_per_s.value / MIB, half, verdict)
    if base == "cpu_pct":
        return Value(100 * result.cpu.logical_utilization, 0.0, verdict)
    if base == "thread_cpu_pct":
        return Value(_thread_cpu(result), 0.0, verdict)
    if base == "busy_pct":
        return Value(_busy(result, int(which or 0)), 0.0, verdict)
    return _latency(base, result, verdict)


def _latency(name: str, result: Result, verdict: str) -> Value:
    if name in ("lat_mean_us", "latency_ms"):
        scale = 1e6 if name == "lat_mean_us" else 1e3
        low, high = result.total.latency.intervals.get("mean", (0.0, 0.0))
        return Value(result.total.latency.mean * scale, (high - low) / 2 * scale, verdict)
    percent = {"clat_p50_us": 50.0, "clat_p99_us": 99.0, "clat_p99_9_us": 99.9}[name]
    clat = result.total.clat
    found = clat.percentiles.get(percent)
    if found is None:  # too few samples to report it with a run; the bins still say about where
        beyond = np.cumsum(clat.bin_count) >= percent / 100 * clat.bin_count.sum()
        found = float(clat.bin_s[int(np.argmax(beyond))])
    low, high = clat.intervals.get(f"p{percent:g}", (found, found))
    return Value(found * 1e6, (high - low) / 2 * 1e6, verdict)


def _thread_cpu(result: Result) -> float:
    """Busy time of the CPU, % of one logical CPU per submitting thread."""
    scenario = result.resolved
    busy = sum(s.logical_utilization * s.cores * s.threads_per_core for s in result.cpu.sockets)
    threads = sum(group.n_threads for group in scenario.workload)
    return 100 * float(busy) / int(threads)


def _busy(result: Result, drive: int) -> float:
    """Share of the time that a drive has work, by its own latency if it is an empirical one."""
    own = [s for s in result.stations if s.drive == drive and s.kind == "delay"]
    if not own:
        return 100 * result.members[drive].utilization
    each = sum(s.service_mean_s * s.visits_per_request for s in own)
    return 100 * min(1.0, each * result.total.iops.value)


def _compared(metric: str, result: Result, reference: Result) -> Value:
    ratio = result.total.iops.value / reference.total.iops.value
    spread = sum(
        ((r.total.iops.high - r.total.iops.low) / 2 / r.total.iops.value) ** 2
        for r in (result, reference)
    )
    half = ratio * spread**0.5
    verdict = result.bottleneck.verdict
    if metric == "ratio":
        return Value(ratio, half, verdict)
    return Value(100 * (1 - ratio), 100 * half, verdict)
