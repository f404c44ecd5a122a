"""How many GHz a load needs, and which CPUs carry it.

The *rule* of the published tables (Team, 2019) is cycles per IO x IOPS over the load that the
operating system shows. *SMT-aware*: two busy siblings do ``smt_yield`` of one thread's work.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.catalog import load as catalog
from nvmesim.catalog.profile import CpuProfile, StackProfile
from nvmesim.drawing import Drawable
from nvmesim.errors import InputError, nearest
from nvmesim.units import format_iops, percent

MARGIN: Final = 0.05
"""A CPU carries the load at this much above the asked utilization at most."""
SOCKETS: Final = (1, 2)
REFERENCE_CORES: Final = 16
"""Cores a socket of the SMT-aware GHz, which depend on them (more cores even out better)."""
CURVE_POINTS: Final = 40


@dataclass(frozen=True)
class Demand:
    """Demand: requests per second of one kind at a utilization."""

    iops: float
    utilization: float
    """As the operating system shows it: share of logical CPUs."""
    stack: StackProfile
    read: float = 1.0
    filesystem: str = "raw"

    def cycles(self, asleep: float, sleep_ps: float = math.inf) -> float:
        """Cycles per request when a completion finds its thread asleep so often, for *sleep_ps*."""
        stack = self.stack
        always = stack.submit.value + stack.complete.value + (1 - self.read) * stack.per_write.value
        if self.filesystem in stack.filesystems:
            always += stack.filesystems[self.filesystem].value
        if stack.polled:
            return always
        half = stack.wakeup_half.value
        deep = 1.0 if math.isinf(sleep_ps) or not half else sleep_ps / (sleep_ps + half)
        return always + stack.interrupt.value + asleep * deep * stack.wakeup.value

    def cycles_on(self, logical_cpus: int, busy: float) -> float:
        """Cycles per request with one thread on each logical CPU, *busy* its share of the time."""
        return self.cycles(1 - busy, (1 - busy) * logical_cpus / self.iops * 1e12)


@dataclass(frozen=True)
class CpuAnswer:
    """One CPU model in one or two sockets under the load."""

    name: str
    sockets: int
    ghz: float
    """GHz in all: sockets x cores x base frequency."""
    rule_utilization: float
    """By the published rule; may exceed 1."""
    logical_utilization: float
    """Utilization as the operating system would show it; 1 if it does not carry the load at all."""
    physical_utilization: float
    """Share of the work that its cores can do, siblings counted; may exceed 1."""
    most_iops: float
    """Rate with every logical CPU busy."""
    carries: bool
    """At most 5 points above the asked utilization."""
    margin: float = 0.0
    """Margin below the asked utilization, as a share; negative: it lies above."""

    @property
    def within(self) -> bool:
        """True if it stays at or below the asked utilization."""
        return self.physical_utilization < 1 and self.margin >= 0

    def words(self) -> str:
        """Say if it carries the load, and with what margin.

        >>> CpuAnswer("x", 2, 73, 0.5, 0.54, 0.79, 4e6, True, margin=-0.04).words()
        'nearly, 4.0 points over'
        """
        points = 100 * abs(self.margin)
        if self.within:
            return f"yes, {points:.1f} points under"
        if self.carries:
            return f"nearly, {points:.1f} points over"
        if self.physical_utilization < 1:
            return f"no, {points:.1f} points over"
        return f"no, full at {format_iops(self.most_iops)}"

    def to_json(self) -> dict[str, Any]:
        """Return the object of `size --json`."""
        return {**vars(self), "within": self.within}


@dataclass(frozen=True)
class Sizing(Drawable):
    """GHz per MIOPS, GHz in all, and the CPUs of the catalog under that load."""

    load: Demand
    headroom: float
    ghz_per_miops: float
    """By the published rule, at the asked utilization."""
    ghz: float
    smt_ghz_per_miops: float
    """With two threads a core that yield 1.25 together, on sockets of `REFERENCE_CORES`."""
    smt_ghz: float
    cycles_per_io: float
    reason: str
    cpus: tuple[CpuAnswer, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `size --json` prints."""
        smt = {"ghz_per_miops": self.smt_ghz_per_miops, "ghz": self.smt_ghz, "reason": self.reason}
        return {
            "iops": self.load.iops, "utilization": self.load.utilization,
            "headroom": self.headroom, "stack": self.load.stack.name,
            "filesystem": self.load.filesystem, "ghz_per_miops": self.ghz_per_miops,
            "ghz": self.ghz, "smt": smt, "cycles_per_io": self.cycles_per_io,
            "cpus": self.cpus, "curve": self.curve(),
        }  # fmt: skip

    def curve(self) -> list[dict[str, float]]:
        """GHz that are needed against MIOPS, by the rule and SMT-aware."""
        most = 2 * self.load.iops / 1e6
        steps = [most * (i + 1) / CURVE_POINTS for i in range(CURVE_POINTS)]
        return [
            {"miops": m, "ghz": m * self.ghz_per_miops, "smt_ghz": m * self.smt_ghz_per_miops}
            for m in steps
        ]

    def utilization_curves(self) -> list[dict[str, Any]]:
        """Utilization against MIOPS of every CPU that is listed."""
        rates = [2 * self.load.iops * (i + 1) / CURVE_POINTS for i in range(CURVE_POINTS)]
        return [
            {"cpu": f"{answer.sockets} x {answer.name}", "miops": iops / 1e6,
             "utilization": 100 * loaded_cpu(replace(self.load, iops=iops),
                                             catalog.get("cpu", answer.name), answer.sockets)[0]}
            for answer in self.cpus for iops in rates
        ]  # fmt: skip


