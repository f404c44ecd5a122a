"""From the CPU figures of captures to a stack: cycles to submit, complete, wake up, interrupt.

How often a thread sleeps, and for how long, depends on the drive that answers it. So the drive's
read side is fitted first, with a first guess of the stack, then the stack's four
costs with that drive, then both once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nvmesim.catalog.links import parse_link
from nvmesim.catalog.profile import DriveProfile, Quantity, StackProfile
from nvmesim.errors import FitError
from nvmesim.fit.bench import Host, measure
from nvmesim.fit.drive import FINAL_REQUESTS, fit_drive
from nvmesim.fit.evidence import Judged, StackFit, intervals
from nvmesim.fit.points import Point, hold_out, points_of
from nvmesim.fit.read_side import Progress
from nvmesim.fit.search import ERRORS, Floats, Solution, misfit, solve
from nvmesim.trace.capture import Captures

NAMES = ("work", "interrupt", "wakeup", "half")
REQUESTS = 25_000
ROUNDS = 2
SUBMIT_SHARE = 0.5
"""Share of a request's own cycles that are spent to submit it. Assumed: captures give the sum."""


def fit_stack(
    captures: Captures | Sequence[Point],
    *,
    ghz: float,
    name: str = "fitted",
    link: str = "pcie4 x4",
    held_out: Sequence[str] = (),
    tell: Progress = lambda _: None,
) -> StackFit:
    """Fit the costs of the stack that made *captures*, on a CPU of *ghz*.

    Needs points of at least two depths with CPU figures (fio's usr + sys, DiskSpd's CPU table).
    Raises FitError when there are fewer.
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
    stack = _first_guess(name, used, ghz)
    bound = [p for p in used if p.is_cpu_bound]
    for round_ in range(ROUNDS):
        host = Host(stack, ghz, wire)
        shallow = [p for p in used if not p.is_cpu_bound]
        tell(f"stack, round {round_ + 1}: the drive behind it")
        drive = fit_drive(shallow or used, host=host, tell=tell).profile
        tell(f"stack, round {round_ + 1}: its costs")
        stack, _ = _fit_costs(name, used, drive, stack, ghz, link)
    stack, found = _fit_costs(name, used, drive, stack, ghz, link)
    host = Host(stack, ghz, wire)
    judged = tuple(Judged(p, measure(drive, host, p, requests=FINAL_REQUESTS)) for p in points)
    if not bound:
        notes.append("no point is CPU-bound: what a thread that never sleeps costs is extrapolated")
    notes.append(f"submission and completion share their cycles {SUBMIT_SHARE:.0%}: assumed")
    return StackFit(_with_sources(stack, found, used, ghz), judged, ghz, tuple(notes), drive)


def _first_guess(name: str, points: Sequence[Point], ghz: float) -> StackProfile:
    """Costs read off the figures: the cheapest point works, the dearest also wakes up."""
    costs = sorted(p.cpu_s for p in points if p.cpu_s)
    work = 0.75 * costs[0]
    rest = max(0.1e-6, costs[-1] - costs[0])
    return _stack(name, [work, 0.35 * costs[0], 1.2 * rest, 12e-6], ghz)


def _stack(name: str, seconds: Sequence[float] | Floats, ghz: float) -> StackProfile:
    work, interrupt, wakeup = (Quantity(value=float(s) * ghz * 1e9) for s in seconds[:3])
    half = Quantity(value=float(seconds[3]) * 1e12)
    share = Quantity(value=work.value * SUBMIT_SHARE)
    rest = Quantity(value=work.value * (1 - SUBMIT_SHARE))
    return StackProfile(
        name=name, submit=share, complete=rest, interrupt=interrupt, wakeup=wakeup, wakeup_half=half
    )


def _seconds(stack: StackProfile, ghz: float) -> list[float]:
    work = (stack.submit.value + stack.complete.value) / ghz / 1e9
    return [
        work,
        stack.interrupt.value / ghz / 1e9,
        stack.wakeup.value / ghz / 1e9,
        stack.wakeup_half.value / 1e12,
    ]


def _fit_costs(
    name: str,
    points: Sequence[Point],
    drive: DriveProfile,
    start: StackProfile,
    ghz: float,
    link: str,
) -> tuple[StackProfile, Solution]:
    """Least squares over the CPU time of each point, and the IOPS of those it limits."""

    def residuals(x: Floats) -> list[float]:
        host = Host(_stack(name, x, ghz), ghz, parse_link(link))
        out = []
        for point in points:
            answer = measure(drive, host, point, requests=REQUESTS)
            bare = replace(point, mean_s=None, percentiles_s={})
            iops, cpu = misfit(bare, answer, cpu=True)
            out += [cpu, iops if point.is_cpu_bound else 0.0]
        return out

    found = solve(residuals, _seconds(start, ghz), rounds=8, step=0.03)
    return _stack(name, found.values, ghz), found


def _with_sources(
    stack: StackProfile, found: Solution, points: Sequence[Point], ghz: float
) -> StackProfile:
    spread = intervals(NAMES, found.values, found.jacobian, found.residuals)
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
    return stack.model_copy(update=update)
