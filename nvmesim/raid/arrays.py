"""Plans as flat arrays: what a kernel reads to fork one volume request into member commands.

Read balancing that is not a member's load alone changes them: which copy a read goes to, or is
offered first. md's own rule needs no change of a table: an engine sends a child to the alternative
with the fewest outstanding commands, the first of equals. Source: md ground truth, raid1 and
raid10.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nvmesim.array_types import Bools, Ints
from nvmesim.raid.planner.pieces import RawChild, check_offsets, keep

Int32s = NDArray[np.int32]

TableChild = tuple[tuple[int, ...], bool, int, int]  # member alternatives, is a write, bytes, bios
TablePlan = tuple[tuple[TableChild, ...], ...]

STREAM_RUN: Final = 2048
"""Requests of a stream that stay on one member of a raid1 before the model turns to the next."""
LEFT: Final = 128 << 10
"""Bytes that a stream reads of one member before it leaves for another: the optimal I/O size that
drives of NVMe and SAS state. Assumed; 1 and 2 MiB requests alternate (`R15-2` of
`calibration/held-out`; four SAS mirrors read 3.6 to 4 times what one does)."""
MAX_ORDER: Final = 1 << 20  # most entries of an order that is lengthened to hold a rare plan


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

    @property
    def mean_children(self) -> float:
        """Children of a request, over the order in which plans come."""
        first = self.phase_child_ptr[self.plan_phase_ptr]
        return float(np.diff(first)[self.order].mean())

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

    @property
    def plans(self) -> list[TablePlan]:
        """All plans, by number."""
        return [self.plan(i) for i in range(self.n_plans)]

    def with_plans(self, plans: Sequence[TablePlan], order: NDArray[np.integer]) -> PlanTable:
        """The same requests with other *plans* in another *order*."""
        return build_table(
            plans, order, self.n_members, self.request_bytes,
            is_sequential=self.is_sequential, read_policy=self.read_policy,
        )  # fmt: skip


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

    def add(self, plans: Iterable[TablePlan]) -> Int32s:
        """Number of each of *plans*; LimitError if all take more memory than there is."""
        found = []
        for plan in plans:
            if plan not in self._numbers:
                keep(sum(map(len, plan)))
            found.append(self._numbers.setdefault(plan, len(self._numbers)))
        return np.array(found, np.int32)

    @property
    def plans(self) -> list[TablePlan]:
        """The plans by number."""
        return list(self._numbers)


def collected(
    plans: Iterable[Sequence[Sequence[RawChild]]], n_members: int, request_bytes: int, *,
    is_sequential: bool = False,
) -> PlanTable:  # fmt: skip
    """The table of raw plans that come in this order."""
    distinct = PlanSet()
    order = distinct.add(map(table_plan, plans))
    return build_table(distinct.plans, order, n_members, request_bytes, is_sequential=is_sequential)


def build_table(
    plans: Sequence[TablePlan], order: NDArray[np.integer], n_members: int, request_bytes: int, *,
    is_sequential: bool = False, read_policy: str = "md",
) -> PlanTable:  # fmt: skip
    """Flat arrays of *plans*; all must have the same number of phases.

    >>> build_table([((((0, 1), False, 4096, 1),),)], np.zeros(1, np.int32), 2, 4096).child_alt
    array([0, 1], dtype=int32)
    """
    phases = [phase for plan in plans for phase in plan]
    children = [child for phase in phases for child in phase]
    return PlanTable(
        plan_phase_ptr=_pointers([len(plan) for plan in plans]),
        phase_child_ptr=_pointers([len(phase) for phase in phases]),
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


def _pointers(lengths: Sequence[int] | Ints) -> Ints:
    pointers = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=pointers[1:])
    return pointers


def turned(table: PlanTable, n_turns: int, step: int) -> PlanTable:
    """The plans of *table* for every turn of a rotating layout: turn t moves members by t * step.

    Orders are laid one after the other.
    """
    keep(len(table.child_bytes) * (n_turns - 1))
    check_offsets(len(table.order) * n_turns)

    def tiled(pointers: Ints) -> Ints:
        return _pointers(np.tile(np.diff(pointers), n_turns))

    turns = np.repeat(np.arange(n_turns) * step, len(table.child_alt))
    alternatives = (np.tile(table.child_alt, n_turns) + turns) % table.n_members
    offsets = np.repeat(np.arange(n_turns) * table.n_plans, len(table.order))
    return replace(
        table,
        plan_phase_ptr=tiled(table.plan_phase_ptr),
        phase_child_ptr=tiled(table.phase_child_ptr),
        child_alt_ptr=tiled(table.child_alt_ptr),
        child_alt=alternatives.astype(np.int32),
        child_is_write=np.tile(table.child_is_write, n_turns),
        child_bytes=np.tile(table.child_bytes, n_turns),
        child_bios=np.tile(table.child_bios, n_turns),
        order=(np.tile(table.order, n_turns) + offsets).astype(np.int32),
    )


def mixed(tables: Sequence[PlanTable], weights: Sequence[int]) -> PlanTable:
    """One random-access table of several: *weights* are the parts that each takes of the volume."""
    plans = PlanSet()
    orders: list[Int32s] = []
    # Whole periods of each order, so that it stays exact; short against the total, so that its
    # share is kept to one part in 1000 or better.
    total = min(max(1000 * max(len(table.order) for table in tables), 4096), MAX_ORDER)
    for table, weight in zip(tables, weights, strict=True):
        order, share = plans.add(table.plans)[table.order], Fraction(weight, sum(weights))
        periods = max(round(share * total / len(order)), 1 if share else 0)
        orders.append(np.resize(order, periods * len(order)))
    return tables[0].with_plans(plans.plans, np.concatenate(orders))


def with_rare_phase(table: PlanTable, phase: Sequence[RawChild], share: float) -> PlanTable:
    """*table* with *phase* in front of a *share* of its requests, evenly spaced.

    >>> base = build_table([((((0,), True, 4096, 1),),)], np.zeros(1, np.int32), 1, 4096)
    >>> with_rare_phase(base, [((0,), True, 0, 512, 1)], 0.25).order
    array([1, 0, 0, 0], dtype=int32)
    """
    front, own = table_plan([phase])[0], table.plans
    plans = [((), *plan) for plan in own]
    if share <= 0:
        return table.with_plans(plans, table.order)
    period = len(table.order)
    wanted = min(int(np.ceil(1 / share)), MAX_ORDER)
    period *= -(-wanted // period)
    order = np.resize(table.order, period)
    n_dirty = max(1, round(share * period))
    order[np.arange(n_dirty) * period // n_dirty] += table.n_plans
    return table.with_plans([*plans, *((front, *plan) for plan in own)], order)


def with_last_phase(table: PlanTable, phase: Sequence[RawChild]) -> PlanTable:
    """*table* with *phase* behind every plan: a flush.

    >>> base = build_table([((((0,), True, 4096, 1),),)], np.zeros(1, np.int32), 1, 4096)
    >>> with_last_phase(base, [((0,), True, 0, 0, 1)]).plan(0)
    ((((0,), True, 4096, 1),), (((0,), True, 0, 1),))
    """
    last = table_plan([phase])[0]
    return table.with_plans([(*plan, last) for plan in table.plans], table.order)


def mean_read_bytes(table: PlanTable) -> float:
    """Bytes that a request reads from the members, on average.

    >>> base = build_table([((((0,), False, 4096, 1),),)], np.zeros(1, np.int32), 1, 4096)
    >>> mean_read_bytes(base)
    4096.0
    """
    weights = np.bincount(table.order, minlength=table.n_plans) / len(table.order)
    weight = np.repeat(
        np.repeat(weights, np.diff(table.plan_phase_ptr)), np.diff(table.phase_child_ptr)
    )
    return float((weight - weight * table.child_is_write) @ table.child_bytes)


def _turned_plan(plan: TablePlan, turn: int, *, keep_all: bool) -> TablePlan:
    """*plan* with each child's alternatives turned, only the first kept unless *keep_all*."""
    phases = []
    for phase in plan:
        children = []
        for number, (members, is_write, size, bios) in enumerate(phase):
            at = (turn + number) % len(members)
            order = members[at:] + members[:at]
            children.append((order if keep_all else order[:1], is_write, size, bios))
        phases.append(tuple(children))
    return tuple(phases)