def size_cpu(
    iops: float,
    utilization: float = 0.5,
    stack: str | StackProfile | Path = "windows-2019",
    *,
    headroom: float = 0.0,
    read: float = 1.0,
    filesystem: str = "raw",
    cpus: Iterable[str] | None = None,
) -> Sizing:
    """Return the GHz for *iops* at *utilization*, and the catalog's CPUs ranked.

    *stack* is a catalog name, a profile, or the path of a stack file; *headroom* 0.2 sizes for 20 %
    more; *cpus* names those to rank (all of the catalog if left out).

    >>> sizing = size_cpu(3e6, 0.5, "windows-2019")
    >>> round(sizing.ghz_per_miops, 1), round(sizing.ghz)
    (25.1, 75)
    >>> [cpu.carries for cpu in sizing.cpus if cpu.name == "xeon-gold-6132" and cpu.sockets == 2]
    [True]
    """
    ranges = {"iops": (iops, 1, 1e9), "utilization": (utilization, 0.01, 1),
              "headroom": (headroom, 0, 10), "read": (read, 0, 1)}  # fmt: skip
    for name, (value, low, high) in ranges.items():
        if not low <= value <= high:
            raise InputError(f"{name} is {value:g}; {low:g} to {high:g}")
    profile = stack if isinstance(stack, StackProfile) else catalog.load("stack", str(stack))
    assert isinstance(profile, StackProfile)
    if filesystem != "raw" and filesystem not in profile.filesystems:
        known = ["raw", *profile.filesystems]
        raise InputError(
            f"stack {profile.name} knows no {filesystem!r}; {nearest(filesystem, known)}"
        )
    load = Demand(iops * (1 + headroom), utilization, profile, read, filesystem)
    names = catalog.names("cpu") if cpus is None else list(cpus)
    answers = [_answer(load, catalog.get("cpu", name), n) for name in names for n in SOCKETS]
    rule, smt = rule_ghz_per_miops(load), smt_ghz_per_miops(load)
    return Sizing(
        load=load,
        headroom=headroom,
        ghz_per_miops=rule,
        ghz=rule * load.iops / 1e6,
        smt_ghz_per_miops=smt,
        smt_ghz=smt * load.iops / 1e6,
        cycles_per_io=load.cycles(1 - utilization),
        reason=_reason(load, rule, smt),
        # those that carry the load, the fewest GHz first; then the nearest
        cpus=tuple(sorted(answers, key=lambda a: (
            not a.carries, not a.carries and max(a.logical_utilization, a.physical_utilization),
            a.ghz, a.name,
        ))),
    )  # fmt: skip


