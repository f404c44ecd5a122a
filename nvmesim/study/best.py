"""The most IOPS within a latency goal, of each design: healthy, a drive failed, rebuilding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, Literal

from nvmesim.drawing import Drawable
from nvmesim.errors import FailedArrayError, InputError, nearest
from nvmesim.measure.figures import Interval
from nvmesim.predict.result import Result
from nvmesim.raid.levels import LEVELS
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from nvmesim.study.limits import LimitMiss, LoadLimits, probability
from nvmesim.study.load_search import Applied, Found, LoadSearch, Trial
from nvmesim.study.naming import design_name
from nvmesim.study.sweep.api import Progress, tables_of
from nvmesim.study.sweep.plan import make_plan, put
from nvmesim.study.sweep.workers import usable_cpus
from nvmesim.units import PS_PER_S, format_iops, parse_fraction, parse_rate, parse_time_ps

State = Literal["healthy", "degraded", "rebuilding"]
STATES: Final[tuple[State, ...]] = ("healthy", "degraded", "rebuilding")
FAILED: Final = 0
"""Number of the member that fails: any does as well, but for what RAID10 pairs up."""


@dataclass(frozen=True)
class BestGoal:
    """The goal."""

    limits: LoadLimits
    iops: float | None = None
    """At least; None: as many as there are."""

    def probability(self, result: Result) -> float:
        """Least probability, over latencies and IOPS, that a real server keeps the goal."""
        latency = result.total.latency
        known = {"mean": latency.mean, "p99": latency.percentiles[99.0],
                 "p99.9": latency.percentiles[99.9]}  # fmt: skip
        chances = [
            probability(Interval(value, *latency.intervals[name]), limit, at_least=False)
            for name, limit in self.limits.named().items()
            if name in latency.intervals and (value := known[name]) is not None
        ]
        if self.iops is not None:
            chances.append(probability(result.total.iops, self.iops, at_least=True))
        return min(chances, default=1.0)

    def words(self) -> str:
        """The goal in words.

        >>> BestGoal(LoadLimits(p99=1e-3, cpu=0.5), 3e6).words()
        'p99 within 1 ms, CPU within 50 %, at least 3M IOPS'
        """
        from nvmesim.units import format_time

        notes = [
            f"CPU within {100 * v:.3g} %" if k == "cpu" else f"{k} within {format_time(v)}"
            for k, v in self.limits.named().items()
        ]
        if self.iops is not None:
            notes.append(f"at least {format_iops(self.iops)}")
        return ", ".join(notes)


@dataclass(frozen=True)
class StateAnswer:
    """The largest load of one design in one state."""

    state: State
    met: bool
    applied: Applied | None = None
    result: Result | None = None
    why: str = ""
    """Not met: which limit fails and by how much. Met: what keeps it from more."""
    missed: LimitMiss | None = None
    lost: bool = False
    """The array does not survive this."""
    probability: float | None = None
    """Least probability, over the limits, that a real server keeps it; None: nothing holds."""
    trials: tuple[Trial, ...] = ()

    @property
    def iops(self) -> float | None:
        """Requests per second at the largest load; None where nothing holds."""
        return None if self.result is None else self.result.total.iops.value

    @property
    def rebuild_hours(self) -> float | None:
        """Hours to rebuild a whole member beside that load; None without a rebuild."""
        known = None if self.result is None else self.result.rebuild
        return None if known is None or math.isinf(known.hours) else known.hours

    def to_json(self) -> dict[str, Any]:
        """Return the object of `best --json`."""
        r = self.result
        p99 = None if r is None else r.total.latency.percentiles[99.0]
        return {
            "state": self.state,
            "met": self.met,
            "why": self.why,
            "lost": self.lost,
            "probability": self.probability,
            "load": None if self.applied is None else vars(self.applied),
            "iops": None if r is None else r.total.iops.to_json(),
            "p99_s": p99,
            "p99_ci_s": None if r is None else r.total.latency.intervals.get("p99"),
            "mean_s": None if r is None else r.total.latency.mean,
            "cpu": None if r is None else r.cpu.logical_utilization,
            "verdict": None if r is None else r.bottleneck.verdict,
            "station": None if r is None else r.bottleneck.station,
            "rebuild_hours": self.rebuild_hours,
            "trials": [
                {"load": vars(t.applied), "iops": t.iops, "mean_s": t.mean_s, "p99_s": t.p99_s,
                 "cpu": t.cpu, "holds": t.holds, "decides": t.decides}
                for t in self.trials
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class LevelDesign:
    """One combination of the values asked for."""

    values: Mapping[str, Any]
    states: tuple[StateAnswer, ...] = ()
    error: str = ""
    """It cannot be built."""

    @property
    def met(self) -> bool:
        """True if the goal is met in every state asked for."""
        return not self.error and all(s.met for s in self.states)

    @property
    def worst_iops(self) -> float:
        """Of its states; 0 where one has no answer."""
        return min((s.iops or 0.0 for s in self.states), default=0.0)

    @property
    def name(self) -> str:
        """Its values in words.

        >>> LevelDesign({"volume.raid": "raid5", "drives.0.count": 8}).name
        'raid5, 8 drives'
        """
        return design_name(self.values) or "the scenario as it is"

    def to_json(self) -> dict[str, Any]:
        """Return the object of `best --json`."""
        return {
            "name": self.name,
            "values": dict(self.values),
            "met": self.met,
            "error": self.error or None,
            "states": [s.to_json() for s in self.states],
        }


@dataclass(frozen=True)
class Best(Drawable):
    """The designs, the best first."""

    goal: BestGoal
    scenario: str
    designs: tuple[LevelDesign, ...]
    states: tuple[State, ...] = STATES
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> LevelDesign | None:
        """The design with the most IOPS in its worst state, of those that meet the goal."""
        return next((d for d in self.designs if d.met), None)

    def __str__(self) -> str:
        """Return the answer in one or two sentences."""
        found = self.best
        if found is None:
            return self._nearest()
        rates = ", ".join(f"{format_iops(s.iops or 0)} {_when(s)}" for s in found.states)
        least = min((s.probability or 0.0 for s in found.states), default=0.0)
        return f"{found.name}: {rates}, with {self.goal.words()} ({least:.0%} sure at least)"

    def _nearest(self) -> str:
        """Which limit fails, of the design that comes nearest."""
        built = [d for d in self.designs if not d.error]
        if not built:
            return f"nothing can be built: {self.designs[0].error}"
        design = max(built, key=lambda d: (sum(s.met for s in d.states), _closeness(d)))
        state = next(s for s in design.states if not s.met)
        return f"nothing meets {self.goal.words()}; nearest is {design.name}, {state.state}: " \
               f"{state.why}"  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the object that `best --json` prints."""
        limits, best = self.goal.limits, self.best
        return {
            "scenario": self.scenario,
            "goal": {"p99_s": limits.p99, "p99.9_s": limits.p99_9, "mean_s": limits.mean,
                     "cpu": limits.cpu, "iops": self.goal.iops},
            "answer": str(self),
            "met": best is not None,
            "best": None if best is None else best.name,
            "designs": [d.to_json() for d in self.designs],
            "notes": list(self.notes),
        }  # fmt: skip


