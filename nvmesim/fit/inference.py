"""From measured figures to the joint distribution of a drive's parameters.

Candidates are simulated in a region that follows the distribution: wide at first, over all that the
captures leave open, then a little wider than what is still likely, until it moves and shrinks no
more. Whole valleys of near-equal optima are inside it; a search from one point sees one of them.
Sources: Wood 2010 (synthetic likelihood); Cappe, Guillin, Marin and Robert 2004 (population Monte
Carlo); ter Braak 2006 (differential evolution Markov chains).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from nvmesim.errors import FitError
from nvmesim.fit.emulator import Floats, Ints
from nvmesim.fit.synthetic import (
    Emulator,
    Emulators,
    Likelihood,
    Region,
    Task,
    likelihood_of,
    noise_of,
)  # fmt: skip

DRAWS = 256
"""Draws of the joint distribution."""
FIRST = (20, 14)
"""Candidates over all that is open: so many, and so many more for each parameter."""
EACH = (15, 1.4)
"""Candidates of each region: so many, and so many more for each term of the quadratic."""
ROUNDS = 10
"""Regions at most."""
WIDER = 1.25
"""A region's standard deviations in units of the distribution's."""
NEAR = 2.0
"""Candidates are used up to this distance from the region's centre, root of the mean square."""
LIKELY = 25.0
"""Candidates are used up to this much above the least of minus the logarithm of the likelihood: far
beyond a bend (a controller slower than what was measured) figures would bend the quadratic."""
ENOUGH = 6.0
"""Candidates for each term of the quadratic in the last regressions, both halves together."""
SHRINKS, GROWS, MOVES = 0.4, 1.25, 0.5
"""A region has settled when the distribution in it is not narrower or wider, nor elsewhere."""
SHRINK = 0.25
"""A region's standard deviations in units of those before, at least: a quadratic over much that is
open is too sure of where the rest lies."""
DOUBTFUL = 1.4
"""Chi-square by degrees of freedom from which on a second search begins elsewhere: the first may
have ended in a valley of its own."""
PROFILED = 100
"""Values that a profile likelihood is looked at."""
ALONG = 4
"""Every so many of them are simulated too: of random draws hardly one is as likely as the best,
and how slow a controller may be as likely is asked with all else at its best."""
CHI_SQUARE = 3.84
"""95 % of chi-square with one degree of freedom."""
ALIKE = 0.5
"""Costs that differ by less are alike: one standard error of one parameter."""
TRIED = (24, 8)
"""The likelier of the draws and of the profile by the emulator, that are simulated again to find
the likeliest; and those of them once more. What one run scatters counts as noise of the cost."""
EFFORTS = (6.0, 24.0)
"""Shares of the usual requests of either."""
RERUN = 1 << 20
"""Their seed."""
CHAINS, LENGTH = 128, 400
MAX_THREADS = 4


@dataclass(frozen=True)
class Inferred:
    """The joint distribution of a task's parameters, in its coordinates."""

    names: tuple[str, ...]
    best: Floats
    """float64[n_parameters]: the likeliest of the draws when simulated at length; the mean of a
    bent valley may lie beside it, and the emulator's optimum in a corner"""
    draws: Floats
    """float64[n_draws, n_parameters]"""
    tau: float
    """Size of the error beside sampling, in units of the assumed; 0: the model says all"""
    chi: float
    """Chi-square of the best without that error, over its degrees of freedom"""
    cost: float
    """Minus the logarithm of the best's likelihood, simulated at length"""
    simulated: int
    settled: bool
    span: tuple[float, float] = (0.0, 0.0)
    """95 % interval of the task's profiled coordinate: of the draws, and of the profile likelihood.

    Draws of what only one side is told of depend on what was as likely beforehand; the profile does
    not.
    """


def infer(task: Task, *, seed: int = 1, tell: Callable[[str], None] = lambda _: None) -> Inferred:
    """Find the joint distribution of the parameters of *task*.

    The same task and *seed* give the same draws. Raises FitError if the simulation gives no finite
    figures.
    """
    # matrices are small: BLAS' threads would only spin, and a fit take nearly twice the CPU time
    with threadpool_limits(limits=1, user_api="blas"):
        found = _Inference(task, np.random.default_rng(seed), tell).run()
        if found.chi <= DOUBTFUL:
            return found
        tell("a second search")
        again = _Inference(task, np.random.default_rng(seed + 1), tell).run()
        return min(found, again, key=lambda f: (f.tau, f.cost))


