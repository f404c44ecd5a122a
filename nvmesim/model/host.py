"""Sockets, threads and what a request costs them (docs/model.md).

A socket is one station with a server per logical CPU, whose speed depends on how many are busy
(SMT). A submitting thread is a gate with one slot: it works on one request at a time. Two costs are
shared between requests: a wake-up, paid only by a completion that finds its thread asleep and
growing with the sleep, and an interrupt, paid once for all completions of a (thread, target) that
come while it runs.

Why the wake-up grows: CPU time per request of the Samsung 980 PRO sweep, beyond the 2.6 us of a
thread that never sleeps, is 5.1, 2.2, 0.7, 0.6, 0.3 and 0.15 us where the thread is idle for 61,
12, 2.2, 1.6, 0.7 and 0.15 us per request: 5.5 us x idle / (idle + 15 us) gives all six within
0.7 us; a constant cost per wake-up misses the middle ones (4.0 instead of 3.2 us at 1 x 16).

A thread that works in batches takes all completions that wait, at most so many, and submits what
follows with one call and one doorbell: what a batch costs once, many share, and the drive gets them
together, so that its completions come together as well and interrupts merge. With SQPOLL a
thread of the kernel submits; a system call is not needed, and that thread's CPU is busy at any
load. Source: io_uring_enter(2) and io_uring_setup(2), IORING_SETUP_SQPOLL; fio's HOWTO,
iodepth_batch_submit and sqthread_poll.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nvmesim.array_types import Ints
from nvmesim.catalog.profile import CpuProfile, StackProfile
from nvmesim.network.builder import Builder, Row, ThreadBatch, const, ints, op
from nvmesim.network.distributions import smt_factors
from nvmesim.network.network import Kind, Op
from nvmesim.scenario.resolved import ResolvedScenario, Target, Volume, WorkloadGroup


def batch_of(stack: StackProfile, group: WorkloadGroup) -> int:
    """Requests that a thread of *group* takes at once, at most; 1: each by itself.

    A thread that leaves submission to the kernel's has no call to share.

    >>> from nvmesim.catalog.load import get
    >>> batch_of(get("stack", "spdk"), WorkloadGroup("w", (), batch=8))
    8
    """
    return 1 if group.sqpoll else group.batch or stack.batch


def polling_threads(scenario: ResolvedScenario) -> int:
    """Threads of the kernel that poll for submissions, one for each thread with SQPOLL."""
    return sum(group.n_threads for group in scenario.workload if group.sqpoll)


@dataclass(frozen=True)
class Distance:
    """How far a thread's requests are from it: shares between 0 and 1."""

    drive: float = 0.0  # of its drives, those on another socket
    memory: float = 0.0  # of its queues and buffers, those in another socket's memory
    interrupts: float = 0.0  # of its completions, those that another socket's CPUs take
    shared: bool = False  # threads of several sockets use the target


HERE = Distance()


@dataclass(frozen=True)
class Cycles:
    """Cycles of one request on its thread's socket."""

    submit: float
    complete: float
    per_child: float
    wakeup: float
    interrupt: float
    wakeup_half_ps: int = 0
    handler: float = 0.0  # of ``complete``, what is inside the interrupt
    handed: float = 0.0  # what the kernel's own thread takes to submit, beside ``submit``
    batch: int = 1  # requests of a batch of the thread at most
    per_batch: float = 0.0  # what a batch pays once, where the thread works in batches

    @property
    def alone(self) -> float:
        """Cycles of a request that nothing shares its costs with."""
        own = self.submit + self.handed + self.complete + self.per_batch
        return own + self.wakeup + self.interrupt


def request_cycles(
    stack: StackProfile, group: WorkloadGroup, n_bytes: int, *, distance: Distance = HERE,
    write: bool = False, further: float = 0.0, splits: float = 0.0,
) -> Cycles:  # fmt: skip
    """Cycles of a request of *n_bytes*, its drive and its memory *distance* away.

    *further* are those that other threads of its target and other drives of its thread cost it.
    Of its commands beyond the first the thread itself sends the share *splits*.
    """
    submitted, completed = remote_factors(stack, distance)
    kib = n_bytes / 1024
    extra = stack.per_kib.value * kib + further
    if write:
        extra += stack.per_write.value
    if not group.threads_are_per_target:
        extra += stack.per_target.value * (len(group.targets) - 1)
    extra += stack.path_cycles(group.filesystem, group.guest)
    away = stack.shared.value * distance.shared
    batch, of_batch = batch_of(stack, group), stack.per_batch.value
    # Submission and completion hold a request's share of a full batch of the stack's, which comes
    # off; a request by itself pays all, and with SQPOLL there is no call to pay for.
    of_batch = (of_batch * (batch == 1 and not group.sqpoll) - of_batch / stack.batch) / 2
    submit = max(0.0, stack.submit.value + of_batch)
    left = 0.0
    if group.sqpoll and stack.sqpoll is not None:
        left = min(submit, stack.sqpoll.value)
    handed = (submit - left + extra / 2) * submitted + away / 2
    complete = (max(0.0, stack.complete.value + of_batch) + extra / 2) * completed + away / 2
    return Cycles(
        submit=left if group.sqpoll else handed,
        complete=complete,
        handler=min(complete, stack.handler.value * completed),
        handed=handed if group.sqpoll else 0.0,
        batch=batch,
        per_batch=stack.per_batch.value if batch > 1 else 0.0,
        per_child=stack.per_child.value * submitted * splits,
        wakeup=0.0 if stack.polled else stack.wakeup.value * completed,
        interrupt=0.0 if stack.polled else stack.interrupt.value * completed,
        wakeup_half_ps=round(stack.wakeup_half.value),
    )


