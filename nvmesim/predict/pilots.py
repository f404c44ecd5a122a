"""Short runs made before a run: its slow states (overload, bitmap, rebuild, buffers)."""

import math
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Acc, Batch
from nvmesim.measure.stations import reducer
from nvmesim.measure.steady import Collector, RunLoad, Window, drifting, fill_share
from nvmesim.model.engine_stations import groups_of
from nvmesim.model.lower import lower
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import GATES, HORIZON_PS, Kind, Network
from nvmesim.scenario.resolved import ResolvedScenario, Volume, WorkloadGroup
from nvmesim.scenario.volumes import volume_bytes
from nvmesim.units import PS_PER_S

SEED: Final = 1
"""The pilots' own: where a run starts must not depend on the run's seed."""
REMEMBERED: Final = 16
"""Scenarios whose pilots are kept: a design and its neighbours, not a sweep."""
PILOT: Final = 3000
"""Requests of a pilot that measures how fast regions are written, or windows rebuilt."""

ARRIVALS: Final = 20_000
"""About so many are looked at for each rate of an overload."""
CARRIED: Final = 1 / 16
"""Share of the arrivals that completes, above which a run is cheap enough as it is."""
STEP: Final = 4.0
COMPLETIONS: Final = 2_000
"""The backlog is compared between the ends of two such runs."""

DAEMON_S: Final = 5.0
"""Source: mdadm's default, 5 s between two looks of the bitmap's daemon."""
LOOKS: Final = 100
"""Of how far back a region's last write counts: the mean over 5 to 10 s."""
BITMAP_PILOTS: Final = 12
"""At most: the share of one gives the rate of the next, from all clean to what lasts."""
SETTLED: Final = 0.02
"""Shares that differ by less are the same."""
LEAST: Final = 1e-4
"""Share of writes below which the bitmap costs nothing that shows."""

USUAL_MIN: Final = 1_024_000
"""md's own least speed, bytes per second: so low that adding it to the other changes nothing."""

BUFFER_REQUESTS: Final = (20_000, 200_000)
"""Least and most requests of the pilot of write buffers."""
TIMES_IN_FLIGHT: Final = 20
"""It completes what is in flight so many times, within those limits."""
PROGRAMS: Final = 24
"""Programs of each die that it is to see, within those limits."""
LITTLE: Final = 0.1
"""Share of a buffer that a run takes in no time: it starts empty."""
REBUILT: Final = 3_200
"""Requests of the pilot of a rebuild alone."""
BATCHES: Final = 32
EARLY: Final = 8
"""Of these batches: a look whether the dies have so much room that no buffer can fill."""
RESTLESS: Final = 0.8
"""Share of their time from which dies may fill a buffer slowly."""
ROOMY: Final = 0.7
"""Share of their time below which dies program all that comes, however it varies."""


@dataclass(frozen=True)
class SlowStates:
    """Where what changes slowly will be."""

    scenario: ResolvedScenario
    """With the share of first writes of each bitmap, and the pace of each rebuild."""
    lowered: Lowered
    """Its network; write buffers as full as they will be."""
    level: float
    """Share of the write buffers that is taken at time 0, as it would be soon."""
    left_out: float
    """Requests/s of an overload that no run need show; the scenario's rates are so much lower."""


_remembered: deque[tuple[ResolvedScenario, bool, SlowStates]] = deque(maxlen=REMEMBERED)
_lock = threading.Lock()


def slow_states(
    scenario: ResolvedScenario, level: float | None = None, *, is_variant: bool = False
) -> SlowStates:
    """The slow states of *scenario*, from pilots or memory, or with its buffers at *level*."""
    is_kept = level is None and all(group.trace is None for group in scenario.workload)
    if is_kept:
        with _lock:
            for known, was_variant, states in _remembered:
                if was_variant == is_variant and known == scenario:
                    return states
    carried, lowered, left_out = scenario, lower(scenario), 0.0
    if not is_variant:
        carried, lowered, left_out = lowered_rate(scenario, lowered)
    paced, lowered = with_rebuilds(*with_bitmaps(carried, lowered))
    if level is None:
        level = _buffer_level(lowered, is_variant=is_variant)
    if level:
        lowered = replace(lowered, network=filled(lowered.network, level))
    states = SlowStates(paced, lowered, level, left_out)
    if is_kept:
        with _lock:
            _remembered.append((scenario, is_variant, states))
    return states