class _Inference:
    def __init__(self, task: Task, rng: np.random.Generator, tell: Callable[[str], None]) -> None:
        self.task, self.rng, self.tell = task, rng, tell
        p = len(task.names)
        self.terms = 1 + p + p * (p + 1) // 2
        self.each = round(EACH[0] + EACH[1] * self.terms)
        self.u = np.zeros((0, p))
        self.figures = np.zeros((0, len(task.measured)))
        self.simulated = 0
        self.found: tuple[Likelihood, Floats] | None = None

    def run(self) -> Inferred:
        """Regions until one has settled, then the distribution in that."""
        region = self._begun()
        settled = False
        for number in range(ROUNDS):
            self.tell(f"region {number + 1}")
            self._simulate(self._inside(region, self.each), 1.0)
            emulators, used = self._emulators(region)
            draws, _, _ = self._draws(emulators, rough=True, plain=number == 0)
            if number == 0:  # those spread over all that was open are too few near here
                self.u, self.figures = self.u[-self.each :], self.figures[-self.each :]
            spread, mean = _covariance(draws), draws.mean(axis=0)
            ratios = region.ratios(spread)
            moved = float(np.sqrt(region.away(mean[None])[0]))
            settled = bool(ratios[-1] < GROWS and ratios[0] > SHRINKS and moved < MOVES)
            if settled and used >= ENOUGH * self.terms:
                break
            if not settled and number < ROUNDS - 1:
                region = Region(mean, region.shrunk(WIDER**2 * spread, SHRINK) + self._least())
        draws, central, (tau, chi) = self._draws(emulators, rough=False, plain=False)
        chosen = draws[np.linspace(0, len(draws) - 1, DRAWS).astype(int)]
        scatter = emulators.whole.shrunk
        noise = noise_of(self.task, scatter, tau, rough=False)
        values, along, costs = self._profile()
        tried = np.concatenate([central, along[::ALONG], chosen])
        best, cost = self._likeliest(tried, noise, scatter)
        return Inferred(
            self.task.names, best, chosen, tau, chi, cost, self.simulated, settled,
            self._span(draws, values, costs),
        )  # fmt: skip

    def _likeliest(self, tried: Floats, noise: Floats, scatter: Floats) -> tuple[Floats, float]:
        """The likeliest of float64[n, n_parameters], and its cost, without an emulator's errors.

        *noise*, *scatter*: covariance of the measured figures and of a usual simulation's,
        float64[n_figures, n_figures].

        The better by the emulator are simulated with the same random numbers, the better of these
        once more at length. Of those that are as likely it is the one whose profiled coordinate is
        the largest: what nothing tells is not promised, a controller that may be faster than was
        seen.
        """
        tried = self.task.snapped(tried)
        tried = tried[self.task.permits(tried)]
        if self.found is not None:
            guess = self.found[0]
            tried = tried[np.argsort(guess.cost(guess.emulator.z(tried)))]
        for count, effort in zip(TRIED, EFFORTS, strict=True):
            tried = tried[:count]
            rows = self._simulated(tried, [RERUN] * len(tried), effort)
            inverse = np.linalg.inv(noise + scatter / effort)
            off, away = rows - self.task.measured, tried - self.task.about
            costs = np.einsum("ik,kl,il->i", off, inverse, off) / 2
            costs = costs + (away**2 * self.task.known / 2 - tried * self.task.tilt).sum(axis=1)
            order = np.argsort(costs)
            tried, costs = tried[order], costs[order]
        least = float(costs.min())
        tried = tried[costs <= least + ALIKE]
        if self.task.profiled not in self.task.names:
            return tried[0], least
        return tried[np.argmax(tried[:, self.task.names.index(self.task.profiled)])], least

    def _profile(self) -> tuple[Floats, Floats, Floats]:
        """Values of the profiled coordinate, the likeliest at each, and their costs.

        float64[PROFILED], float64[PROFILED, n_parameters], float64[PROFILED]; empty without one.
        """
        p = len(self.task.names)
        if self.task.profiled not in self.task.names or self.found is None:
            return np.zeros(0), np.zeros((0, p)), np.zeros(0)
        likelihood, mode = self.found
        index = self.task.names.index(self.task.profiled)
        tried = np.linspace(self.task.low[index], self.task.high[index], PROFILED)
        region = likelihood.emulator.region
        z = (tried - region.centre[index]) / region.scale[index]
        ends, cost = likelihood.profile(index, z, mode)
        return tried, region.centre + ends * region.scale, cost

    def _span(self, draws: Floats, tried: Floats, cost: Floats) -> tuple[float, float]:
        """Hull of the draws' interval of the profiled coordinate and the profile likelihood's."""
        if self.found is None or not len(tried):
            return 0.0, 0.0
        likelihood, mode = self.found
        index = self.task.names.index(self.task.profiled)
        least = min(float(cost.min()), float(likelihood.cost(mode[None])[0]))
        likely = tried[cost <= least + CHI_SQUARE / 2]
        low, high = (float(v) for v in np.quantile(draws[:, index], (0.025, 0.975)))
        return float(min([low, *likely])), float(max([high, *likely]))

    def _begun(self) -> Region:
        """About the likelier of candidates over all that is open."""
        from scipy.stats import qmc

        low, high = self.task.begin
        count = FIRST[0] + FIRST[1] * len(low)
        parts: list[Floats] = []
        while sum(map(len, parts)) < count:
            cube = qmc.LatinHypercube(len(low), rng=self.rng).random(2 * count)
            tried = low + (high - low) * cube
            parts.append(tried[self.task.permits(tried)])
            if len(parts) > 100:
                raise FitError("nothing that the captures leave open is a drive")
        u = self._simulate(np.concatenate(parts)[:count], 0.4)
        scale = np.hypot(self.task.assumed, 0.02)
        off = np.clip((self.figures - self.task.measured) / scale, -20, 20)
        chi = (off**2).sum(axis=1)
        best = np.argsort(chi)[: max(2 * len(low) + 4, count // 5)]
        excess = chi[best] - chi[best].min()
        weight = np.exp(-0.5 * excess / max(1.0, float(np.median(excess))))
        spread = np.atleast_2d(np.cov(u[best].T, aweights=weight))
        return Region(np.average(u[best], axis=0, weights=weight), spread + 225 * self._least())

    def _least(self) -> Floats:
        """Covariance that a region has at least: shares of what is open beforehand."""
        out: Floats = np.diag((2e-4 * (self.task.high - self.task.low)) ** 2)
        return out

    def _inside(self, region: Region, count: int) -> Floats:
        """float64[count, n_parameters]: permitted, from the normal distribution of *region*."""
        root = np.linalg.cholesky(region.spread)
        parts: list[Floats] = []
        scale = 1.0
        while sum(map(len, parts)) < count:
            normal = self.rng.standard_normal((6 * count, len(root)))
            tried = region.centre + scale * normal @ root.T
            parts.append(tried[self.task.permits(tried)])
            scale *= 0.9
        return np.concatenate(parts)[:count]

    def _simulate(self, u: Floats, effort: float) -> Floats:
        """Simulate candidates and keep them; the candidates as they could be simulated."""
        u = self.task.snapped(u)
        rows = self._simulated(u, self.rng.integers(0, 1 << 30, len(u)).tolist(), effort)
        self.u, self.figures = np.concatenate([self.u, u]), np.concatenate([self.figures, rows])
        return u

    def _simulated(self, u: Floats, seeds: Sequence[int], effort: float) -> Floats:
        """float64[n, n_figures] of float64[n, n_parameters]."""
        with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
            rows = np.array(list(pool.map(self.task.simulate, u, seeds, [effort] * len(u))))
        if not np.all(np.isfinite(rows)):
            raise FitError("a simulated figure is not finite; the captures leave the model's range")
        self.simulated += len(u)
        return rows

    def _emulators(self, region: Region) -> tuple[Emulators, int]:
        """Emulators of a region, of all candidates so far that lie near it, and how many do."""
        away = region.away(self.u)
        least = self.terms + len(self.task.names) + 10
        most = round(ENOUGH * self.terms)
        near = np.argsort(away)[: max(least, int((away < NEAR**2).sum()))]
        wide = self._emulator(region, near)
        cost = Likelihood(self.task, wide, 0.0, rough=True).cost(wide.z(self.u[near]))
        likely = max(most, int((cost < cost.min() + LIKELY).sum()))
        near = near[np.argsort(cost)[:likely]]
        whole = self._emulator(region, near)
        if len(near) < most:
            return Emulators(whole, whole, whole), len(near)
        mixed = self.rng.permutation(near)
        halves = (self._emulator(region, half) for half in (mixed[::2], mixed[1::2]))
        return Emulators(whole, *halves), len(near)

    def _emulator(self, region: Region, chosen: Ints) -> Emulator:
        return Emulator(self.task, region, self.u[chosen], self.figures[chosen])

    def _draws(
        self, emulators: Emulators, *, rough: bool, plain: bool
    ) -> tuple[Floats, Floats, tuple[float, float]]:
        """Draws, their middle and the optimum, and (tau, chi-square by its degrees of freedom)."""
        some = self.u[self.rng.integers(len(self.u) - self.each, len(self.u), 10)]
        starts = np.concatenate([np.zeros((1, len(self.task.names))), emulators.whole.z(some)])
        found, mode, tau, chi = likelihood_of(
            self.task, emulators, starts, rough=rough, plain=plain
        )
        self.found = found, mode
        z = _chains(found, mode, self.rng)
        region = emulators.whole.region
        ends = np.stack([found.central(z), mode])
        return (
            region.centre + z * region.scale, region.centre + ends * region.scale,
            (tau, chi / max(1, self.task.freedom)),
        )  # fmt: skip


def _covariance(draws: Floats) -> Floats:
    return np.atleast_2d(np.cov(draws.T))


def _chains(likelihood: Likelihood, mode: Floats, rng: np.random.Generator) -> Floats:
    """float64[n, n_parameters]: the second halves of chains that begin about the mode.

    Each proposes to step along the difference of two others. Source: ter Braak 2006.
    """
    x = _begun_about(likelihood, mode, rng)
    cost = likelihood.cost(x)
    n, p = x.shape
    kept: list[Floats] = []
    for step in range(LENGTH):
        first, second = ((np.arange(n) + rng.integers(1, n, n)) % n for _ in range(2))
        far = np.where(rng.random(n) < 0.08, 1.0, 2.38 / np.sqrt(2 * p) * rng.uniform(0.4, 1.1, n))
        tried = x + far[:, None] * (x[first] - x[second]) + 1e-4 * rng.standard_normal((n, p))
        new = likelihood.cost(tried)
        taken = np.isfinite(new) & (np.log(rng.random(n)) < cost - np.minimum(new, 1e300))
        x, cost = np.where(taken[:, None], tried, x), np.where(taken, new, cost)
        if step >= LENGTH // 2 and step % 8 == 0:
            kept.append(x)
    return np.concatenate(kept)


def _begun_about(likelihood: Likelihood, mode: Floats, rng: np.random.Generator) -> Floats:
    """float64[CHAINS, n_parameters]: permitted, by the curvature at the mode."""
    region = likelihood.emulator.region
    unit = region.scale
    leash = 1e-3 * np.linalg.inv(region.spread / np.outer(unit, unit))
    spread = np.linalg.inv(likelihood.curvature(mode[None])[0] + leash)
    root = np.linalg.cholesky((spread + spread.T) / 2)
    parts: list[Floats] = []
    scale = 1.0
    while sum(map(len, parts)) < CHAINS:
        tried = mode + scale * rng.standard_normal((4 * CHAINS, len(mode))) @ root.T
        parts.append(tried[np.isfinite(likelihood.cost(tried))])
        scale *= 0.8
    return np.concatenate(parts)[:CHAINS]


def columns(
    inferred: Inferred, decoded: Callable[[Floats], Mapping[str, float]]
) -> dict[str, Floats]:
    """Name -> float64[n_draws], of what *decoded* makes of each draw."""
    rows = [decoded(u) for u in inferred.draws]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