def remote_factors(stack: StackProfile, distance: Distance) -> tuple[float, float]:
    """Factors on the cycles to submit and to complete.

    A drive or a memory that is away makes both dearer by ``remote``, once. Interrupts that another
    socket takes count as a drive there does.

    >>> from nvmesim.catalog.load import get
    >>> remote_factors(get("stack", "linux-libaio"), Distance(drive=1.0, memory=1.0))
    (1.2, 1.2)
    """
    more = stack.remote.value - 1
    handed = max(distance.drive, distance.interrupts)
    rest_submit = max(0.0, distance.memory - distance.drive)
    rest_complete = max(0.0, distance.memory - handed)
    return 1 + more * distance.drive + more * rest_submit, 1 + more * handed + more * rest_complete


class Host:
    """CPU stations of the sockets, and the threads that were started on them."""

    def __init__(self, b: Builder, scenario: ResolvedScenario) -> None:
        self._b = b
        self._sockets = scenario.sockets
        self._stretch = 1 / (1 - scenario.background)
        self._contention = scenario.stack.contention.value
        self.thread_gate: list[int] = []
        self._thread_cpu: list[int] = []
        self._thread_interval: list[int] = []
        self._thread_first: list[int] = []
        self._sq_threads: dict[int, int] = {}
        self._sections: dict[tuple[str, str, int, int], int] = {}
        self.cpu = [self._station(socket.cpu, socket.index) for socket in self._sockets]

    def _station(self, cpu: CpuProfile, socket: int) -> int:
        threads, smt = cpu.threads_per_core, cpu.smt_yield.value
        return self._b.named(
            f"socket{socket} cpu", "cpu", servers=cpu.cores * threads,
            scale=smt_factors(cpu.cores, threads, smt, self._contention),
            socket=socket, resource="cores",
        )  # fmt: skip

    def ps(self, cycles: float, socket: int) -> int:
        """Picoseconds that *cycles* take on one thread of *socket* whose siblings are idle."""
        return round(cycles * self._stretch * 1e3 / self._sockets[socket].ghz)

    def add_thread(
        self, name: str, socket: int, interval_ps: int, first_target: int, batch: int = 1,
        per_batch: float = 0.0,
    ) -> int:  # fmt: skip
        """Start a thread on *socket*; return its number.

        It takes *batch* requests at once at most, which pay *per_batch* cycles once.
        """
        if batch > 1:
            own = ThreadBatch(batch, self.ps(per_batch, socket))
            gate = self._b.station(name, Kind.BATCHER, 1, own=own)
        else:
            gate = self._b.station(name, Kind.GATE, 1)
        self.thread_gate.append(gate)
        self._thread_cpu.append(self.cpu[socket])
        self._thread_interval.append(interval_ps)
        self._thread_first.append(first_target)
        return len(self.thread_gate) - 1

    def arrays(self) -> dict[str, Ints]:
        """Fields of `Network` about threads."""
        return {
            "thread_gate": ints(self.thread_gate), "thread_cpu": ints(self._thread_cpu),
            "thread_interval_ps": ints(self._thread_interval),
            "thread_first": ints(self._thread_first),
        }  # fmt: skip

    def submit_rows(
        self, cycles: Cycles, engine: float, per_child: float, socket: int, *, closed: bool = True,
        locks: Sequence[Row] = (),
    ) -> list[Row]:  # fmt: skip
        """Submission: the thread, then its CPU for the stack's and the RAID engine's cycles.

        It keeps the thread while it passes *locks*, which spin.

        In a closed loop a thread submits what it has just reaped before it reaps more, so a
        submission goes first; arrivals from outside wait their turn, or they would starve it.
        """
        work = self.ps(cycles.submit + engine + per_child, socket)
        each = self.ps(cycles.per_child + per_child, socket)
        return [
            op(Op.ACQUIRE_THREAD, e=int(closed)),
            op(Op.VISIT_CPU, 0, -1, max(1, work), 0, each),
            *locks,
            op(Op.RELEASE_THREAD, int(cycles.batch > 1)),
            op(Op.MARK),
        ]

    def sq_thread(self, index: int, group: WorkloadGroup, socket: int) -> int:
        """Station of the kernel's threads that submit for group *index*: as many as it has threads.

        A server each: a request finds the next that is free, and not always its ring's own, which
        full rings do not notice. Interrupts come to the CPU that submitted, so they are theirs;
        they are not merged.
        """
        if index not in self._sq_threads:
            name = f"{group.name} sq threads"
            at = self._sq_threads[index] = self._b.station(name, Kind.FIFO, group.n_threads)
            self._b.report(name, "lock", at, socket=socket, resource="sq-threads")
        return self._sq_threads[index]

    def section_rows(
        self, stack: StackProfile, group: WorkloadGroup, target: Target, write: bool, shared: bool
    ) -> list[Row]:
        """Sections that the requests of one virtual disk or file pass one by one.

        *shared*: threads of several sockets use the target. The two-socket rows of RUVDS, 2022, on
        Windows Server 2016 need it: reads and writes, which differ by a third in cycles on one
        socket, both stop at 530k to 598k on two. A cost in cycles would keep their ratio, and raw
        drives on two sockets lose nothing (Team, 2019), so it lies in the path of files.
        """
        rows = []
        for passed in (group.guest, group.filesystem):
            section = stack.sections.get(passed)
            if section is None or (section.across and not shared):
                continue
            time = section.time(write=write)
            if time.value < 1:
                continue
            key = (passed, target.kind, target.index, target.part)
            if key not in self._sections:
                guest = passed in stack.guests
                between = ", handed between sockets" if section.across else ""
                what = "thread of the virtual disk" if guest else f"lock{between}"
                name, servers = f"{target.name} {passed} {what}", section.threads
                self._sections[key] = self._b.station(name, Kind.FIFO, servers)
                resource = "guest-section" if guest else "section"
                self._b.report(name, "lock", self._sections[key], resource=resource)
            rows.append(const(self._sections[key], round(time.value)))
        return rows

    def woken_rows(self, cycles: Cycles, socket: int) -> list[Row]:
        """Completion on a thread that slept for it all the time, and goes on at once."""
        work = self.ps(cycles.complete + cycles.wakeup + cycles.interrupt, socket)
        return [op(Op.VISIT_CPU, 0, -1, max(1, work))]

    def complete_rows(
        self, cycles: Cycles, socket: int, interrupts: int | None = None
    ) -> list[Row]:
        """Charge the wake-up to the sleeping thread and the interrupt to its CPU.

        Interrupts that another socket takes (*interrupts*) run there, one for each completion, and
        send for the thread.
        """
        wake, interrupt = self.ps(cycles.wakeup, socket), self.ps(cycles.interrupt, socket)
        there: list[Row] = []
        if interrupts is not None and self.cpu[interrupts] != self.cpu[socket] and interrupt:
            there = [const(self.cpu[interrupts], self.ps(cycles.interrupt, interrupts))]
            interrupt = 0
        handler = self.ps(cycles.handler, socket) if interrupt else 0
        return [
            *there,
            op(Op.ACQUIRE_THREAD, wake, interrupt, 1 + handler, cycles.wakeup_half_ps),
            op(Op.VISIT_CPU, 0, -1, max(1, self.ps(cycles.complete, socket))),
            op(Op.RELEASE_THREAD),
        ]


