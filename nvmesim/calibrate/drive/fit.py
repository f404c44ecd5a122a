"""From captures of one drive to a profile with its evidence.

Time is counted once: with a host (`captured_on`) the bench is simulated with that host's
costs and link, so the profile holds the drive alone; without one, the host stays in the profile's
constants (`host_included`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nvmesim.calibrate.asked_host import host_parts, parse_host, told_host, usual_host
from nvmesim.calibrate.bench import BenchHost, free_host, measure
from nvmesim.calibrate.datasheet import Sheet, read_datasheet
from nvmesim.calibrate.drive import explanations, gate, laws, which_rows
from nvmesim.calibrate.drive.explaining import Evidence, explained
from nvmesim.calibrate.drive.explanations import Explanation, alternative, chosen
from nvmesim.calibrate.drive.read_side import Progress, host_ps
from nvmesim.calibrate.drive.starting_point import drive_of_rows, with_payload, with_streams
from nvmesim.calibrate.drive.write_side import fit_flush, is_volatile
from nvmesim.calibrate.evidence import DriveFit, Judged, joint_of
from nvmesim.calibrate.notes import drifts, mixed_devices, network_of, through
from nvmesim.calibrate.over_time.buffers import buffers_of
from nvmesim.calibrate.over_time.limits import FoundLimits, bursts_of, find_limits
from nvmesim.calibrate.over_time.stalls import REPLACED, fit_stalls
from nvmesim.calibrate.points import Point, hold_out, points_of
from nvmesim.calibrate.smallest.disk import without_bursts
from nvmesim.calibrate.smallest.line_fit import smaller
from nvmesim.calibrate.stack.full_threads import with_full_connections, with_full_threads
from nvmesim.calibrate.stack.scaled import host_of_rows, with_full_rows, with_pages
from nvmesim.capture.capture import Captures
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import WAIT_CV, DriveProfile, Quantity
from nvmesim.catalog.quantity import with_numbers
from nvmesim.errors import FitError

FINAL_REQUESTS = 60_000
MOST_REQUESTS = 400_000
DIES: Final = "no sheet says it: dies / die time is what the sheet tells"
STATED_JOBS: Final = 16
"""Threads of a data sheet's figure: enough that none of them is full."""
STATED: Final = {
    "commands": "random_read", "write.program": "random_write", "write.commands": "random_write",
    "read_bandwidth": "sequential_read", "write_bandwidth": "sequential_write",
}  # fmt: skip
"""Numbers of a profile, and the figure of a data sheet that tells them where no row does."""


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
        network = network_of(captures)
        notes += mixed_devices(captures) + through(network) + drifts(captures, stepped)
        if network.lower().startswith("nvme"):  # iSCSI has one connection for all
            points = with_full_connections(points)
            notes.append(
                f"{network}: CPU figures of the threads are left out, as workers of the "
                "connections did the rest; one deep thread tells its connection, and no ceiling"
            )
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
        rows = _measured(points, host, captured_on, link, sheet, said)
        if rows.doubts and not is_named:
            raise FitError(rows.doubts[0])
        return _fit(rows, name, limits, [*said, *rows.doubts], tell)

    told = None
    if host is None and isinstance(captures, Captures):
        told = told_host(captures) if captured_on is None else None
        told_by_names, why = which_rows.told_link(captures, points)
        if why and not link and "," not in (captured_on or ""):
            link = told_by_names
            captured_on = captured_on and f"{captured_on},{link}"
            notes.append(f"{why}: a link of {link} is taken")
    if told is not None:
        stack, why = told
        link = link or which_rows.least_link(points)
        fit = _on_told_host(on_host, f"{stack},{link}", why)
    elif captured_on is not None and host is None:
        link = link or host_parts(captured_on)[1]
        fit = _on_named_host(on_host, captured_on)
    else:
        fit = on_host(captured_on, host)
    if sheet is not None:
        besides = sheet.besides()
        if any(p.sync for p in points):  # then rows say what a flush takes
            besides = {k: v for k, v in besides.items() if not k.startswith("write.")}
        fit = replace(fit, profile=with_numbers(fit.profile, besides))
    if buffer is None or limits is not None:
        return fit
    size = buffer.quantity("the step in the rate of a long write")
    return replace(fit, profile=with_numbers(fit.profile, {"write.buffer": size}))


