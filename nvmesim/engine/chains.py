"""Visits that need no event between them, because nothing else can come in between.

A station whose every visit follows a visit to one single server, by the same delay, gets its
tokens in the order in which that server serves them. So when the one visit is dispatched the next
can be as well: its arrival is known, and so is all that arrives before it. The same holds for a
delay behind any queue, as it keeps no state. Both engines *chain* such visits: the token goes on at
the end of the last, and each is accounted when the first is dispatched. Completions are the same to
the picosecond with and without (`tests/engines/test_chains.py`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from nvmesim.network.check import jumps
from nvmesim.network.network import O_CODE, O_DELAY, O_PROGRAM, O_STATION, VISITS, Kind, Network, Op

PLAIN = frozenset({int(Op.VISIT), int(Op.VISIT_BANK), int(Op.VISIT_LANE)})
ALL = frozenset(map(int, VISITS))
VISIT, CPU = int(Op.VISIT), int(Op.VISIT_CPU)


def chained(net: Network, apart: Collection[int] = ()) -> npt.NDArray[np.bool_]:
    """bool[n_ops]: whether an operation's visit takes that of the next operation along.

    *apart* are stations that behave in a way of their own.
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
        and codes[pc] in PLAIN
        and codes[pc - 1] in PLAIN
        and (
            (queues.issuperset(places[pc - 1]) and delays.issuperset(here))
            or (codes[pc - 1] == VISIT and single.issuperset(places[pc - 1])
                and queues.issuperset(here))
        )
        for pc, here in enumerate(places)
    ]  # fmt: skip
