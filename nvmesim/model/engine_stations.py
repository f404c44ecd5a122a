"""Threads, locks and files of a volume's RAID engine, as stations."""

from typing import Final

from nvmesim.catalog.engine_profile import EngineLock
from nvmesim.network.builder import Batches, Builder, Row, WakeUp, const, op
from nvmesim.network.network import Kind, Op
from nvmesim.raid.arrays import PlanTable, with_rare_phase
from nvmesim.raid.planner.plan import SECTOR
from nvmesim.scenario.resolved import ResolvedScenario, Volume, WorkloadGroup

HAND_OFFS: Final = 3
"""Times that a write wakes raid5d. Source: raid5.c: raid5_make_request, and the ends of what its
members read and write, release stripes."""
REMOTE_LINE_PS: Final = 92_000
"""Extra time of a modified line from another socket's cache. Source: Intel MLC 3.9 on
two Platinum 8269CY: 51.7 ns from the own socket, 111 and 176 ns from the other."""
PAGE_WRITE: Final = (((0,), True, 0, SECTOR, 1),)
"""The phase in which a bitmap's file is written; its child is not a member's."""
MOST_NOTED: Final = 1 << 20  # writes that one page's write notes at most: no limit


def groups_of(scenario: ResolvedScenario, volume: Volume) -> list[WorkloadGroup]:
    """Workload groups that have *volume* among their targets."""
    mine = ("volume", volume.index)
    return [g for g in scenario.workload if any((t.kind, t.index) == mine for t in g.targets)]


def _spinning(b: Builder, name: str, resource: str = "engine-lock") -> int:
    """A lock that spins: one server, and who waits for it keeps its CPU busy.

    A queued spin lock hands over in the order of arrival; what a thread waits counts as CPU time
    (`StationInfo.burns`). Source: Linux kernel/locking/qspinlock.c.
    """
    return b.named(name, "raid-engine", resource=resource, burns="all")


class StripeRows:
    """The threads that handle the rows of md's RAID5/6: raid5d, its workers, their locks.

    A write is handled in rows of 4 KiB across the members, whatever its size. Without
    ``group_thread_cnt`` one thread, raid5d, handles all of them: a station with one server. It
    sleeps when it has no row to handle, and a write comes to it three times: when it is submitted,
    when what it reads has come, and when its members have written; each time a raid5d that sleeps
    must be woken (md_wakeup_thread), which a lone write waits for and a busy array never does. With
    workers a row holds one of them, runs on a CPU, and passes the stripe cache's locks, which the
    submitting threads pass, too. How long these take grows with the CPUs that take part, because
    their lines go round. Source: Linux drivers/md/raid5.c (raid5d, raid5_do_work, handle_stripe).
    """

    def __init__(self, b: Builder, scenario: ResolvedScenario, volume: Volume) -> None:
        assert volume.engine.rows is not None
        self._b = b
        self._scenario = scenario
        self._volume = volume
        self._costs = volume.engine.rows
        self._socket = scenario.drives[volume.members[0]].socket
        self._command_ps = self._ps(scenario.command_cycles(volume.members))
        self._groups = groups_of(scenario, volume)
        self._gate = self._lock = -1
        if volume.workers:
            self._gate = b.named(
                f"{volume.name} workers", "raid-engine", Kind.GATE, volume.workers,
                resource="engine-threads",
            )  # fmt: skip
            self._lock = _spinning(b, f"{volume.name} stripe locks", "stripe-locks")

    def _raid5d(self) -> int:
        """The one thread, made when a row first needs it.

        A write comes to it once and not three times: the visit that has its work has all three
        wake-ups, each after a third of the sleep.
        """
        wake_ups = None
        if any(g.read < 1 or g.trace is not None for g in self._groups):
            once = round(self._ps(self._costs.wakeup.value))
            wake_ups = WakeUp(HAND_OFFS * once, HAND_OFFS * round(self._costs.wakeup_half.value))
        return self._b.named(
            f"{self._volume.name} raid5d", "raid-engine",
            Kind.SLEEPER if wake_ups else Kind.FIFO, own=wake_ups,
            socket=self._socket, resource="engine-threads", burns="service",
        )  # fmt: skip

    def _ps(self, cycles: float) -> float:
        stretch = 1 / (1 - self._scenario.background)
        return cycles * stretch * 1e3 / self._scenario.sockets[self._socket].ghz

    def _row_ps(self, reads: float) -> float:
        """Time of a row on its thread; *reads* is the share of rows that must be read first."""
        costs = self._costs
        cycles = costs.base.value + costs.per_member.value * len(self._volume.members)
        whole = costs.whole.value
        return self._ps(cycles * (whole + (1 - whole) * reads))

    def _lock_row(self, n: float) -> Row:
        """Half of the time that the locks of *n* rows take, by the CPUs that take part."""
        cpus = sum(socket.logical_cpus for socket in self._scenario.sockets)
        takers = min(cpus, self._volume.workers + sum(g.n_threads for g in self._groups))
        return const(self._lock, round(n * self._ps(self._costs.shared.value * takers) / 2))

    def submit_rows(self, n: int) -> list[Row]:
        """The stripe cache's locks as the submitting thread of *n* rows passes them: half."""
        return [] if self._lock < 0 else [self._lock_row(n)]

    def write_rows(self, n: int, reads: float, xor_ps: float, commands: float) -> list[Row]:
        """Handling of *n* rows, their parity computed on the way.

        What a row costs holds its *commands* to NVMe drives; those of SCSI cost more.
        """
        sent = commands * self._command_ps
        return self._handled(round(n * self._row_ps(reads) + xor_ps + sent), n)

    def read_rows(self, n: int, lost: float) -> list[Row]:
        """Handling of reads of which *lost* (a share) must be computed from the other members.

        The others pass the stripe cache by (chunk_aligned_read): each read has the mean of both,
        and both halves of the locks where a worker has it.
        """
        each = n * self._row_ps(0.0) + (len(self._volume.members) - 1) * self._command_ps
        return self._handled(round(lost * each), 2 * n * lost) if lost > 0 else []

    def _handled(self, time: int, n: float) -> list[Row]:
        if not self._volume.workers:
            return [const(self._raid5d(), time)]
        return [
            op(Op.ACQUIRE, self._gate, 1),
            op(Op.VISIT_CPU, 0, -1, max(1, time)),
            self._lock_row(n),
            op(Op.RELEASE, self._gate, 1),
        ]

    def restore_rows(self, n_rows: int, xor_ps: float) -> list[Row]:
        """Handling of *n_rows* of a rebuild or check, their commands included if they do not merge.

        Workers take part with a share of their rate only: one thread asks for the rows.
        """
        costs, n = self._costs, len(self._volume.members)
        base = costs.base if costs.restore is None else costs.restore
        alone = costs.merged_members is not None and n > costs.merged_members
        each = self._ps(base.value + costs.per_member.value * n) + alone * n * costs.unmerged.value
        if not self._volume.workers:
            return [const(self._raid5d(), round(n_rows * each + xor_ps))]
        name = f"{self._volume.name} rebuild's threads"
        restoring = self._b.named(name, "raid-engine", resource="engine-threads")
        speed = 1 + (self._volume.workers - 1) * costs.restore_scales.value
        return [const(restoring, round((n_rows * each + xor_ps) / speed))]


