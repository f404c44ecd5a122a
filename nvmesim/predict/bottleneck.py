"""The bottleneck: utilization, operational bounds, and one honest sentence.

Bounds are asymptotic: no throughput exceeds servers over demand at any station, nor, where a
request does one thing after the other, the number outstanding over the sum of its demands. Source:
Denning and Buzen, "The operational analysis of queueing network models", ACM Computing Surveys
10(3), 1978. A bound says what a station could do at most; what a change brings is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.engine.contract import Acc
from nvmesim.measure.figures import Relief
from nvmesim.measure.stations import Totals, busy, demand, full_scale, fullest, is_delay, rows_of
from nvmesim.model.lowered import Lowered
from nvmesim.model.sharers import engine_share, served_in_turn
from nvmesim.network.network import GATES, Kind, Op
from nvmesim.network.roles import StationInfo
from nvmesim.predict.result import Bottleneck, Verdict
from nvmesim.units import PS_PER_S, format_iops, percent

FULL: Final = 0.90
"""Utilization above which a station is what stops it (DESIGN 6)."""
VERDICTS: Final[dict[str, Verdict]] = {
    "cpu": "cpu",
    "thread": "cpu",
    "drive": "drive",
    "link": "link",
    "lock": "cpu",
    "raid-engine": "raid-engine",
    "limit": "limit",
}
ENGINE_SHARE: Final = 0.5
"""Share of the threads' time that a RAID engine takes, above which it is what stops them."""
ALIKE: Final = 0.1
"""Stations of equal drives that differ by less are as busy: which is the fullest is chance."""
LATENCY_BOUND: Final = "outstanding over the sum of demands"
MORE_OUTSTANDING: Final = "twice as many outstanding"
"""The relief that a latency-bound answer is about."""


@dataclass(frozen=True)
class SaturatedStation:
    """A station with how full its fullest part is, and what it could do at most."""

    info: StationInfo
    utilization: float
    bound_iops: float


def ranked(lowered: Lowered, totals: Totals) -> list[SaturatedStation]:
    """Stations that do work, those first that allow least; gates that only wait are left out."""
    asleep = served_in_turn(lowered.scenario)
    found = [
        SaturatedStation(info, fullest(lowered.network, info, totals), bound(lowered, info, totals))
        for info in lowered.stations
        if info.kind in VERDICTS
        and not (asleep and info.kind == "thread")
        and (info.kind != "limit" or info.drive is not None or _all_limited(lowered))
    ]
    return sorted((f for f in found if f.bound_iops < np.inf), key=lambda f: f.bound_iops)


def _all_limited(lowered: Lowered) -> bool:
    """True if every group has limits: else those of some do not stop the rest."""
    return all(group.limits is not None for group in lowered.scenario.workload)


def bound(lowered: Lowered, info: StationInfo, totals: Totals) -> float:
    """Requests per second that *info* allows; infinite where nothing is done.

    Servers / demand, demand being service time per request: of the fullest station where they
    differ by more than chance. A CPU counts with its cores' full yield: work times the factor of
    all siblings busy. A thread counts without the time that it waits for a CPU.
    """
    net = lowered.network
    if is_delay(net, info) or not totals.requests:
        return float("inf")
    if info.kind == "cpu":
        work = float(totals.stations[info.first, Acc.WORK]) * full_scale(net, info)
        return _bound(work / int(net.station_servers[info.first]), totals.requests)
    if info.kind == "thread":
        return _bound(_thread_time(lowered, info, totals), totals.requests)
    rows = rows_of(info)
    each = demand(net, info, totals) / net.station_servers[rows]
    skewed = fullest(net, info, totals) > float(busy(net, info, totals).mean()) * (1 + 1e-9)
    return _bound(float(each.max() if skewed else each.mean()), totals.requests)


def _bound(service_ps: float, requests: int) -> float:
    return PS_PER_S * requests / service_ps if service_ps > 0 else float("inf")


