"""Parametric families beside the empirical quantile table, chosen by held-out likelihood.

Every family is fitted to one half of the sample and judged on the other, both ways round, by its
mean log-density. The empirical table is judged the same way. Beyond the sample a percentile comes
from a generalized Pareto tail, with its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Floats
from nvmesim.errors import FitError

MIN_SAMPLES = 200
MOST = 20_000
"""Samples that families are fitted to; a longer sample is thinned evenly in order."""
BLOCKS = 20
"""Runs of consecutive samples that go into one half or the other, in turn."""
CELLS = 64
"""Cells of the empirical density, of equal probability."""
MIXTURE_ROUNDS = 200


@dataclass(frozen=True)
class Family:
    """One fitted distribution of a positive time, in the unit of the sample."""

    name: str
    parameters: dict[str, float]
    log_density: Callable[[Floats], Floats]
    quantile: Callable[[Floats], Floats]


@dataclass(frozen=True)
class FamilyChoice:
    """How families compare on held-out samples, best first."""

    best: Family | None
    """None: the empirical table is best."""
    scores: dict[str, float]
    """Name -> mean log-density of held-out samples; differences are what counts"""
    errors: dict[str, float] = field(default_factory=dict)
    """Name -> standard error of the difference to the best"""

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as an object."""
        return {
            "family": self.best.name if self.best else "empirical",
            "parameters": self.best.parameters if self.best else {},
            "held_out_log_likelihood": self.scores,
            "standard_error_to_best": self.errors,
        }


