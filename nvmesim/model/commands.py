"""Commands of drives: their programs, and a drive that is a target of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.catalog.profile import DriveProfile
from nvmesim.model.drive import DriveModel
from nvmesim.model.lowered import ChildInfo
from nvmesim.model.path import Paths
from nvmesim.model.request_kinds import JOURNAL, RECORD, Access, RequestKind, commit_rows
from nvmesim.network.builder import Builder, ChildRow, Plans, Row, ints, op
from nvmesim.network.network import Kind, Op
from nvmesim.raid.arrays import PlanTable, TableChild
from nvmesim.scenario.resolved import ResolvedScenario

Queue = Callable[[int, bool], int]
"""Called with a drive and whether it is written: the gate that its commands pass."""


@dataclass(frozen=True)
class Planned:
    """The plans of one kind of request: where its order lies, and how many phases it has."""

    order_start: int
    order_len: int
    n_phases: int
    flush_phase: int = -1
    """The phase behind them in which every member is flushed; -1: none. With a journal two more
    follow: the record of a commit, and what is written before it."""


class Sent(NamedTuple):
    """What is sent to a drive: a command of *n_bytes*, 0 for a flush."""

    write: bool
    n_bytes: int
    memory: int
    direct: bool  # it ends at the drive's port
    access: Access


class Commands:
    """Programs of drive commands, each made once."""

    def __init__(
        self, b: Builder, scenario: ResolvedScenario, drives: dict[int, DriveModel], paths: Paths,
        plans: Plans,
    ) -> None:  # fmt: skip
        self.b = b
        self._scenario = scenario
        self.drives = drives
        self._paths = paths
        self.plans = plans
        self.infos: list[ChildInfo] = []
        self._programs: dict[tuple[int, Sent, int], int] = {}

    def _program(self, drive: int, sent: Sent, gate: int) -> int:
        """First operation of a command; *gate*, if any, is held from its start to its end."""
        key = (drive, sent, gate)
        if key not in self._programs:
            write, n_bytes, memory, direct, access = sent
            self.drives[drive].check(write)
            model = self.drives[drive]
            rows = model.rows(write, n_bytes, access) if n_bytes else model.flush_rows()
            where = self._scenario.drives[drive]
            way = [] if direct else self._paths.rows(where, memory, write, n_bytes)
            rows = way + rows if write else rows + way
            if gate >= 0:
                rows = [op(Op.ACQUIRE, gate, 1), *rows, op(Op.RELEASE, gate, 1)]
            self._programs[key] = self.b.program([*rows, op(Op.END)])
        return self._programs[key]

    def child(
        self, drives: tuple[int, ...], sent: Sent, bios: int = 1, queue: Queue | None = None
    ) -> ChildRow:
        """One child of a plan, with what it stands for."""
        self.infos += [ChildInfo(drive, sent.write, sent.n_bytes, bios) for drive in drives]
        gates = {d: -1 if queue is None else queue(d, sent.write) for d in drives}
        return ChildRow(tuple(self._program(d, sent, gates[d]) for d in drives), drives)

    def bind(
        self, table: PlanTable, drives: tuple[int, ...], memory: int, direct: bool, access: Access,
        own: frozenset[int] = frozenset(), elsewhere: Mapping[int, int] = MappingProxyType({}),
        queue: Queue | None = None,
    ) -> tuple[int, int]:  # fmt: skip
        """Add a table's plans, its members being *drives*; return the first id and the phases.

        *own* are the phases of each plan that write what md keeps for itself, past any cache;
        *elsewhere* those whose children are not a drive's, with the program of each; *queue* has
        the gate that the commands of a drive pass.
        """
        made: dict[tuple[TableChild, bool], tuple[ChildRow, list[ChildInfo]]] = {}
        children: list[ChildRow] = []
        alternatives = table.child_alt.tolist()
        for (low, high), write, n_bytes, bios, phase in zip(
            pairwise(table.child_alt_ptr.tolist()), table.child_is_write.tolist(),
            table.child_bytes.tolist(), table.child_bios.tolist(), _phases(table), strict=True,
        ):  # fmt: skip
            if phase in elsewhere:
                self.infos.append(ChildInfo(-1, write, n_bytes, bios))
                children.append(ChildRow((elsewhere[phase],), (drives[alternatives[low]],)))
                continue
            through = access.through or phase in own
            key = (tuple(alternatives[low:high]), write, n_bytes, bios), through
            if key not in made:  # rows of md repeat the same few children
                where = tuple(drives[m] for m in key[0][0])
                this = replace(access, through=through)
                sent = Sent(write, n_bytes, memory, direct, this)
                new = self.child(where, sent, bios, queue)
                made[key] = new, self.infos[-len(where) :]
            else:
                self.infos += made[key][1]
            children.append(made[key][0])
        phases = [children[a:b] for a, b in pairwise(table.phase_child_ptr.tolist())]
        marks = table.plan_phase_ptr.tolist()
        ids = [self.plans.plan(phases[a:b]) for a, b in pairwise(marks)]
        return ids[0], max(b - a for a, b in pairwise(marks))

    def sector(self, drives: tuple[int, ...]) -> int:
        """Largest physical sector among *drives*, bytes."""
        profiles = [self._scenario.drives[d].profile for d in drives]
        return max(round(p.physical_sector.value) for p in profiles)


def _phases(table: PlanTable) -> list[int]:
    """Phase of each child of *table*, counted within its plan."""
    first = np.repeat(table.plan_phase_ptr[:-1], np.diff(table.plan_phase_ptr))
    number = np.arange(len(table.phase_child_ptr) - 1) - first
    phases: list[int] = np.repeat(number, np.diff(table.phase_child_ptr)).tolist()
    return phases


def is_flushed(profile: DriveProfile, kind: RequestKind) -> bool:
    """True if a flush behind *kind* reaches a drive: Linux ends it before one that need not.

    Latencies of a capture do not say whether their drive needs any.
    """
    return kind.flushes_all or profile.write.volatile or profile.latencies is not None


def aligned_order(aligned: Ints, misaligned: Ints, share: tuple[int, int]) -> Ints:
    """An order in which *share* = (m, n) of the requests take their plan from *misaligned*.

    >>> aligned_order(ints([0, 1]), ints([2, 3]), (1, 2)).tolist()
    [2, 3, 0, 1]
    """
    m, n = share
    return ints(np.concatenate([*[misaligned] * m, *[aligned] * (n - m)]))


class DriveTarget:
    """One drive that is a target of its own (JBOD)."""

    def __init__(self, drive: int, commands: Commands) -> None:
        self._drive = drive
        self._commands = commands
        self._turn = -1
        self.members = (drive,)

    def plan(self, kind: RequestKind) -> Planned:
        """One plan of one command; another for those that start inside a physical sector."""
        share = kind.misaligned(self._commands.sector(self.members))
        order = aligned_order(
            ints([self._plan(kind, False)] if share[0] < share[1] else []),
            ints([self._plan(kind, True)] if share[0] else []),
            share,
        )
        start, length = self._commands.plans.add_order(order)
        return Planned(start, length, 1, 1 if kind.flushes and self._is_asked(kind) else -1)

    def _is_asked(self, kind: RequestKind) -> bool:
        """True if a flush behind *kind* sends the drive anything."""
        profile = self._commands.drives[self.members[0]].profile
        return is_flushed(profile, kind) or bool(kind.journal)

    def _plan(self, kind: RequestKind, misaligned: bool) -> int:
        def phase(write: bool, n_bytes: int, access: Access) -> list[ChildRow]:
            sent = Sent(write, n_bytes, kind.memory, False, access)
            return [self._commands.child(self.members, sent)]

        access = replace(kind.drive_access, misaligned=misaligned)
        phases = [phase(kind.write, kind.n_bytes, access)]
        if kind.flushes and self._is_asked(kind):
            flushed = is_flushed(self._commands.drives[self.members[0]].profile, kind)
            phases.append(phase(True, 0, kind.drive_access) if flushed else [])
        if kind.journal:
            phases.append(phase(True, RECORD, Access(sequential=True, through=True)))
            before = JOURNAL[kind.journal]
            phases.append(phase(True, before, Access(sequential=True)) if before else [])
        return self._commands.plans.plan(phases)

    def request_rows(self, kind: RequestKind, n_phases: int) -> list[Row]:
        """The command itself."""
        return [op(Op.FORK, 0)]

    def flush_rows(self, kind: RequestKind, phase: int) -> list[Row]:
        """The flush that follows a write."""
        if phase < 0 or not kind.journal:
            return [op(Op.FORK, phase)] if phase >= 0 else []
        if self._turn < 0:
            self._turn = self._commands.b.station(f"drive{self.members[0]} journal", Kind.TURN)
        return commit_rows(
            self._turn, [op(Op.FORK, phase)], op(Op.FORK, phase + 1), [op(Op.FORK, phase + 2)]
        )
