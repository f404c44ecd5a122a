"""The contract of both engines, and what they return: the order of events is defined here, once.

1. The clock is int64 ps. Within one instant, phase A handles everything that *ends*: departures,
   timers, and all that follows in zero time (release a gate, fork, join, destage). Phase A only
   counts up and down, so its order does not matter.
2. Phase B then *dispatches* what arrived, sorted by (station, order): each station starts or
   queues its arrivals. Only phase B reads state that others change. What it lets pass (a gate's
   grant, a new request) continues in a further phase A of the same instant, until it is quiet.
3. A token's order is (request number, child, unit). A station's *touch* (a gate with freed slots, a
   die that may start a program, a round that may start, a turn that ended) comes after its
   arrivals. After the
   stations come the chooser (children with alternatives) and the source (users that submit, by
   user number). An arrival at an idle station of rounds asks for its touch in the instant's next
   phase B, so that a round takes all that arrived in this one.
4. A service time is fixed when the token is dispatched and is at least 1 ps.
5. A visit that is chained to the one before (`chained`) is dispatched and accounted with it, as if
   its token arrived then: it is known when it will, and that no other comes in between.
6. No event and unfinished requests: DeadlockError.

Tried before: a plain priority queue differs on 43-82 % of random fork-join networks,
because forks make exact ties; with this order none of 7,000 differed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Ints
from nvmesim.errors import DeadlockError
from nvmesim.network.check import jumps
from nvmesim.network.network import O_CODE, O_DELAY, O_PROGRAM, O_STATION, VISITS, Kind, Network, Op
from nvmesim.rng import mix

TOUCH_ORDER: Final = 1 << 62
"""Order of a station's touch: behind every token."""
ORDER_SHIFT: Final = 24
"""A token's order is request << 24 | child << 12 | unit."""
CHILD_SHIFT: Final = 12

PURPOSE_PLAN: Final = 1
PURPOSE_KIND: Final = 2
PURPOSE_GAP: Final = 3
PURPOSE_PROGRAM: Final = 5
PURPOSE_SERIES: Final = 6
PURPOSE_DESTAGE: Final = 7
PURPOSE_BURST: Final = 9
PURPOSE_ROUND: Final = 8
PURPOSE_BATCH: Final = 10

HIST_BITS: Final = 7
"""128 bins per octave: a bin is at most 1/128 wide, its middle at most 0.4 % off."""
HIST_OCTAVES: Final = 62
HIST_BINS: Final = HIST_OCTAVES << HIST_BITS


class Acc(IntEnum):
    """Columns of `Batch.stations`."""

    VISITS = 0
    WAIT = 1
    """ps between arrival and start (gates: and grant; rounds: and departure, but for the own
    service, so that here too wait and service add up to the stay)."""
    SERVICE = 2
    """ps of service, as the clock sees it (gates: slot-ps held; rounds: the first's base)."""
    WORK = 3
    """ps of service before the load-dependent factor (rounds: as if every round were full)."""


class Status(IntEnum):
    """Why `advance` returned."""

    COMPLETED = 0
    IDLE = 1
    """No event is left."""
    TIME = 2
    """The next event lies beyond the time limit."""
    RECORD_FULL = 3


@dataclass(frozen=True)
class Batch:
    """Statistics of what completed during one call of `advance`."""

    status: Status
    start_ps: int
    end_ps: int
    count: Ints
    """int64[2]: measured completions, read and write."""
    latency_sum_ps: Ints
    """int64[2, 2]: read and write x lat and clat."""
    latency_max_ps: Ints
    """int64[2, 2]"""
    histogram: Ints
    """int64[2, 2, HIST_BINS]"""
    flows: Ints
    """int64[n_flows]: completions."""
    alternatives: Ints
    """int64[n_alts]: children sent to each alternative."""
    stations: Ints
    """int64[n_stations, 4], see `Acc`."""
    outstanding: int
    """Requests in flight at the end."""
    syncs: Ints = field(default_factory=lambda: np.zeros(HIST_BINS, np.int64))
    """int64[HIST_BINS]: time from the answer of a measured request to its end, where it goes on."""
    classes: Ints = field(default_factory=lambda: np.zeros((0, HIST_BINS), np.int64))
    """int64[n_classes, HIST_BINS]: latencies by `Network.flow_class`."""

    @property
    def completions(self) -> int:
        """Measured completions of both operations."""
        return int(self.count.sum())


REQUEST_FIELDS: Final = ("request", "group", "user", "flow", "submit_ps", "issue_ps", "complete_ps")


def by_completion(rows: Ints) -> Ints:
    """Rows of `Engine.records` in their order: by completion, and within an instant by request."""
    request, complete = (REQUEST_FIELDS.index(name) for name in ("request", "complete_ps"))
    return rows[np.lexsort((rows[:, request], rows[:, complete]))]


class Engine(Protocol):
    """A network in motion."""

    def advance(self, completions: int, until_ps: int) -> Batch:
        """Run until so many measured requests have completed, or the clock would pass until_ps."""
        ...

    def records(self) -> Ints:
        """Return and forget int64[n, 7] of REQUEST_FIELDS, a row a completion (if recording)."""
        ...


def wake_up_ps(most: int, slept: int, half: int) -> int:
    """Cost of waking a thread: grows with its sleep towards *most*, half of it at *half*.

    >>> wake_up_ps(6_000_000, 15_000_000, 15_000_000), wake_up_ps(7, 0, 0)
    (3000000, 7)
    """
    return int(most * (slept / (slept + half))) if half else most


