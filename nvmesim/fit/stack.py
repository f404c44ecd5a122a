"""From the CPU figures of captures to a stack: cycles to submit, complete, wake up, interrupt.

How often a thread sleeps, and for how long, depends on the drive that answers it. So the drive's
read side is fitted first, with a first guess of the stack, then the stack's four
costs with that drive, then both once more. Captures at several drive counts tell a fifth: what each
further drive that a thread serves adds, beyond the interrupts that completions of several drives no
longer share, which the bench simulates.

CPU time is that of logical CPUs, as operating systems count it. With the CPU named, the bench has
its cores and siblings: where more threads were busy than cores, a cycle took longer (DESIGN 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nvmesim.catalog.links import parse_link
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Quantity, StackProfile
from nvmesim.errors import FitError
from nvmesim.fit.bench import Host, measure
from nvmesim.fit.drive import FINAL_REQUESTS, fit_drive
from nvmesim.fit.evidence import Judged, StackFit, intervals
from nvmesim.fit.points import Point, hold_out, points_of
from nvmesim.fit.read_side import Progress
from nvmesim.fit.search import ERRORS, Floats, Solution, misfit, solve
from nvmesim.trace.capture import Captures

NAMES = ("work", "interrupt", "wakeup", "half", "target")
FULL = 0.9
"""Share of a logical CPU from which a thread is full, as `doubts.CPU_BOUND_PCT`."""
REQUESTS = 25_000
ROUNDS = 2
SUBMIT_SHARE = 0.5
"""Share of a request's own cycles that are spent to submit it. Assumed: captures give the sum."""


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
    points = hold_out(points, held_out)
    used = [p for p in points if p.cpu_s and not p.held_out and p.read_fraction == 1]
    if len({p.outstanding for p in used}) < 2:
        raise FitError(
            f"CPU cost needs reads at two depths or more with CPU figures; found {len(used)} "
            "points; capture with fio (usr_cpu, sys_cpu) or DiskSpd at depth 1 and 32"
        )
    wire = parse_link(link)
    spread = len({_served(p) for p in used}) > 1
    stack = _first_guess(name, used, ghz, spread=spread)
    bench = Host(stack, ghz, wire, cpu=cpu)
    bound = [p for p in used if _is_full(p, cpu)]
    for round_ in range(ROUNDS):
        host = replace(bench, stack=stack)
        shallow = [p for p in used if p not in bound]
        shallow = [p for p in shallow if p.targets == 1] or shallow
        tell(f"stack, round {round_ + 1}: the drive behind it")
        drive = fit_drive(shallow or used, host=host, tell=tell).profile
        tell(f"stack, round {round_ + 1}: its costs")
        stack, _ = _fit_costs(used, drive, host, bound, spread=spread)
    stack, found = _fit_costs(used, drive, replace(bench, stack=stack), bound, spread=spread)
    host = replace(bench, stack=stack)
    judged = tuple(Judged(p, measure(drive, host, p, requests=FINAL_REQUESTS)) for p in points)
    if not bound:
        notes.append("no point is CPU-bound: what a thread that never sleeps costs is extrapolated")
    notes.append(f"submission and completion share their cycles {SUBMIT_SHARE:.0%}: assumed")
    notes += _siblings(used, cpu)
    if spread:
        notes.append(_growth(stack, found, ghz))
    return StackFit(_with_sources(stack, found, used, ghz), judged, ghz, tuple(notes), drive)


def _served(point: Point) -> int:
    """Targets that one job submits to."""
    return 1 if point.own_targets else point.targets


def _is_full(point: Point, cpu: CpuProfile | None) -> bool:
    """Whether its threads, or all logical CPUs, had no time left."""
    if point.is_cpu_bound:
        return True
    logical = point.jobs if cpu is None else min(point.jobs, cpu.cores * cpu.threads_per_core)
    return point.cpu_s is not None and point.cpu_s * point.iops >= FULL * logical


def _siblings(points: Sequence[Point], cpu: CpuProfile | None) -> list[str]:
    """What to say of logical CPUs that share a core."""
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


