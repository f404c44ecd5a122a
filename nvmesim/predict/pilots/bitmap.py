"""How often a random write meets a clean region of md's bitmap, and pays for it.

md notes a region as dirty, by a write of 512 B on every member or of a page of the bitmap's file,
before the first write to it, and cleans it 5 to 10 s after the last: its daemon looks every 5 s and
takes two looks. So the share of writes that pay depends on how often each region is written, which
only runs can tell: short ones, the first with a bitmap that is clean, each next with what the one
before leaves dirty. From there drives that write a bitmap slowly may stay slow, which a first run
without it would not show. A fast array keeps its regions dirty; one of disks, or a light load on a
large one, pays at almost every write. Source: Linux drivers/md/md-bitmap.c, md_bitmap_daemon_work;
md ground truth (clean-up after 5 to 10 s).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.model.lower import lower
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS
from nvmesim.scenario.resolved import ResolvedScenario, Volume, WorkloadGroup
from nvmesim.scenario.volumes import volume_bytes
from nvmesim.units import PS_PER_S

DAEMON_S: Final = 5.0
"""Source: mdadm's default, 5 s between two looks of the bitmap's daemon."""
STEPS: Final = 100
"""Of how far back a region's last write counts: the mean over 5 to 10 s."""
ROUNDS: Final = 12
"""Pilots at most: the share of one gives the rate of the next, from all clean to what lasts."""
SETTLED: Final = 0.02
"""Shares that differ by less are the same."""
PILOT: Final = 3000
"""Requests of the run that measures how often regions are written."""
LEAST: Final = 1e-4
"""Share of writes below which the bitmap costs nothing that shows."""


def clean_share(writes_per_region_s: float) -> float:
    """Share of random writes whose region has fallen clean: no write to it for 5 to 10 s.

    Writes to a region are Poisson; where between two looks the last of them fell is even.

    >>> [round(clean_share(rate), 3) for rate in (0.0, 0.01, 0.1, 1.0, 10.0)]
    [1.0, 0.928, 0.477, 0.001, 0.0]
    """
    x = DAEMON_S * writes_per_region_s
    if x < 1e-9:
        return 1.0
    return (math.exp(-x) - math.exp(-2 * x)) / x


def since_share(writes_per_region_s: float, seconds: float) -> float:
    """Share of the random writes of the first *seconds* of a clean bitmap that find it clean.

    A write finds its region clean if none came in the last 5 to 10 s, or since the beginning where
    that is less: regions that are written seldom fall clean again within the run. Of a run that
    never ends it is `clean_share`.

    >>> [round(since_share(rate, 10.0), 3) for rate in (0.0, 0.01, 0.15, 10.0)]
    [1.0, 0.955, 0.538, 0.01]
    >>> round(since_share(0.1, 1e6), 3) == round(clean_share(0.1), 3)
    True
    """
    rate = writes_per_region_s
    if rate * seconds < 1e-9:
        return 1.0
    step = DAEMON_S / STEPS
    total = 0.0
    for k in range(STEPS):
        looks_back = min(DAEMON_S + (k + 0.5) * step, seconds)
        rest = (seconds - looks_back) * math.exp(-rate * looks_back)
        total += -math.expm1(-rate * looks_back) / rate + rest
    return total / STEPS / seconds


def with_bitmaps(scenario: ResolvedScenario, lowered: Lowered) -> tuple[ResolvedScenario, Lowered]:
    """*scenario* with the share of first writes of each bitmap, lowered again if any pays."""
    found = {v.index: groups for v in scenario.volumes if (groups := _writers(scenario, v))}
    if not found:
        return scenario, lowered
    scenario = _dirty(scenario, dict.fromkeys(found, 1.0))  # as after a quiet hour: all is clean
    lowered = lower(scenario)
    for _ in range(ROUNDS):
        shares = _shares(scenario, lowered, found)
        before = {v.index: v.first_dirty for v in scenario.volumes}
        scenario = _dirty(scenario, shares)
        lowered = lower(scenario)
        if all(_settled(v, before[v.index]) for v in scenario.volumes if v.index in found):
            break
    return scenario, lowered


def _settled(volume: Volume, before: float) -> bool:
    """True if the share of first writes lasts; a short run's may be small, and still cost much."""
    scale = 1.0 if volume.bitmap_since_ps is None else volume.first_dirty
    return abs(volume.first_dirty - before) < SETTLED * max(scale, LEAST)


def _dirty(scenario: ResolvedScenario, shares: dict[int, float]) -> ResolvedScenario:
    """*scenario* with the share of first writes of each bitmap."""
    volumes = (replace(v, first_dirty=shares.get(v.index, v.first_dirty)) for v in scenario.volumes)
    return replace(scenario, volumes=tuple(volumes))


def _shares(
    scenario: ResolvedScenario, lowered: Lowered, found: dict[int, list[WorkloadGroup]]
) -> dict[int, float]:
    """Share of writes that meet a clean region, at the rate that a short run has."""
    batch = CompiledEngine(lowered.network).advance(PILOT, HORIZON_PS)
    seconds = max((batch.end_ps - batch.start_ps) / PS_PER_S, 1e-12)
    shares = {}
    for volume in scenario.volumes:
        if volume.index not in found:
            continue
        writes = sum(
            int(batch.flows[flow])
            for flow, info in enumerate(lowered.flows)
            if info.write and info.group >= 0
            and _volume_of(scenario.workload[info.group], info.target) == volume.index
        )  # fmt: skip
        rate = writes / seconds / _regions(volume, found[volume.index])
        share = clean_share(rate)
        if volume.bitmap_since_ps is not None:
            share = since_share(rate, volume.bitmap_since_ps / PS_PER_S)
        shares[volume.index] = share if share > LEAST else 0.0
    return shares


def _writers(scenario: ResolvedScenario, volume: Volume) -> list[WorkloadGroup]:
    """Groups that write to a volume with a bitmap at random; a trace's rate is its own."""
    if volume.bitmap == "none":
        return []
    return [
        group
        for index, group in enumerate(scenario.workload)
        if group.read < 1 and group.access == "random" and group.trace is None
        and any(_volume_of(scenario.workload[index], t) == volume.index
                for t in range(len(group.targets)))
    ]  # fmt: skip


def _volume_of(group: WorkloadGroup, target: int) -> int | None:
    found = group.targets[target]
    return found.index if found.kind == "volume" else None


def _regions(volume: Volume, groups: list[WorkloadGroup]) -> float:
    """Regions of the bitmap that the load touches."""
    level = volume.raid
    data = level.data_members(len(volume.members)) if level.parity else 1
    touched = max((volume_bytes(volume) if g.span is None else g.span) for g in groups)
    return max(1.0, touched / (volume.bitmap_chunk * data))
