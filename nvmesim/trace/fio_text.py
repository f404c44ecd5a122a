"""fio's normal output, as people paste it: the report of each job group.

Counts are exact (``issued rwts``), rates follow from them; latencies come rounded as printed.
Source: fio stat.c, show_thread_status_normal; both the layout of fio 3 and that of fio 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nvmesim.trace.capture import Capture, Latency, Op, OpResult
from nvmesim.trace.fields import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.trace.fio_banner import Banner, read_banner
from nvmesim.trace.fio_groups import measure_groups
from nvmesim.trace.fio_jobs import OPS, Job
from nvmesim.trace.fio_options import Options
from nvmesim.trace.text import Head, Source, shown

_SECTION: Final = re.compile(
    r"^(?P<name>[^\n]+?): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): "
    r"err=\s*(?P<error>-?\d+)(?P<rest>[^\n]*)$",
    re.MULTILINE,
)
_PID: Final = re.compile(r"pid=(\d+)")
_DIRECTION: Final = re.compile(r"^  (read|write|trim|mixed)\s*:(.*)$", re.MULTILINE)
_RUNTIME: Final = re.compile(r"/\s*(\d+)msec\)|runt=\s*(\d+)msec")
_BYTES: Final = re.compile(r"\)\(([0-9.]+)([KMGTP]?)(i?)B?/\d+msec|io=([0-9.]+)([KMGTP]?)B?[,;]")
_MOMENTS: Final = re.compile(
    r"^\s*(slat|clat|lat) \((nsec|usec|msec)\)\s*:\s*min=\s*([^,\s]+), max=\s*([^,\s]+), "
    r"avg=\s*([^,\s]+), stdev=\s*([^,\s]+)\s*$",
    re.MULTILINE,
)
_PERCENTILES: Final = re.compile(
    r"^\s*(?:(slat|clat|lat) )?percentiles \((nsec|usec|msec)\):\n((?:\s*\|[^\n]*\n?)+)",
    re.MULTILINE,
)
_PERCENTILE: Final = re.compile(r"([0-9.]+)th=\[\s*([^\]\s]+)\]")
_CPU: Final = re.compile(r"^  cpu\s*: usr=([0-9.]+)%, sys=([0-9.]+)%", re.MULTILINE)
_ISSUED: Final = re.compile(r"^\s*issued rwts?: total=(\d+),(\d+),(\d+)", re.MULTILINE)
_ISSUED_OLD: Final = re.compile(r"^\s*issued\s*: total=r=(\d+)/w=(\d+)/d=(\d+)", re.MULTILINE)
_DISK: Final = re.compile(r"^  (\S+): ios=[^\n]*?, util=([0-9.]+)%", re.MULTILINE)
_PER_S: Final = {"nsec": 1e9, "usec": 1e6, "msec": 1e3}
_SCALE: Final = {"k": 1e3, "m": 1e6, "g": 1e9}
_CUT: Final = "the run was cut off or the text copied in part: repeat it, or copy the whole report"


def sniff(head: Head) -> bool:
    """Whether *head* has the header of a job's report, and no JSON beside it."""
    return bool(_SECTION.search(head.text)) and '"fio version"' not in head.text


def read(source: Source) -> Capture:
    """Read every report; CaptureError if one is cut off or failed."""
    text = source.text()
    banner = read_banner(text)
    sections = list(_sections(source, text))
    if not sections:
        raise source.error("has no report of a fio job", "give the whole output of fio")
    # With --status-interval a job is reported again and again; the process id tells it apart.
    last = {(s.group, s.name, s.pid): s for s in sections}
    jobs = [section.job(banner) for section in last.values()]
    warnings: list[str] = []
    util = {
        shown(name, 40): checked(source, f"util of {shown(name, 20)}", value, most=1e6)
        for name, value in _DISK.findall(text[text.rfind("Disk stats") :])
    }
    measurements = measure_groups(source, jobs, util, warnings)
    return Capture(
        file=source.path,
        format="fio-text",
        version=banner.version,
        measurements=tuple(measurements),
        rows=len(last),
        warnings=tuple(warnings),
    )


def _sections(source: Source, text: str) -> Iterator[_Section]:
    starts = list(_SECTION.finditer(text))
    if not starts:
        return
    ends = [match.start() for match in starts[1:]]
    run_status = text.find("\nRun status group", starts[-1].end())
    ends.append(run_status if run_status >= 0 else len(text))
    for match, end in zip(starts, ends, strict=True):
        body = text[match.end() : end]
        line = text.count("\n", 0, match.start()) + 1
        pid = _PID.search(match["rest"])
        numbers = [match["group"], match["jobs"], match["error"]]
        if any(len(number) > 9 for number in numbers):
            raise source.error(f"line {line}: {shown(match[0], 60)!r}", "repeat the capture")
        yield _Section(
            source,
            line,
            shown(match["name"], 60),
            int(match["group"]),
            int(match["jobs"]),
            abs(int(match["error"])),
            pid.group(1) if pid else "",
            body,
        )


