"""From the CPU figures of captures to a stack: cycles to submit, complete, wake up, interrupt.

How often a thread sleeps depends on the drive that answers it: so drive and stack are fitted in
turn, and the draws are made with the last drive. Without CPU figures, rows of full threads tell
what a request costs (`with_full_threads`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.drive.fit import FINAL_REQUESTS, fit_drive
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.evidence import Judged, StackFit, joint_of, with_draws
from nvmesim.calibrate.infer.optimum import is_stopping, optimum
from nvmesim.calibrate.infer.posterior import infer
from nvmesim.calibrate.infer.problem import ERRORS, Coordinate, Problem
from nvmesim.calibrate.points import Point, hold_out, points_of
from nvmesim.calibrate.stack.full_threads import with_full_threads
from nvmesim.calibrate.stack.scaled import scaled_costs
from nvmesim.capture.capture import Captures
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import get
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Quantity, StackProfile
from nvmesim.errors import FitError

FULL = 0.9
"""Share of a logical CPU from which a thread is full, as `doubts.CPU_BOUND_PCT`."""
ROUNDS = 2
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


def fit_stack(
    captures: Captures | Sequence[Point],
    *,
    ghz: float,
    cpu: CpuProfile | None = None,
    name: str = "fitted",
    link: str = "pcie4 x4",
    held_out: Sequence[str] = (),
    tell: Progress = lambda _: None,
) -> StackFit:
    """Fit the costs of the stack that made *captures*, on a CPU of *ghz*.

    *cpu* has the cores of all sockets, and their siblings; without it every job has a core of its
    own. Needs reads at two depths or more with CPU figures (fio's usr + sys, DiskSpd's CPU table);
    raises FitError when there are fewer.
    """
    if isinstance(captures, Captures):
        points, notes = points_of(captures)
    else:
        points, notes = list(captures), []
    points, said = with_full_threads(hold_out(points, held_out))
    notes += said
    used = [p for p in points if p.cpu_s and not p.held_out and p.read_fraction == 1]
    kinds = {(p.block_size, p.polled, p.raid, p.sync, p.path) for p in used}
    if len({p.outstanding for p in used}) < 2 or len(kinds) > 1 or used[0].polled:
        bare = BenchHost(get("stack", "linux-io_uring"), ghz, parse_link(link), cpu=cpu)
        return _scaled(points, bare, name, notes, tell)
    several = len({1 if p.own_targets else p.targets for p in used}) > 1  # that one job submits to
    costs = costs_of(name, used, ghz, several=several, only_full=bool(said))
    u = costs.first
    stack = costs.stack(u)
    host = BenchHost(stack, ghz, parse_link(link), cpu=cpu)
    bound = [p for p in used if _is_full(p, cpu)]
    shallow = [p for p in used if p not in bound]
    shallow = [p for p in shallow if p.targets == 1] or shallow
    if said:  # what most threads did is the drive's ceiling
        others = [p for p in points if p not in used and not p.held_out and p.read_fraction == 1]
        shallow = sorted(others, key=lambda p: (p.targets, -p.outstanding))[:1]
    for round_ in range(ROUNDS):
        if round_ and is_stopping():
            break
        tell(f"stack, pass {round_ + 1}: its drive")
        drive = fit_drive(shallow or used, host=replace(host, stack=stack), tell=tell).profile
        tell(f"stack, pass {round_ + 1}: its costs")
        bench = Bench(costs, used, bound, drive, host)
        u = optimum(bench.problem(u)).values
        stack = costs.stack(u)
    tell("the drive behind the stack, once more")
    host = replace(host, stack=stack)
    drive = fit_drive(shallow or used, host=host, tell=tell).profile
    tell("stack: how its costs vary together")
    found = infer(replace(bench, drive=drive).problem(u), tell=lambda step: tell(f"stack: {step}"))
    stack = costs.stack(found.best)
    host, drawn = replace(host, stack=stack), found.draws
    judged = tuple(Judged(p, measure(drive, host, p, requests=FINAL_REQUESTS)) for p in points)
    if not bound:
        notes.append(
            "no point is CPU-bound: the cost of a thread that never sleeps is extrapolated"
        )
    notes.append(f"submission and completion share their cycles {SUBMIT_SHARE:.0%}: assumed")
    notes += _siblings(used, cpu)
    stack = _with_draws(stack, costs, drawn, used)
    return StackFit(stack, judged, ghz, tuple(notes), drive)


def _scaled(
    points: Sequence[Point], host: BenchHost, name: str, notes: Sequence[str], tell: Progress
) -> StackFit:
    """A known stack with a factor on its costs, where rows tell no more."""
    found = scaled_costs(points, host.link, host.ghz)
    if found is None:
        raise FitError(
            "CPU cost needs rows with CPU figures; found none: capture with fio (usr_cpu, sys_cpu) "
            "or DiskSpd at depth 1 and 32, add a column cpu_us, or give IOPS of one thread and of "
            "more at a deep queue"
        )
    host = replace(host, stack=found.stack(host.ghz, name))
    try:
        fit = fit_drive(points, host=host, tell=tell)
        for _ in range(ROUNDS):  # how often a thread sleeps, and how large its batches are
            tell("stack: its costs as the load makes it pay them")
            found = found.corrected(fit.profile, host)
            host = replace(host, stack=found.stack(host.ghz, name))
        fit = fit_drive(points, host=host, tell=tell)
    except FitError as error:
        said = f"no drive beside it: {error}"
        return StackFit(host.stack, (), host.ghz, (*notes, found.text, said))
    return StackFit(host.stack, fit.points, host.ghz, (*notes, found.text), fit.profile)


def _is_full(point: Point, cpu: CpuProfile | None) -> bool:
    """True if its threads, or all logical CPUs, had no time left."""
    if point.is_cpu_bound:
        return True
    logical = point.jobs if cpu is None else min(point.jobs, cpu.cores * cpu.threads_per_core)
    return point.cpu_s is not None and point.cpu_s * point.iops >= FULL * logical


def _siblings(points: Sequence[Point], cpu: CpuProfile | None) -> list[str]:
    """Caveats about logical CPUs that share a core."""
    busy = max((p.cpu_s or 0.0) * p.iops for p in points)
    if cpu is None:
        if busy < 2:
            return []
        return [
            f"up to {busy:.1f} logical CPUs were busy, and only a clock is named: if siblings "
            "shared cores, a cycle took up to 1.6 times as long; name the CPU, as --cpu "
            "'2 x xeon-gold-6130'"
        ]
    if cpu.threads_per_core > 1 and busy > cpu.cores:
        return [
            f"up to {busy:.1f} logical CPUs of {cpu.cores} cores were busy: siblings that share a "
            f"core are taken to do {cpu.smt_yield.value:g} of one thread's work together (assumed)"
        ]
    return []


def _with_draws(
    stack: StackProfile, costs: Costs, drawn: Floats, points: Sequence[Point]
) -> StackProfile:
    """The stack with the joint distribution of its costs."""
    rows = [costs.cycles(u) for u in drawn]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    source = f"CPU time of {len(points)} points: " + ", ".join(p.name for p in points)
    stack = with_draws(stack, columns, source, ("wakeup", "wakeup_half") if costs.only_full else ())
    update = {
        "joint": joint_of(stack, columns),
        "notes": f"cycles at {costs.ghz:g} GHz; relative errors of {ERRORS['cpu']:.0%} per point "
        "assumed, more where the points say so",
    }
    return stack.model_copy(update=update)
