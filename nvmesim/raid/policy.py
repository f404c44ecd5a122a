"""Read balancing that is not a member's load alone: which copy a read goes to, or is offered first.

md's own rule needs no change of a table: an engine sends a child to the alternative with the
fewest outstanding commands, the first of equals. Source: md ground truth, raid1 and raid10.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.raid.arrays import PlanTable, TablePlan, build_table
from nvmesim.raid.planner.budget import check_offsets
from nvmesim.raid.planner.budget import keep as keep_commands

STREAM_RUN: Final = 2048
"""Requests of a stream that stay on one member of a raid1 before the model turns to the next."""


def _alternatives(table: PlanTable) -> int:
    """Turns until every child has been to each of its alternatives."""
    counts = np.diff(table.child_alt_ptr)
    return math.lcm(*(int(n) for n in np.unique(counts))) if len(counts) else 1


def _turned_plan(plan: TablePlan, turn: int, *, keep: bool) -> TablePlan:
    """*plan* with each child's alternatives turned; only the first is kept unless *keep*."""
    phases = []
    for phase in plan:
        children = []
        for number, (members, is_write, size, bios) in enumerate(phase):
            at = (turn + number) % len(members)
            order = members[at:] + members[:at]
            children.append((order if keep else order[:1], is_write, size, bios))
        phases.append(tuple(children))
    return tuple(phases)


def _spread(table: PlanTable, *, keep: bool, run: int = 1) -> PlanTable:
    """*table* with every plan in all turns of its alternatives, each for *run* requests."""
    turns = _alternatives(table)
    if turns == 1:
        return table
    keep_commands(len(table.child_member) * turns)
    check_offsets(len(table.order) * turns)
    plans = [
        _turned_plan(table.plan(i), turn, keep=keep)
        for turn in range(turns)
        for i in range(table.n_plans)
    ]
    repeats = -(-run // len(table.order))
    order = np.tile(table.order, repeats)
    turned = [order + turn * table.n_plans for turn in range(turns)]
    whole = np.stack(turned, axis=1).reshape(-1) if run == 1 else np.concatenate(turned)
    spread = build_table(plans, whole, table.n_members, table.request_bytes)
    return replace(spread, is_sequential=table.is_sequential, read_policy=table.read_policy)


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
    if policy == "round-robin":
        return _spread(table, keep=False)
    if policy == "shortest-queue":
        return _spread(table, keep=True)
    return table


def sticky(table: PlanTable, streams: int) -> PlanTable:
    """Sequential reads of a raid1 under md: a stream stays on one member, at any queue depth.

    One stream reads the first member alone; several keep to different ones, here for runs of
    `STREAM_RUN` requests. Source: md ground truth (2000:0 and 300:300:0).
    """
    if streams > 1:
        return _spread(table, keep=False, run=STREAM_RUN)
    plans = [_turned_plan(table.plan(i), 0, keep=False) for i in range(table.n_plans)]
    kept = build_table(plans, table.order, table.n_members, table.request_bytes)
    return replace(kept, is_sequential=True, read_policy=table.read_policy)
