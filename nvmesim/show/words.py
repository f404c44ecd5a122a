"""A result in words and rows: what the terminal, the report and the charts all say alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nvmesim.measure.figures import (
    Cpu,
    Distribution,
    Interval,
    MemberStats,
    OpStats,
    Rebuild,
    StationStats,
)
from nvmesim.measure.groups import GroupStats
from nvmesim.measure.syncs import Syncs
from nvmesim.predict.result import Result
from nvmesim.units import percent as percent

COLUMNS: Final = ("mean", "p50", "p99", "p99.9")
FULL: Final = 0.9
"""Utilization from which a station counts as full."""
_LINKS: Final = ("memory", "interconnect", "uplink", "adapter-commands", "port")
"""Resources of links, from the sockets outwards."""
_DRIVE: Final = 4 + len(_LINKS)
_PATH: Final = {"thread": 0, "cpu": 1, "lock": 2, "raid-engine": 2, "drive": _DRIVE}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def one_line(text: str) -> str:
    r"""Return *text* without line breaks and control characters: safe to print.

    >>> one_line("a\nb\x1b[31mc")
    'a b [31mc'
    """
    return _CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8")


def kiops(per_s: float) -> str:
    """Thousands of requests per second, or less than one thousand as they are.

    >>> kiops(2_719_800.0), kiops(512_340.0), kiops(679.0)
    ('2,720 k', '512.3 k', '679')
    """
    if per_s < 999.5:
        return f"{per_s:.3g}"
    thousands = per_s / 1e3
    if thousands >= 1000:
        return f"{thousands:,.0f} k"
    return f"{thousands:.4g} k" if thousands >= 100 else f"{thousands:.3g} k"


def plus_minus(interval: Interval) -> str:
    """Half the width of the interval in percent of the value; both ends if they differ much.

    >>> plus_minus(Interval(100.0, 99.5, 100.5)), plus_minus(Interval(100.0, 60.0, 101.0))
    ('± 0.5 %', '-40 .. +1 %')
    """
    if not interval.value or not math.isfinite(interval.high - interval.low):
        return ""
    half = 50 * (interval.high - interval.low) / interval.value
    down, up = (100 * abs(end / interval.value - 1) for end in (interval.low, interval.high))
    if half > 5 and max(down, up) > 1.5 * min(down, up):
        return f"-{down:.0f} .. +{up:.0f} %"
    return f"± {half:.1f} %" if half >= 0.095 else f"± {half:.2f} %"


def microseconds(seconds: float | None) -> str:
    """A latency in us without its unit, three to four digits; "-" if unknown.

    >>> microseconds(78.52e-6), microseconds(1.2345e-3), microseconds(None)
    ('78.5', '1,234', '-')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    us = seconds * 1e6
    if 0 < us < 0.005:
        return "<0.01"
    return f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def gain(share: float) -> str:
    """A relative change, signed.

    >>> gain(0.1234), gain(-0.002)
    ('+12.3 %', '-0.2 %')
    >>> gain(-0.0001), gain(6.143)
    ('+0.0 %', '+614 %')
    """
    if abs(share) >= 0.9995:
        return f"{100 * share:+,.0f} %"
    return f"{signed(share * 100)} %"


def gigabytes(bytes_per_s: float) -> str:
    """A bandwidth in GB/s (10**9) without its unit.

    >>> gigabytes(5.97e9), gigabytes(59.3e6)
    ('5.97', '0.0593')
    """
    return f"{bytes_per_s / 1e9:.3g}"


def latency_at(distribution: Distribution, column: str) -> float | None:
    """The mean ("mean") or a percentile ("p99.9") of *distribution*, s."""
    if column == "mean":
        return distribution.mean
    return distribution.percentiles.get(float(column[1:]))


@dataclass(frozen=True)
class OpRow:
    """One line of the answer, as text."""

    name: str
    iops: str
    plus_minus: str
    gigabytes: str
    latencies: tuple[str, ...]
    """us, as COLUMNS."""


def op_rows(result: Result) -> list[OpRow]:
    """Total, and reads and writes if both are there."""
    both = result.read is not None and result.write is not None
    only = "read" if result.read is not None else "write"
    rows = [("total" if both else only, result.total)]
    if both:
        rows += [(n, s) for n, s in (("read", result.read), ("write", result.write)) if s]
    return [_op_row(name, stats) for name, stats in rows]


def _op_row(name: str, stats: OpStats) -> OpRow:
    latencies = tuple(microseconds(latency_at(stats.latency, c)) for c in COLUMNS)
    rate = stats.iops
    bandwidth = gigabytes(stats.bytes_per_s.value)
    return OpRow(name, kiops(rate.value), plus_minus(rate), bandwidth, latencies)


GROUP_COLUMNS: Final = ("workload", "IOPS", "95 %", "mean us", "p50 us", "p99 us", "p99.9 us",
                        "of limit", "slo us", "above slo", "time above")  # fmt: skip


