"""One report in fio's normal output: the section of a job or of a group of jobs.

Lines are known by their words, not by their indentation, which versions vary: fio 3.1 to 3.7 have a
blank more before ``read:``. Counts are exact (``issued rwts``), rates follow from them; latencies
come rounded as printed. Source: fio stat.c, show_thread_status_normal, of fio 1.50 to 3.42.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nvmesim.capture.capture import Latency, Op, OpResult
from nvmesim.capture.fields import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.capture.readers.fio.jobs import OPS, FioJob, by_operation
from nvmesim.capture.readers.fio.options import Options
from nvmesim.capture.text import Source, shown

SECTION: Final = re.compile(
    r"^(?P<name>[^\n\"]+?): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): "
    r"err=\s*(?P<error>-?\d+)(?P<rest>[^\n]*)$",
    re.MULTILINE,
)
_PID: Final = re.compile(r"pid=(\d+)(?::\s*(\w{3} \w{3}\s+\d+ [\d:]{8} \d{4}))?")
_DIRECTION: Final = re.compile(
    r"^[ \t]*(read|write|trim|mixed)[ \t]*:[ \t]*(?=IOPS=|io=)([^\n]*)$", re.MULTILINE
)
_RUNTIME: Final = re.compile(r"/\s*(\d+)msec\)|runt=\s*(\d+)msec")
_BYTES: Final = re.compile(
    r"\)\(([0-9.]+)([KMGTP]?)(i?)B?/\d+msec|io=\s*([0-9.,]*[0-9])([KMGTP]?)i?B?[,;]"
)
_PRINTED_RATE: Final = re.compile(r"\biops=\s*([0-9.,]*[0-9][kKMG]?)", re.IGNORECASE)
_MOMENTS: Final = re.compile(
    r"^[ \t]*(slat|clat|lat) \((nsec|usec|msec)\)\s*:\s*min=\s*([^,\s]+(?:,\d{3})*) ?, "
    r"max=\s*([^,\s]+(?:,\d{3})*) ?, avg=\s*([^,\s]+), stdev=\s*([^,\s]+)\s*$",
    re.MULTILINE,
)
_PERCENTILES: Final = re.compile(
    r"^[ \t]*(?:(slat|clat|lat) )?percentiles \((nsec|usec|msec)\)\s*:\n((?:\s*\|[^\n]*\n?)+)",
    re.MULTILINE,
)
_PERCENTILE: Final = re.compile(r"([0-9.]+)th=\[\s*([^\]\s]+)\]")
_CPU: Final = re.compile(
    r"^[ \t]*cpu\s*: usr=(-?nan|[0-9.]+)%, sys=(-?nan|[0-9.]+)%(?:, ctx=(\d{1,18}))?", re.MULTILINE
)
_ISSUED: Final = re.compile(
    r"^[ \t]*issued(?: rwts?| r/w(?:/d)?)?\s*: total=(?:r=)?(\d+)[,/](?:w=)?(\d+)"
    r"(?:[,/](?:d=)?(\d+))?(?:,(\d+))?",
    re.MULTILINE,
)
_TARGET: Final = re.compile(
    r"^[ \t]*latency\s*: target=([1-9]\d*),[^\n]*?\bdepth=(\d{1,9})", re.MULTILINE
)
"""Values printed of ``latency_target``: 0 if there was none."""
_DEPTHS: Final = re.compile(r"^[ \t]*IO depths\s*:([^\n]*)$", re.MULTILINE)
_DEPTH: Final = re.compile(r"(>=64|\d+)=([0-9.]{1,12})%")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+")
_PER_S: Final = {"nsec": 1e9, "usec": 1e6, "msec": 1e3}
_SCALE: Final = {"k": 1e3, "m": 1e6, "g": 1e9}
RATE_TOLERANCE: Final = 0.2
"""Printed IOPS may be off so far from count over time: fio 3.20 prints 37.0k for 37,993."""
CUT: Final = "the run was cut off or the text copied in part: repeat it, or copy the whole report"


@dataclass(frozen=True)
class ReportSection:
    """The report of one job or job group."""

    source: Source
    line: int
    name: str
    group: int
    threads: int
    error: int
    pid: str
    date: str
    """As printed, such as ``Tue Aug 18 10:29:42 2020``; empty in fio 1."""
    body: str

    @property
    def identity(self) -> tuple[int, str, str]:
        """Identity that later reports of the same job share."""
        return self.group, self.name, self.pid

    @property
    def is_whole(self) -> bool:
        """True if everything that counts is there: the last lines of a report are."""
        return bool(_CPU.search(self.body) and _ISSUED.search(self.body))

    def progress(self) -> int:
        """Requests so far: a later report of the same run has as many or more."""
        issued = _ISSUED.search(self.body)
        return sum(int(n[:18]) for n in issued.groups()[:3] if n) if issued else 0

    def job(self, options: Options) -> FioJob:
        """Return the numbers of the report; CaptureError if it is cut or contradicts itself."""
        cpu, issued = _CPU.search(self.body), _ISSUED.search(self.body)
        if not self.error and (cpu is None or issued is None):
            raise self._cut()
        counts = [
            int(self._number("issued", text, 2**62)) if text else 0
            for text in (issued.groups() if issued else ())
        ]
        target = _TARGET.search(self.body)
        if target is not None:
            options = Options({**options.given, "latency_target": target[1]}, complete=False)
        ops, mixed, runtimes = self._directions(counts, options)
        notes = []
        if counts and counts[2]:
            notes.append(f"{counts[2]} trims are left out")
        if counts and counts[3]:
            notes.append(f"{counts[3]} flushes (fsync) ran between the requests")
        return FioJob(
            name=self.name,
            host="",
            group=self.group,
            error=self.error,
            threads=max(1, self.threads),
            options=options,
            depth=int(target[2]) if target else None,
            ops=ops,
            mixed=mixed,
            runtime_s=max(runtimes, default=0.0),
            user_pct=self._percent("usr", cpu.group(1)) if cpu else None,
            system_pct=self._percent("sys", cpu.group(2)) if cpu else None,
            notes=tuple(notes),
            switches=int(cpu.group(3)) if cpu and cpu.group(3) else None,
            levels=self._levels(),
        )

    def _cut(self) -> Exception:
        return self.source.error(f"the report of job {self.name!r} is not whole", CUT)

    def _levels(self) -> dict[str, float]:
        line = _DEPTHS.search(self.body)
        pairs = _DEPTH.findall(line.group(1)) if line else []
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

    def _directions(
        self, counts: list[int], options: Options
    ) -> tuple[dict[Op, OpResult], OpResult | None, list[float]]:
        """Split the body at its direction lines; return results and run times, s."""
        starts = list(_DIRECTION.finditer(self.body))
        ends = [*(match.start() for match in starts), len(self.body)][1:]
        ops: dict[Op, OpResult] = {}
        mixed = None
        runtimes = []
        for match, end in zip(starts, ends, strict=True):
            runtime = _RUNTIME.search(match[2])
            if runtime is None:
                raise self._cut()
            text = runtime.group(1) or runtime.group(2)
            runtime_s = self._number("run time", text, 1e12) / 1000
            runtimes.append(runtime_s)
            body = self.body[match.end() : end]
            if match[1] == "mixed" and sum(counts[:2]):
                sizes = options.block_sizes("read") or {}
                if sizes != (options.block_sizes("write") or {}):
                    sizes = {}
                mixed = self._result(match[2], body, sum(counts[:2]), runtime_s, sizes)
            for index, op in enumerate(OPS):
                if op == match[1] and index < len(counts) and counts[index]:
                    sizes = options.block_sizes(op) or {}
                    ops[op] = self._result(match[2], body, counts[index], runtime_s, sizes)
        for index, op in enumerate(OPS):
            if not self.error and counts[index : index + 1] > [0] and op not in ops and not mixed:
                raise self.source.error(
                    f"the report of job {self.name!r} counts {counts[index]} {op}s and has no line "
                    "of them",
                    CUT,
                )
        return *by_operation(ops, mixed, options), runtimes

    def _result(
        self, line: str, body: str, count: int, runtime_s: float, sizes: Mapping[int, float]
    ) -> OpResult:
        rate = 1 / runtime_s if runtime_s else 0.0
        self._check_rate(line, count * rate)
        n_bytes = self._bytes(line, count, sizes)
        moments = {m.group(1): m for m in _MOMENTS.finditer(body)}
        percentiles = {m.group(1) or "clat": m for m in _PERCENTILES.finditer(body)}
        latencies = {
            kind: self._latency(kind, count, moments.get(kind), percentiles.get(kind))
            for kind in ("clat", "lat", "slat")
        }
        return OpResult(
            count=count,
            bytes=n_bytes,
            iops=min(count * rate, MAX_RATE),
            bytes_per_s=n_bytes * rate,
            **latencies,
        )

    def _check_rate(self, line: str, iops: float) -> None:
        """Refuse a count that is not what IOPS and run time make."""
        match = _PRINTED_RATE.search(line)
        printed = self._number("IOPS", match.group(1), MAX_RATE) if match else 0.0
        # Below 20 a rate printed as a whole number says too little.
        if printed >= 20 and not abs(iops - printed) <= RATE_TOLERANCE * printed:
            raise self.source.error(
                f"line {self.line} and below: {printed:g} IOPS are printed, and issued requests "
                f"over run time make {iops:.5g}",
                "give the report as fio wrote it",
            )

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

    def _bytes(self, text: str, count: int, sizes: Mapping[int, float]) -> int:
        """Bytes moved: of one block size exactly if that is what was printed, else as printed."""
        printed = self.printed_bytes(text)
        if len(sizes) == 1:
            exact = count * next(iter(sizes))
            if printed is None or abs(exact - printed) <= 0.05 * max(exact, printed):
                return exact
        return 0 if printed is None else round(printed)

    def _latency(
        self,
        kind: str,
        count: int,
        moments: re.Match[str] | None,
        percentiles: re.Match[str] | None,
    ) -> Latency | None:
        if moments is None:
            return None
        per_s = _PER_S[moments[2]]
        # What is longer than its run is said with both numbers later on.
        low, high, mean, deviation = (
            self._number(kind, text, 1e15 * per_s) / per_s for text in moments.group(3, 4, 5, 6)
        )
        if not mean or not high:
            return None
        found: dict[float, float] = {}
        if percentiles is not None:
            scale = _PER_S[percentiles[2]]
            for percent, value in _PERCENTILE.findall(percentiles[3]):
                rank = self._number("percentile", percent, 100)
                found[rank] = (
                    self._number(f"p{percent}", value.lstrip(">="), MAX_LATENCY_S * scale) / scale
                )
        ordered = [found[p] for p in sorted(found)]
        # Values are printed with five digits at most.
        if ordered != sorted(ordered) or not low * 0.99 <= mean <= high * 1.01 + 1 / per_s:
            raise self.source.error(
                f"line {self.line} and below: the {kind} numbers contradict each other",
                "repeat the capture",
            )
        return Latency(count, mean, low, high, deviation, found)


def section_of(source: Source, match: re.Match[str], line: int, body: str) -> ReportSection:
    """Return the section that the header *match* of `SECTION` starts, at *line*."""
    numbers = [match["group"], match["jobs"], match["error"]]
    if any(len(number) > 9 for number in numbers):
        raise source.error(f"line {line}: {shown(match[0], 60)!r}", "repeat the capture")
    pid = _PID.search(match["rest"])
    return ReportSection(
        source,
        line,
        shown(match["name"], 60),
        int(match["group"]),
        int(match["jobs"]),
        abs(int(match["error"])),
        pid.group(1) if pid else "",
        (pid.group(2) or "") if pid else "",
        body,
    )
