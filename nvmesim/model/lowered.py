"""Result of lowering: the network, what its parts stand for, and caveats of the prediction."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from nvmesim.catalog.profile import DriveProfile
from nvmesim.model.host import polling_threads
from nvmesim.network.network import Network, StationInfo
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.warning import Warning

IN_WORDS: Final = {
    "commands": "commands a second", "dies": "its number of dies",
    "read_bandwidth": "bytes a second of reads", "write_bandwidth": "bytes a second of writes",
    "read.base": "the fixed time of a read", "read.die": "a die's time of a read",
    "read.die_cv": "the spread of a die's time", "read.channel": "a channel's time of a read",
    "write.base": "the time of a cached write", "write.program": "a die's time of a write",
    "write.commands": "written commands a second",
    "write.suspend": "how long a read waits for a program",
    "rounds.base": "the fixed time of a batch", "rounds.read": "what a read adds to a batch",
}  # fmt: skip
"""Numbers of a drive that are often not known, in words."""


def in_words(keys: Iterable[str]) -> str:
    """Return the numbers of a drive at *keys* in words, each with its key.

    >>> in_words(["dies", "read.base"])
    'its number of dies (dies), the fixed time of a read (read.base)'
    """
    return ", ".join(f"{IN_WORDS[key]} ({key})" if key in IN_WORDS else key for key in keys)


@dataclass(frozen=True)
class FlowInfo:
    """One kind of request of one group at one target."""

    group: int  # -1: background work
    target: int  # position in the group's targets
    write: bool
    n_bytes: int
    deferred: bool = False  # background work whose commands count as those of the measured requests


@dataclass(frozen=True)
class RebuildInfo:
    """A rebuild or check that runs beside the load."""

    volume: str
    drive: str | None  # being restored; None: a check of all
    station: int  # its visits are units of the rebuild
    unit_bytes: int
    member_bytes: int


@dataclass(frozen=True)
class ChildInfo:
    """One alternative of a child: a command to one drive."""

    drive: int  # index of the drive, -1 if the alternative is not a drive command
    write: bool
    n_bytes: int
    n_bios: int


@dataclass(frozen=True)
class Lowered:
    """A scenario as a network, with the way back to its names."""

    scenario: ResolvedScenario
    network: Network
    stations: tuple[StationInfo, ...]
    flows: tuple[FlowInfo, ...]  # [n_flows]
    children: tuple[ChildInfo, ...]  # [n_alts], as `Network.alt_program`
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    rebuilds: tuple[RebuildInfo, ...] = ()


TURN_MS: Final = 3.0
"""Turn of a thread that wants the CPU all the time, with eight CPUs or more. Source: Linux
kernel/sched/fair.c, sysctl_sched_base_slice: 0.75 ms x (1 + log2(8)), as of 6.6."""


def caveats(scenario: ResolvedScenario) -> list[Warning]:
    """Warnings of the drives of *scenario* under its load, one a profile, and of its volumes.

    No interval holds what they are about.
    """
    profiles = {d.profile.name: d.profile for d in scenario.drives}
    depth = sum(g.in_flight for g in scenario.workload) / len(scenario.drives)
    reads = {g.read for g in scenario.workload} or {0.5}  # a rebuild alone does both
    of_drives = [one for p in profiles.values() for one in _of_drive(p, depth, reads)]
    return [*of_drives, *_not_polled(scenario), *_crowded(scenario)]


def _crowded(scenario: ResolvedScenario) -> Iterator[Warning]:
    """More threads that poll than logical CPUs: one that waits for nothing still takes its turn."""
    pollers = polling_threads(scenario)
    if scenario.stack.polled or pollers:
        pollers += sum(group.n_threads for group in scenario.workload)
    cpus = sum(socket.logical_cpus for socket in scenario.sockets)
    if pollers > cpus:
        away = (pollers / cpus - 1) * TURN_MS
        text = (
            f"{pollers} threads want a logical CPU all the time, those that poll among them, and "
            f"there are {cpus}: they take turns of about {TURN_MS:g} ms and wait {away:.2g} ms for "
            f"the next, which is in no number here; IOPS are at most those of {cpus} threads that "
            "poll (ask for so many), and latencies are far longer"
        )
        yield Warning("crowded-pollers", text)


def _not_polled(scenario: ResolvedScenario) -> Iterator[Warning]:
    """Volumes of the kernel under a stack that polls: the kernel refuses, or never sees the drives.

    Source: Linux drivers/md/md.c, md_init_stacking_limits: an array never has BLK_FEAT_POLL.
    """
    for volume in scenario.volumes:
        if scenario.stack.polled and volume.profile is not None:
            text = (
                f"{volume.name}: {volume.engine.name} takes no polled requests, and stack "
                f"{scenario.stack.name} polls: no kernel does what is predicted here; take a stack "
                "with interrupts, such as linux-io_uring"
            )
            yield Warning("polled-volume", text, volume.name)


def _of_drive(profile: DriveProfile, depth: float, reads: set[float]) -> Iterator[Warning]:
    """What the captures of *profile* do not cover of a load with these shares of *reads*."""
    name, table = profile.name, profile.latencies
    if table is not None and abs(depth - table.queue_depth) > 0.1 * table.queue_depth:
        text = (
            f"{name}: latencies were captured at queue depth {table.queue_depth} "
            f"and are replayed at {depth:g}; the prediction is not to be trusted there"
        )
        yield Warning("replayed-depth", text, name)
    if profile.writes_unmeasured and min(reads) < 1:
        text = (
            f"{name}: no writes were measured, their cost is assumed and not part of the "
            "interval; calibrate with a capture of writes"
        )
        yield Warning("writes-unmeasured", text, name)
    kinds = {{1.0: "read", 0.0: "write"}.get(read, "mixed") for read in reads}
    for op, error in profile.missed.items():
        if ("mixed" if "rw:" in op else op.removeprefix("rand")) in kinds:
            more = "more" if error > 0 else "fewer"
            text = (
                f"{name}: this profile predicts up to {100 * abs(error):.0f} % {more} IOPS than "
                f"its captures of {op} show; the answer is moved by what it misses near this load"
            )
            yield Warning("missed", text, name)
    if profile.write_caveat and min(reads) < 1:
        yield Warning("writes", f"{name}: {profile.write_caveat}", name)
    unused = "write." if kinds == {"read"} else "read." if kinds == {"write"} else ""
    keys = [
        key
        for key in profile.untold
        if profile.counts(key)
        and not (unused and (key.startswith(unused) or key == "write.suspend"))
    ]
    if keys:
        sheet = profile.captured is not None and profile.captured.datasheet
        told = list(dict.fromkeys(profile.untold[key] for key in keys))
        would = [w for w in told if not any(o != w and w in o for o in told)]
        text = (
            f"{name}: its {'data sheet tells' if sheet else 'captures tell'} nothing of "
            f"{in_words(keys)}; what would: {'; '.join(would)}"
        )
        yield Warning("untold", text, name)