def group_rows(result: Result) -> list[tuple[str, ...]]:
    """Cells of `GROUP_COLUMNS`, a workload a row: if there are several, or one has limits."""
    groups = result.groups
    if len(groups) < 2 and not any(g.slo or g.limit_used is not None for g in groups):
        return []
    return [_group_row(group) for group in groups]


def _group_row(group: GroupStats) -> tuple[str, ...]:
    slo: tuple[str, ...] = ("", "", "")
    if group.slo is not None:
        late = group.slo
        slo = (
            f"{late.limit_s * 1e6:,.4g}",
            small_share(late.requests_above.value),
            small_share(late.time_above),
        )
    used = "" if group.limit_used is None else f"{percent(group.limit_used)} used"
    known = (group.mean_s, *(group.percentiles[p] for p in COLUMNS[1:]))
    return (
        group.name, kiops(group.iops.value), plus_minus(group.iops), *map(microseconds, known),
        used, *slo,
    )  # fmt: skip


def small_share(value: float) -> str:
    """A share that may be small.

    >>> small_share(0.00123), small_share(0.25), small_share(0.0), small_share(4e-7)
    ('0.12 %', '25 %', '0 %', '< 0.001 %')
    """
    if 0 < value < 1e-5:
        return "< 0.001 %"
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.4g} %"


def cpu_sentence(cpu: Cpu) -> str:
    """Both utilizations and the cost per IO, in one line."""
    return (
        f"{percent(cpu.logical_utilization)} as the operating system shows it, "
        f"{percent(cpu.physical_utilization)} of what the cores can do; "
        f"{cpu.cycles_per_io / 1e3:.1f} kcycles per IO, {cpu.ghz_per_miops:.1f} GHz per MIOPS"
    )


def sync_sentence(sync: Syncs) -> str:
    """How many flushes follow writes, and how long they take.

    >>> sync_sentence(Syncs(5400.0, 10_000, 158e-6, 0.9e-3, {50.0: 150e-6, 99.0: 410e-6}))
    '5.4 k flushes a second of 158 us on average (p50 150, p99 410), beside the writes they follow'
    """
    known = [f"p{p:g} {microseconds(v)}" for p, v in sync.percentiles.items() if v is not None]
    tail = f" ({', '.join(known)})" if known else ""
    return (
        f"{kiops(sync.per_s)} flushes a second of {microseconds(sync.mean)} us on average{tail}, "
        "beside the writes they follow"
    )


def rebuild_sentence(rebuild: Rebuild) -> str:
    """How fast a rebuild or check goes beside the load, and how long it takes.

    >>> rebuild_sentence(Rebuild("volume0", "drive1", 204.8e6, 2.17))
    'volume0: drive1 is rebuilt at 205 MB/s, 2.2 hours for the whole member at this load'
    """
    what = f"{rebuild.drive} is rebuilt" if rebuild.drive else "all members are checked"
    if not math.isfinite(rebuild.hours):
        return f"{rebuild.volume}: {what}, yet nothing moved during the run"
    return (
        f"{rebuild.volume}: {what} at {rebuild.bytes_per_s / 1e6:,.3g} MB/s, "
        f"{rebuild.hours:.2g} hours for the whole member at this load"
    )


ALIKE: Final = 0.15
"""Drives whose counts and load differ by less are alike: what differs is chance."""


def alike(members: Sequence[MemberStats], apart: str = "") -> list[list[MemberStats]]:
    """Return *members* in groups that are alike, if there are many; *apart* stays alone.

    >>> def member(n, reads):
    ...     return MemberStats(f"drive{n}", reads, 0.0, reads, 0.0, 4096 * reads, 0.0, 0.5)
    >>> [len(g) for g in alike([*(member(n, 0.1) for n in range(9)), member(9, 0.3)])]
    [9, 1]
    """
    if len(members) < FOLDED:
        return [[m] for m in members]
    groups: list[list[MemberStats]] = []
    for member in members:
        own = next((g for g in groups if member.name != apart and g[0].name != apart
                    and _is_alike(g[0], member)), None)  # fmt: skip
        if own is None:
            groups.append([member])
        else:
            own.append(member)
    return groups


FOLDED: Final = 9
"""From so many drives on, those that are alike share a row."""


def alike_name(group: Sequence[MemberStats]) -> str:
    """Return the name of one drive, or of the first and last of several."""
    if len(group) == 1:
        return group[0].name
    return f"{group[0].name} .. {group[-1].name}, {len(group)} alike"


def _is_alike(one: MemberStats, other: MemberStats) -> bool:
    pairs = [
        (one.utilization, other.utilization),
        (one.reads_per_request, other.reads_per_request),
        (one.writes_per_request, other.writes_per_request),
    ]
    return all(abs(a - b) <= ALIKE * max(a, b) for a, b in pairs)


