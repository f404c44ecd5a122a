"""Workload groups of a scenario: targets found, defaults taken, other tools' options translated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nvmesim import units
from nvmesim.catalog.profile import StackProfile
from nvmesim.errors import ScenarioError, nearest
from nvmesim.raid.levels import level_of
from nvmesim.scenario.fields import shared
from nvmesim.scenario.hardware import ResolveNotes, capacity_bytes
from nvmesim.scenario.loads import diskspd, fio_job
from nvmesim.scenario.loads.parsed_load import ParsedLoad
from nvmesim.scenario.resolved import (
    Adapter,
    Bursts,
    Drive,
    Limits,
    Socket,
    Target,
    Volume,
    WorkloadGroup,
)
from nvmesim.scenario.schema import Scenario, WorkloadSpec
from nvmesim.scenario.volumes import volume_bytes

DEFAULT_BLOCK: Final = ((4096, 1.0),)
_RESOLVED: Final = ("name", "targets", "buffers", "trace", "bursts", "limits")
"""Keys whose values are looked up, so that they are not those of the file."""


class Places:
    """Targets that a workload can have, by name and by number, with sizes."""

    def __init__(self, drives: tuple[Drive, ...], volumes: tuple[Volume, ...]) -> None:
        self._bytes: dict[tuple[str, int], int] = {}
        by_drive = [Target("drive", drive.index, drive.name) for drive in drives]
        by_volume = [Target("volume", volume.index, volume.name) for volume in volumes]
        self.named = {target.name: target for target in by_drive + by_volume}
        self.all = tuple(by_volume or by_drive)
        """Volumes if there are any, else drives: what a number means."""
        for drive in drives:
            self._bytes["drive", drive.index] = capacity_bytes(drive)
        for volume in volumes:
            self._bytes["volume", volume.index] = volume_bytes(volume)

    def size(self, target: Target) -> int:
        """Return the bytes of *target*: its share, if it is one of several files."""
        whole = self._bytes[target.kind, target.index]
        return whole // target.parts // 4096 * 4096

    def files(self, n_files: int) -> tuple[Target, ...]:
        """Return *n_files* targets over all places, one after another, sharing evenly."""
        n_places = len(self.all)
        targets = []
        for number in range(n_files):
            place = self.all[number % n_places]
            parts = n_files // n_places + (number % n_places < n_files % n_places)
            part = number // n_places
            targets.append(Target(place.kind, place.index, place.name, part, parts))
        return tuple(targets)


def resolve_workload(
    scenario: Scenario,
    stack: StackProfile,
    sockets: tuple[Socket, ...],
    adapters: tuple[Adapter, ...],
    drives: tuple[Drive, ...],
    volumes: tuple[Volume, ...],
    notes: ResolveNotes,
) -> tuple[WorkloadGroup, ...]:
    """Return the groups of all ``[[workload]]`` tables; a fio file may bring several."""
    places = Places(drives, volumes)
    groups: list[WorkloadGroup] = []
    for index, spec in enumerate(scenario.workload):
        key = f"workload.{index}"
        if spec.socket is not None and spec.socket >= len(sockets):
            raise ScenarioError(f"{key}.socket is {spec.socket}; there are {len(sockets)} sockets")
        _note_costs(spec, stack, notes, key)
        for group in _groups(index, key, spec, scenario.base, places, notes):
            if group.socket is not None and group.socket >= len(sockets):
                raise ScenarioError(
                    f"{key}: NUMA node {group.socket} is not a socket of this server"
                )
            _check_journal(group, volumes, key)
            if group.sqpoll and stack.sqpoll is None:
                notes.ignored.append(f"{key}: sqthread_poll: stack {stack.name} has no such thread")
                group = replace(group, sqpoll=False)
            groups.append(_placed(group, spec, sockets, adapters, key))
    _check_pool(groups, sockets)
    return tuple(groups)


def _check_journal(group: WorkloadGroup, volumes: Sequence[Volume], key: str) -> None:
    """Raise ScenarioError where no model of a file system's commits exists."""
    for target in group.targets:
        if target.kind == "volume" and group.journal(volumes[target.index]):
            volume = volumes[target.index]
            level = level_of(volume.level)
            if level.planner != "pieces" or volume.engine.runs_on == "controller":
                raise ScenarioError(
                    f"{key}.fsync: commits of a file system are modelled on drives and on raid0, "
                    f"raid1 and raid10 of the host; {volume.name} is {volume.level} by "
                    f"{volume.engine.name}: take fdatasync, which commits none"
                )


