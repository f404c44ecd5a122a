"""Fit a disk that serves in rounds: a virtual disk's host thread behind one queue.

n requests in flight take a + b n, together (`notes.law_of_rounds`). Whether such a
disk or a bank of dies tells a depth better that neither saw decides which of them it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Pauses, Quantity, ReadSide, Rounds
from nvmesim.errors import FitError
from nvmesim.fit.bench import Host, measure
from nvmesim.fit.emulator import Floats, Local, Problem, fit_local
from nvmesim.fit.figures import Parameter, problem_of, starts
from nvmesim.fit.notes import law_of_rounds
from nvmesim.fit.points import Point
from nvmesim.fit.read_side import Progress, fit_reads, with_reads
from nvmesim.fit.search import misfit, solve

KEYS = {
    "base": "rounds.base", "base_cv": "rounds.base_cv", "each": "rounds.read", "cv": "rounds.cv",
    "every": "rounds.pauses.every", "length": "rounds.pauses.length",
    "pause_cv": "rounds.pauses.cv",
}  # fmt: skip
PAUSES = ((1e10, 7e8, 1.7), (5e9, 1e8, 1.0), (5e10, 3e9, 0.5))
"""Where the search for pauses begins: time of work between two, mean and variation, ps."""
FINITE = (0.03, 0.1, 0.03, 0.1, 0.2, 0.2, 0.2)
ROUNDS, MOST = 12, 30.0
"""Steps of each such search; standard errors that one figure is let be off."""
CHECKED = 60_000
"""Requests that a depth is predicted with to compare two models."""


@dataclass(frozen=True)
class RoundsFit:
    """A disk of rounds, and the joint distribution of its numbers."""

    profile: DriveProfile
    found: Local

    def columns(self) -> dict[str, Floats]:
        """Dotted key of the profile -> float64[n_draws]."""
        return {KEYS[name]: column for name, column in self.found.columns().items()}


@dataclass(frozen=True)
class Chosen:
    """Which of two models told a depth better that neither was fitted to."""

    depth: int
    rounds: float
    dies: float
    """Half chi-square of each at that depth"""

    @property
    def is_rounds(self) -> bool:
        """Whether rounds told it better."""
        return self.rounds < self.dies

    @property
    def text(self) -> str:
        """One line for a person."""
        won, lost = ("rounds", "dies") if self.is_rounds else ("dies", "rounds")
        return (
            "n requests in flight take a + b n, together: by rounds (a virtual disk: one thread "
            f"behind one queue), or by a bank of dies? Depth {self.depth}, left out of both, is "
            f"told by {won} with half a chi-square of {getattr(self, won):.0f}, by {lost} with "
            f"{getattr(self, lost):.0f}: {won} it is"
        )


def choose(template: DriveProfile, host: Host, points: Sequence[Point], tell: Progress) -> Chosen:
    """Fit both models to all depths of *points* but a middle one, and score that."""
    depths = sorted({p.outstanding for p in points})
    depth = depths[len(depths) // 2 if len(depths) % 2 else len(depths) // 2 - 1]
    rest = [p for p in points if p.outstanding != depth]
    tell(f"reads in rounds? without depth {depth}")
    served = fit_rounds(template, host, rest, points)
    banked = fit_reads(template, host, rest, tell)
    bank = with_reads(template, banked.values, banked.dies)
    out = [p for p in points if p.outstanding == depth]
    return Chosen(
        depth,
        sum(_score(served.profile, host, p) for p in out),
        sum(_score(bank, host, p) for p in out),
    )


def fit_rounds(
    template: DriveProfile, host: Host, points: Sequence[Point], alike: Sequence[Point] = ()
) -> RoundsFit:
    """Fit *points* of one operation and size to rounds.

    The search begins at the law of *alike*, or of *points* themselves. Raises FitError if they
    follow none.
    """
    like = alike or points
    law = law_of_rounds([p.outstanding for p in like], [p.iops for p in like])
    if law is None:
        raise FitError("the points do not take a + b n: no disk of rounds")
    base, each = (1e12 * v for v in law)
    parameters = [
        Parameter("base", base, base / 3, base * 3, 0.1),
        Parameter("base_cv", 0.2, 0.01, 1.5, 0.4, prior=0.7),
        Parameter("each", each, each / 3, each * 3, 0.05),
        Parameter("cv", 0.5, 0.01, 3.0, 0.4, prior=0.7),
        Parameter("every", PAUSES[0][0], 2e8, 1e13, 0.6),
        Parameter("length", PAUSES[0][1], 5e6, 2e10, 0.6),
        Parameter("pause_cv", PAUSES[0][2], 0.3, 4.0, 0.3, prior=0.5),
    ]
    writes = points[0].read_fraction == 0

    def made(x: Floats) -> DriveProfile:
        return with_rounds(template, x, writes=writes)

    problem = problem_of(points, parameters, made, host)
    begin, half = starts(parameters)
    best = _descended(problem, begin, parameters)
    found = fit_local(problem, best, half)
    return RoundsFit(made(np.exp(found.logs)), found)


def _descended(
    problem: Problem, begin: Sequence[float], parameters: Sequence[Parameter]
) -> list[float]:
    """The best end of searches with the same random numbers, one from each guess of the pauses.

    Percentiles jump where the share of requests that meet a pause crosses them: no quadratic spans
    that.
    """
    scale = np.hypot(problem.assumed, problem.floor)

    def residuals(x: Floats) -> list[float]:
        off = problem.simulate(np.log(x), 1, 1.0) - problem.measured
        return list(np.clip(off / scale, -MOST, MOST))

    low, high = [p.low for p in parameters], [p.high for p in parameters]
    tries = [[*begin[:4], *pauses] for pauses in PAUSES]
    ends = [
        solve(residuals, start, rounds=ROUNDS, step=FINITE, low=low, high=high) for start in tries
    ]
    return [float(v) for v in min(ends, key=lambda s: s.cost).values]


def fit_writes_in_rounds(
    profile: DriveProfile, host: Host, points: Sequence[Point]
) -> tuple[DriveProfile, Floats]:
    """What each write adds to a round of *profile*, whose reads are fitted; and its draws."""
    rounds = profile.rounds
    if rounds is None:
        raise FitError("the profile does not serve in rounds")
    start = rounds.read.value

    def made(x: Floats) -> DriveProfile:
        new = rounds.model_copy(update={"write": Quantity(value=float(x[0]))})
        return profile.model_copy(update={"rounds": new})

    parameters = [Parameter("write", start, start / 10, start * 10, 0.2)]
    found = fit_local(problem_of(points, parameters, made, host), *starts(parameters))
    return made(np.exp(found.logs)), found.columns()["write"]


def with_rounds(
    template: DriveProfile, x: Sequence[float] | Floats, *, writes: bool = False
) -> DriveProfile:
    """Return *template* serving in rounds of these numbers (ps), reads and writes alike.

    *writes*: they are of writes, so reads are assumed to be like them.
    """
    base, base_cv, each, cv, every, length, pause_cv = (Quantity(value=float(v)) for v in x)
    none = Quantity(value=0.0, basis="assumed")
    rounds = Rounds(
        base=base, base_cv=base_cv, read=each, write=each if writes else None, cv=cv,
        pauses=Pauses(every=every, length=length, cv=pause_cv),
    )  # fmt: skip
    read: ReadSide = template.read.model_copy(update={"base": none})
    write = template.write.model_copy(update={"base": none})
    return template.model_copy(update={"rounds": rounds, "read": read, "write": write})


def _score(profile: DriveProfile, host: Host, point: Point) -> float:
    """Half the squared residuals of *point*, which *profile* was not fitted to."""
    errors = misfit(point, measure(profile, host, point, requests=CHECKED))
    return sum(r * r for r in errors) / 2
