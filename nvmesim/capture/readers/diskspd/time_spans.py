"""Facts that DiskSpd's XML and text share, and how they become measurements.

DiskSpd's latency runs from just before ReadFile or WriteFile to the dequeue of the completion, so
it is a total one (``lat``). Its CPU table counts all processes of the host.
Source: microsoft/diskspd wiki and ResultParser.cpp, 2.0.21 to 2.3.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from nvmesim.capture.capture import Capture, Conditions, CpuUse, Latency, Measurement, Op, OpResult
from nvmesim.capture.text import Source

OPS: Final[tuple[Op, ...]] = ("read", "write")
T = TypeVar("T")

S_PER_MS: Final = 1e-3
LONGEST_MS: Final = 1e8
"""A day and more is not a latency."""
LARGEST: Final = 1e18
SHORTEST_S: Final = 0.001
"""Test times are printed in hundredths; a shorter one makes rates without end."""
BUSY_PCT: Final = 95.0
EXACT_ASYNC: Final = (2, 2)
"""Release notes of 2.2: older versions inflate latency at more than one outstanding request."""

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$")


def number(text: str | None) -> float | None:
    """The number in *text* with a decimal point or comma; None if there is none that is finite.

    >>> number("0,107"), number("1.234,5"), number("97.10%"), number("N/A"), number("nan")
    (0.107, 1234.5, 97.1, None, None)
    """
    if text is None:
        return None
    clean = text.strip().rstrip("%").strip().replace("\u00a0", "").replace("\u202f", "")
    if "," in clean:
        if clean.rfind(",") > clean.rfind("."):
            clean = clean.replace(".", "").replace(",", ".", 1)
        else:
            clean = clean.replace(",", "")
    if len(clean) > 60 or not _DECIMAL.match(clean):
        return None
    value = float(clean)
    return value if math.isfinite(value) and abs(value) <= LARGEST else None


def whole(text: str | None) -> int | None:
    """The integer in *text*, at least 0, or None.

    >>> whole(" 4096 "), whole("-1"), whole("x")
    (4096, None, None)
    """
    value = number(text)
    return int(value) if value is not None and value >= 0 and value == int(value) else None


def version_of(text: str | None) -> tuple[int, ...]:
    """Numbers of a version such as ``2.0.21a``; empty if unknown.

    >>> version_of("2.0.21a")
    (2, 0, 21)
    """
    return tuple(int(part) for part in re.findall(r"\d{1,6}", text or "")[:3])


@dataclass
class DiskspdTarget:
    """One target as the profile states it; None is unknown."""

    path: str
    block_size: int | None = None
    outstanding: int | None = None
    """Per thread."""
    threads: int | None = None
    write_pct: float | None = None
    random: bool | None = None
    direct: bool | None = None
    rate_iops: float | None = None
    """Limit per thread."""


@dataclass
class DiskspdCounts:
    """Results of one direction, over some threads."""

    count: int = 0
    bytes: int = 0
    latency_ms: float = 0.0
    """Sum over the requests."""
    squares: float = 0.0
    timed: int = 0

    def add(
        self, count: int, n_bytes: int, mean_ms: float | None = None, stddev: float | None = None
    ) -> None:
        """Add *count* requests with this mean and population standard deviation (exact sums)."""
        self.count += count
        self.bytes += n_bytes
        if mean_ms is not None and 0 <= mean_ms <= LONGEST_MS and count:
            self.timed += count
            self.latency_ms += mean_ms * count
            self.squares += (min(max(stddev or 0.0, 0.0), LONGEST_MS) ** 2 + mean_ms**2) * count

    def latency(self) -> Latency | None:
        """Mean and deviation, if every request had them."""
        if not self.timed or self.timed != self.count:
            return None
        mean = self.latency_ms / self.timed
        variance = max(self.squares / self.timed - mean * mean, 0.0)
        return Latency(
            count=self.count, mean_s=mean * S_PER_MS, stddev_s=math.sqrt(variance) * S_PER_MS
        )


Table = dict[Op, dict[float, float]]
"""Percentiles, percent -> ms, of each direction; 0 is the minimum, 100 the maximum."""


@dataclass
class TimeSpan:
    """One time span: profile, counts, tables."""

    label: str
    targets: list[DiskspdTarget] = field(default_factory=list)
    counts: dict[str, dict[Op, DiskspdCounts]] = field(default_factory=dict)
    """By target path."""
    total: dict[Op, DiskspdCounts] | None = None
    """Totals as printed; None: the sum over the targets."""
    means: dict[Op, tuple[float | None, float | None]] = field(default_factory=dict)
    """Mean and standard deviation in ms of the total, as printed."""
    percentiles: Table = field(default_factory=dict)
    target_percentiles: dict[str, Table] = field(default_factory=dict)
    seconds: float | None = None
    threads: int | None = None
    shared_threads: bool = False
    """-F: each thread has all targets."""
    thread_outstanding: int | None = None
    """-O: outstanding per thread over all targets."""
    warmup_s: float | None = None
    cpus: int | None = None
    cpu_average: tuple[float | None, float | None, float | None] | None = None
    """Usage, user, kernel in percent of the whole host."""
    busiest_pct: float | None = None
    engine: str | None = None
    warnings: list[str] = field(default_factory=list)

    def tally(self, path: str, op: Op) -> DiskspdCounts:
        """The counts of one target and direction, made when first asked for."""
        return self.counts.setdefault(path, {}).setdefault(op, DiskspdCounts())


def measurements(span: TimeSpan, version: str | None) -> list[Measurement]:
    """The total of *span*, then each target if there are several; empty without a test time."""
    if span.seconds is None or not SHORTEST_S <= span.seconds < LARGEST:
        return []
    total = span.total or _summed(span)
    warnings = [*span.warnings, *_warnings(span, version)]
    result = [
        Measurement(
            label=span.label,
            conditions=_conditions(span, span.targets, total),
            ops=_ops(total, span.seconds, span.means, span.percentiles),
            cpu=_cpu(span),
            source=f"DiskSpd {version or ''}".strip(),
            warnings=tuple(warnings),
        )
    ]
    if len(span.counts) > 1:
        for path, counts in span.counts.items():
            targets = [t for t in span.targets if t.path == path]
            result.append(
                Measurement(
                    label=f"{span.label}: {path}",
                    conditions=_conditions(span, targets, counts, alone=True),
                    ops=_ops(counts, span.seconds, {}, span.target_percentiles.get(path, {})),
                    source=f"DiskSpd {version or ''}".strip(),
                )
            )
    return result


def _summed(span: TimeSpan) -> dict[Op, DiskspdCounts]:
    total: dict[Op, DiskspdCounts] = {}
    for counts in span.counts.values():
        for op, part in counts.items():
            into = total.setdefault(op, DiskspdCounts())
            into.count += part.count
            into.bytes += part.bytes
            into.timed += part.timed
            into.latency_ms += part.latency_ms
            into.squares += part.squares
    return total


def _warnings(span: TimeSpan, version: str | None) -> list[str]:
    notes = []
    depths = {t.outstanding for t in span.targets if t.outstanding}
    numbers = version_of(version)
    timed = any(mean is not None for mean, _ in span.means.values()) or span.percentiles
    if timed and numbers and numbers < EXACT_ASYNC and any(d > 1 for d in depths):
        notes.append("DiskSpd before 2.2 inflates latency at more than one outstanding request")
    if span.busiest_pct is not None and span.busiest_pct >= BUSY_PCT:
        notes.append(
            f"a logical CPU was {span.busiest_pct:.0f} % busy: the CPU may be what was measured"
        )
    return notes


def _same(values: Sequence[T | None]) -> T | None:
    """The one value that all have, or None."""
    return values[0] if values and all(v == values[0] for v in values) else None


def _depth(span: TimeSpan, targets: list[DiskspdTarget], alone: bool) -> int | None:
    """Outstanding per thread over the targets it has."""
    depths = [t.outstanding for t in targets]
    if alone or not span.shared_threads:
        return _same(depths)
    if span.thread_outstanding:
        return span.thread_outstanding
    return sum(d for d in depths if d) if all(depths) else None


def _jobs(span: TimeSpan, targets: list[DiskspdTarget], alone: bool) -> int | None:
    if not alone or span.shared_threads:
        return span.threads
    return _same([t.threads for t in targets])


def _block_size(targets: list[DiskspdTarget]) -> int | dict[int, float] | None:
    sizes = [t.block_size for t in targets]
    if not sizes or not all(sizes):
        return None
    # Each target gets its own stream; how the requests divide is not known beforehand.
    return _same(sizes)


def _conditions(
    span: TimeSpan,
    targets: list[DiskspdTarget],
    counts: dict[Op, DiskspdCounts],
    *,
    alone: bool = False,
) -> Conditions:
    done = sum(c.count for c in counts.values())
    write_pct = _same([t.write_pct for t in targets])
    random = _same([t.random for t in targets])
    read_fraction = counts.get("read", DiskspdCounts()).count / done if done else None
    if write_pct is not None:
        read_fraction = 1 - write_pct / 100
    rates = [t.rate_iops for t in targets]
    jobs = _jobs(span, targets, alone)
    return Conditions(
        read_fraction=read_fraction,
        access=None if random is None else "random" if random else "sequential",
        block_size=_block_size(targets),
        jobs=jobs,
        iodepth=_depth(span, targets, alone),
        targets=len(targets) or None,
        targets_per_job=1 if targets and not span.shared_threads else None,
        engine=span.engine,
        direct=_same([t.direct for t in targets]),
        rate_iops=_rate(span, targets, rates),
        duration_s=span.seconds,
        ramp_s=span.warmup_s,
        cpus=span.cpus,
    )


def _rate(span: TimeSpan, targets: list[DiskspdTarget], rates: list[float | None]) -> float | None:
    if not rates or not all(rates):
        return None
    threads = [span.threads if span.shared_threads else t.threads for t in targets]
    if not all(threads):
        return None
    return sum(r * n for r, n in zip(rates, threads, strict=True) if r and n)


def _ops(
    counts: dict[Op, DiskspdCounts],
    seconds: float,
    means: dict[Op, tuple[float | None, float | None]],
    percentiles: Table,
) -> dict[Op, OpResult]:
    return {
        op: OpResult(
            count=c.count,
            bytes=c.bytes,
            iops=c.count / seconds,
            bytes_per_s=c.bytes / seconds,
            lat=_latency(c, means.get(op, (None, None)), percentiles.get(op, {})),
        )
        for op, c in counts.items()
        if c.count
    }


def _latency(
    counts: DiskspdCounts, printed: tuple[float | None, float | None], table: dict[float, float]
) -> Latency | None:
    found = counts.latency()
    mean, stddev = (_seconds(value) for value in printed)
    if found is None and mean is None and not table:
        return None
    if found is not None:
        mean = found.mean_s if mean is None else mean
        stddev = found.stddev_s if stddev is None else stddev
    return Latency(
        count=counts.count,
        mean_s=mean,
        min_s=_seconds(table.get(0.0)),
        max_s=_seconds(table.get(100.0)),
        stddev_s=stddev,
        percentiles_s={p: v * S_PER_MS for p, v in sorted(table.items()) if 0 < p < 100},
    )


def _seconds(milliseconds: float | None) -> float | None:
    if milliseconds is None or not 0 <= milliseconds <= LONGEST_MS:
        return None
    return milliseconds * S_PER_MS


def checked_table(table: dict[float, float], warnings: list[str], what: str) -> dict[float, float]:
    """*table* if its percentiles ascend and are sane; else nothing, and a warning."""
    values = [table[p] for p in sorted(table)]
    if all(0 <= v <= LONGEST_MS for v in values) and values == sorted(values):
        return table
    warnings.append(f"{what}: percentiles that do not ascend (left out): the file is damaged")
    return {}


def _cpu(span: TimeSpan) -> CpuUse | None:
    if span.cpu_average is None or not span.cpus:
        return None
    usage, user, kernel = span.cpu_average
    if usage is None:
        return None
    n = span.cpus
    return CpuUse(
        user_pct=None if user is None else user * n,
        system_pct=None if kernel is None else kernel * n,
        total_pct=usage * n,
        scope="host",
    )


def _numbered(found: Sequence[Measurement]) -> list[Measurement]:
    """*found* with the number of its run where several runs of a file have the same label."""
    labels = Counter(measurement.label for measurement in found)
    seen: Counter[str] = Counter()
    named = []
    for measurement in found:
        label = measurement.label
        seen[label] += 1
        run = f"{label} (run {seen[label]})"
        named.append(replace(measurement, label=run) if labels[label] > 1 else measurement)
    return named


def results_capture(
    source: Source,
    format_name: str,
    version: str | None,
    found: Sequence[Measurement],
    warnings: Sequence[str],
) -> Capture:
    """The capture of the results *found*; CaptureError if there is none."""
    if not found:
        reason = f" ({'; '.join(warnings)})" if warnings else ""
        raise source.error(f"has no whole result of DiskSpd{reason}", "repeat the run")
    return Capture(
        file=source.path,
        format=format_name,
        version=version,
        measurements=tuple(_numbered(found)),
        rows=len(found),
        warnings=tuple(warnings),
    )
