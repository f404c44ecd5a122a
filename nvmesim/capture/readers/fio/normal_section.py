"""One report in fio's normal output: of a job, of a group of jobs, or what was left of it.

Counts are exact where ``issued`` counts them, and rates follow from them. In a report that was
trimmed they are IOPS times run time, which is said. Latencies come rounded as printed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nvmesim.capture.capture import OPS, Latency, OpResult
from nvmesim.capture.checked_numbers import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.capture.readers.fio.fio_jobs import TRIMS, FioJob, one_size
from nvmesim.capture.readers.fio.normal_lines import Line
from nvmesim.capture.text import Source, shown
from nvmesim.scenario.loads.fio_options import FioOptions
from nvmesim.warning import Warning

OPERATION: Final = re.compile(r"\b(read|write|trim|mixed)[ \t]*:[ \t]*(?=IOPS=|io=)([^\n]*)")
_RUNTIME: Final = re.compile(r"(?:/\s*(?=\d+msec\))|runt=\s*)(\d+)msec")
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
_PID: Final = re.compile(r"pid=(\d+)(?::\s*(\w{3} \w{3}\s+\d+ [\d:]{8} \d{4}))?")
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
        return op != "read" and len({time and time[1] for time in times}) == 1

    def _directions(self) -> list[re.Match[str]]:
        found = (OPERATION.search(line.text) for line in self.lines if line.kind == "direction")
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
        counted = issued.groups() if issued else ()
        counts = [int(self._number("issued", n or "0", 2**62)) for n in counted]
        target, depth = self._found("target", _TARGET), None
        if target is not None:
            is_search = target[1] != "0"
            depth = int(target[2]) if is_search else None
            stated = {"latency_target": target[1]} if is_search else {"iodepth": target[2]}
            options = FioOptions({**stated, **options.given}, complete=options.complete)
        results, runtimes = self._results(counts, options)
        self._check_whole(results, counts, options)
        levels = next((_DEPTH.findall(x.text) for x in self.lines if x.kind == "depths"), [])
        trims, flushes = counts[2:] or (0, 0)
        return FioJob(
            name=self.name,
            group=self.group,
            options=options,
            reported=results,
            runtime_s=max(runtimes.values(), default=0.0),
            error=self.error,
            threads=threads,
            depth=depth,
            user_pct=self._percent("usr", cpu[1]) if cpu else None,
            system_pct=self._percent("sys", cpu[2]) if cpu else None,
            notes=(
                *([Warning(TRIMS, f"{trims} trims are left out")] if trims else []),
                *([f"{flushes} flushes (fsync) ran between the requests"] if flushes else []),
            ),
            switches=int(cpu[3]) if cpu and cpu[3] else None,
            levels={level: self._number("IO depths", share, 1e6) for level, share in levels},
            runtimes_s={op: runtimes[op] for op in OPS if op in runtimes},
        )

    def _check_whole(
        self, found: Mapping[str, OpResult], counts: list[int], options: FioOptions
    ) -> None:
        """Refuse a report that lacks an operation which was counted or asked for."""
        if self.error:
            return
        if not self._directions() and not counts:
            raise self.source.error(f"the report of job {self.name!r} is not whole", CUT)
        if self.is_headless or "mixed" in found:
            return
        asked = options.read_fraction()
        for index, op in enumerate(OPS):
            what = ""
            if not counts and asked is not None and 0 < asked < 1:
                what = f"asks for {op}s"
            elif counts and counts[index]:
                what = f"counts {counts[index]} {op}s"
            if what and op not in found:
                what = f"the report of job {self.name!r} {what} and has no line of them"
                raise self.source.error(what, CUT)

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
        self, counts: list[int], options: FioOptions
    ) -> tuple[dict[str, OpResult], dict[str, float]]:
        """Return what each line of an operation, with those below it, says, and the run times."""
        results: dict[str, OpResult] = {}
        runtimes: dict[str, float] = {}
        starts = [n for n, line in enumerate(self.lines) if line.kind == "direction"]
        for start, end in zip(starts, [*starts[1:], len(self.lines)], strict=False):
            match = OPERATION.search(self.lines[start].text)
            assert match is not None
            op, text = match.groups()
            runtime = _RUNTIME.search(text)
            runtimes[op] = 0.0
            if runtime is not None:
                runtimes[op] = self._number("run time", runtime[1], 1e12) / 1000
            elif not counts and not (_BANDWIDTH.search(text) and _WHOLE_RATE.search(text)):
                raise self.source.error(f"the report of job {self.name!r} is not whole", CUT)
            of_op = {"read": counts[:1], "write": counts[1:2], "mixed": counts[:2]}.get(op, [])
            if op != "trim" and (sum(of_op) or not counts):
                size, count = one_size(options, op), sum(of_op) if counts else None
                found = self._result(text, self.lines[start:end], count, runtimes[op], size)
                if found.count or found.iops:
                    results[op] = found
        return results, runtimes

    def _result(
        self, text: str, lines: list[Line], count: int | None, runtime_s: float, size: int | None
    ) -> OpResult:
        match = _RATE.search(text)
        printed = self._number("IOPS", match[1] + match[2], MAX_RATE) if match else 0.0
        if count is None or not runtime_s:
            is_rounded = not printed or bool(match and match[2])
            rate = _refined(printed, self._bandwidth(text), size) if is_rounded else printed
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
        moved = self._printed_bytes(text)
        exact = count * (size or 0)
        # Of one block size exactly if that is what was printed, else as printed.
        if size and (moved is None or abs(exact - moved) <= SIZE_TOLERANCE * max(exact, moved)):
            moved = exact
        n_bytes = round(moved or 0.0)
        per_s = n_bytes * (1 / runtime_s) if runtime_s else self._bandwidth(text)
        return OpResult(count, n_bytes, rate, per_s, **self._latencies(lines, count))

    def _bandwidth(self, text: str) -> float:
        """Bytes/s as printed; 0 if they are not."""
        match = _BANDWIDTH.search(text)
        if match is None:
            return 0.0
        # fio 3 prints MiB/s; fio 1 and 2 printed KB/s and meant KiB/s.
        scale = prefixed(match[2].upper(), binary=bool(match[3]) or "io=" in text)
        return self._number("bandwidth", match[1], MAX_RATE / scale) * scale

    def _printed_bytes(self, text: str) -> float | None:
        """Bytes as fio printed them on a direction's line (three digits or four)."""
        match = _BYTES.search(text)
        if match is None:
            return None
        number, prefix = (match[1], match[2]) if match[1] else (match[4], match[5])
        # fio 3 prints MiB, or MB with kb_base=1000; fio 1 and 2 printed MB and meant MiB.
        size = self._number("bytes", number, 2**60)
        size *= prefixed(prefix, binary=not match[1] or bool(match[3]))
        if size > 2**62:
            raise self.source.error(f"line {self.line}: {shown(text)!r}", "repeat the capture")
        return size

    def _latencies(self, lines: list[Line], count: int) -> dict[str, Latency | None]:
        moments: dict[str, re.Match[str]] = {}
        percentiles: dict[str, dict[float, float]] = {}
        kind, per_s = "", 1.0
        for line in lines:
            if line.kind == "moments" and (match := _MOMENTS.search(line.text)):
                moments.setdefault(match[1], match)
            elif line.kind == "percentiles" and (match := _TITLE.search(line.text)):
                kind, per_s = match[1] or "clat", _PER_S[match[2]]
            elif line.kind == "percentile" and kind:
                for percent, value in _PERCENTILE.findall(line.text):
                    rank = self._number("percentile", percent, 100)
                    number = self._number(f"p{percent}", value.lstrip(">="), MAX_LATENCY_S * per_s)
                    percentiles.setdefault(kind, {})[rank] = number / per_s
        return {
            kind: self._latency(kind, count, moments.get(kind), percentiles.get(kind, {}))
            for kind in ("clat", "lat", "slat")
        }

    def _latency(
        self, kind: str, count: int, moments: re.Match[str] | None, found: dict[float, float]
    ) -> Latency | None:
        if moments is None:
            is_whole = list(found) == sorted(found)
            return Latency(count, percentiles_s=found) if found and is_whole else None
        per_s = _PER_S[moments[2]]
        # What is longer than its run is said with both numbers later on.
        low, high, mean, deviation = (
            self._number(kind, text, 1e15 * per_s) / per_s for text in moments.group(3, 4, 5, 6)
        )
        if not mean or not high:
            return None
        return Latency(count, mean, low, high, deviation, found)


def prefixed(prefix: str, *, binary: bool) -> float:
    """Return the factor of a unit's prefix.

    >>> prefixed("M", binary=True), prefixed("", binary=False)
    (1048576.0, 1.0)
    """
    return (1024.0 if binary else 1000.0) ** ("KMGTP".find(prefix) + 1 if prefix else 0)


def _refined(printed: float, bandwidth: float, size: int | None) -> float:
    """Return the rate that bandwidth and size make, where IOPS come with three digits or not."""
    if not printed or not bandwidth:
        return printed if printed or not size else bandwidth / size
    if size is None:
        size = 1 << max(9, round(bandwidth / printed).bit_length() - 1)
        size = min((size, 2 * size), key=lambda s: abs(bandwidth / printed / s - 1))
    rate = bandwidth / size
    return rate if abs(rate / printed - 1) <= SIZE_TOLERANCE else printed


def section_of(source: Source, match: re.Match[str], line: int) -> ReportSection:
    """Return the section that the header *match* of `normal_lines.SECTION` starts, at *line*."""
    if any(len(match[key]) > 9 for key in ("group", "jobs", "error")):
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