@dataclass(frozen=True)
class _Section:
    """The report of one job or job group."""

    source: Source
    line: int
    name: str
    group: int
    threads: int
    error: int
    pid: str
    body: str

    def job(self, banner: Banner) -> Job:
        cpu = _CPU.search(self.body)
        issued = _ISSUED.search(self.body) or _ISSUED_OLD.search(self.body)
        if not self.error and (cpu is None or issued is None):
            raise self.source.error(f"the report of job {self.name!r} is not whole", _CUT)
        counts = [self._number("issued", text, 2**62) for text in issued.groups()] if issued else []
        options = banner.of(self.group, self.name)
        ops, runtimes = self._directions([int(count) for count in counts], options)
        notes = (f"{int(counts[2])} trims are left out",) if counts and counts[2] else ()
        return Job(
            name=self.name,
            host="",
            group=self.group,
            error=self.error,
            threads=max(1, self.threads),
            options=options,
            depth=None,
            ops=ops,
            mixed=None,
            runtime_s=max(runtimes, default=0.0),
            user_pct=self._number("usr", cpu.group(1), 1e6) if cpu else None,
            system_pct=self._number("sys", cpu.group(2), 1e6) if cpu else None,
            notes=notes,
        )

    def _number(self, what: str, text: str, most: float) -> float:
        """Return the number that fio printed, perhaps with a K or M."""
        where = f"line {self.line} and below, {what}"
        scale = _SCALE.get(text[-1:].lower())
        value = text[:-1] if scale else text
        # The bound is for the number as it is meant: "9K" means 9,000.
        return checked(self.source, where, value, most=most / (scale or 1.0)) * (scale or 1.0)

    def _directions(
        self, counts: list[int], options: Options
    ) -> tuple[dict[Op, OpResult], list[float]]:
        """Split the body at its direction lines; return results and run times, s."""
        starts = list(_DIRECTION.finditer(self.body))
        ends = [*(match.start() for match in starts), len(self.body)][1:]
        ops: dict[Op, OpResult] = {}
        runtimes = []
        for match, end in zip(starts, ends, strict=True):
            runtime = _RUNTIME.search(match[2])
            if runtime is None:
                raise self.source.error(f"the report of job {self.name!r} is not whole", _CUT)
            text = runtime.group(1) or runtime.group(2)
            runtime_s = self._number("run time", text, 1e12) / 1000
            runtimes.append(runtime_s)
            for index, op in enumerate(OPS):
                if op == match[1] and index < len(counts) and counts[index]:
                    body = self.body[match.end() : end]
                    sizes = options.block_sizes(op) or {}
                    ops[op] = self._result(match[2], body, counts[index], runtime_s, sizes)
        return ops, runtimes

    def _result(
        self, line: str, body: str, count: int, runtime_s: float, sizes: Mapping[int, float]
    ) -> OpResult:
        n_bytes = self._bytes(line, count, sizes)
        moments = {m.group(1): m for m in _MOMENTS.finditer(body)}
        percentiles = {m.group(1) or "clat": m for m in _PERCENTILES.finditer(body)}
        latencies = {
            kind: self._latency(kind, count, moments.get(kind), percentiles.get(kind))
            for kind in ("clat", "lat", "slat")
        }
        rate = 1 / runtime_s if runtime_s else 0.0
        return OpResult(
            count=count,
            bytes=n_bytes,
            iops=min(count * rate, MAX_RATE),
            bytes_per_s=n_bytes * rate,
            **latencies,
        )

    def _bytes(self, text: str, count: int, sizes: Mapping[int, float]) -> int:
        """Bytes moved: of one block size exactly, else as fio printed them (three digits)."""
        if len(sizes) == 1:
            return count * next(iter(sizes))
        match = _BYTES.search(text)
        if match is None:
            return 0
        number, prefix = (match[1], match[2]) if match[1] else (match[4], match[5])
        # fio 3 prints MiB; fio 2 printed MB and meant MiB too.
        size = self._number("bytes", number, 2**60) * 1024.0 ** (
            "KMGTP".find(prefix) + 1 if prefix else 0
        )
        if size > 2**62:
            raise self.source.error(f"line {self.line}: {shown(text)!r}", "repeat the capture")
        return round(size)

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
        low, high, mean, deviation = (
            self._number(kind, text, MAX_LATENCY_S * per_s) / per_s
            for text in moments.group(3, 4, 5, 6)
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
