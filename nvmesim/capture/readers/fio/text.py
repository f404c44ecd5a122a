"""fio's normal output, as people paste it: the runs of a text, and the reports of each run.

A text may hold several runs, one after the other: each is measured by itself. What ran at once
stands before one ``Run status group``, whose sums the reports must make.
Source: fio stat.c, show_run_stats; fio 1.50 to 3.42.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from nvmesim.capture.capture import Capture, Measurement
from nvmesim.capture.fields import checked
from nvmesim.capture.readers.fio.banner import (
    BANNER_JOB,
    INTERRUPTED,
    Banner,
    command_options,
    read_banner,
)
from nvmesim.capture.readers.fio.groups import measure_groups
from nvmesim.capture.readers.fio.jobs import ALL_CLIENTS, OPS, FioJob
from nvmesim.capture.readers.fio.options import Options
from nvmesim.capture.readers.fio.text_section import CUT, SECTION, ReportSection, section_of
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError

_EVENT: Final = re.compile(
    rf"(?P<section>{SECTION.pattern})|(?P<banner>{BANNER_JOB})"
    r"|^(?P<version>fio[- ][0-9][^\s;]*)\s*$"
    r"|^[ \t]*(?P<status>Run status group (?P<number>\d{1,9})\b[^\n]*)$",
    re.MULTILINE,
)
_STATUS_LINE: Final = re.compile(
    r"^[ \t]*(READ|WRITE)\s*:[^\n]*?\bio=\s*(?P<io>[0-9.,]*[0-9])(?P<prefix>[KMGTP]?)(?P<i>i?)B?\b"
    r"(?P<rest>[^\n]*)$",
    re.MULTILINE,
)
_DISK: Final = re.compile(r"^[ \t]+(\S+): ios=[^\n]*?, util=([0-9.]+)%", re.MULTILINE)
_HEADING: Final = re.compile(r"^#+\s+(\S[^\n]{0,80})$|^(/[\w./-]{1,80}):?\s*$", re.MULTILINE)
_FAILED: Final = re.compile(
    r"^fio: pid=\d+, err=(\d{1,9})/[^\n]*?func=([^\n]{1,120})$", re.MULTILINE
)
"""Text that fio prints of a job that fails, which has no report then."""
NOT_STARTED: Final = "0"
"""The process of a job that waits for those before it."""
SUM_TOLERANCE: Final = 0.03
"""Both sides are printed with three digits at least, and a drive's last requests count in one."""
SAME_RUN_S: Final = 60
"""Reports of a run are printed one after the other: dates further apart are of other runs."""


def sniff(head: Head) -> bool:
    """True if *head* has the header of a job's report, and no JSON beside it."""
    return bool(SECTION.search(head.text)) and '"fio version"' not in head.text


