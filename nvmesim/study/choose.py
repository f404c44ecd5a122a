"""The cheapest candidate that meets a goal, its runner-ups, and why the others were rejected.

First by the parts alone, then by operational bounds from short runs; what is left is simulated, the
cheapest first.
"""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from nvmesim.catalog.load import INLINE
from nvmesim.catalog.toml import toml_key
from nvmesim.drawing import Charted
from nvmesim.errors import InputError
from nvmesim.measure.figures import Interval
from nvmesim.predict.answer import offered
from nvmesim.predict.uncertainty.derived import probability
from nvmesim.scenario.load import scenario_from_dict, with_values
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario, Volume
from nvmesim.scenario.volumes import loose_drives, usable_bytes
from nvmesim.study.designs import Goal, design_name, goal_from_dict, load_goal, short_by
from nvmesim.study.sweep.api import Progress, simulated_rows, tables_of
from nvmesim.study.sweep.plan import make_plan
from nvmesim.study.sweep.point import Settings, to_frame
from nvmesim.study.sweep.workers import WorkerPool, usable_cpus
from nvmesim.units import PS_PER_US, chance, format_iops

State = Literal["chosen", "runner-up", "not simulated", "rejected"]
ORDER: Final[tuple[State, ...]] = ("chosen", "runner-up", "not simulated", "rejected")
PILOT_REQUESTS: Final = 3_000
OPEN_PILOT_REQUESTS: Final = 20_000
"""Of an open loop: what it carries shows only once the first requests have come through."""
SURE: Final = 0.95
"""Probability to meet the goal from which on a candidate is told apart from those that do not."""
SLACK: Final = 1.1
"""A bound from a short run must miss the goal by more than this factor to reject."""
OPEN_SLACK: Final = 1.25
"""And what a short run of an open loop without steady state carries, by more than this one."""
AT_LEAST: Final = ("capacity", "survives", "iops", "bandwidth")
LATENCIES: Final = ("mean", "p50", "p99", "p99_9")
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
"""Constraints that need a simulation."""


# What follows from the parts alone ---------------------------------------------------------------


@dataclass(frozen=True)
class Fixed:
    """Figures that follow from the parts alone; None: not known and not asked for."""

    capacity: float
    """Usable bytes."""
    survives: int
    drives: int
    slots: int
    lanes: int
    power: float | None
    """W"""
    price: float | None


def fixed(scenario: ResolvedScenario, goal: Goal) -> Fixed:
    """Return the figures of *scenario*; InputError if a price or wattage that counts is missing."""
    volumes, drives = scenario.volumes, scenario.drives
    direct = sum(d.link.pcie_lanes for d in drives if d.adapter is None)
    parts = [
        *(("drive", d.profile.name, {"power_active_w": d.profile.power_active_w,
                                     "price": d.profile.price}) for d in drives),
        *(("CPU", s.cpu.name, {"tdp_w": s.cpu.tdp_w, "price": s.cpu.price})
          for s in scenario.sockets),
    ]  # fmt: skip

    def total(what: str, stated: Mapping[str, float]) -> float | None:
        """Sum over the parts; the goal's own *stated* numbers go before the profiles'."""
        counts = goal.objective.minimize == what or getattr(goal.constraints, what) is not None
        out = stated.get("server", 0.0)
        for part, name, profile in parts:
            watts, price = profile
            key = price if what == "price" else watts
            known = profile[key]
            if name not in stated and known is None:
                if not counts:
                    return None
                listed, like = ("watts", 14) if what == "power" else ("prices", 400)
                where = f"the goal's [{listed}]: {toml_key(name)} = {like}"
                if name == INLINE:
                    name, where = "of the scenario", f"its table there: {key} = {like}"
                raise InputError(f"the {part} {name} has no {what}; add it to {where}")
            out += stated[name] if known is None or name in stated else known.value
        return out

    return Fixed(
        capacity=float(usable_bytes(scenario)),
        survives=min([survived(v) for v in volumes] + [0 for _ in loose_drives(scenario)]),
        drives=len(drives),
        slots=len(drives),
        lanes=direct + sum(a.link.pcie_lanes for a in scenario.adapters),
        power=total("power", goal.watts),
        price=total("price", goal.prices),
    )


def survived(volume: Volume) -> int:
    """Members that may fail, whichever they are, those missing already counted."""
    return volume.raid.survives(len(volume.members), volume.copies) - len(volume.degraded)


def condition(scenario: ResolvedScenario) -> str:
    """What its arrays and drives are in while it is simulated, in words."""
    gone = max((len(v.degraded) for v in scenario.volumes), default=0)
    arrays = f"{gone} drive{'s' * (gone > 1)} of each array missing" if gone else "arrays whole"
    rebuilt = ", a rebuild beside the load" * any(v.rebuild for v in scenario.volumes)
    states = {"empty" if d.profile.read.unmapped else d.profile.state for d in scenario.drives}
    return f"{arrays}{rebuilt}; drives in {' and '.join(sorted(states))} state"