def _thread_time(lowered: Lowered, info: StationInfo, totals: Totals) -> float:
    """Ps of the busiest thread (or of all alike) without waiting for a CPU or a lock."""
    held = totals.stations[rows_of(info), Acc.SERVICE]
    spins = [info.first for info in lowered.stations if info.burns == "all"]
    waits = [*np.unique(lowered.network.thread_cpu), *spins]
    waited = float(totals.stations[waits, Acc.WAIT].sum())
    working = max(0.0, 1 - waited / max(1.0, float(held.sum())))
    skewed = fullest(lowered.network, info, totals) > 1.000001 * float(
        busy(lowered.network, info, totals).mean()
    )
    return float(held.max() if skewed else held.mean()) * working


def is_serial(lowered: Lowered) -> bool:
    """True if a request does one thing after the other: no operation has several children."""
    net = lowered.network
    children = np.diff(net.phase_child_ptr)
    splits = net.ops[net.ops[:, 0] == Op.SPLIT, 1]
    return int(children.max(initial=0)) <= 1 and int(splits.max(initial=0)) <= 1


def latency_bound(lowered: Lowered, totals: Totals, in_flight: int) -> float | None:
    """Outstanding over the sum of demands, requests/s; None where it does not hold.

    It holds for closed loops whose requests do one thing after the other. Buffered programs belong
    to no request, so dies that program are left out; delays after a visit are not counted, which
    only makes the bound larger.
    """
    if not in_flight or not totals.requests or not is_serial(lowered):
        return None
    net = lowered.network
    waits = np.isin(net.station_kind, (*GATES, Kind.LIMIT))
    visited = ~waits & (net.die_dist < 0)
    demand = float(totals.stations[visited, Acc.SERVICE].sum()) / totals.requests
    return in_flight * PS_PER_S / demand if demand > 0 else None


def bounds(lowered: Lowered, totals: Totals, in_flight: int) -> dict[str, float]:
    """Station -> requests per second that it allows at most, least first."""
    found = {f.info.name: f.bound_iops for f in ranked(lowered, totals)}
    serial = latency_bound(lowered, totals, in_flight)
    if serial is not None:
        found[LATENCY_BOUND] = serial
    return dict(sorted(found.items(), key=lambda item: item[1]))


def limiting(stations: Sequence[SaturatedStation]) -> SaturatedStation | None:
    """The one of `ranked` that stops it: the fullest above `FULL`, None if there is none.

    A thread that holds on while it waits for a full CPU is not what stops it: the CPU is. Nor is
    one, or a RAID engine's worker, that waits for a lock. Of those full within a percent the CPU
    comes first, being first on a request's way.
    """
    full = [f for f in stations if f.utilization > FULL]
    working = [f for f in full if f.info.kind != "thread"]
    locks = [f for f in working if f.info.burns == "all"]
    if locks:
        return max(locks, key=lambda f: f.utilization)
    if any(f.info.kind == "cpu" for f in working):
        full = working
    return max(full, key=lambda f: (round(f.utilization, 2), f.info.kind == "cpu"), default=None)


def full_gate(lowered: Lowered, totals: Totals) -> StationInfo | None:
    """A gate with (nearly) all slots taken, such as a drive's tags or its write buffer."""
    for info in lowered.stations:
        if info.kind == "gate" and fullest(lowered.network, info, totals) > FULL:
            return info
    return None