def stretched_ps(gap: int, now: int, end: int, slow: int) -> tuple[int, int]:
    """How much of a *gap* is left after the time to *end*, and the time that was used.

    A gap of an open loop with bursts passes *slow* / SCALE_ONE times as slowly; 0: not at all.
    What is left is -1 once the gap has passed.

    >>> stretched_ps(100, 0, 1000, 1 << 15), stretched_ps(100, 0, 10, 1 << 17)
    ((-1, 50), (95, 10))
    """
    room = end - now
    if not slow:
        return gap, room
    need = (gap * slow) >> 16
    if need <= room:
        return -1, need
    return max(0, gap - room // slow * 65536 - ((room % slow) << 16) // slow), room


def run_key(seed: int, replication: int, purpose: int) -> int:
    """Key of one run's draws: purpose 0 for requests, 1 for background processes."""
    return int(mix(mix(seed, replication), purpose))


def deadlock(net: Network, gates: Iterable[int], live: int) -> DeadlockError:
    """Return the error of rule 6, naming the *gates* with a queue and the *live* requests."""
    names = ", ".join(net.station_names[g] for g in gates) or "no gate"
    return DeadlockError(f"deadlock: {live} requests wait at {names}")


def bin_index(value_ps: int) -> int:
    """Bin of a latency; exact below 2**HIST_BITS, then HIST_BITS bits of mantissa.

    >>> bin_index(5), bin_index(128), bin_index(129)
    (5, 128, 129)
    """
    shift = max(0, value_ps.bit_length() - 1 - HIST_BITS)
    return (shift << HIST_BITS) + (value_ps >> shift)


@cache
def bin_middle() -> npt.NDArray[np.float64]:
    """float64[HIST_BINS], ps: middle of every bin; not to be written to."""
    index = np.arange(HIST_BINS)
    shift = np.maximum(0, (index >> HIST_BITS) - 1)
    mantissa = index - (shift << HIST_BITS)
    middle: npt.NDArray[np.float64] = (mantissa + 0.5 * (shift > 0)) * np.exp2(shift)
    middle.setflags(write=False)
    return middle


# Visits that are chained (rule 5) -----------------------------------------------------------------

PLAIN = frozenset({int(Op.VISIT), int(Op.VISIT_BANK), int(Op.VISIT_LANE)})
ALL = frozenset(map(int, VISITS))
VISIT, CPU = int(Op.VISIT), int(Op.VISIT_CPU)


def chained(net: Network, apart: Collection[int] = ()) -> npt.NDArray[np.bool_]:
    """bool[n_ops]: whether an operation's visit takes that of the next operation along.

    A station whose every visit follows a visit to one single server, by the same delay, gets its
    tokens in the order in which that server serves them, if it takes them in order itself; a delay
    keeps no state. *apart* are
    stations that behave in a way of their own.
    """
    places = _places(net)
    visitors: dict[int, list[int]] = {}
    for pc, stations in enumerate(places):
        for s in stations:
            visitors.setdefault(s, []).append(pc)
    sources = net.ops[:, (O_STATION, O_DELAY)].tolist()  # station, and the delay behind it
    follows = _may_follow(net, places, apart)
    delays = set(np.flatnonzero(net.station_kind == Kind.DELAY).tolist())
    ordered = delays.intersection(visitors)
    queues = [s for s in visitors if s not in ordered]
    while True:
        for s in queues:
            pcs = visitors[s]
            first = sources[pcs[0] - 1]
            if all(follows[pc] and sources[pc - 1] == first for pc in pcs):
                ordered.add(s)
            else:
                ordered.discard(s)
        keeps = [f and ordered.issuperset(places[pc]) for pc, f in enumerate(follows)]
        if follows == keeps:
            return np.array([*follows[1:], False])
        follows = keeps


def _places(net: Network) -> list[Collection[int]]:
    """Stations that each operation may visit."""
    cpus = set(net.thread_cpu.tolist())
    places: list[Collection[int]] = []
    for code, a, _, _, d, _, _ in net.ops.tolist():
        if code == CPU:
            places.append(cpus)
        elif code in ALL:
            places.append(range(a, a + d) if code in PLAIN and code != VISIT else (a,))
        else:
            places.append(())
    return places


def _may_follow(net: Network, places: list[Collection[int]], apart: Collection[int]) -> list[bool]:
    """True if each operation and the one before it visit stations that can be chained."""
    splits = net.ops[net.ops[:, O_CODE] == Op.SPLIT, O_PROGRAM]
    starts = {0, *net.flow_program.tolist(), *net.alt_program.tolist(), *splits.tolist()}
    starts.update(i + 1 + n for i, further in jumps(net).items() for n in further)
    plain = (net.station_kind == Kind.FIFO) & (net.station_scale < 0)
    queues = set(np.flatnonzero(plain).tolist()).difference(apart)
    delays = set(np.flatnonzero(net.station_kind == Kind.DELAY).tolist()).difference(apart)
    single = queues.intersection(np.flatnonzero(net.station_servers == 1).tolist())
    codes = net.ops[:, O_CODE].tolist()
    return [
        pc not in starts
        and (codes[pc] in PLAIN or codes[pc] == Op.VISIT_UNORDERED)
        and codes[pc - 1] in PLAIN
        and (
            (queues.issuperset(places[pc - 1]) and delays.issuperset(here))
            or (codes[pc - 1] == VISIT and single.issuperset(places[pc - 1])
                and queues.issuperset(here))
        )
        for pc, here in enumerate(places)
    ]  # fmt: skip
