"""Measured rows as loads of a scenario, and how probable they make each explanation.

The logarithm of measured over predicted is, under the explanation that holds, an error that all
rows share in part (the model's and the profiles' errors, as wide as the prediction's interval) and
an error of each row. A multivariate t-distribution keeps one odd row from deciding (Lange, Little
and Taylor, Journal of the American Statistical Association 84, 1989). "None of these" is the same
with an error of a factor that nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.capture.capture import Captures, Measurement
from nvmesim.errors import InputError
from nvmesim.units import format_size

LEAST_NOISE: Final = 0.02
"""Relative standard error of a measured rate at least: repeats of one run differ by so much."""
TAIL_NOISE: Final = 0.08
"""The same of a measured p99."""
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
class MeasuredRow:
    """One measurement of the server."""

    label: str
    workload: Mapping[str, Any]
    """The load as a ``[[workload]]`` table."""
    iops: float
    p99_s: float | None
    """Of the completion latency of reads, or of writes where nothing reads; None: not stated."""
    is_buffered: bool | None
    """True if the page cache was in the way; None: not stated."""

    @property
    def figures(self) -> dict[str, float]:
        """Column of a sweep -> measured value."""
        column = f"{'read' if self.workload['read'] else 'write'}_lat_p99_us"
        p99 = {} if self.p99_s is None else {column: self.p99_s * 1e6}
        return {"iops": self.iops, **p99}


def in_flight(workload: Mapping[str, Any]) -> int:
    """Return the requests in flight of a row's *workload*, at least.

    >>> in_flight({"threads_total": 4, "outstanding": 32})
    128
    """
    threads = workload.get("threads") or workload["threads_total"]
    return int(threads) * int(workload["outstanding"])


def rows_of(captures: Captures) -> tuple[list[MeasuredRow], list[str]]:
    """Return the rows of *captures* that can be simulated, and why the others cannot.

    InputError if none can.
    """
    rows, left_out = [], []
    for capture in captures.files:
        for measurement in capture.measurements:
            try:
                rows.append(_row(measurement))
            except InputError as error:
                left_out.append(f"{capture.file} ({measurement.label}): {error}")
    if not rows:
        why = left_out[0] if left_out else "the captures hold requests but no measurements"
        raise InputError(f"no row can be compared with a prediction: {why}")
    return rows, left_out


def _row(measurement: Measurement) -> MeasuredRow:
    """One row; InputError says what its load or its rate does not state."""
    stated = measurement.conditions
    rates = {op: result.iops for op, result in measurement.ops.items()}
    total, reading = sum(rates.values()), rates.get("read", 0.0)
    if total <= 0:
        raise InputError("states no rate; IOPS or requests and run time are needed")
    sizes, jobs = stated.block_size, stated.jobs
    needed = {"jobs": jobs, "iodepth": stated.iodepth, "block_size": sizes}
    missing = [name for name, value in needed.items() if value is None]
    if sizes is None or missing:
        raise InputError(
            f"does not state {' and '.join(missing)}; add columns, or the command that was run"
        )
    share = stated.read_fraction if stated.read_fraction is not None else reading / total
    load: dict[str, Any] = {
        "block_size": format_size(sizes) if isinstance(sizes, int)
        else {format_size(size): part for size, part in sizes.items()},
        "access": stated.access or "random", "read": share, "outstanding": stated.iodepth,
    }  # fmt: skip
    if stated.targets_per_job == 1 and stated.targets and jobs:
        load["threads"] = max(1, jobs // stated.targets)
    else:
        load["threads_total"] = jobs
    if stated.rate_iops is not None and jobs:
        load["rate_limit"] = stated.rate_iops / jobs
    shown = measurement.ops["read" if reading > 0 else "write"].clat
    return MeasuredRow(
        label=measurement.label,
        workload=load,
        iops=total,
        p99_s=None if shown is None else shown.percentiles_s.get(99.0),
        is_buffered=None if stated.direct is None else not stated.direct,
    )


def log_ratios(rows: Iterable[MeasuredRow], predicted: Iterable[Mapping[str, Any]]) -> Floats:
    """Return log(measured / predicted) row by row and figure by figure, NaN where one is unknown.

    >>> row = MeasuredRow("a", {"read": 1.0}, 100.0, None, None)
    >>> log_ratios([row], [{"iops": 100.0}])
    array([0.])
    """
    return np.array([
        math.log(measured / value) if (value := answer.get(figure)) else math.nan
        for row, answer in zip(rows, predicted, strict=True)
        for figure, measured in row.figures.items()
    ])  # fmt: skip


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
        same = np.equal.outer(self.figure, self.figure)
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
