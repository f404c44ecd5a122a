"""An inference problem: figures as logarithms, parameters in coordinates of their own.

Measured points make one: their figures, how sure each is, how a simulation gives them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from nvmesim.array_types import Bools, Floats, Ints
from nvmesim.calibrate.bench import Bench, BenchAnswer, BenchHost
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile

DRAWS: Final = 256
"""Draws of the joint distribution."""
ERRORS: Final[dict[str | float, float]] = {
    "iops": 0.01, "mean": 0.01, 50.0: 0.05, 99.0: 0.05, 99.9: 0.08, "cpu": 0.02,
}  # fmt: skip
"""Relative standard error that a figure of a capture is taken to have: run to run, and for the
percentiles what a model of gamma-distributed dies cannot follow. Assumed, from repeats of the same
point in the captures of this project (IOPS within 1 to 4 %)."""


class Coordinate(NamedTuple):
    """One parameter: its bounds, where a search begins, and what is known of it beforehand."""

    name: str
    start: float
    low: float
    high: float
    step: float
    """Of a finite difference: large enough to be seen above the roughness of a simulation"""
    doubt: float = 0.0
    """Standard deviation of a normal prior around the start; 0: there is none"""
    tilt: float = 0.0
    """How fast the logarithm of the density beforehand rises; 1: where the coordinate is a
    logarithm, and all values of what it is of are equally likely"""


@dataclass(frozen=True)
class Problem:
    """Figures that a simulation is to explain, and the coordinates it is asked at."""

    coordinates: tuple[Coordinate, ...]
    simulate: Callable[[Floats, int, float], Floats]
    """(float64[n_coordinates], seed, share of the usual requests) -> float64[n_figures]"""
    measured: Floats
    run: Ints
    """int64[n_figures]: the run that a figure is of; different runs share no noise"""
    sample: Floats
    """float64[n_figures]: variance of the measured figure in units of a usual simulated one's"""
    assumed: Floats
    """float64[n_figures]: standard error beside sampling: run to run, and what no model follows"""
    floor: Floats
    """float64[n_figures]: standard error beside sampling, always there: bins, ends of runs"""
    long: "Problem | None" = None
    """The same with runs as long as the captures where usual ones may be off; None: nowhere"""
    others: tuple[Floats, ...] = ()
    """Other places to begin at, float64[n_coordinates]: valleys may lie apart"""
    profiled: str = ""
    """A coordinate whose interval must hold on either side of what is open: see `Inferred.span`"""
    snapped: Callable[[Floats], Floats] = lambda u: u
    """float64[n, n_coordinates] -> the nearest that can be simulated: counts are whole numbers"""
    allowed: Callable[[Floats], Bools] = lambda u: np.ones(len(u), bool)
    """float64[n, n_coordinates] -> bool[n]: what bounds alone cannot say"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return tuple(c.name for c in self.coordinates)

    def column(self, field: str) -> Floats:
        """float64[n_coordinates]: one field of all coordinates."""
        return np.array([getattr(c, field) for c in self.coordinates], float)

    @property
    def low(self) -> Floats:
        """Lower bounds, float64[n_coordinates]."""
        return self.column("low")

    @property
    def high(self) -> Floats:
        """Upper bounds, float64[n_coordinates]."""
        return self.column("high")

    @property
    def start(self) -> Floats:
        """float64[n_coordinates], inside the bounds."""
        return np.clip(self.column("start"), self.low, self.high)

    @property
    def known(self) -> Floats:
        """float64[n_coordinates]: 1 / variance of the priors; 0: there is none."""
        doubt = self.column("doubt")
        return np.where(doubt > 0, 1 / np.maximum(doubt, 1e-12) ** 2, 0.0)

    @property
    def freedom(self) -> int:
        """Figures less coordinates that they are to tell."""
        return len(self.measured) - int((self.known == 0).sum())

    def permits(self, u: Floats) -> Bools:
        """bool[n]: which of float64[n, n_coordinates] are inside the bounds and allowed."""
        return ((u >= self.low) & (u <= self.high)).all(axis=1) & self.allowed(u)


@dataclass(frozen=True)
class Parameter:
    """A positive number that rows tell, or that is assumed; searched on a logarithmic scale."""

    name: str
    start: float
    low: float
    high: float
    step: float = 0.03
    """Of a finite difference, relative"""
    prior_sd: float = 0.0
    """Standard deviation of its logarithm before any row is looked at; 0: nothing is known"""
    told: bool = True
    """False: no row tells it, it is drawn as it is assumed"""


def logarithms(parameters: Iterable[Parameter]) -> list[Coordinate]:
    """Coordinates that are the logarithms of *parameters*.

    >>> logarithms([Parameter("die", 100.0, low=10.0, high=1000.0)])[0].high.__round__(3)
    6.908
    """
    log = np.log
    return [
        Coordinate(
            p.name, float(log(p.start)), float(log(p.low)), float(log(p.high)), p.step, p.prior_sd
        )
        for p in parameters
    ]


BIN = 0.005
"""Standard error of a percentile that was read off bins: fio's are 1.6 % wide, ours 0.8 %."""
TOTAL = 60_000
"""Requests that all points of one candidate are simulated with together, about."""
DEEP = 48
"""Requests in flight from which on a candidate's short run may be off.

One that begins with an empty drive and hundreds of requests at once takes thousands of them to
forget it: at 256 in flight some thousand requests give 0.4 to 0.9 % fewer IOPS and 10 to 16 % less
p99 than a long run does."""
LONGEST, LONG_TOTAL = 50_000, 120_000
"""Requests of a long run at most, and of those of all rows together."""
Make = Callable[[Floats], DriveProfile]
"""Coordinates -> the drive"""


