"""Inference on simulations whose answer is known: it is found, covered, and said where open."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nvmesim.calibrate.bench import Bench, free_host
from nvmesim.calibrate.infer.emulator import Region, Regressors, features
from nvmesim.calibrate.infer.likelihood import whiten
from nvmesim.calibrate.infer.optimum import stoppable
from nvmesim.calibrate.infer.posterior import infer
from nvmesim.calibrate.infer.problem import (
    Coordinate,
    Parameter,
    Problem,
    logarithms,
    problem_of,
)
from nvmesim.errors import FitError
from tests.calibrate.bench import drive, simulated

TRUE = np.array([0.3, -0.4])
NOISE = 0.05


def figures(u: np.ndarray, rng: np.random.Generator, size: float = 1.0) -> np.ndarray:
    """Seven figures of one run, whose noise is shared in part, bent in the first parameter."""
    a, b = u
    exact = np.array([a, a + b, b * b, a * a - b, 2 * b + a, a - b, 2 * a])
    return exact + NOISE * size * (0.5 * rng.standard_normal() + rng.standard_normal(7))


OPEN = (Coordinate("a", 0.0, -1.0, 1.0, 0.05), Coordinate("b", 0.0, -1.0, 1.0, 0.05))


def task(measured: np.ndarray, sample: float = 1.0, **more: Any) -> Problem:
    """Two parameters between -1 and 1."""

    def simulate(u: np.ndarray, seed: int, share: float) -> np.ndarray:
        return figures(u, np.random.default_rng(seed), share**-0.5)

    given: dict[str, Any] = {
        "coordinates": OPEN, "simulate": simulate, "measured": measured,
        "run": np.zeros(7, np.int64), "sample": np.full(7, sample), "assumed": np.full(7, 0.05),
        "floor": np.zeros(7),
    }  # fmt: skip
    return Problem(**{**given, **more})


def test_the_same_seed_gives_the_same_draws() -> None:
    measured = figures(TRUE, np.random.default_rng(1))
    first, second = infer(task(measured), seed=3), infer(task(measured), seed=3)
    assert np.array_equal(first.draws, second.draws)


@pytest.mark.parametrize(("trials", "levelled", "least"), [(25, False, 42), (20, True, 33)])
def test_intervals_cover_in_toys(trials: int, levelled: bool, least: int) -> None:
    """Two parameters, 95 % of each: fewer than the least once in 1,000 tests."""
    hits = 0
    for seed in range(trials):
        rng = np.random.default_rng((500 if levelled else 1000) + seed)
        measured = figures(TRUE, rng, LENGTH**-0.5 if levelled else 1.0)
        problem = off_task(measured, levelled=True) if levelled else task(measured)
        low, high = np.quantile(infer(problem, seed=seed).draws, (0.025, 0.975), axis=0)
        hits += int(((low <= TRUE) & (high >= TRUE)).sum())
    assert hits >= least


def test_one_that_is_to_stop_keeps_its_first_region() -> None:
    said: list[str] = []
    pressed = threading.Event()
    pressed.set()
    with stoppable(pressed):
        found = infer(task(figures(TRUE, np.random.default_rng(1))), tell=said.append)
    assert said == ["the optimum", "around the optimum, round 1"]
    assert len(found.draws) == 256
    assert not found.settled


def test_a_longer_capture_is_known_better() -> None:
    rng = np.random.default_rng(2)
    short = infer(task(figures(TRUE, rng)))
    long = infer(task(figures(TRUE, rng, 0.2), sample=0.04))
    assert (long.draws.std(axis=0) < 0.6 * short.draws.std(axis=0)).all()


def test_what_the_model_cannot_say_is_an_error_beside_sampling() -> None:
    measured = figures(TRUE, np.random.default_rng(3)) + np.array([0, 0, 0.5, 0, -0.5, 0, 0])
    found, clean = infer(task(measured)), infer(task(figures(TRUE, np.random.default_rng(3))))
    assert found.tau > 1 > clean.tau
    assert found.chi > 4 > clean.chi
    assert (found.draws.std(axis=0) > 2 * clean.draws.std(axis=0)).all()


def test_a_parameter_that_no_figure_tells_stays_open() -> None:
    def simulate(u: np.ndarray, seed: int, share: float) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return u[0] + NOISE * rng.standard_normal(7)

    found = infer(task(np.full(7, 0.3), simulate=simulate, profiled="b"))
    assert found.draws[:, 0].std() < 0.1
    assert found.draws[:, 1].std() > 0.4  # uniform between -1 and 1: 0.58
    assert found.span[0] < -0.9
    assert found.span[1] > 0.9


def test_a_bent_valley_stays_whole() -> None:
    """Only the sum of one parameter and the other's square is told."""

    def simulate(u: np.ndarray, seed: int, share: float) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return u[0] + u[1] ** 2 + 0.2 * rng.standard_normal(7)

    found = infer(task(np.full(7, 0.3), simulate=simulate))
    a, b = found.draws.T
    assert b.min() < -0.6
    assert b.max() > 0.6
    assert (a + b**2).std() < 0.2