def _spread(table: PlanTable, *, keep_all: bool, run: int = 1) -> PlanTable:
    """*table* with every plan in all turns of its alternatives, each for *run* requests."""
    counts = np.diff(table.child_alt_ptr)
    turns = math.lcm(*(int(n) for n in np.unique(counts))) if len(counts) else 1
    if turns == 1:
        return table
    keep(len(table.child_bytes) * turns)
    check_offsets(len(table.order) * turns)
    plans = [
        _turned_plan(plan, turn, keep_all=keep_all) for turn in range(turns) for plan in table.plans
    ]
    order = np.tile(table.order, -(-run // len(table.order)))
    turned_orders = [order + turn * table.n_plans for turn in range(turns)]
    joined = np.stack(turned_orders, axis=1).reshape(-1)
    return table.with_plans(plans, joined if run == 1 else np.concatenate(turned_orders))


def balanced(table: PlanTable, policy: str) -> PlanTable:
    """*table* under a read policy of mirrors.

    "round-robin" sends reads to the copies in turn (random access draws the turn), whatever their
    load. "shortest-queue" takes the copy with the fewest outstanding commands, equals in turn.
    "md" takes the first of equals, "first" has one alternative only.

    >>> base = build_table([((((0, 1), False, 4096, 1),),)], np.zeros(1, np.int32), 2, 4096)
    >>> balanced(base, "round-robin").child_alt.tolist()
    [0, 1]
    >>> balanced(base, "shortest-queue").child_alt.tolist()
    [0, 1, 1, 0]
    """
    if policy in ("round-robin", "shortest-queue"):
        return _spread(table, keep_all=policy == "shortest-queue")
    return table


def streamed(table: PlanTable, streams: int, stays: bool) -> PlanTable:
    """Sequential reads of a raid1 under md, at any queue depth.

    A stream leaves its member after `LEFT`. Where none states an optimal I/O size it *stays*: one
    reads the first member alone; several keep to different ones, here for runs of `STREAM_RUN`
    requests. Source: `should_choose_next` of Linux, md ground truth (2000:0 and 300:300:0).
    """
    if not stays:
        spread = _spread(table, keep_all=False, run=max(1, LEFT // table.request_bytes))
        return replace(spread, is_sequential=streams == 1)
    if streams > 1:
        return _spread(table, keep_all=False, run=STREAM_RUN)
    plans = [_turned_plan(plan, 0, keep_all=False) for plan in table.plans]
    return replace(table.with_plans(plans, table.order), is_sequential=True)
