"""Who submits, and how much at once: batches of requests, and the kernel's thread of SQPOLL.

A thread that works in batches takes all completions that wait, at most so many, and submits what
follows with one call and one doorbell: what a batch costs once, many share, and the drive gets them
together, so that its completions come together as well and interrupts merge. With SQPOLL a
thread of the kernel submits; a system call is not needed, and that thread's CPU is busy at any
load. Source: io_uring_enter(2) and io_uring_setup(2), IORING_SETUP_SQPOLL; fio's HOWTO,
iodepth_batch_submit and sqthread_poll.
"""

from __future__ import annotations

from nvmesim.catalog.profile import StackProfile
from nvmesim.network.builder import Builder, Row, const, op
from nvmesim.network.network import Kind, Op
from nvmesim.scenario.resolved import ResolvedScenario, WorkloadGroup


def batch_of(stack: StackProfile, group: WorkloadGroup) -> int:
    """Requests that a thread of *group* takes at once, at most; 1: each by itself.

    A thread that leaves submission to the kernel's has no call to share.

    >>> from nvmesim.catalog.load import get
    >>> batch_of(get("stack", "spdk"), WorkloadGroup("w", (), batch=8))
    8
    """
    if group.sqpoll:
        return 1
    return group.batch or stack.batch


def shared_cycles(stack: StackProfile, group: WorkloadGroup) -> float:
    """Cycles that a request costs beside ``submit`` and ``complete``, and beside its batch's own.

    Those two are of a request in a full batch of the stack's, so its share of that comes off, and
    a request by itself pays all; with SQPOLL there is no call to pay for.

    >>> from nvmesim.catalog.profile import Quantity
    >>> stack = StackProfile(name="s", submit=Quantity(value=900), complete=Quantity(value=900),
    ...                      per_batch=Quantity(value=800))
    >>> [shared_cycles(stack, WorkloadGroup("w", (), batch=n)) for n in (1, 8)]
    [0.0, -800.0]
    """
    own = stack.per_batch.value
    alone = batch_of(stack, group) == 1 and not group.sqpoll
    return own * alone - own / stack.batch


def thread_batch(stack: StackProfile, group: WorkloadGroup) -> tuple[int, float]:
    """Requests of a batch of a thread at most, and cycles that it pays once."""
    return batch_of(stack, group), stack.per_batch.value


def polling_threads(scenario: ResolvedScenario) -> int:
    """Threads of the kernel that poll for submissions, one for each thread with SQPOLL."""
    return sum(group.n_threads for group in scenario.workload if group.sqpoll)


class SqThreads:
    """The kernel's threads that submit for one workload: as many as it has threads.

    They are one station with a server each: a request finds the next that is free, and not always
    its ring's own, which full rings do not notice. Interrupts come to the CPU that submitted, so
    they are theirs; they are not merged.
    """

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._made: dict[int, int] = {}

    def _station(self, index: int, group: WorkloadGroup, socket: int) -> int:
        if index not in self._made:
            name = f"{group.name} sq threads"
            self._made[index] = self._b.station(name, Kind.FIFO, group.n_threads)
            at = self._made[index]
            self._b.report(name, "lock", at, socket=socket, resource="sq-threads")
        return self._made[index]

    def submits(self, index: int, group: WorkloadGroup, ps: int, socket: int) -> list[Row]:
        """Rows of a request that one of them submits in *ps* picoseconds; none without them."""
        if not group.sqpoll:
            return []
        return [const(self._station(index, group, socket), ps), op(Op.MARK)]

    def interrupts(self, index: int, group: WorkloadGroup, ps: int, socket: int) -> list[Row]:
        """Rows of a completion whose interrupt of *ps* picoseconds one of them takes."""
        if not group.sqpoll or not ps:
            return []
        return [const(self._station(index, group, socket), ps)]