def choose(samples: Sequence[float] | Floats) -> FamilyChoice:
    """Fit all families to *samples* (positive, in order of time) and compare them.

    Raises FitError for fewer than 200 samples or one that is not positive.
    """
    x = _checked(samples)
    half = (np.arange(len(x)) * BLOCKS // len(x)) % 2 == 0
    logs: dict[str, Floats] = {}
    for name, fit in FAMILIES.items():
        logs[name] = _held_out(x, half, fit)
    logs["empirical"] = _held_out(x, half, _fit_empirical)
    order = sorted(logs, key=lambda name: -float(logs[name].mean()))
    scores = {name: float(logs[name].mean()) for name in order}
    first = order[0]
    errors = {name: _error(logs[first] - logs[name]) for name in order[1:]}
    best = None if first == "empirical" else FAMILIES[first](x)
    return FamilyChoice(best, scores, errors)


def _checked(samples: Sequence[float] | Floats) -> Floats:
    x = np.asarray(samples, float)
    if len(x) < MIN_SAMPLES:
        raise FitError(f"{len(x)} samples are too few for a family; {MIN_SAMPLES} are needed")
    if not np.all(np.isfinite(x)) or float(x.min()) <= 0:
        raise FitError("a latency is not positive; no family of positive times fits it")
    return x if len(x) <= MOST else x[np.linspace(0, len(x) - 1, MOST).round().astype(int)]


def _held_out(x: Floats, half: npt.NDArray[np.bool_], fit: Callable[[Floats], Family]) -> Floats:
    """float64[n]: log-density of each sample under the family fitted to the other half."""
    out = np.empty(len(x))
    out[half] = fit(x[~half]).log_density(x[half])
    out[~half] = fit(x[half]).log_density(x[~half])
    # A sample that a family rules out costs it dearly, not infinitely: one outlier decides nothing.
    return np.maximum(out, -1e3)


def _error(difference: Floats) -> float:
    """Standard error of a mean over blocks of consecutive samples."""
    means = np.array([part.mean() for part in np.array_split(difference, BLOCKS)])
    return float(means.std(ddof=1) / np.sqrt(BLOCKS))


# -- families -------------------------------------------------------------------------------------


def _frozen(name: str, law: Any, parameters: dict[str, float]) -> Family:
    return Family(
        name, parameters,
        lambda x: np.asarray(law.logpdf(x), float), lambda p: np.asarray(law.ppf(p), float),
    )  # fmt: skip


def _fit_lognormal(x: Floats) -> Family:
    """Maximum likelihood: mean and standard deviation of the logarithms."""
    from scipy.stats import lognorm

    logs = np.log(x)
    mean, sigma = float(logs.mean()), max(1e-6, float(logs.std()))
    law = lognorm(sigma, scale=float(np.exp(mean)))
    return _frozen("lognormal", law, {"median": float(np.exp(mean)), "sigma": sigma})


def _fit_gamma(x: Floats) -> Family:
    """Maximum likelihood; the shape from ln(mean) - mean(ln) (Minka 2002, generalized Newton)."""
    from scipy.special import digamma, polygamma
    from scipy.stats import gamma

    gap = max(1e-12, float(np.log(x.mean()) - np.log(x).mean()))
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(20):
        step = (np.log(shape) - digamma(shape) - gap) / (
            shape**2 * (1 / shape - polygamma(1, shape))
        )
        shape = 1 / (1 / shape + step)
    scale = float(x.mean() / shape)
    return _frozen("gamma", gamma(shape, scale=scale), {"shape": float(shape), "scale": scale})


def _fit_weibull(x: Floats) -> Family:
    """Maximum likelihood; the shape solves sum(x^k ln x)/sum(x^k) - 1/k = mean(ln x)."""
    from scipy.optimize import brentq
    from scipy.stats import weibull_min

    logs = np.log(x / x.max())  # x^k <= 1: no overflow

    def slope(k: float) -> float:
        power = np.exp(k * logs)
        return float((power * logs).sum() / power.sum() - 1 / k - logs.mean())

    shape = float(brentq(slope, 1e-3, 1e4))
    scale = float(x.max() * np.mean(np.exp(shape * logs)) ** (1 / shape))
    return _frozen("Weibull", weibull_min(shape, scale=scale), {"shape": shape, "scale": scale})


def _fit_mixture(x: Floats) -> Family:
    """Two lognormals, by expectation-maximisation from a split at the median and at p90."""
    from scipy.special import logsumexp

    logs = np.log(x)
    tries = [_mixture(logs, float(np.quantile(logs, p))) for p in (0.5, 0.9)]
    weight, mean, sigma = max(tries, key=lambda t: float(logsumexp(_parts(logs, *t), axis=0).sum()))

    def log_density(values: Floats) -> Floats:
        at = np.log(values)
        density: Floats = np.asarray(logsumexp(_parts(at, weight, mean, sigma), axis=0)) - at
        return density

    def quantile(p: Floats) -> Floats:
        return _mixture_quantile(p, weight, mean, sigma)

    named = {
        "share": float(weight[1]),
        "median": float(np.exp(mean[0])), "sigma": float(sigma[0]),
        "median_2": float(np.exp(mean[1])), "sigma_2": float(sigma[1]),
    }  # fmt: skip
    return Family("two lognormals", named, log_density, quantile)


def _parts(logs: Floats, weight: Floats, mean: Floats, sigma: Floats) -> Floats:
    """float64[2, n]: log of weight times normal density of the logarithms."""
    z = (logs - mean[:, None]) / sigma[:, None]
    constant = np.log(np.maximum(weight, 1e-300)) - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    parts: Floats = constant[:, None] - 0.5 * z**2
    return parts


def _mixture(logs: Floats, threshold: float) -> tuple[Floats, Floats, Floats]:
    """Weights, means and standard deviations of two normals. Source: Dempster et al. 1977."""
    member = np.stack([logs <= threshold, logs > threshold]).astype(float)
    least = max(1e-4, 0.01 * float(logs.std()))
    weight = mean = sigma = np.zeros(2)
    before = -np.inf
    for _ in range(MIXTURE_ROUNDS):
        total = np.maximum(member.sum(axis=1), 1e-9)
        weight, mean = total / len(logs), (member @ logs) / total
        sigma = np.sqrt((member * (logs - mean[:, None]) ** 2).sum(axis=1) / total)
        sigma = np.maximum(sigma, least)
        parts = _parts(logs, weight, mean, sigma)
        top = parts.max(axis=0)
        sums = top + np.log(np.exp(parts - top).sum(axis=0))
        member = np.exp(parts - sums)
        likelihood = float(sums.mean())
        if likelihood - before < 1e-7:
            break
        before = likelihood
    return weight, mean, sigma


def _mixture_quantile(p: Floats, weight: Floats, mean: Floats, sigma: Floats) -> Floats:
    """By bisection over the logarithm: the distribution function has no inverse of its own."""
    from scipy.special import ndtr, ndtri

    levels = np.asarray(p, float)
    ends = mean[:, None] + sigma[:, None] * ndtri(np.clip(levels, 1e-15, 1 - 1e-15))
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(60):
        middle = (low + high) / 2
        z = (middle - mean[:, None]) / sigma[:, None]
        below = (weight[:, None] * ndtr(z)).sum(axis=0) < levels
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(np.exp((low + high) / 2))


def _fit_empirical(x: Floats) -> Family:
    """Histogram of cells of equal probability in the logarithm, with exponential tails outside.

    What the empirical quantile table draws, but for its ends, which a density must not end at.
    """
    cells = min(CELLS, max(8, len(x) // 25))
    logs = np.log(x)
    edges = np.quantile(logs, np.linspace(0.5 / len(x), 1 - 0.5 / len(x), cells + 1))
    widths = np.maximum(np.diff(edges), 1e-6)
    inside = 1 - 2.0 / len(x)
    scale = max(1e-3, float(logs.std()))

    def log_density(values: Floats) -> Floats:
        at = np.log(values)
        cell = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, cells - 1)
        density = np.log(inside / cells / widths[cell])
        beyond = np.maximum(edges[0] - at, at - edges[-1])
        tail = np.log(1.0 / len(x) / scale) - beyond / scale
        out: Floats = np.where(beyond > 0, tail, density) - at
        return out

    return Family("empirical", {}, log_density, lambda p: np.quantile(x, p))


FAMILIES: dict[str, Callable[[Floats], Family]] = {
    "lognormal": _fit_lognormal,
    "gamma": _fit_gamma,
    "Weibull": _fit_weibull,
    "two lognormals": _fit_mixture,
}