def rule_ghz_per_miops(load: Demand) -> float:
    """GHz in all per million requests a second, as the published table counts them.

    Its cycles are of one lightly loaded row, 13 % busy; its two threads a core count as full ones.
    """
    return load.cycles(asleep=0.87) / 1e3 / (2 * load.utilization)


def smt_ghz_per_miops(load: Demand, smt_yield: float = 1.25) -> float:
    """GHz in all per million requests a second when siblings share their core."""
    cores = REFERENCE_CORES
    done = _work(cores, 2, smt_yield)[1]
    at = min(len(done) - 1, round(load.utilization * (len(done) - 1)))
    return load.cycles(1 - load.utilization) / 1e3 * cores / max(float(done[at]), 1e-9)


def loaded_cpu(load: Demand, cpu: CpuProfile, sockets: int) -> tuple[float, float]:
    """(logical, physical) utilization of *sockets* times *cpu* under *load*.

    Logical CPUs are busy independently of one another; idle cores fill first.
    """
    shares, done = _work(cpu.cores, cpu.threads_per_core, _yield(cpu))
    logical_cpus = sockets * cpu.cores * cpu.threads_per_core
    each = load.iops / sockets / (cpu.ghz.value * 1e9)
    cycles = np.array([load.cycles_on(logical_cpus, float(busy)) for busy in shares])
    missing = done - each * cycles
    if missing[-1] < 0:
        return 1.0, each * load.cycles(0.0) / float(done[-1])
    at = int(np.argmax(missing >= 0))
    logical = float(shares[at])
    if at:
        before, after = missing[at - 1], missing[at]
        logical -= float(after / (after - before) * (shares[at] - shares[at - 1]))
    return logical, each * load.cycles_on(logical_cpus, logical) / float(done[-1])


@cache
def _work(cores: int, threads: int, smt_yield: float) -> tuple[Floats, Floats]:
    """(share of logical CPUs busy, work done in cores) of one socket, by mean over the binomial."""
    logical = cores * threads
    busy = np.arange(logical + 1)
    shared = np.maximum(0, busy - cores) / max(1, threads - 1)
    capacity = np.minimum(busy, cores) + shared * (smt_yield - 1)
    shares = np.linspace(0, 1, 401)
    log_choose = np.array(
        [math.lgamma(logical + 1) - math.lgamma(b + 1) - math.lgamma(logical - b + 1) for b in busy]
    )
    inner = np.clip(shares, 1e-12, 1 - 1e-12)[:, None]
    chance = np.exp(log_choose + busy * np.log(inner) + (logical - busy) * np.log(1 - inner))
    return shares, chance @ capacity


def _yield(cpu: CpuProfile) -> float:
    return cpu.smt_yield.value if cpu.threads_per_core > 1 else 1.0


def _answer(load: Demand, cpu: CpuProfile, sockets: int) -> CpuAnswer:
    cores = sockets * cpu.cores
    ghz = cores * cpu.ghz.value
    logical, physical = loaded_cpu(load, cpu, sockets)
    if load.stack.polled:
        # A polling thread is busy all the time: count the threads that the load needs.
        logical = min(1.0, math.ceil(physical * cpu.cores * sockets) / cores)
    most = ghz * 1e9 * _yield(cpu) / max(load.cycles(0.0), 1e-9)
    rule = rule_ghz_per_miops(load) * load.iops / 1e6 / ghz * load.utilization
    carries = physical < 1 and logical <= load.utilization + MARGIN
    margin = load.utilization - logical
    return CpuAnswer(cpu.name, sockets, ghz, rule, logical, physical, most, carries, margin)


def _reason(load: Demand, rule: float, smt: float) -> str:
    u = load.utilization
    cycles = load.cycles(1 - u) / 1e3
    text = f"{cycles:.1f}k cycles a request at {percent(u)}"
    if abs(smt / rule - 1) < 0.06:
        return (
            f"{text}: at this load nearly every busy thread has a core to itself, so both counts "
            "agree; beyond 50 % threads share cores, and the same clock does a quarter as much"
        )
    if smt > rule:
        return (
            f"{text}: two hyper-threads on a core do 1.25 times the work of one, so what is busy "
            "beyond 50 % brings a quarter of what the rule counts"
        )
    return f"{text}: fewer than by the rule, as threads that stay busy are woken less often"
