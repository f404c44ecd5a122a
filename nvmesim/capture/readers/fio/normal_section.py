"""One report in fio's normal output: of a job, of a group of jobs, or what was left of it.

Counts are exact where ``issued`` counts them, and rates follow from them. In a report that was
trimmed they are IOPS times run time, which is said. Latencies come rounded as printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nvmesim.capture.capture import Latency, OpResult
from nvmesim.capture.fields import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.capture.readers.fio.fio_jobs import OPS, FioJob, by_operation
from nvmesim.capture.readers.fio.normal_lines import Line
from nvmesim.capture.text import Source, shown
from nvmesim.scenario.loads.fio_options import FioOptions
from nvmesim.warning import Warning

_OP: Final = re.compile(r"\b(read|write|trim|mixed)[ \t]*:[ \t]*(?=IOPS=|io=)([^\n]*)")
_RUNTIME: Final = re.compile(r"/\s*(\d+)msec\)|runt=\s*(\d+)msec")
_BYTES: Final = re.compile(
    r"\)\(([0-9.]+)([KMGTP]?)(i?)B?/\d+msec|io=\s*([0-9.,]*[0-9])([KMGTP]?)i?B?[,;]"
)
_RATE: Final = re.compile(r"\biops=\s*([0-9.,]*[0-9])([kKMG]?)", re.IGNORECASE)
_WHOLE_RATE: Final = re.compile(_RATE.pattern + ",", re.IGNORECASE)
"""A number at the end of a text may be cut."""
_BANDWIDTH: Final = re.compile(r"\bbw=\s*([0-9.,]*[0-9])([kKMGT]?)(i?)B/s", re.IGNORECASE)
_MOMENTS: Final = re.compile(
    r"(slat|clat|lat) \((nsec|usec|msec)\)\s*:\s*min=\s*([^,\s]+(?:,\d{3})*) ?, ?"
    r"max=\s*([^,\s]+?(?:,\d{3})*) ?, ?avg=\s*([^,\s]+), ?stdev=\s*([^,\s]+)"
)
_TITLE: Final = re.compile(r"(?:(slat|clat|lat) )?percentiles \((nsec|usec|msec)\)")
_PERCENTILE: Final = re.compile(r"([0-9.]+)th=\[\s*([^\]\s]+)\s*\]")
_CPU: Final = re.compile(r"usr=(-?nan|[0-9.]+)%, ?sys=(-?nan|[0-9.]+)%(?:, ?ctx=(\d{1,18}))?")
_ISSUED: Final = re.compile(
    r"total=\s*(?:r=)?(\d+)[,/](?:w=)?(\d+)(?:[,/](?:d=)?(\d+))?(?:,(\d+))?"
)
_TARGET: Final = re.compile(r"target=(\d+),.*?\bdepth=(\d{1,9})")
_DEPTH: Final = re.compile(r"(>=64|\d+)=([0-9.]{1,12})%")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+")
_PER_S: Final = {"nsec": 1e9, "usec": 1e6, "msec": 1e3}
_SCALE: Final = {"k": 1e3, "m": 1e6, "g": 1e9}
RATE_TOLERANCE: Final = 0.2
"""Printed IOPS may be off so far from count over time: fio 3.20 prints 37.0k for 37,993."""
SIZE_TOLERANCE: Final = 0.08
"""Bandwidth over IOPS may be off so far from the size, as IOPS of three digits are: 14.0k."""
CUT: Final = "the run was cut off or the text copied in part: repeat it, or copy the whole report"
TRIMMED: Final = "trimmed-report"
"""Code of the warning that counts follow from rates."""
NO_TIME: Final = "no-run-time"
"""Code of the warning that a rate has no run time, so nothing can be counted."""


@dataclass
class ReportSection:
    """The report of one job or job group; without its first line it has no threads and no pid."""

    source: Source
    line: int
    name: str
    group: int = 0
    threads: int | None = None
    error: int = 0
    pid: str = ""
    date: str = ""
    """As printed, such as ``Tue Aug 18 10:29:42 2020``; empty in fio 1."""
    lines: list[Line] = field(default_factory=list)

    @property
    def identity(self) -> tuple[int, str, str]:
        """Identity that later reports of the same job share."""
        return self.group, self.name, self.pid

    @property
    def is_headless(self) -> bool:
        """True if the first line, which names the job, is missing."""
        return self.threads is None

    @property
    def is_ended(self) -> bool:
        """True if the lines at the end of a report have come."""
        return any(line.kind in ("issued", "target") for line in self.lines)

    def takes(self, op: str, line: Line) -> bool:
        """True if *line* of operation *op* may belong to this report: fio prints reads first.

        Without a first line that holds all together, both must have run for the same time.
        """
        before = self._directions()
        if any(match[1] == op for match in before):
            return False
        if not self.is_headless or not before:
            return True
        times = [_RUNTIME.search(text) for text in (before[-1][2], line.text)]
        return op != "read" and len({time and (time[1] or time[2]) for time in times}) == 1

    def _directions(self) -> list[re.Match[str]]:
        found = (_OP.search(line.text) for line in self.lines if line.kind == "direction")
        return [match for match in found if match]

    def _found(self, kind: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
        texts = (line.text for line in self.lines if line.kind == kind)
        return next((match for text in texts if (match := pattern.search(text))), None)

    def losses(self) -> list[Warning]:
        """Say what a report lacks that was trimmed or cut."""
        if self.error:
            return []
        found = []
        if self._found("issued", _ISSUED) is None:
            text = "a report was trimmed or cut: counts are IOPS times run time"
            found.append(Warning(TRIMMED, text))
        if not all(_RUNTIME.search(match[2]) for match in self._directions()):
            text = "a report has no run time: rates are as printed, what is not counted is unknown"
            found.append(Warning(NO_TIME, text))
        return found

    def progress(self) -> int:
        """Requests so far: a later report of the same run has as many or more."""
        issued = self._found("issued", _ISSUED)
        return sum(int(n[:18]) for n in issued.groups()[:3] if n) if issued else 0

    def job(self, options: FioOptions, threads: int | None) -> FioJob:
        """Return the numbers of the report; CaptureError if it is cut or contradicts itself."""
        cpu, issued = self._found("cpu", _CPU), self._found("issued", _ISSUED)
        counts = (
            None
            if issued is None
            else [int(self._number("issued", n or "0", 2**62)) for n in issued.groups()]
        )
        target = self._found("target", _TARGET)
        if target is not None:
            key = "latency_target" if target[1] != "0" else "iodepth"
            value = target[1] if target[1] != "0" else target[2]
            options = FioOptions({key: value, **options.given}, complete=options.complete)
        found, runtimes = self._results(counts, options)
        ops, mixed = by_operation(
            {op: found[op] for op in OPS if op in found}, found.get("mixed"), options
        )
        self._check_whole(found, counts, options)
        return FioJob(
            name=self.name,
            host="",
            group=self.group,
            error=self.error,
            threads=threads,
            options=options,
            depth=int(target[2]) if target and target[1] != "0" else None,
            ops=ops,
            mixed=mixed,
            runtime_s=max(runtimes, default=0.0),
            user_pct=self._percent("usr", cpu[1]) if cpu else None,
            system_pct=self._percent("sys", cpu[2]) if cpu else None,
            notes=tuple(self._notes(counts)),
            switches=int(cpu[3]) if cpu and cpu[3] else None,
            levels=self._levels(),
            runtimes_s={
                op: time
                for op, time in zip((m[1] for m in self._directions()), runtimes, strict=True)
                if op in OPS
            },
        )

    def _notes(self, counts: list[int] | None) -> list[str]:
        notes: list[str] = []
        if counts and counts[2]:
            notes.append(f"{counts[2]} trims are left out")
        if counts and counts[3]:
            notes.append(f"{counts[3]} flushes (fsync) ran between the requests")
        return notes

    def _check_whole(
        self, found: Mapping[str, OpResult], counts: list[int] | None, options: FioOptions
    ) -> None:
        """Refuse a report that lacks an operation which was counted or asked for."""
        if self.error:
            return
        if not self._directions() and counts is None:
            raise self.source.error(f"the report of job {self.name!r} is not whole", CUT)
        if self.is_headless:
            return
        asked = options.read_fraction()
        for index, op in enumerate(OPS):
            if op in found or "mixed" in found:
                continue
            if counts is None and asked is not None and 0 < asked < 1:
                what = f"asks for {op}s"
            elif counts and counts[index]:
                what = f"counts {counts[index]} {op}s"
            else:
                continue
            raise self.source.error(
                f"the report of job {self.name!r} {what} and has no line of them", CUT
            )

    def _levels(self) -> dict[str, float]:
        texts = [line.text for line in self.lines if line.kind == "depths"]
        pairs = _DEPTH.findall(texts[0]) if texts else []
        return {level: self._number("IO depths", share, 1e6) for level, share in pairs}

    def _percent(self, what: str, text: str) -> float | None:
        # A job that did nothing has used no time to divide by.
        return None if text.endswith("nan") else self._number(what, text, 1e6)

    def _number(self, what: str, text: str, most: float) -> float:
        """Return the number that fio printed, perhaps with a K or M; fio 1 prints 65,061."""
        where = f"line {self.line} and below, {what}"
        if _THOUSANDS.fullmatch(text.rstrip("kKMG")):
            text = text.replace(",", "")
        scale = _SCALE.get(text[-1:].lower())
        value = text[:-1] if scale else text
        # The bound is for the number as it is meant: "9K" means 9,000.
        return checked(self.source, where, value, most=most / (scale or 1.0)) * (scale or 1.0)

    def _results(
        self, counts: list[int] | None, options: FioOptions
    ) -> tuple[dict[str, OpResult], list[float]]:
        """Return what each line of an operation, with those below it, says, and the run times."""
        found: dict[str, OpResult] = {}
        runtimes: list[float] = []
        starts = [n for n, line in enumerate(self.lines) if line.kind == "direction"]
        if not starts:
            return found, runtimes
        for start, end in zip(starts, [*starts[1:], len(self.lines)], strict=True):
            match = _OP.search(self.lines[start].text)
            assert match is not None
            op, text = match[1], match[2]
            runtime = _RUNTIME.search(text)
            runtime_s = 0.0
            if runtime is not None:
                runtime_s = self._number("run time", runtime[1] or runtime[2], 1e12) / 1000
            elif not counts and not (_BANDWIDTH.search(text) and _WHOLE_RATE.search(text)):
                raise self.source.error(f"the report of job {self.name!r} is not whole", CUT)
            count = (
                None
                if counts is None
                else {
                    "read": counts[0],
                    "write": counts[1],
                    "mixed": sum(counts[:2]),
                }.get(op, 0)
            )
            if op != "trim" and (counts is None or count):
                sizes = options.block_sizes("write" if op == "write" else "read") or {}
                if op == "mixed" and sizes != (options.block_sizes("write") or {}):
                    sizes = {}
                size = next(iter(sizes)) if len(sizes) == 1 else None
                found[op] = self._result(text, self.lines[start:end], count, runtime_s, size)
            runtimes.append(runtime_s)
        return found, runtimes

    def _result(
        self, text: str, lines: list[Line], count: int | None, runtime_s: float, size: int | None
    ) -> OpResult:
        printed = self._printed_rate(text)
        if count is None or not runtime_s:
            rate = self._refined(text, printed, size)
            count = round(rate * runtime_s) if count is None else count
        else:
            rate = min(count * (1 / runtime_s), MAX_RATE)
            # Below 20 a rate printed as a whole number says too little.
            if printed >= 20 and not abs(rate - printed) <= RATE_TOLERANCE * printed:
                raise self.source.error(
                    f"line {self.line} and below: {printed:g} IOPS are printed, and issued "
                    f"requests over run time make {rate:.5g}",
                    "give the report as fio wrote it",
                )
        n_bytes = self._bytes(text, count, size)
        per_s = n_bytes * (1 / runtime_s) if runtime_s else self._bandwidth(text)
        latencies = self._latencies(lines, count)
        return OpResult(count, n_bytes, rate, per_s, **latencies)

    def _printed_rate(self, text: str) -> float:
        match = _RATE.search(text)
        return self._number("IOPS", match[1] + match[2], MAX_RATE) if match else 0.0

    def _refined(self, text: str, printed: float, size: int | None) -> float:
        """Return the rate that bandwidth and size make, where IOPS come with three digits."""
        match, bandwidth = _RATE.search(text), self._bandwidth(text)
        if match is None or not match[2] or not bandwidth or not printed:
            return printed if printed or not size else bandwidth / size
        if size is None:
            size = 1 << max(9, round(bandwidth / printed).bit_length() - 1)
            size = min((size, 2 * size), key=lambda s: abs(bandwidth / printed / s - 1))
        rate = bandwidth / size
        return rate if abs(rate / printed - 1) <= SIZE_TOLERANCE else printed

    def _bandwidth(self, text: str) -> float:
        """Bytes/s as printed; 0 if they are not."""
        match = _BANDWIDTH.search(text)
        if match is None:
            return 0.0
        # fio 3 prints MiB/s; fio 1 and 2 printed KB/s and meant KiB/s.
        base = 1024.0 if match[3] or "io=" in text else 1000.0
        power = "KMGT".find(match[2].upper()) + 1 if match[2] else 0
        return self._number("bandwidth", match[1], MAX_RATE / base**power) * base**power

    def printed_bytes(self, text: str) -> float | None:
        """Bytes as fio printed them on a direction's line (three digits or four)."""
        match = _BYTES.search(text)
        if match is None:
            return None
        number, prefix = (match[1], match[2]) if match[1] else (match[4], match[5])
        # fio 3 prints MiB, or MB with kb_base=1000; fio 1 and 2 printed MB and meant MiB.
        base = 1000.0 if match[1] and not match[3] else 1024.0
        size = self._number("bytes", number, 2**60) * base ** (
            "KMGTP".find(prefix) + 1 if prefix else 0
        )
        if size > 2**62:
            raise self.source.error(f"line {self.line}: {shown(text)!r}", "repeat the capture")
        return size

    def _bytes(self, text: str, count: int, size: int | None) -> int:
        """Bytes moved: of one block size exactly if that is what was printed, else as printed."""
        printed = self.printed_bytes(text)
        if size and (
            printed is None
            or abs(count * size - printed) <= SIZE_TOLERANCE * max(count * size, printed)
        ):
            return count * size
        return 0 if printed is None else round(printed)

    def _latencies(self, lines: list[Line], count: int) -> dict[str, Latency | None]:
        moments: dict[str, re.Match[str]] = {}
        percentiles: dict[str, dict[float, float]] = {}
        kind, scale = "", 1.0
        for line in lines:
            if line.kind == "moments" and (match := _MOMENTS.search(line.text)):
                moments.setdefault(match[1], match)
            elif line.kind == "percentiles" and (match := _TITLE.search(line.text)):
                kind, scale = match[1] or "clat", _PER_S[match[2]]
            elif line.kind == "percentile" and kind:
                for percent, value in _PERCENTILE.findall(line.text):
                    rank = self._number("percentile", percent, 100)
                    number = self._number(f"p{percent}", value.lstrip(">="), MAX_LATENCY_S * scale)
                    percentiles.setdefault(kind, {})[rank] = number / scale
        return {
            kind: self._latency(kind, count, moments.get(kind), percentiles.get(kind, {}))
            for kind in ("clat", "lat", "slat")
        }

    def _latency(
        self, kind: str, count: int, moments: re.Match[str] | None, found: dict[float, float]
    ) -> Latency | None:
        if moments is None:
            is_ordered = list(found) == sorted(found) and [*found.values()] == sorted(
                found.values()
            )
            return Latency(count, percentiles_s=found) if found and is_ordered else None
        per_s = _PER_S[moments[2]]
        # What is longer than its run is said with both numbers later on.
        low, high, mean, deviation = (
            self._number(kind, text, 1e15 * per_s) / per_s for text in moments.group(3, 4, 5, 6)
        )
        if not mean or not high:
            return None
        ordered = [found[p] for p in sorted(found)]
        # Values are printed with five digits at most.
        if ordered != sorted(ordered) or not low * 0.99 <= mean <= high * 1.01 + 1 / per_s:
            raise self.source.error(
                f"line {self.line} and below: the {kind} numbers contradict each other",
                "repeat the capture",
            )
        return Latency(count, mean, low, high, deviation, found)


_PID: Final = re.compile(r"pid=(\d+)(?::\s*(\w{3} \w{3}\s+\d+ [\d:]{8} \d{4}))?")


def section_of(source: Source, match: re.Match[str], line: int) -> ReportSection:
    """Return the section that the header *match* of `normal_lines.SECTION` starts, at *line*."""
    numbers = [match["group"], match["jobs"], match["error"]]
    if any(len(number) > 9 for number in numbers):
        raise source.error(f"line {line}: {shown(match[0], 60)!r}", "repeat the capture")
    pid = _PID.search(match["rest"])
    return ReportSection(
        source,
        line,
        shown(match["name"], 60),
        int(match["group"]),
        max(1, int(match["jobs"])),
        abs(int(match["error"])),
        pid[1] if pid else "",
        (pid[2] or "") if pid else "",
    )
