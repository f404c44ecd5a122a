"""Short runs that are off, and that scatter more than their length says: long ones tell both."""

from typing import Any

import numpy as np
import pytest

from nvmesim.calibrate.bench import Bench, free_host
from nvmesim.calibrate.infer.posterior import infer
from nvmesim.calibrate.infer.problem import LongRuns, Parameter, Problem, logarithms, problem_of
from tests.calibrate.bench import drive, simulated
from tests.calibrate.test_inference import OPEN, TRUE, figures

OFF = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.4])
"""What a usual run is off by: the last figure, which is that of a deep queue."""
DEEP = np.arange(7) == 6
LENGTH = 25.0
"""Of a capture and of a long run, in units of a usual one."""


def task(measured: np.ndarray, *, levelled: bool) -> Problem:
    """Two parameters; with *levelled* runs as long as the captures tell what short ones are off."""

    def simulate(u: np.ndarray, seed: int, share: float) -> np.ndarray:
        return figures(u, np.random.default_rng(seed), share**-0.5) + OFF / share

    def at_length(u: np.ndarray, seed: int) -> np.ndarray:
        return figures(u, np.random.default_rng(seed), LENGTH**-0.5)

    more: dict[str, Any] = {}
    if levelled:
        more = {"long": LongRuns(at_length, DEEP, np.full(7, 1 / LENGTH), np.ones(7))}
    return Problem(
        coordinates=OPEN, simulate=simulate, measured=measured, run=np.arange(7),
        sample=np.full(7, 1 / LENGTH), assumed=np.full(7, 0.05), floor=np.zeros(7), **more,
    )  # fmt: skip


def test_what_short_runs_are_off_by_is_not_taken_for_an_error_of_the_model() -> None:
    """Without long runs the last figure fits nowhere, and nothing is known any longer."""
    measured = figures(TRUE, np.random.default_rng(1), LENGTH**-0.5)
    apart, levelled = (infer(task(measured, levelled=yes), seed=2) for yes in (False, True))
    assert apart.tau > 2 > 0.2 > levelled.tau
    assert (levelled.draws.std(axis=0) < 0.5 * apart.draws.std(axis=0)).all()


def test_intervals_cover_with_it() -> None:
    """20 trials of two parameters: 38 of 40 at 95 %; below 33 once in 1,000 tests."""
    hits = 0
    for seed in range(20):
        measured = figures(TRUE, np.random.default_rng(500 + seed), LENGTH**-0.5)
        found = infer(task(measured, levelled=True), seed=seed)
        low, high = np.quantile(found.draws, (0.025, 0.975), axis=0)
        hits += int(((low <= TRUE) & (high >= TRUE)).sum())
    assert hits >= 33


def test_rows_of_few_in_flight_need_no_long_runs() -> None:
    truth = drive()
    rows = logarithms([Parameter("rate", 400e3, low=300e3, high=500e3, step=0.02)])
    shallow, deep = simulated(truth, 1, 8), simulated(truth, 1, 128)
    alone = problem_of([shallow], rows, lambda u: truth, free_host())
    both = problem_of([shallow, deep], rows, lambda u: truth, free_host())
    assert alone.long is None
    assert both.long.deep.tolist() == [p == 1 for p in both.run]


def test_a_short_run_of_many_in_flight_is_off() -> None:
    """Why all this: 256 at once in an empty drive take thousands of requests to spread.

    Twenty runs each; the standard error of the short ones' mean is 0.1 % of the IOPS.
    """
    truth = drive(dies=50, die=55.0, base=1.0, commands=778e3)
    point = simulated(truth, 1, 256)
    bench = Bench(truth, free_host())

    def mean(requests: int) -> float:
        runs = [bench.measure(point, requests=requests, seed=s).iops for s in range(20)]
        return float(np.mean(runs))

    assert mean(100_000) == pytest.approx(point.iops, rel=0.001)
    assert mean(3_000) < 0.995 * point.iops
