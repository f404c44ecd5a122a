"""The metrics of one configuration: simulated, from the link model, or from sizing.

Beside each stands the naive answer, the least of three products: requests in flight times the rate
of one, threads times the rate of one thread, drives times the rate of one drive; what an architect
writes on a napkin who has measured one drive. Its three rates come from the calibrated drive by
itself, as its captures would give them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from nvmesim.catalog.links import command_ceiling, parse_link
from nvmesim.catalog.load import load
from nvmesim.catalog.profile import StackProfile
from nvmesim.errors import InputError, NvmesimError
from nvmesim.measure.figures import Interval
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.derived import gain_of
from nvmesim.predict.uncertainty.parts import NONE, Parts
from nvmesim.predict.uncertainty.standing import Standing
from nvmesim.scenario.load import apply_sets, scenario_from_dict
from nvmesim.scenario.resolved import ResolvedScenario, Target, WorkloadGroup
from nvmesim.study.size import size_cpu
from nvmesim.study.validate.published import Config, Key, Question

REQUESTS: Final = 120_000
"""Requests of one simulation: as many as `nvmesim run` takes of small servers, and always as many,
so that what is learned from the sets does not depend on what was learned before."""
NAIVE_REQUESTS: Final = 40_000
PERCENTILES: Final = {"clat_p50_us": 50.0, "clat_p99_us": 99.0, "clat_p99_9_us": 99.9}
MIB: Final = 2**20
EQUAL: Final = 0.005
"""A prediction within this share of the naive answer says no more than that."""

Change = tuple[str, str]
"""(glob of the configurations that it concerns, "key=value")"""


@dataclass(frozen=True)
class Value:
    """A predicted number with the interval that `nvmesim run` prints of it, if it prints one."""

    value: float
    low: float
    high: float
    verdict: str = ""
    parts: Parts | None = None
    """None: nothing is learned of such a number; its interval, if any, follows from others'."""
    standing: Standing = field(default_factory=Standing)

    @classmethod
    def plain(cls, value: float, verdict: str = "") -> Value:
        """Return a number without an interval."""
        return cls(value, value, value, verdict)


@dataclass
class Predictor:
    """Predicts the configurations of a question under given changes; each simulated once."""

    question: Question
    changes: tuple[Change, ...] = ()
    seen: dict[tuple[object, ...], Result] = field(default_factory=dict)
    """Simulated results, shared between predictors of one question."""
    certainty: bool = False
    """True if intervals are those that `nvmesim run` prints, the model's error learned without the
    question's own source; else the simulation's alone."""

    def value(self, key: Key) -> Value:
        """Return the metric that *key* asks for."""
        config, metric, reference = key
        found = self.question.file.configs[config]
        if found.kind == "ceiling":
            return Value.plain(command_ceiling(parse_link(found.link), "read", 4096), "link")
        if found.kind == "sizing":
            return Value.plain(self._sizing(config, found, metric), "cpu")
        result = self.result(config)
        if reference:
            return _compared(metric, result, self.result(reference))
        return measure(metric, result)

    def result(self, config: str) -> Result:
        """Return the simulation of *config*."""
        sets = self._sets(config)
        key = (*sets, self.certainty)
        if key not in self.seen:
            tables = apply_sets(self.question.scenario, sets)
            scenario = scenario_from_dict(tables, base=self.question.folder)
            self.seen[key] = simulate(
                scenario, requests=scenario.run.requests or REQUESTS, reliefs=False,
                over_time=False, certainty=self.certainty,
                without_source=self.question.file.source,
            )  # fmt: skip
        return self.seen[key]

    def _sets(self, config: str) -> tuple[str, ...]:
        mine = [text for only, text in self.changes if fnmatchcase(config, only)]
        return (*self.question.file.configs[config].set, *mine)

    def _sizing(self, name: str, config: Config, metric: str) -> float:
        server = apply_sets(self.question.scenario, self._sets(name))["server"]
        stack = load("stack", server["stack"], self.question.folder)
        assert isinstance(stack, StackProfile)
        sizing = size_cpu(config.iops, 0.5, stack, cpus=[config.cpu])
        if metric == "carries":
            return float(next(c for c in sizing.cpus if c.sockets == config.sockets).carries)
        values: Mapping[str, float] = {"ghz_per_miops": sizing.ghz_per_miops, "ghz": sizing.ghz}
        if metric not in values:
            raise InputError(f"a sizing has no {metric}; ghz_per_miops, ghz or carries")
        return values[metric]


def measure(metric: str, result: Result) -> Value:
    """Return one metric of a simulated result."""
    base, _, which = metric.partition(":")
    total, verdict = result.total, result.bottleneck.verdict
    if base in ("iops", "mib_per_s"):
        found, scale = (total.iops, 1) if base == "iops" else (total.bytes_per_s, MIB)
        ends = (found.value / scale, found.low / scale, found.high / scale)
        sure = result.certainty
        return Value(*ends, verdict, sure.figures.get("iops"), sure.standing)
    if base in ("cpu_pct", "thread_cpu_pct"):
        busy = result.cpu.logical_utilization
        known = result.cpu_intervals.get("logical_utilization", Interval(busy, busy, busy))
        of = 1.0 / busy if busy else 0.0
        if base == "cpu_pct":
            share = busy
        else:  # busy time of the CPU, % of one logical CPU a submitting thread
            cpus = (s.logical_utilization * s.cores * s.threads_per_core
                    for s in result.cpu.sockets)  # fmt: skip
            share = float(sum(cpus)) / sum(group.n_threads for group in result.resolved.workload)
        low, high = known.low * of * share, min(1.0, known.high * of * share)
        return Value(100 * share, 100 * low, 100 * max(share, high), verdict)
    if base == "busy_pct":
        return Value.plain(_busy(result, int(which or 0)), verdict)
    return _latency(base, result, verdict)


