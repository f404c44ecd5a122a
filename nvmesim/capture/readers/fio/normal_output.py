"""fio's normal output, as people paste it: the runs of a text, and the reports of each run.

A text may hold several runs, one after the other: each is measured by itself. What ran at once
stands before one ``Run status group``, whose sums the reports must make. A line of an operation
without a report around it is a run of its own; so are sums without reports.
Source: fio stat.c, show_run_stats; fio 1.50 to 3.42.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from nvmesim.capture.capture import OPS, Capture, Measurement, OpResult
from nvmesim.capture.checked_numbers import checked, results
from nvmesim.capture.readers.fio.fio_jobs import (
    ALL_CLIENTS,
    INTERRUPTED,
    FioJob,
    measure_groups,
    reason,
)
from nvmesim.capture.readers.fio.normal_lines import (
    SECTION,
    Line,
    StatedLoad,
    read_lines,
    read_stated_load,
)
from nvmesim.capture.readers.fio.normal_section import (
    CUT,
    OPERATION,
    TRIMMED,
    ReportSection,
    prefixed,
    section_of,
)
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError
from nvmesim.scenario.loads.fio_options import FioOptions
from nvmesim.warning import Warning

_SNIFF: Final = re.compile(
    r"^[^\n\"]{1,300}?: \(groupid=\d+,"
    r"|^[^\n\":]{0,60}?\b(?:read|write)[ \t]*: ?(?:IOPS=[^\n]*\bBW=|io=[^\n]*\biops=)"
    r"|^[ \t]*(?:[A-Z]{1,20} )?(?:READ|WRITE):\s*(?:bw=[^\n]*|io=[^\n]*\baggrb=)",
    re.MULTILINE,
)
_SPDK: Final = re.compile(r"^[ \t]*Device Information\s*:", re.MULTILINE)
"""The table of SPDK's perf, beside which sums of fio are left."""
_SECTION: Final = re.compile(r"[ \t]*" + SECTION)
_SUM: Final = re.compile(
    r"(READ|WRITE)\s*:[^\n]*?\bio=\s*(?P<io>[0-9.,]*[0-9])(?P<prefix>[KMGTP]?)(?P<i>i?)B?\b"
)
_SUM_TIME: Final = re.compile(
    r"run=\d+-(\d{1,12})msec|maxt=\s*(\d{1,12})msec|mint=\s*(\d{1,12})msec"
)
_DRIVE: Final = re.compile(r"(\S+): ios=.*?, util=([0-9.]+)%")
_FAILED: Final = re.compile(r"fio: pid=\d+, err=(\d{1,9})/.*?func=([^\n]{1,120})$")
"""Text that fio prints of a job that fails, which has no report then."""
NOT_STARTED: Final = "0"
"""The process of a job that waits for those before it."""
SUM_TOLERANCE: Final = 0.03
"""Both sides are printed with three digits at least, and a drive's last requests count in one."""
SAME_RUN_S: Final = 60
"""Reports of a run are printed one after the other: dates further apart are of other runs."""
_CONTEXT: Final = 60
"""Lines before a run that may state its load."""
_TELLING: Final = re.compile(r"\d|=|depth|block|job|thread", re.IGNORECASE)
"""Prose between two reports with such words may be of another load."""
INHERITED: Final = "load-inherited"
"""Code of the warning that a run's load was taken from what stands above the run before it."""
WRAPPED: Final = "wrapped-lines"


def sniff(head: Head) -> bool:
    """True if *head* has a line of a job's report, and no JSON or results of SPDK beside it."""
    found = _SNIFF.search(head.text)
    is_sum = found is not None and re.match(r"[ \t]*(?:[A-Z]+ )?(?:READ|WRITE):", found[0])
    if is_sum and _SPDK.search(head.text) and "(groupid=" not in head.text:
        return False
    return found is not None and '"fio version"' not in head.text


