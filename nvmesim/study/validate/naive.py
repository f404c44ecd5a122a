"""The naive answer beside each row: the least of three products.

Requests in flight times the rate of one, threads times the rate of one thread, drives times the
rate of one drive: what an architect writes on a napkin who has measured one drive. Its three rates
come from the calibrated drive by itself, as its captures would give them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nvmesim.errors import NvmesimError
from nvmesim.scenario.resolved import ResolvedScenario, Target, WorkloadGroup

EQUAL: float = 0.005
"""A prediction within this share of the naive answer says no more than that."""


@dataclass
class Naive:
    """Naive answers; each small scenario behind them is simulated once."""

    rate: Callable[[ResolvedScenario], float]
    """Simulated requests per second."""
    seen: dict[tuple[object, ...], float] = field(default_factory=dict)

    def iops(self, scenario: ResolvedScenario) -> float | None:
        """Return the naive IOPS of *scenario*; None for loads by the clock or of several groups."""
        if len(scenario.workload) != 1 or scenario.workload[0].is_open:
            return None
        group = scenario.workload[0]
        drives = max(1, len(_drives(scenario, group)))
        threads = group.n_threads
        depth = max(1, group.in_flight // max(1, threads))
        try:
            products = (
                group.in_flight * self._alone(scenario, 1, 1),
                threads * self._alone(scenario, 1, depth),
                drives * self._alone(scenario, *_share(threads, depth, drives)),
            )
        except NvmesimError:
            return None
        return min(products)

    def _alone(self, scenario: ResolvedScenario, threads: int, depth: int) -> float:
        """Requests per second of one drive by itself under *threads* x *depth*."""
        group = scenario.workload[0]
        drive = scenario.drives[_drives(scenario, group)[0]]
        one = alone(scenario, group, drive.index, threads, depth)
        key = (drive.profile.name, repr(drive.profile), scenario.stack.name, repr(scenario.stack),
               group.block_sizes, group.read, group.access, threads, depth)  # fmt: skip
        if key not in self.seen:
            self.seen[key] = self.rate(one)
        return self.seen[key]


def _share(threads: int, depth: int, drives: int) -> tuple[int, int]:
    """Threads and depth of one drive's share of the load."""
    if threads >= drives:
        return max(1, threads // drives), depth
    return 1, max(1, threads * depth // drives)


def _drives(scenario: ResolvedScenario, group: WorkloadGroup) -> list[int]:
    found: dict[int, None] = {}
    for target in group.targets:
        members = (
            [target.index] if target.kind == "drive" else scenario.volumes[target.index].members
        )
        for member in members:
            found.setdefault(member)
    return list(found)


def alone(
    scenario: ResolvedScenario, group: WorkloadGroup, drive: int, threads: int, depth: int
) -> ResolvedScenario:
    """*scenario* with one of its drives alone, on the threads' own socket, without RAID."""
    one = replace(scenario.drives[drive], index=0)
    load = replace(
        group, targets=(Target("drive", 0, one.name),), threads=threads,
        threads_are_per_target=True, outstanding=depth, outstanding_per="thread-target",
        span=None, stride=None, filesystem=group.filesystem, socket=one.socket,
        floating="spread", buffers=None, interrupts=None,
    )  # fmt: skip
    run = replace(scenario.run, requests=None, duration_ps=None, precision=None)
    return replace(scenario, drives=(one,), volumes=(), workload=(load,), run=run)
