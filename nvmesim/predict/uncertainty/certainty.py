"""How sure a measured run is: the parts that need no simulation, and all four together.

What measured rows rule out bounds them: a deeper load does no less, and no request takes less time.
A server that did a rate with fewer in flight, on no more drives, does about that or more; and N
requests in flight do no more than N over the time that the fastest of them took (asymptotic bounds:
Denning and Buzen, "The operational analysis of queueing network models", 1978). However little is
known of what lies between, an interval need not reach beyond.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nvmesim.catalog.quantity import Residual
from nvmesim.engine.contract import Acc
from nvmesim.measure.control import RunGoal
from nvmesim.measure.stations import Totals, is_delay, member_stats, rows_of
from nvmesim.model.lowered import Lowered
from nvmesim.predict.uncertainty.design import Numbers
from nvmesim.predict.uncertainty.misfit import Misfit, misfit
from nvmesim.predict.uncertainty.model_error import ModelError, model_error
from nvmesim.predict.uncertainty.parts import FIGURES, NONE, Certainty, Parts, Span
from nvmesim.predict.uncertainty.standing import Standing, model_class, standing
from nvmesim.scenario.resolved import ResolvedScenario, WorkloadGroup
from nvmesim.units import PS_PER_S

TIMES_SMALLER: Final = 5
"""A run stops when its own part of an interval is so many times smaller than the rest."""
RATE_TARGET: Final = (0.0025, 0.03)
"""Least and largest simulation part of IOPS that a run without a stated precision stops at."""
TAIL_TARGET: Final = (0.01, 0.10)
"""The same of the p99."""
LEAST_VISITS: Final = 1_000_000
"""Station visits of the least run without a stated precision."""
PATIENCE_VISITS: Final = 3_000_000
"""Station visits after which such a run waits no longer for its p99."""
ANY: Final[Span] = (math.inf, math.inf)
"""No row says anything."""
LOST: Final = {True: 0.7, False: 0.5}
"""Of a rate that reads (true), or writes and mixes, did with fewer in flight, what more leave at
least. Sources: threads that share a drive lose a sixth (koroneia, NAND; nx05, Optane), RAID5 and
RAID6 reads a quarter where 64 threads share a lock (linux-raid, J. Finlayson, 2021)."""
FASTER: Final = 1.5
"""Least time of a request in a row over that of a busier load, at most. Source: 162 us of a read by
8 threads are 135 by 64 (DGX-2, GPUDirect Storage guide, 2020); a thread that is never idle saves
its wake-up, a third of a lone cached write."""
LEAST_ROOM: Final = 0.1
"""Room that is left on each side, of the logarithm."""
QUEUED: Final = 8
"""Requests in flight of a thread from which on it may be full."""
SAME_SIZE: Final = 1.1
SAME_SHARE: Final = 0.05
SECTOR: Final = 4096
"""Bytes that most drives write at once."""


@dataclass(frozen=True)
class ModelUncertainty:
    """The misfit and the model error of a prediction: what no simulation tells."""

    standing: Standing
    errors: Mapping[str, ModelError]
    misfits: Mapping[str, Misfit]

    def half(self, figure: str) -> float:
        """Both together, 95 %, of the logarithm."""
        return math.hypot(self.errors[figure].half, self.misfits[figure].half)


def model_uncertainty(
    scenario: ResolvedScenario, verdict: str = "", drive_share: float = 1.0, without: str = "",
    traffic: Sequence[float] = (),
) -> ModelUncertainty:  # fmt: skip
    """Certainty that needs no simulation of *scenario*.

    *drive_share* is the share of a request's time that its drives take: as much of their misfit
    counts. *traffic* has the bytes/s of each drive, if they are known. *without* leaves one source
    out of what the model's error is learned from.
    """
    name = model_class(scenario, verdict)
    stands = standing(scenario, name, verdict, traffic)
    errors = {f: model_error(stands, f, without=without) for f in FIGURES}
    misfits = {f: misfit_of(scenario, f, drive_share) for f in FIGURES}
    return ModelUncertainty(stands, errors, misfits)


def misfit_of(scenario: ResolvedScenario, figure: str, share: float) -> Misfit:
    """Of *figure*; a latency that the profile keeps no residuals of moves against its IOPS."""
    found = misfit(scenario, figure, share)
    if figure == "iops" or found.deviation or found.shift:
        return found
    rate = misfit(scenario, "iops", share)
    closed = not any(group.is_open for group in scenario.workload)
    return Misfit(-rate.shift if closed else 0.0, rate.deviation)


def precision_goal(goal: RunGoal, known: ModelUncertainty) -> RunGoal:
    """Return *goal* with the precision that an answer deserves whose other parts are *known*."""
    rate, tail = (known.half(figure) / TIMES_SMALLER for figure in ("iops", "p99"))
    return RunGoal(
        precision=min(max(rate, RATE_TARGET[0]), RATE_TARGET[1]),
        tail=min(max(tail, TAIL_TARGET[0]), TAIL_TARGET[1]),
        least=goal.least, visits=LEAST_VISITS, patience=PATIENCE_VISITS,
        most=goal.most, wall_s=goal.wall_s,
    )  # fmt: skip


def drive_share(lowered: Lowered, totals: Totals) -> float:
    """Share of a request's time that it spends in drives: waiting, and being served.

    What gates hold overlaps with what is held, so of those only the wait counts.
    """
    net = lowered.network
    mine = everything = 0.0
    for info in lowered.stations:
        rows = totals.stations[rows_of(info)]
        spent = float(rows[:, Acc.WAIT].sum())
        if info.kind != "gate" or is_delay(net, info):
            spent += float(rows[:, Acc.SERVICE].sum())
        everything += spent
        mine += spent if info.drive is not None and info.kind != "link" else 0.0
    return mine / everything if everything > 0 else 1.0


def drive_traffic(lowered: Lowered, totals: Totals) -> list[float]:
    """Bytes/s that each drive reads and writes."""
    requests_per_s = totals.requests * PS_PER_S / max(1.0, totals.duration_ps)
    return [
        (m.read_bytes_per_request + m.write_bytes_per_request) * requests_per_s
        for m in member_stats(lowered, totals)
    ]


def room(scenario: ResolvedScenario, iops: float) -> Span:
    """Return how far the logarithm of *iops* may lie below and above, by the drives' own rows.

    Infinite where no row of the same share of reads tells, or contradicts what was predicted.
    """
    if len(scenario.workload) != 1 or iops <= 0:
        return ANY
    group, profiles = scenario.workload[0], {d.profile.name: d.profile for d in scenario.drives}
    if group.is_open or group.sync_every or group.rate_limit or len(profiles) != 1:
        return ANY
    profile = next(iter(profiles.values()))
    if profile.captured is None or profile.captured.datasheet:
        return ANY
    rows = [r for r in profile.residuals if _tells(r, group)]
    low = max(_least(rows, group, scenario), default=0.0)
    high = min(_most(rows, group, scenario), default=math.inf)
    down = math.log(iops / low) if 0 < low < iops else math.inf
    up = math.log(high / iops) if iops < high else math.inf
    return max(down, LEAST_ROOM), max(up, LEAST_ROOM)


def _tells(row: Residual, group: WorkloadGroup) -> bool:
    """True if *row* is a measured load of the same kind as *group*."""
    is_plain = row.measured is not None and not row.held_out and not row.sync
    is_same = abs(row.read - group.read) <= SAME_SHARE
    return is_plain and is_same and row.sequential == (group.access == "sequential")


def _least(
    rows: list[Residual], group: WorkloadGroup, scenario: ResolvedScenario
) -> Iterator[float]:
    """Yield rates below which the server does not fall, requests/s: rows with no more of all."""
    reads_only = group.read == 1
    if any(v.raid.parity and (v.degraded or not reads_only) for v in scenario.volumes):
        return
    for row in rows:
        is_same = 1 / SAME_SIZE < group.mean_size / row.block_size < SAME_SIZE
        in_flight = row.threads * row.outstanding
        if is_same and in_flight <= group.in_flight and row.drives <= len(scenario.drives):
            yield LOST[reads_only] * (row.measured or 0.0)


def _most(
    rows: list[Residual], group: WorkloadGroup, scenario: ResolvedScenario
) -> Iterator[float]:
    """Yield rates that are not exceeded, requests/s: a row's, times how much more is in flight.

    Or times the threads, where its own may have been what its requests waited for.
    """
    drives, threads = len(scenario.drives), group.n_threads
    for row in rows:
        may_be_full = row.outstanding >= QUEUED
        busier = max(1.0, threads / row.threads) if may_be_full else 1.0
        is_part = row.read < 1 and row.block_size < SECTOR <= group.mean_size  # it is read before
        if row.block_size <= SAME_SIZE * group.mean_size and not is_part:
            deeper = max(1.0, group.in_flight / drives / row.depth)
            yield FASTER * (row.measured or 0.0) / row.drives * drives * max(deeper, busier)


@dataclass(frozen=True)
class UncertaintyBudget:
    """All four parts of an answer's figures."""

    known: ModelUncertainty
    numbers: Numbers = field(default_factory=dict)
    headroom: float | None = None
    """Of an open loop that is carried: by how much its bound exceeds what arrives, a factor."""
    simulation: Mapping[str, Span] = field(default_factory=dict)
    room: Span = ANY
    """Of IOPS, what measured rows leave below and above"""

    def shift(self, figure: str) -> float:
        """By how much the logarithm of *figure* moves: the mean of what profiles missed nearby."""
        if figure == "iops" and self.headroom is not None:
            return 0.0
        return self.known.misfits[figure].shift if figure in self.known.misfits else 0.0

    def parts(self, figure: str) -> Parts:
        """Return the four parts of *figure*.

        The numbers' part of a percentile that short runs do not tell is the next lower's; rows
        leave of a closed loop's mean what they leave of its rate. IOPS of a load that arrives by
        the clock are an input, unless less than that is carried.
        """
        lower = reversed(FIGURES[: FIGURES.index(figure) + 1])
        half = self.known.misfits[figure].half
        found = Parts(
            self.simulation.get(figure, NONE),
            next((self.numbers[name] for name in lower if name in self.numbers), NONE),
            (half, half),
            self.known.errors[figure].span,
            {"iops": self.room, "mean": self.room[::-1]}.get(figure, ANY),
        )
        if figure != "iops" or self.headroom is None:
            return found
        spare = math.log(max(self.headroom, 1.0))
        cut = {name: (max(0.0, getattr(found, name)[0] - spare), 0.0)
               for name in ("numbers", "misfit", "model")}  # fmt: skip
        return replace(found, **cut)

    def certainty(self, figures: list[str]) -> Certainty:
        """Return what a result says of *figures*."""
        error = self.known.errors["iops"]
        moved = {f: math.expm1(self.shift(f)) for f in figures if abs(self.shift(f)) > 1e-6}
        return Certainty(
            {f: self.parts(f) for f in figures}, self.known.standing, error.sources, error.off,
            moved,
        )  # fmt: skip
