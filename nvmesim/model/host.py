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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nvmesim.array_types import Ints
from nvmesim.catalog.profile import CpuProfile, StackProfile
from nvmesim.model.rings import batch_of, shared_cycles
from nvmesim.network.builder import Builder, Row, ThreadBatch, const, ints, op
from nvmesim.network.network import SCALE_ONE, Kind, Op
from nvmesim.scenario.resolved import Socket, Target, WorkloadGroup


def smt_factors(
    cores: int, threads_per_core: int, smt_yield: float, contention: float = 0.0
) -> list[int]:
    """Service factor x SCALE_ONE by number of busy logical CPUs, 1..cores x threads_per_core.

    Idle cores fill first; each core with all siblings busy does ``smt_yield`` of one thread's work.
    The loss is spread over all that are busy, so that work done per second is exact at every level.
    *contention* makes every request dearer by that share for each further CPU that is busy.
    The yield is about 1.25, published as "up to 30 %" (dasher.com).

    >>> [round(f / 65536, 3) for f in smt_factors(2, 2, 1.25)]
    [1.0, 1.0, 1.333, 1.6]
    >>> [round(f / 65536, 3) for f in smt_factors(2, 1, 1.0, contention=0.1)]
    [1.0, 1.1]
    """
    factors = []
    for busy in range(1, cores * threads_per_core + 1):
        extra = max(0, busy - cores)
        shared = extra / (threads_per_core - 1) if threads_per_core > 1 else 0.0
        capacity = min(busy, cores) + shared * (smt_yield - 1)
        slower = 1 + contention * (busy - 1)
        factors.append(round(SCALE_ONE * busy / capacity * slower))
    return factors


@dataclass(frozen=True)
class Distance:
    """How far a thread's requests are from it: shares between 0 and 1."""

    drive: float = 0.0
    """Of its drives, those on another socket."""
    memory: float = 0.0
    """Of its queues and buffers, those in another socket's memory."""
    interrupts: float = 0.0
    """Of its completions, those that another socket's CPUs take."""
    shared: bool = False
    """Threads of several sockets use the target."""


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
    handler: float = 0.0
    """Of ``complete``, what is inside the interrupt."""
    handed: float = 0.0
    """What the kernel's own thread takes to submit, beside ``submit``."""
    batch: int = 1
    """Requests of a batch of the thread at most."""
    per_batch: float = 0.0
    """What a batch pays once, where the thread works in batches."""

    def reaped(self, group: WorkloadGroup) -> Cycles:
        """What is left where a thread of the kernel submits: interrupts come to its CPU."""
        return replace(self, interrupt=0.0, handler=0.0) if group.sqpoll else self

    @property
    def alone(self) -> float:
        """Cycles of a request that nothing shares its costs with."""
        own = self.submit + self.handed + self.complete + self.per_batch
        return own + self.wakeup + self.interrupt


def request_cycles(
    stack: StackProfile,
    group: WorkloadGroup,
    n_bytes: int,
    *,
    distance: Distance = HERE,
    write: bool = False,
    further: float = 0.0,
    splits: float = 0.0,
) -> Cycles:
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
    if group.filesystem != "raw" and group.filesystem in stack.filesystems:
        extra += stack.filesystems[group.filesystem].value
    if group.guest != "none" and group.guest in stack.guests:
        extra += stack.guests[group.guest].value
    away = stack.remote_buffer.value * kib * distance.memory
    away += stack.shared.value * distance.shared
    batch = batch_of(stack, group)
    shared = shared_cycles(stack, group) / 2
    submit = max(0.0, stack.submit.value + shared)
    left = 0.0
    if group.sqpoll and stack.sqpoll is not None:
        left = min(submit, stack.sqpoll.value)
    handed = (submit - left + extra / 2) * submitted + away / 2 if group.sqpoll else 0.0
    complete = (max(0.0, stack.complete.value + shared) + extra / 2) * completed + away / 2
    return Cycles(
        submit=left if group.sqpoll else (submit + extra / 2) * submitted + away / 2,
        complete=complete,
        handler=min(complete, stack.handler.value * completed),
        handed=handed,
        batch=batch,
        per_batch=stack.per_batch.value if batch > 1 else 0.0,
        per_child=stack.per_child.value * submitted * splits,
        wakeup=0.0 if stack.polled else stack.wakeup.value * completed,
        interrupt=0.0 if stack.polled else stack.interrupt.value * completed,
        wakeup_half_ps=round(stack.wakeup_half.value),
    )


def remote_factors(stack: StackProfile, distance: Distance) -> tuple[float, float]:
    """Factors on the cycles to submit and to complete.

    A drive or a memory that is away makes both dearer by ``remote``, once, unless the stack tells
    submission, completion and memory apart; then what is away adds up. Interrupts that another
    socket takes count as a drive there does.

    >>> from nvmesim.catalog.load import get
    >>> libaio = get("stack", "linux-libaio")
    >>> remote_factors(libaio, Distance(drive=1.0, memory=1.0))
    (1.2, 1.2)
    >>> from nvmesim.catalog.profile import Quantity
    >>> apart = libaio.model_copy(update={"remote_complete": Quantity(value=1.5)})
    >>> remote_factors(apart, Distance(drive=1.0))
    (1.2, 1.5)
    """
    default = stack.remote.value
    named = (stack.remote_submit, stack.remote_complete, stack.remote_memory)
    submit, complete, memory = (default if q is None else q.value for q in named)
    handed = max(distance.drive, distance.interrupts)
    if stack.remote_memory is None:  # one factor for both: whichever is away, once
        rest_submit = max(0.0, distance.memory - distance.drive)
        rest_complete = max(0.0, distance.memory - handed)
        return (
            1 + (submit - 1) * distance.drive + (default - 1) * rest_submit,
            1 + (complete - 1) * handed + (default - 1) * rest_complete,
        )
    far = (memory - 1) * distance.memory
    return 1 + (submit - 1) * distance.drive + far, 1 + (complete - 1) * handed + far