def lowered_rate(
    scenario: ResolvedScenario, lowered: Lowered
) -> tuple[ResolvedScenario, Lowered, float]:
    """*scenario* with rates that a run can show, and the requests/s that were left out.

    A million arrivals for each that completes tell no more than sixteen. What a lower rate
    overloads the higher one does; where no lower rate is an overload, none are left out.
    """
    rate = sum(g.rate for g in scenario.workload if g.rate is not None)
    less, network, factor = scenario, lowered, 1.0
    while rate and carried_share(less, network) < CARRIED:
        factor /= STEP
        if rate * factor < 1:
            return scenario, lowered, 0.0
        less = replace(scenario, workload=tuple(
            g if g.rate is None else replace(g, rate=g.rate * factor) for g in scenario.workload
        ))  # fmt: skip
        network = lower(less)
    if factor == 1.0:
        return scenario, lowered, 0.0
    engine = CompiledEngine(network.network, seed=SEED)
    first, second = (engine.advance(COMPLETIONS, HORIZON_PS) for _ in range(2))
    if second.outstanding - first.outstanding > second.completions > 0:
        return less, network, rate * (1 - factor)
    return scenario, lowered, 0.0


def carried_share(scenario: ResolvedScenario, lowered: Lowered) -> float:
    """Share of the first arrivals that is complete when about `ARRIVALS` have come."""
    rate = sum(g.rate for g in scenario.workload if g.rate is not None)
    closed = sum(g.in_flight for g in scenario.workload if not g.is_open)
    until = min(HORIZON_PS, max(1, round(ARRIVALS / rate * PS_PER_S)))
    batch = CompiledEngine(lowered.network, seed=SEED).advance(ARRIVALS, until)
    return batch.completions / max(1, batch.completions + max(0, batch.outstanding - closed))


def clean_share(writes_per_region_s: float) -> float:
    """Share of random writes whose region has fallen clean: no write to it for 5 to 10 s.

    >>> [round(clean_share(rate), 3) for rate in (0.0, 0.01, 0.1, 1.0, 10.0)]
    [1.0, 0.928, 0.477, 0.001, 0.0]
    """
    x = DAEMON_S * writes_per_region_s
    return 1.0 if x < 1e-9 else (math.exp(-x) - math.exp(-2 * x)) / x


def since_share(writes_per_region_s: float, seconds: float) -> float:
    """Share of the random writes of the first *seconds* of a clean bitmap that find it clean.

    >>> [round(since_share(rate, 10.0), 3) for rate in (0.0, 0.01, 0.15, 10.0)]
    [1.0, 0.955, 0.538, 0.01]
    >>> round(since_share(0.1, 1e6), 3) == round(clean_share(0.1), 3)
    True
    """
    rate = writes_per_region_s
    if rate * seconds < 1e-9:
        return 1.0
    step = DAEMON_S / LOOKS
    total = 0.0
    for k in range(LOOKS):
        looks_back = min(DAEMON_S + (k + 0.5) * step, seconds)
        rest = (seconds - looks_back) * math.exp(-rate * looks_back)
        total += -math.expm1(-rate * looks_back) / rate + rest
    return total / LOOKS / seconds


def with_bitmaps(scenario: ResolvedScenario, lowered: Lowered) -> tuple[ResolvedScenario, Lowered]:
    """*scenario* with the share of first writes of each bitmap, lowered again if any pays.

    md notes a region as dirty before the first write to it, and cleans it 5 to 10 s after the last;
    how often each is written only runs can tell. Source: Linux drivers/md/md-bitmap.c,
    md_bitmap_daemon_work.
    """
    writers = {v.index: groups for v in scenario.volumes if (groups := _writers(scenario, v))}
    if not writers:
        return scenario, lowered

    shares = dict.fromkeys(writers, 1.0)  # as after a quiet hour: all is clean
    scenario = _with_each(scenario, "first_dirty", shares)
    lowered = lower(scenario)
    for _ in range(BITMAP_PILOTS):
        before, shares = shares, _clean_shares(scenario, lowered, writers)
        scenario = _with_each(scenario, "first_dirty", shares)
        lowered = lower(scenario)
        # A short run's share may be small, and still cost much.
        scales = {i: 1.0 if scenario.volumes[i].bitmap_since_ps is None else shares[i]
                  for i in writers}  # fmt: skip
        if all(abs(shares[i] - before[i]) < SETTLED * max(scales[i], LEAST) for i in writers):
            break
    return scenario, lowered


