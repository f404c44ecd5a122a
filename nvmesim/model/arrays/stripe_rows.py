"""The rows of md's RAID5/6: raid5d, its workers, and the locks that they share.

A write is handled in rows of 4 KiB across the members, whatever its size. Without
``group_thread_cnt`` one thread, raid5d, handles all of them: a station with one server. It sleeps
when it has no row to handle, and a write comes to it three times: when it is submitted, when what
it reads has come, and when its members have written; each time a raid5d that sleeps must be woken
(md_wakeup_thread), which a lone write waits for and a busy array never does. With
workers a row holds one of them, runs on a CPU, and passes the stripe cache's locks, which the
submitting threads pass, too. How long these take grows with the CPUs that take part, because their
lines go round. Source: Linux drivers/md/raid5.c (raid5d, raid5_do_work, handle_stripe).
"""

from __future__ import annotations

from typing import Final

from nvmesim.catalog.engine_profile import RowCosts
from nvmesim.model.arrays.engine_locks import spinning
from nvmesim.network.builder import Builder, Row, WakeUp, const, op
from nvmesim.network.network import Kind, Op
from nvmesim.scenario.resolved import ResolvedScenario, Volume, WorkloadGroup

HAND_OFFS: Final = 3
"""Times that a write wakes raid5d. Source: raid5.c: raid5_make_request, and the ends of what its
members read and write, release stripes."""


class StripeRows:
    """The threads that handle the rows of one volume."""

    def __init__(self, b: Builder, scenario: ResolvedScenario, volume: Volume) -> None:
        assert volume.engine.rows is not None
        self._b = b
        self._scenario = scenario
        self._volume = volume
        self._costs: RowCosts = volume.engine.rows
        self._socket = scenario.drives[volume.members[0]].socket
        self._workers = volume.workers
        self._thread = self._restoring = -1
        self._gate = self._lock = -1
        if self._workers:
            self._with_workers()

    def _with_workers(self) -> None:
        b, name = self._b, self._volume.name
        self._gate = b.station(f"{name} workers", Kind.GATE, self._workers)
        b.report(f"{name} workers", "raid-engine", self._gate, resource="engine-threads")
        self._lock = spinning(b, f"{name} stripe locks")

    def _raid5d(self) -> int:
        """The one thread, made when a row first needs it."""
        if self._thread < 0:
            name = f"{self._volume.name} raid5d"
            wake_ups = self._wake_ups()
            kind = Kind.FIFO if wake_ups is None else Kind.SLEEPER
            self._thread = self._b.station(name, kind, own=wake_ups)
            self._b.report(
                name, "raid-engine", self._thread, socket=self._socket,
                resource="engine-threads", burns="service",
            )  # fmt: skip
        return self._thread

    def _wake_ups(self) -> WakeUp | None:
        """Those of a write, in the visit that has its work: three, each after a third of the sleep.

        So a write comes to raid5d once and not three times. None if nobody writes.
        """
        groups = self._scenario.workload
        if not any(self._is_target_of(g) and (g.read < 1 or g.trace is not None) for g in groups):
            return None
        once = round(self._ps(self._costs.wakeup.value))
        return WakeUp(HAND_OFFS * once, HAND_OFFS * round(self._costs.wakeup_half.value))

    # -- times ----------------------------------------------------------------------------------

    def _ps(self, cycles: float) -> float:
        stretch = 1 / (1 - self._scenario.background)
        return cycles * stretch * 1e3 / self._scenario.sockets[self._socket].ghz

    def row_ps(self, reads: float = 1.0) -> float:
        """Time of a row on its thread; *reads* is the share of rows that must be read first."""
        costs = self._costs
        cycles = costs.base.value + costs.per_member.value * len(self._volume.members)
        whole = costs.whole.value
        return self._ps(cycles * (whole + (1 - whole) * reads))

    def restored_row_ps(self) -> float:
        """Time of a row of a rebuild, its commands included where they do not merge."""
        costs, n = self._costs, len(self._volume.members)
        base = costs.base if costs.restore is None else costs.restore
        alone = costs.merged_members is not None and n > costs.merged_members
        return self._ps(base.value + costs.per_member.value * n) + alone * n * costs.unmerged.value

    def lock_ps(self) -> float:
        """Time that the locks of one row take, by the CPUs that take part."""
        cpus = sum(socket.logical_cpus for socket in self._scenario.sockets)
        takers = min(cpus, self._workers + self._submitters())
        return self._ps(self._costs.shared.value * takers)

    def _submitters(self) -> int:
        return sum(g.n_threads for g in self._scenario.workload if self._is_target_of(g))

    def _is_target_of(self, group: WorkloadGroup) -> bool:
        mine = ("volume", self._volume.index)
        return any((t.kind, t.index) == mine for t in group.targets)

    # -- programs -------------------------------------------------------------------------------

    def submit_rows(self, n: int) -> list[Row]:
        """The stripe cache's locks as the submitting thread of *n* rows passes them: half."""
        return [] if self._lock < 0 else [const(self._lock, round(n * self.lock_ps() / 2))]

    def write_rows(self, n: int, reads: float, xor_ps: float) -> list[Row]:
        """Handling of *n* rows, their parity computed on the way."""
        return self._handled(round(n * self.row_ps(reads) + xor_ps), n)

    def read_rows(self, n: int, lost: float) -> list[Row]:
        """Handling of reads of which *lost* (a share) must be computed from the other members."""
        return self._handled(round(n * self.row_ps(0.0) * lost), n) if lost > 0 else []

    def _handled(self, time: int, n: int) -> list[Row]:
        if not self._workers:
            return [const(self._raid5d(), time)]
        return [
            op(Op.ACQUIRE, self._gate, 1),
            op(Op.VISIT_CPU, 0, -1, max(1, time)),
            const(self._lock, round(n * self.lock_ps() / 2)),
            op(Op.RELEASE, self._gate, 1),
        ]

    def restore_rows(self, n: int, xor_ps: float) -> list[Row]:
        """Handling of *n* rows of a rebuild or check.

        Workers take part with a share of their rate only: one thread asks for the rows.
        """
        if not self._workers:
            return [const(self._raid5d(), round(n * self.restored_row_ps() + xor_ps))]
        if self._restoring < 0:
            name = f"{self._volume.name} rebuild's threads"
            self._restoring = self._b.station(name, Kind.FIFO)
            self._b.report(name, "raid-engine", self._restoring, resource="engine-threads")
        speed = 1 + (self._workers - 1) * self._costs.restore_scales.value
        return [const(self._restoring, round((n * self.restored_row_ps() + xor_ps) / speed))]