def _note_costs(spec: WorkloadSpec, stack: StackProfile, notes: ResolveNotes, key: str) -> None:
    """Say so when the stack has no cost for the file system or guest in use."""
    if spec.filesystem != "raw" and spec.filesystem not in stack.filesystems:
        notes.assume(f"stack {stack.name}: no cost known for {spec.filesystem}; 0 taken")
    if spec.sqthread_poll and stack.sqpoll is None:
        raise ScenarioError(
            f"{key}.sqthread_poll: stack {stack.name} has no thread that polls for submissions; "
            "io_uring has, as linux-io_uring"
        )
    if spec.guest != "none" and spec.guest not in stack.guests:
        notes.assume(f"stack {stack.name}: no cost known for guest {spec.guest}; 0 taken")


def _groups(
    index: int, key: str, spec: WorkloadSpec, base: Path, places: Places, notes: ResolveNotes
) -> list[WorkloadGroup]:
    if spec.diskspd is not None:
        loads = [diskspd.parse(spec.diskspd, key=f"{key}.diskspd")]
    elif spec.fio is not None:
        loads = fio_job.load(spec.fio, base, key=f"{key}.fio")
    else:
        return [_own_group(index, key, spec, base, places)]
    groups = []
    for load in loads:
        notes.ignored += [f"{key}: {text}" for text in load.ignored if text not in notes.ignored]
        groups.append(_foreign_group(index, key, spec, load, places, notes))
    return groups


def _own_group(
    index: int, key: str, spec: WorkloadSpec, base: Path, places: Places
) -> WorkloadGroup:
    """Return the group that the scenario's own keys describe."""
    sizes = spec.block_size or DEFAULT_BLOCK
    if abs(sum(share for _, share in sizes) - 1) > 1e-6:
        total = sum(share for _, share in sizes)
        raise ScenarioError(f"{key}.block_size: fractions sum to {total:g}; they must sum to 1")
    fields: dict[str, Any] = {
        "block_sizes": sizes,
        "align": sizes[0][0],
        "random_fraction": 0.0 if spec.access == "sequential" else 1.0,
        **shared(spec, WorkloadGroup, *_RESOLVED),
        "think_ps": spec.think_time or 0,
        "trace": _trace(spec, base, key),
        **_threads(spec),
        **_rings(spec),
        **_syncs(spec, key),
    }
    targets = find_targets(spec.targets, places, key)
    return _checked(spec, fields, targets, places, index, key, spec.name or f"group{index}")


def _threads(spec: WorkloadSpec) -> dict[str, Any]:
    """Return thread counts: per target as DiskSpd -t, or in all as fio numjobs."""
    in_all = spec.threads_total is not None
    return {
        "threads": (spec.threads_total if in_all else spec.threads) or 1,
        "threads_are_per_target": not in_all,
        "outstanding": spec.outstanding or 1,
        "outstanding_per": "thread" if in_all else "thread-target",
    }


def _rings(spec: WorkloadSpec) -> dict[str, Any]:
    """Return what is stated of batches and of who submits."""
    found: dict[str, Any] = {}
    if spec.iodepth_batch is not None:
        found["batch"] = spec.iodepth_batch
    if spec.sqthread_poll is not None:
        found["sqpoll"] = spec.sqthread_poll
    return found


