"""fio ``--output-format=terse``: one line a job, fields between semicolons, versions 2 to 5.

Latencies are microseconds in every version. Counts are not in it: requests are IOPS x run time.
Source: fio stat.c, show_thread_status_terse_v2 and following; fio HOWTO, terse output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nvmesim.trace.capture import Capture, Latency, Op, OpResult
from nvmesim.trace.fields import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.trace.fio_banner import Banner, read_banner
from nvmesim.trace.fio_groups import measure_groups
from nvmesim.trace.fio_jobs import OPS, Job
from nvmesim.trace.text import Head, Source, shown

_LINE: Final = re.compile(r"^[2-5];(?:fio-[^;\n]*;)?[^;\n]*;\d{1,9};-?\d{1,9};\d+;", re.MULTILINE)
_DIRECTION: Final = 41
"""Fields of a direction: 4 + slat 4 + clat 4 + 20 percentiles + lat 4 + bandwidth 5."""
_DIRECTION_V5: Final = 47
"""Version 5 adds bw_samples and five of IOPS."""
_TAIL: Final = 5 + 7 + 10 + 12
"""CPU, depths, latencies by us and by ms; disks and errors may follow."""
_PERCENTILES: Final = 20
_US: Final = 1e6
_GROWTH: Final = 1.05
"""Run time from one ``--status-interval`` line of a job to the next grows by more than this."""


def sniff(head: Head) -> bool:
    """Whether *head* has a terse line and is not JSON with a terse line beside it."""
    return bool(_LINE.search(head.text)) and '"fio version"' not in head.text


def read(source: Source) -> Capture:
    """Read every job line; CaptureError if a line is cut off or nothing but zeros."""
    text = source.text()
    banner = read_banner(text)
    lines = list(_lines(source, text))
    if not lines:
        raise source.error("has no whole terse line", "repeat the capture")
    last = _latest(lines)
    single = len(last) == 1
    jobs = [line.job(banner, single) for line in last]
    warnings = ["terse output has no counts: requests are IOPS x run time"]
    util = _disk_util(last[0]) if single else {}
    measurements = measure_groups(source, jobs, util, warnings)
    version = last[-1].fio_version or banner.version
    return Capture(
        file=source.path,
        format="fio-terse",
        version=f"{version} (terse {last[-1].version})" if version else f"terse {last[-1].version}",
        measurements=tuple(measurements),
        rows=len(lines),
        warnings=tuple(warnings),
    )


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

    @property
    def directions(self) -> int:
        """Number of blocks: version 3 has no trims, an old version 2 neither."""
        if self.version == 3:
            return 2
        whole = self.start + 3 + 3 * _DIRECTION + _TAIL
        return 2 if self.version == 2 and len(self.fields) < whole else 3

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
    def identity(self) -> tuple[str, str]:
        return self.fields[self.start], self.fields[self.start + 1]

    def runtime_ms(self) -> float:
        first = self.start + 3
        return max(self.number_at(first + k * self.width + 3, 1e12) for k in range(self.directions))

    def job(self, banner: Banner, single: bool) -> Job:
        name = shown(self.fields[self.start], 60)
        group = int(self.number_at(self.start + 1, 1e9))
        ops: dict[Op, OpResult] = {}
        for k, op in enumerate(OPS):
            result = self._op_result(self.start + 3 + k * self.width)
            if result is not None:
                ops[op] = result
        notes = []
        if self.directions == 3 and self._op_result(self.start + 3 + 2 * self.width):
            notes.append("trims are left out")
        return Job(
            name=name,
            host="",
            group=group,
            error=abs(int(self.fields[self.start + 2])),
            threads=banner.threads if single else 1 if banner.threads else None,
            options=banner.of(group, name),
            depth=None,
            ops=ops,
            mixed=None,
            runtime_s=self.runtime_ms() / 1000,
            user_pct=self.number_at(self.tail, 1e6),
            system_pct=self.number_at(self.tail + 1, 1e6),
            notes=tuple(notes),
        )

    def _op_result(self, at: int) -> OpResult | None:
        kib = self.number_at(at, 2**53)
        rate = self.number_at(at + 1, MAX_RATE / 1024)
        iops = self.number_at(at + 2, MAX_RATE)
        runtime_s = self.number_at(at + 3, 1e12) / 1000
        if not iops or not runtime_s:
            return None
        count = max(1, round(iops * runtime_s))
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


def _lines(source: Source, text: str) -> Iterator[_Line]:
    for number, row in enumerate(text.split("\n"), start=1):
        if not _LINE.match(row):
            continue
        line = _Line(source, number, row.split(";"))
        if len(line.fields) < line.tail + _TAIL:
            raise source.error(
                f"line {number} ends after {len(line.fields)} fields, terse version "
                f"{line.version} has at least {line.tail + _TAIL}",
                "the run was cut off or the file copied in part: repeat it",
            )
        yield line


def _latest(lines: list[_Line]) -> list[_Line]:
    """Drop lines that a later one of the same job continues (``--status-interval``)."""
    last: dict[tuple[str, str], _Line] = {}
    kept: list[_Line] = []
    for line in lines:
        before = last.get(line.identity)
        if before is not None and line.runtime_ms() > _GROWTH * before.runtime_ms():
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
