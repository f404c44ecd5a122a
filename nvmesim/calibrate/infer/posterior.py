"""From measured figures to the joint distribution of a problem's coordinates.

The optimum comes first, by least squares. About it candidates are simulated in a region as wide as
its curvature leaves open; one emulator of all that lies near tells the likelihood, and importance
sampling draws from it. If the draws lie elsewhere, or wider, the region follows. Each proposal
follows what the draws so far were weighed; all count, each against the mixture of all proposals, so
that one that was off does no harm. Sources: Wood 2010 (synthetic likelihood); Cornuet, Marin, Mira
and Robert 2012 (adaptive importance sampling).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.calibrate.infer.emulator import Emulator, Region
from nvmesim.calibrate.infer.likelihood import Likelihood, likelihood_of, model_error_scale
from nvmesim.calibrate.infer.optimum import SEED, THREADS, Solution, is_stopping, optimum
from nvmesim.calibrate.infer.problem import DRAWS, Problem
from nvmesim.errors import FitError

ROUNDS, AT_LENGTH = 5, 2
"""Regions at most, and of these the last in which candidates are simulated at length: where many
are in flight short runs are off, in one place by more than in another."""
EACH = (8, 1.3)
"""Candidates of each region: so many, and so many more for each term of the quadratic."""
ENOUGH = 2.4
"""Candidates for each term of the quadratic, in the last region."""
WIDER = 1.4
"""A region's standard deviations in units of the distribution's."""
NEAR = 2.0
"""Candidates are used up to this distance from the region's centre, root of the mean square."""
LIKELY = 60.0
"""Candidates are used up to this much above the least of minus the logarithm of the likelihood: far
beyond a bend (a controller slower than what was measured) figures would bend the quadratic."""
SHRINKS, GROWS, MOVES = 0.3, 1.0, 0.6
"""A region has settled when the distribution in it is not narrower or wider, nor elsewhere."""
SHRINK = 0.25
"""A region's standard deviations in units of those before, at least."""
LEAST = 0.3
"""Least standard deviation of a region, in units of a coordinate's finite difference: numbers of
dies are whole, and a narrower region would hold but one or two of them."""
CHI_SQUARE = 3.84
"""95 % of chi-square with one degree of freedom."""
PROFILED, ALONG = 100, 10
"""Values that a profile likelihood is looked at, and how many are simulated at length, of those
that are likely: where else all is at its best, a random draw hardly ever is."""
EFFORT = 0.7
"""Share of the usual requests that the optimum is looked for with."""
APART = 10.0
"""Half a chi-square, in units of what is usual, by which another optimum may be worse."""
LONG = 4.0
"""Share of the usual requests that the candidates for the best are simulated with."""
POLISHED = 3
"""Steps of the last search, with long runs."""
TRIES = 40
"""Widths of a region in which what is allowed is looked for."""


@dataclass(frozen=True)
class Inferred:
    """The joint distribution of a problem's coordinates."""

    names: tuple[str, ...]
    best: Floats
    """float64[n_coordinates]: the likeliest of some when simulated at length"""
    draws: Floats
    """float64[n_draws, n_coordinates]"""
    tau: float
    """Size of the error beside sampling, in units of the assumed; 0: the model says all"""
    chi: float
    """Chi-square of the best without that error, over its degrees of freedom"""
    settled: bool
    span: tuple[float, float] = (0.0, 0.0)
    """95 % interval of the profiled coordinate: of the draws, and of the profile likelihood.

    Draws of what only one side is told of depend on what was as likely beforehand; the profile does
    not.
    """


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS to one thread: matrices are small, others would only spin, for twice the CPU."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


@one_thread()
def infer(
    problem: Problem, *, seed: int = 1, tell: Callable[[str], None] = lambda _: None,
    begun: Sequence[Solution] = (),
) -> Inferred:  # fmt: skip
    """Find the joint distribution of the coordinates of *problem*, about its optima *begun*.

    The same problem and *seed* give the same draws. Raises FitError if the simulation gives no
    finite figures, or nothing is allowed.
    """
    return _Inference(problem, np.random.default_rng(seed), tell).run(begun)


@one_thread()
def optima(problem: Problem) -> list[Solution]:
    """Optima from all starts, the best first; those that are much worse are left out."""
    found: list[Solution] = []
    for start in (problem.start, *problem.others):
        if found and is_stopping():
            break
        found.append(optimum(problem, start=start, effort=EFFORT))
    found.sort(key=lambda s: s.cost)
    excess = max(1.0, 2 * found[0].cost / max(1, problem.freedom))
    return [s for s in found if s.cost < found[0].cost + APART * excess]


