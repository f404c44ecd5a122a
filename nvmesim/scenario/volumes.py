"""RAID volumes of a scenario: members, geometry and engine, checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from nvmesim import units
from nvmesim.catalog.profile import RaidEngineProfile
from nvmesim.errors import FailedArrayError, GeometryError, ScenarioError
from nvmesim.raid.geometry import survives
from nvmesim.raid.levels import LEVELS, Level, level_of
from nvmesim.scenario.fields import shared
from nvmesim.scenario.hardware import ResolveNotes, capacity_bytes
from nvmesim.scenario.pools import check_pool, pool_bytes, record_bytes
from nvmesim.scenario.resolved import Drive, Volume
from nvmesim.scenario.schema import Scenario, VolumeSpec
from nvmesim.scenario.volume_engine import row_workers, volume_engine

DEFAULT_CHUNK: Final = 512 * 1024
"""Source: mdadm's default for arrays with metadata."""
DOMAIN_LANES: Final = 16
"""Lanes of a VMD domain. Source: chipict.com/tag/nvme."""


def resolve_volumes(
    scenario: Scenario, drives: tuple[Drive, ...], notes: ResolveNotes
) -> tuple[Volume, ...]:
    """Return the volumes; GeometryError for one that cannot be built or has failed."""
    several = len(scenario.volume) > 1
    taken: dict[int, str] = {}
    volumes: list[Volume] = []
    _check_idle(scenario)
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
    return _with_spares(scenario, tuple(volumes), drives, notes)


