"""The cheapest candidate that meets a goal, its runner-ups, and why the others were rejected.

What follows from the parts alone goes first; then operational bounds from a short run of each (no
throughput exceeds servers over demand, at any station); only what is left is simulated to the
precision asked for, the cheapest first, until one holds and enough runner-ups do too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from nvmesim.drawing import Charted
from nvmesim.errors import InputError
from nvmesim.measure.figures import Interval
from nvmesim.predict.simulate import offered
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.study.choose.candidates import Fixed, fixed, with_failed
from nvmesim.study.choose.goal import PERFORMANCE, Goal, goal_from_dict, load_goal
from nvmesim.study.limits import probability, short_by
from nvmesim.study.naming import design_name
from nvmesim.study.sweep.api import Progress, simulate_all, tables_of
from nvmesim.study.sweep.frame import to_frame
from nvmesim.study.sweep.plan import make_plan, put
from nvmesim.study.sweep.point import PointAnswer, Settings, SweepJob
from nvmesim.study.sweep.workers import usable_cpus
from nvmesim.units import PS_PER_US, format_iops

State = Literal["chosen", "runner-up", "rejected", "not simulated"]
PILOT_REQUESTS: Final = 3_000
OPEN_PILOT_REQUESTS: Final = 20_000
"""Of an open loop: what it carries shows only once the first requests have come through."""
SLACK: Final = 1.1
"""A bound from a short run must miss the goal by more than this factor to reject."""
OPEN_SLACK: Final = 1.25
"""And what a short run of an open loop without steady state carries, by more than this one."""
AT_LEAST: Final = ("capacity", "survives", "iops", "bandwidth")
COLUMNS: Final = {
    # constraint: (column of a point, that of what simulation leaves of it, of its far end)
    "iops": ("iops", "iops_simulation", "iops_low"),
    "bandwidth": ("bytes_per_s", "iops_simulation", ""),
    "cpu": ("cpu_logical", "", ""),
    "mean": ("lat_mean_us", "", ""),
    "p50": ("lat_p50_us", "", ""),
    "p99": ("lat_p99_us", "lat_p99_simulation", "lat_p99_high_us"),
    "p99_9": ("lat_p99_9_us", "", ""),
}


@dataclass
class Candidate:
    """One design and what became of it."""

    number: int
    values: tuple[Any, ...]
    tables: dict[str, Any]
    fixed: Fixed | None = None
    row: dict[str, Any] = field(default_factory=dict)
    state: State = "not simulated"
    failed: str = ""
    """The first constraint that it misses; "scenario" if it cannot be built."""
    reason: str = ""
    offered: float | None = None
    """Requests per second of an open loop; None for closed ones."""
    p_meets: float = 1.0
    """Least probability, over IOPS and p99, that it holds with all that is not known."""

    def cost(self, what: str) -> float:
        """Quantity that the objective counts."""
        found = getattr(self.fixed, what) if self.fixed else None
        return float("inf") if found is None else float(found)

    def reject(self, constraint: str, reason: str) -> None:
        """Note the first reason against it."""
        self.state, self.failed, self.reason = "rejected", constraint, reason


@dataclass(frozen=True)
class Choice(Charted):
    """The answer."""

    goal: Goal
    keys: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    nearest: str
    """Where nothing meets the goal: which constraint fails first, and by how much."""

    @property
    def chosen(self) -> Candidate | None:
        """The best that meets the goal."""
        return next((c for c in self.candidates if c.state == "chosen"), None)

    @property
    def runner_ups(self) -> list[Candidate]:
        """Others that meet it, best first."""
        return [c for c in self.candidates if c.state == "runner-up"]

    def named(self, candidate: Candidate) -> str:
        """Its values in words."""
        return design_name(dict(zip(self.keys, candidate.values, strict=True)))

    def frame(self) -> pl.DataFrame:
        """One row a candidate, the chosen first: values, state, reason, figures, results."""
        parts = [
            {"state": c.state, "failed": c.failed or None, "reason": c.reason or None,
             "p_meets": c.p_meets if c.row and c.state != "rejected" else None,
             **(asdict(c.fixed) if c.fixed else dict.fromkeys(Fixed.__dataclass_fields__))}
            for c in self.candidates
        ]  # fmt: skip
        found = to_frame(self.keys, [c.values for c in self.candidates],
                         [c.row for c in self.candidates])  # fmt: skip
        text = pl.DataFrame(parts, infer_schema_length=None)
        n = len(self.keys)
        left, right = found[:, :n], found[:, n:]
        return pl.concat([left, text, right.drop("drives", strict=False)], how="horizontal")

    def __str__(self) -> str:
        """Return the answer in one sentence."""
        best, what = self.chosen, self.goal.objective.minimize
        if best is None:
            return self.nearest
        cost = f"{best.cost(what):,.6g} {self.unit}".rstrip()
        return f"{self.named(best)}: least {what} ({cost}) that meets the goal"

    @property
    def unit(self) -> str:
        """Of the objective: the currency of the prices, W, or none."""
        return {"price": self.goal.currency, "power": "W"}.get(self.goal.objective.minimize, "")


def choose(
    goal: Goal | Mapping[str, Any] | str | Path,
    *,
    workers: int | None = None,
    everything: bool = False,
    progress: Progress | None = None,
) -> Choice:
    """Return the candidate of *goal* with the least objective that meets every constraint.

    *goal* is a TOML file, or its tables, as `nvmesim choose` takes them.
    *everything* simulates all that screening leaves, for a complete Pareto chart.
    """
    if isinstance(goal, str | Path):
        goal = load_goal(goal)
    elif not isinstance(goal, Goal):
        goal = goal_from_dict(goal)
    search = _Search(goal, workers, progress)
    search.screen_parts()
    search.screen_bounds()
    search.simulate(everything)
    return search.choice()


class _Search:
    def __init__(self, goal: Goal, workers: int | None, progress: Progress | None) -> None:
        self.goal, self._workers, self._progress = goal, workers, progress
        named = goal.scenario if isinstance(goal.scenario, dict) else goal.base / goal.scenario
        tables, self._base = tables_of(named)
        if isinstance(goal.scenario, dict):
            self._base = str(goal.base.absolute())
        self._settings = Settings()
        plan = make_plan(goal.candidates)
        self.keys = tuple(axis.key for axis in plan.axes)
        self.all = [
            Candidate(i, values, put(tables, dict(zip(self.keys, values, strict=True))))
            for i, values in enumerate(plan.points())
        ]

    def left(self) -> list[Candidate]:
        """Those not rejected, least objective first."""
        found = [c for c in self.all if c.state != "rejected"]
        return sorted(found, key=lambda c: (c.cost(self.goal.objective.minimize), c.number))

    def screen_parts(self) -> None:
        """Reject what cannot be built, and what its parts alone rule out."""
        for candidate in self.all:
            try:
                resolved = resolve(scenario_from_dict(candidate.tables, self._base))
            except InputError as error:
                candidate.reject("scenario", str(error))
                continue
            candidate.fixed = fixed(resolved, self.goal)
            candidate.offered = offered(resolved)
            self._judge_parts(candidate)
            try:
                candidate.tables = with_failed(candidate.tables, resolved, self.goal.missing)
                resolve(scenario_from_dict(candidate.tables, self._base))
            except InputError as error:
                if candidate.state != "rejected":
                    candidate.reject("survives", f"{self.goal.missing} failed: {error}")

        if all(c.failed == "scenario" for c in self.all):
            raise InputError(f"no candidate can be built; the first: {self.all[0].reason}")

    def _judge_parts(self, candidate: Candidate) -> None:
        for name in type(self.goal.constraints).model_fields:
            limit = getattr(self.goal.constraints, name)
            if limit is None or name in PERFORMANCE:
                continue
            value = float(getattr(candidate.fixed, name))
            if not _holds(name, value, float(limit)):
                candidate.reject(name, _miss(name, value, float(limit), self.goal.currency))
                return

    def screen_bounds(self) -> None:
        """Reject what no station of a short run could carry."""
        asked = self.goal.constraints.iops
        if asked is None:
            return
        opened = self.all and any("rate" in load for load in self.all[0].tables.get("workload", []))
        few = OPEN_PILOT_REQUESTS if opened else PILOT_REQUESTS
        settings = Settings(requests=few, seed=self._settings.seed, certainty=False)
        left = self.left()
        for answer in self._answers(left, settings, "bounds", 0, len(left)):
            candidate, row = self.all[answer.number], answer.row
            if row.get("error") is not None:
                candidate.reject("scenario", row["error"])
                continue
            unstable = row["verdict"] == "unstable"
            if row["bound_iops"] * (OPEN_SLACK if unstable else SLACK) < asked:
                candidate.row = {**row, "error": None}
                candidate.reject("iops", _bounded(row, asked))

    def simulate(self, everything: bool) -> None:
        """Simulate the cheapest first, until one holds and the runner-ups do."""
        found = done = 0
        size = max(1, self._workers or usable_cpus())
        left = self.left()
        waiting = iter(left)
        while group := list(islice(waiting, size)):
            if found > self.goal.runner_ups and not everything:
                return
            for answer in self._answers(group, self._settings, "simulated", done, len(left)):
                self._judge(self.all[answer.number], answer)
            done += len(group)
            for candidate in group:
                if candidate.state != "rejected":
                    candidate.state = "runner-up" if found else "chosen"
                    found += 1

    def _answers(
        self, group: Iterable[Candidate], settings: Settings, what: str, before: int, of: int
    ) -> list[PointAnswer]:
        """Simulate *group*; *before* of the *of* candidates of this step are done already."""
        jobs = [SweepJob(c.number, c.tables, self._base, settings) for c in group]
        answers = []
        for answer in simulate_all(iter(jobs), len(jobs), workers=self._workers):
            answers.append(answer)
            if self._progress is not None:
                done = before + len(answers)
                self._progress(f"{what}: {done} of {of}", done / of)
        return answers

    def _judge(self, candidate: Candidate, answer: PointAnswer) -> None:
        candidate.row = row = answer.row
        if row.get("error") is not None:
            candidate.reject("scenario", row["error"])
            return
        if row["verdict"] == "unstable":
            asked = self.goal.constraints.iops or row["bound_iops"] + row["backlog_per_s"]
            candidate.reject("iops", _bounded(row, asked))
            return
        for name in PERFORMANCE:
            limit = getattr(self.goal.constraints, name)
            if limit is not None and not self._check(candidate, name, row):
                return

    def _check(self, candidate: Candidate, name: str, row: Mapping[str, Any]) -> bool:
        column, simulated, far = COLUMNS[name]
        limit = float(getattr(self.goal.constraints, name))
        if name in ("mean", "p50", "p99", "p99_9"):
            limit /= PS_PER_US
        value = row[column]
        if value is None:
            candidate.reject(name, f"{name} is not known: too few samples")
        elif name == "iops" and self._is_carried(candidate, limit):
            pass  # the rate is an input: how many happened to arrive says nothing
        elif not _holds(name, value, limit):
            candidate.reject(name, _miss(name, value, limit, ""))
        else:
            end = _end(name, value, row.get(simulated) or 0.0)
            if not _holds(name, end, limit):
                candidate.reject(name, f"{name} holds, but not for sure: {_say(name, end, '')} "
                                 "is inside the interval of the simulation")  # fmt: skip
            end = row.get(far) or value
            chance = probability(Interval(value, end, end), limit, at_least=name in AT_LEAST)
            candidate.p_meets = min(candidate.p_meets, chance)
        return candidate.state != "rejected"

    @staticmethod
    def _is_carried(candidate: Candidate, limit: float) -> bool:
        """True if an open loop of *limit* requests/s or more is carried (it is not unstable)."""
        return candidate.offered is not None and candidate.offered >= limit * (1 - 1e-9)

    def choice(self) -> Choice:
        """Order: chosen, runner-ups, not simulated, rejected."""
        order = {"chosen": 0, "runner-up": 1, "not simulated": 2, "rejected": 3}
        what = self.goal.objective.minimize
        ordered = sorted(self.all, key=lambda c: (order[c.state], c.cost(what), c.number))
        for candidate in ordered:
            if candidate.state == "not simulated":
                candidate.reason = f"no less {what} than the runner-ups"
        met = any(c.state == "chosen" for c in self.all)
        return Choice(self.goal, self.keys, tuple(ordered), "" if met else self._nearest())

    def _nearest(self) -> str:
        """Which constraint fails first: the first that none passes of those that passed before."""
        alive = self.all
        for name in ("scenario", *type(self.goal.constraints).model_fields):
            failing = [c for c in alive if c.failed == name]
            if len(failing) == len(alive):
                return self._said(name, alive)
            alive = [c for c in alive if c.failed != name]
        return "no candidate meets the goal"

    def _said(self, name: str, failing: list[Candidate]) -> str:
        n = len(failing)
        among = f"the {n} of {len(self.all)} candidates" if n < len(self.all) else f"{n} candidates"
        what = "survives" if name == "survives" and self.goal.missing else name
        known = [(v, c) for c in failing if (v := self._value(name, c)) is not None]
        if not known:
            return f"nothing meets the goal: {what} fails first, in {among}: {failing[0].reason}"
        best = (max if name in AT_LEAST else min)(known, key=lambda pair: pair[0])[1]
        words = design_name(dict(zip(self.keys, best.values, strict=True)))
        return (
            f"nothing meets the goal: {what} fails first, in all of {among} that get so far; "
            f"nearest is {words}: {best.reason}"
        )

    def _value(self, name: str, candidate: Candidate) -> float | None:
        if name in PERFORMANCE:
            bounded = "allows" in candidate.reason or "is full at" in candidate.reason
            column = "bound_iops" if bounded else COLUMNS[name][0]
            value = candidate.row.get(column)
        else:
            value = getattr(candidate.fixed, name, None)
        return None if value is None else float(value)


def _end(name: str, value: float, share: float) -> float:
    """The end of a figure's interval that must hold, *share* of it away."""
    return value / (1 + share) if name in AT_LEAST else value * (1 + share)