# Candidates and the answer -----------------------------------------------------------------------


@dataclass
class Candidate:
    """One design and what became of it."""

    number: int
    values: dict[str, Any]
    tables: dict[str, Any]
    fixed: Fixed | None = None
    row: dict[str, Any] = field(default_factory=dict)
    state: State = "not simulated"
    failed: str = ""
    """The first constraint that it misses; "scenario" if it cannot be built."""
    reason: str = ""
    is_bounded: bool = False
    """True if it was rejected by what a station allows, and not by what was simulated."""
    offered: float | None = None
    """Requests per second of an open loop; None for closed ones."""
    p_meets: float = 1.0
    """Least probability, over IOPS and p99, that it holds with all that is not known."""
    least_sure: str = ""
    """The constraint of that probability."""
    condition: str = ""
    """As `condition`."""

    @property
    def name(self) -> str:
        """Its values in words."""
        return design_name(self.values)

    def cost(self, what: str) -> float:
        """Quantity that the objective counts."""
        found = getattr(self.fixed, what) if self.fixed else None
        return float("inf") if found is None else float(found)

    def reject(self, constraint: str, reason: str) -> None:
        """Note the first reason against it."""
        if self.state != "rejected":
            self.state, self.failed, self.reason = "rejected", constraint, reason

    def reject_bounded(self, row: Mapping[str, Any], asked: float) -> None:
        """Note that a station does not reach *asked* requests per second."""
        bound = row["bound_iops"]
        end = "and the backlog grows" if row["verdict"] == "unstable" else "at most"
        by = f"by {row['fullest']}: {short_by(bound, asked)} short of {format_iops(asked)}"
        self.is_bounded = True
        far = bound * row["iops_low"] / row["iops"] if row.get("iops_low") else bound
        self.doubt("iops", Interval(bound, far, far), asked)
        self.reject("iops", f"{format_iops(bound)} {end}, {by}")

    def doubt(self, constraint: str, known: Interval, limit: float) -> None:
        """Note how probable it is that it holds *constraint*."""
        chance = probability(known, limit, at_least=constraint in AT_LEAST)
        if chance < self.p_meets:
            self.p_meets, self.least_sure = chance, constraint

    def value(self, constraint: str) -> float | None:
        """Return how far it gets in *constraint*."""
        if constraint in COLUMNS:
            found = self.row.get("bound_iops" if self.is_bounded else COLUMNS[constraint][0])
        else:
            found = getattr(self.fixed, constraint, None)
        return None if found is None else float(found)


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

    def frame(self) -> pl.DataFrame:
        """One row a candidate, the chosen first: values, state, reason, figures, results."""
        parts = [
            {"state": c.state, "failed": c.failed or None, "reason": c.reason or None,
             "p_meets": c.p_meets if c.row and c.state != "rejected" else None,
             **(asdict(c.fixed) if c.fixed else dict.fromkeys(Fixed.__dataclass_fields__))}
            for c in self.candidates
        ]  # fmt: skip
        points = [tuple(c.values.values()) for c in self.candidates]
        found = to_frame(self.keys, points, [c.row for c in self.candidates])
        n, text = len(self.keys), pl.DataFrame(parts, infer_schema_length=None)
        results = found[:, n:].drop("drives", strict=False)
        return pl.concat([found[:, :n], text, results], how="horizontal")

    def __str__(self) -> str:
        best, what = self.chosen, self.goal.objective.minimize
        if best is None:
            return self.nearest
        sure = f" ({chance(best.p_meets)} sure)"
        return f"{best.name}: least {what} ({self.cost(best)}) that meets the goal{sure}"

    def cost(self, candidate: Candidate) -> str:
        """What it costs in the objective, with the unit."""
        return f"{candidate.cost(self.goal.objective.minimize):,.6g} {self.unit}".rstrip()

    @property
    def cheaper(self) -> Candidate | None:
        """The likeliest of those that cost less and miss the goal, if it may meet it after all."""
        best, what = self.chosen, self.goal.objective.minimize
        found = [c for c in self.candidates if best and c.state == "rejected" and c.row
                 and c.p_meets > 1 - SURE and c.cost(what) < best.cost(what)]  # fmt: skip
        return max(found, key=lambda c: c.p_meets, default=None)

    @property
    def study(self) -> str:
        """The command that says what to measure to know; empty where no file or nothing open."""
        best = self.chosen
        doubtful = best if best and best.p_meets < SURE else self.cheaper
        if best is None or doubtful is None:
            return ""
        return self._command("sensitivity", best, "--metric", COLUMNS[doubtful.least_sure][0])

    @property
    def lift(self) -> str:
        """The command that says what lifts the cheapest that one part holds back; empty if dear."""
        best, what = self.chosen, self.goal.objective.minimize
        held = [c for c in self.candidates
                if c.is_bounded and (best is None or c.cost(what) <= best.cost(what))]  # fmt: skip
        return self._command("run", min(held, key=lambda c: c.cost(what))) if held else ""

    def _command(self, name: str, candidate: Candidate, *options: str) -> str:
        """A command about *candidate* with as many drives missing; empty without a file."""
        if not isinstance(scenario := self.goal.scenario, str):
            return ""
        sets = [f"{key}={value}" for key, value in candidate.values.items()]
        if missing := self.goal.missing:
            sets.append(f"volume.*.degraded={list(range(missing))}".replace(" ", ""))
        words = ["nvmesim", name, str(self.goal.base / scenario), *options]
        return shlex.join([*words, *(word for one in sets for word in ("--set", one))])

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
    with WorkerPool(max(1, workers or usable_cpus())) as pool:
        search = Search(goal, workers, progress, pool)
        search.screen_parts()
        search.screen_bounds()
        search.simulate(everything)
    return search.choice()


