"""Wait for the slowest: what a striped request loses to the member that answers last."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

LATENCY: Final = "Wait for the slowest: latency"
BUSY: Final = "Wait for the slowest: members at work"
SCALING: Final = "Wait for the slowest: more members"
CAPTIONS: Final = {
    LATENCY: (
        "By request size: 5 to 95 % of the requests (bar), median (mark) and mean (dot), for the "
        "members and for the volume, which ends with the slowest of them in each phase. Steps "
        "recorded by the SimPy engine, at most 32 requests in flight, small write buffers."
    ),
    BUSY: (
        "Share of the time of their requests in which members work (green); for the rest they wait "
        "for a sibling, or serve other requests (grey). Last in: the share of requests that ended "
        "with this member. One by one for the largest requests."
    ),
    SCALING: (
        "Requests of one chunk a member, one at a time, against so many members by themselves "
        "(dashed): what is missing is the wait for the slowest."
    ),
}


@dataclass(frozen=True)
class MemberWait:
    """One member under requests of one size."""

    name: str
    latencies_s: tuple[float, ...]
    """Its share of each request, from the fork to its own last command; evenly thinned."""
    busy: float
    """Share of the time its requests take (phase by phase) in which it works on them."""
    last: float
    """Share of the phases with siblings in which it was the last."""


@dataclass(frozen=True)
class SizeWait:
    """Requests of one size on the volume."""

    n_bytes: int
    op: str
    members: tuple[MemberWait, ...]
    volume_s: tuple[float, ...]
    """Time of each request in its members, all phases; evenly thinned."""


@dataclass(frozen=True)
class ScalePoint:
    """Members that share each request, a chunk each, one request at a time."""

    members: int
    op: str
    efficiency: float
    """Throughput over members x the throughput of one member alone."""


@dataclass(frozen=True)
class Waits:
    """Loss of a striped volume to its slowest member."""

    volume: str
    sizes: tuple[SizeWait, ...]
    scaling: tuple[ScalePoint, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the volume, its scaling, and per size the medians and shares."""
        return {
            "volume": self.volume,
            "scaling": [asdict(point) for point in self.scaling],
            "sizes": [
                {
                    "block_size": size.n_bytes, "op": size.op,
                    "mean_s": float(np.mean(size.volume_s)),
                    "members": [
                        {"name": m.name, "mean_s": float(np.mean(m.latencies_s)), "busy": m.busy,
                         "last": m.last}
                        for m in size.members
                    ],
                }
                for size in self.sizes
            ],
        }  # fmt: skip
