"""Collects flows, groups and users as the arrays of a `Network`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple

from nvmesim.array_types import Ints
from nvmesim.network.builder import ints, table_of
from nvmesim.network.network import SCALE_ONE

FLOW_ARRAYS: Final = ("program", "write", "bytes", "order_ptr", "order_len", "stream", "class")
"""Names of the fields of `FlowRow` in `Network`."""
FULL: Final = 1 << 32
"""The last cumulative threshold of a group."""


class FlowRow(NamedTuple):
    """The fields ``flow_*`` of `Network`."""

    program: int
    write: int
    n_bytes: int
    order_ptr: int
    order_len: int
    stream: int = -1
    own: int = -1
    """Class whose histogram it counts in."""


class BurstRow(NamedTuple):
    """The fields ``group_on_*`` and ``group_off_*`` of `Network`."""

    on_dist: int = -1
    off_dist: int = -1
    on_slow: int = SCALE_ONE
    off_slow: int = SCALE_ONE


class GroupRow(NamedTuple):
    """The fields ``group_*`` of `Network`."""

    flow: int
    kinds: int
    threshold_ptr: int
    targets: int = 1
    measured: int = 1
    open: int = 0
    gap_dist: int = -1
    think_ps: int = 0
    bursts: BurstRow = BurstRow()


class UserRow(NamedTuple):
    """The fields ``user_*`` of `Network`."""

    group: int
    thread: int
    target: int = 0
    stream: int = 0


@dataclass
class LoadRows:
    """Flows, groups, users as they are added."""

    flows: list[FlowRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    threshold: list[int] = field(default_factory=list)
    users: list[UserRow] = field(default_factory=list)
    stream_start: list[int] = field(default_factory=list)
    max_targets: int = 1

    def add_thresholds(self, shares: Sequence[float]) -> int:
        """Add the cumulative thresholds of *shares*, which sum to 1; return where they start."""
        start = len(self.threshold)
        self.threshold += [round(part * FULL) for part in accumulate(shares)]
        self.threshold[-1] = FULL
        return start

    def arrays(self, n_classes: int) -> dict[str, Any]:
        """Fields of `Network`."""
        bursts = [group.bursts for group in self.groups]
        return {
            **_columns("flow", FLOW_ARRAYS, self.flows),
            "n_classes": n_classes,
            **_columns("group", GroupRow._fields[:-1], [group[:-1] for group in self.groups]),
            **_columns("group", BurstRow._fields, bursts),
            "threshold": ints(self.threshold),
            "n_batch_targets": self.max_targets,
            **_columns("user", UserRow._fields, self.users),
            "n_streams": len(self.stream_start),
            "stream_start": ints(self.stream_start),
        }


def _columns(prefix: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Ints]:
    table = table_of(rows, len(names))
    return {f"{prefix}_{name}": ints(table[:, k]) for k, name in enumerate(names)}