def problem_of(
    points: Sequence[Point], coordinates: Sequence[Coordinate], make: Make, host: BenchHost,
    **more: Any,
) -> Problem:  # fmt: skip
    """The problem of finding *coordinates* of what *make* builds, from *points* on *host*.

    *more*: others, profiled, snapped and allowed of the `Problem`.
    """
    rows = [(i, key, value) for i, p in enumerate(points) for key, value in _known(p)]
    usual = efforts(points)
    most = min(LONGEST, LONG_TOTAL // max(1, sum(p.outstanding >= DEEP for p in points)))
    length = [
        max(n, min(p.count or most, most)) if p.outstanding >= DEEP else n
        for n, p in zip(usual, points, strict=True)
    ]

    def of_length(requests: Sequence[int], long: Problem | None) -> Problem:
        def simulate(u: Floats, seed: int, share: float) -> Floats:
            asked = [round(share * n) for n in requests]
            return _figures(Bench(make(u), host), points, rows, asked, seed)

        return Problem(
            coordinates=tuple(coordinates), simulate=simulate, long=long,
            measured=np.log([value for _, _, value in rows]),
            run=np.array([i for i, _, _ in rows]),
            sample=np.array([requests[i] / points[i].count if points[i].count else 0.0
                             for i, _, _ in rows]),
            assumed=np.array([ERRORS.get(key, 0.05) for _, key, _ in rows]),
            floor=np.array([_floor(points[i], key) for i, key, _ in rows]),
            **more,
        )  # fmt: skip

    is_longer = any(n > 2 * short for n, short in zip(length, usual, strict=True))
    return of_length(usual, of_length(length, None) if is_longer else None)


def _figures(
    bench: Bench, points: Sequence[Point], rows: Sequence[tuple[int, str | float, float]],
    requests: Sequence[int], seed: int,
) -> Floats:  # fmt: skip
    """Logarithms of the figures *rows* of *points*, each simulated with so many *requests*.

    0 for a point of none.
    """
    answers = {
        i: bench.measure(p, requests=n, seed=1 + seed * 97 + i)
        for i, (p, n) in enumerate(zip(points, requests, strict=True)) if n
    }  # fmt: skip
    found = np.array([figure(answers[i], key) if i in answers else 1.0 for i, key, _ in rows])
    return np.asarray(np.log(np.maximum(found, 1e-15)))


def efforts(points: Sequence[Point]) -> list[int]:
    """Requests that one candidate is simulated with at each of *points*.

    Deep queues forget slowly, tails need more than rates, and a longer capture is worth a more
    careful emulator; many points share what a candidate may take.
    """
    usual = []
    for p in points:
        most = min(20_000, p.count // 6) if p.percentiles_s else 0
        usual.append(max(5_000 if p.percentiles_s else 2_500, most) + 15 * min(512, p.outstanding))
    share = min(1.0, TOTAL / max(1, sum(usual)))
    return [
        max(round(share * n), 2_000 + min(10 * p.outstanding, 4_000 + 3 * p.outstanding))
        for n, p in zip(usual, points, strict=True)
    ]


def figure(answer: BenchAnswer, key: str | float) -> float:
    """The figure *key* of a simulated point: "iops", "mean", or a percent."""
    if isinstance(key, str):
        return answer.iops if key == "iops" else answer.mean_s
    return answer.percentiles_s[key] if key in answer.percentiles_s else answer.body_s[key]


def _known(p: Point) -> list[tuple[str | float, float]]:
    """Figures that *p* has: IOPS, mean, percentiles."""
    found: list[tuple[str | float, float]] = [("iops", p.iops)]
    if p.mean_s:
        found.append(("mean", p.mean_s))
    return found + [(k, v) for k, v in (*p.percentiles_s.items(), *p.body_s.items()) if v > 0]


def _floor(p: Point, key: str | float) -> float:
    """Error of bins; or of the ends of a run, where some of what was in flight counts.

    IOPS lose up to several times of it, as a run ends with its slowest request; the mean hardly.
    """
    if not isinstance(key, str):
        return BIN
    ends = p.outstanding / p.count if p.count else 0.0
    own = min(0.02, 3 * ends) if key == "iops" else min(0.005, 0.3 * ends)
    return float(np.hypot(own, p.noise))
