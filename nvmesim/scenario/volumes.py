"""RAID volumes of a scenario: members, geometry and engine, checked."""

from __future__ import annotations

import re
from typing import Final, cast

from nvmesim import units
from nvmesim.catalog import load as catalog
from nvmesim.catalog.profile import RaidEngineProfile
from nvmesim.errors import CatalogError, GeometryError, ScenarioError, nearest
from nvmesim.scenario.hardware import Notes, capacity_bytes, profile
from nvmesim.scenario.resolved import Drive, Volume
from nvmesim.scenario.schema import Scenario, VolumeSpec

MIN_MEMBERS: Final = {"raid0": 2, "raid1": 2, "raid10": 2, "raid5": 3, "raid6": 4}
DEFAULT_CHUNK: Final = 512 * 1024
"""Source: mdadm's default for arrays with metadata."""
PARITY_LAYOUTS: Final = (
    "left-symmetric",
    "left-asymmetric",
    "right-symmetric",
    "right-asymmetric",
    "parity-first",
    "parity-last",
)
_MIRROR_LAYOUT: Final = re.compile(r"^(near|far|offset)(\d+)$")


def resolve_volumes(
    scenario: Scenario, drives: tuple[Drive, ...], notes: Notes
) -> tuple[Volume, ...]:
    """Return the volumes; GeometryError for one that cannot be built or has failed."""
    several = len(scenario.volume) > 1
    taken: dict[int, str] = {}
    volumes: list[Volume] = []
    names = {drive.name for drive in drives}
    for index, spec in enumerate(scenario.volume):
        key = f"volume.{index}" if several else "volume"
        name = spec.name or f"volume{index}"
        if name in names:
            raise ScenarioError(f"{key}.name is {name!r}, which a drive or volume has")
        names.add(name)
        members = _members(spec, key, several, drives)
        for member in members:
            if member in taken:
                raise ScenarioError(
                    f"{key}.members: {drives[member].name} is in {taken[member]} already"
                )
            taken[member] = name
        volumes.append(_volume(index, name, spec, key, members, scenario, drives, notes))
    return _with_spares(scenario, tuple(volumes), drives)


def _members(
    spec: VolumeSpec, key: str, several: bool, drives: tuple[Drive, ...]
) -> tuple[int, ...]:
    """Return the drives of a volume: those named, or all but its spares."""
    if spec.members is None:
        if several:
            raise ScenarioError(
                f"{key}.members is missing; with several volumes each names its own"
            )
        return tuple(range(len(drives) - spec.spares))
    for member in spec.members:
        if not 0 <= member < len(drives):
            raise ScenarioError(
                f"{key}.members names drive {member}; there are 0 to {len(drives) - 1}"
            )
        if spec.members.count(member) > 1:
            raise ScenarioError(f"{key}.members names drive {member} twice")
    return spec.members


def _volume(
    index: int,
    name: str,
    spec: VolumeSpec,
    key: str,
    members: tuple[int, ...],
    scenario: Scenario,
    drives: tuple[Drive, ...],
    notes: Notes,
) -> Volume:
    engine = _engine(spec, key, scenario, notes)
    layout, copies = geometry(spec.raid, len(members), spec.layout, key)
    check_degraded(spec.raid, len(members), layout, copies, spec.degraded, key)
    chunk = spec.chunk
    if chunk is None:
        chunk = int(engine.interleave.value) if engine.interleave else DEFAULT_CHUNK
        if spec.raid != "raid1":
            notes.assume(f"{key}.chunk: {units.format_size(chunk)}, the default of {engine.name}")
    columns = spec.columns or engine.columns
    if columns is not None and columns > len(members):
        raise GeometryError(f"{key}.columns is {columns}; the volume has {len(members)} members")
    sizes = [capacity_bytes(drives[member]) for member in members]
    if len(set(sizes)) > 1:
        notes.assume(f"{key}: members differ in size; {units.format_size(min(sizes))} of each used")
    return Volume(
        index=index,
        name=name,
        level=spec.raid,
        members=members,
        layout=layout,
        copies=copies,
        chunk=chunk,
        engine=engine,
        degraded=tuple(sorted(spec.degraded)),
        rebuild=spec.rebuild,
        read_policy=spec.read_policy,
        rmw_level=spec.rmw_level,
        stripe_cache=spec.stripe_cache,
        bitmap=spec.bitmap,
        columns=columns,
        logical_sector=spec.logical_sector,
        member_bytes=min(sizes) // chunk * chunk,
    )