def _syncs(spec: WorkloadSpec, key: str) -> dict[str, Any]:
    """Return how often writes are flushed, and whether each ends on the media."""
    every = spec.fsync or spec.fdatasync or 0
    through = spec.sync in ("dsync", "sync")
    if (every or through) and (spec.read is None or spec.read == 1.0):
        name = "sync" if through else "fsync" if spec.fsync else "fdatasync"
        raise ScenarioError(f"{key}.{name} is about writes; the load only reads, say read = 0.5")
    return {"sync_every": every, "write_through": through, "commits": spec.fsync is not None}


def _trace(spec: WorkloadSpec, base: Path, key: str) -> Path | None:
    if spec.trace is None:
        return None
    path = base / spec.trace
    if not path.is_file():
        raise ScenarioError(f"{key}.trace is {spec.trace!r}; there is no such file")
    return path


def _foreign_group(
    index: int, key: str, spec: WorkloadSpec, load: ParsedLoad, places: Places, notes: ResolveNotes
) -> WorkloadGroup:
    """Return the group of a DiskSpd line or a fio section; the scenario's targets come first."""
    if spec.targets is not None or not load.files:
        targets = find_targets(spec.targets, places, key)
    elif all(file in places.named for file in load.files):
        targets = tuple(places.named[file] for file in load.files)
    else:
        targets = places.files(len(load.files))
        if len(load.files) < len(places.all):
            used = ", ".join(target.name for target in targets)
            notes.assume(f"{key}: {len(load.files)} files named, taken to be on {used} only")
    fields = {**load.fields, **_rings(spec)}
    smallest = min(places.size(target) for target in targets)
    if load.span_percent is not None:
        fields["span"] = int(smallest * load.span_percent / 100) // 4096 * 4096
    if load.offset_percent is not None:
        fields["offset"] = int(smallest * load.offset_percent / 100) // 4096 * 4096
    if spec.span is not None:
        fields["span"] = spec.span
    name = spec.name or load.name
    return _checked(spec, fields, targets, places, index, key, name)


def find_targets(
    wanted: str | int | tuple[str | int, ...] | None, places: Places, key: str
) -> tuple[Target, ...]:
    """Return the targets that *wanted* names: "all", a count of files, names, or numbers."""
    if wanted is None or wanted == "all":
        return places.all
    if isinstance(wanted, int):
        if not 1 <= wanted <= 4096:
            raise ScenarioError(f"{key}.targets is {wanted}; a count of files is 1 to 4096")
        return places.files(wanted)
    chosen = (wanted,) if isinstance(wanted, str) else wanted
    if not chosen:
        raise ScenarioError(f"{key}.targets is empty; leave it out for all")
    return tuple(_one_target(one, places, key) for one in chosen)


def _one_target(wanted: str | int, places: Places, key: str) -> Target:
    if isinstance(wanted, int):
        if not 0 <= wanted < len(places.all):
            kind = places.all[0].kind
            raise ScenarioError(
                f"{key}.targets names {kind} {wanted}; there are 0 to {len(places.all) - 1}"
            )
        return places.all[wanted]
    if wanted not in places.named:
        hint = nearest(wanted, places.named)
        raise ScenarioError(
            f"{key}.targets names {wanted!r}, which is not a volume or drive; {hint}"
        )
    return places.named[wanted]


def _bursts(spec: WorkloadSpec) -> Bursts | None:
    b = spec.bursts
    if b is None:
        return None
    return Bursts(b.on, b.off, b.peak, b.quiet, b.lengths == "fixed")


def _limits(spec: WorkloadSpec) -> Limits | None:
    found = spec.limits
    if found is None:
        return None
    return Limits(found.iops, found.bandwidth, found.burst, found.peak_iops, found.peak_bandwidth)


