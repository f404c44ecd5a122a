"""How probable each explanation is, by its likelihood over all rows and by how common it is.

The logarithm of measured over predicted is, under the explanation that holds, an error that all
rows share in part (the model's and the profiles' errors, as wide as the prediction's interval) and
an error of each row. A multivariate t-distribution keeps one odd row from deciding (Lange, Little
and Taylor, Journal of the American Statistical Association 84, 1989). "None of these" is the same
with an error of a factor that nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.array_types import Floats

SHARED: Final = 0.8
"""Share of the variance of a prediction's error that all rows of one server have in common
(assumed; most of it is one drive profile and one stack)."""
FREEDOM: Final = 5.0
"""Degrees of freedom of the t-distribution."""
UNKNOWN: Final = math.log(3.0)
"""Standard deviation of the logarithm of what an unknown mistake does."""
UNKNOWN_ROWS: Final = math.log(1.5)
"""What it does differently from row to row."""


@dataclass(frozen=True)
class ErrorScale:
    """Standard deviations of log(measured / predicted), one a figure of a row."""

    model: Floats
    """float64[n]: of the prediction, by its interval."""
    noise: Floats
    """float64[n]: of the measurement."""
    figure: tuple[str, ...]
    """Name of each."""

    def covariance(self, unknown: bool = False) -> Floats:
        """float64[n, n]; *unknown* adds what a mistake that is not in the list may do."""
        same = np.array([[a == b for b in self.figure] for a in self.figure])
        shared = np.where(same, SHARED, 0.0)
        np.fill_diagonal(shared, 1.0)
        out: Floats = np.outer(self.model, self.model) * shared + np.diag(self.noise**2)
        if unknown:
            out = out + UNKNOWN**2 * same + np.diag(np.full(len(self.noise), UNKNOWN_ROWS**2))
        return out


def log_likelihood(ratios: Floats, scale: ErrorScale, *, unknown: bool = False) -> float:
    """Return the log density of *ratios* (float64[n]; NaN is left out) under one explanation.

    >>> scale = ErrorScale(np.array([0.1]), np.array([0.0]), ("iops",))
    >>> near, far = (log_likelihood(np.array([x]), scale) for x in (0.0, 0.5))
    >>> near > far
    True
    """
    known = np.isfinite(ratios)
    covariance = scale.covariance(unknown)[np.ix_(known, known)]
    values, n = ratios[known], int(known.sum())
    sign, log_det = np.linalg.slogdet(covariance)
    assert sign > 0
    square = float(values @ np.linalg.solve(covariance, values))
    constant = math.lgamma((FREEDOM + n) / 2) - math.lgamma(FREEDOM / 2)
    constant -= 0.5 * n * math.log(FREEDOM * math.pi)
    return constant - 0.5 * float(log_det) - 0.5 * (FREEDOM + n) * math.log1p(square / FREEDOM)


def misfit(ratios: Floats, scale: ErrorScale) -> float:
    """Return the mean square of *ratios* in standard deviations: about 1 for what holds.

    >>> scale = ErrorScale(np.array([0.1]), np.array([0.0]), ("iops",))
    >>> round(misfit(np.array([0.2]), scale), 6)
    4.0
    """
    known = np.isfinite(ratios)
    covariance = scale.covariance()[np.ix_(known, known)]
    values = ratios[known]
    return float(values @ np.linalg.solve(covariance, values)) / max(1, len(values))


def probabilities(
    log_likelihoods: Mapping[str, Sequence[float]], priors: Mapping[str, float]
) -> dict[str, float]:
    """Return the probability of each explanation; one with several variants is their mean.

    >>> probabilities({"a": [0.0], "b": [0.0, -1000.0]}, {"a": 0.5, "b": 0.5})
    {'a': 0.6666666666666666, 'b': 0.3333333333333333}
    """
    most = max(max(values) for values in log_likelihoods.values())
    weights = {
        name: priors[name] * sum(math.exp(v - most) for v in values) / len(values)
        for name, values in log_likelihoods.items()
    }
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