class Search:
    """The candidates of a goal, screened and simulated step by step."""

    def __init__(
        self, goal: Goal, workers: int | None, progress: Progress | None,
        pool: WorkerPool | None = None,
    ) -> None:  # fmt: skip
        self.goal, self._workers, self._progress, self._pool = goal, workers, progress, pool
        is_table = isinstance(goal.scenario, dict)
        tables, base = tables_of(goal.scenario if is_table else goal.base / str(goal.scenario))
        self._base = str(goal.base.absolute()) if is_table else base
        plan = make_plan(goal.candidates)
        self._keys = plan.keys
        self.all = [Candidate(i, v, with_values(tables, v)) for i, v in enumerate(plan.changes())]
        self._limits = {
            name: float(limit) / (PS_PER_US if name in LATENCIES else 1)
            for name in type(goal.constraints).model_fields
            if (limit := getattr(goal.constraints, name)) is not None
        }

    def screen_parts(self) -> None:
        """Reject what cannot be built, and what its parts alone rule out."""
        failed = self.goal.missing
        for candidate in self.all:
            try:
                built = resolve(scenario_from_dict(candidate.tables, self._base))
            except InputError as error:
                candidate.reject("scenario", str(error))
                continue
            candidate.fixed, candidate.offered = fixed(built, self.goal), offered(built)
            candidate.condition = condition(built)
            for name, limit in self._limits.items():
                value = None if name in COLUMNS else candidate.value(name)
                if value is not None and not _holds(name, value, limit):
                    candidate.reject(name, _miss(name, value, limit, self.goal.currency))
                    break
            if not failed:
                continue
            # the first members of every volume are missing while it is simulated
            candidate.tables["volume"] = [
                {**spec, "degraded": sorted({*spec.get("degraded", ()), *range(failed)})}
                for spec in candidate.tables.get("volume", [])
            ]
            try:
                built = resolve(scenario_from_dict(candidate.tables, self._base))
                candidate.condition = condition(built)
            except InputError as error:
                candidate.reject("survives", f"{failed} failed: {error}")
        if all(c.failed == "scenario" for c in self.all):
            raise InputError(f"no candidate can be built; the first: {self.all[0].reason}")

    def screen_bounds(self) -> None:
        """Reject what no station of a short run could carry."""
        asked = self._limits.get("iops")
        if asked is None:
            return
        is_open = any("rate" in load for load in self.all[0].tables.get("workload", []))
        few = OPEN_PILOT_REQUESTS if is_open else PILOT_REQUESTS
        left = self._left()
        settings = Settings(requests=few, certainty=False)
        for candidate, row in self._rows(left, settings, "bounds", 0, len(left)):
            if row.get("error") is not None:
                candidate.reject("scenario", row["error"])
            elif (
                row["bound_iops"] * (OPEN_SLACK if row["verdict"] == "unstable" else SLACK) < asked
            ):
                candidate.row = {**row, "error": None}
                candidate.reject_bounded(row, asked)

    def simulate(self, everything: bool) -> None:
        """Simulate the cheapest first, until one holds and the runner-ups do."""
        found = done = 0
        left = self._left()
        waiting = iter(left)
        while group := list(islice(waiting, max(1, self._workers or usable_cpus()))):
            if found > self.goal.runner_ups and not everything:
                return
            for candidate, row in self._rows(group, Settings(), "simulated", done, len(left)):
                self.judge(candidate, row)
            done += len(group)
            for candidate in group:
                if candidate.state != "rejected":
                    candidate.state = "runner-up" if found else "chosen"
                    found += 1

    def _left(self) -> list[Candidate]:
        """Those not rejected, least objective first."""
        what = self.goal.objective.minimize
        found = [c for c in self.all if c.state != "rejected"]
        return sorted(found, key=lambda c: (c.cost(what), c.number))

    def _rows(
        self, group: list[Candidate], settings: Settings, what: str, before: int, of: int
    ) -> list[tuple[Candidate, dict[str, Any]]]:
        """Simulate *group*; *before* of the *of* candidates of this step are done already."""

        def say(done: int) -> None:
            if self._progress is not None:
                done += before
                self._progress(f"{what}: {done} of {of}", done / of)

        tables = [(c.tables, self._base) for c in group]
        rows = simulated_rows(tables, settings, self._workers, say, self._pool)
        return list(zip(group, rows, strict=True))

    def judge(self, candidate: Candidate, row: dict[str, Any]) -> None:
        """Hold what was simulated against the limits; reject at the first that fails."""
        candidate.row = row
        if row.get("error") is not None:
            candidate.reject("scenario", row["error"])
        elif row["verdict"] == "unstable":
            asked = self._limits.get("iops") or row["bound_iops"] + row["backlog_per_s"]
            candidate.reject_bounded(row, asked)
        else:
            for name in COLUMNS:
                if name in self._limits:
                    self._check(candidate, name, row)

    def _check(self, candidate: Candidate, name: str, row: Mapping[str, Any]) -> None:
        column, simulated, far = COLUMNS[name]
        limit, value = self._limits[name], row[column]
        if value is None:
            candidate.p_meets = 0.0
            candidate.reject(name, f"{name} is not known: what is slow came in too few episodes")
            return
        if name == "iops" and (candidate.offered or 0.0) >= limit * (1 - 1e-9):
            return  # the rate is an input, and carried: how many happened to arrive says nothing
        end = row.get(far) or value
        candidate.doubt(name, Interval(value, end, end), limit)
        share = 1 + (row.get(simulated) or 0.0)
        end = value / share if name in AT_LEAST else value * share
        if not _holds(name, value, limit):
            candidate.reject(name, _miss(name, value, limit, ""))
        elif not _holds(name, end, limit):
            candidate.reject(name, f"{name} holds, but not for sure: {_say(name, end, '')} "
                             "is inside the interval of the simulation")  # fmt: skip

    def choice(self) -> Choice:
        """Return the candidates in their order: chosen, runner-ups, not simulated, rejected."""
        what = self.goal.objective.minimize
        ordered = sorted(self.all, key=lambda c: (ORDER.index(c.state), c.cost(what), c.number))
        for candidate in ordered:
            if candidate.state == "not simulated":
                candidate.reason = f"no less {what} than the runner-ups"
        nearest = "" if ordered[0].state == "chosen" else self._nearest()
        return Choice(self.goal, self._keys, tuple(ordered), nearest)

    def _nearest(self) -> str:
        """Which constraint fails first: the first that none passes of those that passed before."""
        alive = self.all
        for name in ("scenario", *type(self.goal.constraints).model_fields):
            left = [c for c in alive if c.failed != name]
            if not left:
                break
            alive = left
        else:
            return "no candidate meets the goal"
        parts = [f"{n} {'cannot be built' if at == 'scenario' else f'fail at {at}'}"
                 for at, n in Counter(c.failed for c in self.all).items()]  # fmt: skip
        fails = f"nothing meets the goal: {name} fails first "
        fails += f"(of {len(self.all)} candidates {', '.join(parts)})"
        known = [(value, c) for c in alive if (value := c.value(name)) is not None]
        if not known:
            return f"{fails}: {alive[0].reason}"
        best = (max if name in AT_LEAST else min)(known, key=lambda pair: pair[0])[1]
        return f"{fails}; nearest is {best.name}: {best.reason}"


def _holds(name: str, value: float, limit: float) -> bool:
    return value >= limit if name in AT_LEAST else value <= limit


def _miss(name: str, value: float, limit: float, currency: str) -> str:
    if name == "survives":
        return f"survives {value:.0f} failed drives; the goal asks for {limit:.0f}"
    relation = "short of" if name in AT_LEAST else "above"
    said = f"{_say(name, value, currency)} is {short_by(value, limit)} {relation}"
    return f"{'' if name == 'iops' else name + ' '}{said} {_say(name, limit, currency)}"


def _say(name: str, value: float, currency: str) -> str:
    if name == "iops":
        return format_iops(value)
    if name in LATENCIES:
        return f"{value:,.4g} us"
    shown = {
        "capacity": f"{value / 1e12:.4g} TB", "bandwidth": f"{value / 1e9:.4g} GB/s",
        "cpu": f"{value:.1%}", "power": f"{value:,.6g} W", "price": f"{value:,.6g} {currency}",
    }  # fmt: skip
    return shown.get(name, f"{value:,.6g}")