# -- threads that share a target ----------------------------------------------------------------
#
# Threads that share a target slow each other: the lines of its queue, its file and, on a volume, of
# md go round between their CPUs. Measured is a cost that grows evenly with each further thread and
# falls with the number of targets that they spread over: 0.17 us on one Optane P5800X, 0.57 us on
# one NAND drive of another server (github Tratori/nvme-bench-delab, nx05 and koroneia, libaio).


def other_threads(scenario: ResolvedScenario, target: Target, *, every_file: bool = False) -> float:
    """Threads that use *target* beside one of them, no more than there are CPUs for.

    Threads that serve several targets in turn count for each with their share. With *every_file*
    the users of other files on the same drive or volume count, too.
    """
    most = sum(socket.logical_cpus for socket in scenario.sockets)
    users, one = 0.0, 0.0
    for group in scenario.workload:
        matching = sum(
            (t.kind, t.index) == (target.kind, target.index)
            and (every_file or t.part == target.part)
            for t in group.targets
        )
        if group.threads_are_per_target:
            users += group.threads * matching
            one = max(one, float(matching > 0))
        else:
            users += group.threads * matching / len(group.targets)
            one = max(one, matching / len(group.targets))
    return max(0.0, min(users, float(most)) - one)


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
    return 0.0, engine * other_threads(scenario, target, every_file=True)


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
    rest += stack.path_cycles(most.filesystem, most.guest)
    return own / max(1e-9, own + rest)
