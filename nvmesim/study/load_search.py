"""The largest load of one scenario that keeps latency and CPU limits.

IOPS and latency rise with the load: it lies between one that holds and one that does not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from nvmesim.errors import InputError
from nvmesim.measure.figures import Distribution
from nvmesim.measure.stations import cpu_stats
from nvmesim.predict.answer import RunAnswer
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import RunOptions, concluded, measured
from nvmesim.predict.uncertainty.parts import FIGURES
from nvmesim.scenario.resolved import ResolvedScenario, WorkloadGroup
from nvmesim.study.designs import LimitMiss, LoadGoal
from nvmesim.units import format_iops
from nvmesim.warning import has

REQUESTS: Final = 16_000
"""Of a trial on the way: p99 within a few per cent."""
ROUNDS: Final = 40
"""A trial of a closed loop completes what is in flight so many times at least."""
SURE_REQUESTS: Final = 60_000
"""Of the run that decides, at first."""
LONGER: Final = 4
"""Such a run is so many times longer as long as only the end of an interval breaks a limit."""
MOST_REQUESTS: Final = 250_000
"""It does not get longer than this."""
UNTOLD: Final = (4, 8)
"""A trial of so few requests that its p99 is not known is so many times longer."""
KEPT: Final = 8
"""Trials that are kept whole."""
LESS: Final = 0.95
"""A rate a third lower that leaves more than this of what a limit is missed by cannot meet it."""
GAIN: Final = 0.02
"""Twice the load that brings less than this has reached the most that there is."""
CLOSE: Final = 1.08
"""Loads that hold and do not, this near to each other, are near enough (closed loop)."""
OPEN_CLOSE: Final = 1.03
NO_MORE: Final = 0.01
"""Nor is a load looked for between two that bring the same but for so little."""
BACK: Final = 0.85
"""A load whose limits do not hold for sure is tried again so much lower, or lower still."""
FAR_BACK: Final = 0.3
TRIALS: Final = 9
DECISIONS: Final = 10
SHORT: Final = 0.03
"""Trials are too short if the run that decides differs from one by more than this share of IOPS."""
MOST_DEPTH: Final = 65536.0
LATENCIES: Final = ("p99", "p99.9", "mean")
QUIET: Final = RunOptions(reliefs=False, over_time=False)


@dataclass(frozen=True)
class Applied:
    """A load: what every thread keeps outstanding, or requests per second that arrive."""

    threads: int
    """Of the first closed group, as its scenario counts them (per target, or in all)."""
    outstanding: int
    in_flight: int
    rate: float | None = None

    @property
    def depth(self) -> float:
        """What is searched: the requests that a thread keeps outstanding, or the rate."""
        return self.rate if self.rate is not None else float(self.outstanding)

    def words(self) -> str:
        """The load as a person says it."""
        if self.rate is not None:
            return f"{format_iops(self.rate)} offered"
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'} x {self.outstanding}"


@dataclass(frozen=True)
class Trial:
    """A run at one load."""

    applied: Applied
    iops: float
    mean_s: float
    p99_s: float | None
    cpu: float
    pressure: float
    """1: a limit is just met."""
    miss: LimitMiss | None
    decides: bool = False
    """A long run; its limits are held against the ends of its intervals."""

    @property
    def holds(self) -> bool:
        """True if every limit is kept."""
        return self.miss is None

    @property
    def depth(self) -> float:
        """Outstanding requests of a thread, or the rate."""
        return self.applied.depth


@dataclass(frozen=True)
class Found:
    """The largest load, or why there is none."""

    applied: Applied
    result: Result | None
    """Of the largest load that holds; None if not even the smallest does."""
    miss: LimitMiss | None
    """Limits that the smallest load misses."""
    next_miss: LimitMiss | None
    """Limit that the next larger load misses; None: more load brings no more."""
    trials: tuple[Trial, ...]


@dataclass
class LoadSearch:
    """Searches the largest load of *scenario*; *stop* is asked before every run."""

    scenario: ResolvedScenario
    goal: LoadGoal
    seed: int | None = None
    stop: Callable[[], bool] = lambda: False
    trials: list[Trial] = field(default_factory=list)
    requests: int = REQUESTS
    """Of a trial, at least."""
    too_short: bool = False
    """A run that decides differed from its trial."""
    _long: dict[Applied, RunAnswer] = field(default_factory=dict)
    """Trials that are long enough to decide, the last few."""

    def __post_init__(self) -> None:
        groups = self.scenario.workload
        if any(g.trace is not None for g in groups):
            raise InputError("the workload replays a trace, whose arrivals are its own; best needs "
                             "threads and outstanding, or a rate")  # fmt: skip
        closed = [g for g in groups if not g.is_open]
        self.is_open = not closed
        self.first = closed[0] if closed else groups[0]

    def largest(self, near: Applied | None = None) -> Found:
        """The largest load that keeps the limits; *near* is where to look first.

        Short runs look for it and long ones decide; where those differ, long ones look as well.
        """
        found = self._decided(self._searched(near))
        if not self.too_short or self.requests >= SURE_REQUESTS:
            return found
        self.requests = SURE_REQUESTS
        self.trials = [t for t in self.trials if t.decides]
        return self._decided(self._searched(found.applied))

    def _searched(self, near: Applied | None) -> Trial:
        if self.is_open:
            return self._deepest(0, (near and near.rate) or self.first.rate or 1.0)
        start = near or Applied(self.first.threads, self.first.outstanding, 0)
        best = self._deepest(start.threads, start.outstanding)
        # spread over twice or half the threads while that brings more
        cpus = sum(s.logical_cpus for s in self.scenario.sockets)
        each = self.first.n_threads // self.first.threads
        most = max(self.first.threads, cpus // max(1, each))
        # Fewer threads bring no more, but each request costs less CPU when they sleep less often.
        factors = (2.0, 0.5) if self.goal.cpu is not None or not best.holds else (2.0,)
        for factor in factors:
            moved = best
            while (more := self._moved(moved, factor, most)) is not None:
                moved = more
            if moved is not best:
                return self._deepest(moved.applied.threads, moved.depth)
        return best

    def _deepest(self, threads: int, start: float) -> Trial:
        """The largest depth (or rate) that holds with so many threads; else the smallest tried."""
        low, high = self._bracket(threads, start)
        if low is None or high is None:
            found = low or high
            assert found is not None
            return found
        for _ in range(TRIALS):
            near = high.depth / low.depth <= (OPEN_CLOSE if self.is_open else CLOSE)
            same = not self.is_open and (
                high.depth - low.depth <= 1 or high.iops < low.iops * (1 + NO_MORE)
            )
            if near or same:
                break
            trial = self._try(threads, self._between(low, high))
            low, high = (trial, high) if trial.holds else (low, trial)
        return low

    def _bracket(self, threads: int, start: float) -> tuple[Trial | None, Trial | None]:
        """A load that holds and a larger one that does not; None: there is no such load."""
        trial = self._try(threads, start)
        if not trial.holds:
            while not trial.holds:
                below = trial.depth / min(8.0, max(1.5, trial.pressure))
                if not self.is_open:
                    below = max(1, math.floor(below))
                if below < 1 or (not self.is_open and trial.depth <= 1):
                    return None, trial
                high, trial = trial, self._try(threads, below)
                if self.is_open and LESS * high.pressure < trial.pressure < math.inf:
                    return None, trial  # what misses the limit is not this load, but a rebuild
            return trial, high
        for _ in range(TRIALS):
            wanted = trial.depth * min(8.0, max(2.0, 0.95 / max(trial.pressure, 1e-3)))
            higher = self._try(threads, wanted if self.is_open else min(wanted, MOST_DEPTH))
            if not higher.holds:
                return trial, higher
            if higher.iops < trial.iops * (1 + GAIN):
                return trial, None
            trial = higher
        return trial, None

    def _between(self, low: Trial, high: Trial) -> float:
        """Where between the two the limit is met if pressure grows by a power of the load."""
        share = 0.5
        if math.isfinite(high.pressure) and high.pressure > low.pressure > 0:
            share = -math.log(low.pressure) / math.log(high.pressure / low.pressure)
        at = low.depth * (high.depth / low.depth) ** min(0.85, max(0.15, share))
        return float(at if self.is_open else min(high.depth - 1, max(low.depth + 1, round(at))))

    def _moved(self, best: Trial, factor: float, most: int) -> Trial | None:
        """As much in flight over *factor* times the threads; None if that brings nothing."""
        now = best.applied
        threads = round(now.threads * factor)
        if not 1 <= threads <= most or threads == now.threads:
            return None
        depth = max(1, round(now.threads * now.outstanding / threads))
        trial = self._try(threads, depth)
        if best.holds and trial.iops < best.iops * (1 + GAIN):
            return None
        found = trial if trial.holds else self._deepest(threads, depth)
        if best.holds:
            return found if found.holds and found.iops > best.iops else None
        return found if found.holds or found.pressure < best.pressure else None

    def _try(self, threads: int, depth: float) -> Trial:
        loaded, applied = self._at(threads, depth)
        known = next((t for t in self.trials if t.applied == applied), None)
        if known is not None:
            return known
        least = ROUNDS * applied.in_flight
        run = self._run(loaded, max(self.requests, least))
        trial = self._trial(applied, run)
        for times in UNTOLD:
            if trial.miss is None or not math.isnan(trial.miss.value):
                break
            # Of a load nearby as little would be known: those start as long.
            self.requests = max(self.requests, times * REQUESTS)
            run = self._run(loaded, max(self.requests, times * least))
            trial = self._trial(applied, run)
        self.trials.append(trial)
        if run.measured.window.requests >= SURE_REQUESTS:
            self._long[applied] = run
            if len(self._long) > KEPT:
                del self._long[next(iter(self._long))]
        return trial

    def _run(self, loaded: ResolvedScenario, requests: int) -> RunAnswer:
        if self.stop():
            raise KeyboardInterrupt
        run = measured(loaded, replace(QUIET, seed=self.seed, requests=requests))
        if run.measured.interrupted:
            raise KeyboardInterrupt
        return run

    def _trial(self, applied: Applied, run: RunAnswer, *, decides: bool = False) -> Trial:
        """*run* held against the limits, at the ends that simulation leaves a run that decides."""
        window, shift = run.measured.window, run.shifts()
        latency = run.latency
        if latency is None:
            raise InputError(f"{run.ready.name}: no request completed; nothing to report")
        cpu = cpu_stats(run.ready.lowered, run.totals).logical_utilization
        # What profiles missed nearby moves the answer: the limits hold for what is printed.
        moved = {n: math.exp(shift(n if n in FIGURES else "p99.9")) for n in LATENCIES}
        values = limited_values(latency, cpu)
        values |= {name: values[name] * factor for name, factor in moved.items()}
        pressure, miss = self.goal.worst(values)
        # That one is longer, and narrower by more than the root of that: a trial errs to more load.
        share = 1.0 if decides else math.sqrt(REQUESTS / MOST_REQUESTS)
        ends = {
            n: values[n] * (factor * latency.intervals[n][1] / values[n]) ** share
            if n in latency.intervals else math.nan if decides else values[n]
            for n, factor in moved.items()
        }  # fmt: skip
        far, unsure = self.goal.worst(values | ends)
        if miss is None and unsure is not None:
            pressure, miss = far, replace(unsure, sure=False)
        if not run.stable:
            pressure = math.inf
            miss = LimitMiss(next(iter(self.goal.limits()), "latency"), math.inf, 1.0)
        iops = window.iops().value * math.exp(shift("iops"))
        p99 = None if math.isnan(values["p99"]) else values["p99"]
        return Trial(applied, iops, values["mean"], p99, cpu, pressure, miss, decides)

    def _at(self, threads: int, depth: float) -> tuple[ResolvedScenario, Applied]:
        """The scenario with its first group at *threads* and *depth*, the others in proportion."""
        first, groups = self.first, self.scenario.workload
        if self.is_open:
            factor = depth / (first.rate or 1.0)
            groups = tuple(replace(g, rate=(g.rate or 1.0) * factor) for g in groups)
            rate = depth if len(groups) > 1 else groups[0].rate
            return replace(self.scenario, workload=groups), Applied(1, 1, 0, rate=rate)
        more_threads, deeper = threads / first.threads, depth / first.outstanding

        def scaled(group: WorkloadGroup) -> WorkloadGroup:
            if group.is_open:
                return replace(group, rate=(group.rate or 1.0) * more_threads * deeper)
            depth, threads = group.outstanding * deeper, group.threads * more_threads
            return replace(group, threads=max(1, round(threads)), outstanding=max(1, round(depth)))

        groups = tuple(map(scaled, groups))
        in_flight = sum(g.in_flight for g in groups if not g.is_open)
        return replace(self.scenario, workload=groups), Applied(threads, round(depth), in_flight)

    def _decided(self, best: Trial) -> Found:
        """Simulate longer at *best*; below it until the limits hold with their intervals."""
        threads, depth = best.applied.threads, best.depth
        for _ in range(DECISIONS if best.holds else 1):
            trial, run = self._decision(*self._at(threads, depth))
            if trial.holds:
                result = concluded(run, QUIET)
                if has(result.warnings, "interrupted"):
                    raise KeyboardInterrupt
                return Found(trial.applied, result, None, self._next_miss(trial), self._tried())
            lower = self._below(trial)
            if lower is None:
                break
            threads, depth = lower
        return Found(trial.applied, None, trial.miss, None, self._tried())

    def _decision(self, loaded: ResolvedScenario, applied: Applied) -> tuple[Trial, RunAnswer]:
        """A run so long that it shows whether the limits hold; it takes the short one's place."""
        requests = max(SURE_REQUESTS, 2 * ROUNDS * applied.in_flight)
        run = self._long.pop(applied, None)
        if run is None or run.measured.window.requests < requests:
            run = self._run(loaded, requests)
        while True:
            trial = self._trial(applied, run, decides=True)
            requests *= LONGER
            if trial.miss is None or trial.miss.sure or requests > MOST_REQUESTS:
                break
            run = self._run(loaded, requests)
        for short in [t for t in self.trials if t.applied == applied]:
            self.too_short |= abs(trial.iops / short.iops - 1) > SHORT
            self.trials.remove(short)
        self.trials.append(trial)
        return trial, run

    def _below(self, trial: Trial) -> tuple[int, float] | None:
        """Threads and depth (or rate) to try after *trial*; None: there is nothing smaller."""
        threads, depth, far = trial.applied.threads, trial.depth, trial.pressure
        if self.is_open:
            return threads, depth * (0.97 if math.isfinite(far) else BACK)
        if depth > 1:
            share = max(FAR_BACK, min(BACK, 1 / far)) if math.isfinite(far) else BACK
            return threads, max(1, min(depth - 1, round(depth * share)))
        return (threads // 2, 1) if threads > 1 else None

    def _next_miss(self, best: Trial) -> LimitMiss | None:
        """Return the limit that the smallest larger load with as many threads misses."""
        above = [
            t for t in self.trials
            if not t.holds and t.applied.threads == best.applied.threads and t.depth > best.depth
        ]  # fmt: skip
        return min(above, key=lambda t: t.depth).miss if above else None

    def _tried(self) -> tuple[Trial, ...]:
        return tuple(sorted(self.trials, key=lambda t: t.iops))


def limited_values(latency: Distribution, cpu: float) -> dict[str, float]:
    """Return name -> value of what can be limited; NaN where there are too few samples."""
    p99, p99_9 = (latency.percentiles[p] for p in (99.0, 99.9))
    return {
        "p99": math.nan if p99 is None else p99, "p99.9": math.nan if p99_9 is None else p99_9,
        "mean": latency.mean, "cpu": cpu,
    }  # fmt: skip
