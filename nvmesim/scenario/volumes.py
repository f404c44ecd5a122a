"""RAID volumes of a scenario: members, geometry and engine, checked."""

from dataclasses import dataclass, replace
from typing import Final, cast

from nvmesim import units
from nvmesim.catalog import load as catalog
from nvmesim.catalog.load import known_kernel, with_kernel
from nvmesim.catalog.profile import RaidEngineProfile
from nvmesim.errors import CatalogError, FailedArrayError, GeometryError, ScenarioError
from nvmesim.raid.geometry import survives
from nvmesim.raid.levels import level_of
from nvmesim.scenario.fields import shared
from nvmesim.scenario.hardware import ResolveNotes, capacity_bytes, profile
from nvmesim.scenario.pools import check_pool, pool_bytes, record_bytes
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Volume
from nvmesim.scenario.schema import Scenario

DEFAULT_CHUNK: Final = 512 * 1024  # Source: mdadm's default for arrays with metadata


def resolve_volumes(
    scenario: Scenario, drives: tuple[Drive, ...], notes: ResolveNotes
) -> tuple[Volume, ...]:
    """Return the volumes; GeometryError for one that cannot be built or has failed."""
    for index, spec in enumerate(scenario.volume):
        if spec.rebuild and not spec.degraded and not scenario.workload:
            raise GeometryError(
                f"{_key(scenario, index)}.rebuild is true and no member is missing: there is "
                "nothing to restore; name it with degraded = [0], or say check = true to read all "
                "members"
            )
    names = {drive.name for drive in drives}
    taken: dict[int, str] = {}
    volumes: list[Volume] = []
    for found in (
        _Resolving(scenario, index, part, drives, notes)
        for index, spec in enumerate(scenario.volume) for part in range(spec.arrays)
    ):  # fmt: skip
        if found.name in names:
            raise ScenarioError(f"{found.key}.name is {found.name!r}, which a drive or volume has")
        names.add(found.name)
        for member in found.members:
            if member in taken:
                raise ScenarioError(
                    f"{found.key}.members: {drives[member].name} is in {taken[member]} already"
                )
            taken[member] = found.name
        volumes.append(replace(found.volume(), index=len(volumes)))
    return _with_spares(scenario, tuple(volumes), drives, notes)


def _key(scenario: Scenario, index: int) -> str:
    return f"volume.{index}" if len(scenario.volume) > 1 else "volume"


