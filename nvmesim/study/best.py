"""The most IOPS within a latency goal, of each design: healthy, a drive failed, rebuilding."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final, Literal, get_args

from nvmesim import units
from nvmesim.drawing import Drawable
from nvmesim.errors import FailedArrayError, InputError, nearest
from nvmesim.measure.figures import Interval
from nvmesim.predict.result import Result
from nvmesim.predict.uncertainty.derived import probability
from nvmesim.raid.levels import LEVELS
from nvmesim.scenario.load import scenario_from_dict, with_values
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario
from nvmesim.scenario.volumes import usable_bytes
from nvmesim.study.designs import LimitMiss, LoadGoal, design_name
from nvmesim.study.load_search import Applied, Found, LoadSearch, Trial, limited_values
from nvmesim.study.sweep.api import Progress, tables_of
from nvmesim.study.sweep.plan import make_plan
from nvmesim.study.sweep.workers import usable_cpus
from nvmesim.warning import Warning, coded

State = Literal["healthy", "degraded", "rebuilding"]
STATES: Final[tuple[State, ...]] = get_args(State)
HELD: Final = {
    "cpu": "CPU full", "drive": "drives full", "link": "link full",
    "raid-engine": "RAID engine full", "limit": "limit reached", "unstable": "not steady",
}  # fmt: skip
"""Verdict -> what keeps a load from being larger."""
MORE: Final = 1.02
"""Times a state carries more than another before it is explained."""
RULE: Final = (
    "a load counts where it keeps each limit at the upper end of what simulation leaves; sure: the "
    "probability that a real server keeps them, with all that is not known"
)
FAILED: Final = 0
"""Number of the member that fails: any does as well, but for what RAID10 pairs up."""


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

    @property
    def when(self) -> str:
        """Its state as an adverb."""
        hours = "" if self.rebuild_hours is None else f" ({self.rebuild_hours:.2g} h)"
        return {"healthy": "healthy", "degraded": "with a drive failed",
                "rebuilding": f"while it rebuilds{hours}"}[self.state]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the object of `best --json`."""
        r, load = self.result, self.applied
        latency = r and r.total.latency
        return {
            "state": self.state, "met": self.met, "why": self.why, "lost": self.lost,
            "probability": self.probability, "load": load and vars(load),
            "iops": r and r.total.iops, "p99_s": latency and latency.percentiles[99.0],
            "p99_ci_s": latency and latency.intervals.get("p99"),
            "mean_s": latency and latency.mean, "cpu": r and r.cpu.logical_utilization,
            "verdict": r and r.bottleneck.verdict, "station": r and r.bottleneck.station,
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
    usable_bytes: int | None = None

    @property
    def met(self) -> bool:
        """True if the goal is met in every state asked for."""
        return not self.error and all(s.met for s in self.states)

    @property
    def name(self) -> str:
        """Its values in words."""
        return design_name(self.values) or "the scenario as it is"

    def to_json(self) -> dict[str, Any]:
        """Return the object of `best --json`."""
        return {"name": self.name, "met": self.met, **vars(self), "error": self.error or None}


@dataclass(frozen=True)
class Best(Drawable):
    """The designs, the best first."""

    goal: LoadGoal
    scenario: str
    designs: tuple[LevelDesign, ...]
    states: tuple[State, ...] = STATES

    @property
    def best(self) -> LevelDesign | None:
        """The design with the most IOPS in its worst state, of those that meet the goal."""
        return next((d for d in self.designs if d.met), None)

    def __str__(self) -> str:
        found = self.best
        if found is None:
            return self._nearest()
        rates = ", ".join(f"{units.format_iops(s.iops or 0)} {s.when}" for s in found.states)
        least = min((s.probability or 0.0 for s in found.states), default=0.0)
        return f"{found.name}: {rates}, with {self.goal.words()} ({units.chance(least)} sure)"

    @property
    def notes(self) -> tuple[str, ...]:
        """Where a state carries more than a healthy array: why that may be."""
        return tuple(text for design in self.designs for text in _odd(design))

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Reasons to doubt the answers, as `run` gives them of the loads that were found."""
        found = (s.result for design in self.designs for s in design.states)
        return coded(text for result in found if result is not None for text in result.warnings)

    def _nearest(self) -> str:
        """Which limit fails, of the design that comes nearest; lost data is farthest."""

        def nearness(design: LevelDesign) -> tuple[int, float]:
            missed = [s.missed for s in design.states if not s.met]
            worst = max(math.inf if miss is None else miss.excess for miss in missed)
            return len(design.states) - len(missed), -worst

        built = [d for d in self.designs if not d.error]
        if not built:
            return f"nothing can be built: {self.designs[0].error}"
        design = max(built, key=nearness)
        state = next(s for s in design.states if not s.met)
        return f"nothing meets {self.goal.words()}; nearest is {design.name}, {state.state}: " \
               f"{state.why}"  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the object that `best --json` prints."""
        goal, best = self.goal, self.best
        return {
            "scenario": self.scenario,
            "goal": {"p99_s": goal.p99, "p99.9_s": goal.p99_9, "mean_s": goal.mean,
                     "cpu": goal.cpu, "iops": goal.iops},
            "answer": str(self), "met": best is not None, "best": best and best.name,
            "designs": self.designs, "notes": self.notes, "rule": RULE,
            "warnings": self.warnings,
        }  # fmt: skip


def _odd(design: LevelDesign) -> Iterator[str]:
    """States that carry more than one that is better off: why."""
    healthy = next((s.result for s in design.states if s.state == "healthy"), None)
    for state in design.states:
        found = state.result
        if healthy is None or found is None or found.total.iops.value <= healthy.total.iops.value:
            continue
        if found.total.iops.low < healthy.total.iops.high:
            full = found.bottleneck.verdict
            drives = full in ("drive", "latency-bound")
            why = "" if drives else f", and what holds it back is not its drives ({HELD[full]})"
            more = f"{design.name} carries more {state.when} than healthy"
            yield f"{more}, by less than is known of either{why}"
    rates = {s.state: s.iops or 0.0 for s in design.states}
    if rates.get("rebuilding", 0.0) > MORE * rates.get("degraded", math.inf):
        yield (
            f"{design.name} carries more while it rebuilds than with a drive failed: half of the "
            "new drive counts as restored, and serves reads (volume.rebuilt)"
        )


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
    changes = list(make_plan(over).changes()) if over else [{}]
    built = [with_values(tables, values) for values in changes]
    asked = _states(states, any(map(volumes_of, built)))
    found: list[list[StateAnswer | InputError | None]] = [[] for _ in built]
    stop = Event()

    def search(item: tuple[int, State]) -> StateAnswer | InputError | None:
        number, state = item
        first = next(iter(found[number]), None)
        near = first.applied if isinstance(first, StateAnswer) else None

        def largest(one: ResolvedScenario) -> Found:
            return LoadSearch(one, goal, seed, stop.is_set).largest(near)

        return _answer(built[number], base, state, goal, largest)

    with ThreadPoolExecutor(usable_cpus()) as pool:
        # Each state in its own thread: the engine runs without the interpreter's lock.
        try:
            for some in (asked[:1], asked[1:]):  # near the first one's load lie those of the others
                items = [(number, state) for number in range(len(built)) for state in some]
                for (number, state), answer in zip(items, pool.map(search, items), strict=True):
                    found[number].append(answer)
                    if progress is not None:
                        share = sum(map(len, found)) / (len(built) * len(asked))
                        progress(f"{LevelDesign(changes[number]).name}, {state}", share)
        except BaseException:
            stop.set()  # Ctrl-C stops each before its next run
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    designs = []
    for values, changed, answers in zip(changes, built, found, strict=True):
        error = next((str(a) for a in answers if isinstance(a, InputError)), "")
        known = tuple(a for a in answers if isinstance(a, StateAnswer) and not error)
        holds = None if error else usable_bytes(resolve(scenario_from_dict(changed, base)))
        designs.append(LevelDesign(values, known, error, holds))
    if all(d.error for d in designs):
        raise InputError(f"nothing can be built; the first: {designs[0].error}")
    ranked = sorted(designs, key=lambda d: (
        bool(d.error), not d.met, -min((s.iops or 0.0 for s in d.states), default=0.0)
    ))  # fmt: skip
    return Best(goal, str(tables.get("name") or "scenario"), tuple(ranked), asked)


def _answer(
    tables: Mapping[str, Any], base: str, state: State, goal: LoadGoal,
    largest: Callable[[ResolvedScenario], Found],
) -> StateAnswer | InputError | None:  # fmt: skip
    """The largest load of a design in *state*; an error: it cannot be built; None: no state."""
    levels = [LEVELS.get(str(volume.get("raid"))) for volume in volumes_of(tables)]
    of_pool = any(level and level.records for level in levels)
    if (state != "healthy" and not levels) or (state == "rebuilding" and of_pool):
        return None
    try:
        scenario = resolve(scenario_from_dict(in_state(tables, state), base))
        return _judged(state, largest(scenario), goal)
    except FailedArrayError as lost:
        return StateAnswer(state, False, why=f"data are lost: {lost}", lost=True)
    except InputError as error:
        if state == "healthy" or all(level and level.redundant for level in levels):
            return error
        return StateAnswer(state, False, why=str(error), lost=True)


def _goal(
    p99: str | float | None, p99_9: str | float | None, mean: str | float | None,
    cpu: str | float | None, iops: str | float | None,
) -> LoadGoal:  # fmt: skip
    share = units.parse_fraction(cpu) if isinstance(cpu, str) else cpu
    rate = units.parse_rate(iops) if isinstance(iops, str) else iops
    times = (_seconds(p99, "p99"), _seconds(p99_9, "p99.9"), _seconds(mean, "mean"))
    goal = LoadGoal(*times, share, rate)
    if not goal.limits():
        raise InputError("no limit is named; give one such as --p99 1ms or --cpu 50%")
    if share is not None and not 0 < share <= 1:
        raise InputError(f"cpu is {share:g}; it must be above 0 and at most 100 %")
    if rate is not None and not 0 < rate < 1e12:
        raise InputError(f"iops is {rate:g}; a rate such as 3M is needed")
    return goal


def _seconds(value: str | float | None, name: str) -> float | None:
    if value is None:
        return None
    parsed = units.parse_time_ps(value) / units.PS_PER_S if isinstance(value, str) else value
    seconds = float(parsed)
    if not 0 < seconds < math.inf:
        raise InputError(f"{name} is {value}; a time above 0 such as 1ms is needed")
    return seconds


def _states(asked: Sequence[str] | None, has_volume: bool) -> tuple[State, ...]:
    """The states to look at, in their order; without a volume nothing can be rebuilt."""
    if asked is None:
        return STATES if has_volume else STATES[:1]
    for name in asked:
        if name not in STATES:
            raise InputError(f"state {name!r} is unknown; {nearest(name, STATES)}")
        if name != "healthy" and not has_volume:
            raise InputError(f"state {name!r} needs a [volume]; this scenario has drives alone")
    return tuple(s for s in STATES if s in asked)


def volumes_of(tables: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tables of the volumes, where one may stand for a list of one."""
    found = tables.get("volume") or []
    return [found] if isinstance(found, Mapping) else list(found)


def in_state(tables: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Return *tables* with every volume in *state*; one member is missing unless it is healthy.

    >>> in_state({"volume": {"raid": "raid5"}}, "degraded")["volume"]
    [{'raid': 'raid5', 'degraded': [0], 'rebuild': False}]
    """
    failed = [] if state == "healthy" else [FAILED]
    own = {"degraded": failed, "rebuild": state == "rebuilding"}
    changed = [{**volume, **own} for volume in volumes_of(tables)]
    return {**tables, "volume": changed} if changed else dict(tables)


def _judged(state: State, found: Found, goal: LoadGoal) -> StateAnswer:
    result = found.result
    if result is None:
        why = f"{found.miss.words()} with {found.applied.words()}" if found.miss else ""
        return StateAnswer(state, False, found.applied, None, why, found.miss, trials=found.trials)
    why = HELD.get(result.bottleneck.verdict, "more load adds nothing")
    if found.next_miss is not None:  # the limit that keeps the load from being larger
        why = "CPU" if found.next_miss.what == "cpu" else found.next_miss.what
    missed = None
    rate, asked = result.total.iops, goal.iops
    low = rate.value * math.exp(-result.certainty.figures["iops"].simulation[0])
    if asked is not None and low < asked:
        sure = rate.value < asked
        missed = LimitMiss("iops", rate.value if sure else low, asked, sure)
        why = f"{missed.words()} (then {why})"
    latency = result.total.latency
    known = limited_values(latency, result.cpu.logical_utilization)
    chances = [
        probability(Interval(known[name], *latency.intervals[name]), limit, at_least=False)
        for name, limit in goal.limits().items()
        if name in latency.intervals and not math.isnan(known[name])
    ]
    if goal.iops is not None:
        chances.append(probability(result.total.iops, goal.iops, at_least=True))
    return StateAnswer(state, missed is None, found.applied, result, why, missed,
                       probability=min(chances, default=1.0), trials=found.trials)  # fmt: skip
