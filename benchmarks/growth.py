"""How the cost of a request grows, and memory: one row a point, measured in this process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.engines import Timed, compiled
from benchmarks.models import POOLS, network
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.network.network import Network

DRIVES = (1, 10, 100, 1000)
OUTSTANDING = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
CHILDREN = (1, 8, 64, 512)
REQUESTS = (10**5, 10**6, 10**7)


@dataclass(frozen=True)
class Point:
    """One measured point."""

    axis: str
    value: int
    ns_per_request: float
    ns_per_visit: float
    engine_bytes: int
    """Arrays of the engine; they are what its memory grows by."""
    peak_mb: float
    """Peak of the process so far; 0 where the platform does not tell."""


def points(quick: bool) -> Iterator[Point]:
    """Measure one axis after the other."""
    a, d = POOLS["a"], POOLS["d"]
    few = slice(None, None, 3) if quick else slice(None)
    for requests in REQUESTS[: 2 if quick else 3]:
        yield _point("requests", requests, network(a), requests)
    for drives in DRIVES[few]:
        yield _point("drives", drives, network(replace(a, drives=drives), 4096))
    for children in CHILDREN[few]:
        # so many in flight that the number of children is the same
        yield _point("children", children, network(replace(d, children=children), 4096 // children))
    for outstanding in OUTSTANDING[few]:
        yield _point("outstanding", outstanding, network(a, outstanding))


def _point(axis: str, value: int, net: Network, requests: int = 0) -> Point:
    users = len(net.user_group)
    run = compiled(net, 2 * users + 1000)
    assert isinstance(run.engine, CompiledEngine)
    count = requests or max(20_000, users)
    rate = max(run(count).rate for _ in range(1 if requests > 10**6 else 3))
    return Point(axis, value, 1e9 / rate, 1e9 / rate / run.visits, _size(run), _peak_mb())


def _size(run: Timed) -> int:
    """Bytes of the arrays of the compiled engine's state."""
    return sum(
        x.nbytes
        for part in vars(run.engine).values()
        for x in (part if isinstance(part, tuple) else (part,))
        if isinstance(x, np.ndarray)
    )


def _peak_mb() -> float:
    try:
        import resource
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def elapsed(start: float) -> str:
    """Return the wall time since *start* for a progress line."""
    return f"{time.perf_counter() - start:.0f} s"