def read(source: Source) -> Capture:
    """Read every run; CaptureError if there is none whose reports are whole and true."""
    text = source.text()
    runs = split_runs(source, text)
    reported = [run for run in runs if run.sections]
    if not reported:
        raise source.error("has no report of a fio job", "give the whole output of fio")
    warnings: list[str] = []
    if INTERRUPTED in text:
        warnings.append("the run was interrupted by a signal")
    if len(reported) < len(runs):
        warnings.append(f"{len(runs) - len(reported)} runs ended without a report")
    if len(reported) > 1:
        warnings.append(f"{len(reported)} runs stand in this file, each measured by itself")
    found = _measured(source, reported, warnings)
    versions = dict.fromkeys(run.banner.version for run in reported if run.banner.version)
    return Capture(
        file=source.path,
        format="fio-text",
        version=", ".join(versions) or None,
        measurements=tuple(found),
        rows=sum(len(run.sections) for run in reported),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _measured(source: Source, runs: list[TextRun], warnings: list[str]) -> list[Measurement]:
    """Measurements of all *runs*; a run that is of no use is said, if another is of use."""
    found: list[tuple[TextRun, list[Measurement]]] = []
    problems: list[CaptureError] = []
    for run in runs:
        try:
            found.append((run, run.measure(source, warnings)))
        except CaptureError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    warnings += [f"left out: {_reason(source, problem)}" for problem in problems]
    if len(runs) == 1:
        return found[0][1]
    names = _names([run for run, _ in found], runs)
    return [
        replace(m, label=f"{m.label} ({name})")
        for name, (_, some) in zip(names, found, strict=True)
        for m in some
    ]


def _reason(source: Source, error: CaptureError) -> str:
    return str(error).removeprefix(f"{source.path}: ")


def _names(found: list[TextRun], runs: list[TextRun]) -> list[str]:
    """Tell runs apart by the drive or folder of their commands, by headings, or by number."""
    for names in ([run.target for run in found], [run.heading for run in found]):
        if all(names) and len(set(names)) == len(found):
            return names
    return [f"run {runs.index(run) + 1}" for run in found]


@dataclass
class TextRun:
    """One run of fio: what stood before its reports, the reports, what stood after."""

    before: int
    """Where what belongs to it starts in the text."""
    version_seen: bool = False
    sections: dict[tuple[int, str, str], ReportSection] = field(default_factory=dict)
    status: list[tuple[int, int]] = field(default_factory=list)
    """Where each ``Run status group`` starts, and its number."""
    closed: set[int] = field(default_factory=set)
    """Groups whose status has come since a known job was reported anew."""
    banner: Banner = field(default_factory=Banner)
    command: dict[str, str] = field(default_factory=dict)
    heading: str = ""
    sums: dict[int, dict[str, tuple[float, str]]] = field(default_factory=dict)
    """Group -> READ or WRITE -> bytes of its summary line, and these as printed."""
    util: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Messages of fio about jobs that failed."""

    @property
    def target(self) -> str:
        """The file, drive or folder that the command names, or nothing."""
        return shown(self.command.get("filename") or self.command.get("directory") or "", 40)

    def takes(self, section: ReportSection) -> bool:
        """True if *section* is one more report of this run."""
        if not self.sections:
            return True
        known = self.sections.get(section.identity)
        if known is not None:
            # With --status-interval a job is reported again and again. Its requests become more,
            # or start anew behind a ramp time.
            same = section.pid not in ("", "0") or section.progress() >= known.progress()
            return bool(section.pid) and same
        if (section.group, section.name, NOT_STARTED) in self.sections:
            return True
        last = next(reversed(self.sections.values()))
        if section.group in self.closed:
            return False
        if section.group < last.group:
            return False
        return not _apart(section.date, last.date)

    def measure(self, source: Source, warnings: list[str]) -> list[Measurement]:
        """Merge the reports that ran at once; those that cannot be true are said and left out."""
        jobs: list[FioJob] = []
        problems: dict[int, CaptureError] = {}
        for section in self.sections.values():
            try:
                jobs.append(section.job(self._options(section)))
            except CaptureError as error:
                problems.setdefault(section.group, error)
        for group in dict.fromkeys(job.group for job in jobs):
            try:
                self._check_sums(source, group, [job for job in jobs if job.group == group])
            except CaptureError as error:
                problems.setdefault(group, error)
        # A report beside a bad one lost its load, so the group goes as a whole.
        good = [job for job in jobs if job.group not in problems]
        if problems and not good:
            raise next(iter(problems.values()))
        warnings += [f"left out: {_reason(source, problem)}" for problem in problems.values()]
        if self.failed and not any(section.error for section in self.sections.values()):
            warnings.append(
                f"{len(self.failed)} jobs failed (the first: {self.failed[0]}); the others lost "
                "their load"
            )
        return measure_groups(source, good, {} if problems else self.util, warnings)

    def _options(self, section: ReportSection) -> Options:
        return self.banner.of(section.group, section.name, self.command)

    def _check_sums(self, source: Source, group: int, jobs: list[FioJob]) -> None:
        """Hold the reports of *group* against the summary of what ran together."""
        if any(job.error or job.mixed for job in jobs):
            return
        for op, (expected, printed) in self.sums.get(group, {}).items():
            results = [job.ops.get(name) for job in jobs for name in OPS if name == op.lower()]
            found = sum(result.bytes for result in results if result)
            if (
                results
                and all(r is None or r.bytes for r in results)
                and not (abs(found - expected) <= SUM_TOLERANCE * max(found, expected))
            ):
                raise source.error(
                    f"group {group}: its reports have {found:,} B of {op.lower()}s, its summary "
                    f"{printed}",
                    CUT,
                )


def _apart(one: str, other: str) -> bool:
    """True if two dates of reports are too far apart for one run."""
    try:
        gap = datetime.strptime(one, "%c") - datetime.strptime(other, "%c")
    except ValueError:
        return False
    return abs(gap.total_seconds()) > SAME_RUN_S


def split_runs(source: Source, text: str) -> list[TextRun]:
    """Split *text* at its banners, and where reports begin anew."""
    events = list(_EVENT.finditer(text))
    ends = [*(match.start() for match in events), len(text)][1:]
    runs: list[TextRun] = []
    spans: list[list[int]] = []
    line, counted, done = 1, 0, 0
    for match, end in zip(events, ends, strict=True):
        run = runs[-1] if runs else None
        section = None
        if match["section"]:
            line += text.count("\n", counted, match.start())
            counted = match.start()
            section = section_of(source, match, line, text[match.end() : end])
            if section.name == ALL_CLIENTS and runs:
                continue
        if run is None or _begins(run, match, section):
            run = TextRun(done)
            runs.append(run)
            spans.append([done, match.start(), 0])
        run.version_seen |= match["version"] is not None
        if section is not None:
            run.sections.pop((section.group, section.name, NOT_STARTED), None)
            if section.identity in run.sections:
                run.closed.clear()
            run.sections[section.identity] = section
        elif match["status"]:
            run.status.append((match.end(), int(match["number"])))
            run.closed.add(int(match["number"]))
            done = match.end()
        done = max(done, _body_end(text, match, end))
        spans[-1][2] = end
    for run, (first, start, end) in zip(runs, spans, strict=True):
        _finish(source, run, text, (first, start, end))
    return runs


def _begins(run: TextRun, match: re.Match[str], section: ReportSection | None) -> bool:
    """True if *match* is the first of a new run, after what *run* has already."""
    if section is not None:
        return not run.takes(section)
    if match["status"]:
        return False
    return bool(run.sections) or run.version_seen


def _body_end(text: str, match: re.Match[str], end: int) -> int:
    """Where what surely belongs to *match* ends: its line, for what follows may be another's."""
    return min(end, match.end())


def _finish(source: Source, run: TextRun, text: str, span: tuple[int, int, int]) -> None:
    """Read what stands around the reports of *run*: banner, command, heading, sums, drives."""
    first, start, end = span
    head_end = (
        text.find(next(iter(run.sections.values())).name + ": (groupid=", start)
        if run.sections
        else end
    )
    run.banner = read_banner(text[start : head_end if head_end > start else end])
    run.failed = [shown(words, 60) for _, words in _FAILED.findall(text[start:end])]
    preamble = text[first:start][-4000:]
    run.command = command_options(preamble)
    headings = _HEADING.findall(preamble)
    run.heading = shown(next((t for pair in reversed(headings) for t in pair if t), ""), 40)
    bounds = [*(at for at, _ in run.status), end][1:]
    for (at, group), stop in zip(run.status, bounds, strict=True):
        run.sums[group] = _sums(source, text[at:stop])
    disks = text.find("Disk stats", run.status[-1][0] if run.status else start, end)
    for name, value in _DISK.findall(text[disks:end]) if disks >= 0 else ():
        where = f"util of {shown(name, 20)}"
        run.util[shown(name, 40)] = checked(source, where, value, most=1e6)


def _sums(source: Source, text: str) -> dict[str, tuple[float, str]]:
    """READ and WRITE -> bytes of the summary lines at the start of *text*."""
    found: dict[str, tuple[float, str]] = {}
    for match in _STATUS_LINE.finditer(text.split("Disk stats")[0]):
        number = checked(source, "io of a summary", match["io"].replace(",", ""), most=2**60)
        # Before fio 3 the unit was binary and written without its i.
        base = 1024.0 if match["i"] or "aggrb=" in match[0] else 1000.0
        power = "KMGTP".find(match["prefix"]) + 1 if match["prefix"] else 0
        printed = f"{match['io']}{match['prefix']}{match['i']}B"
        found.setdefault(match[1], (number * base**power, printed))
    return found