class _Inference:
    def __init__(
        self, problem: Problem, rng: np.random.Generator, tell: Callable[[str], None]
    ) -> None:
        self.problem, self.rng, self.tell = problem, rng, tell
        self.is_at_length = False
        p = len(problem.names)
        self.terms = 1 + p + p * (p + 1) // 2
        self.each = round(EACH[0] + EACH[1] * self.terms)
        self.u = np.zeros((0, p))
        self.figures = np.zeros((0, len(problem.measured)))
        self.least = np.diag((LEAST * problem.column("step")) ** 2)

    def run(self, begun: Sequence[Solution]) -> Inferred:
        """Regions until one has settled, then the distribution in that."""
        self.tell("the optimum")
        ends = begun or optima(self.problem)
        region = self._about(ends)
        settled, count, tau = False, self.each, 1.0
        tried = np.array([e.values for e in ends])
        for number in range(ROUNDS):
            if self.problem.long is not None and (settled or number == ROUNDS - AT_LENGTH):
                self.problem, settled, self.is_at_length = self.problem.long, False, True
                self.u, self.figures = self.u[:0], self.figures[:0]
            self.tell(f"around the optimum, round {number + 1}")
            self._simulate(np.concatenate([tried, self._inside(region, count)]))
            near = self._near(region, tau)
            emulator = self._emulator(region, near)
            halves = self._emulator(region, near[::2]), self._emulator(region, near[1::2])
            tau, chi = model_error_scale(self.problem, self.figures, emulator.scatter)
            starts = np.concatenate([np.zeros((1, region.centre.size)), emulator.z(self.u[-5:])])
            rough = number < ROUNDS - 1 and not settled
            found, mode = likelihood_of(
                self.problem, emulator, starts, tau, rough=rough, halves=halves
            )
            z = sampled(found.cost, mode, found.spread(mode), self.rng)
            draws = region.centre + z * region.scale
            spread, mean = np.atleast_2d(np.cov(draws.T)), draws.mean(axis=0)
            tried = region_ends(emulator, [mode, z.mean(axis=0)])
            tried = tried[self.problem.permits(tried)]
            ratios = region.ratios(spread)
            moved = float(np.sqrt(region.away(mean[None])[0]))
            if is_stopping() or (settled and len(emulator.figures) >= ENOUGH * self.terms):
                break
            # no region is narrower than the floor, however narrow the distribution is
            narrow = region.ratios(spread + self.least)[0] < SHRINKS
            settled = bool(ratios[-1] < GROWS and not narrow and moved < MOVES)
            if number < ROUNDS - 1:
                region = Region(mean, region.shrunk(WIDER**2 * spread, SHRINK) + self.least)
        along, likely = self._profile(found, mode)
        tried = np.concatenate([tried, along, [e.values for e in ends]])
        best = self._likeliest(tried, found)
        chosen = draws[np.linspace(0, len(draws) - 1, DRAWS).astype(int)]
        return Inferred(
            self.problem.names, best, chosen, tau, chi / max(1, self.problem.freedom), settled,
            self._span(draws, likely),
        )  # fmt: skip

    def _about(self, ends: Sequence[Solution]) -> Region:
        centres = np.array([s.values for s in ends])
        spread = np.mean([self._curved(s) for s in ends], axis=0)
        centre = centres.mean(axis=0)
        off = centres - centre
        return Region(centre, WIDER**2 * (spread + off.T @ off / len(ends)) + self.least)

    def _curved(self, start: Solution) -> Floats:
        """Covariance about the optimum, by Gauss and Newton; no wider than what is open."""
        j, r = start.jacobian, start.residuals
        excess = max(1.0, float(r @ r) / max(1, self.problem.freedom))
        open_ = 12 / (self.problem.high - self.problem.low) ** 2
        return np.asarray(np.linalg.inv(j.T @ j / excess + np.diag(open_)), np.float64)

    def _inside(self, region: Region, count: int) -> Floats:
        """float64[count, n_coordinates]: permitted, from the normal distribution of *region*."""
        root = np.linalg.cholesky(region.spread)
        parts: list[Floats] = []
        scale, tries = 1.0, 0
        while sum(map(len, parts)) < count:
            normal = self.rng.standard_normal((6 * count, len(root)))
            tried = region.centre + scale * normal @ root.T
            parts.append(tried[self.problem.permits(tried)])
            tries += 1
            # the middle may be forbidden, between what is allowed
            scale = 0.9**tries if tries < TRIES / 2 else 1.2 ** (tries - TRIES / 2)
            if tries > TRIES:
                raise FitError("no set of numbers that fits the captures describes a drive")
        return np.concatenate(parts)[:count]

    def _simulate(self, u: Floats) -> None:
        """Simulate candidates, each with a seed of its own, and keep them."""
        u = self.problem.snapped(u)
        seeds = self.rng.integers(0, 1 << 30, len(u))
        rows = self._all(lambda at, seed: self.problem.simulate(at, seed, 1.0), u, seeds)
        self.u, self.figures = np.concatenate([self.u, u]), np.concatenate([self.figures, rows])

    def _all(self, simulate: Callable[[Floats, int], Floats], u: Floats, seeds: Ints) -> Floats:
        """float64[n, n_figures] of float64[n, n_coordinates]."""
        with ThreadPoolExecutor(THREADS) as pool:
            rows = np.array(list(pool.map(simulate, u, map(int, seeds))))
        if not np.all(np.isfinite(rows)):
            raise FitError("a simulated figure is not finite; the captures leave the model's range")
        return rows

    def _near(self, region: Region, tau: float) -> Ints:
        """Indices of all candidates so far that lie near *region* and are likely, mixed.

        *tau*: size of the error beside sampling so far. Without it, where the model cannot say all,
        hardly a candidate would be likely.
        """
        away = region.away(self.u)
        least = self.terms + len(self.problem.names) + 6
        near = np.argsort(away)[: max(least, int((away < NEAR**2).sum()))]
        emulator = self._emulator(region, near)
        cost = Likelihood(self.problem, emulator, tau, rough=True).cost(emulator.z(self.u[near]))
        likely = max(least, round(1.5 * self.terms), int((cost < cost.min() + LIKELY).sum()))
        return self.rng.permutation(near[np.argsort(cost)[:likely]])

    def _emulator(self, region: Region, chosen: Ints) -> Emulator:
        return Emulator(self.problem, region, self.u[chosen], self.figures[chosen])

    def _likeliest(self, tried: Floats, found: Likelihood) -> Floats:
        """The likeliest of *tried*, and of what a search from it ends at, simulated at length.

        Of those that 95 % do not tell apart it is the one whose profiled coordinate is the largest:
        what nothing tells is not promised, a controller that may be faster than was seen. Else
        chance would choose, in a valley that is level.
        """
        problem = self.problem

        def judged(u: Floats) -> tuple[Floats, Floats]:
            u = np.unique(problem.snapped(np.clip(u, problem.low, problem.high)), axis=0)
            # numbers of their own: an optimum was fitted to the noise of those it was found with
            seeds = np.full(len(u), SEED + 1)
            rows = self._all(lambda at, seed: problem.simulate(at, seed, LONG), u, seeds)
            return u, found.exact(u, rows, LONG)

        tried, costs = judged(tried)
        if self.is_at_length and not is_stopping():
            start = tried[int(np.argmin(costs))]
            end = optimum(problem, start=start, rounds=POLISHED, effort=LONG, seed=SEED + 1)
            more, cost = judged(end.values[None])
            tried, costs = np.concatenate([tried, more]), np.concatenate([costs, cost])
        best = int(np.argmin(costs))
        if problem.profiled in problem.names:
            largest = tried[:, problem.names.index(problem.profiled)]
            best = int(np.argmax(np.where(costs <= costs[best] + CHI_SQUARE / 2, largest, -np.inf)))
        return np.asarray(tried[best])

    def _profile(self, found: Likelihood, mode: Floats) -> tuple[Floats, Floats]:
        """The likeliest at values of the profiled coordinate that are as likely, and those values.

        float64[n, n_coordinates], float64[n]; the same values whatever the draws.
        """
        problem, region = self.problem, found.emulator.region
        if problem.profiled not in problem.names:
            return np.zeros((0, len(problem.names))), np.zeros(0)
        index = problem.names.index(problem.profiled)
        values = np.linspace(problem.low[index], problem.high[index], PROFILED)
        z = (values - region.centre[index]) / region.scale[index]
        _, cost = found.profile(index, z, mode)
        least = min(float(cost.min()), float(found.cost(mode[None])[0]))
        likely = cost <= least + CHI_SQUARE / 2
        # the emulator may be off by as much again
        alike = z[cost <= least + CHI_SQUARE]
        along = np.linspace(alike.min(), alike.max(), ALONG) if len(alike) else z[:0]
        ends, _ = found.profile(index, along, mode)
        return region_ends(found.emulator, list(ends)), values[likely]

    def _span(self, draws: Floats, likely: Floats) -> tuple[float, float]:
        """Hull of the draws' interval of the profiled coordinate and of its *likely* values."""
        problem = self.problem
        if problem.profiled not in problem.names:
            return 0.0, 0.0
        index = problem.names.index(problem.profiled)
        low, high = (float(v) for v in np.quantile(draws[:, index], (0.025, 0.975)))
        return float(min([low, *likely])), float(max([high, *likely]))


