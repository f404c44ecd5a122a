"""The smallest stack that meets rows: a known one, made dearer or cheaper, and a cost of the bytes.

Rows at one depth tell what a request costs and not how it is made up. The costs of a known stack
then keep their proportions, and one factor is fitted; rows of two sizes tell what each KiB adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.asked_host import GHZ_SD
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.drive.laws import WAITED
from nvmesim.calibrate.drive.open_ceilings import COMMAND, usual_ceiling
from nvmesim.calibrate.evidence import joint_of, with_draws
from nvmesim.calibrate.infer.problem import DRAWS
from nvmesim.calibrate.points import LONE_S, Point
from nvmesim.calibrate.stack.full_threads import (
    does_less_of_each,
    with_full_threads,
)
from nvmesim.catalog.links import Link
from nvmesim.catalog.load import get, with_level
from nvmesim.catalog.profile import CYCLES, DriveProfile, Quantity, StackProfile
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.units import PS_PER_S

BATCHED_S: Final = 0.4e-6
"""CPU time of a polled request below which it was submitted in batches. Source: tuned batches take
197 ns, single requests 588 (linux-io_uring-batched and -polled of the catalog)."""
REQUESTS: Final = 12_000
LEAST_SHARE: Final = 0.2
"""Share of a row's CPU time that is not its bytes', from which on it tells of requests."""
POSSIBLE: Final = 0.9
"""Share of a thread's time that its own requests take at most; interrupts take the rest."""
ROOM: Final = 0.7
"""Of its time, what a thread of an unknown stack is left with: the drive is to be seen. Assumed."""
RARE: Final = 0.05
"""Probability of faster threads below which one is not taken to have time left. Assumed."""
FULL: Final = 0.98
"""Share of its time that a full thread runs, interrupts of its own requests included."""
QUEUED: Final = 16
"""Requests in flight of a thread from which on it may be full."""
ALIKE: Final = 1.25
"""Rate of a thread over another's up to which it did as much, reads or writes. Assumed."""
NEARLY: Final = 0.8
"""Share of a thread's time from which on its requests leave it no room. Assumed."""
AS_TOLD: Final = 1e-6
"""Distance from all of its time of a thread whose row told the stack's cycles."""
LEAST_FULL: Final = 0.5
"""Share of what a thread does at most, below which it is not full in any case. Assumed."""
DEAREST_S: Final = 100e-6
"""CPU time that no request takes: a thread that did less was not full. Assumed: the dearest stacks
of the catalog take a tenth of it."""
MORE: Final = 1.15
"""Rate in units of fewer threads' up to which more threads did no more. Assumed."""
SMALL: Final = 16 << 10
"""Bytes up to which a row's ceiling may be of requests/s."""
ASLEEP: Final = 2
"""Requests in flight of a thread up to which it sleeps before each completion."""
ERROR: Final = 0.03
"""Relative standard error of a row's CPU time. Assumed, from repeats of fio runs: 1 to 4 %."""
IDLE: Final = 2.5
"""Factor on the CPU time of a request by a thread that sleeps: wake-ups, cold caches. By the
square of the share of its time that it sleeps. Source: one thread of libaio at depth 1 took 1.6 to
3.6 times as long a request as a full one of the same host where it slept 70 to 94 % of its time,
1.05 to 1.75 times where 43 to 65 % (`calibration/held-out`: U02, Y01, Y02, Y04, Y12, Y15)."""
IDLE_SD: Final = 0.35
"""Standard deviation of its logarithm: the same hosts."""
UNLIKE: Final = 1.5
"""Factor on a named stack's cycles from which on CPU figures are not that stack's. Assumed."""
LARGE: Final = 64 << 10
"""Bytes from which on what a known stack does not explain is the cost of its pages. Source: 0.05 to
0.08 us each with 256 KiB and 1 MiB requests (linux-xfs, A. Gavriliuk, May 2025)."""


