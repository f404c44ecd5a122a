"""Limits on a scenario as a whole: each key may be fine, and all of them together too much."""

from __future__ import annotations

from collections.abc import Sequence

from nvmesim import limits
from nvmesim.errors import LimitError
from nvmesim.limits import at_most
from nvmesim.scenario.resolved import WorkloadGroup
from nvmesim.scenario.schema import Scenario


def check_counts(scenario: Scenario) -> None:
    """Raise LimitError if there is too much of anything, before any of it is made."""
    at_most(sum(d.count for d in scenario.drives), limits.MOST_DRIVES, "drives", "drives")
    at_most(len(scenario.adapters), limits.MOST_ADAPTERS, "adapters", "adapters")
    at_most(len(scenario.volume), limits.MOST_VOLUMES, "volume", "volumes")
    at_most(len(scenario.workload), limits.MOST_WORKLOADS, "workload", "workloads")
    for i, spec in enumerate(scenario.workload):
        key = f"workload.{i}"
        at_most(len(spec.block_size or ()), limits.MOST_SIZES, f"{key}.block_size", "sizes")
        if isinstance(spec.targets, tuple):
            at_most(len(spec.targets), limits.MOST_TARGETS, f"{key}.targets", "targets")


def check_groups(groups: Sequence[WorkloadGroup]) -> None:
    """Raise LimitError if all groups together have too many threads, requests or programs.

    >>> from nvmesim.scenario.resolved import Target
    >>> check_groups([WorkloadGroup("w", (Target("drive", 0, "d"),), threads=8, outstanding=32)])
    """
    at_most(len(groups), limits.MOST_WORKLOADS, "workload", "groups of threads")
    threads, in_flight, kinds = 0, 0, 0
    for group in groups:
        threads += group.n_threads
        in_flight += 0 if group.is_open else group.in_flight
        sizes = len(group.block_sizes) + len(group.write_block_sizes or group.block_sizes)
        kinds += len(group.targets) * sizes
        where = f"workload {group.name!r}: "
        at_most(threads, limits.MOST_THREADS, f"{where}threads", "threads")
        if in_flight > limits.MOST_IN_FLIGHT:
            raise LimitError(
                f"{where}threads x outstanding x targets: {in_flight:,} requests outstanding in "
                f"all; {limits.MOST_IN_FLIGHT:,} at most"
            )
        at_most(kinds, limits.MOST_KINDS, f"{where}block_size x targets", "kinds of requests")
