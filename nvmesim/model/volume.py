"""Targets of a workload: a drive by itself, or a RAID volume with its engine.

A target yields, for one kind of request (operation, size) from one socket, the program of the
request and the plans it draws from. What RAID does is in the plan tables of `raid_table`; here
their children get the programs of real drives.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from nvmesim.catalog.links import command_time_ps, parse_link
from nvmesim.model.builder import Builder, Child, Plans, Row, const, ints, op
from nvmesim.model.drive import DriveModel
from nvmesim.model.lowered import ChildInfo
from nvmesim.model.path import Paths
from nvmesim.model.raid_geometry import RaidGeometry
from nvmesim.model.raid_table import PlanTable, plan_table
from nvmesim.network import Kind, Op
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Volume
from nvmesim.units import PS_PER_S

Access = Literal["random", "sequential"]


@dataclass(frozen=True)
class RequestKind:
    """What a group does to a target: one operation, one size, from one socket's memory."""

    write: bool
    n_bytes: int
    access: Access
    align: int
    offset: int
    span: int | None
    depth: int
    """Requests in flight at the target: a sequential stream coalesces with it (md, RAID5/6)."""
    socket: int
    memory: int


@dataclass(frozen=True)
class Planned:
    """The plans of one kind of request: where its order lies, and how many phases it has."""

    order_start: int
    order_len: int
    n_phases: int


class Commands:
    """Programs of drive commands, each made once."""

    def __init__(
        self,
        b: Builder,
        scenario: ResolvedScenario,
        drives: dict[int, DriveModel],
        paths: Paths,
        plans: Plans,
    ) -> None:
        self._b = b
        self._scenario = scenario
        self._drives = drives
        self._paths = paths
        self.plans = plans
        self.infos: list[ChildInfo] = []
        self._programs: dict[tuple[int, bool, int, int, bool], int] = {}

    def program(self, drive: int, write: bool, n_bytes: int, memory: int, direct: bool) -> int:
        """First operation of a command of *n_bytes*; *direct*: it ends at the drive's port."""
        key = (drive, write, n_bytes, memory, direct)
        if key not in self._programs:
            rows = self._drives[drive].rows(write, max(1, n_bytes))
            way: list[Row] = []
            if not direct:
                where: Drive = self._scenario.drives[drive]
                way = self._paths.rows(where, memory, write, n_bytes)
            rows = way + rows if write else rows + way
            self._programs[key] = self._b.program([*rows, op(Op.END)])
        return self._programs[key]

    def child(
        self,
        drives: tuple[int, ...],
        write: bool,
        n_bytes: int,
        bios: int,
        memory: int,
        direct: bool,
    ) -> Child:
        """One child of a plan, with what it stands for."""
        for drive in drives:
            self.infos.append(ChildInfo(drive, write, n_bytes, bios))
        programs = tuple(self.program(d, write, n_bytes, memory, direct) for d in drives)
        return Child(programs, drives)


class DriveTarget:
    """One drive that is a target of its own (JBOD)."""

    def __init__(self, drive: int, commands: Commands) -> None:
        self._drive = drive
        self._commands = commands
        self.members = (drive,)

    def plan(self, kind: RequestKind) -> Planned:
        """One plan of one command."""
        child = self._commands.child(
            (self._drive,), kind.write, kind.n_bytes, 1, kind.memory, direct=False
        )
        plan = self._commands.plans.plan([[child]])
        start, length = self._commands.plans.add_order(ints([plan]))
        return Planned(start, length, 1)

    def before_rows(self, kind: RequestKind) -> list[Row]:
        """Return what precedes the commands: nothing."""
        return []

    def between_rows(self, kind: RequestKind, phase: int, n_phases: int) -> list[Row]:
        """Return what lies between two phases: nothing."""
        return []

    def after_rows(self, kind: RequestKind) -> list[Row]:
        """Return what follows the commands: nothing."""
        return []


