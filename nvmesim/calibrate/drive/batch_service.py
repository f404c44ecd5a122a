"""Fit a disk that serves in rounds: a virtual disk's host thread behind one queue.

n requests in flight take a + b n, together (`law_of_rounds`). Whether such a
disk or a bank of dies tells a depth better that neither saw decides which of them it is.
"""

from collections.abc import Callable, Sequence

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.drive.read_side import Progress, bank_optimum, with_reads
from nvmesim.calibrate.evidence import Side, with_draws
from nvmesim.calibrate.infer.optimum import misfit
from nvmesim.calibrate.infer.posterior import columns, infer, optima
from nvmesim.calibrate.infer.problem import Parameter, Problem, logarithms, problem_of
from nvmesim.calibrate.over_time.pauses import NONE, PauseFit, fit_pauses
from nvmesim.calibrate.points import Point, sources
from nvmesim.catalog.profile import DriveProfile, Quantity, Rounds
from nvmesim.catalog.quantity import with_numbers
from nvmesim.errors import FitError

KEYS = {
    "base": "rounds.base", "base_cv": "rounds.base_cv", "each": "rounds.read", "cv": "rounds.cv",
}  # fmt: skip
WITHIN = 0.08
"""Largest relative error of a time that follows the law."""
CHECKED = 60_000
"""Requests that a depth is predicted with to compare two models."""


def are_rounds(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], writes: Sequence[Point],
    tell: Progress, notes: list[str],
) -> bool:  # fmt: skip
    """True if rounds tell a depth of *points* better than dies, both fitted to all but that.

    The depth is a middle one; *notes* get which model it is. Not if one of *writes* took less than
    half of what each batch would: all that is in it waits for that.
    """
    law = law_of_rounds(points)
    if law is None or any(p.outstanding / p.iops < law[0] / 2 for p in writes):
        return False
    depths = sorted({p.outstanding for p in points})
    depth = depths[len(depths) // 2 if len(depths) % 2 else len(depths) // 2 - 1]
    rest = [p for p in points if p.outstanding != depth]
    tell(f"batch service or dies, without depth {depth}")
    problem, made = _problem(template, host, rest, points, fit_pauses(rest))
    served = made(optima(problem)[0].values)
    bank = with_reads(template, bank_optimum(template, host, rest, tell).values)
    out = [p for p in points if p.outstanding == depth]
    rounds, dies = (
        sum(r * r for p in out for r in misfit(p, measure(drive, host, p, requests=CHECKED)))
        for drive in (served, bank)
    )
    won, lost = "one queue that is served in batches (a virtual disk)", "flash dies"
    if rounds >= dies:
        won, lost = lost, won
    notes.append(
        f"{'reads' if points[0].read_fraction else 'writes'}: taken as {won}, not as {lost}: "
        f"fitted without depth {depth}, that predicts it better"
    )
    return rounds < dies


def law_of_rounds(points: Sequence[Point]) -> tuple[float, float] | None:
    """A server of batches takes a + b n for n requests: (a, b), s.

    Such a disk (one thread of a hypervisor behind one queue) is slower between the depths than dies
    are, which work while others wait. None if the points are not so within 8 %.

    >>> rows = [Point("", 1.0, True, 4096, 1, n, x, None)
    ...         for n, x in ((1, 17.6e3), (4, 43.6e3), (16, 69.4e3))]
    >>> [round(v * 1e6, 1) for v in law_of_rounds(rows)]
    [45.3, 11.6]
    """
    n = np.array([p.outstanding for p in points], float)
    cycle = n / np.array([p.iops for p in points])
    if len(set(n.tolist())) < 3:
        return None
    terms = np.stack([1 / cycle, n / cycle], axis=1)
    (a, b), *_ = np.linalg.lstsq(terms, np.ones(len(n)), rcond=None)
    off = float(np.abs(terms @ np.array([a, b]) - 1).max())
    if off > WITHIN or a <= 0 or b <= 0 or b * n.max() < a:
        return None
    return float(a), float(b)


def fit_rounds(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], pauses: PauseFit
) -> Side:
    """Fit *points* of one operation and size to rounds that *pauses* hold up.

    Raises FitError if they follow no law of rounds.
    """
    problem, made = _problem(template, host, points, points, pauses)
    found = infer(problem)
    drawn = columns(found, lambda u: dict(zip(found.names, np.exp(u).tolist(), strict=True)))
    own = {KEYS[name]: column for name, column in drawn.items()} | pauses.columns()
    return Side(with_draws(made(found.best), own, sources(points)), own, told=tuple(own))


def _problem(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], alike: Sequence[Point],
    pauses: PauseFit,
) -> tuple[Problem, Callable[[Floats], DriveProfile]]:  # fmt: skip
    """How *points* are searched for rounds, beginning at the law of *alike*, and what is made."""
    law = law_of_rounds(alike)
    if law is None:
        raise FitError("the times do not grow as a + b n: this is not a batch service")
    base, each = (1e12 * v for v in law)
    rows = [
        Parameter("base", base, low=base / 3, high=base * 3),
        Parameter("base_cv", 0.2, low=0.01, high=1.5, step=0.2, prior_sd=0.7),
        Parameter("each", each, low=each / 3, high=each * 3),
        Parameter("cv", 0.5, low=0.01, high=3.0, step=0.2, prior_sd=0.7),
    ]
    writes = points[0].read_fraction == 0

    def made(u: Floats) -> DriveProfile:
        base, base_cv, each, cv = (Quantity(value=float(v)) for v in np.exp(u))
        write = each if writes else as_a_read(each)  # reads are then assumed to be like writes
        rounds = Rounds(base=base, base_cv=base_cv, read=each, write=write, cv=cv)
        return served_in_rounds(template, pauses.add_pauses(rounds))

    body = [pauses.without_tail(p) for p in points]
    return problem_of(body, logarithms(rows), made, host), made


def fit_writes_in_rounds(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], pauses: PauseFit = NONE
) -> Side:
    """Time that each write adds to a batch of *profile*, whose reads are fitted."""
    if profile.rounds is None:
        raise FitError("the profile does not serve in rounds")
    start, key = profile.rounds.read.value, "rounds.write"

    def made(u: Floats) -> DriveProfile:
        return with_numbers(profile, {key: float(np.exp(u[0]))})

    rows = logarithms([Parameter("write", start, low=start / 10, high=start * 10, step=0.05)])
    found = infer(problem_of([pauses.without_tail(p) for p in points], rows, made, host))
    own = {key: np.exp(found.draws[:, 0])}
    return Side(with_draws(made(found.best), own, sources(points)), own, told=(key,))


def as_a_read(read: Quantity) -> Quantity:
    """Time that a write adds where none was measured: as a *read*, and said to be assumed.

    >>> as_a_read(Quantity(value=5e6, basis="fitted")).basis
    'assumed'
    """
    return Quantity(value=read.value, basis="assumed", source="writes cost what reads do")


def served_in_rounds(template: DriveProfile, rounds: Rounds) -> DriveProfile:
    """Return *template* serving in *rounds*, which hold all of a request's time but its bytes."""
    return with_numbers(template, {"rounds": rounds, "read.base": 0.0, "write.base": 0.0})