def judge(
    lowered: Lowered,
    totals: Totals,
    *,
    in_flight: int,
    reliefs: Sequence[Relief] = (),
    backlog_per_s: float | None = None,
    offered: float | None = None,
    left_out: float = 0.0,
) -> Bottleneck:
    """Return the verdict, its evidence and its sentence.

    *offered* is the rate of an open loop, *backlog_per_s* not None if it has no steady state;
    *left_out* is what arrives besides, of an overload that was simulated at a lower rate.
    """
    all_bounds = bounds(lowered, totals, in_flight)
    first = ranked(lowered, totals)
    if backlog_per_s is not None:
        # Stations see what passes those before them, so demands per request are not known; what
        # completes beside a growing backlog is what the full station carries.
        arrived = totals.requests * PS_PER_S / max(1.0, totals.duration_ps)
        carried = max(0.0, arrived - backlog_per_s)
        first = [replace(f, bound_iops=carried) for f in first]
        backlog_per_s += left_out
        offered = offered and offered + left_out
    stop = limiting(first)
    most = max(first, key=lambda f: f.utilization, default=None)
    if backlog_per_s is not None:
        stop = stop or most
    shown = stop or most
    if backlog_per_s is not None:
        all_bounds = {shown.info.name: shown.bound_iops} if shown else {}
    verdict: Verdict = "latency-bound"
    if backlog_per_s is not None:
        verdict = "unstable"
    elif stop is not None:
        verdict = "raid-engine" if _is_engine(lowered, stop) else VERDICTS[stop.info.kind]
    text = _sentence(lowered, totals, stop, most, reliefs, backlog_per_s, offered)
    return Bottleneck(
        verdict=verdict,
        sentence=text,
        station=shown.info.name if shown else None,
        kind=shown.info.kind if shown else None,
        utilization=shown.utilization if shown else 0.0,
        bound_iops=min(all_bounds.values(), default=0.0),
        bounds=all_bounds,
        reliefs=tuple(reliefs),
        backlog_per_s=backlog_per_s,
    )


def _is_engine(lowered: Lowered, stop: SaturatedStation) -> bool:
    """True if threads or CPUs are full of what the RAID engine does, more than of all else."""
    return stop.info.kind in ("thread", "cpu") and engine_share(lowered.scenario) > ENGINE_SHARE


def _engine_text(lowered: Lowered, stop: SaturatedStation) -> str:
    if not _is_engine(lowered, stop):
        return ""
    share = percent(engine_share(lowered.scenario))
    if served_in_turn(lowered.scenario):
        return f"; {share} of it is the pool's"
    return f"; {share} of it is the RAID engine's, mostly for cache lines that threads share"


def _sentence(
    lowered: Lowered,
    totals: Totals,
    stop: SaturatedStation | None,
    most: SaturatedStation | None,
    reliefs: Sequence[Relief],
    backlog_per_s: float | None,
    offered: float | None,
) -> str:
    if backlog_per_s is not None:
        full = spoken(lowered, totals, stop) if stop is not None else ""
        return _unstable(stop, full, backlog_per_s, offered)
    if offered is not None:
        return _offered_load_text(most, spoken(lowered, totals, most) if most else "", offered)
    if stop is not None:
        also = also_full(lowered, totals, stop)
        relief = best_relief(reliefs)
        if reliefs and not any(_brings(r) for r in reliefs):
            relief += ": something else is as full" if also else ""
        return f"Limited by {describe(lowered, totals, stop)}{also}; {relief}."
    nothing = "Nothing is full"
    if most is not None:
        nothing += f" (busiest: {spoken(lowered, totals, most)}, {percent(most.utilization)})"
    gate = full_gate(lowered, totals)
    held = f"; all slots of {gate.name} are taken" if gate is not None else ""
    deeper = [r for r in reliefs if r.change == MORE_OUTSTANDING and r.gain_low > 0]
    return f"{nothing}{held}: latency is the limit; {best_relief(deeper or reliefs)}."


def also_full(lowered: Lowered, totals: Totals, stop: SaturatedStation) -> str:
    """Name the fullest station of another kind that is full as well."""
    others = [
        f
        for f in ranked(lowered, totals)
        if f.utilization > FULL and f.info.resource != stop.info.resource
        if f.info.kind != "thread"
    ]
    if not others:
        return ""
    other = max(others, key=lambda f: f.utilization)
    return f", with {spoken(lowered, totals, other)} {percent(other.utilization)} busy too"