def read(source: Source) -> Capture:
    """Read every run; CaptureError if there is none whose reports are whole and true."""
    text = source.text()
    lines = list(read_lines(text))
    runs = _Splitter(source).split(lines)
    reported = [run for run in runs if run.sections or run.has_only_sums]
    if not reported:
        raise source.error("has no report of a fio job", "give the whole output of fio")
    warnings: list[str] = []
    wrapped = sum(line.parts > 1 for line in lines if line.kind != "command")
    if wrapped:
        warnings.append(Warning(WRAPPED, f"{wrapped} lines were wrapped, and are read as whole"))
    if INTERRUPTED in text:
        warnings.append("the run was interrupted by a signal")
    if len(reported) < len(runs):
        warnings.append(f"{len(runs) - len(reported)} runs ended without a report")
    if len(reported) > 1:
        warnings.append(f"{len(reported)} runs stand in this file, each measured by itself")
    found = _measured(source, reported, warnings)
    versions = dict.fromkeys(run.load.version for run in reported if run.load.version)
    rows = sum(len(run.sections) or 1 for run in reported)
    version = ", ".join(versions) or None
    return results(source, "fio-text", found, warnings, version=version, rows=rows)


def _measured(source: Source, runs: list[TextRun], warnings: list[str]) -> list[Measurement]:
    """Measurements of all *runs*; a run that is of no use is said, if another is of use."""
    found: dict[int, list[Measurement]] = {}
    problems: list[CaptureError] = []
    for number, run in enumerate(runs):
        try:
            found[number] = run.measure(source, warnings)
        except CaptureError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    warnings += [f"left out: {reason(source, problem)}" for problem in problems]
    if len(runs) == 1:
        return found[0]
    # Runs are told apart by the drive or folder of their commands, by headings, or by number.
    targets, headings = [runs[k].load.target for k in found], [runs[k].load.heading for k in found]
    numbers = [f"run {k + 1}" for k in found]
    names = next(n for n in (targets, headings, numbers) if all(n) and len(set(n)) == len(n))
    return [
        replace(m, label=f"{m.label} ({name})")
        for name, measurements in zip(names, found.values(), strict=True)
        for m in measurements
    ]


@dataclass(frozen=True)
class _Sum:
    """What a summary line says of an operation."""

    bytes: float
    printed: str
    runtime_s: float

    def is_near(self, found: int) -> bool:
        """True if *found* bytes may be what was printed; fio prints 21.97 MiB as 21.0MiB."""
        number = float(self.printed.rstrip("KMGTPiB").replace(",", "") or 0)
        lost = 1 / number if ".0" in self.printed and number else 0.0
        low, high = self.bytes, self.bytes * (1 + lost)
        slack = SUM_TOLERANCE * max(found, self.bytes)
        return low - slack <= found <= high + slack


