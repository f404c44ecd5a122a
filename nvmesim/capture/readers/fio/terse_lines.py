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
from nvmesim.capture.fields import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.capture.readers.fio.fio_groups import COUNT_TOLERANCE, measure_groups, tell_apart
from nvmesim.capture.readers.fio.fio_jobs import OPS, FioJob, by_operation
from nvmesim.capture.readers.fio.normal_lines import read_lines
from nvmesim.capture.readers.fio.stated_load import StatedLoad, read_stated_load
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError
from nvmesim.scenario.loads.fio_options import FioOptions

_LINE: Final = re.compile(
    r"(?:[2-5];fio-\d[^;\n]*;|^2;)[^;\n]*;\d{1,9};-?\d{1,9};\d+;", re.MULTILINE
)
"""Progress text may stand before it on the same line, cut wherever the terminal ended."""
_DIRECTION: Final = 41
"""Fields of a direction: 4 + slat 4 + clat 4 + 20 percentiles + lat 4 + bandwidth 5."""
_DIRECTION_V5: Final = 47
"""Version 5 adds bw_samples and five of IOPS."""
_TAIL: Final = 5 + 7 + 10 + 12
"""CPU, depths, latencies by us and by ms; disks and errors may follow."""
_PERCENTILES: Final = 20
_CLAT_MAX: Final = 9
_LAT_MAX: Final = 33
"""Fields of a direction with the largest latencies."""
_US: Final = 1e6
_VERSION: Final = re.compile(r"^fio[- ][0-9][^\s;]*\s*$", re.MULTILINE)
_KINDS: Final = ["read", "write", "trim"]
_LEVELS: Final = ("1", "2", "4", "8", "16", "32", ">=64")
_REST: Final = re.compile(r"[^;\n]{0,200};[^\n]*|\s*(?=\S)[\d.]{0,12}%?\s*")
"""The rest of a line that was wrapped: fields between semicolons, or the end of the last."""
_MOST_PARTS: Final = 64
_CUT: Final = "the run was cut off or the file copied in part: repeat it"
_GROWTH: Final = 1.05
"""Run time from one ``--status-interval`` line of a job to the next grows by more than this."""


def sniff(head: Head) -> bool:
    """True if *head* has a terse line and is not JSON with a terse line beside it."""
    return bool(_LINE.search(head.text)) and '"fio version"' not in head.text


def read(source: Source) -> Capture:
    """Read every job line; CaptureError if none is whole, or all are nothing but zeros."""
    text = source.text()
    banner = _banner(text)
    problems: list[str] = []
    lines = list(_lines(source, text, problems))
    if not lines:
        raise source.error(problems[0] if problems else "has no whole terse line", _CUT)
    last = _latest(lines)
    runs = _runs(last, text)
    warnings = ["terse output has no counts: requests are bytes over size, or IOPS x run time"]
    if len(last) < len(lines):
        warnings.append(
            f"{len(lines) - len(last)} lines were taken as earlier reports of the same jobs "
            "(--status-interval)"
        )
    if len(runs) > 1:
        warnings.append(f"{len(runs)} runs stand in this file, each measured by itself")
    jobs = _jobs(source, runs, _banners(runs, text), problems)
    warnings += [f"left out: {problem}" for problem in problems]
    measured: list[list[Measurement]] = []
    for run, some in zip(runs, jobs, strict=True):
        util = _disk_util(run[0]) if len(run) == 1 else {}
        if some:
            measured.append(measure_groups(source, some, util, warnings))
    version = last[-1].fio_version or banner.version
    return Capture(
        file=source.path,
        format="fio-terse",
        version=f"{version} (terse {last[-1].version})" if version else f"terse {last[-1].version}",
        measurements=tuple(tell_apart(measured)),
        rows=len(lines),
        warnings=tuple(warnings),
    )


def _jobs(
    source: Source, runs: list[list[_Line]], banners: list[StatedLoad], problems: list[str]
) -> list[list[FioJob]]:
    """Return the jobs of each run whose numbers can be; the others are added to *problems*."""
    errors: list[CaptureError] = []
    found: list[list[FioJob]] = []
    single = sum(map(len, runs)) == 1
    for run, banner in zip(runs, banners, strict=True):
        found.append([])
        for line in run:
            try:
                found[-1].append(line.job(banner, single))
            except CaptureError as error:
                errors.append(error)
                problems.append(str(error).removeprefix(f"{source.path}: "))
    if not any(found):
        raise errors[0]
    return found


def _banner(text: str) -> StatedLoad:
    """Return what the lines of fio in *text* say of the load."""
    lines = list(read_lines(text))
    return read_stated_load(lines, lines)


