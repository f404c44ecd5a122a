"""The requests of a capture, one by one, and a drive simulated under exactly their arrivals.

The load is open. A run out of the middle of a capture may begin with a full write buffer: begun
empty, a replay would acknowledge all of them at once, so writes that fill it go ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from nvmesim.array_types import Bools, Floats, Ints
from nvmesim.calibrate.bench import BenchHost, behind_host
from nvmesim.capture.capture import Capture
from nvmesim.catalog.profile import DriveProfile
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.errors import FitError
from nvmesim.model.lower import lower
from nvmesim.model.request_kinds import request_kinds
from nvmesim.network.network import HORIZON_PS
from nvmesim.scenario.resolved import Target, WorkloadGroup
from nvmesim.units import PS_PER_S

FIRST: Final = 32
"""Writes of a run that tell whether it began with a full buffer."""
WAITED: Final = 3.0
"""Their median latency from which on it did, in units of an acknowledgement's. Assumed."""
SOON: Final = 0.1
"""Share of a capture's writes that are taken to have been acknowledged without a wait."""
BUSY: Final = 0.8
"""Share of the controller's rate at which the buffer is filled: commands do not pile up."""
MOST_LATENCY: Final = 0.99
"""Quantile of latencies within which requests at an end of a capture touch what is not in it."""
EMPTIES: Final = 3.0
"""Time that a full buffer is left alone to drain, in units of what all dies together take."""


def acknowledged_s(latency_s: Floats) -> float:
    """Seconds that a write of a capture takes without a wait; infinite if there is none."""
    return float(np.quantile(latency_s, SOON)) if len(latency_s) else float("inf")


def begins_full(latency_s: Floats, acknowledged: float) -> bool:
    """True if the first of a run's writes waited for the drain; float64[n] in order of arrival."""
    first = latency_s[:FIRST]
    return len(first) == FIRST and float(np.median(first)) > WAITED * acknowledged