def _checked(
    spec: WorkloadSpec,
    fields: dict[str, Any],
    targets: tuple[Target, ...],
    places: Places,
    index: int,
    key: str,
    name: str,
) -> WorkloadGroup:
    """Return the group if its requests fit its targets."""
    own: dict[str, Any] = {
        **fields,
        "name": name,
        "targets": targets,
        "socket": fields.get("socket") if spec.socket is None else spec.socket,
        "filesystem": spec.filesystem,
        "guest": spec.guest,
        "bursts": _bursts(spec),
        "limits": _limits(spec),
        "slo_ps": spec.slo,
    }
    group = WorkloadGroup(**own)
    if group.align < 512 or group.align % 512:
        text = units.format_size(group.align)
        raise ScenarioError(f"{key}.align is {text}; a multiple of 512 B is needed")
    largest = max(size for size, _ in group.block_sizes + (group.write_block_sizes or ()))
    for target in targets:
        size = places.size(target)
        span = size - group.offset if group.span is None else group.span
        if group.offset + span > size:
            message = units.format_size(group.offset + span)
            raise ScenarioError(
                f"{key}: offset + span is {message}; {target.name} offers {units.format_size(size)}"
            )
        if span < largest:
            raise ScenarioError(
                f"{key}: a request of {units.format_size(largest)} does not fit in the "
                f"{units.format_size(max(span, 0))} of {target.name}"
            )
    return group


def _placed(
    group: WorkloadGroup,
    spec: WorkloadSpec,
    sockets: tuple[Socket, ...],
    adapters: tuple[Adapter, ...],
    key: str,
) -> WorkloadGroup:
    """Return *group* with the places that *spec* states; ScenarioError for those not there."""
    if spec.floating is not None and group.socket is not None:
        raise ScenarioError(
            f"{key}.floating is about threads of every socket; these are pinned to socket "
            f"{group.socket}: leave out one of the two"
        )
    if spec.interrupts is not None:
        _there(spec.interrupts, sockets, f"{key}.interrupts")
    buffers, peer = _buffers(spec.buffers, sockets, adapters, key)
    return replace(
        group, floating=spec.floating or "spread", buffers=buffers, peer=peer,
        interrupts=spec.interrupts,
    )  # fmt: skip


def _there(socket: int, sockets: tuple[Socket, ...], key: str) -> None:
    if socket >= len(sockets):
        there = "socket 0 only" if len(sockets) == 1 else f"sockets 0 to {len(sockets) - 1}"
        raise ScenarioError(f"{key} is {socket}; the server has {there}")


def _buffers(
    stated: int | str | None,
    sockets: tuple[Socket, ...],
    adapters: tuple[Adapter, ...],
    key: str,
) -> tuple[int | None, int | None]:
    """(socket, adapter) of the data: at most one of the two."""
    if stated is None:
        return None, None
    if isinstance(stated, str):
        names = [adapter.name for adapter in adapters]
        if stated not in names:
            hint = nearest(stated, names) if names else "the scenario has no adapters"
            raise ScenarioError(
                f"{key}.buffers is {stated!r}, not an adapter; {hint}, or a socket's number"
            )
        return None, names.index(stated)
    _there(stated, sockets, f"{key}.buffers")
    if not sockets[stated].has_memory:
        raise ScenarioError(f"{key}.buffers is {stated}, a socket without memory")
    return stated, None


def _check_pool(groups: Sequence[WorkloadGroup], sockets: tuple[Socket, ...]) -> None:
    """Raise ScenarioError if some threads float in one pool where the model has none.

    A pool takes all logical CPUs of equal sockets, so nothing else may be pinned beside it.
    """
    pooled = [g.name for g in groups if g.floating == "pool"]
    others = [g.name for g in groups if g.floating != "pool"]
    if not pooled or len(sockets) == 1:
        return
    if others:
        raise ScenarioError(
            f"workload: {pooled[0]} floats in one pool, {others[0]} does not; "
            "floating = 'pool' is for all groups of a scenario or for none"
        )
    first = sockets[0]
    for socket in sockets[1:]:
        same = socket.cpu.threads_per_core == first.cpu.threads_per_core
        if socket.ghz != first.ghz or not same:
            raise ScenarioError(
                f"workload: {pooled[0]} floats in one pool; sockets 0 and {socket.index} have CPUs "
                "of different speed, so say floating = 'spread', or a socket for each group"
            )