class VolumeTarget:
    """A RAID volume: its geometry, its engine's stations, its members."""

    def __init__(
        self,
        b: Builder,
        scenario: ResolvedScenario,
        volume: Volume,
        commands: Commands,
        paths: Paths,
    ) -> None:
        self._scenario = scenario
        self._volume = volume
        self._commands = commands
        self._engine = volume.engine
        self.members = volume.members
        self._on_controller = self._engine.runs_on == "controller"
        self._serial = b.station(f"{volume.name} engine", Kind.FIFO, self._workers())
        self._used = self._engine.serial_read.value + self._engine.serial_write.value > 0
        if self._used or self._engine.serial_child.value > 0:
            b.report(f"{volume.name} engine", "raid-engine", self._serial, resource="engine")
        self._uplink = (-1, -1)
        if self._on_controller and self._engine.uplink:
            self._link = parse_link(self._engine.uplink)
            self._uplink = paths.link_pair(volume.name, self._link)
        self.geometry = volume_geometry(volume)

    def _workers(self) -> int:
        return max(1, round(self._engine.workers.value))

    def plan(self, kind: RequestKind) -> Planned:
        """The plan table of *kind*, its children bound to the members' drives."""
        table = plan_table(
            self.geometry,
            "write" if kind.write else "read",
            kind.n_bytes,
            access=kind.access,
            align=kind.align,
            offset=kind.offset,
            span=kind.span,
            depth=kind.depth,
        )
        first, n_phases = self._bind(table, kind.memory)
        start, length = self._commands.plans.add_order(table.order.astype(np.int64) + first)
        return Planned(start, length, n_phases)

    def _bind(self, table: PlanTable, memory: int) -> tuple[int, int]:
        """Add the table's plans; return the first one's id and the number of phases."""
        children = [self._bound_child(table, i, memory) for i in range(len(table.child_bytes))]
        bounds = table.phase_child_ptr.tolist()
        phases = [children[a:b] for a, b in pairwise(bounds)]
        marks = table.plan_phase_ptr.tolist()
        ids = [self._commands.plans.plan(phases[a:b]) for a, b in pairwise(marks)]
        return ids[0], max(b - a for a, b in pairwise(marks))

    def _bound_child(self, table: PlanTable, i: int, memory: int) -> Child:
        alternatives = table.child_alt[table.child_alt_ptr[i] : table.child_alt_ptr[i + 1]]
        drives = tuple(self._volume.members[m] for m in alternatives.tolist())
        return self._commands.child(
            drives,
            bool(table.child_is_write[i]),
            int(table.child_bytes[i]),
            int(table.child_bios[i]),
            memory,
            self._on_controller,
        )

    def host_cycles(self) -> tuple[float, float]:
        """Host cycles per request and per child, 0 for an engine on a controller."""
        if self._on_controller:
            return 0.0, 0.0
        return self._engine.per_request.value, self._engine.per_child.value

    def before_rows(self, kind: RequestKind) -> list[Row]:
        """Serial section of the engine, and a controller's uplink for the data of a write."""
        serial = self._engine.serial_write if kind.write else self._engine.serial_read
        each = round(self._engine.serial_child.value)
        latency = round(self._engine.latency.value)
        rows = []
        if serial.value > 0 or each > 0 or latency > 0:
            service = max(1, round(serial.value))
            rows.append(op(Op.VISIT, self._serial, -1, service, latency, each))
        if self._uplink[1] >= 0 and kind.write:
            time = command_time_ps(self._link, "write", kind.n_bytes, "down")
            rows.append(const(self._uplink[1], time))
        return rows

    def between_rows(self, kind: RequestKind, phase: int, n_phases: int) -> list[Row]:
        """Parity is computed before the last phase of a RAID5/6 write, on a host CPU."""
        parity = self._volume.level in ("raid5", "raid6")
        if not (parity and kind.write and phase == n_phases - 1):
            return []
        time = round(kind.n_bytes * PS_PER_S / self._engine.parity_rate.value)
        if self._on_controller:
            return [const(self._serial, time)] if self._used else []
        return [op(Op.VISIT_CPU, 0, -1, max(1, time))]

    def after_rows(self, kind: RequestKind) -> list[Row]:
        """A controller's uplink for the data of a read."""
        if self._uplink[0] < 0 or kind.write:
            return []
        time = command_time_ps(self._link, "read", kind.n_bytes, "up")
        return [const(self._uplink[0], time)]


def volume_geometry(volume: Volume) -> RaidGeometry:
    """The planner's geometry of a resolved volume."""
    layout = volume.layout or None
    if volume.level == "raid10":
        layout = f"{volume.layout}{volume.copies}"
    return RaidGeometry(
        level=volume.level,  # type: ignore[arg-type]  # a name is accepted and normalised
        members=len(volume.members),
        chunk=volume.chunk if volume.level != "raid1" else 0,
        layout=layout,
        degraded=volume.degraded,
        rmw_level=volume.rmw_level,
        kernel=volume.engine.merge if volume.engine.merge != "none" else "6.12",
        read_policy=volume.read_policy,
        bitmap="none",
        stripe_cache=volume.stripe_cache,
        member_size=volume.member_bytes or None,
    )