def lead_in(profile: DriveProfile, size: int) -> Ints:
    """int64[n], ps from 0: arrivals of writes of *size* bytes that fill the buffer of *profile*.

    They begin when what the buffer held before is drained. None where no buffer fills.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> at = lead_in(drive, 4096)
    >>> bool(len(at) > drive.write.buffer.value / 4096 and (np.diff(at) > 0).all())
    True
    """
    write = profile.write
    units = -(-size // round(write.unit.value))
    rate = BUSY * profile.commands.value
    drained = profile.dies.value / write.program.value * PS_PER_S / units
    if write.through or profile.rounds is not None or rate <= drained:
        return np.zeros(0, np.int64)
    slots = write.buffer.value / write.unit.value / units
    count = int(np.ceil(slots * rate / (rate - drained)))
    at = EMPTIES * slots / drained + np.arange(count) / rate
    return np.round(at * PS_PER_S).astype(np.int64)


MAX_SIZES = 32
"""Distinct sizes kept as they are; more are rounded up to powers of two of at least 4 KiB."""
OTHERS = ("write", "size", "latency_s", "depth")
"""Columns of requests beside their times."""
IDLE = 4
"""Longest latencies between two runs of a trace: no run feels the one before it."""


@dataclass(frozen=True)
class Arrivals:
    """Requests of one device in order of issue; all arrays have one row a request."""

    at_ps: Ints
    """int64[n], ascending, from 0"""
    write: npt.NDArray[np.bool_]
    size: Ints
    """int64[n], bytes"""
    latency_s: Floats
    """float64[n], issue to completion as measured"""
    depth: Ints
    """int64[n]: outstanding at issue, this one included"""
    source: str = ""
    full: tuple[tuple[int, int], ...] = ()
    """Runs, from one request up to another, that found the write buffer full: see `lead_in`"""
    begins: tuple[int, ...] = (0,)
    """First requests of the runs"""

    def __len__(self) -> int:
        return len(self.at_ps)

    def part(self, start: int, stop: int) -> Arrivals:
        """Requests *start* to *stop*, their clock from 0."""
        at = self.at_ps[start:stop]
        others: dict[str, Any] = {name: getattr(self, name)[start:stop] for name in OTHERS}
        at = at - (at[0] if len(at) else 0)
        return replace(self, at_ps=at, **others, full=(), begins=(0,))

    def after_others(self) -> Bools:
        """bool[n]: true where all that a request could meet is among the requests, not before."""
        soon = np.quantile(self.latency_s, MOST_LATENCY) * PS_PER_S
        begun = self.at_ps[list(self.begins)]
        run = np.searchsorted(self.begins, np.arange(len(self)), side="right") - 1
        return np.asarray((self.depth == 1) | (self.at_ps - begun[run] >= soon))

    def halves(self) -> tuple[Arrivals, Arrivals]:
        """First and second half, by number of requests."""
        middle = len(self) // 2
        return self.part(0, middle), self.part(middle, len(self))

    def windows(self, most: int, count: int = 4) -> Arrivals:
        """At most *most* requests in *count* runs; between them time for one at half the rate."""
        soon = acknowledged_s(self.latency_s[self.write])
        if len(self) <= most:
            return self.begun(soon)
        length = most // count
        starts = np.linspace(0, len(self) - length, count).astype(int)
        runs = [self.part(int(s), int(s) + length).begun(soon) for s in starts]
        idle = int(self.latency_s.max() * 1e12)
        begin, at = 0, []
        for run in runs:
            at.append(run.at_ps + begin)
            begin += 2 * int(run.at_ps[-1]) + idle
        others: dict[str, Any] = {
            name: np.concatenate([getattr(r, name) for r in runs]) for name in OTHERS
        }
        return replace(
            self, at_ps=np.concatenate(at), **others,
            full=tuple((i * length, (i + 1) * length) for i, r in enumerate(runs) if r.full),
            begins=tuple(i * length for i in range(count)),
        )  # fmt: skip

    def begun(self, acknowledged: float) -> Arrivals:
        """The same, marked as begun with a full buffer if its first writes waited (s)."""
        waited = begins_full(self.latency_s[self.write], acknowledged)
        return replace(self, full=((0, len(self)),)) if waited else self


def arrivals_of(capture: Capture, notes: list[str] | None = None) -> Arrivals:
    """Requests of the busiest device of *capture*, or FitError; *notes* get what is left out."""
    said: list[str] = [] if notes is None else notes
    name = capture.file.name
    if capture.requests is None:
        raise FitError(f"{name}: holds results, not requests; give a block trace or a latency log")
    issue = pl.coalesce(pl.col("issue_ns"), pl.col("complete_ns") - pl.col("latency_ns"))
    frame = (
        capture.requests.select(
            issue.alias("at"), pl.col("latency_ns").alias("latency"),
            pl.col("op").cast(pl.String), "bytes", "depth", pl.col("device").fill_null(""),
        )
        .filter(pl.col("at").is_not_null() & (pl.col("latency") > 0) & (pl.col("bytes") > 0)
                & pl.col("op").is_not_null())
        .sort("at", maintain_order=True)
        .collect()
    )  # fmt: skip
    if frame.is_empty():
        raise FitError(f"{name}: no request in it has an issue, a latency and a size")
    devices = frame["device"].value_counts(sort=True)
    if devices.height > 1:
        first = str(devices["device"][0])
        frame = frame.filter(pl.col("device") == first)
        said.append(f"{name}: {devices.height} devices; only {first}, the busiest, is fitted")
    # Of those submitted last only the fastest were completed when the capture ended.
    ended = (pl.col("at") + pl.col("latency")).max()
    whole = frame.filter(pl.col("at") <= ended - pl.col("latency").quantile(MOST_LATENCY))
    if left := frame.height - whole.height:
        said.append(f"{name}: the last {left} requests are left out: slower ones with them are cut")
    frame = whole
    at, latency, size = (frame[c].to_numpy().astype(np.int64) for c in ("at", "latency", "bytes"))
    if len(np.unique(size)) > MAX_SIZES:
        size = np.maximum(4096, 2 ** np.ceil(np.log2(size)).astype(np.int64))
    ends = np.sort(at + latency)
    depth: Ints = np.arange(1, len(at) + 1) - np.searchsorted(ends, at, side="right")
    return Arrivals(
        at_ps=(at - at[0]) * 1000, write=(frame["op"] == "write").to_numpy(), size=size,
        latency_s=latency / 1e9, depth=depth, source=name,
    )  # fmt: skip


def let_in(at: Ints, done: Ints, most: int) -> Ints:
    """int64[n], ps: when the arrivals *at*, which end at *done*, were let in, *most* at once.

    >>> let_in(np.array([0, 0, 0, 7]), np.array([5, 9, 14, 20]), 2).tolist()
    [0, 0, 5, 9]
    """
    begun = at.copy()
    begun[most:] = np.maximum(at[most:], np.sort(done)[: max(0, len(at) - most)])
    return begun


class Replayer:
    """Simulates drives under the same arrivals again and again."""

    def __init__(
        self, arrivals: Arrivals, host: BenchHost, *, seed: int = 1, runs: int = 1
    ) -> None:
        self.arrivals, self.host, self.seed = arrivals, host, seed
        # one engine serves all runs: to make one takes longer than a short trace
        self._idle = int(IDLE * arrivals.latency_s.max() * PS_PER_S)
        period = 2 * int(arrivals.at_ps[-1]) + self._idle
        self.runs = max(1, min(runs, HORIZON_PS // (period + 1)))
        self.sizes = np.unique(arrivals.size)
        self._most = int(arrivals.depth.max())
        kinds = request_kinds(self._group())
        index = {(write, size): i for i, (write, size, _) in enumerate(kinds)}
        pairs = zip(arrivals.write.tolist(), arrivals.size.tolist(), strict=True)
        self._kind = np.array([index[pair] for pair in pairs], np.int64)
        self._lead_size = int(arrivals.size[arrivals.write].min()) if arrivals.full else 0
        self._lead_kind = index.get((True, self._lead_size), 0)

    def latencies_s(self, profile: DriveProfile, *, seed: int | None = None) -> Floats:
        """float64[runs, n]: latency of every request on *profile*, in order of arrival.

        Runs follow each other, idle between. A request that comes while as many are outstanding as
        the capture ever had waits, and its latency begins when it is let in: near saturation the
        load of a capture is closed, and an open one piles up without end.
        """
        if not profile.sorts:  # as many commands at once as the capture had; an arm keeps its own
            tags = profile.tags.model_copy(update={"value": float(self._most)})
            profile = profile.model_copy(update={"tags": tags})
        at, kind, counted = self._arriving(profile)
        network = lower(behind_host(profile, self.host, [self._group()])).network
        period = self._idle + 2 * int(at[-1])
        network = replace(
            network,
            group_open=np.full_like(network.group_open, 2),
            group_gap_dist=np.full_like(network.group_gap_dist, -1),
            arrival_ps=np.concatenate([at + k * period for k in range(self.runs)]),
            arrival_flow=np.tile(kind + int(network.group_flow[0]), self.runs),
            user_arrival_ptr=np.array([0, self.runs * len(at)], np.int64),
        )
        seed = self.seed if seed is None else seed
        engine = CompiledEngine(network, seed=seed, record=True)
        left, rows = len(network.arrival_ps), []
        while left > 0:
            engine.advance(min(left, 1 << 16))
            rows.append(engine.records())
            left -= len(rows[-1])
        table = np.concatenate(rows)
        table = table[np.argsort(table[:, 0])]
        latency: Floats = (table[:, 6] - let_in(table[:, 4], table[:, 6], self._most)) / PS_PER_S
        return latency.reshape(self.runs, -1)[:, counted]

    def _arriving(self, profile: DriveProfile) -> tuple[Ints, Ints, Bools]:
        """Arrivals of one run, ps, their kinds, and which of them are the capture's."""
        at, kind, counted = self.arrivals.at_ps, self._kind, np.ones(len(self.arrivals), bool)
        if not self.arrivals.full:
            return at, kind, counted
        lead = lead_in(profile, self._lead_size)
        took = int(2 * lead[-1] - lead[-2]) if len(lead) > 1 else 0
        for start, _ in reversed(self.arrivals.full):
            at = np.concatenate([at[:start], at[start] + lead, at[start:] + took])
            kind = np.insert(kind, start, np.full(len(lead), self._lead_kind))
            counted = np.insert(counted, start, np.zeros(len(lead), bool))
        return at, kind, counted

    def _group(self) -> WorkloadGroup:
        n = len(self.sizes)
        return WorkloadGroup(
            "capture", (Target("drive", 0, "drive0"),),
            block_sizes=tuple((int(s), 1 / n) for s in self.sizes),
            align=int(np.gcd.reduce(np.append(self.sizes, 4096))),
            read=0.5, threads=1, rate=1.0,
        )  # fmt: skip