def reason(result: Result) -> str:
    """Return why it is no faster, of a result for which no reliefs were simulated."""
    return re.sub("[:;] no change was re-simulated", "", result.bottleneck.sentence)


def sureness(result: Result) -> str:
    """How sure the total is, and what the simulation took, in one sentence."""
    known = result.certainty.sentence() if result.certainty.model_class else ""
    width = (
        known or f"{plus_minus(result.total.iops) or 'unknown'} on IOPS (95 %), simulation alone"
    )
    state = "" if result.converged else "; its precision was not reached"
    return (
        f"{width}; from {result.requests:,} requests, {result.simulated_s:.3g} s of load after "
        f"{result.warmup_s:.3g} s of warm-up{state}"
    )


def outside_sentence(result: Result) -> str:
    """Conditions of the load that the profiles were not captured under; empty if none."""
    return "; ".join(map(str, result.outside))


def share(fraction: float) -> str:
    """Half-width of an interval in percent.

    >>> share(0.0123), share(0.0004)
    ('± 1.2 %', '± 0.04 %')
    """
    half = 100 * fraction
    return f"± {half:.1f} %" if half >= 0.095 else f"± {half:.2f} %"


def relief_gain(relief_gain_value: float, low: float, high: float) -> str:
    """A gain with its interval.

    >>> relief_gain(0.12, 0.11, 0.13)
    '+12.0 % (+11.0 .. +13.0)'
    """
    return f"{gain(relief_gain_value)} ({signed(low * 100)} .. {signed(high * 100)})"


def signed(value: float) -> str:
    """One decimal with its sign; what rounds to nothing has a plus.

    >>> signed(-0.04), signed(-0.06), signed(3.0)
    ('+0.0', '-0.1', '+3.0')
    """
    text = f"{value:+.1f}"
    return "+0.0" if text == "-0.0" else text


@dataclass(frozen=True)
class StationGroup:
    """Stations that do the same for different drives, as one line."""

    label: str
    kind: str
    members: tuple[StationStats, ...]

    @property
    def busiest(self) -> StationStats:
        """The station with the highest utilization."""
        return max(self.members, key=lambda s: s.utilization)

    @property
    def least(self) -> float:
        """The lowest utilization."""
        return min(s.utilization for s in self.members)


def station_groups(stations: Iterable[StationStats]) -> list[StationGroup]:
    """Stations along the path, those of the drives and adapters put together by what they are."""
    every = sorted(stations, key=_along)
    names: dict[int, list[str]] = {}
    for station in every:
        if station.drive is not None:
            names.setdefault(station.drive, []).append(station.name)
    own = {drive: _common_words(text) for drive, text in names.items()}
    groups: dict[tuple[str, str], list[StationStats]] = {}
    for station in every:
        groups.setdefault((_role(station, own), station.kind), []).append(station)
    return [
        StationGroup(label if len(found) > 1 else found[0].name, kind, tuple(found))
        for (label, kind), found in groups.items()
    ]


def _along(station: StationStats) -> int:
    """Where on the way from the thread to the dies *station* is; equal places keep their order."""
    if station.kind == "link":
        return _LINKS.index(station.resource) + 4 if station.resource in _LINKS else 4
    return _PATH.get(station.kind, 3 if station.drive is None else _DRIVE)


def _common_words(names: Sequence[str]) -> int:
    """How many words all *names* begin with: those of the drive's own name.

    >>> _common_words(["rack A commands", "rack A port up", "rack A port down"])
    2
    """
    split = [name.split(" ") for name in names]
    same = 0
    for words in zip(*split, strict=False):
        if len(set(words)) > 1:
            break
        same += 1
    return max(1, min(same, min(len(words) for words in split) - 1))


def _role(station: StationStats, own: Mapping[int, int]) -> str:
    """Name of *station* at its drive or adapter, without the name of that."""
    words = station.name.split(" ")
    if station.drive is not None:
        return " ".join(["drive", *words[own[station.drive] :]])
    if station.adapter is not None:
        return " ".join(["adapter", *words[-2 if station.resource == "uplink" else -1 :]])
    return station.name


def plural(count: int, noun: str) -> str:
    """Return the count with its noun.

    >>> plural(1, "warning"), plural(3, "warning")
    ('1 warning', '3 warnings')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def joined(names: Sequence[str], limit: int = 4) -> str:
    """The first few names, and how many more there are.

    >>> joined(["a", "b", "c", "d", "e"], 2)
    'a, b and 3 more'
    """
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


def seconds(time_s: float) -> str:
    """A time that a person waited, with two or three digits and never as a power of ten.

    >>> seconds(0.0312), seconds(1.26), seconds(119.7)
    ('0.031 s', '1.3 s', '120 s')
    """
    return f"{time_s:.2g} s" if time_s < 10 else f"{time_s:,.0f} s"
