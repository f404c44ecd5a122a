"""The other reading of a ceiling: the threads that measured it were full, and not the drive.

One row of a few threads at depth looks alike either way. How likely each reading is follows from
how near the threads were to what the named stack does at the host's clock, which is known to some
percent where it was stated, and from how common such a ceiling is among drives of the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.explanations import LEAST, difference
from nvmesim.calibrate.drive.laws import open_ceiling
from nvmesim.calibrate.evidence import Judged
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stack.scaled import may_be_full, thread_share, threads_full
from nvmesim.catalog.profile import Alternative, DriveProfile, Quantity

NAME: Final = {
    True: "the threads that read were full, and not the drive",
    False: "the threads that wrote were full, and not the drive",
}
FASTEST: Final = 4.0
"""The drive's ceiling in units of the row's, at most, where threads were full. Assumed."""


def with_threads_full(
    profile: DriveProfile, host: BenchHost, judged: Sequence[Judged]
) -> tuple[DriveProfile, list[str]]:
    """*profile* with the explanation that threads were full where *judged* rows allow it; notes."""
    found: list[Alternative] = []
    notes = []
    for is_read in (True, False):
        top = _ceiling(host, judged, is_read)
        if top is None:
            continue
        weight = threads_full(host, top)
        if weight < LEAST:
            continue
        rate = top.iops / top.targets
        usual, _ = open_ceiling(host.link, top.block_size, rate, read=is_read)
        faster = _faster(profile, min(usual / rate, FASTEST), is_read)
        values = difference(profile, faster)
        if profile.captured is not None:
            cycles = round(profile.captured.stack_cycles * _cycles_factor(host, judged), 3)
            values["captured.stack_cycles"] = cycles
        found.append(Alternative(name=NAME[is_read], weight=round(weight, 4), values=values))
        notes.append(
            f"{top.name}: {weight:.0%} likely {NAME[is_read]}; name the CPU's clock (--captured-on "
            "STACK,LINK,'2.4 GHz'), or add a row of more threads, which decides"
        )
    if not found:
        return profile, []
    left = 1.0 - sum(a.weight for a in found) / len(found)
    known = [a.model_copy(update={"weight": a.weight * left}) for a in profile.alternatives]
    found = [a.model_copy(update={"weight": a.weight / len(found)}) for a in found]
    return profile.model_copy(update={"alternatives": (*known, *found)}), notes


def _ceiling(host: BenchHost, judged: Sequence[Judged], is_read: bool) -> Point | None:
    """The row at a ceiling of the fitted drive whose threads were least busy; None without any."""
    found = [
        j.point for j in judged
        if j.used and j.point.read_fraction == float(is_read)
        and may_be_full(j.point) and not j.point.is_cpu_bound
    ]  # fmt: skip
    least = min(found, key=lambda p: thread_share(host, p), default=None)
    full = {id(j.point) for j in judged if j.answer.full and not j.answer.full.startswith("link")}
    return least if id(least) in full else None


def _cycles_factor(host: BenchHost, judged: Sequence[Judged]) -> float:
    """Factor on the cycles of *host* with which its fastest thread was full."""
    return 1 / max(thread_share(host, j.point) for j in judged if j.used and may_be_full(j.point))


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