def _holds(name: str, value: float, limit: float) -> bool:
    return value >= limit if name in AT_LEAST else value <= limit


def _bounded(row: Mapping[str, Any], asked: float) -> str:
    """Why a load that is bounded so does not reach *asked* requests per second."""
    at, by = row["bound_iops"], short_by(row["bound_iops"], asked)
    what = f"allows {format_iops(at)} at most"
    if row["verdict"] == "unstable":
        what = f"is full at {format_iops(at)} and the backlog grows"
    return f"{row['station']} {what}: {by} short of {format_iops(asked)}"


def _miss(name: str, value: float, limit: float, currency: str) -> str:
    if name == "survives":
        return f"survives {value:.0f} failed drives; the goal asks for {limit:.0f}"
    relation = "short of" if name in AT_LEAST else "above"
    return (
        f"{name} {_say(name, value, currency)} is {short_by(value, limit)} {relation} "
        f"{_say(name, limit, currency)}"
    )


def _say(name: str, value: float, currency: str) -> str:
    if name == "iops":
        return format_iops(value)
    if name == "capacity":
        return f"{value / 1e12:.4g} TB"
    if name == "bandwidth":
        return f"{value / 1e9:.4g} GB/s"
    if name == "cpu":
        return f"{value:.1%}"
    if name in ("mean", "p50", "p99", "p99_9"):
        return f"{value:,.4g} us"
    unit = {"power": " W", "price": f" {currency}"}.get(name, "")
    return f"{value:,.6g}{unit}"
