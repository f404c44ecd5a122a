"""The bottleneck: utilization, operational bounds, and one honest sentence.

Bounds are asymptotic: no throughput exceeds servers over demand at any station, nor, where a
request does one thing after the other, the number outstanding over the sum of its demands. Source:
Denning and Buzen, "The operational analysis of queueing network models", ACM Computing Surveys
10(3), 1978. A bound says what a station could do at most; what a change brings is simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.engine.contract import Acc
from nvmesim.measure.figures import Relief
from nvmesim.measure.stations import Totals, busy, demand, full_scale, fullest, is_delay, rows_of
from nvmesim.model.host import engine_share, served_in_turn
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import GATES, Kind, Op, StationInfo
from nvmesim.predict.result import FULL, Bottleneck, Verdict
from nvmesim.units import PS_PER_S, format_iops, percent

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
FILLED: Final = ("buffer", "dirty-data")
"""Resources of gates that fill because what they hold is written too slowly."""
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
    # Limits of some groups do not stop the rest.
    are_limited = all(group.limits is not None for group in lowered.scenario.workload)
    found = [
        SaturatedStation(info, fullest(lowered.network, info, totals), bound(lowered, info, totals))
        for info in lowered.stations
        if info.kind in VERDICTS
        and not (asleep and info.kind == "thread")
        and (info.kind != "limit" or info.drive is not None or are_limited)
    ]
    return sorted((f for f in found if f.bound_iops < np.inf), key=lambda f: f.bound_iops)


def bound(lowered: Lowered, info: StationInfo, totals: Totals) -> float:
    """Requests per second that *info* allows, servers / demand; infinite where nothing is done.

    A CPU counts with its cores' full yield, a thread without its waits for a CPU or a lock.
    """
    net = lowered.network
    if is_delay(net, info) or not totals.requests:
        return float("inf")
    if info.kind == "cpu":
        work = float(totals.stations[info.first, Acc.WORK]) * full_scale(net, info)
        service = work / int(net.station_servers[info.first])
    else:
        rows, working = rows_of(info), 1.0
        if info.kind == "thread":
            each = totals.stations[rows, Acc.SERVICE]
            spins = [other.first for other in lowered.stations if other.burns == "all"]
            waits = [*np.unique(net.thread_cpu), *spins]
            waited = float(totals.stations[waits, Acc.WAIT].sum())
            working = max(0.0, 1 - waited / max(1.0, float(each.sum())))
        else:
            each = demand(net, info, totals) / net.station_servers[rows]
        chance = 1 + (1e-6 if info.kind == "thread" else 1e-9)
        skewed = fullest(net, info, totals) > float(busy(net, info, totals).mean()) * chance
        service = float(each.max() if skewed else each.mean()) * working
    return PS_PER_S * totals.requests / service if service > 0 else float("inf")


def latency_bound(lowered: Lowered, totals: Totals, in_flight: int) -> float | None:
    """Outstanding over the sum of demands, requests/s; None where it does not hold.

    It holds for closed loops whose operations have one child at most; dies that program are left
    out.
    """
    net = lowered.network
    children = np.diff(net.phase_child_ptr)
    splits = net.ops[net.ops[:, 0] == Op.SPLIT, 1]
    is_serial = int(children.max(initial=0)) <= 1 and int(splits.max(initial=0)) <= 1
    if not in_flight or not totals.requests or not is_serial:
        return None
    waits = np.isin(net.station_kind, (*GATES, Kind.LIMIT))
    visited = ~waits & (net.die_dist < 0)
    demand = float(totals.stations[visited, Acc.SERVICE].sum()) / totals.requests
    return in_flight * PS_PER_S / demand if demand > 0 else None


def limiting(stations: Sequence[SaturatedStation]) -> SaturatedStation | None:
    """The one of `ranked` that stops it: the fullest above `FULL`, None if there is none.

    Not a thread that waits for a full CPU, nor one or a RAID worker that waits for a lock.
    """
    full = [f for f in stations if f.utilization > FULL]
    working = [f for f in full if f.info.kind != "thread"]
    locks = [f for f in working if f.info.burns == "all"]
    if locks:
        return max(locks, key=lambda f: f.utilization)
    if any(f.info.kind == "cpu" for f in working):
        full = working
    return max(full, key=lambda f: (round(f.utilization, 2), f.info.kind == "cpu"), default=None)


def stopping(
    lowered: Lowered, totals: Totals, stations: Sequence[SaturatedStation]
) -> SaturatedStation | None:
    """The station that stops it, as `limiting`; else the fullest of `full_buffers`."""
    full = full_buffers(lowered, totals)
    return limiting(stations) or max(full, key=lambda f: f.utilization, default=None)


def full_buffers(lowered: Lowered, totals: Totals) -> list[SaturatedStation]:
    """Buffers of writes that are full.

    They fill before the dies behind them are all busy: which die is next is chance.
    """
    return [
        SaturatedStation(info, full, bound(lowered, info, totals))
        for info in lowered.stations
        if info.kind == "gate" and info.resource in FILLED
        and (full := fullest(lowered.network, info, totals)) > FULL
    ]  # fmt: skip


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
    stations = ranked(lowered, totals)
    busiest = max(stations, key=lambda f: f.utilization, default=None)
    stop = stopping(lowered, totals, stations)
    shown = stop or busiest
    name = spoken(lowered, totals, shown) if shown else ""
    bounds = {f.info.name: f.bound_iops for f in stations}
    serial = latency_bound(lowered, totals, in_flight)
    if serial is not None:
        bounds[LATENCY_BOUND] = serial
    verdict: Verdict = "latency-bound" if stop is None else VERDICTS.get(stop.info.kind, "drive")
    if stop is not None and _is_engine(lowered, stop):
        verdict = "raid-engine"
    if backlog_per_s is not None:
        # Stations see what passes those before them, so demands per request are not known; what
        # completes beside a growing backlog is what the full station carries.
        arrived = totals.requests * PS_PER_S / max(1.0, totals.duration_ps)
        carried = max(0.0, arrived - backlog_per_s)
        backlog_per_s += left_out
        bounds = {shown.info.name: carried} if shown else {}
        verdict = "unstable"
        what = f"The offered {format_iops(offered + left_out)} have" if offered else "The load has"
        why = f"; the limit is {name}, at {format_iops(carried)}" if shown else ""
        why += f"; {best_relief(reliefs)}" if any(_brings(r) for r in reliefs) else ""
        text = f"{what} no steady state: the backlog grows by {backlog_per_s:,.0f} requests/s{why}."
    elif offered is not None:
        text = _offered_load_text(lowered, totals, busiest, offered)
    else:
        text = _sentence(lowered, totals, stations, stop, reliefs)
    return Bottleneck(
        verdict=verdict,
        sentence=text,
        station=shown.info.name if shown else None,
        kind=shown.info.kind if shown else None,
        fullest=name,
        utilization=shown.utilization if shown else 0.0,
        bound_iops=min(bounds.values(), default=0.0),
        bounds=dict(sorted(bounds.items(), key=lambda item: item[1])),
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
    lowered: Lowered, totals: Totals, stations: Sequence[SaturatedStation],
    stop: SaturatedStation | None, reliefs: Sequence[Relief],
) -> str:  # fmt: skip
    """The limit of a closed loop, and what helps."""
    busiest = ""
    if stations:
        most = max(stations, key=lambda f: f.utilization)
        busiest = f" (busiest: {spoken(lowered, totals, most)}, {percent(most.utilization)})"
    if stop is not None and stop.info.kind == "gate":
        name = spoken(lowered, totals, stop)
        slow = f"Limited by {name}, which is full: what it holds is written no faster"
        return f"{slow}{busiest}; {best_relief(reliefs)}."
    if stop is not None:
        others = [
            f
            for f in stations
            if f.utilization > FULL and f.info.kind != "thread"
            and f.info.resource != stop.info.resource
        ]  # fmt: skip
        also = ""
        if others:
            other = max(others, key=lambda f: f.utilization)
            also = f", with {spoken(lowered, totals, other)} {percent(other.utilization)} busy too"
        relief = best_relief(reliefs)
        if also and reliefs and not any(_brings(r) for r in reliefs):
            relief += ": something else is as full"
        return f"Limited by {describe(lowered, totals, stop)}{also}; {relief}."
    taken = (  # gates, such as a drive's tags
        f"All slots of {info.name} are taken, and nothing else is full"
        for info in lowered.stations
        if info.kind == "gate" and fullest(lowered.network, info, totals) > FULL
    )
    text = f"{next(taken, 'Nothing is full')}{busiest}"
    deeper = [r for r in reliefs if r.change == MORE_OUTSTANDING and r.gain_low > 0]
    return f"{text}: latency is the limit; {best_relief(deeper or reliefs)}."


def _offered_load_text(
    lowered: Lowered, totals: Totals, most: SaturatedStation | None, offered: float
) -> str:
    text = f"The offered {format_iops(offered)} are carried"
    if most is None:
        return f"{text}."
    if most.bound_iops < 1.01 * offered:
        text = f"The offered {format_iops(offered)} are within 1 % of what can be carried"
    return (
        f"{text}; the next limit is {spoken(lowered, totals, most)} ({percent(most.utilization)} "
        f"busy), at {format_iops(most.bound_iops)}."
    )


def describe(lowered: Lowered, totals: Totals, full: SaturatedStation) -> str:
    """Name of what is full, as a person says it, with how full it is."""
    info = full.info
    busy_text = f"{percent(full.utilization)} busy"
    if info.kind == "cpu":
        return f"{spoken(lowered, totals, full)} ({busy_text}{_engine_text(lowered, full)})"
    if info.kind == "thread":
        one = "one thread is" if info.servers == 1 else f"the {info.servers} threads are each"
        text = f"; {one} busy by itself, so more cores do not help"
        return f"its threads ({busy_text}{_engine_text(lowered, full) or text})"
    if info.burns == "all":
        where = "a lock that requests take one by one, and burn CPU while they wait"
        if info.resource == "stripe-locks":
            where += ", the slower the more workers and threads pass it"
        return f"{info.name}, {where} ({busy_text})"
    if info.resource == "engine-threads":
        threads = "one RAID thread" if info.servers == 1 else f"{info.servers} RAID threads"
        return f"{threads} ({info.name}, {busy_text})"
    if info.resource == "rounds":
        queue = spoken(lowered, totals, full).replace("batch service", "queue")
        return f"{queue}, served in batches ({busy_text})"
    if info.kind in ("raid-engine", "lock"):
        return f"{info.name}, which requests pass one by one ({busy_text})"
    return f"{spoken(lowered, totals, full)} ({busy_text})"


def spoken(lowered: Lowered, totals: Totals, full: SaturatedStation) -> str:
    """Name of a station; of the same station of several drives that are as busy, no single one."""
    info = full.info
    if info.kind == "cpu":
        return "the CPUs" if info.socket is None else f"the CPU of socket {info.socket}"
    if info.kind == "thread" and info.resource == "threads":
        return "its one thread" if info.servers == 1 else "the threads"
    if info.drive is None:
        many = "s" if info.servers > 1 else ""
        is_engine = info.resource == "engine-threads"
        return f"the RAID thread{many} {info.name}" if is_engine else info.name
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
    listed = f"{first} to {last}" if in_row else f"{len(same)} of the {len(names)} drives"
    return f"the {part} of {listed}"


NO_MORE: Final = 0.02
"""Share of the throughput below which a change of several parts adds nothing to one of them."""


SLOWER: Final = 1.25
"""Mean latency with a relief, over that without, from which on it is said. Assumed."""


def _brings(relief: Relief) -> bool:
    """Return True if the gain is above its uncertainty, and worth a word."""
    return relief.gain_low > 0 and relief.gain >= 0.005


def adds_nothing(relief: Relief, reliefs: Sequence[Relief]) -> bool:
    """Return True if a part of *relief* is among *reliefs*, and brings as much within 2 %."""
    return any(
        other.set and other.set.items() < relief.set.items()
        and 1 + relief.gain < (1 + NO_MORE) * (1 + other.gain)
        for other in reliefs
    )  # fmt: skip


def best_relief(reliefs: Sequence[Relief]) -> str:
    """The relief that brings most, in words; of those that bring as much, one that buys nothing.

    >>> from nvmesim.measure.figures import Interval
    >>> best_relief([Relief("one more core", Interval(2.8e6, 2.7e6, 2.9e6), 0.034, 0.03, 0.04)])
    'one more core would give about 2.8M IOPS (+3.4 %)'
    >>> best_relief([])
    'no change was tried'
    """
    if not reliefs:
        return "no change was tried"
    alone = [r for r in reliefs if not adds_nothing(r, reliefs)]
    best = max(alone, key=lambda r: (round(r.gain, 2), r.watts == 0, r.gain))
    if not _brings(best):
        return f"none of the {len(reliefs)} changes that were tried helps for certain"
    more = f"{1 + best.gain:.2g} x" if best.gain >= 1 else f"{100 * best.gain:+.1f} %"
    if best.latency is not None and best.latency > SLOWER:
        more += f", and {100 * (best.latency - 1):.0f} % more latency"
    return f"{best.change} would give about {format_iops(best.iops.value)} ({more})"
