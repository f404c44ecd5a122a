"""Simulates what a striped volume loses to its slowest member (`nvmesim.predict.result.Waits`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.engine.reference.tokens import Step
from nvmesim.errors import InputError
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS
from nvmesim.predict.changes import with_profiles
from nvmesim.predict.prepare import prepare
from nvmesim.predict.result import MemberWait, ScalePoint, SizeWait, Waits
from nvmesim.scenario.resolved import ResolvedScenario, Target, Volume, WorkloadGroup
from nvmesim.units import PS_PER_S

REQUESTS: Final = 300
"""Requests whose steps are recorded, for each size."""
MOST_IN_FLIGHT: Final = 32
"""Requests in flight while steps are recorded: the SimPy engine is slow."""
STEPS: Final = 24_000
"""Units of the drives' media that one recording may take; requests and depth are cut to fit."""
MOST_BYTES: Final = 8 << 20
COUNTS: Final = (1, 2, 3, 4, 5, 7, 8, 12, 16)
MOST_REQUESTS: Final = 20_000
LEAST_REQUESTS: Final = 100
UNITS: Final = 150_000
"""Units of the drives' media that one point of the scaling may take, least requests apart."""
POINTS: Final = 200
"""Latencies kept of each distribution."""


def study(
    scenario: ResolvedScenario,
    seed: int = 1,
    counts: Sequence[int] = COUNTS,
    *,
    of_load: bool = False,
) -> Waits | None:
    """Loss of the first volume under load; None without a volume of several members.

    *of_load*: only what the load meets; None if each of its requests is served by one member.
    """
    used = ((scenario.volumes[t.index], g) for g in scenario.workload if g.trace is None
            for t in g.targets if t.kind == "volume")  # fmt: skip
    found = next(((volume, g) for volume, g in used if len(volume.members) > 1), None)
    if found is None:
        return None
    volume, group = found
    own = {size for size, _ in group.block_sizes}
    if of_load:
        share = _shared(volume, group, max(own))
        if share is None:
            return None
        group = replace(group, read=share)
    level = volume.raid
    striped = not of_load or (level.has_chunks and max(own) > volume.chunk)
    if striped and level.has_chunks:
        data = max(1, level.data_members(len(volume.members), volume.copies))
        own |= {volume.chunk, volume.chunk * data}
    sizes = []
    for n_bytes in sorted(size for size in own if size <= MOST_BYTES):
        with suppress(InputError):
            sizes.append(_size(scenario, volume, group, n_bytes, seed))
    scaled = scaling(scenario, volume, counts, seed) if striped else ()
    return Waits(volume.name, tuple(sizes), tuple(scaled))


def _shared(volume: Volume, group: WorkloadGroup, largest: int) -> float | None:
    """1 if several members serve reads of *group* together, 0 if they do writes; None: neither."""
    level = volume.raid
    are_split = level.has_chunks and largest > volume.chunk
    reads = are_split or (level.parity > 0 and bool(volume.degraded))
    if reads and group.read >= 0.5:
        return 1.0
    return 0.0 if group.read < 1 and (reads or level.redundant) else None


