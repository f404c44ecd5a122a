"""From captures of one drive to a profile with its evidence.

Time is counted once: with a host (`captured_on`) the bench is simulated with that host's
costs and link, so the profile holds the drive alone; without one, the host stays in the profile's
constants (`host_included`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, free_host, measure, parse_host, usual_host
from nvmesim.calibrate.drive import explanations, which_rows
from nvmesim.calibrate.drive.batch_service import choose, fit_rounds, fit_writes_in_rounds
from nvmesim.calibrate.drive.explanations import MODEL_ERROR, Explanation, alternative, chosen
from nvmesim.calibrate.drive.flushes import fit_flush, is_volatile
from nvmesim.calibrate.drive.gate import (
    Rows,
    captured,
    caveats,
    missed,
    misses,
    residual,
    undetermined,
)
from nvmesim.calibrate.drive.large_reads import fit_large_reads, with_serial
from nvmesim.calibrate.drive.laws import SHALLOW
from nvmesim.calibrate.drive.read_side import (
    ENOUGH,
    Ceiling,
    Progress,
    ReadFit,
    bank_optimum,
    fit_reads,
    may_be_latency,
)
from nvmesim.calibrate.drive.starting_point import (
    blank_drive,
    read_columns,
    sources,
    with_payload,
    with_read_sources,
    with_streams,
    with_write_sources,
    with_written_bytes,
    write_columns,
)
from nvmesim.calibrate.drive.suspension import SHORT, USUAL, fitted, may_suspend, suspending
from nvmesim.calibrate.drive.write_side import Limit, fit_writes
from nvmesim.calibrate.evidence import DriveFit, Judged, joint_of, with_draws, with_numbers
from nvmesim.calibrate.infer.optimum import is_stopping, misfit
from nvmesim.calibrate.notes import drifts, law_of_rounds, mixed_devices
from nvmesim.calibrate.over_time.buffers import buffers_of
from nvmesim.calibrate.over_time.limits import FoundLimits, bursts_of, find_limits
from nvmesim.calibrate.over_time.pauses import NONE, fit_pauses
from nvmesim.calibrate.points import Point, hold_out, points_of
from nvmesim.calibrate.smallest.disk import fit_disk, is_disk
from nvmesim.calibrate.smallest.line_fit import fit_bytes, smaller
from nvmesim.calibrate.stack.scaled import host_of_rows, with_full_rows, with_pages
from nvmesim.calibrate.stack.task import with_full_threads
from nvmesim.capture.capture import Captures
from nvmesim.catalog.profile import DriveProfile, Quantity

FINAL_REQUESTS = 60_000
MOST_REQUESTS = 400_000
TOLD_REQUESTS = 40_000
"""Simulated at a mix that is to tell explanations apart: several fillings of a write buffer."""
BEHIND = 4
"""Drain of a disk behind a rate limit, in units of the limit. Assumed: it is seldom what limits."""
UNIT: Final = 4096
STREAMING: Final = 128 << 10
"""Bytes of the smallest writes from which on rows tell a bandwidth, and nothing of requests."""
LIMITED: Final[dict[Ceiling | None, tuple[Limit, ...]]] = {
    "dies": ("drain",), "controller": ("controller", "drain"), "path": ("drain",),
    None: ("drain", "controller"),
}  # fmt: skip
"""Limits of writes, by what limits reads."""


def fit_drive(
    captures: Captures | Sequence[Point],
    *,
    name: str = "fitted",
    host: BenchHost | None = None,
    captured_on: str | None = None,
    link: str | None = None,
    held_out: Sequence[str] = (),
    tell: Progress = lambda _: None,
) -> DriveFit:
    """Fit a drive on the points of *captures* that are not held out.

    *captured_on* names what measured them, ``"STACK[,LINK[,CPU]]"``, unless *host* is that; with
    neither it stays in the profile. *link*: the drive's, where no host states it. *held_out* are
    rules such as ``"QD=16"``; *tell* is called with what is being done. Raises FitError when the
    captures do not determine a drive.
    """
    if isinstance(captures, Captures):
        points, notes = points_of(captures)
        bursts = bursts_of(captures)
        buffer, said = buffers_of(captures)
        stepped = {b.name for b in bursts} | set(said)
        notes += mixed_devices(captures) + drifts(captures, stepped)
    else:
        points, notes, bursts = list(captures), [], []
        buffer, said = None, {}
    if captured_on is not None and host is None:
        asked = parse_host(captured_on)
        host, captured_on = asked.host, asked.text
        notes += asked.notes
    points = hold_out(points, held_out)
    fitting = _Fitting(points, notes, name, host, captured_on, tell, link)
    fitting.limits = find_limits([p for p in points if not p.held_out], bursts)
    if fitting.limits is None:
        notes += said.values()
    fit = fitting.fit()
    if buffer is None or fitting.limits is not None:
        return fit
    size = buffer.quantity("the step in the rate of a long write")
    return replace(fit, profile=with_numbers(fit.profile, {"write.buffer": size}))


class _Fitting:
    def __init__(
        self,
        points: Sequence[Point],
        notes: list[str],
        name: str,
        host: BenchHost | None,
        captured_on: str | None,
        tell: Progress,
        link: str | None,
    ) -> None:
        self.points = list(points)
        if host is None:
            self.points = [p.with_totals() for p in with_full_threads(points)[0]]
        self.notes = notes
        self.name = name
        self.included = host is None
        self.host, said = with_payload(
            host or free_host(link or which_rows.least_link(points)), self.points
        )
        self.notes += said
        self.captured_on = captured_on
        self.tell = tell
        self.limits: FoundLimits | None = None
        self.pauses = NONE
        self.synchronous = False
        self.free: list[str] = []
        self.joint: dict[str, Floats] = {}
        self.unidentified: dict[str, str] = {}

    def fit(self) -> DriveFit:
        self.points, said = which_rows.one_by_one(self.points, self.host.link)
        self.synchronous = bool(said)
        self.notes += said
        if not self.included:
            host, said = host_of_rows(self.host, self.points)
            self.notes += said
            self.host = with_pages(host, self.points)
            self.points = with_full_rows(self.host, self.points)
        self.notes += which_rows.host_doubts(self.host, self.points, self.included)
        used, said = which_rows.of_the_drive(self.points, self.included)
        self.notes += said
        free = used if self.limits is None else self.limits.below(used)
        free, said = which_rows.of_whole_sectors(free)
        self.notes += said
        plain = [p for p in free if not p.sync]
        if not any(p.read_fraction == 0 for p in plain) and not is_volatile(free, self.host):
            plain = free  # what is known of writes is known with their flushes
        reads = [p for p in plain if p.read_fraction == 1 and p.random]
        # a flush after each write leaves nothing to stream: such rows tell latencies
        writes = [p for p in plain if p.read_fraction == 0 and (p.random or p.sync)]
        streamed = [p for p in plain if p.read_fraction == 0 and p.outstanding <= SHALLOW]
        is_streamed = not writes and bool(streamed)
        # alone, a sequential write waits as a random one does
        small = [p for p in streamed if p.block_size <= UNIT]
        if is_streamed or all(p.outstanding > SHALLOW for p in writes):
            writes += streamed if is_streamed else small
        reads, mixed = which_rows.alone_and_beside(reads)
        mixes = [p for p in plain if 0 < p.read_fraction < 1 and p.random] + mixed
        if not any(p.read_fraction in (0, 1) for p in free):
            reads, said = which_rows.reads_of_mixes(mixes)
            self.notes += said
        elif not writes:
            writes, said = which_rows.writes_of_mixes(mixes, reads)
            self.notes += said
        profile = blank_drive(self.points, self.host, self.name, self.captured_on, self.included)
        if self.limits is not None:
            self.notes += self.limits.notes
            profile = profile.model_copy(update={"limits": self.limits.profile})
        profile = with_streams(profile, self.host, plain, self.tell)
        best, others = chosen(self._explained(profile, reads, writes, mixes))
        least = best
        if not best.profile.sorts:
            least = smaller(best, self.host, reads, writes, mixes, self.tell)
        if least is not best:
            best, others = least, []
        if is_streamed:  # their bytes, now that the time beside these is known
            deep = [p for p in plain if p.read_fraction == 0 and p not in streamed]
            best = replace(
                best, profile=with_streams(best.profile, self.host, deep or streamed, self.tell)
            )
        best = replace(best, profile=self._flushes(best.profile, free))
        self.notes += best.notes
        self.free = _free(best) + self.free
        self.unidentified |= best.unidentified
        self.joint |= best.joint
        judged = [self._judge(best.profile, p, p in used) for p in self.points]
        rows = Rows(used, reads, writes)
        self.notes += caveats(rows, judged, self.included)
        self.notes += undetermined(best.profile, rows, self.unidentified, self.free, others)
        profile = self._recorded(best, others, judged)
        host = usual_host(self.host.link) if self.included else self.host
        profile, said = explanations.with_threads_full(profile, host, judged)
        self.notes += said
        return DriveFit(
            profile, tuple(judged), tuple(dict.fromkeys(self.notes)), tuple(self.free),
            misses=tuple(misses(judged, self.included, self.host.clock_sd)),
        )  # fmt: skip

    def _recorded(
        self, best: Explanation, others: Sequence[tuple[Explanation, float]],
        judged: Sequence[Judged],
    ) -> DriveProfile:  # fmt: skip
        """The profile with all that a prediction draws from and says."""
        profile = best.profile
        update = {
            "joint": joint_of(profile, self.joint),
            "alternatives": tuple(alternative(e, profile, w) for e, w in others),
            # what a drive shares with others, or a full thread did, is no misfit of its own
            "residuals": tuple(residual(j) for j in judged if j.used or j.point.held_out),
            "captured": captured(
                [j.point for j in judged if j.used],
                self.captured_on,
                self.host.stack,
                synchronous=self.synchronous,
            ),
            "untold": dict(self.unidentified),
            "missed": missed(judged, self.included),
        }
        return profile.model_copy(update={k: v for k, v in update.items() if v})

    # -- explanations ---------------------------------------------------------------------------

    def _explained(
        self, profile: DriveProfile, reads: Sequence[Point], writes: Sequence[Point],
        mixes: Sequence[Point],
    ) -> list[Explanation]:  # fmt: skip
        """Explanations of the rows, each fitted to them; at least one."""
        if is_disk(self.host, reads):
            return [fit_disk(profile, reads, writes)]
        tried = []
        for ceiling in self._ceilings(reads, mixes):
            begun = Explanation(None, None, profile, 0.0, {})
            if reads:
                begun = self._reads(profile, reads, ceiling)
            tried += self._with_writes(begun, writes, mixes)
            if begun.reads is None or begun.ceiling is None or is_stopping():
                break  # nothing but latencies, or all of it is told
        return tried

    def _ceilings(self, reads: Sequence[Point], mixes: Sequence[Point]) -> list[Ceiling | None]:
        """Parts that may be the ceiling of *reads*."""
        small = [p for p in reads if p.block_size <= UNIT] or reads
        if len({p.depth for p in small}) >= ENOUGH:
            return ["dies"]  # one fit holds both
        found: list[Ceiling | None] = ["dies", "controller"]
        if mixes:
            found.append("path")
        return [*found, None] if small and may_be_latency(small) else found

    def _with_writes(
        self, begun: Explanation, writes: Sequence[Point], mixes: Sequence[Point]
    ) -> list[Explanation]:
        """*begun* with each way that writes may be limited."""
        profile = begun.profile
        if not writes:
            if mixes and may_suspend(profile):  # its reads hold what they waited for programs
                profile = suspending(profile, SHORT)
            return [replace(begun, profile=profile, cost=begun.cost + self._cost(profile, mixes))]
        size = min(p.block_size for p in writes)
        alike = [p for p in writes if p.block_size == size]
        if size >= STREAMING:
            made = with_written_bytes(profile, self.host, writes)
            said = "writes: as many bytes as there are; no row is of small ones"
            wanted = dict.fromkeys(("write.base", "write.program"), "writes of 4 KiB")
            return [replace(
                begun, profile=made, cost=begun.cost + self._cost(made, mixes),
                notes=(*begun.notes, said), unidentified={**begun.unidentified, **wanted},
            )]  # fmt: skip
        if size > UNIT:
            profile = with_numbers(profile, {"write.unit": Quantity(value=size)})
        special = self._special_writes(begun, profile, alike)
        if special is not None:
            return [special]
        limits = list(LIMITED[begun.ceiling])
        if len({p.outstanding for p in alike}) >= ENOUGH:
            limits.append("through")
        tried: list[Explanation] = []
        for limit in limits:
            if not tried or not is_stopping():
                tried.append(self._written(begun, profile, alike, mixes, limit))
        return tried

    def _written(
        self, begun: Explanation, profile: DriveProfile, writes: Sequence[Point],
        mixes: Sequence[Point], limit: Limit,
    ) -> Explanation:  # fmt: skip
        found = fit_writes(profile, self.host, writes, limit, self.tell)
        columns = write_columns(found, begun.joint)
        made, more = with_write_sources(found, writes, columns), 0.0
        unidentified = {**begun.unidentified, **found.unidentified}
        if not may_suspend(made):
            more = self._cost(made, mixes)
        elif not mixes:
            made = suspending(made, USUAL[writes[0].is_stated])
            unidentified |= {"write.suspend": "a 70/30 mix"}
        else:
            usual, told = USUAL[writes[0].is_stated], sources(mixes)
            made, more = fitted(made, lambda p: self._cost(p, mixes), MODEL_ERROR**2, told, usual)
        return replace(
            begun, limit=limit, profile=made, cost=begun.cost + found.cost + more, writes=found,
            joint={**begun.joint, **columns}, unidentified=unidentified,
        )  # fmt: skip

    def _cost(self, profile: DriveProfile, mixes: Sequence[Point]) -> float:
        """Half a chi-square of *mixes*."""
        total = 0.0
        for p in mixes:
            answer = measure(profile, self.host, p, requests=TOLD_REQUESTS + 2 * p.outstanding)
            total += sum(r * r for r in misfit(p, answer)[:2]) / 2
        return total

    def _special_writes(
        self, begun: Explanation, profile: DriveProfile, writes: Sequence[Point]
    ) -> Explanation | None:
        """Writes of a disk of rounds, or of one behind a limit."""
        if profile.rounds is not None:
            return replace(begun, profile=self._writes_in_rounds(profile, writes))
        if begun.reads is None and self._are_rounds(profile, writes, "writes"):
            return replace(begun, profile=self._in_rounds(profile, writes))
        size = writes[0].block_size
        if self.limits is not None and self.limits.stops(self.points, size):
            return self._writes_behind(self.limits, begun, profile, writes)
        return None

    def _flushes(self, profile: DriveProfile, points: Sequence[Point]) -> DriveProfile:
        """*profile* with the time of a flush, where writes were measured with it and without.

        Of rows that all flush, what is longer than a cached write is the flush of a volatile cache.
        """
        flushing = all(p.sync for p in points if p.read_fraction == 0)
        if flushing and not is_volatile(points, self.host):
            return profile
        profile, notes = fit_flush(profile, self.host, points, self.tell)
        self.notes += notes
        return profile

    # -- reads ----------------------------------------------------------------------------------

    def _reads(
        self, template: DriveProfile, reads: Sequence[Point], ceiling: Ceiling | None
    ) -> Explanation:
        small = [p for p in reads if p.block_size <= UNIT]
        large = [p for p in reads if p.block_size > UNIT]
        if not small:
            width = template.read_bandwidth
            stream = width.value if width.basis == "fitted" else None
            bound = fit_bytes(template, self.host, large, stream)
            if bound is not None:
                return Explanation(
                    None, None, bound.profile, 0.0, bound.columns, notes=(bound.note,),
                    unidentified=bound.unidentified,
                )  # fmt: skip
            size = min(p.block_size for p in large)
            small = [p for p in large if p.block_size == size]
            large = [p for p in large if p.block_size != size]
            template = with_numbers(template, {"read.unit": Quantity(value=size)})
            self.notes.append(f"no reads of 4 KiB: {size} bytes are taken as the drive's unit")
        mixed = max((p.iops / p.targets for p in self.points if 0 < p.read_fraction < 1), default=0)
        found = self._small_reads(template, small, ceiling, mixed)
        if found is None:
            return Explanation(None, None, self._in_rounds(template, small), 0.0, {})
        profile = with_read_sources(template, found, small)
        if small[0].block_size == UNIT:
            profile = with_serial(profile, self.host)
        if large:
            profile, free = fit_large_reads(profile, self.host, large, self.tell)
            self.free += free
        return Explanation(
            found.ceiling, None, profile, found.cost, read_columns(found), reads=found,
            notes=found.notes, unidentified=found.unidentified,
        )  # fmt: skip

    def _small_reads(
        self, template: DriveProfile, small: Sequence[Point], ceiling: Ceiling | None, mixed: float
    ) -> ReadFit | None:
        """A bank of dies fitted to *small*; None if they are served in rounds.

        Where the bank misses them by far its distribution is not looked for first.
        """
        begun = None
        if _have_law(small):
            begun = bank_optimum(template, self.host, small, self.tell)
            if begun.misses and self._are_rounds(template, small, "reads"):
                return None
        found = fit_reads(template, self.host, small, self.tell, ceiling, mixed, begun)
        is_known = found.explains or (begun is not None and begun.misses)
        return found if is_known or not self._are_rounds(template, small, "reads") else None

    def _are_rounds(self, template: DriveProfile, points: Sequence[Point], what: str) -> bool:
        """True if *points* are served in rounds, by a depth that is left out to judge by."""
        if not _have_law(points):
            return False
        chosen = choose(template, self.host, points, self.tell)
        self.notes.append(f"{what}: {chosen.text}")
        return chosen.is_rounds

    def _in_rounds(self, template: DriveProfile, points: Sequence[Point]) -> DriveProfile:
        """A disk of rounds fitted to *points*: reads, or writes where there are no reads."""
        self.tell("pauses, by depths left out")
        size = points[0].block_size
        alone = [p for p in self.points if not p.held_out and p.block_size == size]
        self.pauses = fit_pauses([p for p in alone if p.read_fraction in (0, 1)])
        self.notes.append(self.pauses.text)
        self.tell("batch service, all depths")
        found = fit_rounds(template, self.host, points, self.pauses)
        columns = found.columns()
        self.joint |= columns
        self.free += list(columns)
        return with_draws(found.profile, columns, sources(points))

    def _writes_in_rounds(self, profile: DriveProfile, points: Sequence[Point]) -> DriveProfile:
        self.tell("writes in batches")
        profile, column = fit_writes_in_rounds(profile, self.host, points, self.pauses)
        self.joint["rounds.write"] = column
        self.free.append("rounds.write")
        return with_draws(profile, {"rounds.write": column}, sources(points))

    def _writes_behind(
        self, limits: FoundLimits, begun: Explanation, template: DriveProfile,
        points: Sequence[Point],
    ) -> Explanation:  # fmt: skip
        """Acknowledgement from the shallowest point; no point tells what the disk could drain."""
        shallow = [p for p in points if p.outstanding == min(p.outstanding for p in points)]
        found = fit_writes(template, self.host, shallow, "drain", self.tell)
        columns = write_columns(found, begun.joint)
        profile = with_write_sources(found, shallow, columns)
        joint = {k: v for k, v in {**begun.joint, **columns}.items() if k != "write.program"}
        unit = round(profile.write.unit.value)
        rate = BEHIND * max(limits.allowed(size) * size for size in (unit, 1 << 20)) / unit
        said = f"{BEHIND} times the limit: no capture determines it"
        program = Quantity(value=profile.dies.value / rate * 1e12, basis="assumed", source=said)
        self.notes.append(
            "all deeper writes are at the limit: the write rate of the disk behind it is assumed "
            f"({BEHIND} times the limit)"
        )
        made = with_numbers(profile, {"write.program": program, "write.commands": None})
        return replace(begun, limit="drain", profile=made, joint=joint, writes=found)

    # -- evidence -------------------------------------------------------------------------------

    def _judge(self, profile: DriveProfile, point: Point, used: bool) -> Judged:
        self.tell(f"checking {point.name}")
        # a round of all in flight tells of a tail but once
        rounds = 4_000 * point.outstanding if profile.rounds is not None else 0
        requests = max(FINAL_REQUESTS, min(rounds, MOST_REQUESTS))
        answer = measure(profile, self.host, point, requests=requests)
        return Judged(point, replace(answer, cpu_s=None) if self.included else answer, used)


def _have_law(points: Sequence[Point]) -> bool:
    """True if the times of *points* grow with their depth as those of rounds do."""
    return law_of_rounds([p.outstanding for p in points], [p.iops for p in points]) is not None


def _free(best: Explanation) -> list[str]:
    """Names of what was fitted, as the evidence lists them."""
    reads = best.reads.bounds if best.reads is not None else {}
    writes = best.writes.bounds if best.writes is not None else {}
    names = ["dies" if n == "dies" else f"read {n}" for n in reads]
    return names + [f"write {n}" for n in writes]
