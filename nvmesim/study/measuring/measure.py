"""`nvmesim measure`: fio on a drive, row after row, until another would hardly help.

The next row is the one that narrows the answer most per second, by the expected reduction of its
variance: drives as plausible as the fitted one (draws of what was fitted together; a two-level
design of the other uncertain numbers) are simulated under the candidates and under what is asked.
To first order all are normal, and a measured candidate leaves of the answer's variance what its
correlation with the candidate does not explain, whatever is measured: rows follow each other
without a fit until none is worth its time; then all are fitted, and looked at again. Source:
Chaloner and Verdinelli, "Bayesian experimental design: a review", Statistical Science 10(3), 1995,
section 2.2 (linear design).
"""

from __future__ import annotations

import json
import math
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.evidence import DriveFit
from nvmesim.capture.registry import read_captures
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.toml import to_toml
from nvmesim.errors import CaptureError, FitError, InfrastructureError, InputError
from nvmesim.files import write_text
from nvmesim.measure.control import Progress
from nvmesim.measure.latency import samples
from nvmesim.predict.uncertainty.design import design
from nvmesim.predict.uncertainty.numbers import Z95, Factor, factors, label_of, moved
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.diagnosis.short_runs import short_window
from nvmesim.study.measuring.machine import Machine, Target
from nvmesim.study.measuring.rows import PLAN, RAMP, SETTLE, Row, options

FIRST: Final = 2
"""Rows of the plan that are measured before anything is chosen: one request, and a full drive."""
ENOUGH: Final = 0.1
"""A row that would take less than this share of the interval away is not worth its time."""
LATE_S: Final = 120.0
"""A run of fio that takes so much longer than its time is taken for hung."""
REQUESTS: Final = 5_000
"""Of a simulated row: all draw the same, so that fifty beyond a p99 tell how far it moves."""
ROUNDS: Final = 32
"""It completes what is in flight so many times at least: where all drives are busy, what draws the
same soon meets others in the queues."""
DRAWS: Final = 64
"""Drives that are simulated, at least: what was fitted together is as one of its draws, each other
number a standard deviation up or down. Of 16 a standard deviation is off by a fifth, and a row that
tells nothing seems to tell a tenth."""
NOISE: Final = (0.01, 0.05)
"""Standard error of the logarithm of a measured rate, and of a p99."""

Answer = Callable[[DriveProfile], list[ResolvedScenario]]
"""The scenarios whose throughput and p99 are asked for, with a drive."""


def run_fio(machine: Machine, target: Target, engine: str, row: Row) -> tuple[str, float]:
    """Return fio's JSON of *row*, and the seconds that it took; InfrastructureError if it fails."""
    started = time.monotonic()
    words = ["fio", *options(row, target.path, size=target.size, engine=engine)]
    text = machine.run(words, row.seconds + LATE_S)
    return checked(text, row), time.monotonic() - started


def checked(text: str, row: Row) -> str:
    """Return fio's JSON in *text*; InfrastructureError if it is none or names an error."""
    begin = text.find("{")
    try:
        found = json.loads(text[begin:]) if begin >= 0 else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.get("jobs"):
        raise InfrastructureError(f"{row.name}: fio's output is not a whole report; run it again")
    errors = [job["error"] for job in found["jobs"] if job.get("error")]
    if errors:
        raise InfrastructureError(f"{row.name}: fio reports error {errors[0]}")
    return text[begin:]


@dataclass(frozen=True)
class MeasuredStep:
    """A row that was measured, and what was known after it."""

    row: Row
    seconds: float
    file: Path
    settled: bool
    """True if the rate kept still before the time was over."""
    half_width: float | None
    """Relative, 95 %, of the answer; None: nothing could be fitted yet."""
    is_expected: bool = False
    """True if that is what the last fit expected of it, not yet fitted."""