class Host:
    """CPU stations of the sockets, and the threads that were started on them.

    With *pooled* all sockets are one station: threads run wherever a logical CPU falls idle.
    """

    def __init__(
        self,
        b: Builder,
        sockets: tuple[Socket, ...],
        background: float,
        *,
        contention: float = 0.0,
        pooled: bool = False,
    ) -> None:
        self._b = b
        self._sockets = sockets
        self._stretch = 1 / (1 - background)
        self.cpu: list[int] = []
        self.thread_gate: list[int] = []
        self.thread_cpu: list[int] = []
        self.thread_interval: list[int] = []
        self.thread_first: list[int] = []
        self._sections: dict[tuple[str, str, int, int], int] = {}
        if pooled:
            n_cores = sum(socket.cpu.cores for socket in sockets)
            self.cpu = [self._station("sockets cpu", sockets[0].cpu, n_cores, contention)] * len(
                sockets
            )
            return
        for socket in sockets:
            name = f"socket{socket.index} cpu"
            cpu = socket.cpu
            self.cpu.append(self._station(name, cpu, cpu.cores, contention, socket.index))

    def _station(
        self, name: str, cpu: CpuProfile, cores: int, contention: float, socket: int | None = None
    ) -> int:
        scale = smt_factors(cores, cpu.threads_per_core, cpu.smt_yield.value, contention)
        station = self._b.station(name, Kind.FIFO, cores * cpu.threads_per_core, scale=scale)
        self._b.report(name, "cpu", station, socket=socket, resource="cores")
        return station

    def ps(self, cycles: float, socket: int) -> int:
        """Picoseconds that *cycles* take on one thread of *socket* whose siblings are idle."""
        return round(cycles * self._stretch * 1e3 / self._sockets[socket].ghz)

    def add_thread(
        self,
        name: str,
        socket: int,
        interval_ps: int,
        first_target: int,
        batch: tuple[int, float] = (1, 0.0),
    ) -> int:
        """Start a thread on *socket*; return its number.

        *batch* are the requests that it takes at once at most, and the cycles that they pay once.
        """
        if batch[0] > 1:
            own = ThreadBatch(batch[0], self.ps(batch[1], socket))
            gate = self._b.station(name, Kind.BATCHER, 1, own=own)
        else:
            gate = self._b.station(name, Kind.GATE, 1)
        self.thread_gate.append(gate)
        self.thread_cpu.append(self.cpu[socket])
        self.thread_interval.append(interval_ps)
        self.thread_first.append(first_target)
        return len(self.thread_gate) - 1

    def arrays(self) -> dict[str, Ints]:
        """Fields of `Network` about threads."""
        return {
            "thread_gate": ints(self.thread_gate), "thread_cpu": ints(self.thread_cpu),
            "thread_interval_ps": ints(self.thread_interval),
            "thread_first": ints(self.thread_first),
        }  # fmt: skip

    def submit_rows(
        self,
        cycles: Cycles,
        engine: float,
        per_child: float,
        socket: int,
        *,
        closed: bool = True,
        locks: Sequence[Row] = (),
    ) -> list[Row]:
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

    def section_rows(
        self, stack: StackProfile, group: WorkloadGroup, target: Target, write: bool, shared: bool
    ) -> list[Row]:
        """Sections that the requests of one virtual disk or file pass one by one.

        *shared*: threads of several sockets use the target. The two-socket rows of RUVDS, 2022, on
        Windows Server 2016 need it: reads and writes, which differ by a third in cycles on one
        socket, both stop at 530k to 598k on two. A cost in cycles would keep their ratio, and raw
        drives on two sockets lose nothing (Team, 2019), so it lies in the path of files.
        """
        return [row for name in (group.guest, group.filesystem)
                for row in self._one_by_one(stack, name, target, write, shared)]  # fmt: skip

    def _one_by_one(
        self, stack: StackProfile, passed: str, target: Target, write: bool, shared: bool
    ) -> list[Row]:
        section = stack.sections.get(passed)
        if section is None or (section.across and not shared):
            return []
        time = section.write if write and section.write is not None else section.read
        if time.value < 1:
            return []
        key = (passed, target.kind, target.index, target.part)
        if key not in self._sections:
            between = ", handed between sockets" if section.across else ""
            what = "thread of the virtual disk" if passed in stack.guests else f"lock{between}"
            name = f"{target.name} {passed} {what}"
            self._sections[key] = self._b.station(name, Kind.FIFO, section.threads)
            of = "guest-section" if passed in stack.guests else "section"
            self._b.report(name, "lock", self._sections[key], resource=of)
        return [const(self._sections[key], round(time.value))]

    def woken_rows(self, cycles: Cycles, socket: int) -> list[Row]:
        """Completion on a thread that slept for it all the time, and goes on at once."""
        work = self.ps(cycles.complete + cycles.wakeup + cycles.interrupt, socket)
        return [op(Op.VISIT_CPU, 0, -1, max(1, work))]

    def complete_rows(
        self, cycles: Cycles, socket: int, interrupts: int | None = None
    ) -> list[Row]:
        """Completion: wake-up and interrupt are paid by whom they concern.

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
