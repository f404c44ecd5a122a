"""From a checked file to everything a prediction depends on: names looked up, defaults taken."""

from collections.abc import Sequence
from typing import cast

from nvmesim import limits
from nvmesim.catalog.links import MPS_BYTES, MRRS_BYTES
from nvmesim.catalog.profile import StackProfile
from nvmesim.errors import LimitError
from nvmesim.limits import at_most
from nvmesim.scenario import hardware
from nvmesim.scenario.pools import check_loads
from nvmesim.scenario.resolved import ResolvedScenario, RunSettings, WorkloadGroup
from nvmesim.scenario.schema import RunSpec, Scenario
from nvmesim.scenario.volumes import resolve_volumes
from nvmesim.scenario.workloads import resolve_workload


def resolve(scenario: Scenario) -> ResolvedScenario:
    """Return *scenario* with every name looked up, every default taken, and both listed.

    Raises ScenarioError or GeometryError: one line that names the key, the value and what would do.

    >>> from nvmesim.scenario.load import scenario_from_dict
    >>> resolved = resolve(scenario_from_dict({
    ...     "server": {"stack": "spdk", "sockets": [{"cpu": "xeon-gold-6130"}]},
    ...     "drives": [{"profile": "intel-p4610-1.6tb", "count": 4}],
    ...     "volume": {"raid": "raid5"},
    ...     "workload": {"threads": 8, "outstanding": 16, "read": 0.7}}))
    >>> [drive.name for drive in resolved.drives], resolved.workload[0].in_flight
    (['drive0', 'drive1', 'drive2', 'drive3'], 128)
    """
    check_counts(scenario)
    notes = hardware.ResolveNotes()
    stack = cast(
        StackProfile,
        hardware.profile("stack", scenario.server.stack, scenario.base, "server.stack"),
    )
    if "stack" not in scenario.server.model_fields_set:
        notes.assume(f"server.stack: {stack.name} taken")
    used = [f"filesystems.{spec.filesystem}" for spec in scenario.workload]
    used += [f"guests.{spec.guest}" for spec in scenario.workload]
    used += ["per_child"] if scenario.volume else []
    batched = stack.batch > 1 or any(spec.iodepth_batch for spec in scenario.workload)
    used += ["per_batch"] if batched else []
    used += ["sqpoll"] if any(spec.sqthread_poll for spec in scenario.workload) else []
    used += ["remote"] if len(scenario.server.sockets) > 1 else []
    notes.profile(stack, *used)
    sockets = hardware.resolve_sockets(scenario, notes)
    interconnect = hardware.resolve_interconnect(scenario, sockets, notes)
    roots = hardware.resolve_roots(scenario, sockets)
    adapters = hardware.resolve_adapters(scenario, sockets, roots, notes)
    drives = hardware.resolve_drives(scenario, sockets, adapters, roots, interconnect, notes)
    volumes = resolve_volumes(scenario, drives, notes)
    workload = resolve_workload(scenario, stack, sockets, drives, volumes, notes)
    check_groups(workload)
    check_loads(volumes, workload)
    return ResolvedScenario(
        name=scenario.name,
        stack=stack,
        sockets=sockets,
        interconnect=interconnect,
        roots=roots,
        adapters=adapters,
        drives=drives,
        volumes=volumes,
        workload=workload,
        run=_run(scenario.run),
        background=scenario.server.background,
        max_payload=scenario.server.max_payload or MPS_BYTES,
        max_read_request=scenario.server.max_read_request or MRRS_BYTES,
        bays=hardware.bays_of(scenario.server),
        assumptions=tuple(notes.assumptions),
        ignored=tuple(notes.ignored),
    )


def _run(spec: RunSpec) -> RunSettings:
    """No precision is asked when the length of the run is stated, nor where nothing is."""
    if spec.requests is not None or spec.duration is not None:
        return RunSettings(None, spec.requests, spec.duration, spec.seed)
    return RunSettings(spec.precision, None, None, spec.seed)


def check_counts(scenario: Scenario) -> None:
    """Raise LimitError if there is too much of anything, before any of it is made."""
    at_most(sum(d.count for d in scenario.drives), limits.MOST_DRIVES, "drives", "drives")
    at_most(len(scenario.adapters), limits.MOST_ADAPTERS, "adapters", "adapters")
    at_most(sum(v.arrays for v in scenario.volume), limits.MOST_VOLUMES, "volume", "volumes")
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