@dataclass(frozen=True)
class Measuring:
    """What was measured, and the drive that was fitted to it."""

    fit: DriveFit
    steps: tuple[MeasuredStep, ...]
    ended: str
    """Why no further row was measured: "enough", "budget", "plan" (no row is left), "interrupted"
    or "failed"."""
    error: str = ""
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Time that measuring took."""
        return sum(step.seconds for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the object of `measure --json`."""
        return {
            "ended": self.ended, "error": self.error or None, "seconds": self.seconds,
            "half_width": self.steps[-1].half_width, "conditions": self.conditions,
            "rows": [
                {"name": s.row.name, "op": s.row.op, "block_size": s.row.kib * 1024,
                 "jobs": s.row.jobs, "iodepth": s.row.depth, "seconds": s.seconds,
                 "file": str(s.file), "settled": s.settled, "half_width": s.half_width,
                 "expected": s.is_expected}
                for s in self.steps
            ],
            "fit": self.fit,
        }  # fmt: skip


@dataclass
class Plan:
    """How to measure: what may be run, for which answer, and how long."""

    run: Callable[[Row], tuple[str, float]]
    """Runs a row: fio's JSON, and the seconds that it took."""
    folder: Path
    """Where each row's JSON is kept."""
    name: str
    writes: bool = False
    budget_s: float = 600.0
    stack: str = "linux-io_uring"
    link: str = "pcie4 x4"
    answer: Answer | None = None
    """What is to be narrow; None: the drive's own rows."""
    adaptive: bool = True
    """False: all rows of the fixed plan in their order, fitted at its end."""
    enough: float = ENOUGH
    """Least share of the interval that another row has to take away; 0: until no row is left."""
    progress: Progress | None = None
    stop: Callable[[], bool] = lambda: False
    on_step: Callable[[MeasuredStep], None] = lambda step: None

    def __post_init__(self) -> None:
        least = min(row.seconds for row in self.rows)
        if self.budget_s < least:
            raise InputError(f"a row takes {least} s: give a budget of two at least")

    @property
    def rows(self) -> list[Row]:
        """The rows that may be measured; of a short budget, reads take a third of it each."""
        short = max(RAMP + 2 * SETTLE, int(self.budget_s / 3))
        return [
            row if row.writes else replace(row, seconds=min(row.seconds, short))
            for row in PLAN
            if self.writes or not row.writes
        ]

    def asked(self, profile: DriveProfile) -> list[ResolvedScenario]:
        """Return the scenarios whose figures are to be narrow, with *profile* as their drive."""
        if self.answer is not None:
            return self.answer(profile)
        return [scenario_of_row(row, profile, self.stack, self.link) for row in self.rows]


def measure(plan: Plan) -> Measuring:
    """Measure rows until the next would bring little, or time is over, and fit the drive.

    What is finished is kept in any case: an interruption or a failure of fio ends the measuring,
    not the fit. InfrastructureError if fio fails before the first row, FitError if what was
    measured determines no drive.
    """
    steps: list[MeasuredStep] = []
    left, ended, error = plan.rows, "plan", ""
    fit: DriveFit | None = None
    known: _Emulator | None = None
    while left:
        row = _chosen(plan, left, steps, known)
        if row == "enough" and fit is None:
            fit, known = _looked_at(plan, steps)
            continue
        if isinstance(row, str):
            ended = row
            break
        if plan.progress is not None:
            spent = sum(step.seconds for step in steps)
            plan.progress(f"measuring {row.name}: {row.tells}", min(1.0, spent / plan.budget_s))
        try:
            step = _measured(plan, row, is_first=not steps)
        except (KeyboardInterrupt, InfrastructureError) as failure:
            # a terminal's Ctrl-C ends ssh too
            is_asked = isinstance(failure, KeyboardInterrupt) or plan.stop()
            if not steps:
                raise (KeyboardInterrupt() if is_asked else failure) from None
            ended, error = ("interrupted", "") if is_asked else ("failed", str(failure))
            break
        is_expected = False
        begins_writes = row.writes and not any(s.row.writes for s in steps)
        left.remove(row)
        steps.append(step)
        if known is not None and row.name in known.rows and not begins_writes:
            fit, known, is_expected = None, known.after(row), True
        elif plan.adaptive and len(steps) >= FIRST:
            fit, known = _looked_at(plan, steps)
        if known is not None:
            steps[-1] = replace(step, half_width=known.half_width(), is_expected=is_expected)
        plan.on_step(steps[-1])
    if not steps:
        raise KeyboardInterrupt
    if fit is None:
        fit, known = _looked_at(plan, steps)
        if known is not None:
            steps[-1] = replace(steps[-1], half_width=known.half_width(), is_expected=False)
    if fit is None:
        raise FitError(
            f"the rows in {plan.folder} determine no drive; measure longer, or fit them otherwise: "
            f"nvmesim calibrate {plan.folder}"
        )
    return Measuring(fit, tuple(steps), ended, error)


