"""The workloads: four pool models that every implementation writes in its own way, four servers.

A *pool model* is the form in which simulators are compared: a drive is a pool of 48 FIFO servers
and its own link, a socket 16 CPU servers. A *full model* is a scenario, lowered as `nvmesim run`
does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.stats import lognorm

from nvmesim.model.lower import lower
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import Network
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from tests.engines import builder as b

US: Final = 1_000_000
SIGMA: Final = 0.30
"""Of every lognormal time."""
READ_SHARE: Final = 0.7
"""Of model (c)."""


@dataclass(frozen=True)
class Pool:
    """A pool model; times in us."""

    name: str
    what: str
    outstanding: int
    drives: int
    children: int = 0
    """Most children of a request that exist at once."""
    sockets: int = 1
    cores: int = 16
    pool: int = 48
    cpu: float = 3.0
    link: float = 1.0
    cross: float = 0.4
    """Link between the sockets, one a direction, where there are two."""
    read: float = 80.0
    write: float = 20.0
    visits: float = 4.0
    """Station visits of a request, on average."""


POOLS: Final = {
    "a": Pool("a", "4K reads, 4 drives", 256, 4),
    "b": Pool("b", "RAID5 of 5, 4K writes by read-modify-write", 64, 5, 2, visits=10),
    "c": Pool(
        "c", "8K 70/30 on RAID10, 24 drives, two sockets", 512, 24, 2, sockets=2, link=2.0,
        visits=2 + READ_SHARE * 2.5 + (1 - READ_SHARE) * 5,
    ),
    "d": Pool(
        "d", "4 MB writes on RAID0 of 8, chunk 128 KiB", 64, 8, 32, link=36.0, visits=2 + 64
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Full:
    """A scenario."""

    name: str
    what: str
    outstanding: int
    scenario: dict[str, Any]

    def lowered(self, outstanding: int | None = None) -> Lowered:
        """Lower the scenario with so many requests in flight (at least one a thread)."""
        load = dict(self.scenario["workload"][0])
        total = outstanding or self.outstanding
        load["threads"] = min(load["threads"], total)
        load["outstanding"] = max(1, total // load["threads"])
        return lower(resolve(Scenario.model_validate({**self.scenario, "workload": [load]})))


def _server(
    drives: int, sockets: int = 1, volume: dict[str, Any] | None = None, **load: Any
) -> dict[str, Any]:
    each = drives // sockets
    out: dict[str, Any] = {
        "server": {
            "stack": "linux-io_uring",
            "sockets": [{"cpu": "epyc-9654"} for _ in range(sockets)],
        },
        "drives": [
            {"profile": "micron-7450-pro-3.84tb", "count": each, "socket": s}
            for s in range(sockets)
        ],
        "workload": [{"access": "random", **load}],
    }
    if volume:
        out["volume"] = {"engine": "linux-md", **volume}
    return out


FULLS: Final = {
    f.name: f
    for f in (
        Full(
            "jbod", "4K reads, JBOD of 4", 256,
            _server(4, block_size="4 KiB", read=1.0, threads=16),
        ),
        Full(
            "raid5", "4K random writes, RAID5 of 5", 64,
            _server(5, 1, {"raid": "raid5", "chunk": "64 KiB"}, block_size="4 KiB", read=0.0,
                    threads=16),
        ),
        Full(
            "raid10", "8K 70/30 on RAID10, 24 drives, two sockets", 512,
            _server(24, 2, {"raid": "raid10", "chunk": "64 KiB"}, block_size="8 KiB",
                    read=READ_SHARE, threads=32),
        ),
        Full(
            "raid0", "4 MB writes, RAID0 of 8", 64,
            _server(8, 1, {"raid": "raid0", "chunk": "128 KiB"}, block_size="4 MiB", read=0.0,
                    threads=16),
        ),
    )
}  # fmt: skip


def network(model: Pool, outstanding: int | None = None) -> Network:
    """Return *model* below the waist."""
    net = b.NetworkBuilder()
    cpus = net.fifos([model.cores] * model.sockets)
    pools, links = net.fifos([model.pool] * model.drives), net.fifos([1] * model.drives)
    cross = net.fifos([1] * 2) if model.sockets > 1 else 0
    read, write = (
        net.dist(lambda p, m=mean: lognorm.ppf(p, SIGMA, scale=m * US * np.exp(-(SIGMA**2) / 2)))
        for mean in (model.read, model.write)
    )
    cpu, link, over = (round(x * US) for x in (model.cpu, model.link, model.cross))

    def reading(socket: int, drive: int) -> list[b.Row]:
        rows = [b.visit(pools + drive, dist=read), b.visit(links + drive, link)]
        far = _far(model, socket, drive)
        return [*rows, b.visit(cross + 1 - socket, over)] if far else rows

    def writing(socket: int, drive: int) -> list[b.Row]:
        rows = [b.visit(links + drive, link), b.visit(pools + drive, dist=write)]
        return [b.visit(cross + socket, over), *rows] if _far(model, socket, drive) else rows

    def child(rows: list[b.Row], drive: int) -> b.Child:
        return [(net.program(*rows), drive)]

    def request(socket: int, *rows: b.Row) -> int:
        return net.program(b.visit(cpus + socket, cpu), *rows, b.visit(cpus + socket, cpu))

    targets, shares = [], [1.0]
    for socket in range(model.sockets):
        if model.name == "a":
            rows = b.bank(pools, model.drives, dist=read), b.lane(links, model.drives, link)
            flows = [b.Flow(request(0, *rows), [net.plan()])]
        elif model.name == "b":
            first = [child(reading(0, d), d) for d in range(model.drives)]
            second = [child(writing(0, d), d) for d in range(model.drives)]
            pairs = [(i, j) for i in range(model.drives) for j in range(model.drives) if i != j]
            plans = [net.plan([first[i], first[j]], [second[i], second[j]]) for i, j in pairs]
            flows = [b.Flow(request(0, b.fork(0), b.fork(1)), plans, write=1)]
        elif model.name == "c":
            # reads are of a drive near or far, and do not fork
            half = model.drives // 2
            near, far = half * socket, half * (1 - socket)
            one = [
                [b.bank(pools + at, half, dist=read), b.lane(links + at, half, link)]
                for at in (near, far)
            ]
            one[1].append(b.visit(cross + 1 - socket, over))
            empty = net.plan([])
            legs = [child(writing(socket, d), d) for d in range(model.drives)]
            two = [net.plan([legs[d], legs[d ^ 1]]) for d in range(model.drives)]
            flows = [b.Flow(request(socket, *rows), [empty]) for rows in one]
            flows.append(b.Flow(request(socket, b.fork(0)), two, write=1))
            shares = [READ_SHARE / 2, READ_SHARE / 2, 1 - READ_SHARE]
        else:
            legs = [child(writing(0, d), d) for d in range(model.drives)]
            plan = net.plan([legs[i % model.drives] for i in range(model.children)])
            flows = [b.Flow(request(0, b.fork(0)), [plan], write=1)]
        targets.append(flows)
    thread, many = net.thread(), outstanding or model.outstanding
    users = [b.User(thread, target=i % model.sockets) for i in range(many)]
    net.group(targets, users, shares=shares)
    return net.build()


def _far(model: Pool, socket: int, drive: int) -> bool:
    return model.sockets > 1 and drive // (model.drives // model.sockets) != socket
