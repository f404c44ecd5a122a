"""The other reading of a ceiling: the threads that measured it were full, and not the drive.

One row of a few threads at depth looks alike either way. How likely each reading is follows from
how near the threads were to what the named stack does at the host's clock, which is known to some
percent where it was stated, and from how common such a ceiling is among drives of the link.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.explanations import LEAST, difference
from nvmesim.calibrate.drive.laws import SHEET_CEILING, open_ceiling
from nvmesim.calibrate.evidence import Judged
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stack.scaled import FULL, QUEUED, thread_cycles
from nvmesim.catalog.profile import Alternative, DriveProfile, Quantity

NAME: Final = {
    True: "the threads that read were full, and not the drive",
    False: "the threads that wrote were full, and not the drive",
}
SMALL: Final = 16 << 10
"""Bytes up to which a row's ceiling may be of requests/s."""
FASTEST: Final = 4.0
"""The drive's ceiling in units of the row's, at most, where threads were full. Assumed."""


@dataclass(frozen=True)
class _Ceiling:
    """A row at a ceiling, and the logarithm of its threads' rate over what *host* lets one do."""

    point: Point
    share: float


def with_threads_full(
    profile: DriveProfile, host: BenchHost, judged: Sequence[Judged]
) -> DriveProfile:
    """*profile* with the explanation that threads were full where *judged* rows allow it."""
    found: list[Alternative] = []
    for is_read in (True, False):
        top = _ceiling(host, judged, is_read)
        if top is None:
            continue
        weight = _weight(host, top, is_read)
        if weight < LEAST:
            continue
        rate = top.point.iops / top.point.targets
        usual, _ = open_ceiling(host.link, top.point.block_size, rate, read=is_read)
        faster = _faster(profile, min(usual / rate, FASTEST), is_read)
        values = difference(profile, faster)
        if profile.captured is not None:
            cycles = round(profile.captured.stack_cycles * _cycles_factor(host, judged), 3)
            values["captured.stack_cycles"] = cycles
        found.append(Alternative(name=NAME[is_read], weight=round(weight, 4), values=values))
    if not found:
        return profile
    left = 1.0 - sum(a.weight for a in found) / len(found)
    known = [a.model_copy(update={"weight": a.weight * left}) for a in profile.alternatives]
    found = [a.model_copy(update={"weight": a.weight / len(found)}) for a in found]
    return profile.model_copy(update={"alternatives": (*known, *found)})


def _ceiling(host: BenchHost, judged: Sequence[Judged], is_read: bool) -> _Ceiling | None:
    """The row at a ceiling of the fitted drive whose threads were least busy; None without any."""
    found = [
        _Ceiling(j.point, math.log(_share(host, j.point)))
        for j in judged
        if j.used and j.point.read_fraction == float(is_read)
        and j.point.iodepth >= QUEUED and j.point.block_size <= SMALL and not j.point.is_cpu_bound
        and not (j.point.raid or j.point.sync or j.point.device_times or j.point.rate)
    ]  # fmt: skip
    least = min(found, key=lambda c: c.share, default=None)
    full = {id(j.point) for j in judged if j.answer.full and not j.answer.full.startswith("link")}
    return least if least is not None and id(least.point) in full else None


def _share(host: BenchHost, point: Point) -> float:
    """Rate of a thread of *point* in units of what one of *host* does when full."""
    return thread_cycles(host.stack, point) * point.iops / point.jobs / (FULL * host.ghz * 1e9)


def _cycles_factor(host: BenchHost, judged: Sequence[Judged]) -> float:
    """Factor on the cycles of *host* with which its fastest thread was full."""
    shares = [
        _share(host, j.point) for j in judged
        if j.used and j.point.iodepth >= QUEUED and j.point.block_size <= SMALL
    ]  # fmt: skip
    return 1 / max(shares)


def _weight(host: BenchHost, ceiling: _Ceiling, is_read: bool) -> float:
    """Probability that threads were full, by the two densities of a ceiling seen there."""
    share, sd = SHEET_CEILING[is_read]
    p = ceiling.point
    usual = share * host.link.raw_bytes_per_s / p.block_size
    drive = math.log(p.iops / p.targets / usual) / sd
    thread = ceiling.share / host.clock_sd
    threads_full = _density(thread) / host.clock_sd * _beyond(drive)
    drive_full = _density(drive) / sd * _beyond(thread)
    return threads_full / (threads_full + drive_full)


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _beyond(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def _faster(profile: DriveProfile, ratio: float, is_read: bool) -> DriveProfile:
    """*profile* with a ceiling of reads, or of writes, *ratio* as high."""
    write = profile.write
    if is_read:  # writes keep their ceiling
        changed = {"program": _times(write.program, ratio)}
        changed["commands"] = write.commands or profile.commands
        more = {key: _times(getattr(profile, key), ratio) for key in ("commands", "dies")}
        return profile.model_copy(update=more | {"write": write.model_copy(update=changed)})
    changed = {"program": _times(write.program, 1 / ratio)}
    if write.commands is not None:
        changed["commands"] = _times(write.commands, ratio)
    return profile.model_copy(update={"write": write.model_copy(update=changed)})


def _times(quantity: Quantity, ratio: float) -> Quantity:
    return Quantity(value=quantity.value * ratio, basis="assumed")