def _chosen(
    plan: Plan, left: Sequence[Row], steps: Sequence[MeasuredStep], known: _Emulator | None
) -> Row | str:
    """The next row, or why there is none."""
    if plan.stop():
        return "interrupted"
    spent = sum(step.seconds for step in steps)
    affordable = [row for row in left if spent + row.seconds <= plan.budget_s]
    if not affordable:
        return "budget"
    if not plan.adaptive or known is None:
        return affordable[0]
    if plan.writes and not any(step.row.writes for step in steps):
        return next((row for row in affordable if row.name == "rw-qd256"), affordable[0])
    gains = known.gains(affordable)
    if max(gains.values(), default=0.0) < plan.enough:
        return "enough"
    return max(affordable, key=lambda row: gains.get(row.name, 0.0) / _seconds(row, steps))


def _seconds(row: Row, steps: Sequence[MeasuredStep]) -> float:
    """Time that *row* will take: rows of its kind that settled did not need all of theirs."""
    shares = [s.seconds / s.row.seconds for s in steps if s.row.writes == row.writes]
    return row.seconds * (sum(shares) / len(shares) if shares else 1.0)


def _measured(plan: Plan, row: Row, *, is_first: bool) -> MeasuredStep:
    text, seconds = plan.run(row)
    plan.folder.mkdir(parents=True, exist_ok=True)
    for stale in PLAN if is_first else ():  # of an earlier profile, maybe of another drive
        (plan.folder / f"{stale.name}.json").unlink(missing_ok=True)
    file = plan.folder / f"{row.name}.json"
    write_text(file, text)
    steady = [job.get("steadystate", {}) for job in json.loads(text)["jobs"]]
    return MeasuredStep(row, seconds, file, any(found.get("attained") for found in steady), None)


def _looked_at(
    plan: Plan, steps: Sequence[MeasuredStep]
) -> tuple[DriveFit | None, _Emulator | None]:
    """The drive as far as *steps* determine one, in any order, and what else could be learned."""
    listed = sorted(steps, key=lambda step: plan.rows.index(step.row))
    captures = read_captures([step.file for step in listed])
    try:
        fit = fit_drive(captures, name=plan.name, captured_on=f"{plan.stack},{plan.link}")
    except (FitError, CaptureError, InputError):
        return None, None
    return fit, _Emulator.of(fit.profile, plan)


def scenario_of_row(row: Row, profile: DriveProfile, stack: str, link: str) -> ResolvedScenario:
    """Return the bench on which *row* is measured, with *profile* as its drive."""
    tables: dict[str, Any] = {
        "name": row.name,
        "server": {"stack": stack, "sockets": [{"cpu": "epyc-7313"}]},
        "drives": [{"profile": tomllib.loads(to_toml(profile)), "link": link}],
        "workload": [{
            "access": "random" if row.op.startswith("rand") else "sequential",
            "block_size": f"{row.kib} KiB", "read": row.read_share,
            "threads_total": row.jobs, "outstanding": row.depth,
        }],
    }  # fmt: skip
    return resolve(scenario_from_dict(tables))


def with_drive(tables: Mapping[str, Any], base: str) -> Answer:
    """Return the answer "that server": *tables* with every drive replaced by the fitted one."""

    def scenarios(profile: DriveProfile) -> list[ResolvedScenario]:
        table = tomllib.loads(to_toml(profile))
        drives = [{**spec, "profile": table} for spec in tables["drives"]]
        return [resolve(scenario_from_dict({**tables, "drives": drives}, base))]

    return scenarios