def _growth(stack: StackProfile, found: Solution, ghz: float) -> str:
    """What each further drive of a thread costs."""
    bounds = intervals(NAMES, found.values, found.jacobian, found.residuals)["target"]
    low, high = (bound * ghz * 1e9 for bound in bounds)
    per, work = stack.per_target.value, stack.submit.value + stack.complete.value
    return (
        f"each further drive that a thread serves adds {per:,.0f} cycles a request "
        f"({per / work:.1%} of its work; {low:,.0f} to {high:,.0f}), beside "
        "interrupts that are no longer shared"
    )


def _first_guess(
    name: str, points: Sequence[Point], ghz: float, *, spread: bool = False
) -> StackProfile:
    """Costs read off the figures: the cheapest point works, the dearest also wakes up."""
    costs = sorted(p.cpu_s for p in points if p.cpu_s)
    work = 0.75 * costs[0]
    rest = max(0.1e-6, costs[-1] - costs[0])
    further = [0.03 * work] if spread else []
    return _stack(name, [work, 0.35 * costs[0], 1.2 * rest, 12e-6, *further], ghz)


def _stack(name: str, seconds: Sequence[float] | Floats, ghz: float) -> StackProfile:
    work, interrupt, wakeup = (Quantity(value=float(s) * ghz * 1e9) for s in seconds[:3])
    half = Quantity(value=float(seconds[3]) * 1e12)
    share = Quantity(value=work.value * SUBMIT_SHARE)
    rest = Quantity(value=work.value * (1 - SUBMIT_SHARE))
    further = Quantity(value=float(seconds[4]) * ghz * 1e9 if len(seconds) > 4 else 0.0)
    return StackProfile(
        name=name, submit=share, complete=rest, interrupt=interrupt, wakeup=wakeup,
        wakeup_half=half, per_target=further,
    )  # fmt: skip


def _seconds(stack: StackProfile, ghz: float, *, spread: bool) -> list[float]:
    work = (stack.submit.value + stack.complete.value) / ghz / 1e9
    return [
        work,
        stack.interrupt.value / ghz / 1e9,
        stack.wakeup.value / ghz / 1e9,
        stack.wakeup_half.value / 1e12,
        *([stack.per_target.value / ghz / 1e9] if spread else []),
    ]


def _fit_costs(
    points: Sequence[Point], drive: DriveProfile, host: Host, bound: Sequence[Point], *,
    spread: bool,
) -> tuple[StackProfile, Solution]:  # fmt: skip
    """Least squares over the CPU time of each point, and the IOPS of those it limits."""
    name, ghz = host.stack.name, host.ghz

    def residuals(x: Floats) -> list[float]:
        tried = replace(host, stack=_stack(name, x, ghz))
        out = []
        for point in points:
            answer = measure(drive, tried, point, requests=REQUESTS)
            bare = replace(point, mean_s=None, percentiles_s={})
            iops, cpu = misfit(bare, answer, cpu=True)
            out += [cpu, iops if point in bound else 0.0]
        return out

    steps = [0.03] * 4 + [0.3] * spread
    start = _seconds(host.stack, ghz, spread=spread)
    found = solve(residuals, start, rounds=8, step=steps)
    return _stack(name, found.values, ghz), found


def _with_sources(
    stack: StackProfile, found: Solution, points: Sequence[Point], ghz: float
) -> StackProfile:
    spread = intervals(NAMES[: len(found.values)], found.values, found.jacobian, found.residuals)
    source = f"CPU time of {len(points)} points: " + ", ".join(p.name for p in points)

    def fitted(quantity: Quantity, name: str, scale: float) -> Quantity:
        low, high = spread[name]
        return Quantity(
            value=quantity.value, low=low * scale, high=high * scale, basis="fitted", source=source
        )

    cycles = ghz * 1e9
    update = {
        "submit": fitted(stack.submit, "work", cycles * SUBMIT_SHARE),
        "complete": fitted(stack.complete, "work", cycles * (1 - SUBMIT_SHARE)),
        "interrupt": fitted(stack.interrupt, "interrupt", cycles),
        "wakeup": fitted(stack.wakeup, "wakeup", cycles),
        "wakeup_half": fitted(stack.wakeup_half, "half", 1e12),
        "notes": f"cycles at {ghz:g} GHz; relative errors of {ERRORS['cpu']:.0%} per point assumed",
    }
    if "target" in spread:
        update["per_target"] = fitted(stack.per_target, "target", cycles)
    return stack.model_copy(update=update)