def test_what_is_known_beforehand_counts() -> None:
    measured = figures(TRUE, np.random.default_rng(4))
    known = (OPEN[0], Coordinate("b", -0.1, -1.0, 1.0, 0.05, 0.001))
    found = infer(task(measured, coordinates=known))
    assert found.draws[:, 1].mean() == pytest.approx(-0.1, abs=0.01)


def test_figures_that_are_not_finite_are_refused() -> None:
    def simulate(u: np.ndarray, seed: int, share: float) -> np.ndarray:
        return np.full(7, np.nan)

    with pytest.raises(FitError, match="not finite"):
        infer(task(np.zeros(7), simulate=simulate))


def test_nothing_that_is_allowed_is_refused() -> None:
    with pytest.raises(FitError, match="no set of numbers"):
        infer(task(np.zeros(7), allowed=lambda u: np.zeros(len(u), bool)))


def test_a_region_shrinks_no_faster_than_asked() -> None:
    region = Region(np.zeros(2), np.diag([4.0, 1.0]))
    spread = region.shrunk(np.diag([1e-6, 2.0]), 0.25)
    assert np.sqrt(np.diag(spread)) == pytest.approx([0.5, 2**0.5])
    assert region.ratios(spread) == pytest.approx([0.25, 2**0.5])
    assert region.away(np.array([[2.0, 0.0]])) == pytest.approx([0.5])


RNG = np.random.default_rng(5)
Z = RNG.standard_normal((120, 6))
SLOPES = RNG.standard_normal((6, 3))
DRAWN = RNG.standard_normal((120, 3))
FAR = features(np.full((1, 6), 1.5))


def test_a_plane_is_known_far_from_its_middle() -> None:
    design = Regressors(Z)
    surfaces = design.fit(Z @ SLOPES + DRAWN)
    assert (design.leverage(FAR, surfaces) < 0.4).all()
    free = FAR @ np.linalg.pinv(features(Z).T @ features(Z)) @ FAR.T
    assert float(free[0, 0]) > 1  # all of the second order left free


def test_a_bend_is_found_and_its_doubt_said() -> None:
    design = Regressors(Z)
    surfaces = design.fit(Z @ SLOPES + 5 * Z[:, :1] ** 2 + 0.1 * DRAWN)
    first = 1 + 6  # of the second order: the square of the first coordinate
    assert np.allclose(surfaces.terms[first], 5, atol=0.1)
    assert (design.leverage(FAR, surfaces) > 0.5).all()
    assert np.allclose(np.diag(surfaces.scatter()), 0.01, rtol=0.4)


