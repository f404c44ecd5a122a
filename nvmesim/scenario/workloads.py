"""Workload groups of a scenario: targets found, defaults taken, other tools' options translated."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from nvmesim import units
from nvmesim.catalog.profile import StackProfile
from nvmesim.errors import ScenarioError, nearest
from nvmesim.scenario.fields import shared
from nvmesim.scenario.hardware import ResolveNotes, capacity_bytes, check_socket
from nvmesim.scenario.loads import diskspd, fio_job
from nvmesim.scenario.loads.fio_options import ParsedLoad
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Socket, Target, Volume, WorkloadGroup
from nvmesim.scenario.schema import Scenario
from nvmesim.scenario.volumes import volume_bytes
from nvmesim.scenario.workload_keys import WorkloadSpec
from nvmesim.warning import Warning

DEFAULT_BLOCK: Final = ((4096, 1.0),)
_LOAD: Final = {
    "block_sizes": "block size", "access": "access", "read": "read",
    "threads_are_per_target": "threads of each target", "threads": "threads",
    "outstanding": "outstanding", "rate": "rate", "arrivals": "arrivals", "trace": "trace",
    "speed": "speed", "rate_limit": "rate limit", "think_ps": "think time",
    "sync_every": "writes a flush", "write_through": "synchronous writes",
}  # fmt: skip
"""Fields of a group that are its load, and not where it runs -> words for them."""


def loads_differ(designs: Sequence[ResolvedScenario]) -> list[Warning]:
    """Say what differs between the loads of *designs*, which may not be meant; else nothing."""
    numbers = [len(s.workload) for s in designs]
    found = [f"{' and '.join(map(str, numbers))} workloads"] if len(set(numbers)) > 1 else []
    for groups in () if found else zip(*(s.workload for s in designs), strict=True):
        for field, words in _LOAD.items():
            values = [_said(getattr(group, field)) for group in groups]
            if len(set(values)) > 1:
                found.append(f"{words} {' / '.join(values)}")
    said = f"the designs are under different loads: {'; '.join(dict.fromkeys(found))}"
    return [Warning("loads-differ", said)] if found else []


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(units.format_size(size) for size, _ in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


class Places:
    """Targets that a workload can have, by name and by number, with sizes."""

    def __init__(
        self, drives: tuple[Drive, ...], volumes: tuple[Volume, ...], scenario: Scenario
    ) -> None:
        by_drive = {Target("drive", d.index, d.name): capacity_bytes(d) for d in drives}
        by_volume = {Target("volume", v.index, v.name): volume_bytes(v) for v in volumes}
        sizes = by_drive | by_volume
        self._bytes = {(target.kind, target.index): n for target, n in sizes.items()}
        tables = [(spec.name or f"volume{i}", i) for i, spec in enumerate(scenario.volume)]
        own = {name: tuple(t for t, v in zip(by_volume, volumes, strict=True) if v.table == i)
               for name, i in tables}  # fmt: skip
        self.named = own | {target.name: (target,) for target in sizes}
        self.all = tuple(by_volume or by_drive)
        """Volumes if there are any, else drives: what a number means."""

    def size(self, target: Target) -> int:
        """Return the bytes of *target*: its share, if it is one of several files."""
        whole = self._bytes[target.kind, target.index]
        return whole // target.parts // 4096 * 4096

    def files(self, n_files: int) -> tuple[Target, ...]:
        """Return *n_files* targets over all places, one after another, sharing evenly."""
        n_places = len(self.all)
        targets = []
        for number in range(n_files):
            part, at = divmod(number, n_places)
            parts = n_files // n_places + (at < n_files % n_places)
            targets.append(replace(self.all[at], part=part, parts=parts))
        return tuple(targets)

    def find(
        self, wanted: str | int | tuple[str | int, ...] | None, key: str
    ) -> tuple[Target, ...]:
        """Return the targets that *wanted* names: "all", a count of files, names, or numbers."""
        if wanted is None or wanted == "all":
            return self.all
        if isinstance(wanted, int):
            if not 1 <= wanted <= 4096:
                raise ScenarioError(f"{key}.targets is {wanted}; a count of files is 1 to 4096")
            return self.files(wanted)
        chosen = (wanted,) if isinstance(wanted, str) else wanted
        if not chosen:
            raise ScenarioError(f"{key}.targets is empty; leave it out for all")
        return tuple(t for one in chosen for t in self._one(one, f"{key}.targets names"))

    def _one(self, wanted: str | int, problem: str) -> tuple[Target, ...]:
        if isinstance(wanted, int):
            if not 0 <= wanted < len(self.all):
                raise ScenarioError(
                    f"{problem} {self.all[0].kind} {wanted}; there are 0 to {len(self.all) - 1}"
                )
            return (self.all[wanted],)
        if wanted not in self.named:
            hint = nearest(wanted, self.named)
            raise ScenarioError(f"{problem} {wanted!r}, which is not a volume or drive; {hint}")
        return self.named[wanted]


def resolve_workload(
    scenario: Scenario, stack: StackProfile, sockets: tuple[Socket, ...],
    drives: tuple[Drive, ...], volumes: tuple[Volume, ...], notes: ResolveNotes,
) -> tuple[WorkloadGroup, ...]:  # fmt: skip
    """Return the groups of all ``[[workload]]`` tables; a fio file may bring several."""
    places = Places(drives, volumes, scenario)
    groups: list[WorkloadGroup] = []
    for index, spec in enumerate(scenario.workload):
        key = f"workload.{index}"
        if isinstance(spec.socket, int) and spec.socket >= len(sockets):
            raise ScenarioError(f"{key}.socket is {spec.socket}; there are {len(sockets)} sockets")
        if spec.filesystem != "raw" and spec.filesystem not in stack.filesystems:
            notes.assume(f"stack {stack.name}: no cost known for {spec.filesystem}; 0 taken")
        if spec.sqthread_poll and stack.sqpoll is None:
            raise ScenarioError(
                f"{key}.sqthread_poll: stack {stack.name} has no thread that polls for "
                "submissions; io_uring has, as linux-io_uring"
            )
        if spec.guest != "none" and spec.guest not in stack.guests:
            notes.assume(f"stack {stack.name}: no cost known for guest {spec.guest}; 0 taken")
        for load in _loads(f"group{index}", spec, scenario, key, notes):
            group = _group(spec, load, places, key, notes)
            if group.socket is not None and group.socket >= len(sockets):
                raise ScenarioError(
                    f"{key}: NUMA node {group.socket} is not a socket of this server"
                )
            _check_journal(group, volumes, key)
            if group.sqpoll and stack.sqpoll is None:
                notes.ignored.append(f"{key}: sqthread_poll: stack {stack.name} has no such thread")
                group = replace(group, sqpoll=False)
            placed = _placed(group, spec, sockets, key)
            parts = by_socket(placed, drives, volumes) if spec.socket == "near" else [placed]
            if not parts:
                raise ScenarioError(
                    f"{key}.socket is 'near'; its targets lie on several sockets, and it needs "
                    "threads of their own: give threads, and no volume over two sockets"
                )
            groups += parts
    return tuple(groups)


def by_socket(
    group: WorkloadGroup, drives: Sequence[Drive], volumes: Sequence[Volume]
) -> list[WorkloadGroup]:
    """Return *group* as one for each socket that its targets lie on; none where it cannot be."""
    homes: dict[int, list[Target]] = {}
    for target in group.targets:
        members = [target.index] if target.kind == "drive" else volumes[target.index].members
        sockets = {drives[d].socket for d in members}
        if len(sockets) > 1:
            return []
        homes.setdefault(sockets.pop(), []).append(target)
    if len(homes) == 1:
        return [replace(group, socket=min(homes))]
    if group.is_open or not group.threads_are_per_target:
        return []
    return [
        replace(group, name=f"{group.name}, socket {home}", targets=tuple(own), socket=home)
        for home, own in sorted(homes.items())
    ]


def _check_journal(group: WorkloadGroup, volumes: Sequence[Volume], key: str) -> None:
    """Raise ScenarioError where no model of a file system's commits exists."""
    for volume in (volumes[t.index] for t in group.targets if t.kind == "volume"):
        modelled = volume.raid.planner == "pieces" and volume.engine.runs_on != "controller"
        if group.journal(volume) and not modelled:
            raise ScenarioError(
                f"{key}.fsync: commits of a file system are modelled on drives and on raid0, "
                f"raid1 and raid10 of the host; {volume.name} is {volume.level} by "
                f"{volume.engine.name}: take fdatasync, which commits none"
            )