def _banners(runs: list[list[_Line]], text: str) -> list[StatedLoad]:
    """Return the banner of each run: what stands between it and the run before."""
    if len(runs) == 1:
        return [_banner(text)]
    rows = text.split("\n")
    ends = [0, *(run[-1].number for run in runs)]
    return [
        _banner("\n".join(rows[end : run[0].number])) for end, run in zip(ends, runs, strict=False)
    ]


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
    """One job's line, split."""

    source: Source
    number: int
    fields: list[str]

    @property
    def version(self) -> int:
        return int(self.fields[0])

    @property
    def fio_version(self) -> str | None:
        return None if self.version == 2 else shown(self.fields[1].removeprefix("fio-"), 30)

    @property
    def start(self) -> int:
        """Index of the job's name."""
        return 1 if self.version == 2 else 2

    @cached_property
    def directions(self) -> int:
        """Number of blocks: those before the figures of the CPU, which end in ``%``.

        Version 3 has no trims, an old version 2 neither. ``unified_rw_reporting`` makes one block
        of all, or adds one.
        """
        usual = 2 if self.version == 3 else 3
        for number in (usual, 2, 1, usual + 1):
            if self._has_tail(self.start + 3 + number * self.width):
                return number
        return usual

    def _has_tail(self, at: int) -> bool:
        """True if CPU and depths stand at field *at*, as they do behind the last direction."""
        percents = [*self.fields[at : at + 2], *self.fields[at + 5 : at + 5 + len(_LEVELS)]]
        return len(percents) == 2 + len(_LEVELS) and all(
            text.endswith("%") and not text.startswith("0%=") for text in percents
        )

    @property
    def blocks(self) -> list[str]:
        """Meaning of each block's counters."""
        if self.directions == 1:
            return ["mixed"]
        names = ["read", "write"] if self.version == 3 or self.directions == 2 else _KINDS
        return [*names, "mixed"][: self.directions]

    @property
    def width(self) -> int:
        return _DIRECTION_V5 if self.version == 5 else _DIRECTION

    @property
    def tail(self) -> int:
        """Index of the first field after the directions."""
        return self.start + 3 + self.directions * self.width

    def number_at(self, index: int, most: float) -> float:
        text = self.fields[index].strip().removesuffix("%")
        return checked(self.source, f"line {self.number}, field {index + 1}", text, most=most)

    @property
    def group(self) -> int:
        return int(self.fields[self.start + 1])

    @property
    def drives(self) -> list[str]:
        """Fields behind the job's own figures: those of the drives, alike in a run."""
        return [text for text in self.fields[self.tail + _TAIL :] if text.strip()]

    def continues(self, before: _Line) -> bool:
        """True if this is a later report of the same job: time, bytes and extremes only grow.

        One of a job that had not begun or has ended says the same again or nothing; one of a ramp
        time has no latencies yet.
        """
        if before.fields[: before.tail] == self.fields[: self.tail] or not before.runtime_ms():
            return True
        if not before.has_latencies and self.has_latencies:
            return True
        if self.runtime_ms() <= _GROWTH * before.runtime_ms():
            return False
        for k in range(min(len(OPS), self.directions)):
            now, then = (line.start + 3 + k * line.width for line in (self, before))
            low, high = now + 8, now + 9
            if self.number_at(now, 2**53) < before.number_at(then, 2**53):
                return False
            if before.number_at(then + 9, 1e18) == 0:
                continue
            if self.number_at(low, 1e18) > before.number_at(then + 8, 1e18):
                return False
            if self.number_at(high, 1e18) < before.number_at(then + 9, 1e18):
                return False
        return True

    @property
    def has_latencies(self) -> bool:
        """True if any direction has a completion or total latency."""
        starts = [self.start + 3 + k * self.width for k in range(self.directions)]
        return any(
            self.number_at(at + field, 1e18) > 0 for at in starts for field in (_CLAT_MAX, _LAT_MAX)
        )

    @property
    def identity(self) -> tuple[str, str]:
        return self.fields[self.start], self.fields[self.start + 1]

    def runtime_ms(self) -> float:
        first = self.start + 3
        return max(self.number_at(first + k * self.width + 3, 1e12) for k in range(self.directions))

    def job(self, banner: StatedLoad, single: bool) -> FioJob:
        name = shown(self.fields[self.start], 60)
        group = int(self.number_at(self.start + 1, 1e9))
        options = banner.options(group, name)
        results = {
            block: self._op_result(self.start + 3 + k * self.width, options, block)
            for k, block in enumerate(self.blocks)
        }
        found = {op: result for op in OPS if (result := results.get(op)) is not None}
        ops, mixed = by_operation(found, results.get("mixed"), options)
        notes = ["trims are left out"] if results.get("trim") else []
        return FioJob(
            name=name,
            host="",
            group=group,
            error=abs(int(self.fields[self.start + 2])),
            threads=banner.threads if single else 1 if banner.threads else None,
            options=options,
            depth=None,
            ops=ops,
            mixed=mixed,
            runtime_s=self.runtime_ms() / 1000,
            user_pct=self.number_at(self.tail, 1e6),
            system_pct=self.number_at(self.tail + 1, 1e6),
            notes=tuple(notes),
            switches=round(self.number_at(self.tail + 2, 2**62)),
            levels={
                level: self.number_at(self.tail + 5 + k, 1e6) for k, level in enumerate(_LEVELS)
            },
        )

    def _op_result(self, at: int, options: FioOptions, block: str) -> OpResult | None:
        kib = self.number_at(at, 2**53)
        rate = self.number_at(at + 1, MAX_RATE / 1024)
        iops = self.number_at(at + 2, MAX_RATE)
        runtime_s = self.number_at(at + 3, 1e12) / 1000
        if not iops or not runtime_s:
            return None
        count = max(1, round(iops * runtime_s))
        sizes = options.block_sizes("write" if block == "write" else "read") or {}
        if block == "mixed" and sizes != (options.block_sizes("write") or {}):
            sizes = {}
        if len(sizes) == 1:
            # IOPS are printed without decimals, KiB are exact.
            exact = int(kib) * 1024 // next(iter(sizes))
            if abs(exact / runtime_s - iops) <= 1 + COUNT_TOLERANCE * iops:
                count, iops = exact, exact / runtime_s
        return OpResult(
            count=count,
            bytes=int(kib) * 1024,
            iops=iops,
            bytes_per_s=rate * 1024,
            slat=self._latency(at + 4, count, {}),
            clat=self._latency(at + 8, count, self._percentiles(at + 12)),
            lat=self._latency(at + 12 + _PERCENTILES, count, {}),
        )

    def _latency(self, at: int, count: int, percentiles: dict[float, float]) -> Latency | None:
        low, high, mean, deviation = (
            self.number_at(at + k, MAX_LATENCY_S * _US) / _US for k in range(4)
        )
        if not mean or not high:
            return None
        if not low <= mean * 1.001 + 1 / _US or not mean <= high * 1.001 + 1 / _US:
            raise self.source.error(
                f"line {self.number}, field {at + 3}: mean {mean * _US:g} is outside min "
                f"{low * _US:g} and max {high * _US:g}",
                "repeat the capture",
            )
        return Latency(count, mean, low, high, deviation, percentiles)

    def _percentiles(self, at: int) -> dict[float, float]:
        found: dict[float, float] = {}
        for index in range(at, at + _PERCENTILES):
            percent_text, mark, value_text = self.fields[index].partition("%=")
            where = f"line {self.number}, field {index + 1}"
            percent = checked(self.source, where, percent_text, most=100)
            value = checked(self.source, where, value_text, most=MAX_LATENCY_S * _US)
            if mark and (percent or value):
                found[percent] = value / _US
        ordered = [found[p] for p in sorted(found)]
        if ordered != sorted(ordered):
            raise self.source.error(
                f"line {self.number}: the percentiles decrease", "repeat the capture"
            )
        return found if any(ordered) else {}


def _lines(source: Source, text: str, problems: list[str]) -> Iterator[_Line]:
    """Yield the job lines of *text*, also those that a mailer or terminal wrapped."""
    rows = text.split("\n")
    for number, row in enumerate(rows, start=1):
        start = _LINE.search(row)
        if start is None:
            continue
        line = _Line(source, number, row[start.start() :].split(";"))
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


def _latest(lines: list[_Line]) -> list[_Line]:
    """Drop lines that a later one of the same job continues (``--status-interval``)."""
    last: dict[tuple[str, str], _Line] = {}
    kept: list[_Line] = []
    for line in lines:
        before = last.get(line.identity)
        if before is not None and line.continues(before):
            kept.remove(before)
        kept.append(line)
        last[line.identity] = line
    return kept


def _disk_util(line: _Line) -> dict[str, float]:
    """Disk -> busy %, from the groups of nine fields at the end."""
    found = {}
    for at in range(line.tail + _TAIL, len(line.fields) - 8, 9):
        name, util = line.fields[at].strip(), line.fields[at + 8]
        if name and util.strip().endswith("%"):
            found[shown(name, 40)] = line.number_at(at + 8, 1e6)
    return found