def _when(answer: StateAnswer) -> str:
    words = {"healthy": "healthy", "degraded": "with a drive failed"}.get(answer.state)
    if words is not None:
        return words
    hours = answer.rebuild_hours
    return "while it rebuilds" + (f" ({hours:.2g} h)" if hours is not None else "")


def _closeness(design: LevelDesign) -> float:
    """How near the worst miss is to its limit, larger is nearer; lost data is farthest."""
    missed = [s for s in design.states if not s.met]
    return -max(math.inf if s.missed is None else s.missed.excess for s in missed)


def best(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    p99: str | float | None = None,
    p99_9: str | float | None = None,
    mean: str | float | None = None,
    cpu: str | float | None = None,
    iops: str | float | None = None,
    over: Mapping[str, Any] | None = None,
    states: Sequence[str] | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Best:
    """Return the largest load that keeps the goal, for each design of *over* and each state.

    *p99*, *p99_9* and *mean* are latencies of all requests ("1 ms", or seconds), *cpu* the share of
    logical CPUs ("50%"), *iops* what must be reached ("3M"). Closed loops are searched over threads
    and outstanding requests, several workloads in proportion; open loops over their rate. *over* is
    as `sweep` takes it. In the states "degraded" and "rebuilding" one member of every volume has
    failed; without a volume only "healthy" is looked at, and no rebuild of a pool of ZFS. A limit
    counts as kept where it is kept at the upper end of what simulation leaves; the probability of
    each answer says how sure that is on a real server, with all that is not known.

    Raises InputError for a goal without a limit, an unknown state, or a replayed trace.
    """
    goal = _goal(p99, p99_9, mean, cpu, iops)
    tables, base = tables_of(scenario)
    asked = _states(states, tables)
    designs = [LevelDesign({})]
    if over:
        plan = make_plan(over)
        keys = [axis.key for axis in plan.axes]
        designs = [LevelDesign(dict(zip(keys, values, strict=True))) for values in plan.points()]
    task = _Task(goal, tables, base, asked, seed, progress, len(designs))
    answered = task.all(designs)
    if answered and all(d.error for d in answered):
        raise InputError(f"nothing can be built; the first: {answered[0].error}")
    ranked = sorted(answered, key=lambda d: (bool(d.error), not d.met, -d.worst_iops))
    return Best(goal, str(tables.get("name") or "scenario"), tuple(ranked), asked)


def _goal(
    p99: str | float | None, p99_9: str | float | None, mean: str | float | None,
    cpu: str | float | None, iops: str | float | None,
) -> BestGoal:  # fmt: skip
    limits = LoadLimits(_seconds(p99, "p99"), _seconds(p99_9, "p99.9"), _seconds(mean, "mean"),
                    parse_fraction(cpu) if isinstance(cpu, str) else cpu)  # fmt: skip
    if not limits.named():
        raise InputError("no limit is named; give one such as --p99 1ms or --cpu 50%")
    if limits.cpu is not None and not 0 < limits.cpu <= 1:
        raise InputError(f"cpu is {limits.cpu:g}; it must be above 0 and at most 100 %")
    rate = parse_rate(iops) if isinstance(iops, str) else iops
    if rate is not None and not 0 < rate < 1e12:
        raise InputError(f"iops is {rate:g}; a rate such as 3M is needed")
    return BestGoal(limits, rate)


def _seconds(value: str | float | None, name: str) -> float | None:
    if value is None:
        return None
    seconds = parse_time_ps(value) / PS_PER_S if isinstance(value, str) else float(value)
    if not 0 < seconds < math.inf:
        raise InputError(f"{name} is {value}; a time above 0 such as 1ms is needed")
    return seconds


def _states(asked: Sequence[str] | None, tables: Mapping[str, Any]) -> tuple[State, ...]:
    """The states to look at, in their order; without a volume nothing can be rebuilt."""
    has_volume = bool(tables.get("volume"))
    if asked is None:
        return STATES if has_volume else STATES[:1]
    for name in asked:
        if name not in STATES:
            raise InputError(f"state {name!r} is unknown; {nearest(name, STATES)}")
        if name != "healthy" and not has_volume:
            raise InputError(f"state {name!r} needs a [volume]; this scenario has drives alone")
    return tuple(s for s in STATES if s in asked)


def in_state(tables: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Return *tables* with every volume in *state*; one member is missing unless it is healthy.

    >>> in_state({"volume": {"raid": "raid5"}}, "degraded")["volume"]
    [{'raid': 'raid5', 'degraded': [0], 'rebuild': False}]
    """
    volumes = tables.get("volume")
    if not volumes:
        return dict(tables)
    listed = [volumes] if isinstance(volumes, Mapping) else list(volumes)
    failed = [] if state == "healthy" else [FAILED]
    changed = [{**v, "degraded": failed, "rebuild": state == "rebuilding"} for v in listed]
    return {**tables, "volume": changed}


def _is_pool(tables: Mapping[str, Any]) -> bool:
    """True if a volume is one of ZFS, whose rebuild is not modelled."""
    listed = tables.get("volume") or []
    listed = [listed] if isinstance(listed, Mapping) else listed
    found = (LEVELS.get(str(volume.get("raid"))) for volume in listed)
    return any(level is not None and level.records for level in found)


class _Task:
    """All designs and states, the designs side by side."""

    def __init__(
        self, goal: BestGoal, tables: Mapping[str, Any], base: str, states: tuple[State, ...],
        seed: int | None, progress: Progress | None, designs: int,
    ) -> None:  # fmt: skip
        self._goal, self._tables, self._base = goal, tables, base
        self._states, self._seed, self._progress = states, seed, progress
        self._stop, self._lock = Event(), Lock()
        self._done, self._of = 0, designs * len(states)

    def all(self, designs: Iterable[LevelDesign]) -> list[LevelDesign]:
        """Answer every design; Ctrl-C stops each before its next run."""
        with ThreadPoolExecutor(max(1, usable_cpus())) as pool:
            # Each in its own thread: the engine runs without the interpreter's lock.
            waiting = [pool.submit(self._design, d) for d in designs]
            try:
                return [w.result() for w in waiting]
            except BaseException:
                self._stop.set()
                for w in waiting:
                    w.cancel()
                raise

    def _design(self, design: LevelDesign) -> LevelDesign:
        answers: list[StateAnswer] = []
        near: Applied | None = None
        changed = put(self._tables, design.values)
        for state in self._states:
            if state == "rebuilding" and _is_pool(changed):
                continue
            try:
                answer = self._state(design, state, near)
            except FailedArrayError as lost:
                answer = StateAnswer(state, False, why=f"data are lost: {lost}", lost=True)
            except InputError as error:
                if state == "healthy" or not _is_about_redundancy(error):
                    return replace(design, error=str(error))
                answer = StateAnswer(state, False, why=str(error), lost=True)
            near = answer.applied or near
            answers.append(answer)
            self._say(f"{design.name}, {state}")
        return replace(design, states=tuple(answers))

    def _state(self, design: LevelDesign, state: State, near: Applied | None) -> StateAnswer:
        tables = in_state(put(self._tables, design.values), state)
        resolved = resolve(scenario_from_dict(tables, self._base))
        search = LoadSearch(resolved, self._goal.limits, self._seed, self._stop.is_set)
        return self._judged(state, search.largest(near))

    def _judged(self, state: State, found: Found) -> StateAnswer:
        """The answer of a state, held against the IOPS asked for."""
        result = found.result
        if result is None or found.miss is not None:
            smallest = f"{found.miss.words()} with {found.applied.words()}" if found.miss else ""
            return StateAnswer(state, False, found.applied, None, smallest, found.miss,
                               trials=found.trials)  # fmt: skip
        met, missed, why = True, None, _held_back(found)
        rate, asked = result.total.iops, self._goal.iops
        low = rate.value * math.exp(-result.certainty.figures["iops"].simulation[0])
        if asked is not None and low < asked:
            sure = rate.value < asked
            missed = LimitMiss("iops", rate.value if sure else low, asked, sure)
            met, why = False, f"{missed.words()} (then {why})"
        return StateAnswer(
            state,
            met,
            found.applied,
            result,
            why,
            missed,
            probability=self._goal.probability(result),
            trials=found.trials,
        )

    def _say(self, what: str) -> None:
        with self._lock:
            self._done += 1
            if self._progress is not None:
                self._progress(what, self._done / self._of)


def _held_back(found: Found) -> str:
    """Limit that keeps the load from being larger."""
    if found.next_miss is not None:
        return found.next_miss.what if found.next_miss.what != "cpu" else "CPU"
    assert found.result is not None
    stop = found.result.bottleneck
    return f"{stop.verdict} full" if stop.verdict != "latency-bound" else "more load adds nothing"


def _is_about_redundancy(error: InputError) -> bool:
    """True if a volume that was built healthy cannot be in another state."""
    return "redundancy" in str(error)


__all__ = ["Best", "BestGoal", "LevelDesign", "StateAnswer", "best"]
