"""A stack's costs as coordinates, and how well the CPU time of points is explained by them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.infer.problem import ERRORS, Coordinate, Problem
from nvmesim.calibrate.notes import named
from nvmesim.calibrate.points import LONE_S, Point
from nvmesim.catalog.profile import DriveProfile, Quantity, StackProfile

SUBMIT_SHARE = 0.5
"""Share of a request's own cycles that are spent to submit it. Assumed: captures give the sum."""
ODDS, ODDS_DOUBT = 0.47, 0.7
"""An interrupt's cycles in units of a request's own, and the standard deviation of its logarithm,
where captures do not tell them apart. Assumed."""
WAKEUP_DOUBT, HALF_DOUBT = 1.0, 0.7
"""The same of a wake-up, about one request's cycles, and of `HALF`, where every thread is full.
Assumed: fitted stacks have 0.3 to 2 requests' worth."""
HALF = 12e-6
"""Sleep after which a wake-up costs half, s, where the search begins."""
DEAREST = 0.5
"""Of a request's cost, what a further drive may add."""
REQUESTS = 5_000
"""Simulated at a point: the scatter of CPU time counts little beside the error of a point."""
SHARERS = 2
"""Different numbers of threads on a target that tell what each further one costs."""
LEAST = 1e-3
"""Of that, at least: the factors of a profile's draws are above zero."""


@dataclass(frozen=True)
class Costs:
    """A stack in coordinates in which the CPU time of points is nearly straight; seconds.

    A request with an interrupt of its own, the interrupt's odds against the rest, a wake-up, the
    sleep that makes one cost half, as logarithms; the share that each further drive adds.
    """

    name: str
    ghz: float
    cheapest: float
    """CPU time of a request at the cheapest point, s"""
    dearest: float
    several: bool
    """True if there are points at several drive counts"""
    shared: bool = False
    """True if full threads at several counts share a target: each further one has a cost"""
    only_full: bool = False
    """True if no thread ever sleeps: nothing tells what a wake-up costs"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        more = (("target", self.several), ("sharer", self.shared))
        return ("together", "odds", "wakeup", "half", *(name for name, has in more if has))

    @property
    def first(self) -> Floats:
        """Coordinates read off the figures: the cheapest point works, the dearest wakes up too."""
        rest = max(0.1e-6, self.dearest - self.cheapest)
        wakeup = self.cheapest if self.only_full else 1.2 * rest
        logs = np.log([1.1 * self.cheapest, ODDS, wakeup, HALF])
        return np.append(logs, [0.03] * (len(self.names) - len(logs)))

    def coordinates(self, start: Floats) -> tuple[Coordinate, ...]:
        """Coordinates that are searched from *start*."""
        log, first = np.log, self.first
        asleep = (0.0, 0.0) if not self.only_full else (WAKEUP_DOUBT, HALF_DOUBT)
        rows = {
            "together": (first[0] - log(4), first[0] + log(3), 0.03, 0.0),
            "odds": (log(0.02), log(10.0), 0.1, ODDS_DOUBT),
            "wakeup": (first[2] - log(20), first[2] + log(6), 0.05, asleep[0]),
            "half": (log(0.3e-6), log(300e-6), 0.1, asleep[1]),
            "target": (LEAST, DEAREST, 0.01, 0.0),
            "sharer": (LEAST, DEAREST, 0.01, 0.0),
        }
        begin = dict(zip(self.names, zip(start, first, strict=True), strict=True))
        return tuple(
            # a prior stands about its own middle, wherever the search begins
            Coordinate(name, float(begin[name][1 if rows[name][3] else 0]), *rows[name])
            for name in self.names
        )

    def cycles(self, u: Floats) -> dict[str, float]:
        """Coordinates as the profile's numbers: cycles, and ps.

        >>> costs = Costs("x", 2.0, 2e-6, 6e-6, False)
        >>> [round(v) for v in costs.cycles(np.log([3e-6, 0.5, 4e-6, 1e-5])).values()]
        [2000, 2000, 2000, 8000, 10000000]
        """
        hz = self.ghz * 1e9
        together, odds, wakeup, half = np.exp(u[:4]).tolist()
        further = dict(zip(self.names[4:], u[4:].tolist(), strict=True))
        work = together * hz / (1 + odds)
        found = {
            "submit": work * SUBMIT_SHARE, "complete": work * (1 - SUBMIT_SHARE),
            "interrupt": work * odds, "wakeup": wakeup * hz, "wakeup_half": half * 1e12,
        }  # fmt: skip
        return found | {f"per_{name}": part * together * hz for name, part in further.items()}

    def stack(self, u: Floats) -> StackProfile:
        """The stack at coordinates *u*."""
        costs: dict[str, Quantity] = {k: Quantity(value=v) for k, v in self.cycles(u).items()}
        return StackProfile.model_validate({"name": self.name, **costs})


def costs_of(
    name: str, points: Sequence[Point], ghz: float, *, several: bool, only_full: bool = False
) -> Costs:
    """Coordinates for the CPU time of *points*; *only_full*: of threads that never sleep."""
    times = sorted(p.cpu_s for p in points if p.cpu_s)
    on_one = {p.jobs for p in points if not p.own_targets}
    shared = only_full and len(on_one) >= SHARERS
    return Costs(name, ghz, times[0], times[-1], several, shared, only_full)


@dataclass(frozen=True)
class Bench:
    """The points whose CPU time costs are to explain, and what they are simulated with."""

    costs: Costs
    points: Sequence[Point]
    full: Sequence[Point]
    """Those of them whose threads are full: there IOPS tell the costs as well"""
    drive: DriveProfile
    host: BenchHost

    def problem(self, start: Floats) -> Problem:
        """The problem of finding the costs, from *start*."""
        rows = [(i, key) for i, p in enumerate(self.points) for key in self._figures(p)]

        def simulate(u: Floats, seed: int, share: float) -> Floats:
            host = replace(self.host, stack=self.costs.stack(u))
            # a full thread's rate settles as soon as its queue stands
            turns = 2 if self.costs.only_full else 10
            answers = [
                measure(self.drive, host, p, seed=seed,
                        requests=round(share * REQUESTS) + turns * p.outstanding)
                for p in self.points
            ]  # fmt: skip
            found = [answers[i].cpu_s if key == "cpu" else answers[i].iops for i, key in rows]
            return np.asarray(np.log(np.array(found, float)))

        measured = [
            self.points[i].cpu_s or 0.0 if key == "cpu" else self.points[i].iops for i, key in rows
        ]
        none = np.zeros(len(rows))
        return Problem(
            coordinates=self.costs.coordinates(start), simulate=simulate,
            measured=np.log(np.array(measured)), run=np.array([i for i, _ in rows]), sample=none,
            assumed=np.array([ERRORS[key] for _, key in rows]), floor=none,
        )  # fmt: skip

    def _figures(self, point: Point) -> tuple[str, ...]:
        return ("cpu", "iops") if point in self.full else ("cpu",)


QUEUED: Final = 8
"""Requests in flight of a thread from which on it may be full; with fewer it waits for them."""
BUSY: Final = 0.85
"""Share of a thread's time that goes into submissions from which on it does nothing else."""
MORE: Final = 1.25
"""What more threads do, in units of a row's IOPS, from which on its threads were the limit."""
LARGE: Final = 32 << 10
"""Bytes from which on links and memory may be what many drives wait for. Assumed."""
_load: Final = attrgetter("read_fraction", "random", "block_size", "sync")
"""What a drive is asked in a row"""
_kind: Final = attrgetter("read_fraction", "random", "block_size", "iodepth", "targets",
                          "own_targets", "sync", "raid", "polled")  # fmt: skip