@dataclass(frozen=True)
class ScaledCosts:
    """Factor on the costs of a known stack, and s a KiB beside them."""

    base: StackProfile
    factor: float
    per_kib: float
    rows: tuple[Point, ...]

    def stack(self, ghz: float, name: str) -> StackProfile:
        """The stack of these costs on a clock of *ghz*."""
        base, numbers = self.base, {}
        for part in CYCLES:
            if cycles := getattr(base, part).value:
                numbers[part] = Quantity(value=cycles * self.factor, basis="fitted")
        if self.per_kib:
            numbers["per_kib"] = Quantity(value=self.per_kib * ghz * 1e9, basis="fitted")
        sources = (f"CPU time of {len(self.rows)} rows, in the proportions of {base.name}",)
        stack = base.model_copy(update={**numbers, "name": name, "sources": sources, "notes": ""})
        normal = np.random.default_rng(4).standard_normal(DRAWS)
        spread = np.exp(ERROR / np.sqrt(len(self.rows)) * normal)
        columns = {key: q.value * spread for key, q in numbers.items()}
        stack = with_draws(stack, columns, sources[0])
        return stack.model_copy(update={"joint": joint_of(stack, columns)})

    def corrected(self, drive: DriveProfile, host: BenchHost) -> ScaledCosts:
        """These costs with a factor that meets CPU time on *host*, or the rate where rows poll."""
        off = []
        for p in self.rows:
            answer = measure(drive, host, p, requests=REQUESTS)
            took = p.jobs / answer.iops if p.polled else answer.cpu_s or 0.0
            own = (p.cpu_s or 0.0) - self.per_kib * p.block_size / 1024
            modelled = took - self.per_kib * p.block_size / 1024
            if min(own, modelled) > LEAST_SHARE * (p.cpu_s or 0.0):
                off.append(math.log(own / modelled))
        return replace(self, factor=self.factor * math.exp(float(np.mean(off)) if off else 0.0))

    @property
    def text(self) -> str:
        """One line for a person."""
        page = f", and {4e6 * self.per_kib:.3g} us a page of 4 KiB" if self.per_kib else ""
        return (
            f"{len(self.rows)} row(s) tell what a request costs, not how it is made up: "
            f"{self.base.name} with {self.factor:.2f} times its cycles{page}"
        )


def scaled_costs(points: Sequence[Point], link: Link, ghz: float) -> ScaledCosts | None:
    """The costs that the CPU time of *points* tells on a clock of *ghz*; None without any."""
    rows = [p for p in points if p.cpu_s and not p.held_out]
    rows = [p for p in rows if p.read_fraction == 1] or rows
    if not rows:
        return None
    if all(p.polled for p in rows):  # a polling thread that waits burns as much as one that works
        least = {p.block_size: min(q.cpu_s or 0 for q in rows if q.block_size == p.block_size)
                 for p in rows}  # fmt: skip
        rows = [p for p in rows if p.cpu_s == least[p.block_size]]
    return _solved(_base(rows), link, rows, ghz)


def _base(rows: Sequence[Point]) -> StackProfile:
    if not rows[0].polled:
        return get("stack", "linux-io_uring")
    is_batched = min(p.cpu_s or 0.0 for p in rows) < BATCHED_S
    return get("stack", "linux-io_uring-batched" if is_batched else "linux-io_uring-polled")


def thread_cycles(base: StackProfile, link: Link, p: Point) -> float:
    """Cycles of one request by *base* behind *link*, as the load of *p* pays them; none of md."""
    total = base.submit.value + base.complete.value + base.path_cycles(*p.path)
    total += base.scsi.value * link.is_scsi
    if not base.polled:
        total += base.interrupt.value
        if p.iodepth <= ASLEEP:
            total += base.wakeup.value
    return total