def _loads(
    name: str, spec: WorkloadSpec, scenario: Scenario, key: str, notes: ResolveNotes
) -> list[ParsedLoad]:
    """The loads of one table: its own keys, or those that another tool's options describe."""
    if spec.diskspd is not None:
        loads = [diskspd.parse(spec.diskspd, key=f"{key}.diskspd")]
    elif spec.fio is not None:
        loads = fio_job.load(spec.fio, scenario.base, key=f"{key}.fio")
    else:
        return [ParsedLoad(name, _own_fields(spec, scenario, key))]
    for load in loads:
        notes.ignored += [f"{key}: {text}" for text in load.ignored if text not in notes.ignored]
    return loads


def _own_fields(spec: WorkloadSpec, scenario: Scenario, key: str) -> dict[str, Any]:
    """Values of the group that the scenario's own keys describe."""
    sizes = spec.block_size or DEFAULT_BLOCK
    total = sum(share for _, share in sizes)
    if abs(total - 1) > 1e-6:
        raise ScenarioError(f"{key}.block_size: fractions sum to {total:g}; they must sum to 1")
    every = spec.fsync or spec.fdatasync or 0
    through = spec.sync in ("dsync", "sync")
    if (every or through) and (spec.read is None or spec.read == 1.0):
        name = "sync" if through else "fsync" if spec.fsync else "fdatasync"
        raise ScenarioError(f"{key}.{name} is about writes; the load only reads, say read = 0.5")
    trace = None if spec.trace is None else scenario.base / spec.trace
    if trace is not None and not trace.is_file():
        raise ScenarioError(f"{key}.trace is {spec.trace!r}; there is no such file")
    in_all = spec.threads_total is not None
    return {
        "block_sizes": sizes,
        "align": sizes[0][0],
        **shared(spec, WorkloadGroup, "name", "targets", "buffers", "socket"),
        "think_ps": spec.think_time or 0,
        "trace": trace,
        # per target as DiskSpd -t, or in all as fio numjobs
        "threads": (spec.threads_total if in_all else spec.threads) or 1,
        "threads_are_per_target": not in_all,
        "outstanding": spec.outstanding or 1,
        "outstanding_per": "thread" if in_all else "thread-target",
        "sync_every": every,
        "write_through": through,
        "commits": spec.fsync is not None,
    }