def region_ends(emulator: Emulator, z: list[Floats]) -> Floats:
    """float64[n, n_coordinates] of coordinates *z* of *emulator*."""
    at = np.reshape(z, (len(z), len(emulator.region.centre)))
    return emulator.region.centre + at * emulator.region.scale


def columns(
    inferred: Inferred, decoded: Callable[[Floats], Mapping[str, float]]
) -> dict[str, Floats]:
    """Name -> float64[n_draws], of what *decoded* makes of each draw."""
    rows = [decoded(u) for u in inferred.draws]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


PROPOSALS, TURNS, TAILS = 1500, 4, 5
"""Draws of a proposal, proposals, and degrees of freedom of their tails."""
RETURNED = 2000
EFFECTIVE = 12
"""Effective draws for each coordinate from which on the next proposal follows them wholly."""
NEXT_WIDER = 1.2
NO_SPREAD = 1e6 * np.finfo(float).eps
"""Variance along an axis, of the largest one, below which it is rounding's."""


def sampled(
    cost: Callable[[Floats], Floats], centre: Floats, spread: Floats, rng: np.random.Generator,
    proposals: int = PROPOSALS,
) -> Floats:  # fmt: skip
    """float64[n, n_coordinates]: draws of the density ``exp(-cost)``.

    *cost*: float64[n, n_coordinates] -> float64[n], infinite where nothing is permitted. *centre*,
    *spread*: where to begin, and its covariance.

    >>> def bowl(u): return ((u - 1) ** 2).sum(axis=1) / 2
    >>> found = sampled(bowl, np.zeros(2), np.eye(2), np.random.default_rng(1))
    >>> found.mean(axis=0).round(1).tolist(), found.std(axis=0).round(1).tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    made = []
    tried, costs = np.zeros((0, len(centre))), np.zeros(0)
    weights = np.zeros(0)
    for _ in range(TURNS):
        made.append((centre, (spread + spread.T) / 2))
        new = _proposed(*made[-1], rng, proposals)
        tried, costs = np.concatenate([tried, new]), np.concatenate([costs, cost(new)])
        mixture = np.logaddexp.reduce([_log_density(tried, *m) for m in made], axis=0)
        logs = -costs - mixture
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        centre, spread = _next(tried, weights)
    chosen = np.searchsorted(np.cumsum(weights), (np.arange(RETURNED) + rng.random()) / RETURNED)
    return np.asarray(tried[rng.permutation(np.minimum(chosen, len(tried) - 1))])


def _proposed(centre: Floats, spread: Floats, rng: np.random.Generator, count: int) -> Floats:
    """float64[count, n_coordinates]: draws of a multivariate t (`scipy.stats` loads in 2 s)."""
    wide = np.sqrt(rng.chisquare(TAILS, count) / TAILS)[:, None]
    return centre + rng.multivariate_normal(np.zeros(len(centre)), spread, count) / wide


def _log_density(at: Floats, centre: Floats, spread: Floats) -> Floats:
    """float64[n]: logarithm of that density, up to a constant; axes without spread are left out."""
    sizes, axes = np.linalg.eigh(spread)
    kept = sizes > NO_SPREAD * sizes.max()
    far = ((((at - centre) @ axes[:, kept]) ** 2) / sizes[kept]).sum(axis=1)
    level = np.log(sizes[kept]).sum() / 2
    return np.asarray(-level - (TAILS + len(centre)) / 2 * np.log1p(far / TAILS))


def _next(tried: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Centre and covariance of the next proposal; few effective draws are flattened first."""
    enough = EFFECTIVE * tried.shape[1]
    while 1 / (weights**2).sum() < min(enough, 0.5 * int((weights > 0).sum())):
        weights = np.sqrt(weights)
        weights = weights / weights.sum()
    centre: Floats = weights @ tried
    off = tried - centre
    spread: Floats = NEXT_WIDER**2 * (off * weights[:, None]).T @ off
    return centre, spread + 1e-9 * np.eye(len(centre))
