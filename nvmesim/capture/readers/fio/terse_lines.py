"""fio ``--output-format=terse``: one line a job, fields between semicolons, versions 2 to 5.

Latencies are microseconds in every version. Counts are not in it: requests are IOPS x run time.
Source: fio stat.c, show_thread_status_terse_v2 and following; fio HOWTO, terse output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from nvmesim.capture.capture import Capture, Latency, Measurement, OpResult
from nvmesim.capture.checked_numbers import MAX_LATENCY_S, MAX_RATE, checked, results, tell_apart
from nvmesim.capture.readers.fio import fio_jobs
from nvmesim.capture.readers.fio.normal_lines import StatedLoad, read_lines, read_stated_load
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError
from nvmesim.scenario.loads.fio_options import FioOptions
from nvmesim.warning import Warning

_LINE: Final = re.compile(
    r"(?:[2-5];fio-\d[^;\n]*;|^2;)[^;\n]*;\d{1,9};-?\d{1,9};\d+;", re.MULTILINE
)
"""Progress text may stand before it on the same line, cut wherever the terminal ended."""
_WIDTH: Final = {2: 41, 3: 41, 4: 41, 5: 47}
"""Version -> fields of a direction: 4 + slat 4 + clat 4 + 20 percentiles + lat 4 + bandwidth 5.

