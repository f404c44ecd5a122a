"""Counters of the reference engine in a batch."""

from __future__ import annotations

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.engine.contract import HIST_BINS, Batch, Status, bin_index
from nvmesim.engine.reference.tokens import Request
from nvmesim.network.network import Network


class BatchTally:
    """Completions of a batch that started at *start_ps*; the fields are those of `Batch`."""

    def __init__(self, net: Network, start_ps: int) -> None:
        self._net = net
        self.start_ps = start_ps
        self.done = 0
        """Measured completions."""
        self.count = np.zeros(2, np.int64)
        self.latency_sum = np.zeros((2, 2), np.int64)
        self.latency_max = np.zeros((2, 2), np.int64)
        self.histogram = np.zeros((2, 2, HIST_BINS), np.int64)
        self.syncs = np.zeros(HIST_BINS, np.int64)
        self.classes = np.zeros((net.n_classes, HIST_BINS), np.int64)
        self.flows = np.zeros(len(net.flow_program), np.int64)
        self.alternatives = np.zeros(max(1, len(net.alt_program)), np.int64)
        self.plans = np.zeros(len(net.plan_phase_ptr) - 1, np.int64)

    def answer(self, request: Request, now: int) -> None:
        """Count *request* as completed *now*."""
        net = self._net
        self.flows[request.flow] += 1
        if not net.group_measured[request.group]:
            return
        self.done += 1
        w = int(net.flow_write[request.flow])
        self.count[w] += 1
        for i, since in enumerate((request.submit_ps, request.issue_ps)):
            latency = now - since
            self.latency_sum[w, i] += latency
            self.latency_max[w, i] = max(self.latency_max[w, i], latency)
            self.histogram[w, i, bin_index(latency)] += 1
        own = int(net.flow_class[request.flow])
        if own >= 0:
            self.classes[own, bin_index(now - request.submit_ps)] += 1

    def end(self, request: Request, now: int) -> None:
        """Note that a *request* that was answered before has ended *now*."""
        if self._net.group_measured[request.group]:
            self.syncs[bin_index(now - request.answer_ps)] += 1

    def batch(self, status: Status, now: int, stations: Ints, live: int) -> Batch:
        """All of it, with the accounts of the *stations* and *live* requests in flight."""
        return Batch(
            status, self.start_ps, now, self.count, self.latency_sum, self.latency_max,
            self.histogram, self.flows, self.alternatives, self.plans, stations, live, self.syncs,
            self.classes,
        )  # fmt: skip