def _offered_load_text(most: SaturatedStation | None, name: str, offered: float) -> str:
    text = f"The offered {format_iops(offered)} are carried"
    if most is None:
        return f"{text}."
    if most.bound_iops < 1.01 * offered:
        text = f"The offered {format_iops(offered)} are within 1 % of what can be carried"
    return (
        f"{text}; fullest is {name} ({percent(most.utilization)} busy), "
        f"which allows {format_iops(most.bound_iops)} at most."
    )


def _unstable(
    stop: SaturatedStation | None, name: str, backlog_per_s: float, offered: float | None
) -> str:
    what = f"The offered {format_iops(offered)} have" if offered else "The load has"
    why = f"; {name} is full at {format_iops(stop.bound_iops)}" if stop else ""
    return f"{what} no steady state: the backlog grows by {backlog_per_s:,.0f} requests/s{why}."


def describe(lowered: Lowered, totals: Totals, full: SaturatedStation) -> str:
    """Name of what is full, as a person says it, with how full it is."""
    info = full.info
    busy_text = f"{percent(full.utilization)} busy"
    if info.kind == "cpu":
        where = "the CPUs" if info.socket is None else f"the CPU of socket {info.socket}"
        return f"{where} ({busy_text}{_engine_text(lowered, full)})"
    if info.kind == "thread":
        one = "one thread is" if info.servers == 1 else f"the {info.servers} threads are each"
        text = f"; {one} busy by itself, so more cores do not help"
        return f"its threads ({busy_text}{_engine_text(lowered, full) or text})"
    if info.burns == "all":
        where = "a lock that requests take one by one, and burn CPU while they wait"
        return f"{info.name}, {where} ({busy_text})"
    if info.resource == "engine-threads":
        threads = "one RAID thread" if info.servers == 1 else f"{info.servers} RAID threads"
        return f"{threads} ({info.name}, {busy_text})"
    if info.kind in ("raid-engine", "lock"):
        return f"{info.name}, which requests pass one by one ({busy_text})"
    return f"{spoken(lowered, totals, full)} ({busy_text})"


def spoken(lowered: Lowered, totals: Totals, full: SaturatedStation) -> str:
    """Name of a station; of the same station of several drives that are as busy, no single one.

    Which of equal drives is the fullest is chance.
    """
    info = full.info
    if info.drive is None:
        return info.name
    names = {d.index: d.name for d in lowered.scenario.drives}
    part = info.name.removeprefix(names[info.drive]).strip()
    same = [
        f.drive
        for f in lowered.stations
        if f.drive is not None and f.kind == info.kind
        if f.name.removeprefix(names[f.drive]).strip() == part
        if fullest(lowered.network, f, totals) > (1 - ALIKE) * full.utilization
    ]
    if len(same) < 2:
        return info.name
    if len(same) == len(names):
        return f"the {part} of all {len(names)} drives"
    first, last = names[min(same)], names[max(same)]
    in_row = max(same) - min(same) + 1 == len(same)
    listed = f"{first} to {last}" if in_row else f"{len(same)} drives, {first} to {last}"
    return f"the {part} of {listed}"


def _brings(relief: Relief) -> bool:
    """Return True if the gain is above its uncertainty, and worth a word."""
    return relief.gain_low > 0 and relief.gain >= 0.005


def best_relief(reliefs: Sequence[Relief]) -> str:
    """The relief that brings most, in words.

    >>> from nvmesim.measure.figures import Interval
    >>> best_relief([Relief("one more core", Interval(2.8e6, 2.7e6, 2.9e6), 0.034, 0.03, 0.04)])
    'one more core would give about 2.8M IOPS (+3.4 %)'
    >>> best_relief([])
    'no change was tried'
    """
    if not reliefs:
        return "no change was tried"
    best = max(reliefs, key=lambda r: r.gain)
    if not _brings(best):
        return f"none of the {len(reliefs)} changes that were tried helps for certain"
    more = f"{1 + best.gain:.2g} x" if best.gain >= 1 else f"{100 * best.gain:+.1f} %"
    return f"{best.change} would give about {format_iops(best.iops.value)} ({more})"