def fit_datasheet(
    sheet: Sheet, *, name: str | None = None, tell: Progress = lambda _: None
) -> DriveFit:
    """Fit a drive to the figures of *sheet*; capacity, link and power are the sheet's own."""
    title = name or sheet.texts.get("name") or sheet.file.stem
    fit = fit_drive(sheet.points(), name=title, link=sheet.link, tell=tell)
    said = {"basis": "datasheet", "source": sheet.source}
    numbers: dict[str, Quantity | str | bool] = {
        key: q.model_copy(update=said) for key, q in quantities(fit.profile) if q.basis == "fitted"
    }
    numbers["dies"] = fit.profile.dies.model_copy(update={"basis": "assumed", "source": DIES})
    if fit.profile.captured is not None:
        numbers["captured.datasheet"] = True
    more = {**sheet.besides(), "link": sheet.link}
    return replace(fit, profile=with_numbers(fit.profile, numbers | more))


def _on_told_host(on_host: Callable[..., DriveFit], captured_on: str, why: str) -> DriveFit:
    """The drive on the host that the captures tell; on none if the rows contradict that."""
    with suppress(FitError):
        fit = on_host(captured_on, None, is_named=False)
        if fit.meets_all:
            said = f"{why}: their host is taken as {captured_on}; --captured-on names it"
            return replace(fit, warnings=(said, *fit.warnings))
    return on_host(None, None)


def _on_named_host(on_host: Callable[..., DriveFit], captured_on: str) -> DriveFit:
    """The drive on the host *captured_on*; on none if only that meets the rows."""
    first: DriveFit | None = None
    try:
        first = on_host(captured_on, None)
        if first.meets_all:
            return first
        why = (*first.misses, *first.carried)[0]
        second = on_host(None, None)
    except FitError as error:
        if first is not None:
            return first
        second, why = on_host(None, None), str(error)
    if first is not None and not second.meets_all:
        return first
    said = (
        f"the rows contradict the host {captured_on} ({why}): its time counts as the drive's; "
        "check stack, clock and link of --captured-on"
    )
    return replace(second, warnings=(said, *second.warnings))


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


@dataclass(frozen=True)
class _Measured:
    """Rows of a drive, and the host that measured them."""

    points: list[Point]
    """With those that only a data sheet tells"""
    host: BenchHost
    captured_on: str | None
    included: bool
    """True if the host's time stays in the drive's constants"""
    stated: list[Point]
    """Figures of a data sheet, as the host would have measured them"""
    synchronous: bool
    """True if threads waited for each request, whatever depth was asked"""
    doubts: list[str]
    """Where the rows contradict the host"""


def _measured(
    points: Sequence[Point], host: BenchHost | None, captured_on: str | None, link: str | None,
    sheet: Sheet | None, notes: list[str],
) -> _Measured:  # fmt: skip
    included = host is None
    bench = host or free_host(link or which_rows.least_link(points))
    if sheet is not None:
        stated = sheet.expected(points, bench.link, is_flash=laws.is_flash(points))
        bench = replace(bench, sheet=stated)
    if included:
        points = [p.with_totals() for p in with_full_threads(points)[0]]
    bench = with_payload(bench, points, notes)
    of_sheet = [] if sheet is None else _as_measured(sheet, bench)
    said = len(notes)
    rows = which_rows.one_by_one(points, bench.link, notes)
    synchronous = len(notes) > said
    if not included:
        bench = with_pages(host_of_rows(bench, rows, notes), rows)
        rows = with_full_rows(bench, rows)
    doubts = list(which_rows.host_doubts(bench, rows, included))
    rows += _untold(of_sheet, rows)
    return _Measured(rows, bench, captured_on, included, of_sheet, synchronous, doubts)


def _fit(
    measured: _Measured, name: str, limits: FoundLimits | None, notes: list[str], tell: Progress
) -> DriveFit:
    points, host, included = measured.points, measured.host, measured.included
    limits = limits and limits.but_of(host.link)
    used = without_bursts(which_rows.of_the_drive(points, included, notes), host, notes)
    free = used if limits is None else limits.below(used)
    rows = which_rows.divided(points, free, host, notes)
    shown = points if limits is None else free or points  # rows at a limit are none of the drive
    blank = drive_of_rows(shown, host, name, measured.captured_on, included)
    best, others = _best(Evidence(rows, host, limits, notes, tell), blank)
    profile = best.profile
    notes += best.notes

    def judge(point: Point) -> Judged:
        tell(f"checking {point.name}")
        # a round of all in flight tells of a tail but once
        rounds = 4_000 * point.outstanding if profile.rounds is not None else 0
        requests = max(FINAL_REQUESTS, min(rounds, MOST_REQUESTS))
        answer = measure(profile, host, point, requests=requests)
        answer = replace(answer, cpu_s=None) if included else answer
        return Judged(point, answer, point in used)

    judged = [judge(p) for p in points]
    notes += gate.caveats(rows.reads, rows.writes, judged, included)
    unknown = gate.left_open(best.unidentified, best.told, used)
    best = replace(best, unidentified=unknown)
    notes += gate.undetermined(profile, judged, rows.reads, unknown, best.told, others)
    beside = [replace(judge(p), used=False) for p in measured.stated]
    profile = _recorded(measured, best, others, judged, beside)
    bench = usual_host(host.link) if included else host
    profile = explanations.with_threads_full(profile, bench, judged, notes)
    misses, carried = map(tuple, gate.misses(judged, included, host.clock_sd))
    said = tuple(dict.fromkeys(notes))
    return DriveFit(profile, tuple(judged), said, best.told, misses, carried)