def _with_each(scenario: ResolvedScenario, name: str, values: dict[int, Any]) -> ResolvedScenario:
    """*scenario* with the field *name* of volumes changed: number of the volume -> value."""
    return replace(scenario, volumes=tuple(
        replace(v, **{name: values[v.index]}) if v.index in values else v
        for v in scenario.volumes
    ))  # fmt: skip


def _writers(scenario: ResolvedScenario, volume: Volume) -> list[WorkloadGroup]:
    """Groups that write to a volume with a bitmap at random; a trace's rate is its own."""
    return [
        group
        for group in groups_of(scenario, volume)
        if volume.bitmap != "none"
        and group.read < 1 and group.access == "random" and group.trace is None
    ]  # fmt: skip


def _clean_shares(
    scenario: ResolvedScenario, lowered: Lowered, writers: dict[int, list[WorkloadGroup]]
) -> dict[int, float]:
    """Share of writes that meet a clean region, at the rate that a short run has."""
    batch = CompiledEngine(lowered.network).advance(PILOT, HORIZON_PS)
    writes = dict.fromkeys(writers, 0)
    for flow, info in enumerate(lowered.flows):
        if info.write and info.group >= 0:
            target = scenario.workload[info.group].targets[info.target]
            if target.kind == "volume" and target.index in writes:
                writes[target.index] += int(batch.flows[flow])
    shares = {}
    for index, groups in writers.items():
        volume = scenario.volumes[index]
        parity = volume.raid.parity
        data = len(volume.members) - parity if parity else 1
        touched = max((volume_bytes(volume) if g.span is None else g.span) for g in groups)
        regions = max(1.0, touched / (volume.bitmap_chunk * data))
        rate = writes[index] / _seconds(batch) / regions
        share = clean_share(rate)
        if volume.bitmap_since_ps is not None:
            share = since_share(rate, volume.bitmap_since_ps / PS_PER_S)
        shares[index] = share if share > LEAST else 0.0
    return shares


def _seconds(batch: Batch) -> float:
    return max((batch.end_ps - batch.start_ps) / PS_PER_S, 1e-12)


def with_rebuilds(scenario: ResolvedScenario, lowered: Lowered) -> tuple[ResolvedScenario, Lowered]:
    """*scenario* with the pace of each rebuild that has a raised minimum, lowered again if any.

    Above ``sync_speed_min`` md waits for each window of a rebuild before it sends the next, below
    it does not: which it is only a run can tell. Source: Linux drivers/md/md.c, md_do_sync.
    """
    raised = {v.index for v in scenario.volumes if v.rebuild and v.sync_speed_min > USUAL_MIN}
    if not raised or not scenario.workload:  # an idle array never waits
        return scenario, lowered

    waiting = _with_each(scenario, "rebuild_pace", dict.fromkeys(raised, "waiting"))
    trial = lower(waiting)
    batch = CompiledEngine(trial.network).advance(PILOT, HORIZON_PS)
    rates = {
        info.volume: batch.stations[info.station, Acc.VISITS] * info.unit_bytes / _seconds(batch)
        for info in trial.rebuilds
    }
    paces = {
        v.index: "waiting" if rates.get(v.name, 0.0) >= v.sync_speed_min else "forced"
        for v in scenario.volumes if v.index in raised
    }  # fmt: skip
    changed = _with_each(scenario, "rebuild_pace", paces)
    return changed, (trial if changed == waiting else lower(changed))