def _solved(base: StackProfile, link: Link, rows: Sequence[Point], ghz: float) -> ScaledCosts:
    hz = ghz * 1e9
    took = np.array([(p.cpu_s or 0.0) for p in rows])
    own = np.array([thread_cycles(base, link, p) for p in rows]) / hz
    md = get("raid-engine", "linux-md")  # takes cycles of each request of an array
    levels = [p.raid.partition(":")[0] for p in rows]
    array = np.array([with_level(md, v).per_request.value if v else 0.0 for v in levels]) / hz
    kib = np.array([p.block_size / 1024 for p in rows])
    rest = np.maximum(took - array, 0.3 * took)
    if len({p.block_size for p in rows}) > 1:
        terms: Floats = np.stack([own / took, kib / took], axis=1)
        from scipy.optimize import nnls

        found, _ = nnls(terms, rest / took)
        factor, per_kib = max(float(found[0]), 0.05), float(found[1])
    elif rows[0].block_size >= LARGE and float(np.mean(rest - own)) > 0:
        factor, per_kib = 1.0, float(np.mean(rest - own) / kib[0])
    else:
        factor, per_kib = float(np.exp(np.mean(np.log(rest / own)))), 0.0
    return ScaledCosts(base, factor, per_kib, tuple(rows))


def _waits(point: Point) -> bool:
    """True if requests of *point* took many times what flash takes: its threads were full."""
    alone = LONE_S[point.read_fraction == 1]
    return point.read_fraction in (0, 1) and point.outstanding / point.iops > WAITED * alone


def _equally_full(host: BenchHost, points: Sequence[Point]) -> Point | None:
    """The faster of a thread's deep reads and writes that do the same, so that it is full; None.

    Of several threads that is no sign, nor of drives behind SATA and SAS: their ceilings of both
    are often as near.
    """
    if host.link.kind != "pcie":
        return None
    deep = [
        p for p in points
        if p.jobs == 1 and p.iodepth >= QUEUED and 1 / p.iops < DEAREST_S and _waits(p)
        and not p.raid and not p.sync
    ]  # fmt: skip
    for read in (p for p in deep if p.read_fraction == 1 and p.random and p.block_size < LARGE):
        for write in (p for p in deep if p.read_fraction == 0 and p.block_size == read.block_size):
            same = write.targets == read.targets
            if same and 1 / ALIKE < read.iops / write.iops < ALIKE:
                return max(read, write, key=lambda p: p.iops)
    return None


def with_full_rows(host: BenchHost, points: Sequence[Point]) -> list[Point]:
    """*points*, those marked whose threads *host* has likely full: they show no drive's ceiling."""
    return [
        replace(p, per_job_pct=100.0) if p.per_job_pct is None and _is_full(host, p) else p
        for p in points
    ]


def _is_full(host: BenchHost, point: Point) -> bool:
    share = thread_share(host, point)
    if share < LEAST_FULL or not (_waits(point) or abs(share - 1) < AS_TOLD):
        return False
    if may_be_full(point) and host.link.kind == "pcie":
        return threads_full(host, point) > 0.5
    return share > NEARLY


