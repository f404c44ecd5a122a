"""Reader of node_exporter's disk counters, as a scrape of ``/metrics`` prints them.

Counters count since boot. Two scrapes in one file, or one with the times of boot and of the scrape,
give rates; mean latencies are time over requests.
Source: prometheus/node_exporter, collector/diskstats_linux.go; the text exposition format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.fields import checked
from nvmesim.capture.readers.reports.common import LARGEST, cut_line, results
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "node-exporter"
_LINE: Final = re.compile(
    r'^node_disk_(\w{3,60})\{(?:[^{}\n]*,)?device="([^"\n]{1,60})"[^{}\n]*\}\s+(\S{1,40})(?:\s+\d+)?\s*$'
)
_CLOCK: Final = re.compile(r"^node_(time_seconds|boot_time_seconds)\s+(\S{1,40})(?:\s+\d+)?\s*$")
_SNIFF: Final = re.compile(r"^node_disk_(?:reads|writes)_completed_total\{", re.M)
_SAW: Final = re.compile(r"^node_cpu_seconds_total\{", re.M)
_NAMES: Final[Mapping[Op, tuple[str, str, str]]] = {
    "read": ("reads_completed_total", "read_bytes_total", "read_time_seconds_total"),
    "write": ("writes_completed_total", "written_bytes_total", "write_time_seconds_total"),
}
_BUSY: Final = "io_time_seconds_total"
_QUEUE: Final = "io_time_weighted_seconds_total"
Counters = dict[tuple[str, str], float]


def sniff(head: Head) -> bool:
    """True if *head* has disk counters, or the CPU counters that stand before them."""
    return bool(_SNIFF.search(head.text)) or (not head.whole and bool(_SAW.search(head.text)))


def read(source: Source) -> Capture:
    """Read the difference of the last and first scrape, or all since boot of one."""
    scrapes, clocks = _scrapes(source)
    warnings: list[str] = []
    first: Counters = {}
    if len(scrapes) > 1:
        first = scrapes[0]
        times = [clock["time_seconds"] for clock in clocks if "time_seconds" in clock]
        seconds = times[-1] - times[0] if len(times) == len(scrapes) else None
    else:
        clock = clocks[0] if clocks else {}
        warnings.append(
            "one scrape: everything since boot, not a load; scrape before and after one"
        )
        seconds = clock["time_seconds"] - clock["boot_time_seconds"] if len(clock) == 2 else None
    if seconds is None or seconds <= 0:
        seconds = None
        warnings.append("how long it counted is unknown (node_time_seconds): no rates")
    last = scrapes[-1] if scrapes else {}
    found = []
    for device in dict.fromkeys(device for device, _ in last):
        grown = {
            name: value - first.get((d, name), 0.0)
            for (d, name), value in last.items()
            if d == device
        }
        if min(grown.values()) < 0:
            warnings.append(f"{device}: counters fell, so it booted between the scrapes (left out)")
        elif any(grown.get(names[0], 0.0) >= 1 for names in _NAMES.values()):
            found.append(_measurement(device, grown, seconds))
    warnings += cut_line(source)
    return results(source, FORMAT, found, warnings, rows=len(last))


def _scrapes(source: Source) -> tuple[list[Counters], list[dict[str, float]]]:
    """Counters and clocks of each scrape; one begins where a counter comes again."""
    scrapes: list[Counters] = []
    clocks: list[dict[str, float]] = []
    for number, line in enumerate(source.text(LARGEST).split("\n"), start=1):
        counter, clock = _LINE.match(line), _CLOCK.match(line)
        where = f"line {number}"
        if counter:
            key = (shown(counter[2], 40), counter[1])
            value = checked(source, where, counter[3], most=1e18)
            if not scrapes or key in scrapes[-1]:
                scrapes.append({})
            scrapes[-1][key] = value
        elif clock:
            value = checked(source, where, clock[2], most=1e12)
            if not clocks or clock[1] in clocks[-1]:
                clocks.append({})
            clocks[-1][clock[1]] = value
    return scrapes, clocks


def _measurement(device: str, grown: dict[str, float], seconds: float | None) -> Measurement:
    ops: dict[Op, OpResult] = {}
    for op, (requests, n_bytes, time) in _NAMES.items():
        count = grown.get(requests, 0.0)
        if count < 1:
            continue
        moved, spent = grown.get(n_bytes, 0.0), grown.get(time)
        lat = Latency(round(count), mean_s=spent / count) if spent else None
        ops[op] = OpResult(
            count=round(count),
            bytes=round(moved),
            iops=count / seconds if seconds else 0.0,
            bytes_per_s=moved / seconds if seconds else 0.0,
            clat=lat,
        )
    total = sum(result.count for result in ops.values())
    busy, queue = grown.get(_BUSY), grown.get(_QUEUE)
    return Measurement(
        label=device,
        conditions=Conditions(
            read_fraction=ops["read"].count / total if "read" in ops else 0.0,
            targets=1,
            duration_s=seconds,
            depth_mean=queue / seconds if queue is not None and seconds else None,
        ),
        ops=ops,
        disk_util_pct={device: 100 * busy / seconds} if busy is not None and seconds else {},
        source=FORMAT,
    )