def _buffer_level(lowered: Lowered, *, is_variant: bool) -> float:
    """Share of its write buffers that the load will take, by a short run from empty ones.

    A buffer that fills does so from the first moment on: all of them then, else what the pilot's
    end takes. Where the dies of a *variant* hardly rest it is a long one: the run that follows is
    too short to show that they fill.
    """
    load = of_drives(load_of(lowered), lowered.network)
    if not load.buffers.size or load.replayed:
        return 0.0
    groups, net = lowered.scenario.workload, lowered.network
    requests = REBUILT  # of a rebuild alone: each of its requests is many programs
    if groups:
        dies = int(((net.die_gate >= 0) & (net.die_dist >= 0)).sum())
        writes = max(0.05, 1 - min(g.read for g in groups))
        wanted = max(TIMES_IN_FLIGHT * load.in_flight, PROGRAMS * dies / writes)
        requests = int(np.clip(wanted, *BUFFER_REQUESTS))
    kept = Collector(reducer(lowered), batch := requests // BATCHES)
    engine = CompiledEngine(net, seed=SEED)
    for i in range(BATCHES):
        part = engine.advance(batch, HORIZON_PS)
        if part.completions < batch:
            return 0.0
        kept.add(part)
        if i + 1 == EARLY and _has_room(kept.window(0), load, net):
            return 0.0
    window = kept.window(0)
    if is_variant and max(_die_shares(window, load, net)) > RESTLESS:
        while kept.requests < BUFFER_REQUESTS[1]:
            kept.add(engine.advance(batch, HORIZON_PS))
        window = kept.window(0)
    if drifting(window, load) > 0:
        return 1.0
    share = fill_share(window, load)
    return share if share >= LITTLE else 0.0


def _has_room(window: Window, load: RunLoad, net: Network) -> bool:
    """True if the buffers hold next to nothing, and no drive's dies are busy enough to fill one."""
    if (net.die_every > 0).any() or fill_share(window, load) > LITTLE / 2:
        return False
    return max(_die_shares(window, load, net)) < ROOMY


def _die_shares(window: Window, load: RunLoad, net: Network) -> list[float]:
    """Share of the time that the dies behind each write buffer work; 1 where they are not told."""
    programmed = (net.die_gate >= 0) & (net.die_dist >= 0)
    spent = window.total.stations[:, Acc.SERVICE] / max(1.0, window.duration_ps)
    drives = [spent[programmed & (net.die_gate == gate)] for gate in load.buffers]
    return [float(dies.mean()) if dies.size else 1.0 for dies in drives]


def filled(net: Network, share: float) -> Network:
    """Return *net* with *share* of its write buffers taken, by programs that wait for the dies."""
    backlog = net.die_backlog.copy()
    programmed = (net.die_gate >= 0) & (net.die_dist >= 0)
    for gate in np.unique(net.die_gate[programmed]):
        dies = np.flatnonzero(programmed & (net.die_gate == gate))
        each, rest = divmod(int(share * net.station_servers[gate]), len(dies))
        backlog[dies] = each
        backlog[dies[:rest]] += 1
    return replace(net, die_backlog=backlog)


def of_drives(load: RunLoad, net: Network) -> RunLoad:
    """*load* without the caches of RAID controllers: those are small, and fill by themselves."""
    own = np.isin(load.buffers, net.die_gate)
    return replace(load, buffers=load.buffers[own], buffer_slots=load.buffer_slots[own])


LARGE: Final = 1 << 20
"""Bytes from which on fewer requests are simulated, in proportion, if all are as large. Assumed."""


def load_of(lowered: Lowered) -> RunLoad:
    """Facts about the load of *lowered* that the controller needs."""
    groups, net = lowered.scenario.workload, lowered.network
    writes = any(g.read < 1 for g in groups) or bool(lowered.rebuilds)
    # Of steady drives, and of RAID controllers' caches.
    steady = {d.index for d in lowered.scenario.drives if d.profile.state == "steady"}
    gates = {int(g) for g in net.die_gate if g >= 0}
    buffers = np.array(sorted(
        s.first for s in lowered.stations
        if writes and ((s.drive in steady and s.first in gates)
                       or (s.drive is None and s.kind == "gate" and s.resource == "buffer"))
    ), np.int64)  # fmt: skip
    queues = ~np.isin(net.station_kind, (*GATES, Kind.DELAY, Kind.LIMIT))
    closed = sum(g.in_flight for g in groups if not g.is_open)
    sizes = [n for g in groups for n, _ in (*g.block_sizes, *(g.write_block_sizes or ()))]
    return RunLoad(
        is_open=any(g.is_open for g in groups),
        replayed=bool(groups) and all(g.trace is not None for g in groups),
        bursts=any(g.bursts is not None for g in groups),
        in_flight=closed if groups else len(net.user_group),
        share=min(1.0, LARGE / min(sizes, default=LARGE)),
        servers=np.where(queues, net.station_servers, 0),
        buffers=buffers,
        buffer_slots=net.station_servers[buffers],
    )