def host_of_rows(host: BenchHost, points: Sequence[Point], notes: list[str]) -> BenchHost:
    """*host* with the cycles that *points* tell; *notes* get why.

    CPU figures count where they differ by more than `UNLIKE` from the named stack.
    """
    stack, hz = host.stack, host.ghz * 1e9
    rows = [p for p in points if not p.device_times and not p.held_out]
    full = [
        p for p in with_full_threads(rows)[0]
        if p.is_cpu_bound and (_waits(p) or does_less_of_each(p, rows)) and not p.raid
    ]  # fmt: skip
    shown, why = max(full, key=lambda p: p.iops / p.jobs, default=None), "more threads do more"
    if shown is None:
        shown, why = _likely_full(host, rows), "a drive behind this link seldom does so little"
    if shown is not None and not any(p.cpu_s for p in rows):
        factor = 1 / thread_share(host, shown)
        if abs(math.log(factor)) < ERROR:
            return host
        return _scaled(host, factor, _full_because(host, shown, why), notes)
    small = [p for p in rows if p.cpu_s and p.block_size < LARGE and not (p.raid or p.sync)]
    busiest = max(map(_busy, small), default=0.0)
    telling = [p for p in small if _busy(p) >= busiest / 2]
    known = [(p.cpu_s or 0.0) * hz / cycles_as_busy(stack, host.link, p) for p in telling]
    top = max(rows, key=lambda p: _share_asked(host, p), default=None)
    asked = _share_asked(host, top) if top is not None else 0.0
    found = f"CPU figures tell another time than {stack.name} at {host.ghz:g} GHz takes"
    least = math.log(UNLIKE)
    if top in telling and top is not None and top.is_cpu_bound:
        factor, least = known[telling.index(top)], ERROR  # what a full thread does is its time
    elif known:
        factor = math.exp(float(np.mean(np.log(known))))
    else:
        factor = POSSIBLE * ROOM / asked if asked > POSSIBLE else 1.0
        busy = _equally_full(host, rows)
        if top is not None and asked > POSSIBLE and _outdoes(host, top):
            busy = top
        if busy is not None:
            factor = 1 / thread_share(host, busy)
            found = _full_because(host, busy, "reads and writes do the same")
            found += f" (a row of 4 x {busy.iodepth} would show if the drive was, instead)"
    if top is None or (abs(math.log(factor)) < least and asked <= POSSIBLE):
        return host
    factor = min(factor, 1 / asked)
    if asked > POSSIBLE:
        found = (
            f"{top.name}: {top.iops / top.jobs:,.0f} requests/s a thread, where {stack.name} at "
            f"{host.ghz:g} GHz does {top.iops / top.jobs / asked:,.0f} at most"
        )
    scaled = _scaled(host, factor, found, notes)
    return replace(
        scaled, clock_sd=math.hypot(scaled.clock_sd, IDLE_SD * (1 - busiest) ** 2 * bool(known))
    )


def _busy(point: Point) -> float:
    """Share of their time that the threads of *point* took for its requests."""
    return min(1.0, (point.cpu_s or 0.0) * point.iops / point.jobs)


def cycles_as_busy(base: StackProfile, link: Link, point: Point) -> float:
    """Cycles of one request of *point* by *base*, dearer the more often its thread sleeps."""
    awake = thread_cycles(base, link, replace(point, iodepth=QUEUED))
    return max(thread_cycles(base, link, point), awake * math.pow(IDLE, (1 - _busy(point)) ** 2))


def _full_because(host: BenchHost, point: Point, why: str) -> str:
    whose, each_s = "its threads are", point.jobs / point.iops
    if thread_share(host, point) == served_share(host, point):
        whose, each_s = "the host's thread of its virtual disk is", point.targets / point.iops
    return (
        f"{point.name}: {why}, so {whose} taken to be full: a request takes {1e6 * each_s:.3g} us "
        "of one"
    )


def with_pages(host: BenchHost, points: Sequence[Point]) -> BenchHost:
    """*host* with the cycles per KiB that CPU time of large rows tells; as it is without any.

    What small rows took, by which its cycles were found, holds their bytes, too.
    """
    rows = [p for p in points if p.cpu_s and not (p.held_out or p.polled or p.raid or p.sync)]
    large = [p for p in rows if p.block_size >= LARGE]
    if not large:
        return host
    small = [p.block_size / 1024 for p in rows if p.block_size < LARGE]
    kib, hz = float(np.mean(small)) if small else 0.0, host.ghz * 1e9
    each = [
        ((p.cpu_s or 0.0) * hz - thread_cycles(host.stack, host.link, p))
        / (p.block_size / 1024 - kib)
        for p in large
    ]
    per_kib = round(max(0.0, float(np.mean(each))), 1)
    of_pages = per_kib * kib / thread_cycles(host.stack, host.link, large[0])
    left = 1 - min(of_pages, POSSIBLE) if small else 1.0
    return replace(host, stack=host.stack.with_cycles(left).with_per_kib(per_kib))


def _share_asked(host: BenchHost, point: Point) -> float:
    """Rate of *point* in units of what *host* does if threads sleep never, and nothing interrupts.

    Its threads stop it, or the one of the host that serves a virtual disk.
    """
    stack = host.stack
    own = stack.submit.value + stack.complete.value + stack.path_cycles(*point.path)
    own += stack.scsi.value * host.link.is_scsi
    share = own * point.iops / point.jobs / (host.ghz * 1e9)
    return max(share, served_share(host, point))