def _latency(name: str, result: Result, verdict: str) -> Value:
    known = result.certainty.standing
    if name in ("lat_mean_us", "latency_ms"):
        scale = 1e6 if name == "lat_mean_us" else 1e3
        mean = result.total.latency.mean
        low, high = result.total.latency.intervals.get("mean", (mean, mean))
        parts = result.certainty.figures.get("mean") if name == "lat_mean_us" else None
        return Value(mean * scale, low * scale, high * scale, verdict, parts, known)
    percent = PERCENTILES[name]
    clat = result.total.clat
    found = clat.percentiles.get(percent)
    if found is None:  # too few samples to report it with a run; the bins still say about where
        beyond = np.cumsum(clat.bin_count) >= percent / 100 * clat.bin_count.sum()
        return Value.plain(float(clat.bin_s[int(np.argmax(beyond))]) * 1e6, verdict)
    low, high = clat.intervals.get(f"p{percent:g}", (found, found))
    parts = result.certainty.figures.get(f"p{percent:g}")
    return Value(found * 1e6, low * 1e6, high * 1e6, verdict, parts, known)


def _busy(result: Result, drive: int) -> float:
    """Share of the time that a drive has work, by its own latency if it is an empirical one."""
    own = [s for s in result.stations if s.drive == drive and s.kind == "delay"]
    if not own:
        return 100 * result.members[drive].utilization
    each = sum(s.service_mean_s * s.visits_per_request for s in own)
    return 100 * min(1.0, each * result.total.iops.value)


def _compared(metric: str, result: Result, reference: Result) -> Value:
    """A ratio of two predictions: they share most of what is not known."""
    ratio = result.total.iops.value / reference.total.iops.value
    parts = [r.certainty.figures.get("iops") or Parts() for r in (result, reference)]
    rest = [replace(p, simulation=NONE).total for p in parts]
    half = math.hypot(*(max(p.simulation) for p in parts))
    alike = result.certainty.model_class == reference.certainty.model_class
    change = Interval(ratio - 1, ratio * math.exp(-half) - 1, ratio * math.exp(half) - 1)
    found = gain_of(change, (rest[0], rest[1]), same_class=alike).interval
    verdict = result.bottleneck.verdict
    if metric == "ratio":
        return Value(ratio, 1 + found.low, 1 + found.high, verdict)
    return Value(100 * (1 - ratio), -100 * found.high, -100 * found.low, verdict)


@dataclass
class Naive:
    """Naive answers; each small scenario behind them is simulated once."""

    requests: int = NAIVE_REQUESTS
    """Of each simulation."""
    seen: dict[tuple[object, ...], float] = field(default_factory=dict)

    def iops(self, scenario: ResolvedScenario) -> float | None:
        """Return the naive IOPS of *scenario*; None for loads by the clock or of several groups."""
        if len(scenario.workload) != 1 or scenario.workload[0].is_open:
            return None
        (group,) = scenario.workload
        members = dict.fromkeys(
            d for t in group.targets
            for d in ([t.index] if t.kind == "drive" else scenario.volumes[t.index].members)
        )  # fmt: skip
        first, drives, threads = next(iter(members)), len(members), group.n_threads
        depth = max(1, group.in_flight // max(1, threads))
        share = (1, max(1, threads * depth // drives))
        if threads >= drives:
            share = (max(1, threads // drives), depth)
        loads = ((group.in_flight, 1, 1), (threads, 1, depth), (drives, *share))
        try:
            return min(times * self._alone(scenario, first, *load) for times, *load in loads)
        except NvmesimError:
            return None

    def _alone(self, scenario: ResolvedScenario, drive: int, threads: int, depth: int) -> float:
        """Requests per second of one drive by itself under *threads* x *depth*."""
        group, profile = scenario.workload[0], scenario.drives[drive].profile
        key = (repr(profile), repr(scenario.stack), group.block_sizes, group.read, group.access,
               threads, depth)  # fmt: skip
        if key not in self.seen:
            one = alone(scenario, group, drive, threads, depth)
            found = simulate(one, reliefs=False, requests=self.requests, certainty=False,
                             over_time=False)  # fmt: skip
            self.seen[key] = found.total.iops.value
        return self.seen[key]


def alone(
    scenario: ResolvedScenario, group: WorkloadGroup, drive: int, threads: int, depth: int
) -> ResolvedScenario:
    """*scenario* with one of its drives alone, on the threads' own socket, without RAID."""
    one = replace(scenario.drives[drive], index=0)
    load = replace(
        group, targets=(Target("drive", 0, one.name),), threads=threads,
        threads_are_per_target=True, outstanding=depth, outstanding_per="thread-target",
        span=None, socket=one.socket, buffers=None, interrupts=None,
    )  # fmt: skip
    run = replace(scenario.run, requests=None, duration_ps=None, precision=None)
    return replace(scenario, drives=(one,), volumes=(), workload=(load,), run=run)