def _engine(spec: VolumeSpec, key: str, scenario: Scenario, notes: Notes) -> RaidEngineProfile:
    found = profile("raid-engine", spec.engine, scenario.base, f"{key}.engine")
    engine = cast(RaidEngineProfile, found)
    if spec.raid not in engine.levels:
        raise GeometryError(
            f"{key}.raid is {spec.raid!r}; {engine.name} has {', '.join(engine.levels)}"
        )
    if "engine" not in spec.model_fields_set:
        notes.assume(f"{key}.engine: {engine.name} taken")
    try:
        engine = catalog.with_level(engine, spec.raid)
    except CatalogError as error:
        raise ScenarioError(f"{key}.engine: by_level: {error}") from None
    notes.profile(engine)
    return engine


def geometry(
    level: str, n_members: int, layout: str | None, key: str = "volume"
) -> tuple[str, int]:
    """Return (layout, copies) of a level, or GeometryError naming what it needs.

    >>> geometry("raid10", 4, "far2")
    ('far', 2)
    >>> geometry("raid5", 4, None)
    ('left-symmetric', 1)
    """
    least = MIN_MEMBERS[level]
    if n_members < least:
        raise GeometryError(f"{key}: {level} needs at least {least} members, it has {n_members}")
    if level in ("raid5", "raid6"):
        chosen = layout or "left-symmetric"
        if chosen not in PARITY_LAYOUTS:
            raise GeometryError(f"{key}.layout is {layout!r}; {nearest(chosen, PARITY_LAYOUTS)}")
        return chosen, 1
    if level == "raid10":
        return _mirror_layout(layout or "near2", n_members, key)
    if layout is not None:
        raise GeometryError(f"{key}.layout is {layout!r}; {level} has none, leave it out")
    return "", n_members if level == "raid1" else 1


def _mirror_layout(layout: str, n_members: int, key: str) -> tuple[str, int]:
    match = _MIRROR_LAYOUT.match(layout)
    if match is None:
        raise GeometryError(f"{key}.layout is {layout!r}; near2, far2, offset2 or more copies")
    copies = int(match.group(2))
    if not 2 <= copies <= n_members:
        raise GeometryError(f"{key}.layout is {layout!r}; 2 to {n_members} copies on its members")
    return match.group(1), copies


def check_degraded(
    level: str,
    n_members: int,
    layout: str,
    copies: int,
    degraded: tuple[int, ...],
    key: str = "volume",
) -> None:
    """Raise GeometryError if a missing member is none, or if data is lost without it.

    >>> check_degraded("raid10", 4, "near", 2, (0, 2))
    """
    for member in degraded:
        if not 0 <= member < n_members:
            raise GeometryError(f"{key}.degraded names member {member}; 0 to {n_members - 1}")
        if degraded.count(member) > 1:
            raise GeometryError(f"{key}.degraded names member {member} twice")
    survives = {"raid0": 0, "raid1": n_members - 1, "raid5": 1, "raid6": 2}.get(level)
    if survives is None:
        lost = any(held <= set(degraded) for held in copy_sets(layout, n_members, copies))
        rule = "a chunk has lost all its copies"
    else:
        lost = len(degraded) > survives
        rule = f"{level} survives {survives} missing of {n_members}"
    if lost and degraded:
        missing = ", ".join(str(member) for member in degraded)
        raise GeometryError(f"{key}.degraded is [{missing}]: the array has failed; {rule}")


def copy_sets(layout: str, n_members: int, copies: int) -> list[set[int]]:
    """Return the sets of members that hold the copies of one chunk. Source: md(4), RAID10.

    >>> copy_sets("near", 4, 2)
    [{0, 1}, {2, 3}, {0, 1}, {2, 3}]
    >>> copy_sets("far", 3, 2)
    [{0, 1}, {1, 2}, {0, 2}]
    """
    step = copies if layout == "near" else 1
    return [{(k * step + j) % n_members for j in range(copies)} for k in range(n_members)]


def _with_spares(
    scenario: Scenario, volumes: tuple[Volume, ...], drives: tuple[Drive, ...]
) -> tuple[Volume, ...]:
    """Give each volume its spares from the drives that no volume uses."""
    used = {member for volume in volumes for member in volume.members}
    free = [drive.index for drive in drives if drive.index not in used]
    result = []
    for volume, spec in zip(volumes, scenario.volume, strict=True):
        if spec.spares > len(free):
            raise ScenarioError(
                f"{volume.name}: spares is {spec.spares}; {len(free)} drives are in no volume"
            )
        mine, free = free[: spec.spares], free[spec.spares :]
        values = {**volume.__dict__, "spares": tuple(mine)}
        result.append(Volume(**values))
    return tuple(result)


def volume_bytes(volume: Volume) -> int:
    """Return the usable bytes of *volume*: parity and copies off, the smallest member each."""
    n = len(volume.members)
    data = {"raid5": n - 1, "raid6": n - 2}.get(volume.level, n)
    return data * volume.member_bytes // volume.copies
