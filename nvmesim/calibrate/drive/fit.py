"""From captures of one drive to a profile with its evidence.

Time is counted once: with a host (`captured_on`) the bench is simulated with that host's
costs and link, so the profile holds the drive alone; without one, the host stays in the profile's
constants (`host_included`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from nvmesim.calibrate.asked_host import parse_host, told_host, usual_host
from nvmesim.calibrate.bench import BenchHost, free_host, measure
from nvmesim.calibrate.datasheet import Sheet, read_datasheet
from nvmesim.calibrate.drive import explanations, gate, laws, which_rows
from nvmesim.calibrate.drive.batch_service import (
    are_rounds,
    fit_rounds,
    fit_writes_in_rounds,
    law_of_rounds,
)
from nvmesim.calibrate.drive.explanations import MODEL_ERROR, Explanation, alternative, chosen
from nvmesim.calibrate.drive.large_reads import fit_large_reads, with_larger_reads
from nvmesim.calibrate.drive.laws import SHALLOW
from nvmesim.calibrate.drive.read_side import (
    CLEAN,
    ENOUGH,
    Progress,
    bank_optimum,
    fit_reads,
    host_ps,
    may_be_latency,
)
from nvmesim.calibrate.drive.stalls import REPLACED, fit_stalls
from nvmesim.calibrate.drive.starting_point import (
    drive_of_rows,
    with_payload,
    with_streams,
    with_written_bytes,
)
from nvmesim.calibrate.drive.suspension import SHORT, USUAL, fitted, may_suspend, suspending
from nvmesim.calibrate.drive.write_side import Limit, fit_flush, fit_writes, is_volatile
from nvmesim.calibrate.evidence import Ceiling, DriveFit, Judged, Side, joint_of
from nvmesim.calibrate.infer.optimum import is_stopping, misfit
from nvmesim.calibrate.notes import drifts, mixed_devices
from nvmesim.calibrate.over_time.buffers import buffers_of
from nvmesim.calibrate.over_time.limits import FoundLimits, bursts_of, find_limits
from nvmesim.calibrate.over_time.pauses import NONE, fit_pauses
from nvmesim.calibrate.points import Point, hold_out, points_of, sources
from nvmesim.calibrate.smallest.disk import fit_disk, is_disk
from nvmesim.calibrate.smallest.line_fit import fit_bytes, smaller
from nvmesim.calibrate.stack.full_threads import with_full_threads
from nvmesim.calibrate.stack.scaled import host_of_rows, with_full_rows, with_pages
from nvmesim.capture.capture import Captures
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import WAIT_CV, DriveProfile, Quantity
from nvmesim.catalog.quantity import with_numbers
from nvmesim.errors import FitError

FINAL_REQUESTS = 60_000
MOST_REQUESTS = 400_000
TOLD_REQUESTS = 40_000
"""Simulated at a mix that is to tell explanations apart: several fillings of a write buffer."""
BEHIND = 4
"""Drain of a disk behind a rate limit, in units of the limit. Assumed: it is seldom what limits."""
UNIT: Final = 4096
STREAMING: Final = 128 << 10
"""Bytes of the smallest writes from which on rows tell a bandwidth, and nothing of requests."""
STATED_JOBS: Final = 16
"""Threads of a data sheet's figure: enough that none of them is full."""
STATED: Final = {
    "commands": "random_read", "write.program": "random_write", "write.commands": "random_write",
    "read_bandwidth": "sequential_read", "write_bandwidth": "sequential_write",
}  # fmt: skip
"""Numbers of a profile, and the figure of a data sheet that tells them where no row does."""
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
    datasheet: Sheet | str | None = None,
    tell: Progress = lambda _: None,
) -> DriveFit:
    """Fit a drive on the points of *captures* that are not held out.

    *captured_on* names what measured them, ``"STACK[,LINK[,CPU]]"``, unless *host* is that; with
    neither the captures tell the stack (`told_host`), or its time stays in the profile. *link*:
    the drive's, where no host states it. What no row shows is as the drive's *datasheet* has it, a
    file or a name of the catalog. *held_out* are rules such as ``"QD=16"``; *tell* is called with
    what is being done. Raises FitError when the captures do not determine a drive, CaptureError
    about the sheet.
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
    points = hold_out(points, held_out)
    limits = find_limits([p for p in points if not p.held_out], bursts)
    if limits is None:
        notes += said.values()
    sheet = read_datasheet(Path(datasheet)) if isinstance(datasheet, str) else datasheet
    link = link or (sheet.link if sheet is not None else None)

    def on_host(
        captured_on: str | None, host: BenchHost | None, *, is_named: bool = True
    ) -> DriveFit:
        said = list(notes)
        if captured_on is not None and host is None:
            asked = parse_host(captured_on)
            host, captured_on, said = asked.host, asked.text, [*notes, *asked.notes]
        fitting = _Fitting(points, said, host, captured_on, tell, link, limits, sheet, is_named)
        return fitting.fit(name)

    told = None
    if host is None and captured_on is None and isinstance(captures, Captures):
        told = told_host(captures)
    if told is None:
        fit = on_host(captured_on, host)
    else:
        stack, why = told
        link = link or which_rows.least_link(points)
        fit = _on_told_host(on_host, f"{stack},{link}", why)
    if sheet is not None:
        besides = sheet.besides()
        if any(p.sync for p in points):  # then rows say what a flush takes
            besides = {k: v for k, v in besides.items() if not k.startswith("write.")}
        fit = replace(fit, profile=with_numbers(fit.profile, besides))
    if buffer is None or limits is not None:
        return fit
    size = buffer.quantity("the step in the rate of a long write")
    return replace(fit, profile=with_numbers(fit.profile, {"write.buffer": size}))


def _on_told_host(on_host: Callable[..., DriveFit], captured_on: str, why: str) -> DriveFit:
    """The drive on the host that the captures tell; on none if the rows contradict that."""
    with suppress(FitError):
        fit = on_host(captured_on, None, is_named=False)
        if not fit.misses:
            said = f"{why}: their host is taken as {captured_on}; --captured-on names it"
            return replace(fit, warnings=(said, *fit.warnings))
    return on_host(None, None)


def _untold(stated: Sequence[Point], points: Sequence[Point]) -> list[Point]:
    """Random rows of *stated* of an operation of which no row of *points* is."""
    shares = {p.read_fraction for p in points if not p.held_out}
    if any(0 < share < 1 for share in shares):
        return []
    return [p for p in stated if p.random and p.read_fraction not in shares]


def _as_measured(sheet: Sheet, host: BenchHost) -> list[Point]:
    """Figures of *sheet* as drives reach them on *host*: by many threads, and with its time."""
    found = []
    for point in (p for p in sheet.points() if p.label in host.sheet):
        value, sd = host.sheet[point.label]
        ratio = value / sheet.figures[point.label]
        if point.outstanding == 1:
            took = ratio / point.iops + host_ps(host) / 1e12
            point = replace(point, iops=1 / took, mean_s=took)
        else:
            depth = max(1, point.iodepth // STATED_JOBS)
            point = replace(point, iops=ratio * point.iops, jobs=STATED_JOBS, iodepth=depth)
        found.append(replace(point, noise=sd))
    return found


class _Fitting:
    def __init__(
        self, points: Sequence[Point], notes: list[str], host: BenchHost | None,
        captured_on: str | None, tell: Progress, link: str | None, limits: FoundLimits | None,
        sheet: Sheet | None, is_named: bool,
    ) -> None:  # fmt: skip
        self.points, self.notes, self.tell = list(points), notes, tell
        if host is None:
            self.points = [p.with_totals() for p in with_full_threads(points)[0]]
        self.included, self.captured_on, self.limits = host is None, captured_on, limits
        bench = host or free_host(link or which_rows.least_link(points))
        if sheet is not None:
            stated = sheet.expected(points, bench.link, is_flash=laws.is_flash(points))
            bench = replace(bench, sheet=stated)
        self.host = with_payload(bench, self.points, notes)
        self.stated = [] if sheet is None else _as_measured(sheet, self.host)
        self.pauses = NONE
        self.free: list[str] = []
        self.is_named = is_named
        """False if the captures told the host: it gives way to rows that contradict it."""

    def fit(self, name: str) -> DriveFit:
        notes, said = self.notes, len(self.notes)
        self.points = which_rows.one_by_one(self.points, self.host.link, notes)
        synchronous = len(notes) > said
        if not self.included:
            self.host = with_pages(host_of_rows(self.host, self.points, notes), self.points)
            self.points = with_full_rows(self.host, self.points)
        doubts = list(which_rows.host_doubts(self.host, self.points, self.included))
        if doubts and not self.is_named:
            raise FitError(doubts[0])
        notes += doubts
        self.points += _untold(self.stated, self.points)
        used = which_rows.of_the_drive(self.points, self.included, notes)
        free = used if self.limits is None else self.limits.below(used)
        free = which_rows.of_whole_sectors(free, notes)
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
            reads = which_rows.reads_of_mixes(mixes, notes)
        elif not writes:
            writes = which_rows.writes_of_mixes(mixes, reads, notes)
        profile = drive_of_rows(self.points, self.host, name, self.captured_on, self.included)
        if self.limits is not None:
            notes += self.limits.notes
            profile = with_numbers(profile, {"limits": self.limits.profile})
        profile = with_streams(profile, self.host, plain, self.tell)
        first, others = chosen(self._explained(profile, reads, writes, mixes))
        best = first
        if not first.profile.sorts:
            rest = [p for p in plain if p not in (*reads, *writes, *mixes)]
            best = smaller(first, self.host, reads, writes, (mixes, rest), self.tell)
        others = others if best is first else []
        profile = best.profile
        if is_streamed:  # their bytes, now that the time beside these is known
            deep = [p for p in plain if p.read_fraction == 0 and p not in streamed]
            profile = with_streams(profile, self.host, deep or streamed, self.tell)
        if not all(p.sync for p in free if p.read_fraction == 0) or is_volatile(free, self.host):
            # of rows that all flush, what is longer than a cached write is a volatile cache's
            profile = fit_flush(profile, self.host, free, self.tell, notes)
        best = self._with_stated(replace(best, profile=profile))
        stalls = fit_stalls(best.profile, self.host, plain, self.tell)
        if stalls is not None:
            kept = {key: draws for key, draws in best.joint.items() if key not in REPLACED}
            best, others = replace(best, joint=kept).having(stalls, writes=stalls), []
        profile = best.profile
        notes += best.notes
        self.free = [n for side in (best.reads, best.writes) if side for n in side.told] + self.free
        judged = [self._judge(profile, p, p in used) for p in self.points]
        notes += gate.caveats(reads, writes, judged, self.included)
        unknown = gate.left_open(best.unidentified, self.free, used)
        best = replace(best, unidentified=unknown)
        notes += gate.undetermined(profile, judged, reads, unknown, self.free, others)
        profile = self._recorded(best, others, judged, synchronous=synchronous)
        host = usual_host(self.host.link) if self.included else self.host
        profile = explanations.with_threads_full(profile, host, judged, notes)
        return DriveFit(
            profile, tuple(judged), tuple(dict.fromkeys(notes)), tuple(self.free),
            misses=tuple(gate.misses(judged, self.included, self.host.clock_sd)),
        )  # fmt: skip

    def _with_stated(self, best: Explanation) -> Explanation:
        """*best*, its open numbers that the data sheet tells marked so."""
        told = {k for k, figure in STATED.items() if figure in self.host.sheet}
        unidentified = {k: v for k, v in best.unidentified.items() if k not in told}
        numbers = {
            key: q.model_copy(update={"basis": "datasheet"})
            for key, q in quantities(best.profile)
            if key in told and q.basis == "assumed" and q.low is not None and q.high is not None
            and q.low <= self.host.sheet[STATED[key]].value <= q.high
        }  # fmt: skip
        return replace(best, profile=with_numbers(best.profile, numbers), unidentified=unidentified)

    def _recorded(
        self, best: Explanation, others: Sequence[tuple[Explanation, float]],
        judged: Sequence[Judged], *, synchronous: bool,
    ) -> DriveProfile:  # fmt: skip
        """The profile with all that a prediction draws from and says."""
        profile, used = best.profile, [j.point for j in judged if j.used]
        measured = [j for j in judged if j.point not in self.stated]
        stated = [self._judge(profile, p, used=False) for p in self.stated]
        # waits in order, and dies that meet the percentiles of who waits: the tail is told
        is_told = any(p.percentiles_s and laws.waits(p) for p in used)
        update = {
            "wait_cv": 0.0 if is_told else WAIT_CV,
            "joint": joint_of(profile, best.joint),
            "alternatives": tuple(alternative(e, profile, w) for e, w in others),
            # what a drive shares with others, or a full thread did, is no misfit of its own
            "residuals": (
                *(gate.residual(j) for j in measured if j.used or j.point.held_out),
                *(gate.residual(j, is_beside=True) for j in stated),
            ),
            "captured": gate.captured(
                [j.point for j in measured if j.used] or used, self.captured_on, self.host.stack,
                synchronous=synchronous,
            ),
            "untold": dict(best.unidentified), "missed": gate.missed(judged, self.included),
        }  # fmt: skip
        return with_numbers(profile, {k: v for k, v in update.items() if v})

    def _explained(
        self, profile: DriveProfile, reads: Sequence[Point], writes: Sequence[Point],
        mixes: Sequence[Point],
    ) -> list[Explanation]:  # fmt: skip
        """Explanations of the rows, each fitted to them; at least one."""
        if is_disk(self.host, reads):
            return [fit_disk(profile, reads, writes)]
        tried = []
        for ceiling in self._ceilings(reads, mixes):
            begun = Explanation(profile)
            if reads:
                begun = self._reads(profile, reads, ceiling)
            tried += self._with_writes(begun, writes, mixes)
            if begun.reads is None or begun.ceiling is None or is_stopping():
                break  # nothing but latencies, or all of it is told
        return tried

    def _ceilings(self, reads: Sequence[Point], mixes: Sequence[Point]) -> list[Ceiling | None]:
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
            return [begun.having(Side(made, {}, self._cost(made, mixes), (), wanted, (said,)))]
        if size > UNIT:
            profile = with_numbers(profile, {"write.unit": size})
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
        found = fit_writes(profile, self.host, writes, limit, self.tell, begun.joint)
        made, more, untold = found.profile, 0.0, {}
        usual = USUAL[writes[0].is_stated]
        if not may_suspend(made):
            more = self._cost(made, mixes)
        elif not mixes:
            made, untold = suspending(made, usual), {"write.suspend": "a 70/30 mix"}
        else:
            told = sources(mixes)
            made, more = fitted(made, lambda p: self._cost(p, mixes), MODEL_ERROR**2, told, usual)
        tried = begun.having(found, limit=limit, writes=found)
        return replace(
            tried, profile=made, cost=tried.cost + more,
            unidentified={**tried.unidentified, **untold},
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
            self.tell("writes in batches")
            found = fit_writes_in_rounds(profile, self.host, writes, self.pauses)
            return begun.having(found, writes=found)
        if begun.reads is None and self._are_rounds(profile, writes):
            found = self._in_rounds(profile, writes)
            return begun.having(found, writes=found)
        size = writes[0].block_size
        if self.limits is not None and self.limits.stops(self.points, size):
            return self._writes_behind(self.limits, begun, profile, writes)
        return None

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
                return Explanation(template).having(bound)
            size = min(p.block_size for p in large)
            small = [p for p in large if p.block_size == size]
            large = [p for p in large if p.block_size != size]
            template = with_numbers(template, {"read.unit": size})
            self.notes.append(f"no reads of 4 KiB: {size} bytes are taken as the drive's unit")
        mixed = max((p.iops / p.targets for p in self.points if 0 < p.read_fraction < 1), default=0)
        found = self._small_reads(template, small, ceiling, mixed)
        profile = found.profile
        if profile.rounds is None and small[0].block_size == UNIT:
            profile = with_larger_reads(profile, self.host)
        if profile.rounds is None and large:
            profile, free = fit_large_reads(profile, self.host, large, self.tell)
            self.free += free
        found = replace(found, profile=profile)
        return Explanation(profile, found.ceiling).having(found, reads=found)

    def _small_reads(
        self, template: DriveProfile, small: Sequence[Point], ceiling: Ceiling | None, mixed: float
    ) -> Side:
        """A bank of dies fitted to *small*, or a disk of rounds where that tells them better.

        Where the bank misses them by far its distribution is not looked for first.
        """
        begun = None
        if law_of_rounds(small) is not None:
            begun = bank_optimum(template, self.host, small, self.tell)
            if begun.misses and self._are_rounds(template, small):
                return self._in_rounds(template, small)
        found = fit_reads(template, self.host, small, self.tell, ceiling, mixed, begun)
        is_known = found.tau <= CLEAN or (begun is not None and begun.misses)
        if is_known or not self._are_rounds(template, small):
            return found
        return self._in_rounds(template, small)

    def _are_rounds(self, template: DriveProfile, points: Sequence[Point]) -> bool:
        writes = [p for p in self.points if p.read_fraction == 0 and not p.held_out]
        return are_rounds(template, self.host, points, writes, self.tell, self.notes)

    def _in_rounds(self, template: DriveProfile, points: Sequence[Point]) -> Side:
        """A disk of rounds fitted to *points*: reads, or writes where there are no reads."""
        self.tell("pauses, by depths left out")
        size = points[0].block_size
        alone = [p for p in self.points if not p.held_out and p.block_size == size]
        self.pauses = fit_pauses([p for p in alone if p.read_fraction in (0, 1)])
        self.notes.append(self.pauses.text)
        self.tell("batch service, all depths")
        return fit_rounds(template, self.host, points, self.pauses)

    def _writes_behind(
        self, limits: FoundLimits, begun: Explanation, template: DriveProfile,
        points: Sequence[Point],
    ) -> Explanation:  # fmt: skip
        """Acknowledgement from the shallowest point; no point tells what the disk could drain."""
        shallow = [p for p in points if p.outstanding == min(p.outstanding for p in points)]
        found = fit_writes(template, self.host, shallow, "drain", self.tell, begun.joint)
        columns = {k: v for k, v in found.columns.items() if k != "write.program"}
        profile = found.profile
        unit = round(profile.write.unit.value)
        rate = BEHIND * max(limits.allowed(size) * size for size in (unit, 1 << 20)) / unit
        said = f"{BEHIND} times the limit: no capture determines it"
        program = Quantity(value=profile.dies.value / rate * 1e12, basis="assumed", source=said)
        self.notes.append(
            "all deeper writes are at the limit: the write rate of the disk behind it is assumed "
            f"({BEHIND} times the limit)"
        )
        made = with_numbers(profile, {"write.program": program, "write.commands": None})
        joint = {k: v for k, v in begun.joint.items() if k != "write.program"} | columns
        return replace(begun, limit="drain", profile=made, joint=joint, writes=found)

    def _judge(self, profile: DriveProfile, point: Point, used: bool) -> Judged:
        self.tell(f"checking {point.name}")
        # a round of all in flight tells of a tail but once
        rounds = 4_000 * point.outstanding if profile.rounds is not None else 0
        requests = max(FINAL_REQUESTS, min(rounds, MOST_REQUESTS))
        answer = measure(profile, self.host, point, requests=requests)
        return Judged(point, replace(answer, cpu_s=None) if self.included else answer, used)