def _best(
    evidence: Evidence, blank: DriveProfile
) -> tuple[Explanation, list[tuple[Explanation, float]]]:
    """The explanation that meets the rows best or most simply, and others with their weights."""
    rows, host, tell = evidence.rows, evidence.host, evidence.tell
    if evidence.limits is not None:
        evidence.notes.extend(evidence.limits.notes)
        blank = with_numbers(blank, {"limits": evidence.limits.profile})
    shown = [p for p in rows.given if not p.held_out]
    blank = with_streams(blank, host, rows.plain, tell, shown)
    first, others = chosen(explained(evidence, blank))
    best = first
    if not first.profile.sorts:
        # of mixes alone a line for their reads must leave the writes as they were
        reads, beside = rows.reads, (rows.mixes, rows.others)
        if not rows.are_measured:
            reads, beside = rows.mixes, (rows.writes, rows.others)
        (best, _), *likely = smaller(first, host, reads, rows.writes, beside, tell)
        others = others if best is first else likely
    profile = best.profile
    if rows.streamed:  # their bytes, now that the time beside these is known
        deep = [p for p in rows.plain if p.read_fraction == 0 and p not in rows.streamed]
        profile = with_streams(profile, host, deep or rows.streamed, tell)
    if not all(p.sync for p in rows.free if p.read_fraction == 0) or is_volatile(rows.free, host):
        # of rows that all flush, what is longer than a cached write is a volatile cache's
        profile = fit_flush(profile, host, rows.free, tell, evidence.notes)
    best = _with_stated(replace(best, profile=profile), host)
    stalls = fit_stalls(best.profile, host, rows.plain, tell)
    if stalls is None:
        return best, others
    kept = {key: draws for key, draws in best.joint.items() if key not in REPLACED}
    return replace(best, joint=kept).having(stalls, writes=stalls), []


def _with_stated(best: Explanation, host: BenchHost) -> Explanation:
    """*best*, its open numbers that the data sheet tells marked so."""
    told = {k for k, figure in STATED.items() if figure in host.sheet}
    unidentified = {k: v for k, v in best.unidentified.items() if k not in told}
    numbers = {
        key: q.model_copy(update={"basis": "datasheet"})
        for key, q in quantities(best.profile)
        if key in told and q.basis == "assumed" and q.low is not None and q.high is not None
        and q.low <= host.sheet[STATED[key]].value <= q.high
    }  # fmt: skip
    return replace(best, profile=with_numbers(best.profile, numbers), unidentified=unidentified)


def _recorded(
    measured: _Measured, best: Explanation, others: Sequence[tuple[Explanation, float]],
    judged: Sequence[Judged], beside: Sequence[Judged],
) -> DriveProfile:  # fmt: skip
    """The profile with all that a prediction draws from and says."""
    profile, used = best.profile, [j.point for j in judged if j.used]
    own = [j for j in judged if j.point not in measured.stated]
    # waits in order, and dies that meet the percentiles of who waits: the tail is told
    is_told = any(p.percentiles_s and laws.waits(p) for p in used)
    update = {
        "wait_cv": 0.0 if is_told else WAIT_CV,
        "joint": joint_of(profile, best.joint),
        "alternatives": tuple(alternative(e, profile, w) for e, w in others),
        # what a drive shares with others, or a full thread did, is no misfit of its own
        "residuals": (
            *(gate.residual(j) for j in own if j.used or j.point.held_out),
            *(gate.residual(j, is_beside=True) for j in beside),
        ),
        "captured": gate.captured(
            [j.point for j in own if j.used] or used, measured.captured_on,
            measured.host.stack, synchronous=measured.synchronous,
        ),
        "untold": dict(best.unidentified), "missed": gate.missed(judged, measured.included),
    }  # fmt: skip
    return with_numbers(profile, {k: v for k, v in update.items() if v})