Version 5 adds bw_samples and five of IOPS.
"""
_TAIL: Final = 5 + 7 + 10 + 12
"""CPU, depths, latencies by us and by ms; disks and errors may follow."""
_SLAT, _CLAT, _PERCENTILES, _LAT = 4, 8, range(12, 32), 32
"""Where they stand in a direction: min, max, mean and deviation; percentiles of clat."""
_US: Final = 1e6
_VERSION: Final = re.compile(r"^fio[- ][0-9][^\s;]*\s*$", re.MULTILINE)
_LEVELS: Final = ("1", "2", "4", "8", "16", "32", ">=64")
_REST: Final = re.compile(r"[^;\n]{0,200};[^\n]*|\s*(?=\S)[\d.]{0,12}%?\s*")
"""The rest of a line that was wrapped: fields between semicolons, or the end of the last."""
_REPORT: Final = re.compile(r"\(groupid=\d+, jobs=\d+\): err=")
"""The normal output of a job, which a terse line beside it repeats."""
_MOST_PARTS: Final = 64
_CUT: Final = "the run was cut off or the file copied in part: repeat it"
_GROWTH: Final = 1.05
"""Run time from one ``--status-interval`` line of a job to the next grows by more than this."""


def sniff(head: Head) -> bool:
    """True if *head* has a terse line, not JSON beside it, and no more reports than such lines."""
    lines, reports = len(_LINE.findall(head.text)), len(_REPORT.findall(head.text))
    return 0 < lines >= reports and '"fio version"' not in head.text


def read(source: Source) -> Capture:
    """Read every job line; CaptureError if none is whole, or all are nothing but zeros."""
    text = source.text()
    problems: list[str] = []
    lines = list(_lines(source, text, problems))
    if not lines:
        raise source.error(problems[0] if problems else "has no whole terse line", _CUT)
    newest: dict[tuple[str, ...], _Line] = {}
    last: list[_Line] = []
    for line in lines:  # all but those that a later one of the same job continues
        identity = tuple(line.fields[line.name_at : line.name_at + 2])
        if identity in newest and line.continues(newest[identity]):
            last.remove(newest[identity])
        last.append(line)
        newest[identity] = line
    runs = _runs(last, text)
    warnings = ["terse output has no counts: requests are bytes over size, or IOPS x run time"]
    if len(last) < len(lines):
        warnings.append(
            f"{len(lines) - len(last)} lines were taken as earlier reports of the same jobs "
            "(--status-interval)"
        )
    if len(runs) > 1:
        warnings.append(f"{len(runs)} runs stand in this file, each measured by itself")
    jobs = _jobs(source, runs, text, problems)
    warnings += [f"left out: {problem}" for problem in problems]
    measured: list[list[Measurement]] = []
    for run, good in zip(runs, jobs, strict=True):
        if good:
            util = run[0].disk_util() if len(run) == 1 else {}
            measured.append(fio_jobs.measure_groups(source, good, util, warnings))
    version = last[-1].fio_version or _stated_load(text).version
    terse = f"terse {last[-1].version}"
    version = f"{version} ({terse})" if version else terse
    found = tell_apart(measured)
    return results(source, "fio-terse", found, warnings, version=version, rows=len(lines))


def _jobs(
    source: Source, runs: list[list[_Line]], text: str, problems: list[str]
) -> list[list[fio_jobs.FioJob]]:
    """Return the jobs of each run whose numbers can be; the others are added to *problems*."""
    errors: list[CaptureError] = []
    found: list[list[fio_jobs.FioJob]] = []
    single = sum(map(len, runs)) == 1
    rows, end = text.split("\n"), 0
    for run in runs:
        # The banner of a run stands between it and the run before.
        above = "\n".join(rows[end : run[0].number])
        load = _stated_load(text if len(runs) == 1 else above)
        end = run[-1].number
        found.append([])
        for line in run:
            try:
                found[-1].append(line.job(load, single))
            except CaptureError as error:
                errors.append(error)
    if not any(found):
        raise errors[0]
    problems += [fio_jobs.reason(source, error) for error in errors]
    return found


def _stated_load(text: str) -> StatedLoad:
    lines = list(read_lines(text))
    return read_stated_load(lines, lines)


def _runs(lines: list[_Line], text: str) -> list[list[_Line]]:
    """Split *lines* into runs: all lines of one end in the same figures of the drives."""
    banners = [text.count("\n", 0, m.start()) + 1 for m in _VERSION.finditer(text)]
    runs: list[list[_Line]] = []
    for line in lines:
        before = runs[-1][-1] if runs else None
        if (
            before is None
            or line.drives != before.drives
            or line.group < before.group
            or any(before.number < number < line.number for number in banners)
        ):
            runs.append([])
        runs[-1].append(line)
    return runs


@dataclass(frozen=True)
class _Line:
    source: Source
    number: int
    fields: list[str]

    @cached_property
    def version(self) -> int:
        return int(self.fields[0])

    @property
    def fio_version(self) -> str | None:
        return None if self.version == 2 else shown(self.fields[1].removeprefix("fio-"), 30)

    @cached_property
    def name_at(self) -> int:
        """Index of the job's name, behind which its group and error stand."""
        return 1 if self.version == 2 else 2

    @cached_property
    def blocks(self) -> dict[str, int]:
        """Operation -> index of its first field, for each before the figures of the CPU.

        Version 3 has no trims, an old version 2 neither. ``unified_rw_reporting`` makes one block
        of all, or adds one.
        """
        first, width = self.name_at + 3, _WIDTH[self.version]
        usual = 2 if self.version == 3 else 3
        for n in (usual, 2, 1, usual + 1):
            # CPU and depths stand behind the last block, and end in "%".
            at = first + n * width
            percents = [*self.fields[at : at + 2], *self.fields[at + 5 : at + 5 + len(_LEVELS)]]
            if len(percents) == 2 + len(_LEVELS) and all(
                text.endswith("%") and not text.startswith("0%=") for text in percents
            ):
                break
        else:
            n = usual
        trim = ["trim"] if self.version != 3 and n > 2 else []
        names = ["mixed"] if n == 1 else ["read", "write", *trim, "mixed"][:n]
        return {name: first + k * width for k, name in enumerate(names)}

    @cached_property
    def tail(self) -> int:
        """Index of the first field after the directions."""
        return self.name_at + 3 + len(self.blocks) * _WIDTH[self.version]

    def number_at(self, index: int, most: float) -> float:
        text = self.fields[index].strip().removesuffix("%")
        return checked(self.source, f"line {self.number}, field {index + 1}", text, most=most)

    @property
    def group(self) -> int:
        return int(self.fields[self.name_at + 1])

    @property
    def drives(self) -> list[str]:
        """Fields behind the job's own figures: those of the drives, alike in a run."""
        return [text for text in self.fields[self.tail + _TAIL :] if text.strip()]

    def disk_util(self) -> dict[str, float]:
        """Disk -> busy %, from the groups of nine fields at the end."""
        found = {}
        for at in range(self.tail + _TAIL, len(self.fields) - 8, 9):
            name, util = self.fields[at].strip(), self.fields[at + 8]
            if name and util.strip().endswith("%"):
                found[shown(name, 40)] = self.number_at(at + 8, 1e6)
        return found

    def continues(self, before: _Line) -> bool:
        """True if this is a later report of the same job: time, bytes and extremes only grow.

        One of a job that had not begun or has ended says the same again or nothing; one of a ramp
        time has no latencies yet.
        """
        if before.fields[: before.tail] == self.fields[: self.tail] or not before.runtime_ms():
            return True
        if not before.has_latencies() and self.has_latencies():
            return True
        if self.runtime_ms() <= _GROWTH * before.runtime_ms():
            return False
        for now, then in list(zip(self.blocks.values(), before.blocks.values(), strict=False))[:2]:
            if self.number_at(now, 2**53) < before.number_at(then, 2**53):
                return False
            low, high = (before.number_at(then + _CLAT + k, 1e18) for k in range(2))
            if high and self.number_at(now + _CLAT, 1e18) > low:
                return False
            if high and self.number_at(now + _CLAT + 1, 1e18) < high:
                return False
        return True

    def has_latencies(self) -> bool:
        """True if any direction has a completion or total latency."""
        return any(
            self.number_at(at + kind + 1, 1e18) > 0
            for at in self.blocks.values()
            for kind in (_CLAT, _LAT)
        )

    def runtime_ms(self) -> float:
        return max(self.number_at(at + 3, 1e12) for at in self.blocks.values())

    def job(self, load: StatedLoad, single: bool) -> fio_jobs.FioJob:
        name = shown(self.fields[self.name_at], 60)
        group = int(self.number_at(self.name_at + 1, 1e9))
        options = load.options(group, name)
        results = {op: self._result(at, options, op) for op, at in self.blocks.items()}
        return fio_jobs.FioJob(
            name=name,
            group=group,
            options=options,
            reported=results,
            runtime_s=self.runtime_ms() / 1000,
            error=abs(int(self.fields[self.name_at + 2])),
            threads=load.threads if single else 1 if load.threads else None,
            user_pct=self.number_at(self.tail, 1e6),
            system_pct=self.number_at(self.tail + 1, 1e6),
            notes=(Warning(fio_jobs.TRIMS, "trims are left out"),) if results.get("trim") else (),
            switches=round(self.number_at(self.tail + 2, 2**62)),
            levels={
                level: self.number_at(self.tail + 5 + k, 1e6) for k, level in enumerate(_LEVELS)
            },
        )

    def _result(self, at: int, options: FioOptions, op: str) -> OpResult | None:
        kib = self.number_at(at, 2**53)
        rate = self.number_at(at + 1, MAX_RATE / 1024)
        iops = self.number_at(at + 2, MAX_RATE)
        runtime_s = self.number_at(at + 3, 1e12) / 1000
        if not iops or not runtime_s:
            return None
        count = max(1, round(iops * runtime_s))
        size = fio_jobs.one_size(options, op)
        if size is not None:
            # IOPS are printed without decimals, KiB are exact.
            exact = int(kib) * 1024 // size
            if abs(exact / runtime_s - iops) <= 1 + fio_jobs.COUNT_TOLERANCE * iops:
                count, iops = exact, exact / runtime_s
        return OpResult(
            count=count,
            bytes=int(kib) * 1024,
            iops=iops,
            bytes_per_s=rate * 1024,
            slat=self._latency(at + _SLAT, count, {}),
            clat=self._latency(at + _CLAT, count, self._percentiles(at)),
            lat=self._latency(at + _LAT, count, {}),
        )

    def _latency(self, at: int, count: int, percentiles: dict[float, float]) -> Latency | None:
        low, high, mean, deviation = (
            self.number_at(at + k, MAX_LATENCY_S * _US) / _US for k in range(4)
        )
        if not mean or not high:
            return None
        return Latency(count, mean, low, high, deviation, percentiles)

    def _percentiles(self, at: int) -> dict[float, float]:
        found: dict[float, float] = {}
        for index in (at + k for k in _PERCENTILES):
            percent_text, mark, value_text = self.fields[index].partition("%=")
            where = f"line {self.number}, field {index + 1}"
            percent = checked(self.source, where, percent_text, most=100)
            value = checked(self.source, where, value_text, most=MAX_LATENCY_S * _US)
            if mark and (percent or value):
                found[percent] = value / _US
        return found if any(found.values()) else {}


def _lines(source: Source, text: str, problems: list[str]) -> Iterator[_Line]:
    """Yield the job lines of *text*, also those that a mailer or terminal wrapped."""
    rows = text.split("\n")
    for number, row in enumerate(rows, start=1):
        start = _LINE.search(row)
        if start is None:
            continue
        whole = row[start.start() :]
        for below in rows[number : number + _MOST_PARTS]:
            if not _REST.fullmatch(below) or _LINE.search(below):
                break
            whole += below.strip()
        line = _Line(source, number, whole.split(";"))
        if len(line.fields) < line.tail + _TAIL:
            problems.append(
                f"line {number} ends after {len(line.fields)} fields, terse version "
                f"{line.version} has at least {line.tail + _TAIL}"
            )
        else:
            yield line