"""Key of rows that differ in threads alone"""
ROOM: Final = 1.25
"""Requests in flight in units of what the IOPS need of a NAND drive: fewer may be the limit."""


def with_full_threads(points: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """*points* with the CPU time of rows whose threads were plainly full, and what is said of it.

    None where any row states CPU figures.

    >>> rows = [Point("", 1.0, True, 4096, n, 128, x, None) for n, x in ((1, 564e3), (4, 1562e3))]
    >>> round(1e6 * with_full_threads(rows)[0][0].cpu_s, 3), with_full_threads(rows)[0][1].cpu_s
    (1.773, None)
    """
    if any(p.cpu_s for p in points):
        return list(points), []
    found = [
        replace(p, cpu_s=p.jobs / p.iops, per_job_pct=100.0) if _is_full(p, points) else p
        for p in points
    ]
    full = [p for p in found if p.cpu_s]
    if not full:
        return found, []
    return found, [
        "no CPU figures: threads are taken as full where more of them do more at the same depth, "
        f"so that a request takes jobs / IOPS of CPU time: {named([p.name for p in full], 6)}; "
        "such rows do not say what a sleeping thread pays to wake up: it is assumed"
    ]


def _is_full(p: Point, points: Sequence[Point]) -> bool:
    if p.is_bounded or p.read_fraction not in (0, 1):
        return False
    if p.iodepth < QUEUED:
        return False
    if p.slat_s and p.iops * p.slat_s >= BUSY * p.jobs:
        return True
    alike = [
        q.iops for q in points
        if q.jobs > p.jobs and _kind(q) == _kind(p) and not q.is_bounded
    ]  # fmt: skip
    fewer = [q.iops for q in points if q.jobs < p.jobs and _kind(q) == _kind(p)]
    needed = ROOM * p.iops * LONE_S[p.read_fraction == 1]
    is_more = max(alike, default=0.0) > MORE * p.iops > MORE * max(fewer, default=0.0)
    return (is_more or does_less_of_each(p, points)) and p.outstanding > needed


def does_less_of_each(p: Point, points: Sequence[Point]) -> bool:
    """True if fewer threads than drives got less of each drive than another row of *points* did."""
    if p.jobs >= p.targets or p.raid or p.block_size >= LARGE:
        return False
    per_drive = (
        q.iops / q.targets for q in points
        if q.targets < p.targets and q.outstanding / q.targets <= p.outstanding / p.targets
        and not q.raid and _load(q) == _load(p)
    )  # fmt: skip
    return max(per_drive, default=0.0) > MORE * p.iops / p.targets
