"""Flows, groups and users of the load, row by row, and as the arrays of a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nvmesim.model.lowered import FlowInfo
from nvmesim.network.builder import ints
from nvmesim.scenario.resolved import WorkloadGroup


@dataclass
class LoadRows:
    """Flows, groups, users as they are added."""

    flow_rows: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    flows: list[FlowInfo] = field(default_factory=list)
    group_rows: list[tuple[int, int, int, int, int, int, int, int]] = field(default_factory=list)
    burst_rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    threshold: list[int] = field(default_factory=list)
    users: list[tuple[int, int, int, int]] = field(default_factory=list)
    stream_start: list[int] = field(default_factory=list)
    max_targets: int = 1
    n_phases: int = 1

    def arrays(self, n_workloads: int) -> dict[str, Any]:
        """Fields of `Network`; with several workloads each has histograms of its own."""
        flow = np.array(self.flow_rows, np.int64)
        group = np.array(self.group_rows, np.int64)
        user = np.array(self.users, np.int64)
        bursts = np.array(self.burst_rows, np.int64)
        several = n_workloads > 1
        return {
            "flow_program": ints(flow[:, 0]), "flow_write": ints(flow[:, 1]),
            "flow_bytes": ints(flow[:, 2]), "flow_order_ptr": ints(flow[:, 3]),
            "flow_order_len": ints(flow[:, 4]), "flow_stream": ints(flow[:, 5]),
            "flow_class": ints([f.group if several else -1 for f in self.flows]),
            "n_classes": n_workloads if several else 0,
            "group_flow": ints(group[:, 0]), "group_kinds": ints(group[:, 1]),
            "group_threshold_ptr": ints(group[:, 2]), "threshold": ints(self.threshold),
            "group_targets": ints(group[:, 3]), "group_measured": ints(group[:, 4]),
            "group_open": ints(group[:, 5]), "group_gap_dist": ints(group[:, 6]),
            "group_think_ps": ints(group[:, 7]),
            "group_on_dist": ints(bursts[:, 0]), "group_off_dist": ints(bursts[:, 1]),
            "group_on_slow": ints(bursts[:, 2]), "group_off_slow": ints(bursts[:, 3]),
            "n_batch_targets": self.max_targets,
            "user_group": ints(user[:, 0]), "user_thread": ints(user[:, 1]),
            "user_target": ints(user[:, 2]), "user_stream": ints(user[:, 3]),
            "n_streams": len(self.stream_start), "stream_start": ints(self.stream_start),
        }  # fmt: skip


def request_kinds(group: WorkloadGroup) -> list[tuple[bool, int, float]]:
    """(write, bytes, share) of a group; shares sum to 1.

    >>> from nvmesim.scenario.resolved import WorkloadGroup
    >>> request_kinds(WorkloadGroup("w", (), block_sizes=((4096, 1.0),), read=0.7))
    [(False, 4096, 0.7), (True, 4096, 0.30000000000000004)]
    """
    writes = group.write_block_sizes or group.block_sizes
    kinds = [(False, size, group.read * share) for size, share in group.block_sizes]
    kinds += [(True, size, (1 - group.read) * share) for size, share in writes]
    return [kind for kind in kinds if kind[2] > 0]
