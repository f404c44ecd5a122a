"""What was asked, in one line: the load, and how much of it is in flight."""

from __future__ import annotations

from collections.abc import Iterator

from nvmesim.scenario.resolved import ResolvedScenario, WorkloadGroup
from nvmesim.show.words import about, plural
from nvmesim.units import format_size

MOST_GROUPS = 3
"""Workloads that are written out; more are counted."""


def asked(scenario: ResolvedScenario) -> str:
    """Return the load of *scenario* in words, all workloads of it.

    >>> from nvmesim.scenario.resolved import Target
    >>> drives = tuple(Target("drive", i, f"drive{i}") for i in range(24))
    >>> group = WorkloadGroup("oltp", drives, read=0.7, threads=48, outstanding=32)
    >>> asked_of(group)
    'random 4 KiB, 70 % reads; 48 threads a drive x 24 drives = 1,152 threads, each with 32 in flight: 36,864 in flight'
    """  # noqa: E501
    groups = scenario.workload
    shown = [
        f"{group.name}: {asked_of(group)}" if len(groups) > 1 else asked_of(group)
        for group in groups[:MOST_GROUPS]
    ]
    if len(groups) > MOST_GROUPS:
        shown.append(f"{plural(len(groups) - MOST_GROUPS, 'workload')} more")
    text = " | ".join(shown)
    logical = sum(socket.logical_cpus for socket in scenario.sockets)
    threads = sum(group.n_threads for group in groups if not group.is_open)
    if threads > logical:
        text += f"; these are more threads than the {logical} logical CPUs"
    return text


def asked_of(group: WorkloadGroup) -> str:
    """Return the load of one workload in words."""
    return "; ".join(_parts(group))


def _parts(group: WorkloadGroup) -> Iterator[str]:
    if group.trace is not None:
        speed = "" if group.speed == 1 else f" at {group.speed:g} times its speed"
        yield f"requests as recorded in {group.trace.name}{speed}"
        return
    what = {1.0: "reads", 0.0: "writes"}.get(group.read, f"{100 * group.read:.3g} % reads")
    yield f"{group.access} {_sizes(group)}, {what}"
    if group.rate is not None:
        yield f"{about(group.rate)} requests/s by the clock, however many are in flight"
        return
    yield _closed(group)


def _sizes(group: WorkloadGroup) -> str:
    sizes = group.block_sizes
    if len(sizes) == 1:
        return format_size(sizes[0][0])
    return ", ".join(f"{format_size(size)} ({100 * share:.3g} %)" for size, share in sizes)


def _closed(group: WorkloadGroup) -> str:
    """Threads a target x targets, and what all of them keep in flight."""
    targets = len(group.targets)
    kind = "drive" if all(t.kind == "drive" for t in group.targets) else "volume"
    threads = plural(group.threads, "thread")
    if targets > 1 and group.threads_are_per_target:
        threads += f" a {kind} x {targets} {kind}s = {group.n_threads:,} threads"
    elif targets > 1 and group.outstanding_per == "thread-target":
        threads += f" over {targets} {kind}s"
    each = "each with " if group.n_threads > 1 else ""
    where = f" at each {kind}" if _at_each(group) else ""
    total = f": {group.in_flight:,} in flight" if group.in_flight != group.outstanding else ""
    return f"{threads}, {each}{group.outstanding} in flight{where}{total}"


def _at_each(group: WorkloadGroup) -> bool:
    """True if a thread keeps so many at every one of several targets."""
    several = len(group.targets) > 1 and not group.threads_are_per_target
    return several and group.outstanding_per == "thread-target"
