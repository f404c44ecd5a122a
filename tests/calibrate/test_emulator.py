"""Bends that the data do not show are shrunk, those that they show are kept."""

import numpy as np

from nvmesim.calibrate.infer.emulator import Regressors, features
from nvmesim.calibrate.infer.likelihood import whiten

RNG = np.random.default_rng(5)
Z = RNG.standard_normal((120, 6))
SLOPES = RNG.standard_normal((6, 3))
NOISE = RNG.standard_normal((120, 3))
FAR = features(np.full((1, 6), 1.5))


def test_a_plane_is_known_far_from_its_middle() -> None:
    design = Regressors(Z)
    surfaces = design.fit(Z @ SLOPES + NOISE)
    assert (design.leverage(FAR, surfaces) < 0.4).all()
    free = FAR @ np.linalg.pinv(features(Z).T @ features(Z)) @ FAR.T
    assert float(free[0, 0]) > 1  # all of the second order left free


def test_a_bend_is_found_and_its_doubt_said() -> None:
    design = Regressors(Z)
    surfaces = design.fit(Z @ SLOPES + 5 * Z[:, :1] ** 2 + 0.1 * NOISE)
    first = 1 + 6  # of the second order: the square of the first coordinate
    assert np.allclose(surfaces.terms[first], 5, atol=0.1)
    assert (design.leverage(FAR, surfaces) > 0.5).all()
    assert np.allclose(np.diag(surfaces.scatter()), 0.01, rtol=0.4)


def test_one_run_scatters_as_it_does() -> None:
    """Of 3 outputs with noise of variance 1; 120 rows: standard error 0.13."""
    scatter = Regressors(Z).fit(Z @ SLOPES + NOISE).scatter()
    assert np.allclose(np.diag(scatter), NOISE.var(axis=0), rtol=0.15)


def test_a_coordinate_that_follows_from_others_is_no_reason_to_be_unsure() -> None:
    tied = np.column_stack([Z[:, :5], Z[:, 0] + Z[:, 1]])
    design = Regressors(tied)
    surfaces = design.fit(tied @ SLOPES + NOISE)
    assert np.abs(surfaces.terms).max() < 10
    assert (design.leverage(features(tied), surfaces) < 1).all()


def test_statistics_of_figures_that_say_the_same_count_once() -> None:
    """Of a queue of one, IOPS are requests over the mean latency: four figures say three things."""
    say = np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    scatter = 1e-4 * (NOISE[:20].T @ NOISE[:20])
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