@dataclass
class _Resolving:
    """One volume of a scenario on its way."""

    scenario: Scenario
    index: int
    part: int
    """Its number among the arrays of its table."""
    drives: tuple[Drive, ...]
    notes: ResolveNotes

    def __post_init__(self) -> None:
        self.spec = self.scenario.volume[self.index]
        self.level = self.spec.level
        self.key = _key(self.scenario, self.index)
        self.name = table = self.spec.name or f"volume{self.index}"
        self.members = self._members()
        self.card = self.spec.controller or ""
        if (arrays := self.spec.arrays) > 1:
            self.card = self.card or table  # arrays of one table are of one card
            each, left = divmod(len(self.members), arrays)
            if left:
                raise GeometryError(
                    f"{self.key}.arrays is {arrays}; {len(self.members)} members are not so many "
                    "equal parts"
                )
            self.name = part_name(self.name, self.part)
            self.members = self.members[self.part * each : (self.part + 1) * each]

    def _members(self) -> tuple[int, ...]:
        """The drives of the volume: those named, or all but its spares."""
        members, n = self.spec.members, len(self.drives)
        if members is None:
            if len(self.scenario.volume) > 1:
                raise ScenarioError(
                    f"{self.key}.members is missing; with several volumes each names its own"
                )
            return tuple(range(n - self.spec.spares))
        for member in members:
            if not 0 <= member < n:
                raise ScenarioError(
                    f"{self.key}.members names drive {member}; there are 0 to {n - 1}"
                )
            if members.count(member) > 1:
                raise ScenarioError(f"{self.key}.members names drive {member} twice")
        return members

    def volume(self) -> Volume:
        """The volume; GeometryError if it cannot be built or has failed."""
        spec, level, key, n = self.spec, self.level, self.key, len(self.members)
        check_pool(spec, level, key, n)
        engine, whole = self._engine()
        layout, copies = geometry(spec.raid, n, spec.layout, key)
        self._check_degraded(f"{layout}{copies}")
        self._check_members(engine)
        chunk = record_bytes(spec, key, self.notes) if level.records else spec.chunk
        if chunk is None:
            chunk = default_chunk(engine, n)
            if level.has_chunks:
                text = units.format_size(chunk)
                self.notes.assume(f"{key}.chunk: {text}, the default of {engine.name}")
        self._check_choices(engine, copies)
        capacities = [capacity_bytes(self.drives[member]) for member in self.members]
        self._check_chunk(chunk, min(capacities))
        sizes = [size // chunk * chunk for size in capacities]
        zoned = not level.redundant and len(set(sizes)) > 1 and engine.merge != "none"
        self._note_mixture(sizes, zoned)
        slowest, fastest = self._sync_speeds(engine)
        stated = shared(spec, Volume)
        if level.records:
            # ZFS takes the copy with the least outstanding (vdev_mirror.c,
            # vdev_mirror_child_select)
            stated["read_policy"] = "shortest-queue"
        return Volume(
            **{
                **stated,
                "index": 0,  # its place among all arrays
                "table": self.index,
                "name": self.name,
                "controller": self.card if engine.runs_on == "controller" else "",
                "level": spec.raid,
                "members": self.members,
                "layout": layout,
                "copies": copies,
                "chunk": chunk,
                "engine": engine,
                "profile": whole if whole.kernels else None,
                "degraded": tuple(sorted(spec.degraded)),
                "rebuild": spec.rebuild or spec.check,
                "write_mostly": tuple(sorted(spec.write_mostly)),
                "workers": self._workers(engine),
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
        )

    def _engine(self) -> tuple[RaidEngineProfile, RaidEngineProfile]:
        spec, key = self.spec, self.key
        is_stated = "engine" in spec.model_fields_set
        reference = spec.engine if is_stated or not self.level.records else "openzfs"
        found = profile("raid-engine", reference, self.scenario.base, f"{key}.engine")
        engine = whole = cast(RaidEngineProfile, found)
        if spec.raid not in engine.levels:
            raise GeometryError(
                f"{key}.raid is {spec.raid!r}; {engine.name} has {', '.join(engine.levels)}"
            )
        if not is_stated:
            self.notes.assume(f"{key}.engine: {engine.name} taken")
        if spec.kernel is not None:
            engine = self._in_kernel(engine, spec.kernel)
        try:
            engine = catalog.with_level(engine, spec.raid)
        except CatalogError as error:
            raise ScenarioError(f"{key}.engine: by_level: {error}") from None
        used = ["bitmap_file"] if spec.bitmap.kind == "external" else []
        self.notes.profile(engine, "per_child", *used)
        return engine, whole

    def _in_kernel(self, engine: RaidEngineProfile, kernel: str) -> RaidEngineProfile:
        key = f"{self.key}.kernel"
        if not engine.kernels:
            raise GeometryError(
                f"{key} is {kernel!r}; {engine.name} is the same for all kernels; leave it out"
            )
        try:
            taken = known_kernel(kernel, engine.kernels)
            changed = with_kernel(engine, kernel)
        except CatalogError as error:
            raise ScenarioError(f"{key} {error}") from None
        if taken != kernel:
            self.notes.assume(
                f"{key}: {kernel} costs what {taken} does, the known one before it, or the oldest"
            )
        return changed

    def _workers(self, engine: RaidEngineProfile) -> int:
        """Threads that handle rows beside the engine's own: group_thread_cnt on each NUMA node.

        Source: Linux drivers/md/raid5.c, alloc_thread_groups: one group of workers a node.
        """
        count = self.spec.group_thread_cnt
        if count is None:
            return max(0, round(engine.workers.value) - 1) if engine.rows is not None else 0
        if count and (not self.level.stripe_cache or engine.rows is None):
            raise GeometryError(
                f"{self.key}.group_thread_cnt is {count}; only raid5 and raid6 of Linux md have "
                f"workers, {self.spec.raid} of {engine.name} has none: leave it out"
            )
        return count * len(self.scenario.server.sockets)

    def _sync_speeds(self, engine: RaidEngineProfile) -> tuple[int, int]:
        """Least and most that a rebuild restores per second: md's keys, or a controller's pace."""
        spec, given = self.spec, self.spec.model_fields_set
        least, most = spec.sync_speed_min, spec.sync_speed_max
        if engine.rebuild is not None:
            own, kept = round(engine.rebuild.value), engine.rebuild.low or engine.rebuild.value
            most = min(most, own) if "sync_speed_max" in given else own
            least = least if "sync_speed_min" in given else round(kept)
        return min(least, most), most

    def _check_members(self, engine: RaidEngineProfile) -> None:
        """Raise GeometryError if the engine builds the level with other numbers of members only."""
        raid, n = self.spec.raid, len(self.members)
        if engine.members is None or engine.members[0] <= n <= engine.members[1]:
            return
        least, most = engine.members
        takes = f"{least}" if least == most else f"{least} to {most}"
        hint = ", take raid10" if raid == "raid1" and "raid10" in engine.levels else ""
        raise GeometryError(
            f"{self.key}: {raid} of {engine.name} takes {takes} members, it has {n}{hint}"
        )

    def _check_degraded(self, layout: str) -> None:
        """Raise GeometryError if a missing member is none, or if data is lost without it."""
        level, key, n, missing = self.level, self.key, len(self.members), self.spec.degraded
        for member in missing:
            if not 0 <= member < n:
                raise GeometryError(f"{key}.degraded names member {member}; 0 to {n - 1}")
            if missing.count(member) > 1:
                raise GeometryError(f"{key}.degraded names member {member} twice")
        if missing and not survives(level.number, n, layout, missing):
            rule = f"{level.name} survives {level.survives(n)} missing of {n}"
            if level.copies == "layout":
                rule = "a chunk has lost all its copies"
            gone = ", ".join(str(member) for member in missing)
            raise FailedArrayError(
                f"{key}.degraded is [{gone}]: the array has failed; {rule}", sorted(missing)
            )

    def _check_choices(self, engine: RaidEngineProfile, copies: int) -> None:
        """Refuse what the level or the engine does not have."""
        spec, level, n = self.spec, self.level, len(self.members)
        strange = next((member for member in spec.write_mostly if not 0 <= member < n), None)
        restores = next((name for name in ("rebuild", "check") if getattr(spec, name)), "")
        for is_wrong, text in (
            (spec.write_mostly and not level.write_mostly,
             f"write_mostly is for raid1; {spec.raid} has no such members"),
            (strange is not None, f"write_mostly names member {strange}; 0 to {n - 1}"),
            (restores and not level.redundant,
             f"{restores} is true; raid0 has no redundancy to rebuild from"),
            (spec.check and (spec.rebuild or spec.degraded),
             "check reads an array that has all its members; one that is degraded is rebuilt, "
             "leave check out"),
            (spec.bitmap.kind != "none" and engine.merge == "none",
             f"bitmap is {spec.bitmap.kind!r}; {engine.name} is not Linux md, leave it out"),
            (spec.controller is not None and engine.runs_on != "controller",
             f"controller is {spec.controller!r}; {engine.name} runs on the host, leave it out"),
        ):  # fmt: skip
            if is_wrong:
                raise GeometryError(f"{self.key}.{text}")
        if columns := spec.columns or engine.columns:
            self._check_columns(columns, copies)

    def _check_columns(self, columns: int, copies: int) -> None:
        level, n = self.level, len(self.members)
        width = columns * (copies if level.copies == "layout" else 1)
        why = ""
        if width > n:
            of = f" of {copies} copies" if width > columns else ""
            why = f"{of}; the volume has {n} members"
        elif width < level.least:
            why = f"; {level.name} needs at least {level.least}"
        elif not level.has_chunks:
            why = "; raid1 has one column, take raid10"
        if why:
            raise GeometryError(f"{self.key}.columns is {columns}{why}")

    def _check_chunk(self, chunk: int, smallest: int) -> None:
        """Raise GeometryError for a chunk that md would not take, or that no member holds."""
        level, text = self.level, f"{self.key}.chunk is {units.format_size(chunk)}"
        if level.has_chunks and not level.any_chunk and chunk & (chunk - 1):
            raise GeometryError(f"{text}; {level.name} takes a power of two, as 64 KiB")
        if level.has_chunks and smallest < chunk:
            raise GeometryError(
                f"{text}; the smallest member holds {units.format_size(smallest)}, at least one "
                "chunk is needed"
            )

    def _note_mixture(self, sizes: list[int], zoned: bool) -> None:
        """Say what members of different sizes and kinds mean for the volume."""
        key = self.key
        if zoned:
            self.notes.assume(
                f"{key}: members differ in size; beyond the shorter ones only the longer work"
            )
        elif len(set(sizes)) > 1:
            unused = sum(sizes) - len(sizes) * min(sizes)
            self.notes.assume(
                f"{key}: members differ in size; {units.format_size(min(sizes))} of each used, "
                f"{unused / sum(sizes):.0%} of the capacity lies idle"
            )
        kinds = sorted({self.drives[member].profile.name for member in self.members})
        if len(kinds) > 1:
            self.notes.assume(
                f"{key}: members differ ({', '.join(kinds)}); what goes to several of them ends "
                "with the slowest"
            )


def part_name(name: str, part: int) -> str:
    """Return the name of one of the arrays of a table.

    >>> part_name("data", 0)
    'data 1'
    """
    return f"{name} {part + 1}"


def default_chunk(engine: RaidEngineProfile, n_members: int) -> int:
    """Return the chunk of a volume that names none: as its engine's own tools choose it.

    >>> from nvmesim.catalog.load import get, with_level
    >>> vroc = with_level(get("raid-engine", "intel-vroc"), "raid5")
    >>> [default_chunk(vroc, n) // 1024 for n in (3, 4, 5, 8)]
    [64, 32, 128, 16]
    """
    strip = engine.strips.get(str(n_members), engine.interleave)
    return DEFAULT_CHUNK if strip is None else int(strip.value)


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


def _with_spares(
    scenario: Scenario, volumes: tuple[Volume, ...], drives: tuple[Drive, ...], notes: ResolveNotes
) -> tuple[Volume, ...]:
    """Give each volume its spares from the drives that no volume uses."""
    used = {member for volume in volumes for member in volume.members}
    free = [drive.index for drive in drives if drive.index not in used]
    result: list[Volume] = []
    for volume in volumes:
        spec = scenario.volume[volume.table]
        is_first = all(v.table != volume.table for v in result)
        spares = spec.spares if is_first else 0
        if spares > len(free):
            raise ScenarioError(
                f"{volume.name}: spares is {spares}; {len(free)} drives are in no volume"
            )
        mine, free = free[:spares], free[spares:]
        volume = replace(volume, spares=tuple(mine))
        given = spec.model_fields_set
        starts = bool(mine) and "rebuild" not in given
        if volume.degraded and (volume.rebuild or starts):
            volume = _rebuilding(volume, drives, notes, starts=starts)
        if volume.rebuild and "rebuilt" not in given and volume.rebuilding is not None:
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
        volume, members=tuple(members), spares=spares, degraded=volume.degraded[1:], rebuild=True,
        rebuilding=number,
    )  # fmt: skip


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


def loose_drives(scenario: ResolvedScenario) -> list[Drive]:
    """Drives of no volume."""
    inside = {m for v in scenario.volumes for m in (*v.members, *v.spares)}
    return [d for d in scenario.drives if d.index not in inside]


def usable_bytes(scenario: ResolvedScenario) -> int:
    """Bytes that volumes and loose drives hold."""
    loose = sum(capacity_bytes(d) for d in loose_drives(scenario))
    return sum(map(volume_bytes, scenario.volumes)) + loose
