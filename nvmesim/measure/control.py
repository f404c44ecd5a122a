"""Runs an engine until the answer is good enough, or says that it is not.

Three ways to stop: a precision, an exact number of requests, or a simulated time; the
last two count from the end of the warm-up. An open loop whose backlog grows is stopped as unstable.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.array_types import Floats, Ints
from nvmesim.engine.contract import Acc, Batch, Engine, Status
from nvmesim.measure.latency import ASKED, enough, samples, sections_need, tail_grows
from nvmesim.measure.steady import (
    Col,
    Collector,
    Reducer,
    RunLoad,
    Window,
    column,
    drifting,
    fill_level,
    relative_half,
)
from nvmesim.network.network import HORIZON_PS
from nvmesim.units import PS_PER_S, percent
from nvmesim.warning import Warning

MIN_REQUESTS: Final = 200_000  # least number of measured requests behind a precision
FEW_REQUESTS: Final = 40_000  # least number behind an answer that nobody asked a precision of
TIMES_IN_FLIGHT: Final = 40  # such an answer is of what is in flight so many times over, at least
FEWEST_TIMES: Final = 10
"""Turnovers of what is in flight below which a closed loop is not called converged."""
MAX_REQUESTS: Final = 20_000_000
MAX_BATCH: Final = 1 << 14
BATCHES: Final = 64  # batches that the least run is cut into
TAIL_FACTOR: Final = 5
"""The 99th percentile may be so many times less precise than IOPS (5 % against 1 %)."""
CHECK_EVERY: Final = 16  # batches between two looks at an open loop's backlog
GROWTH: Final = 0.005
"""Backlog growth, relative to completions, below which an open loop is called stable."""
RELAXATIONS: Final = 25  # relaxation times that an open loop must be watched for
MIN_BACKLOG: Final = 500
"""Growth in requests over the looked-at half that noise of a stable queue does not reach."""
TRICKLE: Final = 1024
INSISTENCE: Final = 4
TREND: Final = 1.4  # a run whose p99 still rises goes on for so many squared times its length
VISITS_BATCHES: Final = 8  # batches that tell how many stations a request visits

Progress = Callable[[str, float], None]  # called with what is being done and how far it is, 0 to 1
Recorder = Callable[[Ints], None]  # called with the rows of `Engine.records`


@dataclass(frozen=True)
class RunGoal:
    """When to stop."""

    precision: float | None = 0.01
    """Relative 95 % half-width of total IOPS; the p99's is `TAIL_FACTOR` times as much."""
    requests: int | None = None
    duration_ps: int | None = None
    tail: float | None = None  # that of the p99; None: `TAIL_FACTOR` times the precision
    least: int = MIN_REQUESTS
    visits: int | None = None
    """Station visits behind an answer: shortens the least run, to `FEW_REQUESTS`; None: never."""
    patience: int | None = None
    """Station visits after which precise IOPS end the run, whatever p99's interval; None: never."""
    insists: bool = False
    """True if a goal is about the p99: patience is `INSISTENCE` times as long while none tells."""
    most: int = MAX_REQUESTS
    wall_s: float = math.inf  # give up after so much real time

    @property
    def batch(self) -> int:
        """Completions of the first batches."""
        few = self.least if self.visits is None else min(self.least, FEW_REQUESTS)
        return min(MAX_BATCH, max(1, (self.requests or few) // BATCHES))

    @property
    def tail_share(self) -> float:
        """Relative half-width that the p99 must reach."""
        return self.tail or TAIL_FACTOR * (self.precision or 0.01)


@dataclass(frozen=True)
class Measured:
    """Result of a controlled run."""

    window: Window
    head: Floats
    """float64[n, len(Col)]: first batches, warm-up included, of equal size; none if they differ."""
    batch: int
    warmup_requests: int  # completions before the window
    converged: bool
    backlog_per_s: float | None = None
    """Not None: unstable, and the backlog grows by so many requests a second."""
    interrupted: bool = False
    warnings: tuple[str, ...] = ()


class Controller:
    """One run of one engine towards a goal."""

    def __init__(
        self, engine: Engine, reducer: Reducer, goal: RunGoal, load: RunLoad, *,
        record: Recorder | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self._engine, self._goal, self._load = engine, goal, load
        self._record, self._progress = record, progress
        self._kept = Collector(reducer, goal.batch)
        self._batch = goal.batch
        self._warm = True
        self._drift = 0
        self._least = goal.least
        self._growth: float | None = None
        self._ended = False
        self._now = 0
        self._dropped = 0
        self._started = time.perf_counter()

    def run(self) -> Measured:
        """Run to the goal; a KeyboardInterrupt after the first batch ends it early and is noted."""
        interrupted, converged = False, False
        try:
            converged = self._to_goal()
        except KeyboardInterrupt:
            if not len(self._kept):
                raise  # nothing was measured
            interrupted = True
        return self._measured(converged, interrupted)

    def _to_goal(self) -> bool:
        if self._load.replayed:
            self._until(self._goal.requests or self._goal.most)
            return self._ended or self._goal.requests is not None
        if (requests := self._goal.requests) is not None:
            if not self._until(requests):
                return False
            self._drop_warmup()
            return self._until(requests) and not self._is_unstable()
        if self._goal.duration_ps is not None:
            return self._as_long_as(self._goal.duration_ps)
        return self._as_precise_as(self._goal.precision or 0.01)

    def _advance(self, completions: int, until_ps: int = HORIZON_PS) -> None:
        """Add one batch of *completions*, fewer if the run ends."""
        parts: list[Batch] = []
        left = completions
        while left > 0:
            batch = self._engine.advance(left, until_ps)
            parts.append(batch)
            left -= batch.completions
            if self._record is not None:
                self._record(self._engine.records())
            if batch.status == Status.IDLE:
                self._ended = True
            if batch.status in (Status.IDLE, Status.TIME):
                break
        self._now = parts[-1].end_ps
        if sum(part.completions for part in parts) or not len(self._kept):
            self._kept.add(*parts)

    def _until(self, requests: int, until_ps: int = HORIZON_PS) -> bool:
        """Run to so many kept completions; False if the run must not go on."""
        done = self._kept.requests
        start = done
        while done < requests and not self._ended:
            self._advance(min(self._kept.batch, requests - done), until_ps)
            now = self._kept.requests
            if now == done:
                break
            done = now
            share = (done - start) / max(1, requests - start)
            if self._progress is not None:
                self._progress("simulating", min(1.0, max(share, self._now / until_ps)))
            if len(self._kept) % CHECK_EVERY == 0 and self._is_unstable():
                return False
            if time.perf_counter() - self._started > self._goal.wall_s:
                return False
        return not self._ended

    def _is_unstable(self) -> bool:
        if self._load.is_open and not self._load.replayed:
            self._growth = backlog_growth(self._kept.records)
        return self._growth is not None

    def _drop_warmup(self) -> None:
        """Decide on the warm-up, once."""
        before = self._kept.requests
        cut, self._warm = self._kept.warmup()
        self._kept.drop(cut)
        self._dropped += before - self._kept.requests

    def _as_long_as(self, duration_ps: int) -> bool:
        end = duration_ps
        many = 1 << 62
        self._kept.batch = self._pilot(duration_ps)
        going = self._until(many, end)
        if self._growth is None and (going or self._now < end) and not self._ended:
            self._drop_warmup()
            window = self._kept.window(0)
            end = int(window.warmup_ps) + duration_ps
            self._until(many, end)
        spent = time.perf_counter() - self._started
        return not self._is_unstable() and spent <= self._goal.wall_s

    def _fewest(self) -> int:
        """Requests below which a closed loop's window shows its start."""
        looped = not (self._load.is_open or self._load.replayed)
        return FEWEST_TIMES * self._load.in_flight if looped else 0

    def _pilot(self, duration_ps: int) -> int:
        """Completions of a batch, if *duration_ps* is to have `BATCHES` of them."""
        self._advance(TRICKLE // 8, duration_ps)
        window = self._kept.window(0)
        share = window.requests / max(1.0, window.duration_ps)
        return min(MAX_BATCH, max(8, round(share * duration_ps / BATCHES)))

    def _as_precise_as(self, precision: float) -> bool:
        goal = self._goal
        self._least = max(self._least_run(), self._fewest())
        target = self._least + max(self._least // 8, 4 * self._load.in_flight)
        while True:
            target = min(target, goal.most)
            if not self._until(target):
                return False
            if self._is_unstable():
                return False
            excess, window = self._excess(precision)
            if excess <= 1 or self._is_enough(window, precision):
                return True
            done = self._kept.requests
            # An open loop may be so close to its bound that no run here shows its steady state.
            is_long = window.requests >= 2 * self._least
            if done >= goal.most or (
                is_long and relaxation(window, self._load) * window.requests > goal.most
            ):
                self._growth = self._overload(window)
                return False
            wish = done - window.requests + window.requests * excess**2
            if math.isinf(excess):
                wish = done - window.requests + 1.1 * sections_need(0.99)
            target = int(min(max(wish * 1.05, 1.25 * done), 2 * done))
            target = self._within_patience(target, done, window)

    def _least_run(self) -> int:
        """Requests of the least run, by how many stations a request visits."""
        goal = self._goal
        if goal.visits is None:
            return goal.least
        for _ in range(VISITS_BATCHES):  # whole ones: what-ifs are paired with them
            self._advance(self._kept.batch)
        window = self._kept.window(0)
        if not window.snapshots or not window.requests:
            return goal.least
        each = float(window.total.stations[:, Acc.VISITS].sum()) / window.requests
        in_flight, share = self._load.in_flight, self._load.share
        few = max(FEW_REQUESTS, TIMES_IN_FLIGHT * in_flight, round(goal.visits / max(each, 1.0)))
        return min(goal.least, max(round(share * few), FEWEST_TIMES * in_flight))

    def _excess(self, precision: float) -> tuple[float, Window]:
        """How many times too wide the intervals are, and the window they are of."""
        cut, self._warm = self._kept.warmup()
        window = self._kept.window(cut)
        self._drift = drifting(window, self._load)
        if not self._warm or self._drift or window.requests < self._least:
            return math.inf, window
        excess = math.sqrt(relaxation(window, self._load))
        if excess > 1:
            return excess, window
        # The rate of bursts is an input: what is asked for is the latency's precision.
        excess = 0.0 if self._load.bursts else relative_half(window.iops()) / precision
        data = samples(window, None)
        if data is not None and enough(data.size, 99):
            if tail_grows(window):
                return max(excess, TREND), window
            excess = max(excess, data.relative_half(0.99) / self._goal.tail_share)
        return excess, window

    def _within_patience(self, target: int, done: int, window: Window) -> int:
        """*target*, or where patience ends if that is between it and what is *done*."""
        if self._goal.patience is None or not window.requests or not window.snapshots:
            return target
        each = float(window.total.stations[:, Acc.VISITS].sum()) / window.requests
        patience = self._goal.patience * self._load.share
        end = done - window.requests + math.ceil(1.02 * patience / max(each, 1.0))
        return min(target, end) if end > done else target

    def _is_enough(self, window: Window, precision: float) -> bool:
        """True if IOPS are known in a steady state, and the p99 was waited for long enough."""
        goal = self._goal
        if goal.patience is None or not self._warm or self._drift or not window.snapshots:
            return False
        visits = float(window.total.stations[:, Acc.VISITS].sum())
        if visits < goal.patience * self._load.share or window.requests < self._least:
            return False
        if self._is_close(window):
            return False
        data = samples(window, None)
        is_told = not goal.insists or (data is not None and data.tells(ASKED))
        if not is_told and visits < INSISTENCE * goal.patience:
            return False
        return self._load.bursts or relative_half(window.iops()) <= precision

    def _is_close(self, window: Window) -> bool:
        return bool(len(window.records)) and relaxation(window, self._load) > 1

    def _overload(self, window: Window) -> float | None:
        """Growth of the backlog if a station was given more work than the window has room for."""
        if not self._load.is_open:
            return None
        noise = 3 / np.sqrt(np.maximum(1.0, window.total.stations[:, 0]))
        if not (loads(window, self._load) > 1 + noise).any():
            return None
        level = window.records[:, Col.OUTSTANDING]
        grown = float(level[-1] - level[0])
        return grown / float(window.records[1:, Col.DURATION].sum()) * PS_PER_S

    def _measured(self, converged: bool, interrupted: bool) -> Measured:
        fixed = self._goal.requests is not None or self._goal.duration_ps is not None
        cut = 0
        if not self._load.replayed and not (fixed and converged):
            cut, self._warm = self._kept.warmup()
        self._dropped += int(self._kept.records[:cut, Col.READS : Col.WRITES + 1].sum())
        window = self._kept.window(cut)
        self._drift = drifting(window, self._load)
        if not self._load.replayed:
            settled = self._drift == 0 and self._warm and window.requests >= self._fewest()
            converged = converged and settled
        head = np.array(self._kept.head).reshape(-1, len(Col))
        return Measured(
            window, head, self._batch, self._dropped, converged, self._growth, interrupted,
            tuple(self._warnings(converged, interrupted, window)),
        )  # fmt: skip

    def _warnings(self, converged: bool, interrupted: bool, window: Window) -> list[Warning]:
        out = []
        if interrupted:
            done = f"interrupted: {window.requests:,} requests were finished"
            out.append(Warning("interrupted", done))
        if self._growth is not None:
            return out
        if window.requests < self._fewest():
            text = (
                f"{window.requests:,} requests with {self._load.in_flight:,} in flight are the "
                f"start of the load, not its steady state; that takes at least {self._fewest():,}"
            )
            out.append(Warning("short", text))
        elif not self._warm and not self._load.replayed:
            text = "the warm-up may not have been over: a longer run may give other numbers"
            out.append(Warning("warm-up", text))
        out += self._unsettled(window)
        if self._goal.precision is not None and not interrupted and tail_grows(window):
            text = (
                f"p99 still rose at the end of {window.requests:,} requests: slow writes gather at "
                "few drives only in time; a finer precision makes the run longer"
            )
            out.append(Warning("rising", text, "p99"))
        if self._is_close(window):
            load = 100 * loads(window, self._load).max()
            text = (
                f"the load is {load:.2f} % of what its fullest part can do: so close to the "
                "bound, latencies keep changing for longer than was simulated"
            )
            out.append(Warning("near-bound", text))
        elif not converged and not interrupted and not self._drift:
            out += self._imprecise(window)
        return out

    def _unsettled(self, window: Window) -> list[Warning]:
        """True if write buffers fill or empty still, and what would show where they end."""
        if not self._drift:
            return []
        spent = f"{self._kept.requests:,} simulated requests"
        if self._goal.duration_ps is not None:
            spent = "the simulated time"
        more = f"{spent} did not reach that"
        if self._drift < 0:
            text = "a write buffer was still emptying: writes are faster in the steady state"
            return [Warning("emptying", f"{text}; {more}")]
        share, left = fill_level(window, self._load)
        text = (
            f"a write buffer was still filling ({percent(share)} full at the end): writes fall to "
            f"the rate it drains at after about {left:.2g} s more"
        )
        return [Warning("filling", f"{text}; {more}")]

    def _imprecise(self, window: Window) -> list[Warning]:
        """Which precision was not reached, if one was to be."""
        goal = self._goal
        if goal.precision is None:
            return []
        half = relative_half(window.iops())
        if half > goal.precision:
            text = (
                f"the precision of {100 * goal.precision:.2g} % was not reached: simulated IOPS "
                f"are within {100 * half:.2g} % after {window.requests:,} requests"
            )
            return [Warning("imprecise", text)]
        data = samples(window, None)
        if data is None or not enough(data.size, 99):
            return []
        tail = data.relative_half(0.99)
        if tail <= goal.tail_share:
            return []
        message = f"within {100 * tail:.2g} %" if math.isfinite(tail) else "not known"
        text = (
            f"p99 moves slowly: simulated IOPS are within {100 * half:.2g} % after "
            f"{window.requests:,} requests, p99 is {message} ({100 * goal.tail_share:.2g} % was to "
            "be reached)"
        )
        return [Warning("imprecise", text, "p99")]


def backlog_growth(records: Floats) -> float | None:
    """Requests a second by which the backlog of an open loop grows; None if it is stable.

    The number outstanding must rise at all eight eighths of the later half of the records.
    """
    half = records[len(records) // 2 :]
    if len(half) < 8:
        return None
    ends = (np.arange(9) * (len(half) - 1)) // 8
    level = half[ends, Col.OUTSTANDING]
    grown = float(level[-1] - level[0])
    done = float(column(half, Col.READS, None)[1:].sum())
    if not (np.diff(level) > 0).all() or grown < max(GROWTH * done, MIN_BACKLOG):
        return None
    return grown / float(half[1:, Col.DURATION].sum()) * PS_PER_S


def loads(window: Window, load: RunLoad) -> Floats:
    """float64[n_stations]: work that arrived, over what the servers can do in the window."""
    if not load.is_open or not load.servers.size or not window.snapshots:
        return np.zeros(0)
    service = window.total.stations[:, 2]
    room = np.maximum(load.servers, 1) * max(1.0, window.duration_ps)
    return np.asarray(np.where(load.servers > 0, service / room, 0.0))


def relaxation(window: Window, load: RunLoad) -> float:
    """How many times longer an open loop should be watched than *window*; below 1 if long enough.

    `RELAXATIONS` times M/M/1's 1 / (mu (1 - sqrt r)^2). Source: Cohen, The Single Server Queue,
    1982.
    """
    share = loads(window, load)
    busy = share > 0.9  # below, the least run is long enough
    if not busy.any():
        return 0.0
    visits = window.total.stations[busy, 0]
    left = np.maximum(1 - share[busy], 1e-9)
    return float((RELAXATIONS * 4 / left**2 / np.maximum(visits, 1.0)).max())