class EngineLocks:
    """The locks that requests of one volume pass, each made once it is needed."""

    def __init__(self, b: Builder, scenario: ResolvedScenario, volume: Volume) -> None:
        self._b = b
        self._volume = volume
        everywhere = [socket.index for socket in scenario.sockets]
        used: set[int] = set()
        for group in groups_of(scenario, volume):
            used.update(everywhere if group.socket is None else [group.socket])
        self._away = 1 - 1 / max(1, len(used))
        """Share of hand-overs that go to another socket, threads being spread evenly."""

    def rows(self, write: bool) -> list[Row]:
        """Stations that a request passes while its thread is held."""
        locks = self._volume.engine.locks
        held = [(name, self._held_ps(lock, write)) for name, lock in locks.items()]
        return [
            const(_spinning(self._b, f"{self._volume.name} {name}"), round(ps))
            for name, ps in held
            if ps >= 1
        ]

    def flush(self) -> list[Row]:
        """Station that a flush passes before it goes to the members."""
        held = round(self._volume.engine.flush.value * len(self._volume.members))
        name = f"{self._volume.name} flush lock"
        return [const(_spinning(self._b, name), held)] if held else []

    def _held_ps(self, lock: EngineLock, write: bool) -> float:
        """Time from one owner to the next, each hand-over to another socket with its lines."""
        here = (lock.write if write else lock.read).value
        one = min((t.value for t in (lock.read, lock.write) if t.value > 0), default=1.0)
        hand_overs = here / one  # of a write that takes the lock several times
        return here + hand_overs * self._away * lock.lines.value * REMOTE_LINE_PS


class BitmapFile:
    """An external bitmap of md: a page of a file that is written before a region gets dirty.

    All writes that wait when a page's write begins are noted by it, so the file is a server that
    works in rounds. Where the file is, md does not care: its time is a number of the engine.
    Source: Linux drivers/md/md-bitmap.c, md_bitmap_unplug and write_file_page.
    """

    def __init__(self, b: Builder, volume: Volume) -> None:
        self._b = b
        self._volume = volume
        self._program = -1

    @property
    def is_written(self) -> bool:
        """True if the volume has such a file, and writing it takes time."""
        return self._volume.bitmap == "external" and self._volume.engine.bitmap_file.value >= 1

    def noted(self, table: PlanTable, *, sequential: bool, region: int) -> PlanTable:
        """*table* with the page's write before the first write to each *region* of the volume."""
        share = table.request_bytes / region if sequential else self._volume.first_dirty
        return with_rare_phase(table, PAGE_WRITE, min(share, 1.0))

    def program(self) -> int:
        """First operation of a page's write."""
        if self._program < 0:
            page = Batches(MOST_NOTED, round(self._volume.engine.bitmap_file.value))
            station = self._b.named(
                f"{self._volume.name} bitmap file", "raid-engine", Kind.ROUNDS,
                own=page, resource="bitmap-file",
            )  # fmt: skip
            self._program = self._b.program([const(station, 1), op(Op.END)])
        return self._program