def _targets(
    spec: WorkloadSpec, load: ParsedLoad, places: Places, key: str, notes: ResolveNotes
) -> tuple[Target, ...]:
    """Targets of a load; the scenario's own come first."""
    if spec.targets is not None or not load.files:
        return places.find(spec.targets, key)
    if all(file in places.named for file in load.files):
        return tuple(t for file in load.files for t in places.named[file])
    targets = places.files(len(load.files))
    if len(load.files) < len(places.all):
        used = ", ".join(target.name for target in targets)
        notes.assume(f"{key}: {len(load.files)} files named, taken to be on {used} only")
    return targets


def _group(
    spec: WorkloadSpec, load: ParsedLoad, places: Places, key: str, notes: ResolveNotes
) -> WorkloadGroup:
    """Return the group if its requests fit its targets."""
    targets = _targets(spec, load, places, key, notes)
    fields = {
        **load.fields,
        "name": spec.name or load.name,
        "targets": targets,
        "filesystem": spec.filesystem,
        "guest": spec.guest,
        "bursts": spec.bursts,
        "limits": spec.limits,
        "slo_ps": spec.slo,
    }
    smallest = min(places.size(target) for target in targets)
    for name, percent in (("span", load.span_percent), ("offset", load.offset_percent)):
        if percent is not None:
            fields[name] = int(smallest * percent / 100) // 4096 * 4096
    stated = {
        "span": spec.span, "socket": None if spec.socket == "near" else spec.socket,
        "batch": spec.iodepth_batch, "sqpoll": spec.sqthread_poll,
    }  # fmt: skip
    fields |= {name: value for name, value in stated.items() if value is not None}
    group = WorkloadGroup(**fields)
    if group.align < 512 or group.align % 512:
        text = units.format_size(group.align)
        raise ScenarioError(f"{key}.align is {text}; a multiple of 512 B is needed")
    largest = max(size for size, _ in group.block_sizes + (group.write_block_sizes or ()))
    for target in targets:
        size = places.size(target)
        span = size - group.offset if group.span is None else group.span
        if group.offset + span > size:
            end, offered = units.format_size(group.offset + span), units.format_size(size)
            raise ScenarioError(f"{key}: offset + span is {end}; {target.name} offers {offered}")
        if span < largest:
            raise ScenarioError(
                f"{key}: a request of {units.format_size(largest)} does not fit in the "
                f"{units.format_size(max(span, 0))} of {target.name}"
            )
    return group


def _placed(
    group: WorkloadGroup, spec: WorkloadSpec, sockets: tuple[Socket, ...], key: str
) -> WorkloadGroup:
    """Return *group* with the places that *spec* states; ScenarioError for those not there."""
    if spec.interrupts is not None:
        check_socket(spec.interrupts, sockets, f"{key}.interrupts")
    if spec.buffers is not None:
        check_socket(spec.buffers, sockets, f"{key}.buffers")
        if not sockets[spec.buffers].has_memory:
            raise ScenarioError(f"{key}.buffers is {spec.buffers}, a socket without memory")
    return replace(group, buffers=spec.buffers, interrupts=spec.interrupts)
