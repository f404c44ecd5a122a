"""The pool models in SimPy as its documentation shows: a `Resource` a station, `with request()`."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

import simpy

from benchmarks.models import READ_SHARE, SIGMA, Pool
from benchmarks.sample import Latencies, Piece, Sample

Walk = Iterator[simpy.Event]


class Server:
    """One model: its resources and its users."""

    def __init__(self, model: Pool, outstanding: int) -> None:
        self.model = model
        self.env = env = simpy.Environment()
        self.rng = random.Random(1)
        self.cpu = [simpy.Resource(env, model.cores) for _ in range(model.sockets)]
        self.drives = [simpy.Resource(env, model.pool) for _ in range(model.drives)]
        self.links = [simpy.Resource(env) for _ in range(model.drives)]
        self.cross = [simpy.Resource(env) for _ in range(2)]
        self.latencies = Latencies()
        for user in range(outstanding):
            env.process(self.user(user % model.sockets))

    def user(self, socket: int) -> Walk:
        while True:
            start = self.env.now
            yield from self.visit(self.cpu[socket], self.model.cpu)
            yield from self.volume(socket)
            yield from self.visit(self.cpu[socket], self.model.cpu)
            self.latencies.values.append(self.env.now - start)

    def visit(self, station: simpy.Resource, service: float) -> Walk:
        with station.request() as turn:
            yield turn
            yield self.env.timeout(service)

    def volume(self, socket: int) -> Walk:
        model, process, rng = self.model, self.env.process, self.rng
        drive = rng.randrange(model.drives)
        if model.name == "a":
            yield from self.read(socket, drive)
        elif model.name == "b":
            other = rng.choice([d for d in range(model.drives) if d != drive])
            yield process(self.read(0, drive)) & process(self.read(0, other))
            yield process(self.write(0, drive)) & process(self.write(0, other))
        elif model.name == "c":
            if rng.random() < READ_SHARE:
                yield from self.read(socket, drive)
            else:
                yield process(self.write(socket, drive)) & process(self.write(socket, drive ^ 1))
        else:
            places = [i % model.drives for i in range(model.children)]
            yield self.env.all_of([process(self.write(0, place)) for place in places])

    def read(self, socket: int, drive: int) -> Walk:
        yield from self.visit(self.drives[drive], self.time(self.model.read))
        yield from self.visit(self.links[drive], self.model.link)
        if self.far(socket, drive):
            yield from self.visit(self.cross[1 - socket], self.model.cross)

    def write(self, socket: int, drive: int) -> Walk:
        if self.far(socket, drive):
            yield from self.visit(self.cross[socket], self.model.cross)
        yield from self.visit(self.links[drive], self.model.link)
        yield from self.visit(self.drives[drive], self.time(self.model.write))

    def far(self, socket: int, drive: int) -> bool:
        return self.model.sockets > 1 and drive // (self.model.drives // 2) != socket

    def time(self, mean: float) -> float:
        return self.rng.lognormvariate(math.log(mean) - SIGMA**2 / 2, SIGMA)

    def run(self, requests: int) -> Sample:
        began, start = self.env.now, time.process_time()
        done = self.latencies.values
        while len(done) < requests:
            self.env.step()
        return self.latencies.sample(time.process_time() - start, self.env.now - began)


def simpy_plain(model: Pool, outstanding: int, warm: int) -> Piece:
    """Return plain SimPy behind its warm-up."""
    server = Server(model, outstanding)
    server.run(warm)
    return server.run
