"""Who uses a target beside one thread, and what that costs each request of it.

Threads that share a target slow each other: the lines of its queue, its file and, on a volume, of
md go round between their CPUs. Measured is a cost that grows evenly with each further thread and
falls with the number of targets that they spread over: 0.17 us on one Optane P5800X, 0.57 us on one
NAND drive of another server (github Tratori/nvme-bench-delab, nx05 and koroneia, libaio).
"""

from __future__ import annotations

from nvmesim.scenario.resolved import ResolvedScenario, Target, Volume, WorkloadGroup


def other_threads(scenario: ResolvedScenario, target: Target, *, whole: bool = False) -> float:
    """Threads that use *target* beside one of them, no more than there are CPUs for.

    Threads that serve several targets in turn count for each with their share. With *whole* the
    users of other files on the same drive or volume count, too.
    """
    most = sum(socket.logical_cpus for socket in scenario.sockets)
    users = sum(_users(group, target, whole) for group in scenario.workload)
    one = max((_share(group, target, whole) for group in scenario.workload), default=1.0)
    return max(0.0, min(users, float(most)) - one)


def _matches(found: Target, target: Target, whole: bool) -> bool:
    same = (found.kind, found.index) == (target.kind, target.index)
    return same and (whole or found.part == target.part)


def _share(group: WorkloadGroup, target: Target, whole: bool) -> float:
    """Share of its time that a thread of *group* spends on *target*; 0 if it never does."""
    matching = sum(_matches(t, target, whole) for t in group.targets)
    if group.threads_are_per_target:
        return float(matching > 0)
    return matching / len(group.targets)


def _users(group: WorkloadGroup, target: Target, whole: bool) -> float:
    matching = sum(_matches(t, target, whole) for t in group.targets)
    if group.threads_are_per_target:
        return float(group.threads * matching)
    return group.threads * matching / len(group.targets)


def sharing_cycles(
    scenario: ResolvedScenario, target: Target, volume: Volume | None
) -> tuple[float, float]:
    """Cycles per request that the other threads of *target* cost: in the stack, in the engine.

    On a volume whose engine says what it costs, that is all: a second thread on an md RAID0 of one
    member costs 0.12 us a request, on the drive itself 0.17 us (same source), so the two do not add
    up. In a pool of ZFS threads do not meet at a queue: those of its own send the commands.
    """
    if volume is not None and volume.engine.records is not None:
        return 0.0, 0.0
    engine = 0.0 if volume is None else volume.engine.per_sharer.value
    if volume is None or volume.engine.runs_on == "controller" or not engine:
        return scenario.stack.per_sharer.value * other_threads(scenario, target), 0.0
    return 0.0, engine * other_threads(scenario, target, whole=True)


def served_in_turn(scenario: ResolvedScenario) -> bool:
    """True if a closed loop's threads sleep until each request is done, as in ZFS.

    Such a thread looks busy all the time and is not; in an open loop one that is full is the limit.
    """
    pools = {v.index for v in scenario.volumes if v.engine.records is not None}
    closed = (group for group in scenario.workload if not group.is_open)
    targets = (target for group in closed for target in group.targets)
    return any(target.kind == "volume" and target.index in pools for target in targets)


def member_cycles(scenario: ResolvedScenario, volume: Volume | None) -> float:
    """Cycles per request for the further drives behind a volume: their queues grow cold."""
    if volume is None or volume.engine.runs_on == "controller":
        return 0.0
    return scenario.stack.per_target.value * (len(volume.members) - 1)


def engine_share(scenario: ResolvedScenario) -> float:
    """Share of the threads' CPU time per request that RAID engines on the host take.

    Of loads that use no volume none; of several groups that of the one with most threads.
    """
    most = max(scenario.workload, key=lambda group: group.n_threads, default=None)
    if most is None or most.targets[0].kind != "volume":
        return 0.0
    volume = scenario.volumes[most.targets[0].index]
    engine, stack = volume.engine, scenario.stack
    if engine.runs_on == "controller":
        return 0.0
    of_stack, of_engine = sharing_cycles(scenario, most.targets[0], volume)
    own = engine.per_request.value + engine.per_child.value + of_engine
    rest = stack.submit.value + stack.complete.value + of_stack + member_cycles(scenario, volume)
    filesystem = stack.filesystems.get(most.filesystem)
    rest += 0.0 if filesystem is None else filesystem.value
    return own / max(1e-9, own + rest)
