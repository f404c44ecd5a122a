"""`nvmesim measure`: fio on a drive, row after row, until another would hardly help."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.evidence import DriveFit
from nvmesim.capture.registry import read_captures
from nvmesim.errors import CaptureError, FitError, InfrastructureError, InputError
from nvmesim.files import write_text
from nvmesim.study.measuring.gain import Answer, answer_of_drive, expected_gains, half_width
from nvmesim.study.measuring.machine import Machine, Target
from nvmesim.study.measuring.rows import PLAN, Row, options

FIRST: Final = 2
"""Rows of the plan that are measured before anything is chosen: one request, and a full drive."""
ENOUGH: Final = 0.1
"""A row that would take less than this share of the interval away is not worth its time."""
LATE_S: Final = 120.0
"""A run of fio that takes so much longer than its time is taken for hung."""

Progress = Callable[[str, float], None]


class Runner(Protocol):
    """Runs one row."""

    def run(self, row: Row) -> tuple[str, float]:
        """Return fio's JSON and the seconds that it took."""


@dataclass(frozen=True)
class FioRunner:
    """fio on a machine."""

    machine: Machine
    target: Target
    engine: str = "io_uring"

    def run(self, row: Row) -> tuple[str, float]:
        """Run fio; InfrastructureError in one line if it fails, or says that it did."""
        started = time.monotonic()
        words = ["fio", *options(row, self.target.path, size=self.target.size, engine=self.engine)]
        text = self.machine.run(words, row.seconds + LATE_S)
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
                 "file": str(s.file), "settled": s.settled, "half_width": s.half_width}
                for s in self.steps
            ],
            "fit": self.fit.to_json(),
        }  # fmt: skip


@dataclass
class Plan:
    """How to measure: what may be run, for which answer, and how long."""

    runner: Runner
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
    """False: all rows of the fixed plan in their order."""
    progress: Progress | None = None
    stop: Callable[[], bool] = lambda: False
    on_step: Callable[[MeasuredStep], None] = lambda step: None

    @property
    def rows(self) -> list[Row]:
        """The rows that may be measured."""
        return [row for row in PLAN if self.writes or not row.writes]


def measure(plan: Plan) -> Measuring:
    """Measure rows until the next would bring little, or time is over, and fit the drive.

    What is finished is kept in any case: an interruption or a failure of fio ends the measuring,
    not the fit. InfrastructureError if fio fails before the first row, FitError if what was
    measured determines no drive.
    """
    answer = plan.answer or answer_of_drive(plan.rows, plan.stack, plan.link)
    steps: list[MeasuredStep] = []
    left, ended, error = plan.rows, "plan", ""
    fit: DriveFit | None = None
    while left:
        row, reason = _chosen(plan, answer, left, steps, fit)
        if row is None:
            ended = reason
            break
        if plan.progress is not None:
            spent = sum(step.seconds for step in steps)
            plan.progress(f"measuring {row.name}: {row.tells}", min(1.0, spent / plan.budget_s))
        try:
            step = _measured(plan, row)
        except (KeyboardInterrupt, InfrastructureError) as failure:
            if not steps:
                raise
            ended = "interrupted" if isinstance(failure, KeyboardInterrupt) else "failed"
            error = str(failure)
            break
        left.remove(row)
        steps.append(step)
        fit = _fitted(plan, steps) if len(steps) >= FIRST else None
        if fit is not None:
            steps[-1] = replace(step, half_width=half_width(fit.profile, answer))
        plan.on_step(steps[-1])
    fit = fit or _fitted(plan, steps)
    if fit is None:
        raise FitError(
            f"the rows in {plan.folder} determine no drive; measure longer, or fit them otherwise: "
            f"nvmesim calibrate {plan.folder}"
        )
    return Measuring(fit, tuple(steps), ended, error)


def _chosen(
    plan: Plan, answer: Answer, left: Sequence[Row], steps: Sequence[MeasuredStep],
    fit: DriveFit | None,
) -> tuple[Row | None, str]:  # fmt: skip
    """Return the next row, or None and why there is none."""
    if plan.stop():
        return None, "interrupted"
    spent = sum(step.seconds for step in steps)
    affordable = [row for row in left if spent + row.seconds <= plan.budget_s]
    if not affordable:
        return None, "budget"
    has_write = any(step.row.writes for step in steps)
    if not plan.adaptive or len(steps) < FIRST or fit is None:
        return affordable[0], ""
    if plan.writes and not has_write:
        return next((row for row in affordable if row.name == "rw-qd256"), affordable[0]), ""
    gains = expected_gains(affordable, fit.profile, answer, plan.stack, plan.link)
    if not gains or max(gains.values()) < ENOUGH:
        return None, "enough"
    return max(affordable, key=lambda row: gains.get(row.name, 0.0) / row.seconds), ""


def _measured(plan: Plan, row: Row) -> MeasuredStep:
    text, seconds = plan.runner.run(row)
    plan.folder.mkdir(parents=True, exist_ok=True)
    file = plan.folder / f"{row.name}.json"
    write_text(file, text)
    steady = [job.get("steadystate", {}) for job in json.loads(text)["jobs"]]
    settled = any(found.get("attained") for found in steady)
    return MeasuredStep(row, seconds, file, settled, None)


def _fitted(plan: Plan, steps: Sequence[MeasuredStep]) -> DriveFit | None:
    """Return the drive as far as the rows determine one."""
    captures = read_captures([step.file for step in steps])
    try:
        return fit_drive(captures, name=plan.name, captured_on=f"{plan.stack},{plan.link}")
    except (FitError, CaptureError, InputError):
        return None