@dataclass(frozen=True)
class _Emulator:
    """How the answer and rows move together as the drive's uncertain numbers do, to first order.

    What a row leaves uncertain does not depend on what is measured, so that rows are chosen one
    after the other without a fit between them.
    """

    covariance: Floats
    """Of the logarithms of IOPS and p99, two columns a scenario."""
    n_answers: int
    """Columns, the first, that are the answer."""
    rows: Mapping[str, int]
    """Name -> first column; a row that cannot be simulated has none."""

    @classmethod
    def of(cls, profile: DriveProfile, plan: Plan) -> _Emulator:
        """Simulate drives as plausible as *profile*, under the answer and under all rows."""
        asked = plan.asked(profile)
        runs = _plausible(profile, asked)
        names = [scenario.name for scenario in asked]
        values = [_moved(scenario, runs) for scenario in asked]
        n_answers = 2 * len(values)
        for row in plan.rows if plan.answer else ():
            try:
                bench = scenario_of_row(row, profile, plan.stack, plan.link)
                values.append(_moved(bench, runs))
            except InputError:
                continue
            names.append(row.name)
        first = len(asked) if plan.answer else 0
        rows = {name: 2 * i for i, name in enumerate(names) if i >= first}
        return cls(np.cov(np.hstack(values).T), n_answers, rows)

    def half_width(self) -> float:
        """Return the relative half-width, 95 %, that the drive's numbers leave of the answer."""
        variance = float(np.diag(self.covariance)[: self.n_answers].mean())
        return math.expm1(Z95 * math.sqrt(max(0.0, variance)))

    def after(self, row: Row) -> _Emulator:
        """Return what is uncertain once *row* is measured."""
        columns = slice(self.rows[row.name], self.rows[row.name] + 2)
        whole, own = self.covariance, self.covariance[columns, columns] + np.diag(np.square(NOISE))
        known = whole[:, columns] @ np.linalg.solve(own, whole[columns])
        return replace(self, covariance=whole - known)

    def gains(self, candidates: Sequence[Row]) -> dict[str, float]:
        """Return, by name, the share of that half-width which measuring a row would take away.

        Rows that cannot be simulated are left out.
        """
        now = self.half_width()
        return {
            row.name: 1 - self.after(row).half_width() / now if now else 0.0
            for row in candidates if row.name in self.rows
        }  # fmt: skip


Plausible = list[tuple[list[Factor], list[int]]]
"""Of each drive: what moves, and how far in standard deviations."""


def _plausible(profile: DriveProfile, asked: Sequence[ResolvedScenario]) -> Plausible:
    joint = profile.joint
    together = set(joint.names) if joint else set()
    used = [f for scenario in asked for f in factors(scenario) if f.profile == label_of(profile)]
    singles = list({f.name: f for f in used if not f.moves.keys() & together}.values())
    signs = design(max(1, len(singles)))[:, : len(singles)].tolist()
    n = max(DRAWS, len(signs))
    runs = [(singles, signs[i % len(signs)]) for i in range(n)]
    if joint is None:
        return runs
    draws = [joint.factors[i * len(joint.factors) // n] for i in range(n)]
    moves = [
        {key: (math.log(f), math.log(f)) for key, f in zip(joint.names, draw, strict=True)}
        for draw in draws
    ]
    return [
        ([*found, Factor("a draw", label_of(profile), move)], [*line, 1])
        for (found, line), move in zip(runs, moves, strict=True)
    ]


def _moved(scenario: ResolvedScenario, runs: Plausible) -> Floats:
    """float64[runs, 2]: log IOPS and log p99 of *scenario* with the numbers moved."""
    values = []
    for found, signs in runs:
        window = short_window(moved(scenario, found, signs), least=REQUESTS, rounds=ROUNDS)
        latency = None if window is None else samples(window, None)
        if window is None or latency is None:
            raise InputError(f"{scenario.name}: no request ends")
        values.append([math.log(window.iops().value), math.log(latency.quantile(0.99))])
    return np.array(values)
