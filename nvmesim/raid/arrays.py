"""Plans as flat arrays: what a kernel reads to fork one volume request into member commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nvmesim.array_types import Bools, Ints
from nvmesim.raid.planner.budget import check_offsets, keep
from nvmesim.raid.planner.pieces import RawChild

Int32s = NDArray[np.int32]

TableChild = tuple[tuple[int, ...], bool, int, int]
"""Member alternatives, is a write, bytes, bios."""
TablePlan = tuple[tuple[TableChild, ...], ...]

MAX_ORDER: Final = 1 << 20
"""Most entries of an order that is lengthened to hold a rare plan."""


@dataclass(frozen=True)
class PlanTable:
    """Every plan of one access pattern, and how often or in which order they come.

    Plan p has phases ``plan_phase_ptr[p]`` to ``plan_phase_ptr[p + 1]``, phase f has children
    ``phase_child_ptr[f]`` to ``phase_child_ptr[f + 1]``, child c may go to members
    ``child_alt[child_alt_ptr[c]:child_alt_ptr[c + 1]]``, in order of preference. All plans have the
    same number of phases. Random access draws ``order[floor(u * len(order))]``; a sequential stream
    takes the entries of ``order`` in turn, again and again.
    """

    plan_phase_ptr: Ints  # int64[n_plans + 1]
    phase_child_ptr: Ints  # int64[n_phases + 1]
    child_member: Int32s  # int32[n_children], the first alternative
    child_alt_ptr: Ints  # int64[n_children + 1]
    child_alt: Int32s  # int32[n_alternatives], member
    child_is_write: Bools  # bool[n_children]
    child_bytes: Ints  # int64[n_children]
    child_bios: Int32s  # int32[n_children]
    order: Int32s  # int32[period], plan
    n_members: int
    request_bytes: int
    is_sequential: bool = False
    read_policy: str = "md"

    @property
    def n_plans(self) -> int:
        """Distinct plans."""
        return len(self.plan_phase_ptr) - 1

    def plan(self, index: int) -> TablePlan:
        """Plan *index* as nested tuples, to look at."""
        phases = []
        for phase in range(self.plan_phase_ptr[index], self.plan_phase_ptr[index + 1]):
            children = range(self.phase_child_ptr[phase], self.phase_child_ptr[phase + 1])
            phases.append(tuple(self._child(child) for child in children))
        return tuple(phases)

    def _child(self, child: int) -> TableChild:
        low, high = self.child_alt_ptr[child], self.child_alt_ptr[child + 1]
        return (
            tuple(self.child_alt[low:high].tolist()),
            bool(self.child_is_write[child]),
            int(self.child_bytes[child]),
            int(self.child_bios[child]),
        )


@dataclass(frozen=True)
class Expectation:
    """Exact means per request over one table.

    Member arrays are float64[n_members]; a read that any of several copies may serve counts for the
    first of them.
    """

    reads: float
    writes: float
    read_bios: float
    write_bios: float
    read_bytes: float
    write_bytes: float
    member_reads: NDArray[np.float64]
    member_writes: NDArray[np.float64]
    member_read_bytes: NDArray[np.float64]
    member_write_bytes: NDArray[np.float64]


def table_plan(phases: Sequence[Sequence[RawChild]]) -> TablePlan:
    """A raw plan without its member offsets, children in a fixed order.

    >>> table_plan([[((1,), False, 8192, 4096, 1), ((0,), False, 0, 4096, 1)]])
    ((((0,), False, 4096, 1), ((1,), False, 4096, 1)),)
    """
    return tuple(
        tuple(sorted((alts, is_write, size, bios) for alts, is_write, _, size, bios in children))
        for children in phases
    )


class PlanSet:
    """Collects plans and gives equal ones the same number."""

    def __init__(self) -> None:
        self._numbers: dict[TablePlan, int] = {}

    def add(self, plan: TablePlan) -> int:
        """Number of *plan*; LimitError if all of them take more memory than there is."""
        if plan not in self._numbers:
            keep(sum(map(len, plan)))
        return self._numbers.setdefault(plan, len(self._numbers))

    @property
    def plans(self) -> list[TablePlan]:
        """The plans by number."""
        return list(self._numbers)


def build_table(
    plans: Sequence[TablePlan],
    order: NDArray[np.integer],
    n_members: int,
    request_bytes: int,
    *,
    is_sequential: bool = False,
    read_policy: str = "md",
) -> PlanTable:
    """Flat arrays of *plans*; all must have the same number of phases.

    >>> build_table([((((0, 1), False, 4096, 1),),)], np.zeros(1, np.int32), 2, 4096).child_alt
    array([0, 1], dtype=int32)
    """
    phases = [phase for plan in plans for phase in plan]
    children = [child for phase in phases for child in phase]
    return PlanTable(
        plan_phase_ptr=_pointers([len(plan) for plan in plans]),
        phase_child_ptr=_pointers([len(phase) for phase in phases]),
        child_member=np.array([child[0][0] for child in children], np.int32),
        child_alt_ptr=_pointers([len(child[0]) for child in children]),
        child_alt=np.array([member for child in children for member in child[0]], np.int32),
        child_is_write=np.array([child[1] for child in children], np.bool_),
        child_bytes=np.array([child[2] for child in children], np.int64),
        child_bios=np.array([child[3] for child in children], np.int32),
        order=order.astype(np.int32),
        n_members=n_members,
        request_bytes=request_bytes,
        is_sequential=is_sequential,
        read_policy=read_policy,
    )


def _pointers(lengths: Sequence[int]) -> Ints:
    pointers = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=pointers[1:])
    return pointers


def turned(table: PlanTable, n_turns: int, step: int) -> PlanTable:
    """The plans of *table* for every turn of a rotating layout: turn t moves members by t * step.

    Orders are laid one after the other.
    """
    keep(len(table.child_member) * (n_turns - 1))
    check_offsets(len(table.order) * n_turns)
    turns = np.repeat(np.arange(n_turns) * step, len(table.child_member))
    alt_turns = np.repeat(np.arange(n_turns) * step, len(table.child_alt))
    members = (np.tile(table.child_member, n_turns) + turns) % table.n_members
    alternatives = (np.tile(table.child_alt, n_turns) + alt_turns) % table.n_members
    offsets = np.repeat(np.arange(n_turns) * table.n_plans, len(table.order))
    return replace(
        table,
        plan_phase_ptr=_tile_pointers(table.plan_phase_ptr, n_turns),
        phase_child_ptr=_tile_pointers(table.phase_child_ptr, n_turns),
        child_member=members.astype(np.int32),
        child_alt_ptr=_tile_pointers(table.child_alt_ptr, n_turns),
        child_alt=alternatives.astype(np.int32),
        child_is_write=np.tile(table.child_is_write, n_turns),
        child_bytes=np.tile(table.child_bytes, n_turns),
        child_bios=np.tile(table.child_bios, n_turns),
        order=(np.tile(table.order, n_turns) + offsets).astype(np.int32),
    )


def _tile_pointers(pointers: Ints, n_turns: int) -> Ints:
    return _pointers(np.tile(np.diff(pointers), n_turns).tolist())


def mixed(tables: Sequence[PlanTable], weights: Sequence[int]) -> PlanTable:
    """One random-access table of several: *weights* are the parts that each takes of the volume."""
    plans = PlanSet()
    orders: list[Int32s] = []
    lengths = [len(table.order) for table in tables]
    for table, weight, length in zip(tables, weights, lengths, strict=True):
        numbers = np.array([plans.add(table.plan(i)) for i in range(table.n_plans)], np.int32)
        share = Fraction(weight, sum(weights))
        orders.append(np.resize(numbers[table.order], _mixed_length(share, length, lengths)))
    first = tables[0]
    return build_table(
        plans.plans,
        np.concatenate(orders),
        first.n_members,
        first.request_bytes,
        is_sequential=first.is_sequential,
        read_policy=first.read_policy,
    )


def _mixed_length(share: Fraction, length: int, lengths: Sequence[int]) -> int:
    """Entries of an order that takes *share* of a mix: whole periods, so that it stays exact.

    The share is kept to one part in 1000 or better: periods are short against the total.
    """
    total = min(max(1000 * max(lengths), 4096), MAX_ORDER)
    periods = round(share * total / length)
    return max(periods, 1 if share else 0) * length


def with_rare_phase(table: PlanTable, phase: Sequence[RawChild], share: float) -> PlanTable:
    """*table* with *phase* in front of a *share* of its requests, evenly spaced.

    >>> base = build_table([((((0,), True, 4096, 1),),)], np.zeros(1, np.int32), 1, 4096)
    >>> with_rare_phase(base, [((0,), True, 0, 512, 1)], 0.25).order
    array([1, 0, 0, 0], dtype=int32)
    """
    front = table_plan([phase])[0]
    plain = [((), *table.plan(i)) for i in range(table.n_plans)]
    dirty = [(front, *table.plan(i)) for i in range(table.n_plans)] if share > 0 else []
    period = len(table.order)
    if share > 0:
        wanted = min(int(np.ceil(1 / share)), MAX_ORDER)
        period = period * -(-wanted // period)
    order = np.resize(table.order, period)
    if dirty:
        n_dirty = max(1, round(share * period))
        order[np.arange(n_dirty) * period // n_dirty] += table.n_plans
    return build_table(
        plain + dirty,
        order,
        table.n_members,
        table.request_bytes,
        is_sequential=table.is_sequential,
        read_policy=table.read_policy,
    )


def with_last_phase(table: PlanTable, phase: Sequence[RawChild]) -> PlanTable:
    """*table* with *phase* behind every plan: a flush.

    >>> base = build_table([((((0,), True, 4096, 1),),)], np.zeros(1, np.int32), 1, 4096)
    >>> with_last_phase(base, [((0,), True, 0, 0, 1)]).plan(0)
    ((((0,), True, 4096, 1),), (((0,), True, 0, 1),))
    """
    last = table_plan([phase])[0]
    return build_table(
        [(*table.plan(i), last) for i in range(table.n_plans)],
        table.order,
        table.n_members,
        table.request_bytes,
        is_sequential=table.is_sequential,
        read_policy=table.read_policy,
    )


def expectation(table: PlanTable) -> Expectation:
    """Exact means per request of *table*: commands, bios and bytes, in all and by member.

    >>> base = build_table([((((0,), True, 4096, 1),),)], np.zeros(1, np.int32), 1, 4096)
    >>> expectation(base).writes
    1.0
    """
    weights = np.bincount(table.order, minlength=table.n_plans) / len(table.order)
    per_phase = np.repeat(weights, np.diff(table.plan_phase_ptr))
    weight = np.repeat(per_phase, np.diff(table.phase_child_ptr))
    write = weight * table.child_is_write
    read = weight - write

    def by_member(values: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.bincount(table.child_member, weights=values, minlength=table.n_members)
        return sums.astype(np.float64)

    return Expectation(
        reads=float(read.sum()),
        writes=float(write.sum()),
        read_bios=float(read @ table.child_bios),
        write_bios=float(write @ table.child_bios),
        read_bytes=float(read @ table.child_bytes),
        write_bytes=float(write @ table.child_bytes),
        member_reads=by_member(read),
        member_writes=by_member(write),
        member_read_bytes=by_member(read * table.child_bytes),
        member_write_bytes=by_member(write * table.child_bytes),
    )