def _on(
    scenario: ResolvedScenario, volume: Volume, group: WorkloadGroup, n_bytes: int, in_flight: int
) -> ResolvedScenario:
    """*scenario* with one group on *volume*: closed loop, one size, few in flight."""
    threads, depth = (1, 8) if group.is_open else (group.n_threads, group.outstanding)
    threads = min(threads, in_flight)
    load = replace(
        group,
        targets=(Target("volume", volume.index, volume.name),),
        block_sizes=((n_bytes, 1.0),), write_block_sizes=None,
        align=n_bytes, offset=0, span=None, stride=None, rate=None, rate_limit=None,
        read=1.0 if group.read >= 0.5 else 0.0,
        threads=threads, threads_are_per_target=True, think_ps=0, sync_every=0,
        outstanding=max(1, min(depth, in_flight // threads)),
        outstanding_per="thread-target",
    )  # fmt: skip
    volumes = tuple(_plain(v) for v in scenario.volumes)
    return small_buffers(replace(scenario, volumes=volumes, workload=(load,)))


def small_buffers(s: ResolvedScenario) -> ResolvedScenario:
    """Return *s* with write buffers a sixteenth as large, yet of eight units per die at least."""

    def change(p: DriveProfile) -> DriveProfile:
        w = p.write
        least = 8 * p.dies.value * w.unit.value
        smaller = min(w.buffer.value, max(least, w.buffer.value / 16))
        buffer = w.buffer.model_copy(update={"value": smaller})
        return p.model_copy(update={"write": w.model_copy(update={"buffer": buffer})})

    return with_profiles(s, change)


def _plain(volume: Volume) -> Volume:
    """*volume* without a rebuild, and with members that its requests wait for: no write cache."""
    engine = volume.engine.model_copy(update={"cache": Quantity(value=0)})
    return replace(volume, rebuild=False, engine=engine)


def _size(
    scenario: ResolvedScenario, volume: Volume, group: WorkloadGroup, n_bytes: int, seed: int
) -> SizeWait:
    profile = scenario.drives[volume.members[0]].profile
    units = max(_units(profile, n_bytes, write=write) for write in (False, True))
    recorded = int(min(REQUESTS, max(16, STEPS / units)))
    most = min(MOST_IN_FLIGHT, max(1, recorded // 8))
    changed = _on(scenario, volume, group, n_bytes, most)
    ready = prepare(changed, "simpy", seed)
    in_flight = changed.workload[0].in_flight
    engine = ready.engine(timeline=recorded + in_flight)
    assert isinstance(engine, ReferenceEngine)
    engine.advance(recorded + 2 * in_flight, HORIZON_PS)
    times: dict[int, list[int]] = {drive: [] for drive in volume.members}
    took, shared, last, totals = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    for request, phase in _phases(engine.steps(), ready.lowered):
        if request < in_flight:  # while the load starts
            continue
        slowest = max(phase, key=lambda drive: phase[drive])
        totals[request] += phase[slowest]
        for drive, time in phase.items():
            times.setdefault(drive, []).append(time)
            took[drive] += phase[slowest]
        if len(phase) > 1:
            shared.update(phase.keys())
            last[slowest] += 1
    found = tuple(
        MemberWait(
            scenario.drives[drive].name, _thinned(own), sum(own) / took[drive],
            last[drive] / max(1, shared[drive]),
        )
        for drive, own in times.items() if own
    )  # fmt: skip
    if not totals:
        raise InputError("no request used a member")
    op = "read" if changed.workload[0].read == 1.0 else "write"
    return SizeWait(n_bytes, op, found, _thinned(list(totals.values())))


def _phases(steps: Sequence[Step], lowered: Lowered) -> Iterator[tuple[int, dict[int, int]]]:
    """(request, drive -> ps from the fork to its last departure) of each phase."""
    drive_of = {
        station: info.drive
        for info in lowered.stations
        if info.drive is not None
        for station in range(info.first, info.first + info.count)
    }
    children: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for step in steps:
        if step.child and step.depart_ps >= 0:
            children[step.request, step.child].append(step)
    forks: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for (request, _), mine in children.items():
        drives = [drive_of[s.station] for s in mine if s.station in drive_of]
        start = min(s.arrive_ps for s in mine)
        if drives:
            phase = forks[request, start]
            time = max(s.depart_ps for s in mine) - start
            phase[drives[0]] = max(time, phase.get(drives[0], 1))
    for (request, _), phase in sorted(forks.items(), key=lambda item: item[0]):
        yield request, phase


def _thinned(values_ps: list[int]) -> tuple[float, ...]:
    """Seconds in order, or as many of their quantiles as a chart needs."""
    ordered = np.sort(np.array(values_ps)) / PS_PER_S
    if len(ordered) > POINTS:
        ordered = np.quantile(ordered, (np.arange(POINTS) + 0.5) / POINTS)
    return tuple(ordered.tolist())


def scaling(
    scenario: ResolvedScenario, volume: Volume, counts: Sequence[int] = COUNTS, seed: int = 1,
    units: int = UNITS,
) -> Iterator[ScalePoint]:  # fmt: skip
    """Throughput of so many drives that share each request over that of as many alone."""

    def rate(members: Sequence[int], op: str) -> float:
        return _rate(_striped(scenario, volume, members, op), seed, units)

    plain = {m: replace(scenario.drives[m], index=0, name="") for m in volume.members}
    for op in ("write", "read"):
        alone: dict[int, float] = {}
        with suppress(InputError):  # a drive that knows no such operation
            for member, drive in plain.items():
                same = next((other for other in alone if plain[other] == drive), None)
                alone[member] = rate([member], op) if same is None else alone[same]
            yield ScalePoint(1, op, 1.0)
            for n in counts:
                if n > 1:
                    members = [volume.members[i % len(volume.members)] for i in range(n)]
                    mean = sum(alone[m] for m in members) / n
                    yield ScalePoint(n, op, rate(members, op) / mean)


def _striped(
    scenario: ResolvedScenario, volume: Volume, members: Sequence[int], op: str
) -> ResolvedScenario:
    """One request at a time on a raid0 of copies of *members*, or on one of them."""
    chunk = volume.chunk if volume.raid.has_chunks else 64 << 10
    drives = tuple(
        replace(scenario.drives[m], index=i, name=f"member{i}") for i, m in enumerate(members)
    )
    n = len(drives)
    array = replace(
        _plain(volume), index=0, level="raid0", members=tuple(range(n)), layout="", copies=1,
        chunk=chunk, degraded=(), rebuilding=None, spares=(), columns=None, bitmap="none",
        journal="none", zone_bytes=(),
    )  # fmt: skip
    target = Target("volume", 0, volume.name) if n > 1 else Target("drive", 0, "member0")
    load = WorkloadGroup(
        "one at a time", (target,), block_sizes=((n * chunk, 1.0),), align=n * chunk,
        read=1.0 if op == "read" else 0.0,
    )  # fmt: skip
    volumes = (array,) if n > 1 else ()
    return small_buffers(replace(scenario, drives=drives, volumes=volumes, workload=(load,)))


def _rate(scenario: ResolvedScenario, seed: int, most_units: int) -> float:
    """Requests per second of one request after the other."""
    load = scenario.workload[0]
    chunk = load.block_sizes[0][0] / len(scenario.drives)
    units = sum(_units(d.profile, chunk, write=not load.read) for d in scenario.drives)
    requests = int(min(MOST_REQUESTS, max(LEAST_REQUESTS, most_units / units)))
    engine = prepare(scenario, "compiled", seed).engine()
    engine.advance(requests // 4, HORIZON_PS)
    batch = engine.advance(requests, HORIZON_PS)
    return requests * PS_PER_S / (batch.end_ps - batch.start_ps)


def _units(profile: DriveProfile, n_bytes: float, *, write: bool) -> float:
    """Units of the media in one command: what it costs to simulate."""
    if profile.latencies is not None:
        return 1.0
    side = profile.write.unit if write else profile.read.unit
    return max(1.0, n_bytes / side.value)
