"""Numbers at the optimum of their rows, with joint draws about it and of what no row tells."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.infer.optimum import ROUNDS, Solution, optimum
from nvmesim.calibrate.infer.posterior import DRAWS
from nvmesim.calibrate.infer.problem import Parameter, Problem, logarithms, problem_of
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile

Values = Mapping[str, float]
"""Numbers by name."""


@dataclass(frozen=True)
class Solved:
    """Parameters that rows determine, and others as they are assumed."""

    problem: Problem
    optimum: Solution
    best: Values
    draws: Sequence[Values]

    def columns(self, names: Mapping[str, str]) -> dict[str, Floats]:
        """float64[`DRAWS`] under each key of *names*: key -> name of the number."""
        return {key: np.array([at[name] for at in self.draws]) for key, name in names.items()}

    @property
    def ends(self) -> Mapping[str, tuple[float, float]]:
        """95 % intervals of what the rows determine, by the curvature."""
        return intervals(self.problem.names, np.exp(self.optimum.values), self.optimum)


def solved(
    points: Sequence[Point], host: BenchHost, make: Callable[[Values], DriveProfile],
    parameters: Sequence[Parameter], *, effort: float = 1.0, rounds: int = ROUNDS,
    shape: bool = True, error: float | None = None,
) -> Solved:  # fmt: skip
    """Find those *parameters* of what *make* builds that *points* tell, beside the others.

    Without *shape* no percentile of the points is looked at. *error*: standard error of all figures
    beside sampling, where it is not the usual.
    """
    fitted = [p for p in parameters if p.told]
    names, loose = [p.name for p in fitted], {p.name: p.start for p in parameters if not p.told}

    def values(u: Floats, more: Values = loose) -> Values:
        return {**more, **dict(zip(names, np.exp(u).tolist(), strict=True))}

    rows = points if shape else [replace(p, percentiles_s={}, body_s={}) for p in points]
    problem = problem_of(rows, logarithms(fitted), lambda u: make(values(u)), host)
    if error is not None:
        problem = replace(problem, assumed=np.full_like(problem.assumed, error))
    found = optimum(problem, rounds=rounds, effort=effort)
    moved = zip(drawn(problem, found), scattered(parameters), strict=True)
    return Solved(problem, found, values(found.values), [values(u, more) for u, more in moved])


def scattered(parameters: Sequence[Parameter]) -> list[Values]:
    """`DRAWS` draws of what no row tells, from what is assumed of it, within its bounds."""
    rng = np.random.default_rng(3)
    columns = {
        c.name: np.exp(np.clip(c.start + c.doubt * rng.standard_normal(DRAWS), c.low, c.high))
        for c in logarithms(p for p in parameters if not p.told)
    }
    return [{name: float(column[i]) for name, column in columns.items()} for i in range(DRAWS)]


def covariance(found: Solution) -> Floats:
    """float64[n_parameters, n_parameters]: of parameters fitted on a logarithmic scale.

    From the curvature, as `intervals`.
    """
    jacobian, residuals = found.jacobian, found.residuals
    n_residuals, n_parameters = jacobian.shape
    freedom = max(1, n_residuals - n_parameters)
    scale = max(1.0, float(residuals @ residuals) / freedom)
    information = jacobian.T @ jacobian
    ridge = np.eye(n_parameters) * 1e-6 * max(1e-12, float(np.trace(information)))
    return np.asarray(np.linalg.inv(information + ridge) * scale)


def drawn(problem: Problem, found: Solution) -> Floats:
    """float64[`DRAWS`, n_parameters]: joint draws around the optimum, logarithms, in their bounds.

    What the points do not determine is kept within a factor of e either way.
    """
    size, axes = np.linalg.eigh(covariance(found))
    normal = np.random.default_rng(1).standard_normal((DRAWS, len(size)))
    moved = normal * np.minimum(np.sqrt(np.maximum(size, 0.0)), 0.5) @ axes.T
    return np.asarray(np.clip(found.values + np.clip(moved, -1.0, 1.0), problem.low, problem.high))


def intervals(
    names: Sequence[str], values: Floats, found: Solution
) -> Mapping[str, tuple[float, float]]:
    """95 % intervals of parameters fitted on a logarithmic scale, from the fit's curvature.

    ``values`` float64[n_parameters]; residuals of *found* are in units of their standard error, its
    jacobian is to the logarithm of the parameters. The residuals' own size counts where it is above
    1. A parameter that the points do not determine gets a factor of e either way. Source: Seber and
    Wild, Nonlinear Regression, section 5.1.
    """
    half = np.minimum(1.0, 1.96 * np.sqrt(np.diag(covariance(found))))
    return {
        name: (float(value * np.exp(-h)), float(value * np.exp(h)))
        for name, value, h in zip(names, values, half, strict=True)
    }