def _check_idle(scenario: Scenario) -> None:
    """Refuse to rebuild what is whole, where there is no load that it would run beside."""
    for index, spec in enumerate(scenario.volume):
        if spec.rebuild and not spec.degraded and not scenario.workload:
            key = f"volume.{index}" if len(scenario.volume) > 1 else "volume"
            raise GeometryError(
                f"{key}.rebuild is true and no member is missing: there is nothing to restore; "
                "name it with degraded = [0], or say check = true to read all members"
            )


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
    notes: ResolveNotes,
) -> Volume:
    level = spec.level
    check_pool(spec, level, key, len(members))
    engine, whole = volume_engine(spec, key, scenario, notes)
    slowest, fastest = _sync_speeds(spec, engine)
    layout, copies = geometry(spec.raid, len(members), spec.layout, key)
    check_degraded(spec.raid, len(members), layout, copies, spec.degraded, key)
    check_members(spec, key, engine, len(members))
    if spec.boot and engine.boots_from == "one-domain":
        _check_domains(key, engine, members, drives, scenario, notes)
    chunk = record_bytes(spec, key, notes) if level.records else spec.chunk
    if chunk is None:
        chunk = default_chunk(engine, len(members))
        if level.has_chunks:
            notes.assume(f"{key}.chunk: {units.format_size(chunk)}, the default of {engine.name}")
    _check_choices(spec, key, engine, copies, len(members))
    _check_chunk(level, chunk, key, [capacity_bytes(drives[member]) for member in members])
    sizes = [capacity_bytes(drives[member]) // chunk * chunk for member in members]
    zoned = not level.redundant and len(set(sizes)) > 1 and engine.merge != "none"
    _note_mixture(key, members, drives, sizes, zoned, notes)
    own: dict[str, Any] = {
        **shared(spec, Volume),
        "index": index,
        "name": name,
        "level": spec.raid,
        "members": members,
        "layout": layout,
        "copies": copies,
        "chunk": chunk,
        "engine": engine,
        "profile": whole if whole.kernels else None,
        "degraded": tuple(sorted(spec.degraded)),
        "rebuild": spec.rebuild or spec.check,
        "write_mostly": tuple(sorted(spec.write_mostly)),
        "workers": row_workers(spec, key, engine, len(scenario.server.sockets)),
        "stripe_cache": spec.cache_rows,
        "bitmap": spec.bitmap.kind,
        "bitmap_chunk": spec.bitmap.chunk,
        "bitmap_since_ps": spec.bitmap.since_clean,
        "columns": spec.columns or engine.columns,
        "spares": (),
        "sync_speed_min": slowest,
        "sync_speed_max": fastest,
        "member_bytes": min(sizes),
        "zone_bytes": tuple(sizes) if zoned else (),
    }
    if level.records:
        # ZFS takes the copy with the least outstanding (vdev_mirror.c, vdev_mirror_child_select)
        own["read_policy"] = "shortest-queue"
    return Volume(**own)


def _sync_speeds(spec: VolumeSpec, engine: RaidEngineProfile) -> tuple[int, int]:
    """Least and most that a rebuild restores per second: md's keys, or a controller's own pace."""
    most = spec.sync_speed_max
    if engine.rebuild is None:
        return min(spec.sync_speed_min, most), most
    own, kept = round(engine.rebuild.value), engine.rebuild.low or engine.rebuild.value
    most = min(most, own) if "sync_speed_max" in spec.model_fields_set else own
    least = spec.sync_speed_min if "sync_speed_min" in spec.model_fields_set else round(kept)
    return min(least, most), most


def _check_choices(
    spec: VolumeSpec, key: str, engine: RaidEngineProfile, copies: int, n_members: int
) -> None:
    """Refuse what the level or the engine does not have."""
    level = spec.level
    if spec.journal != "none" and spec.journal not in level.journals:
        has = " and ".join(
            other.name for other in LEVELS.values() if spec.journal in other.journals
        )
        raise GeometryError(
            f"{key}.journal is {spec.journal!r} for {spec.raid}; only {has} has one"
        )
    if spec.write_mostly and not level.write_mostly:
        raise GeometryError(f"{key}.write_mostly is for raid1; {spec.raid} has no such members")
    for member in spec.write_mostly:
        if not 0 <= member < n_members:
            raise GeometryError(f"{key}.write_mostly names member {member}; 0 to {n_members - 1}")
    most = spec.stripe_cache_most
    if most is not None and most < spec.cache_rows:
        raise GeometryError(
            f"{key}.stripe_cache_most is {most}; the cache starts with {spec.cache_rows} rows "
            "and grows, give at least as many"
        )
    for name in ("rebuild", "check"):
        if getattr(spec, name) and not level.redundant:
            raise GeometryError(f"{key}.{name} is true; raid0 has no redundancy to rebuild from")
    if spec.check and (spec.rebuild or spec.degraded):
        raise GeometryError(
            f"{key}.check reads an array that has all its members; one that is degraded is rebuilt,"
            " leave check out"
        )
    if engine.merge == "none":
        for name, found in (("bitmap", spec.bitmap.kind), ("journal", spec.journal)):
            if found != "none":
                raise GeometryError(
                    f"{key}.{name} is {found!r}; {engine.name} is not Linux md, leave it out"
                )
    if spec.controller is not None and engine.runs_on != "controller":
        raise GeometryError(
            f"{key}.controller is {spec.controller!r}; {engine.name} runs on the host, leave it out"
        )
    columns = spec.columns or engine.columns
    if columns is None:
        return
    width = columns * (copies if level.copies == "layout" else 1)
    if width > n_members:
        of = f" of {copies} copies" if width > columns else ""
        raise GeometryError(f"{key}.columns is {columns}{of}; the volume has {n_members} members")
    least = level.least
    if width < least:
        raise GeometryError(f"{key}.columns is {columns}; {spec.raid} needs at least {least}")
    if not level.has_chunks:
        raise GeometryError(f"{key}.columns is {columns}; raid1 has one column, take raid10")


def _note_mixture(
    key: str,
    members: tuple[int, ...],
    drives: tuple[Drive, ...],
    sizes: list[int],
    zoned: bool,
    notes: ResolveNotes,
) -> None:
    """Say what members of different sizes and kinds mean for the volume."""
    if zoned:
        notes.assume(f"{key}: members differ in size; beyond the shorter ones only the longer work")
    elif len(set(sizes)) > 1:
        unused = sum(sizes) - len(sizes) * min(sizes)
        notes.assume(
            f"{key}: members differ in size; {units.format_size(min(sizes))} of each used, "
            f"{unused / sum(sizes):.0%} of the capacity lies idle"
        )
    kinds = sorted({drives[member].profile.name for member in members})
    if len(kinds) > 1:
        notes.assume(
            f"{key}: members differ ({', '.join(kinds)}); what goes to several of them ends with "
            "the slowest"
        )


def _check_chunk(level: Level, chunk: int, key: str, capacities: list[int]) -> None:
    """Raise GeometryError for a chunk that md would not take, or that no member holds."""
    text = units.format_size(chunk)
    if level.has_chunks and not level.any_chunk and chunk & (chunk - 1):
        raise GeometryError(f"{key}.chunk is {text}; {level.name} takes a power of two, as 64 KiB")
    if level.has_chunks and min(capacities) < chunk:
        raise GeometryError(
            f"{key}.chunk is {text}; the smallest member holds "
            f"{units.format_size(min(capacities))}, at least one chunk is needed"
        )


def default_chunk(engine: RaidEngineProfile, n_members: int) -> int:
    """Return the chunk of a volume that names none: as its engine's own tools choose it.

    >>> from nvmesim.catalog.load import get, with_level
    >>> vroc = with_level(get("raid-engine", "intel-vroc"), "raid5")
    >>> [default_chunk(vroc, n) // 1024 for n in (3, 4, 5, 8)]
    [64, 32, 128, 16]
    """
    strip = engine.strips.get(str(n_members), engine.interleave)
    return DEFAULT_CHUNK if strip is None else int(strip.value)


def check_members(spec: VolumeSpec, key: str, engine: RaidEngineProfile, n_members: int) -> None:
    """Raise GeometryError if the engine builds the level with other numbers of members only."""
    if engine.members is None:
        return
    least, most = engine.members
    if least <= n_members <= most:
        return
    takes = f"{least}" if least == most else f"{least} to {most}"
    hint = ", take raid10" if spec.raid == "raid1" and "raid10" in engine.levels else ""
    raise GeometryError(
        f"{key}: {spec.raid} of {engine.name} takes {takes} members, it has {n_members}{hint}"
    )


def _check_domains(
    key: str,
    engine: RaidEngineProfile,
    members: tuple[int, ...],
    drives: tuple[Drive, ...],
    scenario: Scenario,
    notes: ResolveNotes,
) -> None:
    """Raise GeometryError if a bootable volume spans domains; drives behind none are dealt to some.

    Source: chipict.com/tag/nvme: domains of 16 lanes, arrays across them are allowed, bootable
    ones lie inside one.
    """
    names: dict[int, str] = {}
    lanes: dict[int, int] = {}
    for drive in drives:
        adapter = None if drive.adapter is None else scenario.adapters[drive.adapter]
        if adapter is not None and adapter.kind == "vmd":
            names[drive.index] = adapter.name
        else:
            before = lanes.get(drive.socket, 0)
            lanes[drive.socket] = before + drive.link.pcie_lanes
            number = (lanes[drive.socket] - 1) // DOMAIN_LANES
            names[drive.index] = f"socket {drive.socket} domain {number}"
    if any(names[member].startswith("socket ") for member in members):
        notes.assume(f"{key}.boot: drives behind no VMD fill domains of 16 lanes in their order")
    found = sorted({names[member] for member in members})
    if len(found) > 1:
        raise GeometryError(
            f"{key}.boot is true and its members are in {len(found)} domains "
            f"({', '.join(found)}); {engine.name} boots only from a volume inside one"
        )


def geometry(
    level: str, n_members: int, layout: str | None, key: str = "volume"
) -> tuple[str, int]:
    """Return (layout, copies) of a level, or GeometryError naming what it needs.

    >>> geometry("raid10", 4, "far2")
    ('far', 2)
    >>> geometry("raid5", 4, None)
    ('left-symmetric', 1)
    """
    record = level_of(level)
    if n_members < record.least:
        raise GeometryError(
            f"{key}: {level} needs at least {record.least} members, it has {n_members}"
        )
    try:
        chosen = record.layout(layout)
    except GeometryError as error:
        raise GeometryError(f"{key}.{error}") from None
    kind, copies = record.copies_of(n_members, chosen)
    if record.copies == "layout" and not 2 <= copies <= n_members:
        raise GeometryError(f"{key}.layout is {layout!r}; 2 to {n_members} copies on its members")
    return ("" if record.copies == "all" else kind), copies


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
    record = level_of(level)
    lost = not survives(record.number, n_members, f"{layout}{copies}", degraded)
    rule = f"{level} survives {record.survives(n_members)} missing of {n_members}"
    if record.copies == "layout":
        rule = "a chunk has lost all its copies"
    if lost and degraded:
        missing = ", ".join(str(member) for member in degraded)
        raise FailedArrayError(
            f"{key}.degraded is [{missing}]: the array has failed; {rule}", sorted(degraded)
        )


def _with_spares(
    scenario: Scenario, volumes: tuple[Volume, ...], drives: tuple[Drive, ...], notes: ResolveNotes
) -> tuple[Volume, ...]:
    """Give each volume its spares from the drives that no volume uses."""
    used = {member for volume in volumes for member in volume.members}
    free = [drive.index for drive in drives if drive.index not in used]
    result: list[Volume] = []
    for volume, spec in zip(volumes, scenario.volume, strict=True):
        if spec.spares > len(free):
            raise ScenarioError(
                f"{volume.name}: spares is {spec.spares}; {len(free)} drives are in no volume"
            )
        mine, free = free[: spec.spares], free[spec.spares :]
        volume = replace(volume, spares=tuple(mine))
        starts = bool(mine) and "rebuild" not in spec.model_fields_set
        if volume.degraded and (volume.rebuild or starts):
            volume = _rebuilding(volume, drives, notes, starts=starts)
        if (
            volume.rebuild
            and "rebuilt" not in spec.model_fields_set
            and volume.rebuilding is not None
        ):
            notes.assume(
                f"{volume.name}: the rebuild is half done, which is its mean; reads of that half "
                "find their data on the new member and need no other"
            )
            if volume.raid.mirrored:
                notes.assume(
                    f"{volume.name}: the new member, having less to do, takes most reads of that "
                    "half, so a mirror may be as fast as a healthy one; rebuilt = 0 is the start, "
                    "when it reads as a degraded one does"
                )
        result.append(volume)
    return tuple(result)


def _rebuilding(
    volume: Volume, drives: tuple[Drive, ...], notes: ResolveNotes, *, starts: bool
) -> Volume:
    """Return *volume* with its first missing member restored: on a spare, if there is one.

    A hot spare takes the place at once, whether a rebuild was asked for or not (*starts*).
    """
    number = volume.degraded[0]
    members, spares = list(volume.members), volume.spares
    if spares:
        members[number], spares = spares[0], spares[1:]
        if capacity_bytes(drives[members[number]]) < volume.member_bytes:
            raise GeometryError(
                f"{volume.name}: {drives[members[number]].name} is too small a spare; members use "
                f"{units.format_size(volume.member_bytes)}"
            )
    if starts:
        name = drives[members[number]].name
        notes.assume(f"{volume.name}: the hot spare {name} takes over member {number}")
    return replace(
        volume,
        members=tuple(members),
        spares=spares,
        degraded=volume.degraded[1:],
        rebuild=True,
        rebuilding=number,
    )


def volume_bytes(volume: Volume) -> int:
    """Return the usable bytes of *volume*: parity and copies off, the smallest member each."""
    if volume.zone_bytes:
        return sum(volume.zone_bytes)
    n, level = len(volume.members), volume.raid
    if level.records:
        return pool_bytes(volume, level)
    parity = level.parity
    if parity and volume.columns:
        return n * volume.member_bytes * (volume.columns - parity) // volume.columns
    return (n - parity) * volume.member_bytes // volume.copies