def served_share(host: BenchHost, point: Point) -> float:
    """Rate of *point* in units of what the host's thread behind a virtual disk serves; 0: none."""
    section = host.stack.sections.get(point.guest)
    if section is None:
        return 0.0
    each_s = section.time(write=point.read_fraction < 0.5).value / PS_PER_S / section.threads
    return point.iops / point.targets * each_s


def _outdoes(host: BenchHost, point: Point) -> bool:
    """True if *point* tells that its threads were full: each does more than *host* lets one do.

    Its requests waited long, or it is so fast that at a stated clock hardly any thread has time
    left. Where the clock is not stated it may be faster.
    """
    if _waits(point):
        return True
    is_stated = host.clock_sd < GHZ_SD
    spare = _beyond(math.log(thread_share(host, point)) / share_sd(host, point))
    return is_stated and may_be_full(point) and host.link.kind == "pcie" and spare < RARE


def thread_share(host: BenchHost, point: Point) -> float:
    """Rate of a thread of *point* in units of what one of *host* does when full.

    Or of the thread that serves the virtual disk of a guest, if that is nearer to full.
    """
    full_hz = FULL * host.ghz * 1e9 * point.jobs
    own = thread_cycles(host.stack, host.link, point) * point.iops / full_hz
    return max(own, served_share(host, point))


def share_sd(host: BenchHost, point: Point) -> float:
    """Standard deviation of the logarithm of `thread_share`: of the clock, and of a section."""
    section = host.stack.sections.get(point.guest)
    if section is None or thread_share(host, point) > served_share(host, point):
        return host.clock_sd
    time = section.time(write=point.read_fraction < 0.5)
    known = math.log(time.high / time.low) / (2 * Z95) if time.low and time.high else 0.0
    return math.hypot(host.clock_sd, known)


def threads_full(host: BenchHost, point: Point) -> float:
    """Probability that at a ceiling of *point* its threads were full, and not its drives.

    Of each the density of a ceiling there counts, and that the other's is higher.
    """
    share, sd = usual_ceiling(host.link, read=point.read_fraction == 1)
    usual = share * host.link.raw_bytes_per_s / max(point.block_size, COMMAND)
    drive = math.log(point.iops / point.targets / usual) / sd
    thread_sd = share_sd(host, point)
    thread = math.log(thread_share(host, point)) / thread_sd
    full = _density(thread) / thread_sd * _beyond(drive)
    return full / (full + _density(drive) / sd * _beyond(thread))


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _beyond(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def may_be_full(point: Point) -> bool:
    """True if *point* may tell whether its threads were full: small requests, many at once."""
    plain = not (point.raid or point.sync or point.device_times or point.rate or point.is_stated)
    return plain and point.iodepth >= QUEUED and point.block_size <= SMALL


def _likely_full(host: BenchHost, points: Sequence[Point]) -> Point | None:
    """The fastest thread among rows at a ceiling that is its own more likely than its drive's."""
    able = [p for p in points if may_be_full(p)]
    top = max(able, key=lambda p: p.iops / p.jobs, default=None)
    if top is None or host.link.kind != "pcie" or not _is_full(host, top):
        return None
    more = [p for p in able if p.jobs > top.jobs and p.read_fraction == top.read_fraction]
    return None if any(p.iops < MORE * top.iops for p in more) else top


def _scaled(host: BenchHost, factor: float, found: str, notes: list[str]) -> BenchHost:
    """*host* with *factor* times the cycles of its stack, which was *found*."""
    notes.append(
        f"{found}: it is not the stack that measured; its cycles are taken {factor:.2f} times "
        "here and in predictions on that stack (calibrate --stack would tell them one by one)"
    )
    return replace(host, stack=host.stack.with_cycles(factor), clock_sd=BenchHost.clock_sd)
