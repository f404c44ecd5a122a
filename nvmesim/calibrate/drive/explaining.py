"""Each way in which rows may be explained, fitted to them: what limits reads, what writes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.drive.batch_service import (
    are_rounds,
    fit_rounds,
    fit_writes_in_rounds,
    law_of_rounds,
)
from nvmesim.calibrate.drive.explanations import MODEL_ERROR, Explanation
from nvmesim.calibrate.drive.large_reads import (
    fit_large_reads,
    with_bytes_of_lone,
    with_larger_reads,
)
from nvmesim.calibrate.drive.open_ceilings import SLOW_ODDS, is_slow
from nvmesim.calibrate.drive.read_side import (
    CLEAN,
    ENOUGH,
    Progress,
    bank_optimum,
    fit_reads,
    may_be_latency,
)
from nvmesim.calibrate.drive.starting_point import with_written_bytes
from nvmesim.calibrate.drive.suspension import SHORT, USUAL, fitted, may_suspend, suspending
from nvmesim.calibrate.drive.which_rows import DividedRows
from nvmesim.calibrate.drive.write_side import Limit, fit_writes
from nvmesim.calibrate.evidence import Ceiling, Side
from nvmesim.calibrate.infer.optimum import is_stopping, misfit
from nvmesim.calibrate.over_time.limits import FoundLimits
from nvmesim.calibrate.over_time.pauses import NONE, PauseFit, fit_pauses
from nvmesim.calibrate.points import Point, sources
from nvmesim.calibrate.smallest.disk import arm_share, fit_disks
from nvmesim.calibrate.smallest.line_fit import fit_bytes
from nvmesim.calibrate.stack.scaled import ALIKE, QUEUED
from nvmesim.catalog.profile import DriveProfile, Quantity
from nvmesim.catalog.quantity import with_numbers

MIX_REQUESTS: Final = 40_000
"""Simulated at a mix that is to tell explanations apart: several fillings of a write buffer."""
BEHIND: Final = 4
"""Drain of a disk behind a rate limit, in units of the limit. Assumed: it is seldom what limits."""
UNIT: Final = 4096
LARGEST_UNIT: Final = 1 << 18
"""Bytes of reads of one size, up to which each is taken to be of one die. Assumed."""
STREAMING: Final = 128 << 10
"""Bytes of the smallest writes from which on rows tell a bandwidth, and nothing of requests."""
LIMITED: Final[dict[Ceiling | None, tuple[Limit, ...]]] = {
    "dies": ("drain",), "controller": ("controller", "drain"), "path": ("drain",),
    None: ("drain", "controller"),
}  # fmt: skip
"""Limits of writes, by what limits reads."""


@dataclass(frozen=True)
class Evidence:
    """What explanations are fitted to; *notes* get what a user must know of it."""

    rows: DividedRows
    host: BenchHost
    limits: FoundLimits | None
    notes: list[str]
    tell: Progress


def explained(evidence: Evidence, profile: DriveProfile) -> list[Explanation]:
    """Explanations of the rows that begin with *profile*, each fitted; at least one."""
    reads = evidence.rows.reads
    share, tried = arm_share(evidence.host, reads, evidence.rows.plain), list[Explanation]()
    if share:
        writes = [p for p in evidence.rows.writes if p.random]
        tried = [replace(e, weight=share * e.weight) for e in fit_disks(profile, reads, writes)]
    if share == 1:
        return tried
    for ceiling in _ceilings(evidence):
        begun = _with_reads(evidence, profile, ceiling) if reads else Explanation(profile)
        if ceiling == "controller" and is_slow(reads, read=True):
            begun = replace(begun, weight=SLOW_ODDS * begun.weight)
        if share:
            weight = (1 - share) * begun.weight
            begun = replace(begun, weight=weight, title="flash that others hold up")
        tried += _with_writes(evidence, begun)
        if begun.reads is None or begun.ceiling is None or is_stopping():
            break  # nothing but latencies, or all of it is told
    return tried


def _ceilings(evidence: Evidence) -> list[Ceiling | None]:
    rows = evidence.rows
    if _port_is_full(evidence):
        return ["controller"]
    small = [p for p in rows.reads if p.block_size <= UNIT] or rows.reads
    if len({p.depth for p in small}) >= ENOUGH:
        return ["dies"]  # one fit holds both
    found: list[Ceiling | None] = ["dies", "controller"]
    if rows.mixes:
        found.append("path")
    return [*found, None] if small and may_be_latency(small) else found


def _port_is_full(evidence: Evidence) -> bool:
    """True if small reads and writes end alike behind SATA or SAS: at the commands of the port.

    Data sheets of SATA drives whose writes are not the flash's state 90,000 to 100,000 of both.
    """
    if evidence.host.link.kind == "pcie":
        return False

    def most(rows: Sequence[Point]) -> float:
        deep = (p for p in rows if p.random and p.outstanding >= QUEUED * p.targets)
        return max((p.iops / p.targets for p in deep if p.block_size <= UNIT), default=0.0)

    reads, writes = most(evidence.rows.reads), most(evidence.rows.writes)
    return 0 < max(reads, writes) < ALIKE * min(reads, writes)


# -- reads ----------------------------------------------------------------------------------------


def _with_reads(
    evidence: Evidence, template: DriveProfile, ceiling: Ceiling | None
) -> Explanation:  # fmt: skip
    reads, host = evidence.rows.reads, evidence.host
    if ceiling == "controller" and not evidence.rows.are_measured:
        reads = evidence.rows.reads_that_wait_alike()
    small = [p for p in reads if p.block_size <= UNIT]
    large = [p for p in reads if p.block_size > UNIT]
    if not small:
        width = template.read_bandwidth
        stream = width.value if width.basis == "fitted" else None
        bound = fit_bytes(template, host, large, stream)
        if bound is not None:
            return Explanation(template).having(bound)
        size = min(p.block_size for p in large)
        if size == max(p.block_size for p in large) > LARGEST_UNIT and host.link.kind == "pcie":
            lone = with_larger_reads(with_bytes_of_lone(template, large), host)
            profile, told = fit_large_reads(lone, host, large, evidence.tell)
            evidence.notes.append("no small reads: how long they take is assumed")
            return Explanation(profile, told_by_large=tuple(told))
        small = [p for p in large if p.block_size == size]
        large = [p for p in large if p.block_size != size]
        template = with_numbers(template, {"read.unit": size})
        evidence.notes.append(f"no reads of 4 KiB: {size} bytes are taken as the drive's unit")
    found, pauses = _small_reads(evidence, template, small, ceiling)
    profile, told = found.profile, list[str]()
    if profile.rounds is None and small[0].block_size == UNIT:
        profile = with_larger_reads(profile, host)
    if profile.rounds is None and large:
        profile, told = fit_large_reads(profile, host, large, evidence.tell)
    found = replace(found, profile=profile)
    begun = Explanation(profile, found.ceiling, pauses=pauses, told_by_large=tuple(told))
    return begun.having(found, reads=found)


def _small_reads(
    evidence: Evidence, template: DriveProfile, small: Sequence[Point], ceiling: Ceiling | None
) -> tuple[Side, PauseFit]:
    """A bank of dies fitted to *small*, or a disk of rounds where that tells them better.

    Where the bank misses them by far its distribution is not looked for first.
    """
    begun = None
    if law_of_rounds(small) is not None:
        begun = bank_optimum(template, evidence.host, small, evidence.tell)
        if begun.misses and _are_rounds(evidence, template, small):
            return _in_rounds(evidence, template, small)
    mixed = evidence.rows.most_mixed
    shallowest = min(p.outstanding for p in small)
    larger = (p for p in evidence.rows.reads if p.outstanding < shallowest and p not in small)
    least_s = min((p.outstanding / p.iops for p in larger), default=math.inf)
    found = fit_reads(template, evidence.host, small, evidence.tell, ceiling, mixed, begun, least_s)
    is_known = found.tau <= CLEAN or (begun is not None and begun.misses)
    if is_known or not _are_rounds(evidence, template, small):
        return found, NONE
    return _in_rounds(evidence, template, small)


def _are_rounds(evidence: Evidence, template: DriveProfile, points: Sequence[Point]) -> bool:
    writes = [p for p in evidence.rows.given if p.read_fraction == 0 and not p.held_out]
    return are_rounds(template, evidence.host, points, writes, evidence.tell, evidence.notes)


def _in_rounds(
    evidence: Evidence, template: DriveProfile, points: Sequence[Point]
) -> tuple[Side, PauseFit]:
    """A disk of rounds fitted to *points*: reads, or writes where there are no reads."""
    evidence.tell("pauses, by depths left out")
    size = points[0].block_size
    alone = [p for p in evidence.rows.given if not p.held_out and p.block_size == size]
    pauses = fit_pauses([p for p in alone if p.read_fraction in (0, 1)])
    evidence.notes.append(pauses.text)
    evidence.tell("batch service, all depths")
    return fit_rounds(template, evidence.host, points, pauses), pauses


# -- writes ---------------------------------------------------------------------------------------


def _with_writes(evidence: Evidence, begun: Explanation) -> list[Explanation]:
    """*begun* with each way that writes may be limited."""
    profile, writes, host = begun.profile, evidence.rows.writes, evidence.host
    if not writes:
        if evidence.rows.mixes and may_suspend(profile):
            profile = suspending(profile, SHORT)  # reads hold what they waited for programs
        cost = begun.cost + _mixes_cost(evidence, profile)
        return [replace(begun, profile=profile, cost=cost)]
    size = min(p.block_size for p in writes)
    alike = [p for p in writes if p.block_size == size]
    if size >= STREAMING:
        made = with_written_bytes(profile, host, writes)
        said = "writes: as many bytes as there are; no row is of small ones"
        wanted = dict.fromkeys(("write.base", "write.program"), "writes of 4 KiB")
        return [begun.having(Side(made, {}, _mixes_cost(evidence, made), (), wanted, (said,)))]
    if size > UNIT:
        profile = with_numbers(profile, {"write.unit": size})
    special = _special_writes(evidence, begun, profile, alike)
    if special is not None:
        return [special]
    limits: list[Limit] = ["controller"] if _port_is_full(evidence) else [*LIMITED[begun.ceiling]]
    if len({p.outstanding for p in alike}) >= ENOUGH:
        limits.append("through")
    tried: list[Explanation] = []
    for limit in limits:
        if not tried or not is_stopping():
            tried.append(_written(evidence, begun, profile, alike, limit))
    return tried


def _written(
    evidence: Evidence, begun: Explanation, profile: DriveProfile, writes: Sequence[Point],
    limit: Limit,
) -> Explanation:  # fmt: skip
    mixes = evidence.rows.mixes
    found = fit_writes(profile, evidence.host, writes, limit, evidence.tell, begun.joint)
    made, more, unidentified = found.profile, 0.0, {}
    usual = USUAL[writes[0].is_stated]
    if not may_suspend(made):
        more = _mixes_cost(evidence, made)
    elif not mixes:
        made, unidentified = suspending(made, usual), {"write.suspend": "a 70/30 mix"}
    else:
        made, more = fitted(
            made, lambda p: _mixes_cost(evidence, p), MODEL_ERROR**2, sources(mixes), usual
        )
    tried = begun.having(found, limit=limit, writes=found)
    if limit == "controller" and is_slow(writes, read=False):
        tried = replace(tried, weight=SLOW_ODDS * tried.weight)
    return replace(
        tried, profile=made, cost=tried.cost + more,
        unidentified={**tried.unidentified, **unidentified},
    )  # fmt: skip


def _mixes_cost(evidence: Evidence, profile: DriveProfile) -> float:
    """Half a chi-square of the mixes."""
    total = 0.0
    for p in evidence.rows.mixes:
        requests = MIX_REQUESTS + 2 * p.outstanding
        answer = measure(profile, evidence.host, p, requests=requests)
        total += sum(r * r for r in misfit(p, answer)[:2]) / 2
    return total


def _special_writes(
    evidence: Evidence, begun: Explanation, profile: DriveProfile, writes: Sequence[Point]
) -> Explanation | None:
    """Writes of a disk of rounds, or of one behind a limit."""
    if profile.rounds is not None:
        evidence.tell("writes in batches")
        found = fit_writes_in_rounds(profile, evidence.host, writes, begun.pauses)
        return begun.having(found, writes=found)
    if begun.reads is None and _are_rounds(evidence, profile, writes):
        found, pauses = _in_rounds(evidence, profile, writes)
        return begun.having(found, writes=found, pauses=pauses)
    limits = evidence.limits
    if limits is not None and limits.stops(evidence.rows.given, writes[0].block_size):
        return _writes_behind(evidence, limits, begun, profile, writes)
    return None


def _writes_behind(
    evidence: Evidence, limits: FoundLimits, begun: Explanation, template: DriveProfile,
    points: Sequence[Point],
) -> Explanation:  # fmt: skip
    """Acknowledgement from the shallowest point; no point tells what the disk could drain."""
    shallow = [p for p in points if p.outstanding == min(p.outstanding for p in points)]
    found = fit_writes(template, evidence.host, shallow, "drain", evidence.tell, begun.joint)
    columns = {k: v for k, v in found.columns.items() if k != "write.program"}
    profile = found.profile
    unit = round(profile.write.unit.value)
    rate = BEHIND * max(limits.allowed(size) * size for size in (unit, 1 << 20)) / unit
    said = f"{BEHIND} times the limit: no capture determines it"
    program = Quantity(value=profile.dies.value / rate * 1e12, basis="assumed", source=said)
    evidence.notes.append(
        "all deeper writes are at the limit: the write rate of the disk behind it is assumed "
        f"({BEHIND} times the limit)"
    )
    made = with_numbers(profile, {"write.program": program, "write.commands": None})
    joint = {k: v for k, v in begun.joint.items() if k != "write.program"} | columns
    return replace(begun, limit="drain", profile=made, joint=joint, writes=found)
