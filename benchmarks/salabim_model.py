"""The pool models in salabim: generators (`yieldless=False`), monitors off: as users tune it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.models import READ_SHARE, SIGMA, Pool
from benchmarks.sample import Latencies, Piece, Sample


def salabim(model: Pool, outstanding: int, warm: int) -> Piece:
    """Return salabim behind its warm-up; ImportError where it is not installed."""
    import salabim as sim

    env = sim.Environment(trace=False, random_seed=1, yieldless=False)
    rng, latencies, goal = random.Random(1), Latencies(), [0]

    def resources(n: int, capacity: int) -> list[Any]:
        made = [sim.Resource(capacity=capacity) for _ in range(n)]
        for resource in made:
            for queue in (resource.requesters(), resource.claimers()):
                queue.length.monitor(False)
                queue.length_of_stay.monitor(False)
            for monitor in (resource.claimed_quantity, resource.available_quantity,
                            resource.capacity, resource.occupancy):  # fmt: skip
                monitor.monitor(False)
        return made

    cpus, pools = resources(model.sockets, model.cores), resources(model.drives, model.pool)
    links, cross = resources(model.drives, 1), resources(2, 1)

    def service(mean: float) -> float:
        return rng.lognormvariate(math.log(mean) - SIGMA**2 / 2, SIGMA)

    def visit(who: Any, station: Any, ps: float) -> Iterator[Any]:
        yield who.request(station)
        yield who.hold(ps)
        who.release(station)

    def path(who: Any, socket: int, drive: int, write: bool) -> Iterator[Any]:
        far = model.sockets > 1 and drive // (model.drives // 2) != socket
        if write:
            if far:
                yield from visit(who, cross[socket], model.cross)
            yield from visit(who, links[drive], model.link)
            yield from visit(who, pools[drive], service(model.write))
            return
        yield from visit(who, pools[drive], service(model.read))
        yield from visit(who, links[drive], model.link)
        if far:
            yield from visit(who, cross[1 - socket], model.cross)

    class Helper(sim.Component):
        """Does a child for its user, then sleeps; kept, as making components is slow."""

        def setup(self, owner: Any) -> None:
            self.owner, self.job = owner, (0, False)

        def process(self) -> Iterator[Any]:
            while True:
                yield self.passivate()
                yield from path(self, self.owner.socket, *self.job)
                self.owner.left -= 1
                if not self.owner.left:
                    self.owner.activate()

    class User(sim.Component):
        def setup(self, socket: int) -> None:
            self.socket, self.left = socket, 0
            self.helpers = [Helper(owner=self) for _ in range(model.children)]

        def phase(self, drives: list[int], write: bool) -> Iterator[Any]:
            self.left = len(drives)
            for helper, drive in zip(self.helpers, drives, strict=False):
                helper.job = (drive, write)
                helper.activate()
            yield self.passivate()

        def process(self) -> Iterator[Any]:
            while True:
                start = env.now()
                yield from visit(self, cpus[self.socket], model.cpu)
                drive = rng.randrange(model.drives)
                if model.name == "b":
                    other = rng.choice([d for d in range(model.drives) if d != drive])
                    yield from self.phase([drive, other], False)
                    yield from self.phase([drive, other], True)
                elif model.name == "d":
                    places = [i % model.drives for i in range(model.children)]
                    yield from self.phase(places, True)
                elif model.name == "a" or rng.random() < READ_SHARE:
                    yield from path(self, self.socket, drive, False)
                else:
                    yield from self.phase([drive, drive ^ 1], True)
                yield from visit(self, cpus[self.socket], model.cpu)
                latencies.values.append(env.now() - start)
                if len(latencies.values) == goal[0]:
                    env.main().activate()

    for user in range(outstanding):
        User(socket=user % model.sockets)

    def run(requests: int) -> Sample:
        began, start = env.now(), time.process_time()
        goal[0] = requests
        env.run(math.inf)  # every call looks through the stack and all modules: one a piece
        return latencies.sample(time.process_time() - start, env.now() - began)

    run(warm)
    return run
