"""Statistics of stations, members and CPUs from a window's accumulators.

All are operational quantities (Denning and Buzen, "The operational analysis of queueing network
models", ACM Computing Surveys 10(3), 1978): busy time over window, time over visits, visits over
requests. Times of `Batch` are ps and are turned into s here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.engine.contract import Acc
from nvmesim.measure.figures import Cpu, MemberStats, Rebuild, SocketCpu, StationStats
from nvmesim.measure.steady import Reducer, Snapshot, Window
from nvmesim.model.host import polling_threads
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import SCALE_ONE, Kind, Network, StationInfo
from nvmesim.units import PS_PER_S

N_CHILD_SUMS: Final = 6  # per drive: commands, bios and bytes, each for reads and writes
SKEW_SIGMA: Final = 5.0
"""Deviations of its visits by which one of n alike stations counts as busier than its siblings."""


@dataclass(frozen=True)
class Totals:
    """The sums that reports are made of."""

    duration_ps: float
    requests: int  # measured completions, and what arrived beyond them where the backlog grows
    stations: Floats  # float64[n_stations, 4], see `Acc`
    children: Floats
    """float64[n_drives, 6]: reads, writes, read bios, write bios, read bytes, write bytes"""

    @staticmethod
    def of(window: Window) -> Totals:
        """Sums over *window*."""
        total: Snapshot = window.total
        return Totals(window.duration_ps, window.requests, total.stations, total.children)


def reducer(lowered: Lowered) -> Reducer:
    """Reducer of batches for *lowered*: bytes by operation, children by drive."""
    net = lowered.network
    measured = measured_flows(net)
    flow_bytes = np.zeros((2, len(net.flow_program)))
    flow_bytes[net.flow_write, np.arange(len(net.flow_write))] = net.flow_bytes * measured
    return Reducer(flow_bytes, child_sums(lowered, measured))


def measured_flows(net: Network) -> Ints:
    """int64[n_flows]: 1 where a measured group has the flow (0: background work)."""
    measured = np.zeros(len(net.flow_program), np.int64)
    for first, targets, kinds, on in zip(
        net.group_flow, net.group_targets, net.group_kinds, net.group_measured, strict=True
    ):
        measured[first : first + targets * kinds] |= on
    return measured


def measured_alternatives(net: Network, measured: Ints) -> Ints:
    """int64[n_alts]: 1 where a request of a measured flow may send a child."""
    plans = np.zeros(len(net.plan_phase_ptr) - 1, np.int64)
    for flow in np.flatnonzero(measured):
        start = net.flow_order_ptr[flow]
        plans[net.order[start : start + net.flow_order_len[flow]]] = 1
    alternatives = net.child_alt_ptr[net.phase_child_ptr[net.plan_phase_ptr]]
    return np.repeat(plans, np.diff(alternatives))


def child_sums(lowered: Lowered, measured: Ints) -> Callable[[Ints], Floats]:
    """Return a function from `Batch.alternatives` to float64[n_drives, 6]."""
    n_alts, n_drives = len(lowered.children), len(lowered.scenario.drives)
    rows = [(c.drive, c.write, c.n_bios, c.n_bytes) for c in lowered.children]
    drive, write, bios, size = np.array(rows, np.int64).reshape(-1, 4).T
    counted = measured | np.array([flow.deferred for flow in lowered.flows], np.int64)
    known = np.flatnonzero((drive >= 0) & (measured_alternatives(lowered.network, counted) > 0))
    weights = np.zeros((n_alts, N_CHILD_SUMS))
    for column, values in enumerate((np.ones(n_alts), bios, size)):
        weights[np.arange(n_alts), 2 * column + write] = values
    place, weights = drive[known], weights[known]

    def sums(alternatives: Ints) -> Floats:
        sent = alternatives[known][:, None] * weights
        return np.stack(
            [np.bincount(place, sent[:, i], minlength=n_drives) for i in range(N_CHILD_SUMS)],
            axis=1,
        )

    return sums


def rows_of(info: StationInfo) -> slice:
    """Stations of the network that *info* stands for."""
    return slice(info.first, info.first + info.count)


def is_delay(net: Network, info: StationInfo) -> bool:
    """True if *info* has infinitely many servers."""
    return info.kind == "delay" or net.station_kind[info.first] == Kind.DELAY


def busy(net: Network, info: StationInfo, totals: Totals) -> Floats:
    """float64[count]: utilization of each station of *info*, from 0 to 1."""
    if is_delay(net, info) or totals.duration_ps <= 0:
        return np.zeros(info.count)
    servers = net.station_servers[rows_of(info)]
    service = demand(net, info, totals)
    return np.clip(service / (servers * totals.duration_ps), 0.0, 1.0)


def demand(net: Network, info: StationInfo, totals: Totals) -> Floats:
    """float64[count], ps: time that the servers of each station of *info* were taken."""
    column = Acc.SERVICE
    arm = info.kind == "drive" and net.station_scale[info.first] >= 0
    if arm or net.station_kind[info.first] == Kind.SLEEPER:
        column = Acc.WORK
    each = totals.stations[rows_of(info), column].astype(np.float64)
    return each if column == Acc.SERVICE else each * full_scale(net, info)


def fullest(net: Network, info: StationInfo, totals: Totals) -> float:
    """Utilization of the fullest station of *info*, the mean where they differ by chance."""
    each = busy(net, info, totals)
    mean = float(each.mean())
    if info.count == 1 or mean <= 0:
        return mean
    visits = max(1.0, float(totals.stations[rows_of(info), Acc.VISITS].mean()))
    most = float(each.max())
    return most if most > mean * (1 + SKEW_SIGMA / math.sqrt(visits)) else mean


def station_stats(lowered: Lowered, totals: Totals) -> tuple[StationStats, ...]:
    """One row a station of the report; a delay has no utilization (0)."""
    return tuple(_station(lowered.network, info, totals) for info in lowered.stations)


def _station(net: Network, info: StationInfo, totals: Totals) -> StationStats:
    visits, wait, service, _ = totals.stations[rows_of(info)].sum(axis=0)
    per_visit = PS_PER_S * max(1.0, visits)
    weights = net.station_servers[rows_of(info)]
    same = [field.name for field in fields(StationStats) if hasattr(info, field.name)]
    return StationStats(
        **{name: getattr(info, name) for name in same},
        utilization=float(np.average(busy(net, info, totals), weights=weights)),
        wait_mean_s=float(wait / per_visit),
        service_mean_s=max(0.0, float(service / per_visit)) if visits else 0.0,
        visits_per_request=float(visits / max(1, totals.requests)),
    )


def member_stats(lowered: Lowered, totals: Totals) -> tuple[MemberStats, ...]:
    """Results of drives, per measured request; its utilization is that of its fullest station."""
    names = [item.name for item in fields(MemberStats)][1:-1]  # as the columns of the sums
    each = totals.children / max(1, totals.requests)
    return tuple(
        MemberStats(
            name=d.name,
            **dict(zip(names, each[d.index].tolist(), strict=True)),
            utilization=drive_utilization(lowered, totals, d.index),
        )
        for d in lowered.scenario.drives
    )


def rebuild_stats(lowered: Lowered, totals: Totals) -> Rebuild | None:
    """The rebuild beside the load, the slowest where several run; None if there is none."""
    found = []
    for info in lowered.rebuilds:
        units = float(totals.stations[info.station, Acc.VISITS])
        rate = units * info.unit_bytes * PS_PER_S / max(1.0, totals.duration_ps)
        hours = info.member_bytes / rate / 3600 if rate > 0 else math.inf
        found.append(Rebuild(info.volume, info.drive, rate, hours))
    return max(found, key=lambda rebuild: rebuild.hours, default=None)


def drive_utilization(lowered: Lowered, totals: Totals, drive: int) -> float:
    """Utilization of the fullest station of *drive*."""
    inside = [s for s in lowered.stations if s.drive == drive and s.kind == "drive"]
    return max((fullest(lowered.network, s, totals) for s in inside), default=0.0)


def full_scale(net: Network, info: StationInfo) -> float:
    """Service factor of a station when all of its servers are busy; 1 without a scale."""
    start = int(net.station_scale[info.first])
    if start < 0:
        return 1.0
    return float(net.scale[start + int(net.station_servers[info.first]) - 1]) / SCALE_ONE


def cpu_stats(lowered: Lowered, totals: Totals) -> Cpu:
    """CPU as the operating system shows it, and as the cores see it.

    Logical: busy time of logical CPUs over their number and the window. Physical: work, in time of
    a thread that has its core to itself, over what all cores together can do. ``ghz_per_miops`` is
    busy logical GHz per million requests a second. Background load adds to both utilizations alone.
    """
    cpus = [info for info in lowered.stations if info.kind == "cpu"]
    sockets = [_socket(lowered, info, totals) for info in cpus]
    stats = [s for s, _, _ in sockets]
    logical = np.array([s.cores * s.threads_per_core for s in stats], np.float64)
    physical = np.array([s.cores for s in stats], np.float64)
    io_per_s = totals.requests / max(1.0, totals.duration_ps) * PS_PER_S
    cycles = sum(work for _, work, _ in sockets) * 1e9 / max(io_per_s, 1e-300)
    ghz = sum(used for _, _, used in sockets) / max(io_per_s / 1e6, 1e-300)
    return Cpu(
        logical_utilization=_mean([s.logical_utilization for s in stats], logical),
        physical_utilization=_mean([s.physical_utilization for s in stats], physical),
        cycles_per_io=cycles if io_per_s else 0.0,
        ghz_per_miops=ghz if io_per_s else 0.0,
        sockets=tuple(stats),
    )


def _mean(values: list[float], weights: Floats) -> float:
    return float(np.average(values, weights=weights)) if values else 0.0


def _socket(lowered: Lowered, info: StationInfo, totals: Totals) -> tuple[SocketCpu, float, float]:
    """One socket, with the GHz of its work and of its busy logical CPUs."""
    scenario = lowered.scenario
    socket = scenario.sockets[info.socket or 0]
    cpu, window = socket.cpu, max(1.0, totals.duration_ps)
    # Lowering stretches work by 1 / (1 - background): what it adds is the background's own.
    share = 1.0 - scenario.background
    work = float(totals.stations[info.first, Acc.WORK]) / window * share
    used = float(totals.stations[info.first, Acc.SERVICE]) / window * share
    spun = burned_on(lowered, totals.stations, info.first, info.socket) / window * share
    work, used = work + spun, min(used + spun, float(socket.logical_cpus))
    smt = cpu.smt_yield.value if cpu.threads_per_core > 1 else 1.0
    if scenario.stack.polled:
        threads = int((lowered.network.thread_cpu == info.first).sum())
        used = max(used, min(threads, socket.logical_cpus * share))
        work = max(work, min(threads, cpu.cores * smt * share))
    if submitting := polling_threads(scenario) / len(scenario.sockets):
        used = min(used + submitting, socket.logical_cpus * share)
        work = min(work + submitting, cpu.cores * smt * share)
    logical = used / socket.logical_cpus + scenario.background
    physical = work / (cpu.cores * smt) + scenario.background
    return (
        SocketCpu(
            info.name, min(1.0, logical), min(1.0, physical), socket.ghz, cpu.cores,
            cpu.threads_per_core,
        ),
        work * socket.ghz,
        used * socket.ghz,
    )  # fmt: skip


def burned_on(lowered: Lowered, stations: Floats, cpu: int, socket: int | None) -> float:
    """Ps burned on CPUs by RAID threads and locks that spin; *stations* as in `Totals`."""
    threads = lowered.network.thread_cpu
    here = float(np.mean(threads == cpu)) if len(threads) else 1.0
    total = 0.0
    for info in lowered.stations:
        if info.burns:
            burned = float(stations[info.first, Acc.SERVICE])
            burned += float(stations[info.first, Acc.WAIT]) if info.burns == "all" else 0.0
            at_home = info.socket is None or socket is None or info.socket == socket
            total += (here if info.socket is None else float(at_home)) * burned
    return total