@dataclass
class TextRun:
    """One run of fio: what stood before its reports, the reports, what stood after."""

    before: list[Line]
    lines: list[Line] = field(default_factory=list)
    """Banner, version and what else fio prints before its reports."""
    version_seen: bool = False
    sections: dict[tuple[int, str, str], ReportSection] = field(default_factory=dict)
    sums: dict[int, dict[str, _Sum]] = field(default_factory=dict)
    """Group -> READ or WRITE -> its summary line."""
    closed: set[int] = field(default_factory=set)
    """Groups whose status has come since a known job was reported anew."""
    util: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Messages of fio about jobs that failed."""
    load: StatedLoad = field(default_factory=StatedLoad)
    inherits: bool = False
    """True if `load` stands above the run before."""

    def shape(self) -> dict[tuple[int, str, int], tuple[object, ...]]:
        """Jobs of its reports and what these tell of their load; nothing if one is cut."""
        found: dict[tuple[int, str, int], tuple[object, ...]] = {}
        for section in self.sections.values():
            try:
                job = section.job(FioOptions({}, complete=False), section.threads)
            except CaptureError:
                return {}
            sizes = {op: _size_of(result) for op, result in job.reported.items()}
            told = (*sizes.items(), job.options.given.get("iodepth"))
            found[section.group, section.name, section.threads or 0] = told
        return found

    @property
    def has_only_sums(self) -> bool:
        """True if there is a summary, and no report."""
        return bool(self.sums) and not self.sections

    def takes(self, section: ReportSection) -> bool:
        """True if *section* is one more report of this run."""
        if not self.sections:
            return not self.sums
        last = next(reversed(self.sections.values()))
        if section.is_headless or last.is_headless:
            return False
        known = self.sections.get(section.identity)
        if known is not None:
            # With --status-interval a job is reported again and again. Its requests become more,
            # or start anew behind a ramp time.
            same = section.pid not in ("", "0") or section.progress() >= known.progress()
            return bool(section.pid) and same
        if (section.group, section.name, NOT_STARTED) in self.sections:
            return True
        if section.group in self.closed or section.group < last.group:
            return False
        return not _apart(section.date, last.date)

    def measure(self, source: Source, warnings: list[str]) -> list[Measurement]:
        """Merge the reports that ran at once; those that cannot be true are said and left out."""
        jobs: list[FioJob] = []
        problems: dict[int, CaptureError] = {}
        for section in self.sections.values():
            is_bare = not (section.lines or len(self.sections) > 1) and section.group in self.sums
            try:
                jobs.append(self._job_of_sums(source) if is_bare else self._job(section))
                warnings += [] if is_bare else section.losses()
            except CaptureError as error:
                problems.setdefault(section.group, error)
        if self.has_only_sums:
            jobs = [self._job_of_sums(source)]
        for group in dict.fromkeys(job.group for job in jobs):
            try:
                self._check_sums(source, group, [job for job in jobs if job.group == group])
            except CaptureError as error:
                problems.setdefault(group, error)
        # A report beside a bad one lost its load, so the group goes as a whole.
        good = [job for job in jobs if job.group not in problems]
        if problems and not good:
            raise next(iter(problems.values()))
        warnings += [f"left out: {reason(source, problem)}" for problem in problems.values()]
        if self.failed and not any(section.error for section in self.sections.values()):
            warnings.append(
                f"{len(self.failed)} jobs failed (the first: {self.failed[0]}); the others lost "
                "their load"
            )
        if self.inherits and (self.load.command or self.load.job_file or self.load.banner):
            text = "the load of a run is taken from what stands above another run of its jobs"
            warnings.append(Warning(INHERITED, text))
        return measure_groups(source, good, {} if problems else self.util, warnings)

    def _job(self, section: ReportSection) -> FioJob:
        options = self.load.options(section.group, section.name)
        threads = section.threads
        if threads is None:
            jobs = options.whole("numjobs", 1 if options.complete else None)
            # Without group_reporting such a line is one of several jobs.
            threads = jobs if jobs == 1 or options.flag("group_reporting") else None
        return section.job(options, threads)

    def _job_of_sums(self, source: Source) -> FioJob:
        """Return the job of a summary, whose requests follow from the stated size."""
        section = next(iter(self.sections.values()), None)
        banner = next(iter(self.load.banner), (0, ""))
        options = self.load.options(*((section.group, section.name) if section else banner))
        jobs = options.whole("numjobs", 1 if options.complete else self.load.threads)
        (group, sums), *_ = self.sums.items()
        results: dict[str, OpResult | None] = {}
        for op in OPS:
            one, sizes = sums.get(op.upper()), options.block_sizes(op) or {}
            if one is None:
                continue
            if len(sizes) != 1 or not one.runtime_s:
                raise source.error(
                    "is a part of fio's report: sums of bandwidth, no requests and no block size",
                    "copy the whole report, or the command with its --bs",
                )
            count = round(one.bytes / next(iter(sizes)))
            rate = 1 / one.runtime_s
            results[op] = OpResult(count, round(one.bytes), count * rate, one.bytes * rate)
        note = "counts are bytes over the block size: only the run's sums are there"
        return FioJob(
            name=section.name if section else banner[1] or "all jobs",
            group=group,
            options=options,
            reported=results,
            runtime_s=max((one.runtime_s for one in sums.values()), default=0.0),
            threads=section.threads if section else jobs,
            notes=(Warning(TRIMMED, note),),
        )

    def _check_sums(self, source: Source, group: int, jobs: list[FioJob]) -> None:
        """Hold the reports of *group* against the summary of what ran together."""
        is_headless = any(section.is_headless for section in self.sections.values())
        if is_headless or any(job.error or job.mixed for job in jobs):
            return
        for op in OPS:
            expected = self.sums.get(group, {}).get(op.upper())
            sizes = [job.ops[op].bytes for job in jobs if op in job.ops]
            if jobs and expected and all(sizes) and not expected.is_near(sum(sizes)):
                raise source.error(
                    f"group {group}: its reports have {sum(sizes):,} B of {op}s, its summary "
                    f"{expected.printed}",
                    CUT,
                )


def _size_of(result: OpResult | None) -> int:
    """The power of two that is about the bytes of a request; 0: none."""
    each = result.bytes_per_s / result.iops if result is not None and result.iops else 0.0
    return round(math.log2(each)) if each > 0 else 0


def _apart(one: str, other: str) -> bool:
    """True if two dates of reports are too far apart for one run."""
    try:
        gap = datetime.strptime(one, "%c") - datetime.strptime(other, "%c")
    except ValueError:
        return False
    return abs(gap.total_seconds()) > SAME_RUN_S


class _Splitter:
    """Splits lines at banners, and where reports begin anew."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._runs: list[TextRun] = []
        self._context: list[Line] = []
        """Lines that no run owns, since the last that one does."""
        self._section: ReportSection | None = None
        self._sums: dict[str, _Sum] | None = None
        self._after_blank = False
        self._skips = False

    def split(self, lines: list[Line]) -> list[TextRun]:
        """Return the runs of *lines*."""
        take = {
            **dict.fromkeys(("banner", "version", "starting"), self._head),
            **{"section": self._header, "direction": self._direction, "group": self._group},
            **{"sum": self._sum, "drive": self._drive, "message": self._message},
            **dict.fromkeys(("command", "other"), self._prose),
        }
        for line in lines:
            if line.kind in take:
                take[line.kind](line)
            elif self._section is not None and line.kind not in ("blank", "ellipsis", "progress"):
                self._section.lines.append(line)
            if line.kind != "ellipsis":
                self._after_blank = line.kind == "blank"
        for run, before in zip(self._runs, [None, *self._runs], strict=False):
            # what stands above it, else above the run before
            load = run.load = read_stated_load(run.before, run.lines)
            if (
                before is not None
                and not (load.command or load.job_file or load.banner)
                and (before.load.command or before.load.job_file)
                and not any(_TELLING.search(x.text) for x in run.before if x.kind == "other")
            ):
                run.load = replace(
                    before.load, version=load.version, banner={}, heading=load.heading
                )
                run.inherits = True
        for run in self._runs:
            if not (run.load.command or run.load.job_file or run.load.banner) and run.sections:
                self._name(run)
        return self._runs

    def _name(self, run: TextRun) -> None:
        """Give *run* the load of the others whose reports are of the same jobs, if it is one."""
        shape = run.shape()
        loads = [x.load for x in self._runs if x.load.banner and shape and x.shape() == shape]
        if loads and all(load.banner == loads[0].banner for load in loads):
            own = run.load
            run.load = replace(loads[0], version=own.version, heading=own.heading)
            run.inherits = True

    def _run(self) -> TextRun | None:
        return self._runs[-1] if self._runs else None

    def _begin(self) -> TextRun:
        self._runs.append(TextRun(self._context[-_CONTEXT:]))
        self._context, self._section, self._sums = [], None, None
        return self._runs[-1]

    def _head(self, line: Line) -> None:
        run = self._run()
        is_new = run is None or run.sections or run.sums
        if run is None or is_new or (run.version_seen and line.kind != "starting"):
            run = self._begin()
        run.version_seen |= line.kind == "version"
        run.lines.append(line)
        self._section, self._skips = None, False

    def _header(self, line: Line) -> None:
        match = _SECTION.match(line.text)
        if match is None:
            return
        section = section_of(self._source, match, line.number)
        run = self._run()
        self._skips = section.name == ALL_CLIENTS and run is not None
        self._section, self._sums = None, None
        if self._skips:
            return
        if run is None or not run.takes(section):
            run = self._begin()
        run.sections.pop((section.group, section.name, NOT_STARTED), None)
        if section.identity in run.sections:
            run.closed.clear()
        run.sections[section.identity] = section
        self._section, self._context = section, []

    def _direction(self, line: Line) -> None:
        if self._skips:
            return
        match = OPERATION.search(line.text)
        section = self._section
        if (
            section is None
            or section.is_ended
            or not section.takes(match[1] if match else "", line)
        ):
            run = self._run()
            # A banner without a report, and then the line of an operation: its head was cut out.
            if run is None or run.sections or run.sums or not run.lines:
                run = self._begin()
            else:
                run.before += self._context
            names = [x.text.split(": (g=")[0].strip() for x in run.lines if x.kind == "banner"]
            name = shown(names[0], 60) if names else ""
            section = ReportSection(self._source, line.number, name or f"line {line.number}")
            run.sections[section.identity] = section
            self._section, self._context, self._sums = section, [], None
        section.lines.append(line)

    def _group(self, line: Line) -> None:
        run = self._run() or self._begin()
        number = re.search(r"group (\d+)", line.text)
        group = int(number[1]) if number else 0
        if run.lines and not run.sections and self._section is None and group in run.sums:
            run = self._begin()
        self._sums = run.sums[group] = {}
        run.closed.add(group)
        self._section, self._context, self._skips = None, [], False

    def _sum(self, line: Line) -> None:
        match = _SUM.search(line.text)
        if match is None:
            return
        run = self._run()
        if self._sums is None or match[1] in self._sums:
            group = 0
            if self._section is not None and run is not None:
                group = self._section.group
            elif run is None or run.sections or run.sums:
                run = self._begin()
            self._sums = run.sums.setdefault(group, {})
            run.closed.add(group)
        number = checked(self._source, "io of a summary", match["io"].replace(",", ""), most=2**60)
        # Before fio 3 the unit was binary and written without its i.
        scale = prefixed(match["prefix"], binary=bool(match["i"]) or "aggrb=" in line.text)
        time = _SUM_TIME.search(line.text)
        seconds = int(next(filter(None, time.groups()))) / 1000 if time else 0.0
        printed = f"{match['io']}{match['prefix']}{match['i']}B"
        self._sums.setdefault(match[1], _Sum(number * scale, printed, seconds))
        self._section, self._context = None, []

    def _drive(self, line: Line) -> None:
        run, match = self._run(), _DRIVE.search(line.text)
        if run is None or match is None:
            return
        name = shown(match[1], 40)
        run.util[name] = checked(self._source, f"util of {shown(name, 20)}", match[2], most=1e6)
        self._context = []

    def _message(self, line: Line) -> None:
        run, match = self._run(), _FAILED.search(line.text)
        if run is not None and match is not None:
            run.failed.append(shown(match[2], 60))

    def _prose(self, line: Line) -> None:
        section, is_apart = self._section, self._after_blank or line.kind == "command"
        if section is None or is_apart or section.is_headless or section.is_ended:
            self._section = self._sums = None
        self._context.append(line)