def test_one_run_scatters_as_it_does() -> None:
    """Of 3 outputs with noise of variance 1; 120 rows: standard error 0.13."""
    scatter = Regressors(Z).fit(Z @ SLOPES + DRAWN).scatter()
    assert np.allclose(np.diag(scatter), DRAWN.var(axis=0), rtol=0.15)


def test_a_coordinate_that_follows_from_others_is_no_reason_to_be_unsure() -> None:
    tied = np.column_stack([Z[:, :5], Z[:, 0] + Z[:, 1]])
    design = Regressors(tied)
    surfaces = design.fit(tied @ SLOPES + DRAWN)
    assert np.abs(surfaces.terms).max() < 10
    assert (design.leverage(features(tied), surfaces) < 1).all()


def test_statistics_of_figures_that_say_the_same_count_once() -> None:
    """Of a queue of one, IOPS are requests over the mean latency: four figures say three things."""
    say = np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    scatter = 1e-4 * (DRAWN[:20].T @ DRAWN[:20])
    slope = RNG.standard_normal((3, 4))
    made = RNG.standard_normal((4, 4))
    root = whiten(made, say @ scatter @ say.T)
    assert root.shape == (3, 4)
    assert np.allclose(root @ say @ scatter @ say.T @ root.T, np.eye(3))
    # nothing that the figures tell of four coordinates is lost
    tells = root @ say @ slope
    assert np.allclose(tells.T @ tells, slope.T @ np.linalg.solve(scatter, slope))


def test_a_statistic_that_nothing_tells_is_left_out() -> None:
    made = np.array([[1.0, 2.0], [0.0, 0.0]])
    root = whiten(made, np.eye(2))
    assert np.allclose(np.abs(root), [[5**-0.5, 2 * 5**-0.5]])


OFF = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.4])
"""What a usual run is off by: the last figure, which is that of a deep queue."""
LENGTH = 25.0
"""Of a capture and of a long run, in units of a usual one."""


def off_task(measured: np.ndarray, *, levelled: bool) -> Problem:
    """Two parameters; with *levelled* runs as long as the captures tell what short ones are off."""

    def simulate(u: np.ndarray, seed: int, share: float) -> np.ndarray:
        return figures(u, np.random.default_rng(seed), share**-0.5) + OFF / share

    def at_length(u: np.ndarray, seed: int, share: float) -> np.ndarray:
        return figures(u, np.random.default_rng(seed), (share * LENGTH) ** -0.5)

    usual = Problem(
        coordinates=OPEN, simulate=simulate, measured=measured, run=np.arange(7),
        sample=np.full(7, 1 / LENGTH), assumed=np.full(7, 0.05), floor=np.zeros(7),
    )  # fmt: skip
    long = replace(usual, simulate=at_length, sample=np.ones(7))
    return replace(usual, long=long) if levelled else usual


def test_what_short_runs_are_off_by_is_not_taken_for_an_error_of_the_model() -> None:
    """Without long runs the last figure fits nowhere, and nothing is known any longer."""
    measured = figures(TRUE, np.random.default_rng(1), LENGTH**-0.5)
    apart, levelled = (infer(off_task(measured, levelled=yes), seed=2) for yes in (False, True))
    assert apart.tau > 2 > 0.2 > levelled.tau
    assert (levelled.draws.std(axis=0) < 0.5 * apart.draws.std(axis=0)).all()


def test_rows_of_few_in_flight_need_no_long_runs() -> None:
    truth = drive()
    rows = logarithms([Parameter("rate", 400e3, low=300e3, high=500e3, step=0.02)])
    shallow, deep = simulated(truth, 1, 8), simulated(truth, 1, 128)
    alone = problem_of([shallow], rows, lambda u: truth, free_host())
    both = problem_of([shallow, deep], rows, lambda u: truth, free_host())
    assert alone.long is None
    assert (both.long.sample > 2 * both.sample).tolist() == [p == 1 for p in both.run]


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
