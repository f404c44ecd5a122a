"""The RAID engine of a volume: its profile as the level, the kernel and the workers make it."""

from __future__ import annotations

from typing import cast

from nvmesim.catalog import load as catalog
from nvmesim.catalog.kernel import known_kernel, with_kernel
from nvmesim.catalog.profile import RaidEngineProfile
from nvmesim.errors import CatalogError, GeometryError, ScenarioError
from nvmesim.scenario.hardware import ResolveNotes, profile
from nvmesim.scenario.schema import Scenario, VolumeSpec


def volume_engine(
    spec: VolumeSpec, key: str, scenario: Scenario, notes: ResolveNotes
) -> tuple[RaidEngineProfile, RaidEngineProfile]:
    """Return the engine of *spec* at its level and kernel, and as its profile is.

    Raises ScenarioError or GeometryError for what it does not have.
    """
    of_zfs = spec.level.records and "engine" not in spec.model_fields_set
    reference = "openzfs" if of_zfs else spec.engine
    found = profile("raid-engine", reference, scenario.base, f"{key}.engine")
    engine = whole = cast(RaidEngineProfile, found)
    if spec.raid not in engine.levels:
        raise GeometryError(
            f"{key}.raid is {spec.raid!r}; {engine.name} has {', '.join(engine.levels)}"
        )
    if "engine" not in spec.model_fields_set:
        notes.assume(f"{key}.engine: {engine.name} taken")
    if spec.kernel is not None:
        engine = _in_kernel(engine, spec.kernel, key, notes)
    try:
        engine = catalog.with_level(engine, spec.raid)
    except CatalogError as error:
        raise ScenarioError(f"{key}.engine: by_level: {error}") from None
    used = ["bitmap_file"] if spec.bitmap.kind == "external" else []
    notes.profile(engine, "per_child", *used)
    return engine, whole


def _in_kernel(
    engine: RaidEngineProfile, kernel: str, key: str, notes: ResolveNotes
) -> RaidEngineProfile:
    if not engine.kernels:
        raise GeometryError(
            f"{key}.kernel is {kernel!r}; {engine.name} is the same for all kernels; leave it out"
        )
    try:
        taken = known_kernel(kernel, engine.kernels)
        changed = with_kernel(engine, kernel)
    except CatalogError as error:
        raise ScenarioError(f"{key}.kernel {error}") from None
    if taken != kernel:
        notes.assume(
            f"{key}.kernel: {kernel} costs what {taken} does, the nearest earlier one that is known"
        )
    return changed


def row_workers(spec: VolumeSpec, key: str, engine: RaidEngineProfile, sockets: int) -> int:
    """Threads that handle rows beside the engine's own: ``group_thread_cnt`` on each NUMA node.

    Source: Linux drivers/md/raid5.c, alloc_thread_groups: one group of workers a node.
    """
    count = spec.group_thread_cnt
    if count is None:
        return max(0, round(engine.workers.value) - 1) if engine.rows is not None else 0
    if not spec.level.stripe_cache or engine.rows is None:
        raise GeometryError(
            f"{key}.group_thread_cnt is {count}; only raid5 and raid6 of Linux md have workers, "
            f"{spec.raid} of {engine.name} has none: leave it out"
        )
    return count * sockets
